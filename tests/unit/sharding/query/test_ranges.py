"""A Query over shards that are ranges of the sort key: which are asked, when, and for how much."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from boto3.dynamodb.conditions import ConditionBase, Key
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Send
from shardkit.errors import CursorError, ShardQueryError
from shardkit.sharding.query.plan import QueryPlan
from shardkit.strategies import RangeSuffix
from tests.support.machines import Shuffled, Timed, page_machine, stream_machine, throttled
from tests.support.model import ModelTable
from tests.support.tables import many

DAY = Key("pk").eq("k")


def filled(ranges: int, each: int, *, by: int = 10, page: int = 1000) -> ModelTable:
    """A table of so many ranges, `by` numbers wide, the first `each` of which are sort keys of items."""
    strategy = RangeSuffix("sk", list(range(by, ranges * by, by)))
    table = ModelTable(many(strategy), page=page)
    for number in range(ranges * by):
        if number % by < each:
            item = {"pk": "k", "sk": number, "a": -number, "b": "x", "city": "k", "keep": number % 7 == 0}
            table.put(item, strategy.shard_of("k", item))
    return table


def plan(table: ModelTable, condition: ConditionBase = DAY, **params: Any) -> QueryPlan:
    return QueryPlan.of(table.sharding, {"KeyConditionExpression": condition, **params})


def asked(table: ModelTable) -> list[tuple[int, int | None]]:
    """The shard and the Limit of each request."""
    (keys,) = {next(iter(item["pk"].values())).rsplit(".")[0] for item in table.items}
    values = [params["ExpressionAttributeValues"].values() for params in table.asked]
    shards = [table.sharding.strategy.split(value["S"])[1] for each in values for value in each if "S" in value]
    limits = [params.get("Limit") for params in table.asked]
    assert keys == "k"
    return list(zip(map(int, filter(None, shards)), limits, strict=True))


@pytest.mark.parametrize("descending", [False, True])
def test_a_page_asks_one_range_after_another_for_what_is_missing(descending: bool) -> None:
    table = filled(50, 80, by=100)
    page = Shuffled(table).run(page_machine(plan(table, ScanIndexForward=not descending, Limit=100)))
    assert len(page.rows) == 100
    assert asked(table) == ([(50, 100), (49, 20)] if descending else [(1, 100), (2, 20)])


@pytest.mark.parametrize(
    ("condition", "shards"),
    [
        (Key("sk").eq(35), [4]),
        (Key("sk").between(30, 39), [4]),
        (Key("sk").between(39, 40), [4, 5]),
        (Key("sk").lt(20), [1, 2]),
        (Key("sk").lte(20), [1, 2, 3]),
        (Key("sk").gte(490), [50]),
        (Key("sk").between(40, 39), [5]),
    ],
)
def test_only_ranges_that_the_condition_touches_are_asked(condition: ConditionBase, shards: list[int]) -> None:
    table = filled(50, 10)
    Shuffled(table).run(page_machine(plan(table, DAY & condition)))
    assert [shard for shard, _ in asked(table)] == shards


def test_the_next_page_asks_no_range_before_its_cursor_and_starts_none_behind_it() -> None:
    table = filled(9, 10)
    first = Shuffled(table).run(page_machine(plan(table, Limit=25)))
    table.asked.clear()
    second = Shuffled(table).run(page_machine(plan(table, Limit=25, ExclusiveStartKey=first.last_evaluated_key)))
    assert [int(item["sk"]) for item in second.rows.items] == list(range(25, 50))
    assert [shard for shard, _ in asked(table)] == [3, 4, 5]
    assert ["ExclusiveStartKey" in params for params in table.asked] == [True, False, False]


def test_an_index_sorted_otherwise_asks_all_ranges() -> None:
    table = filled(9, 10)
    for index in ("by-a", "no-sort"):
        table.asked.clear()
        Shuffled(table).run(page_machine(plan(table, IndexName=index, Limit=5)))
        assert sorted(shard for shard, _ in asked(table)) == list(range(1, 10))
    table.asked.clear()
    Shuffled(table).run(page_machine(plan(table, DAY & Key("sk").gt(84), IndexName="same-keys")))
    assert [shard for shard, _ in asked(table)] == [9]


def rounds(table: ModelTable, machine: Any) -> list[int]:
    """How many requests a machine sends at once, in turn."""
    runner = Timed(lambda send: (1.0, table.answer(send)))
    runner.run(machine)
    return [*Counter(at for at, _ in runner.sent).values()]


def test_empty_ranges_are_asked_several_at_once() -> None:
    """The items are in the last range; a reader does not wait 50 times."""
    table = filled(50, 0)
    item = {"pk": "k", "sk": 499}
    table.put(item, table.sharding.strategy.shard_of("k", item))
    assert rounds(table, page_machine(plan(table, Limit=3), concurrency=50)) == [1, 1, 2, 4, 8, 16, 18]
    assert rounds(table, stream_machine(plan(table), max_items=3, concurrency=50)) == [1, 1, 2, 4, 8, 16, 18]


def test_no_more_ranges_are_asked_than_the_page_probably_needs() -> None:
    table = filled(50, 10)
    assert rounds(table, page_machine(plan(table, Limit=100), concurrency=50)) == [1, 1, 2, 4, 2]


def test_a_filtered_page_evaluates_as_many_items_as_a_plain_one() -> None:
    """It ends where Limit is reached, not at the end of a range, so its cursor is that of an item."""
    table = filled(9, 10)
    page = Shuffled(table).run(
        page_machine(
            plan(table, Limit=25, FilterExpression="keep = :yes", ExpressionAttributeValues={":yes": True}),
            concurrency=1,
        )
    )
    assert (page.scanned, [int(item["sk"]) for item in page.rows.items]) == (25, [0, 7, 14, 21])
    assert asked(table) == [(1, 25), (2, 15), (3, 5)]


def test_a_cursor_survives_a_split_before_it() -> None:
    """Its range is found by its sort key, not by its number."""
    table = filled(9, 10)
    first = Shuffled(table).run(page_machine(plan(table, Limit=25)))
    cursor = json.loads(json.dumps(first.last_evaluated_key))
    split = RangeSuffix("sk", [5, *range(10, 90, 10)])
    moved = ModelTable(many(split))
    for number in range(90):
        moved.put({"pk": "k", "sk": number}, split.shard_of("k", {"sk": number}))
    rest = Shuffled(moved).run(page_machine(plan(moved, ExclusiveStartKey=cursor)))
    assert [int(item["sk"]) for item in rest.rows.items] == list(range(25, 90))
    with pytest.raises(CursorError, match="has shard 4, which is not one of"):
        QueryPlan.of(moved.sharding, {"KeyConditionExpression": DAY, "ExclusiveStartKey": _of_shard(moved)}, shard=3)


def test_a_cursor_outside_the_condition_is_refused() -> None:
    """Though its range is not one that the condition touches."""
    table = filled(9, 10)
    first = Shuffled(table).run(page_machine(plan(table, Limit=25)))
    with pytest.raises(CursorError, match="the cursor is outside the key condition"):
        plan(table, DAY & Key("sk").lt(10), ExclusiveStartKey=first.last_evaluated_key)


def _of_shard(table: ModelTable) -> dict[str, Any] | None:
    """The cursor behind sort key 25, of a Query with Shard=3."""
    one = QueryPlan.of(table.sharding, {"KeyConditionExpression": DAY}, shard=3)
    return one.cursor(3, {"sk": {"N": "25"}})


def test_streams_read_ahead_by_one_page_and_end_at_max_items() -> None:
    table = filled(9, 10)
    stream, runner = stream_machine(plan(table), concurrency=9), Shuffled(table)
    assert len(runner.run(stream)) == 10
    assert len(table.asked) == 2
    table.asked.clear()
    stream = stream_machine(plan(table), max_items=25)
    assert len(runner.run(stream)) == 10
    assert asked(table) == [(1, 25)]
    assert [len(runner.run(stream)) for _ in range(3)] == [10, 5, 0]
    assert asked(table) == [(1, 25), (2, 15), (3, 5)]


def test_the_pages_of_a_stream_grow_from_range_to_range() -> None:
    table = filled(200, 1, by=2)
    stream, runner = stream_machine(plan(table)), Shuffled(table)
    while runner.run(stream):
        pass
    assert [shard for shard, _ in asked(table)] == list(range(1, 201))
    assert asked(table)[0][1] == 64
    assert asked(table)[-1][1] is None  # as much as fits into 1 MB


def test_a_stream_of_ranges_stays_within_its_memory() -> None:
    """A range is not asked for a few items because others, asked at the same time, take the memory."""
    table = filled(9, 30, by=30)
    stream, runner = stream_machine(plan(table), max_buffer_bytes=20_000), Shuffled(table)
    while runner.run(stream):
        pass
    assert [limit for _, limit in asked(table)].count(1) == 1  # the first one: no item's size is known


def failing(table: ModelTable, shard: int, fault: tuple[float, Answer]) -> Timed:
    names = table.sharding.strategy.physical_keys("k")

    def answer(send: Send) -> tuple[float, Answer]:
        found = {"S": names[shard - 1]} in send.params["ExpressionAttributeValues"].values()
        return fault if found else (0.01, table.answer(send))

    return Timed(answer)


def test_a_range_that_fails() -> None:
    """The error is raised with the items before it, or the others are read to the end."""
    table = filled(9, 10)
    broken = failing(table, 3, (0.01, RuntimeError("broken")))
    with pytest.raises(ShardQueryError, match="1 of 9 shards failed") as raised:
        broken.run(page_machine(plan(table, Limit=50)))
    assert [int(item["sk"]) for item in raised.value.partial_items][:20] == list(range(20))
    page = broken.run(page_machine(plan(table, Limit=50), on_shard_error="partial"))
    assert [int(item["sk"]) for item in page.rows.items] == [*range(20), *range(30, 60)]
    assert set(page.errors) == {3}
    stream, streamed = stream_machine(plan(table), on_shard_error="partial"), list[int]()
    while more := broken.run(stream):
        streamed += [int(item["sk"]) for item in more.items]
    assert streamed == [*range(20), *range(30, 90)]


@given(
    bounds=st.sets(st.integers(0, 40), max_size=8).map(sorted),
    numbers=st.sets(st.integers(0, 40)),
    broken=st.sets(st.integers(1, 9), max_size=3),
    page=st.sampled_from([1, 3, 1000]),
    limit=st.sampled_from([None, 1, 4, 30]),
    concurrency=st.integers(1, 5),
    descending=st.booleans(),
)
def test_ranges_that_fail_keep_no_item_of_others_back(
    *,
    bounds: list[int],
    numbers: set[int],
    broken: set[int],
    page: int,
    limit: int | None,
    concurrency: int,
    descending: bool,
) -> None:
    strategy = RangeSuffix("sk", bounds)
    table = ModelTable(many(strategy), page=page)
    for number in numbers:
        table.put({"pk": "k", "sk": number}, strategy.shard_of("k", {"sk": number}))
    names = [{"S": name} for name in strategy.physical_keys("k")]
    failing = [name for shard, name in enumerate(names, 1) if shard in broken]
    if len(failing) == len(names):
        return

    def answer(send: Send) -> tuple[float, Answer]:
        found = any(name in send.params["ExpressionAttributeValues"].values() for name in failing)
        return (0.01, RuntimeError("broken") if found else table.answer(send))

    wanted = sorted((n for n in numbers if strategy.shard_of("k", {"sk": n}) not in broken), reverse=descending)
    options: dict[str, Any] = {"ScanIndexForward": not descending, **({} if limit is None else {"Limit": limit})}
    fan_out: dict[str, Any] = {"concurrency": concurrency, "on_shard_error": "partial"}
    stream, streamed = stream_machine(plan(table, **options), **fan_out), list[int]()
    runner = Timed(answer)
    while rows := runner.run(stream):
        streamed += [int(item["sk"]) for item in rows.items]
    assert streamed == wanted
    read, start = list[int](), dict[str, Any]()
    while True:
        asked_for = plan(table, **options, **start)
        if all({"S": strategy.physical_key("k", shard)} in failing for shard in asked_for.shards):
            break  # only ranges that fail are left: the page is refused
        found = Timed(answer).run(page_machine(asked_for, **fan_out))
        read += [int(item["sk"]) for item in found.rows.items]
        if found.last_evaluated_key is None:
            break
        start = {"ExclusiveStartKey": found.last_evaluated_key}
    assert read == wanted


def test_a_range_that_does_not_answer_in_time() -> None:
    """A page ends with a cursor behind what was read; a stream goes on with the next range."""
    table = filled(9, 10)
    options: dict[str, Any] = {"timeout": 1.0, "on_shard_error": "partial"}
    page = failing(table, 3, (99.0, {})).run(page_machine(plan(table, Limit=50), **options))
    assert [int(item["sk"]) for item in page.rows.items] == [*range(20), *range(30, 40)]
    assert set(page.errors) == {3}
    rest = plan(table, ExclusiveStartKey=page.last_evaluated_key)
    assert [int(item["sk"]) for item in Shuffled(table).run(page_machine(rest)).rows.items] == list(range(40, 90))
    with pytest.raises(ShardQueryError, match=r"9 of 9 shards failed.*did not answer.*was not queried"):
        failing(table, 1, (99.0, {})).run(page_machine(plan(table, Limit=50), **options))
    stream, streamed = stream_machine(plan(table), **options), list[int]()
    slow = failing(table, 2, (99.0, {}))
    while more := slow.run(stream):
        streamed += [int(item["sk"]) for item in more.items]
    assert streamed == [*range(10), *range(20, 90)]
    assert set(stream.errors) == {2}


def test_a_throttled_range_is_asked_again() -> None:
    table = filled(9, 10)
    errors = {1: throttled("ProvisionedThroughputExceededException")}
    page = Shuffled(table, failing=errors).run(page_machine(plan(table, Limit=25)))
    assert [int(item["sk"]) for item in page.rows.items] == list(range(25))


def test_pages_of_one_megabyte_go_on_in_their_range() -> None:
    """A page without Limit ends where the service's page does; one with Limit is filled from the same range."""
    table = filled(9, 10, page=4)
    page = Shuffled(table).run(page_machine(plan(table)))
    assert [int(item["sk"]) for item in page.rows.items] == [0, 1, 2, 3]
    table.asked.clear()
    page = Shuffled(table).run(page_machine(plan(table, Limit=40)))
    assert len(page.rows) == 40
    assert asked(table)[6:] == [(3, 20), (4, 20), (3, 16), (3, 12), (4, 6), (4, 2)]
