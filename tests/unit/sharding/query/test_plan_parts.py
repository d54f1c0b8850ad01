"""A part of a Query: after a key, from a key on, up to a key; and pages that one machine reads after each other."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import eq, ge, gt, le, lt
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.merge import Item
from shardkit.sharding.query.plan import QueryPlan
from shardkit.strategies import RandomSuffix, RangeSuffix, Strategy
from tests.support.machines import Shuffled, Timed, page_machine, stream_machine
from tests.support.model import ModelTable
from tests.support.tables import many

TESTS: dict[str | None, Any] = {None: lambda *_: True, "eq": eq, "lt": lt, "lte": le, "gt": gt, "gte": ge}


def a_table(strategy: Strategy, rng: random.Random, *, page: int, eager: bool) -> ModelTable:
    table = ModelTable(many(strategy), page=page, eager=eager)
    places = set()
    for number in range(rng.randrange(20)):
        item = {"pk": "k", "sk": number % 9, "a": number % 4, "b": "xy"[number % 2], "city": "c", "number": number}
        shard = rng.randrange(1, 4) if isinstance(strategy, RandomSuffix) else strategy.shard_of("k", item)
        if (shard, number % 9) not in places:
            places.add((shard, number % 9))
            table.put(item, shard)
    return table


@given(
    seed=st.integers(0, 2**32),
    strategy=st.sampled_from([RandomSuffix(3), RangeSuffix("sk", [3, 6])]),
    index=st.sampled_from([None, "by-a", "a-then-b", "no-sort"]),
    op=st.sampled_from(list(TESTS)),
    begin=st.sampled_from([None, "after", "from_key"]),
    ends=st.booleans(),
    page=st.sampled_from([1, 2, 1000]),
    limit=st.sampled_from([None, 1, 3]),
    **{name: st.booleans() for name in ("descending", "eager", "streams")},
)
def test_parts(
    seed: int,
    strategy: Strategy,
    index: str | None,
    op: str | None,
    begin: str | None,
    page: int,
    limit: int | None,
    *,
    ends: bool,
    descending: bool,
    eager: bool,
    streams: bool,
) -> None:
    """They have the items of a whole Query whose sort keys are there, each once, in a bounded number of requests."""
    rng = random.Random(seed)
    table = a_table(strategy, rng, page=page, eager=eager)
    sort = {None: "sk", "by-a": "a"}.get(index)
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "ScanIndexForward": not descending}
    params |= ({"IndexName": index} if index else {}) | ({"Limit": limit} if limit else {})
    if sort and op:
        params["KeyConditionExpression"] &= getattr(Key(sort), op)(2)
    plan = QueryPlan.of(table.sharding, params)
    wanted = _read(plan, table, streams=False)
    places = [_sort_keys(plan, item) for item in wanted]
    if wanted:
        low, high = sorted(rng.choices(range(len(wanted)), k=2))
        keys = [plan.written(wanted[at], plan.key_names) for at in (low, high)]
        if ends:
            plan = plan.up_to(keys[1])
        if begin:
            plan = getattr(plan, begin)(keys[0])
        before = gt if descending else lt
        wanted = [
            item
            for item, place in zip(wanted, places, strict=True)
            if not (ends and before(places[high], place))
            and not (begin and before(place, places[low]))
            and not (begin == "after" and place == places[low])
        ]
    found = _read(replace(plan, together=rng.random() < 0.5), table, streams=streams)
    assert sorted(item["number"] for item in found) == sorted(item["number"] for item in wanted)
    assert [_sort_keys(plan, item) for item in found] == [_sort_keys(plan, item) for item in wanted]


def _sort_keys(plan: QueryPlan, item: Item) -> list[Any]:
    return [item[name] for name in plan.sort]


def _read(plan: QueryPlan, table: ModelTable, *, streams: bool) -> list[Item]:
    """Read all by one machine, of which each page or part is asked for."""
    runner = Shuffled(table)
    found: list[Item] = []
    machine: Any = stream_machine(plan, max_items=plan.limit) if streams else page_machine(plan)
    for _ in range(200):
        assert len(runner.sent) < 400
        result = runner.run(machine)
        rows = result if streams else result.rows
        assert plan.limit is None or len(rows) <= plan.limit
        found += rows.items
        if machine.ended:
            return found
        machine.go_on(plan.limit)
    raise AssertionError("the read does not end")


def test_the_next_page_of_a_machine_is_not_asked_for_again() -> None:
    """What was read beyond a page is in the next one."""
    table = ModelTable(many(2))
    for number in range(10):
        table.put({"pk": "k", "sk": number, "number": number}, 1 + number % 2)
    runner = Timed(lambda send: (0.01, table.answer(send)))
    page = page_machine(QueryPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k"), "Limit": 2}))
    for number in range(5):
        rows = runner.run(page).rows
        assert [item["number"] for item in rows.items] == [2 * number, 2 * number + 1]
        page.go_on(2)
    assert len(runner.sent) < 10


@pytest.mark.parametrize("filtered", [False, True])
def test_a_stream_goes_on_behind_its_last_row(*, filtered: bool) -> None:
    table = ModelTable(many(2), page=3)
    for number in range(20):
        table.put({"pk": "k", "sk": number, "number": number, "keep": True}, 1 + number % 2)
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k")}
    if filtered:
        params |= {"FilterExpression": "keep = :yes", "ExpressionAttributeValues": {":yes": True}}
    stream = stream_machine(QueryPlan.of(table.sharding, params), max_items=3)
    runner = Timed(lambda send: (0.01, table.answer(send)))
    found: list[int] = []
    while not stream.ended:
        rows = runner.run(stream)
        assert 0 < len(rows) <= 3
        found += [item["number"] for item in rows.items]
        stream.go_on(3)
        assert len(runner.sent) < 50
    assert found == [*range(20)]
