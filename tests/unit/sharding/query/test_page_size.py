"""How many items are asked of a shard: sizes learnt, whole blocks, refills, and what pages cost."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from math import ceil
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Done, Send
from shardkit.core.merge import Merge, Run
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import READ_UNIT_BYTES
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes, first_share, refill_share, refills, whole_blocks
from shardkit.sharding.query.plan import QueryPlan
from tests.support.machines import page_machine
from tests.support.tables import many

K = Key("pk").eq("k")


def learnt(*sizes: int) -> ItemSizes:
    """Sizes of items seen, one page each."""
    made = ItemSizes()
    for size in sizes:
        made.learn([size])
    return made


def test_sizes_are_learnt_from_some_of_each_page() -> None:
    """The mean of what was seen; later items count as much as the first 256."""
    assert ItemSizes().mean is None
    assert learnt(300, 300, 300).mean == pytest.approx(300)
    assert learnt(100, 300).mean == pytest.approx(200)
    assert learnt(300, 300).most(4) == pytest.approx(1200)
    assert learnt(100, 300).most(4) == pytest.approx(800 + 2 * 100)
    assert learnt(*[100] * 300, *[500] * 2000).mean == pytest.approx(500, rel=0.01)
    made = ItemSizes()
    made.learn([])
    assert made.mean is None


@given(items=st.floats(0.1, 5000), size=st.integers(2, 20_000), spread=st.integers(0, 50))
def test_whole_blocks(items: float, size: int, spread: int) -> None:
    """Never fewer than asked for, and no more than fits into the blocks that are paid for those."""
    sizes = learnt(*(max(2, size + spread * step) for step in (-1, 1, 0)))
    asked = whole_blocks(items, sizes)
    mean = sizes.mean or 0.0
    assert asked >= items
    if asked > ceil(items):
        assert ceil(asked * mean / READ_UNIT_BYTES) == ceil(ceil(items) * mean / READ_UNIT_BYTES)


def test_what_the_shards_must_bring_before_more_can_be_handed_out() -> None:
    """Each its part of what is missing, by what it brought, less what is expected of those that hold nothing back."""
    merge = Merge(3)
    merge.add(0, Run([*range(10)], [{}] * 10), (9, 0))
    merge.add(1, Run([*range(0, 40, 2)], [{}] * 20), (38, 1))
    merge.add(2, Run([*range(0, 60, 6)], [{}] * 10), (54, 2))
    merge.release()
    assert merge.released == [10, 5, 2]
    # The first one has been read to the bound. To the second one's end there are 15 + 5 more, and the 10 of 17 that the
    # first one will bring beside them: 20 / (1 - 10 / 17).
    assert refills(merge, 30) == {0: pytest.approx(30 * 10 / 17)}
    expected = 20 / (1 - 10 / 17)
    assert refills(merge, 49) == {
        0: pytest.approx(49 * 10 / 17),
        1: pytest.approx((49 - expected) * 20 / (17 + expected)),
    }


def test_items_of_one_size_fill_their_blocks() -> None:
    """13 items of 300 bytes fit into 4 KB; a fourteenth costs another block."""
    assert [whole_blocks(items, learnt(300)) for items in (1, 13, 14, 27, 28)] == [13, 13, 27, 27, 40]
    assert whole_blocks(3.2, learnt(5000)) == 4
    assert whole_blocks(7.5, ItemSizes()) == 8


def test_shares() -> None:
    """A share has a margin, and while the size is not known at least 8 items."""
    assert first_share(0.05, ItemSizes()) == 8
    assert first_share(20, ItemSizes()) == 23
    assert first_share(0.05, learnt(300)) == 13
    assert refill_share(0, learnt(300)) == 13
    assert refill_share(100, learnt(300)) == 122


# What pages cost, in read units, beside what an oracle would pay (the targets of docs/reference/figures.md): on a table
# in memory, because it is exact and quick; benchmarks/ measures the same on an engine.

ITEM_BYTES = 300


class Table:
    """Items of 300 bytes with ascending sort keys, by shard."""

    def __init__(self, shards: int, items: int, *, hot: bool, seed: int) -> None:
        rng = random.Random(seed)
        self.sharding = many(shards)
        self.shards: list[list[Any]] = [[] for _ in range(shards)]
        notes: list[Any] = []
        for shard in range(shards):
            item = {"pk": {"S": f"k.{shard + 1}"}, "sk": {"N": str(10**7 + 1)}, "note": {"S": ""}}
            notes.append({**item, "note": {"S": "x" * (ITEM_BYTES - item_size(item))}})
        for number in range(10**7 + 1, 10**7 + 10 * items, 10):  # numbers of one size
            shard = 0 if hot and rng.random() < 0.5 else rng.randrange(shards)
            self.shards[shard].append((number, {**notes[shard], "sk": {"N": str(number)}}))
        self.units = 0.0
        self.requests = 0

    def answer(self, send: Send) -> dict[str, Any]:
        values = [*send.params["ExpressionAttributeValues"].values()]
        (stored,) = (value["S"] for value in values if "S" in value)
        from_key = [int(value["N"]) for value in values if "N" in value]
        items = self.shards[int(stored[2:]) - 1]
        start = bisect_left(items, (from_key[0],)) if from_key else 0
        if after := send.params.get("ExclusiveStartKey"):
            start = bisect_left(items, (int(after["sk"]["N"]) + 1,))
        page = [item for _, item in items[start : start + send.params["Limit"]]]
        self.units += 0.5 * max(1, ceil(len(page) * ITEM_BYTES / READ_UNIT_BYTES))
        self.requests += 1
        answer = {"Items": page, "ScannedCount": len(page)}
        return {**answer, "LastEvaluatedKey": page[-1]} if len(page) == send.params["Limit"] else answer

    def page(self, limit: int, sizes: ItemSizes, start: Any = None) -> tuple[PageOfShards, int]:
        """One page, and in how many rounds of requests it was read."""
        params = {"KeyConditionExpression": K, "Limit": limit, **({"ExclusiveStartKey": start} if start else {})}
        machine = page_machine(QueryPlan.of(self.sharding, params), sizes=sizes, concurrency=1000)
        rounds = 0
        while True:
            sends = []
            while isinstance(step := machine.next(0.0), Send):
                sends.append(step)
            if isinstance(step, Done):
                return machine, rounds
            rounds += 1
            for send in sends:
                machine.receive(send, send.answer(self.answer(send)), 0.0)

    def floor(self, limit: int, start: int = 0) -> float:
        """What an oracle would pay that knew each shard's part of the answer, and the one item past it."""
        answer = sorted((key, shard) for shard, items in enumerate(self.shards) for key, _ in items)
        wanted = answer[start : start + limit]
        parts = Counter(shard for _, shard in wanted)
        units = 0.0
        for shard, items in enumerate(self.shards):
            left = len(items) - bisect_left(items, (wanted[0][0],))
            units += 0.5 * max(1, ceil(min(parts[shard] + 1, left) * ITEM_BYTES / READ_UNIT_BYTES))
        return units


@pytest.mark.parametrize("hot", [False, True], ids=["even", "skewed"])
@pytest.mark.parametrize("limit", [10, 100, 1000])
@pytest.mark.parametrize("shards", [10, 50, 200])
def test_what_a_page_costs(shards: int, limit: int, *, hot: bool) -> None:
    """Even: at most 1.2 × the floor in 3 rounds; skewed: 1.6 × in 4; never more than Limit of every shard costs."""
    for seed in range(2):
        table = Table(shards, 4000, hot=hot, seed=seed)
        sizes = learnt(ITEM_BYTES)
        page, rounds = table.page(limit, sizes)
        assert len(page.rows) == limit
        assert table.units <= (1.6 if hot else 1.2) * table.floor(limit)
        assert rounds <= (4 if hot else 3)
        obvious = sum(
            0.5 * max(1, ceil(min(limit, len(items)) * ITEM_BYTES / READ_UNIT_BYTES)) for items in table.shards
        )
        assert table.units <= obvious + 0.5 * (table.requests - shards)


@pytest.mark.parametrize("hot", [False, True], ids=["even", "skewed"])
@pytest.mark.parametrize("shards", [10, 50])
def test_what_a_day_in_pages_costs(shards: int, *, hot: bool) -> None:
    """The same for each page of 100, and in total; nothing known of the items before the first."""
    table, sizes = Table(shards, 1500, hot=hot, seed=1), ItemSizes()
    start, read, floors = None, 0, 0.0
    while True:
        before = table.units
        page, _ = table.page(100, sizes, start)
        floor = table.floor(100, read)
        assert table.units - before <= (1.6 if hot else 1.2) * floor
        floors += floor
        read += len(page.rows)
        start = page.last_evaluated_key
        if start is None:
            break
    assert read == 1500
    assert table.units <= (1.6 if hot else 1.2) * floors
