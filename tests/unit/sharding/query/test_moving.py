"""Queries of a table whose items move: beside a plain table, in every stage, wherever the items are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
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
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.resharding.query import FilteredRead, MovingPlan, read_of
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
    """An index page whose time is over before any item is certain fails, though errors of places are accepted."""
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
        start = Plan.of(home, params).start
        assert start is not None
        assert start.key == {"sk": {"N": str(at)}}
        assert start.shard == home.known_shard({"pk": {"S": "k"}, **start.key}, {"sk": at})[0]
