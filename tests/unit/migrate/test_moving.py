"""Queries of a table whose items move: beside a plain table, in every stage, wherever the items are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import eq, ge, gt, le, lt
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RangeSuffix, Strategy, Unsharded
from shardkit.core.machine import Send
from shardkit.core.merge import Item
from shardkit.dynamodb.decode import from_wire_item
from shardkit.errors import ShardQueryError
from shardkit.migrate.marks import MARK
from shardkit.migrate.query import FilteredRead, MovingPlan, read_of
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.fan_out import timed_out
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.strategies import Stage
from tests.support.machines import Shuffled, Timed, a_fan_out, throttled
from tests.support.moved import BETWEEN, MOVES, STATES, MovedTable, State, in_stage, neighbours

CONDITIONS: list[Any] = [
    None,
    *(getattr(Key("sk"), op)(5) for op in ("lt", "lte", "gt", "gte", "eq")),
    Key("sk").between(2, 9),
]


def moving_page(plan: MovingPlan, **fan_out: Any) -> FilteredRead:
    return read_of(plan, sizes=ItemSizes(), fan_out=a_fan_out(**fan_out), paged=True)


def moving_stream(plan: MovingPlan, *, max_items: int | None = None, **fan_out: Any) -> FilteredRead:
    return read_of(plan, sizes=ItemSizes(), fan_out=a_fan_out(**fan_out), max_items=max_items)


@dataclass(frozen=True)
class Case:
    """A table's contents, a Query on it, and how it is read."""

    seed: int
    size: int
    stage: Stage
    index: str | None
    condition: Any
    limit: int | None
    page: int
    descending: bool
    filtered: bool
    projected: bool
    counting: bool
    consistent: bool
    moving: bool
    """Whether a mover takes steps after each request."""
    eager: bool

    def table(self, sharding: Sharding, rng: random.Random) -> MovedTable:
        table = MovedTable(sharding, page=self.page, eager=self.eager, rng=rng if self.moving else None)
        for number in rng.sample(range(12), self.size):
            item = {"pk": rng.choice("kkkj"), "sk": number, "b": rng.choice("xyz"), "keep": rng.random() < 0.6}
            table.store(item, rng.choice(STATES))
        return table

    @property
    def params(self) -> dict[str, Any]:
        key = Key("pk").eq("k")
        params: dict[str, Any] = {"KeyConditionExpression": key & self.condition if self.condition else key}
        if self.filtered:
            params["FilterExpression"] = "keep = :yes"
            params["ExpressionAttributeValues"] = {":yes": True}
        if self.projected and not self.counting:
            params["ProjectionExpression"] = "keep"
        params |= {"ScanIndexForward": False} if self.descending else {}
        params |= {"ConsistentRead": True} if self.consistent else {}
        return params | ({"IndexName": self.index} if self.index else {})

    def expected(self, table: MovedTable) -> list[dict[str, Any]]:
        """What a plain table returns; equal index sort keys in the order of their own sort keys."""
        found = [from_wire_item(item) for item in table.logical() if item["pk"] == {"S": "k"}]
        if self.condition is not None:
            op, (_, *values) = self.condition.expression_operator, self.condition.get_expression()["values"]
            found = [item for item in found if _TESTS[op](item["sk"], *values)]
        if self.filtered:
            found = [item for item in found if item["keep"]]
        found.sort(key=lambda item: (item["b"] if self.index else "", item["sk"]), reverse=self.descending)
        return [{"keep": item["keep"]} for item in found] if self.projected and not self.counting else found


_TESTS: dict[str, Callable[..., bool]] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "=": eq,
    "BETWEEN": lambda key, low, high: bool(low <= key <= high),
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    index = draw(st.sampled_from([None, None, "local"]))
    return Case(
        seed=draw(st.integers(0, 2**32)),
        size=draw(st.integers(0, 12)),
        stage=draw(st.sampled_from(BETWEEN)),
        index=index,
        condition=None if index else draw(st.sampled_from(CONDITIONS)),
        limit=draw(st.sampled_from([None, 1, 2, 5])),
        page=draw(st.sampled_from([1, 2, 3, 1000])),
        **{
            name: draw(st.booleans())
            for name in ("descending", "filtered", "projected", "counting", "consistent", "moving", "eager")
        },
    )


def throttles(rng: random.Random) -> dict[int, Exception]:
    """Some of the first requests are throttled."""
    return {rng.randrange(9): throttled("KeyRangeThroughput") for _ in range(rng.randrange(4))}


def paged(case: Case, move: tuple[Strategy, Strategy], table: MovedTable, rng: random.Random) -> list[Item]:
    """The items of all pages, each asked in a stage that may run beside the case's."""
    seen: list[Item] = []
    start: dict[str, Any] = {}
    for _ in range(200):
        params = case.params | start | ({"Limit": case.limit} if case.limit else {})
        if case.counting:
            params["Select"] = "COUNT"
        plan = MovingPlan.of(in_stage(rng.choice(neighbours(case.stage)), *move), params)
        page = Shuffled(table, rng, failing=throttles(rng)).run(moving_page(plan, concurrency=rng.choice([1, 3, 10])))
        found = [plan.shown(item) for item in page.rows.items]
        seen += found
        cursor = page.last_evaluated_key
        assert case.limit is None or len(found) <= case.limit
        assert len(found) == case.limit or not case.limit or cursor is None or case.filtered
        if cursor is None:
            return seen
        start = {"ExclusiveStartKey": cursor}
    raise AssertionError("the pages did not end")


def streamed(case: Case, table: MovedTable, rng: random.Random, most: int | None) -> list[Item]:
    plan = MovingPlan.of(table.sharding, case.params)
    stream = moving_stream(plan, concurrency=rng.choice([1, 3, 10]), max_items=most)
    runner = Shuffled(table, rng, failing=throttles(rng))
    seen: list[Item] = []
    while released := runner.run(stream):
        seen += [plan.shown(item) for item in released.items]
    return seen


@pytest.mark.long_search
@pytest.mark.parametrize("name", MOVES)
def test_the_same_as_a_plain_table_while_items_move(name: str) -> None:
    """Each item exactly once and in order, in pages of changing stages and as a stream."""

    @settings(max_examples=settings().max_examples // 2, print_blob=True)
    @given(case=cases())
    def same(case: Case) -> None:
        rng = random.Random(case.seed)
        table = case.table(in_stage(case.stage, *MOVES[name]), rng)
        expected = case.expected(table)
        pages = paged(case, MOVES[name], table, rng)
        assert len(pages) == len(expected) if case.counting else pages == expected
        if not case.counting:
            most = rng.choice([None, None, 3])
            assert streamed(case, table, rng, most) == expected[:most]

    same()


def a_table(states: dict[int, State], page: int = 1000, name: str = "adopt") -> MovedTable:
    """Items 0 to 11 of one key; those that are not named are live."""
    table = MovedTable(in_stage("move", *MOVES[name]), page=page)
    for number in range(12):
        table.store({"pk": "k", "sk": number, "b": "x"}, states.get(number, "live"))
    return table


def stored_key(send: Send) -> str:
    (key,) = (value["S"] for value in send.params["ExpressionAttributeValues"].values() if "S" in value)
    return str(key)


@pytest.mark.parametrize("index", [None, "local"])
@pytest.mark.parametrize("stuck", ["k.1", "k.2", "k.4"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_place_that_does_not_answer(index: str | None, stuck: str, *, streams: bool) -> None:
    """With ``on_shard_error="partial"``, what was read of the other places is shown, and the error; else it is raised.

    Without an old place's answer, the new ones are not queried: they are missing too.
    """
    table = a_table(dict.fromkeys(range(0, 12, 2), "moved"), name="double")
    params = {"KeyConditionExpression": Key("pk").eq("k")} | ({"IndexName": index} if index else {})
    plan = MovingPlan.of(table.sharding, params)
    runner = Timed(lambda send: (99.0 if stored_key(send) == stuck else 0.01, table.answer(send)))
    missing = {"k.4"} if stuck == "k.4" else {stuck, "k.3", "k.4"}
    wanted = [item["sk"]["N"] for item in table.items if item["pk"]["S"] not in missing]
    made = moving_stream if streams else moving_page
    found = runner.run(made(plan, timeout=1.0, on_shard_error="partial"))
    rows = found if streams else found.rows
    assert [str(plan.shown(item)["sk"]) for item in rows.items] == sorted(wanted, key=int)
    with pytest.raises(ShardQueryError) as caught:
        runner.run(made(plan, timeout=1.0))
    assert {type(error) for error in caught.value.errors.values()} == {TimeoutError}


def test_no_item_to_go_on_from() -> None:
    """If the time is over before any item is certain, a page of an index fails, with ``"partial"`` too."""
    table = a_table({}, page=1)
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k"), "IndexName": "local"})
    with pytest.raises(ShardQueryError, match="did not answer"):
        Timed(lambda send: (0.3, table.answer(send))).run(moving_page(plan, timeout=1.0, on_shard_error="partial"))


def test_a_slow_new_place_is_hedged() -> None:
    table = a_table(dict.fromkeys(range(12), "moved"))
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})
    asked: list[str] = []

    def answers(send: Send) -> tuple[float, Any]:
        asked.append(stored_key(send))
        return 9.0 if asked.count("k.2") == 1 and asked[-1] == "k.2" else 0.01, table.answer(send)

    runner = Timed(answers)
    fan_out = a_fan_out(hedge_after=0.1)
    page: Any = runner.run(read_of(plan, sizes=ItemSizes(), fan_out=fan_out, paged=True))
    assert len(page.rows) == 12
    assert asked.count("k.2") == 2
    assert runner.now < 1


def test_new_places_are_read_after_the_old_ones_and_no_further() -> None:
    """Rule by rule, in the requests: old first, as asked; then new, strongly consistently, up to where old was read."""
    table = a_table({}, page=4)
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})
    runner = Timed(lambda send: (0.01, table.answer(send)))
    page = runner.run(moving_page(plan))
    assert [stored_key(send) for _, send in runner.sent] == ["k", "k.1", "k.2", "k.3"]
    old, *new = (send.params for _, send in runner.sent)
    assert "ConsistentRead" not in old
    for params in new:
        assert params["ConsistentRead"] is True
        assert "<=" in params["KeyConditionExpression"]
        assert {"N": "3"} in params["ExpressionAttributeValues"].values()
    assert [plan.shown(item)["sk"] for item in page.rows.items] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("old", "new", "condition", "read"),
    [
        (CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 4), None, ["k.1", "k.2", "k.3", "k.4"]),
        (CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 3), None, ["k.1", "k.2", "k.1", "k.2", "k.3"]),
        (CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 2, first=2), None, ["k.1", "k.2", "k.2", "k.3"]),
        (RangeSuffix("sk", [4]), RangeSuffix("sk", [4, 7]), None, ["k.x", "k.x34", "k.x37"]),
        (RangeSuffix("sk", [4, 7]), RangeSuffix("sk", [4]), None, ["k.x", "k.x34", "k.x37", "k.x", "k.x34"]),
        (RangeSuffix("sk", [4]), RangeSuffix("sk", [2, 4]), Key("sk").gt(5), ["k.x34"]),
        (Unsharded(), CalculatedSuffix("sk", {"other": 3}), None, ["k", "k.1"]),
    ],
)
def test_which_places_are_read(old: Strategy, new: Strategy, condition: Any, read: list[str]) -> None:
    """A shard of both strategies is read once only if its items cannot have come from another one."""
    table = MovedTable(in_stage("switch", old, new))
    key = Key("pk").eq("k")
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": key & condition if condition else key})
    runner = Timed(lambda send: (0.01, table.answer(send)))
    runner.run(moving_page(plan))
    assert [stored_key(send) for _, send in runner.sent] == read


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("index", [None, "local", "same", "city"])
def test_the_new_place_wins(index: str | None, *, descending: bool) -> None:
    """Of an item that was read at both places, the second read is shown: it may have changed in between."""
    table = a_table({5: "copied"})
    for item in table.items:
        item["city"] = {"S": "k"}
        if item["pk"] != {"S": "k"}:
            item["note"] = {"S": "newer"}
    params: dict[str, Any] = {"KeyConditionExpression": Key("city" if index == "city" else "pk").eq("k")}
    params |= ({"IndexName": index} if index else {}) | {"ScanIndexForward": not descending}
    plan = MovingPlan.of(table.sharding, params)
    page = Timed(lambda send: (0.01, table.answer(send))).run(moving_page(plan))
    shown = [plan.shown(item) for item in page.rows.items]
    assert len(shown) == 12
    assert [item.get("note") for item in shown if item["sk"] == 5] == ["newer"]


@pytest.mark.parametrize(("stage", "neighbour"), [("guard", "old"), ("switch", "new"), ("move", "new")])
@pytest.mark.parametrize("name", ["adopt", "overlap", "leave", "split"])
def test_a_plain_stage_reads_the_cursor_of_its_neighbour(name: str, stage: Stage, neighbour: Stage) -> None:
    """It has the shard that the item has in that stage."""
    table = MovedTable(in_stage(stage, *MOVES[name]))
    for number in range(4):
        table.store({"pk": "k", "sk": number, "b": "x"}, "live")
    params = {"KeyConditionExpression": Key("pk").eq("k"), "Limit": 1}
    for at in range(3):
        page = Timed(lambda send: (0.01, table.answer(send))).run(moving_page(MovingPlan.of(table.sharding, params)))
        params = {**params, "ExclusiveStartKey": page.last_evaluated_key}
        home = in_stage(neighbour, *MOVES[name])
        start = QueryPlan.of(home, params).start
        assert start is not None
        assert start.key == {"sk": {"N": str(at)}}
        assert start.shard == home.known_shard({"pk": {"S": "k"}, **start.key}, {"sk": at})[0]


def bounded(table: MovedTable, most: int) -> Timed:
    """A runner that fails after so many requests: a read that goes on for ever would not end by itself."""

    def answer(send: Send) -> tuple[float, Any]:
        assert len(runner.sent) <= most, "the read does not end"
        return 0.01, table.answer(send)

    runner = Timed(answer)
    return runner


def found_by_pages(table: MovedTable, runner: Timed, params: dict[str, Any]) -> list[int]:
    found: list[int] = []
    start: dict[str, Any] = {}
    while True:
        plan = MovingPlan.of(table.sharding, params | start)
        page = runner.run(moving_page(plan))
        found += [int(plan.shown(item)["sk"]) for item in page.rows.items]
        if page.last_evaluated_key is None:
            return found
        start = {"ExclusiveStartKey": page.last_evaluated_key}


def found_by_stream(table: MovedTable, runner: Timed, params: dict[str, Any], most: int | None = None) -> list[int]:
    plan = MovingPlan.of(table.sharding, params)
    stream = moving_stream(plan, max_items=most)
    found: list[int] = []
    while rows := runner.run(stream):
        found += [int(plan.shown(item)["sk"]) for item in rows.items]
    return found


@pytest.mark.parametrize("state", ["stub", "copied"])
@pytest.mark.parametrize("name", ["overlap", "ranges"])
@pytest.mark.parametrize("limit", [1, None])
def test_a_stub_replaces_no_item(name: str, state: State, limit: int | None) -> None:
    """Where places belong to both strategies, both reads meet stubs, items and copies of other places."""
    table = a_table(dict.fromkeys(range(12), state), page=2, name=name)
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k")} | ({"Limit": limit} if limit else {})
    assert found_by_pages(table, bounded(table, 400), params) == [*range(12)]
    params.pop("Limit", None)
    assert found_by_stream(table, bounded(table, 100), params) == [*range(12)]
    assert found_by_stream(table, bounded(table, 100), params, 5) == [*range(5)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("op", "value"), [("lt", 5), ("gt", 5), ("lte", 5), ("gte", 5)])
@pytest.mark.parametrize("filtered", [False, True])
def test_an_end_that_only_a_narrowed_condition_includes(
    op: str, value: int, *, descending: bool, filtered: bool
) -> None:
    """``< 5`` from a position on is a BETWEEN, which includes 5: a page may stop there, but not its cursor."""
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k") & getattr(Key("sk"), op)(value)}
    params |= {"ScanIndexForward": not descending}
    if filtered:
        params |= {"FilterExpression": "keep = :yes", "ExpressionAttributeValues": {":yes": True}}
    test = {"lt": lt, "gt": gt, "lte": le, "gte": ge}[op]
    for name in ("adopt", "overlap"):
        table = a_table(dict.fromkeys(range(0, 12, 2), "moved"), page=1, name=name)
        for item in table.items:
            item["keep"] = {"BOOL": True}
        wanted = sorted((number for number in range(12) if test(number, value)), reverse=descending)
        assert found_by_pages(table, bounded(table, 300), params) == wanted
        assert found_by_pages(table, bounded(table, 300), params | {"Limit": 1}) == wanted
        assert found_by_stream(table, bounded(table, 100), params) == wanted


@pytest.mark.parametrize("op", ["lt", "gt"])
def test_an_end_of_an_index_that_only_a_narrowed_condition_includes(op: str) -> None:
    for descending in (False, True):
        table = a_table(dict.fromkeys(range(0, 12, 2), "moved"), page=1, name="double")
        for item in table.items:
            item["b"] = {"S": "xyz"[int(item["sk"]["N"]) % 3]}
        params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k") & getattr(Key("b"), op)("y")}
        params |= {"IndexName": "local", "ScanIndexForward": not descending}
        wanted = sorted(range(0 if op == "lt" else 2, 12, 3), reverse=descending)
        assert found_by_pages(table, bounded(table, 100), params) == wanted
        assert found_by_pages(table, bounded(table, 300), params | {"Limit": 2}) == wanted
        assert found_by_stream(table, bounded(table, 100), params) == wanted


@pytest.mark.parametrize("page", [1, 1000])
@pytest.mark.parametrize("name", ["adopt", "overlap"])
def test_a_read_of_an_index_that_stops_among_equal_sort_keys(name: str, page: int) -> None:
    """It reads on until it has all of them, in ever longer pages."""
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "IndexName": "local"}
    for state in ("live", "stub"):
        table = a_table(dict.fromkeys(range(0, 12, 2), state), page=page, name=name)
        for most in (1, 3, 12, 20):
            assert found_by_stream(table, bounded(table, 100), params, most) == [*range(12)][:most]
        assert found_by_pages(table, bounded(table, 400), params | {"Limit": 1}) == [*range(12)]


def test_many_equal_sort_keys_take_few_requests() -> None:
    table = MovedTable(in_stage("move", *MOVES["adopt"]))
    for number in range(200):
        table.store({"pk": "k", "sk": number, "b": "x"}, "live")
    params: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "IndexName": "local"}
    runner = bounded(table, 30)
    assert found_by_stream(table, runner, params, 1) == [0]
    page = runner.run(moving_page(MovingPlan.of(table.sharding, params | {"Limit": 1})))
    assert len(page.rows) == 1


@pytest.mark.parametrize("streams", [False, True])
def test_nothing_is_asked_after_the_deadline(*, streams: bool) -> None:
    """The old places and the new ones have one time; those that were not asked are missing."""
    table = a_table(dict.fromkeys(range(0, 12, 2), "moved"), page=3, name="double")
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})
    for seconds, missing in ((0.6, {3, 4}), (0.4, set()), (1.2, {1, 2, 3, 4})):
        runner = Timed(partial(lambda took, send: (took, table.answer(send)), seconds))
        machine = (moving_stream if streams else moving_page)(plan, timeout=1.0, on_shard_error="partial")
        if missing == {1, 2, 3, 4}:
            with pytest.raises(ShardQueryError, match="4 of 4 shards failed"):
                runner.run(machine)
        else:
            result = runner.run(machine)
            rows = result if streams else result.rows
            assert rows
            assert machine.errors.keys() == missing
            found = [int(plan.shown(item)["sk"]) for item in rows.items]
            assert found == sorted(found)
        assert all(at < 1.0 for at, _ in runner.sent)


@pytest.mark.parametrize("on_shard_error", ["raise", "partial"])
def test_stubs_are_not_among_the_items_of_an_error(on_shard_error: str) -> None:
    table = a_table(dict.fromkeys(range(0, 12, 2), "stub"))
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})

    def answers(send: Send) -> tuple[float, Any]:
        return 0.01, table.answer(send) if stored_key(send) in {"k", "k.1"} else throttled("Account")

    if on_shard_error == "partial":
        page = Timed(answers).run(moving_page(plan, on_shard_error="partial"))
        shown = [plan.shown(item) for item in page.rows.items]
        assert page.errors.keys() == {2, 3}
    else:
        with pytest.raises(ShardQueryError) as caught:
            Timed(answers).run(moving_page(plan))
        shown = [dict(item) for item in caught.value.partial_items]
    assert {int(item["sk"]) for item in shown} >= {1, 3, 5, 7, 9, 11}
    assert all("b" in item and MARK not in item for item in shown)


def test_all_old_places_fail() -> None:
    """With ``partial``, what the new places have is shown."""
    table = a_table(dict.fromkeys(range(0, 12, 2), "moved"))
    plan = MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})
    runner = Timed(lambda send: (0.01, throttled("Account") if stored_key(send) == "k" else table.answer(send)))
    page = runner.run(moving_page(plan, on_shard_error="partial"))
    assert [int(plan.shown(item)["sk"]) for item in page.rows.items] == [*range(0, 12, 2)]
    assert page.errors.keys() == {None}


def three_to_five() -> tuple[MovedTable, MovingPlan]:
    table = MovedTable(in_stage("move", CalculatedSuffix("sk", 3), CalculatedSuffix("sk", 5)))
    return table, MovingPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})


@pytest.mark.parametrize("streams", [False, True])
def test_the_error_of_a_place_that_was_asked_wins(*, streams: bool) -> None:
    """Old and new shards have the same numbers. The error of old shard 1 is kept: it is why no new one was asked."""
    table, plan = three_to_five()
    runner = Timed(lambda send: (9.0 if stored_key(send) == "k.1" else 0.01, table.answer(send)))
    read = (moving_stream if streams else moving_page)(plan, timeout=0.35, on_shard_error="partial")
    runner.run(read)
    assert {shard: str(error).split(" within")[0] for shard, error in read.errors.items()} == {
        1: "shard 1 did not answer",
        **{number: f"shard {number} was not queried" for number in (2, 3, 4, 5)},
    }
    assert next(iter(read.errors)) == 1


def test_the_error_of_a_new_place_wins_if_the_old_one_was_not_asked() -> None:
    """A stream asks the new places in a time of their own."""
    _, plan = three_to_five()
    read = moving_stream(plan)
    old, new = read._sides  # noqa: SLF001
    old.errors |= {2: timed_out(2, a_fan_out(timeout=1.0), asked=False), 3: ValueError("old")}
    new.errors |= {2: ValueError("new"), 3: ValueError("new")}
    assert {shard: str(error) for shard, error in read.errors.items()} == {2: "new", 3: "old"}


@pytest.mark.parametrize(
    ("mode", "failing", "message"),
    [("partial", {1, 2, 3, 4, 5}, "8 of 8"), ("raise", {1, 2, 3}, "3 of 8"), ("raise", {3}, "1 of 8"),
     ("raise", {4, 5}, "2 of 8")],
)  # fmt: skip
def test_an_error_counts_the_places_of_both_strategies(mode: str, failing: set[int], message: str) -> None:
    table, plan = three_to_five()
    table.store({"pk": "k", "sk": 1}, "moved")
    runner = Timed(lambda send: (9.0 if int(stored_key(send)[2:]) in failing else 0.01, table.answer(send)))
    with pytest.raises(ShardQueryError, match=f"^{message} shards failed"):
        runner.run(moving_page(plan, timeout=0.35, on_shard_error=mode))


@given(seed=st.integers(0, 2**32), case=cases(), slow=st.sampled_from([0.05, 0.3, 0.6, 2.0]), streams=st.booleans())
def test_a_deadline_beside_slow_places(seed: int, case: Case, slow: float, *, streams: bool) -> None:
    """What is shown is in order, each item once; without an error of a place, nothing is missing."""
    rng = random.Random(seed)
    case = replace(case, moving=False, filtered=False, projected=False, counting=False)
    table = case.table(in_stage(case.stage, *MOVES[rng.choice([*MOVES])]), rng)
    plan = MovingPlan.of(table.sharding, case.params | ({"Limit": case.limit} if case.limit and not streams else {}))

    def answers(send: Send) -> tuple[float, Any]:
        assert len(runner.sent) < 1000, "the read does not end"
        return rng.random() * slow, table.answer(send)

    runner = Timed(answers)
    mode = rng.choice(["partial", "raise"])
    made = moving_stream if streams else moving_page
    read = made(plan, timeout=1.0, on_shard_error=mode, concurrency=rng.choice([1, 3, 10]))
    found: list[Item] = []
    try:
        if streams:
            while rows := runner.run(read):
                found += [plan.shown(item) for item in rows.items]
        else:
            found = [plan.shown(item) for item in runner.run(read).rows.items]
            assert runner.now <= 1.0
            assert read.last_evaluated_key or read.errors or len(found) == len(case.expected(table))
    except ShardQueryError:
        return
    expected = case.expected(table)
    assert found == [item for item in expected if item in found]
    if not read.errors:
        assert found == (expected if streams else expected[: len(found)])
    assert not (read.errors and mode == "raise")
