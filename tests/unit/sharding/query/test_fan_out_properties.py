"""Promise 2 on a table in memory: any content, any placement, any order of answers, every kind of index."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
from boto3.dynamodb.conditions import ConditionBase, Key
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.sharding.query.plan import QueryPlan
from shardkit.strategies import RandomSuffix, RangeSuffix, Strategy
from tests.support.machines import Shuffled, page_machine, stream_machine
from tests.support.model import ModelTable
from tests.support.tables import many

SORTED_BY = {
    None: "sk",
    "by-a": "a",
    "same-keys": "sk",
    "no-sort": None,
    "with-a": "a",
    "two-and-a": "a",
    "a-then-b": "a",
    "city": "a",
    "city-then-pk": None,
    "city-then-pk-then-a": "a",
}
TESTS: dict[str, Any] = {
    "eq": lambda key, low, high: key == low,
    "lt": lambda key, low, high: key < low,
    "lte": lambda key, low, high: key <= low,
    "gt": lambda key, low, high: key > low,
    "gte": lambda key, low, high: key >= low,
    "between": lambda key, low, high: low <= key <= high,
}


@dataclass(frozen=True)
class Asked:
    """A Query on the model."""

    index: str | None
    op: str | None
    low: int
    high: int
    descending: bool
    filtered: bool
    limit: int | None

    @property
    def sort(self) -> str | None:
        return SORTED_BY[self.index]

    def params(self) -> dict[str, Any]:
        partition = ["city"] if self.index and self.index.startswith("city") else ["pk"]
        partition += {"two-and-a": ["city"], "city-then-pk": ["pk"], "city-then-pk-then-a": ["pk"]}.get(
            self.index or "", []
        )
        condition: ConditionBase = Key(partition[0]).eq("k")
        for name in partition[1:]:
            condition &= Key(name).eq("k")
        if self.op is not None and self.sort is not None:
            values = (self.low, self.high) if self.op == "between" else (self.low,)
            condition &= getattr(Key(self.sort), self.op)(*values)
        params: dict[str, Any] = {"KeyConditionExpression": condition, "ScanIndexForward": not self.descending}
        if self.index:
            params["IndexName"] = self.index
        if self.filtered:
            params |= {"FilterExpression": "keep = :yes", "ExpressionAttributeValues": {":yes": True}}
        if self.limit:
            params["Limit"] = self.limit
        return params

    def wants(self, item: dict[str, Any]) -> bool:
        if self.filtered and not item["keep"]:
            return False
        if self.index and ("city" in self.index or self.index.startswith("two")) and item["city"] != "k":
            return False
        return self.op is None or self.sort is None or bool(TESTS[self.op](item[self.sort], self.low, self.high))


Rows = list[tuple[dict[str, Any], int]]


def contents(seed: int, size: int, strategy: Strategy) -> Rows:
    """Items full of ties, dealt over random shards at random; hypothesis's own lists are too small for page edges."""
    rng = random.Random(seed)
    rows: dict[tuple[int, int], tuple[dict[str, Any], int]] = {}
    for _ in range(size):
        item: dict[str, Any] = {
            "pk": "k",
            "sk": rng.randrange(8),
            "a": rng.randrange(4),
            "b": rng.choice("xyz"),
            "city": rng.choice("kkr"),
            "keep": rng.random() < 0.5,
        }
        shard = strategy.shard_of("k", item) or rng.choice(range(1, 1 + len(strategy.shards_for("k"))))
        rows[item["sk"], shard] = item, shard
    return list(rows.values())


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    """Any Query."""
    low, high = sorted((draw(st.integers(-1, 5)), draw(st.integers(-1, 8))))
    return Asked(
        index=draw(st.sampled_from(list(SORTED_BY))),
        op=draw(st.sampled_from([None, *TESTS])),
        low=low,
        high=high,
        descending=draw(st.booleans()),
        filtered=draw(st.booleans()),
        limit=draw(st.sampled_from([None, 1, 2, 3, 5, 7, 50])),
    )


@pytest.mark.long_search
@settings(max_examples=3 * settings().max_examples)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(0, 30),
    strategy=st.builds(RandomSuffix, st.integers(1, 5))
    | st.builds(RangeSuffix, st.just("sk"), st.sets(st.integers(-1, 9), max_size=6).map(sorted)),
    query=asked(),
    page=st.integers(1, 6) | st.just(1000),
    concurrency=st.integers(1, 6),
    eager=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
def test_pages_and_streams_are_the_whole_answer_in_order(
    *,
    seed: int,
    size: int,
    strategy: Strategy,
    query: Asked,
    page: int,
    concurrency: int,
    eager: bool,
    rng: random.Random,
) -> None:
    """Pages put together are the answer in the order (sort key, shard, order in the shard); a stream is the same."""
    table = ModelTable(many(strategy), page=page, eager=eager)
    rows = contents(seed, size, strategy)
    for item, shard in rows:
        table.put(item, shard)
    wanted = table.expected(
        [(item, shard) for item, shard in rows if query.wants(item)], query.index, descending=query.descending
    )
    if query.index == "city":  # not fanned out: equal sort keys are in the index's own order
        wanted.sort(key=lambda item: item["a"], reverse=query.descending)

    found: list[dict[str, Any]] = []
    start: Any = None
    for _ in range(len(rows) + 2):
        params = query.params()
        if start is not None:
            params["ExclusiveStartKey"] = json.loads(json.dumps(start))
        plan = QueryPlan.of(table.sharding, params)
        one = Shuffled(table, rng).run(page_machine(plan, concurrency=concurrency))
        assert query.limit is None or len(one.rows) <= query.limit
        found += [plan.shown(item) for item in one.rows.items]
        start = one.last_evaluated_key
        if start is None:
            break
    assert start is None
    table.evaluated = 0
    plan = QueryPlan.of(table.sharding, query.params())
    stream, runner = stream_machine(plan, concurrency=concurrency), Shuffled(table, rng)
    streamed: list[dict[str, Any]] = []
    while more := runner.run(stream):
        streamed += [plan.shown(item) for item in more.items]
    assert table.evaluated <= len(rows)
    assert streamed == found
    if query.index == "city":
        assert [item["a"] for item in found] == [item["a"] for item in wanted]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    else:
        assert found == wanted
