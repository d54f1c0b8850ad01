"""A whole Query as a stream: what is read ahead, what may be held, how pages grow, and what it costs."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardkit.core.backoff import backoff_seconds
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import READ_UNIT_BYTES
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import StreamOfShards
from tests.support.machines import Shuffled, Timed, a_fan_out, stream_machine, throttled
from tests.support.model import ModelTable
from tests.support.tables import many

K = Key("pk").eq("k")
KB = 1024


def _sort_key(item: Any) -> int:
    return int(item["sk"]["N"])


class Shards(Timed):
    """A table of items of about ``size`` bytes that knows how many bytes and units each answer was."""

    def __init__(self, shards: int, items: int, *, size: int = 300, hot: bool = False, seed: int = 0) -> None:
        rng = random.Random(seed)
        self.sharding = many(shards)
        self.stored: dict[str, list[Any]] = {}
        for number in range(items):
            shard = 1 if hot and rng.random() < 0.5 else rng.randint(1, shards)
            item = {"pk": {"S": f"k.{shard}"}, "sk": {"N": str(number)}, "note": {"S": "x" * (size - 14)}}
            self.stored.setdefault(f"k.{shard}", []).append(item)
        self.units = 0.0
        self.unread_bytes = 0
        super().__init__(self._answer)

    def _answer(self, send: Send) -> tuple[float, Answer]:
        (stored,) = (value["S"] for value in send.params["ExpressionAttributeValues"].values() if "S" in value)
        items = self.stored.get(stored, [])
        after = send.params.get("ExclusiveStartKey")
        behind = items if after is None else items[bisect_right(items, int(after["sk"]["N"]), key=_sort_key) :]
        page: list[Any] = []
        size = 0
        while len(page) < min(len(behind), send.params.get("Limit", len(behind))) and size < KB * KB:
            page.append(behind[len(page)])
            size += item_size(page[-1])
        self.units += 0.5 * max(1, ceil(size / READ_UNIT_BYTES))
        self.unread_bytes += 3 * size  # as Python values
        answer: dict[str, Any] = {
            "Items": page,
            "ScannedCount": len(page),
            "ResponseMetadata": {"HTTPHeaders": {"content-length": str(size)}},
        }
        if len(page) < len(behind):
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in ("pk", "sk")}
        return 0.01, answer

    def stream(self, **options: Any) -> StreamOfShards:
        plan = QueryPlan.of(self.sharding, {"KeyConditionExpression": K})
        return stream_machine(plan, **options)

    def full_read(self) -> float:
        """The units of reading every shard whole."""
        return sum(
            0.5 * max(1, ceil(sum(map(item_size, self.stored.get(f"k.{shard}", []))) / READ_UNIT_BYTES))
            for shard in range(1, len(self.sharding.shards({"S": "k"})) + 1)
        )


def numbered(shard: int, numbers: Iterable[int]) -> list[Any]:
    """Items of a shard with these sort keys, of 300 bytes."""
    stored = {"pk": {"S": f"k.{shard}"}, "note": {"S": "x" * 286}}
    return [{**stored, "sk": {"N": str(number)}} for number in numbers]


def answer_first_two(service: Shards, stream: StreamOfShards) -> None:
    """Answer the first request of each of two shards."""
    for send in [stream.next(0.0) for _ in range(2)]:
        assert isinstance(send, Send)
        answer = service.answers(send)[1]
        assert not isinstance(answer, Exception)
        stream.receive(send, send.answer(answer), 0.01)


def shard_of(send: Send) -> int:
    """The shard that a request asks."""
    (stored,) = (value["S"] for value in send.params["ExpressionAttributeValues"].values() if "S" in value)
    return int(stored.removeprefix("k."))


def test_a_shard_whose_last_possible_key_was_read_is_not_asked_again() -> None:
    """DynamoDB Local refuses an ExclusiveStartKey at the end of the key condition."""
    sharding = many(2)
    asked: dict[str, Any] = {"KeyConditionExpression": K & Key("sk").lte(5)}
    plan = QueryPlan.of(sharding, asked)
    for last, requested in ((4, True), (5, False)):
        cursor = plan.cursor(1, {"pk": {"S": "k.1"}, "sk": {"N": str(last)}})
        resumed = QueryPlan.of(sharding, {**asked, "ExclusiveStartKey": cursor})
        assert (resumed.request(0, None, None, dict) is not None) == requested


def test_the_first_page_of_large_items_is_one_item() -> None:
    sizes = ItemSizes()
    sizes.learn([300_000])
    send = Shards(2, 10).stream(sizes=sizes).next(0.0)
    assert isinstance(send, Send)
    assert send.params["Limit"] == 1


@pytest.mark.parametrize(("in_order", "ahead"), [(31, False), (32, True), (63, True)])
@pytest.mark.parametrize("max_items", [None, 5000])
def test_the_next_pages_are_asked_for_before_items_are_handed_out(
    in_order: int, max_items: int | None, *, ahead: bool
) -> None:
    """First that of a shard that ran dry, then those of shards that hold half a page or less; with an end, only it."""
    service = Shards(2, 0)
    service.stored = {
        "k.1": [*numbered(1, range(64)), *numbered(1, range(1000, 1300))],
        "k.2": [*numbered(2, range(in_order)), *numbered(2, range(64, 364))],
    }
    params: dict[str, Any] = {"KeyConditionExpression": K}
    if max_items is not None:  # with a filter: without one it asks for shares
        params |= {"FilterExpression": "n < :n", "ExpressionAttributeValues": {":n": 1}}
    stream = stream_machine(QueryPlan.of(service.sharding, params), max_items=max_items)
    answer_first_two(service, stream)
    steps: list[Any] = []
    while not steps or not isinstance(steps[-1], Done):
        steps.append(stream.next(0.02))
    assert len(steps[-1].value) == 64 + in_order
    assert [shard_of(send) for send in steps[:-1]] == ([1, 2] if ahead and max_items is None else [1])
    assert stream.next(0.03) == Wait(), "while the caller works on them, the next ones are under way"


@pytest.mark.parametrize("max_items", [None, 500])
def test_a_throttled_shard_is_left_alone_until_its_wait_is_over(max_items: int | None) -> None:
    """Whatever the others bring meanwhile; then nothing is missing."""
    refusals = 6
    service = Shards(3, 6000, hot=True)
    answers, asked = service.answers, list[tuple[float, bool]]()

    def answer(send: Send) -> tuple[float, Answer]:
        if shard_of(send) != 1:
            return answers(send)
        refused = 0 < len(asked) <= refusals
        asked.append((service.now, refused))
        return (0.01, throttled("KeyRangeThroughput")) if refused else answers(send)

    service.answers = answer
    stream = service.stream(max_items=max_items)
    found: list[int] = []
    while rows := service.run(stream):
        found += [int(item["sk"]) for item in rows.items]
    assert found == list(range(6000))[:max_items]
    assert [refused for _, refused in asked[:8]] == [False, *[True] * refusals, False]
    waits = [later - at - 0.01 for (at, refused), (later, _) in pairwise(asked) if refused]
    assert waits == pytest.approx([backoff_seconds(number, 0.5) for number in range(1, refusals + 1)])


def test_a_shard_that_runs_dry_while_it_waits_to_be_read_ahead_is_asked_once() -> None:
    """Its next page was put off, because all connections were in use; by then it was asked for as a dry shard."""
    service = Shards(3, 0)
    far = range(10**6, 10**6 + 900)
    held = [[*range(0, 8000, 4)], [*range(2, 132, 4), *far], [*range(1, 4000, 2)]]
    service.stored = {f"k.{shard}": numbered(shard, keys) for shard, keys in enumerate(held, 1)}
    stream = service.stream(concurrency=2)
    found: list[int] = []
    while rows := service.run(stream):
        found += [int(item["sk"]) for item in rows.items]
    assert found == sorted(key for keys in held for key in keys)
    asked = [(shard_of(send), str(send.params.get("ExclusiveStartKey"))) for _, send in service.sent]
    assert len(set(asked)) == len(asked)


def test_pages_start_small_and_grow_to_the_services_own() -> None:
    """64 KB first, four times as much each time, in whole blocks, at last without a limit (1 MB)."""
    service = Shards(1, 12_000)
    stream = service.stream()
    while service.run(stream):
        pass
    limits = [send.params.get("Limit") for _, send in service.sent]
    size = item_size(service.stored["k.1"][0])
    assert limits[0] == 64
    assert 250 * KB < (limits[1] or 0) * size < 258 * KB
    assert set(limits[2:]) == {None}


@pytest.mark.long_search
@settings(max_examples=settings().max_examples * 2 // 3)
@given(
    shards=st.sampled_from([1, 3, 10, 40]),
    items=st.integers(0, 3000),
    budget=st.sampled_from([1, 8 * KB, 64 * KB, 512 * KB]),
    hot=st.booleans(),
    concurrency=st.sampled_from([1, 4, 50]),
    max_items=st.none() | st.integers(1, 400),
    seed=st.integers(0, 9),
)
# The last of ``max_items`` came while shards were still lined up: the stream waited for ever.
@example(shards=40, items=163, budget=64 * KB, hot=True, concurrency=50, max_items=85, seed=6)
def test_what_is_held_stays_below_the_budget(
    shards: int, items: int, budget: int, concurrency: int, max_items: int | None, seed: int, *, hot: bool
) -> None:
    """Held, handed out last and under way together; beyond the budget one item of every shard, to be able to go on."""
    service = Shards(shards, items, hot=hot, seed=seed)
    stream = service.stream(max_buffer_bytes=budget, concurrency=concurrency, max_items=max_items)
    size = 3 * 300
    first_pages = 64 * size * min(concurrency, shards)  # items whose size is not known yet
    sizes = {_sort_key(item): item_size(item) for run in service.stored.values() for item in run}
    found: list[int] = []
    with_caller = 0
    while rows := service.run(stream):
        found += [int(item["sk"]) for item in rows.items]
        service.unread_bytes -= with_caller
        with_caller = sum(3 * sizes[int(item["sk"])] for item in rows.items)
        if max_items is None:
            unknown = first_pages if len(found) < 64 * shards else 0
            assert service.unread_bytes <= max(budget, unknown) + 2 * shards * size
    assert found == list(range(items))[:max_items]


def test_the_budget_that_the_documentation_names() -> None:
    assert a_fan_out().max_buffer_bytes == 64 * 2**20


def test_what_is_under_way_counts_until_it_has_come() -> None:
    """Ten bytes of memory for each over the wire: what one page leaves of the budget is all that others may take."""
    service = Shards(3, 3000)
    plan = QueryPlan.of(service.sharding, {"KeyConditionExpression": K, "Limit": 1500})
    budget = 6_000_000
    stream = stream_machine(plan, max_buffer_bytes=budget)
    sends = [stream.next(0.0) for _ in range(3)]
    limits = [send.params["Limit"] for send in sends if isinstance(send, Send)]
    assert limits[0] >= 500
    assert budget - 10 * KB < 10 * KB * sum(limits[:2]) <= budget
    assert limits[2] == 1, "without one item of every shard nothing goes on"


def test_all_shards_are_asked_for_a_page_at_once() -> None:
    """With a connection for each of many shards and sizes learnt, none is asked for one item because of the budget."""
    service = Shards(200, 4000, hot=True)
    sizes = ItemSizes()
    sizes.learn([300])
    stream = service.stream(concurrency=200, sizes=sizes)
    while service.run(stream):
        pass
    assert len(service.sent) <= 200 + 4000 * 300 // (16 * KB)
    assert service.units <= 1.05 * service.full_read()


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize(("shards", "items"), [(10, 40), (10, 8000), (50, 8000), (200, 6000), (200, 800)])
def test_a_stream_costs_what_one_full_read_costs(shards: int, items: int, *, hot: bool) -> None:
    """At most 5% above one read of every shard from end to end; small shards: at most one extra Query each."""
    service = Shards(shards, items, size=750 if items == 8000 else 300, hot=hot)
    stream = service.stream(concurrency=50)
    while service.run(stream):
        pass
    assert service.units <= max(1.05 * service.full_read(), service.full_read() + 0.5 * shards * (items < 20 * shards))


def test_max_items_reads_its_share() -> None:
    """A stream of few items costs what a page with Limit costs, not first pages of every shard."""
    service = Shards(10, 5000, hot=True)
    stream = service.stream(max_items=100)
    count = 0
    while rows := service.run(stream):
        count += len(rows)
    assert count == 100
    assert service.units <= 12.0


def test_with_max_items_nothing_is_asked_for_before_items_are_handed_out() -> None:
    """The caller may need no more of them."""
    service = Shards(2, 0)
    service.stored = {"k.1": numbered(1, range(500)), "k.2": numbered(2, range(500, 1000))}
    stream = service.stream(max_items=200)
    answer_first_two(service, stream)
    assert isinstance(handed_out := stream.next(0.02), Done)
    assert 100 <= len(handed_out.value) < 200
    again = stream.next(0.03)
    assert isinstance(again, Send)
    assert shard_of(again) == 1


def test_max_items_with_a_filter_reads_pages_not_items() -> None:
    """How many items a filter lets through is not known: pages grow as without ``max_items``."""
    table = ModelTable(many(4))
    for number in range(2000):
        table.put({"pk": "k", "sk": number, "keep": number >= 1990}, 1 + number % 4)
    params = {
        "KeyConditionExpression": K,
        "FilterExpression": "keep = :yes",
        "ExpressionAttributeValues": {":yes": True},
    }
    stream = stream_machine(QueryPlan.of(table.sharding, params), max_items=5)
    runner = Shuffled(table)
    found: list[int] = []
    while rows := runner.run(stream):
        found += [int(item["sk"]) for item in rows.items]
    assert found == [1990, 1991, 1992, 1993, 1994]
    assert len(table.asked) <= 4 * 3


def test_max_items_and_limit() -> None:
    """``Limit`` is the most of a page, also with ``max_items``."""
    service = Shards(2, 2000)
    plan = QueryPlan.of(service.sharding, {"KeyConditionExpression": K, "Limit": 7})
    stream = stream_machine(plan, max_items=50)
    while service.run(stream):
        pass
    assert max(send.params["Limit"] for _, send in service.sent) <= 7
