"""A move on a virtual clock: whatever is throttled, lost or killed, each item ends once, at its new home."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, Resharding, ShardkitError, Strategy, Unsharded
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.dynamodb.values import WireItem
from shardkit.migrate.between import described
from shardkit.migrate.marks import MARK, STUB, Moving
from shardkit.migrate.move_plan import Planning, stage_costs
from shardkit.migrate.mover import Mover
from shardkit.passes.table_pass import STALLED_SECONDS, PassReport, TablePass
from tests.support.fakes import client_error, lost_connection, throttled
from tests.support.machines import Timed

SEGMENTS = 2
PAGE = 3
BY_SK = CalculatedSuffix("sk", 4)
DESCRIPTION: dict[str, Any] = {
    "TableName": "T",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
}


PLAIN = Unsharded()


def moving(old: Strategy = PLAIN, new: Strategy = BY_SK) -> Moving:
    made = described("T", Resharding(old, new, stage="move"), DESCRIPTION)
    assert isinstance(made, Moving)
    return made


def an_item(sk: int, pk: str = "k", *, mark: Any = None, **more: Any) -> WireItem:
    marked = {} if mark is None else {MARK: mark}
    return {"pk": {"S": pk}, "sk": {"S": f"s{sk:02}"}, **more, **marked}


def key_of(item: Any) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


class Table:
    """A table in memory: Scan of segments, and the writes of a move, under the conditions that they have.

    ``before`` is called before each request, and may change items; it returns what the request fails with, if it does.
    """

    def __init__(
        self, items: Iterable[WireItem], before: Callable[[Send], Exception | str | None] = lambda _: None
    ) -> None:
        self.items = {key_of(item): item for item in items}
        self.before = before
        self.timed = Timed(self._answer)

    def run(self, machine: TablePass[Any], most: int = 100_000) -> None:
        """Run it to its end, or until it has had so many answers."""
        while not machine.ended and most:
            self.timed.run(machine)
            most -= 1

    def sent(self, *operations: str) -> list[dict[str, Any]]:
        return [dict(send.params) for _, send in self.timed.sent if send.operation in operations]

    def _answer(self, send: Send) -> tuple[float, Answer]:
        fault = self.before(send)
        if isinstance(fault, Exception):
            return 0.01, fault
        answer = getattr(self, xform_name(send.operation))(send.params)
        return 0.01, lost_connection() if fault == "lost after" else answer

    def scan(self, params: Any) -> Answer:
        own = sorted(key for key in self.items if sum(map(ord, "".join(key))) % SEGMENTS == params["Segment"])
        start = key_of(params["ExclusiveStartKey"]) if "ExclusiveStartKey" in params else ("", "")
        left = [key for key in own if key > start]
        page = [dict(self.items[key]) for key in left[:PAGE]]
        pk, sk = left[PAGE - 1] if len(left) > PAGE else ("", "")
        last = {"LastEvaluatedKey": {"pk": {"S": pk}, "sk": {"S": sk}}} if pk else {}
        return {"Items": page, "ConsumedCapacity": {"CapacityUnits": 1.0}, **last}

    def _held(self, params: Any, key: tuple[str, str]) -> bool:
        mark = self.items.get(key, {}).get(MARK)
        holds = {
            "attribute_exists(#k) AND attribute_not_exists(#m)": key in self.items and mark is None,
            "attribute_not_exists(#k)": key not in self.items,
            "#m = :t": mark is not None and mark == params.get("ExpressionAttributeValues", {}).get(":t"),
        }
        return holds[params["ConditionExpression"]]

    def _write(self, params: Any, key: tuple[str, str], write: Callable[[], Any]) -> Answer:
        if not self._held(params, key):
            failed = client_error("ConditionalCheckFailedException")
            if key in self.items:
                failed.response["Item"] = dict(self.items[key])  # type: ignore[typeddict-unknown-key]
            return failed
        write()
        return {"Attributes": dict(self.items.get(key, {})), "ConsumedCapacity": {"CapacityUnits": 1.0}}

    def update_item(self, params: Any) -> Answer:
        key = key_of(params["Key"])
        if params["UpdateExpression"] == "SET #m = :t":
            values = params["ExpressionAttributeValues"]
            return self._write(params, key, lambda: self.items.update({key: {**self.items[key], MARK: values[":t"]}}))
        return self._write(params, key, lambda: self.items[key].pop(MARK))

    def delete_item(self, params: Any) -> Answer:
        key = key_of(params["Key"])
        return self._write(params, key, lambda: self.items.pop(key))

    def transact_write_items(self, params: Any) -> Answer:
        (kind, first), (_, check) = (next(iter(part.items())) for part in params["TransactItems"])
        new = key_of(first["Item"] if kind == "Put" else first["Key"])
        held = [self._held(first, new), self._held(check, key_of(check["Key"]))]
        if not all(held):
            reasons: list[Any] = [{"Code": "None" if one else "ConditionalCheckFailed"} for one in held]
            return cancelled(
                {**reasons[0], **({"Item": dict(self.items[new])} if new in self.items else {})}, reasons[1]
            )
        if kind == "Put":
            self.items[new] = dict(first["Item"])
        else:
            self.items[new].pop(MARK)
        return {"ConsumedCapacity": [{"CapacityUnits": 4.0}]}


def cancelled(*reasons: Any) -> ClientError:
    response: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": [*reasons]}
    return ClientError(response, "TransactWriteItems")


def a_mover(*, strategies: Moving | None = None, streamed: bool = False, **options: Any) -> Mover:
    given = {"workers": 3, "segments": SEGMENTS, "draw": random.Random(0).random, **options}
    numbers = count()
    return Mover(strategies or moving(), token=lambda: f"{next(numbers):032x}", streamed=streamed, **given)


def homes(items: Iterable[WireItem]) -> dict[tuple[str, str], WireItem]:
    """What a whole move makes of live items."""
    made = {}
    for item in items:
        new = moving().homes({name: item[name] for name in ("pk", "sk")}).new
        made[key_of(new)] = {**item, **new}
    return made


def left(table: Table, **options: Any) -> PassReport:
    """What a verification finds, which writes nothing, and reads consistently."""
    table.before = lambda _: None
    before = len(table.sent("UpdateItem", "TransactWriteItems", "DeleteItem"))
    verification = a_mover(verify=True, **options)
    table.run(verification)
    assert len(table.sent("UpdateItem", "TransactWriteItems", "DeleteItem")) == before
    assert verification.report.verified == len(table.items)
    assert table.sent("Scan")[-1]["ConsistentRead"] is True
    return verification.report


@given(st.integers(0, 12), st.randoms(use_true_random=False), st.booleans())
def test_each_item_ends_at_its_new_home(number: int, rng: random.Random, streamed: bool) -> None:
    """Throttled, its answers lost, killed and resumed, two at once, and with items that are deleted meanwhile."""
    items = [an_item(one, v={"N": str(one)}) for one in range(number)]
    table = Table(map(dict, items))
    deleted: set[str] = set()

    def before(send: Send) -> Exception | str | None:
        key = key_of(send.params.get("Key", an_item(99)))
        # At its old home, while it is live; an application that meets it frozen would finish its move first.
        live = key[0] == "k" and MARK not in table.items.get(key, {MARK: STUB})
        if send.operation == "UpdateItem" and live and rng.random() < 0.1:
            deleted.add(table.items.pop(key)["sk"]["S"])
        conflict: Any = client_error("TransactionConflictException") if "Key" in send.params else None
        if send.operation == "TransactWriteItems":
            conflict = cancelled({"Code": "None"}, {"Code": "TransactionConflict"})
        faults = [throttled("KeyRangeThroughput"), client_error("InternalServerError"), conflict]
        choices: list[Exception | str | None] = [None] * 6 + ["lost after"] * 2 + faults
        return rng.choice(choices)

    table.before = before
    machines = [a_mover(streamed=streamed), a_mover(streamed=streamed)]
    for most in (rng.randrange(20), rng.randrange(20), 100_000):
        for place, machine in enumerate(machines):
            table.run(machine, most)
            if not machine.ended:
                machines[place] = a_mover(streamed=streamed, positions=machine.positions)
    assert all(machine.ended and machine.report.failed == 0 for machine in machines)
    table.before = lambda _: None
    last = a_mover(streamed=streamed)  # a lost answer may leave what only the next pass sees
    table.run(last)
    assert left(table).left == 0
    assert table.items == homes(item for item in items if item["sk"]["S"] not in deleted)


@pytest.mark.parametrize("streamed", [False, True])
def test_crashed_after_each_request(streamed: bool) -> None:
    """A new mover finishes what it finds: frozen, copied, or removed with a marked copy."""
    items = [an_item(1), an_item(2)]
    for most in count():
        table = Table(map(dict, items))
        table.run(first := a_mover(streamed=streamed, workers=1), most)
        if first.ended:
            break
        table.run(a_mover(streamed=streamed))
        assert left(table).left == 0
        assert table.items == homes(items)
    assert most == 2 * (5 if streamed else 4) - 2 + SEGMENTS


def test_what_goes_over_the_wire() -> None:
    table = Table([an_item(1, v={"S": "x"})])
    machine = a_mover()
    table.run(machine)
    old, new = {"pk": {"S": "k"}, "sk": {"S": "s01"}}, moving().homes(an_item(1)).new
    freeze, remove = table.sent("UpdateItem", "DeleteItem")
    token = freeze["ExpressionAttributeValues"][":t"]
    assert (freeze["Key"], freeze["ReturnValues"], freeze["ReturnConsumedCapacity"]) == (old, "ALL_NEW", "INDEXES")
    [copy] = table.sent("TransactWriteItems")
    put, check = copy["TransactItems"][0]["Put"], copy["TransactItems"][1]["ConditionCheck"]
    assert put["Item"] == {**new, "v": {"S": "x"}}
    assert (check["Key"], check["ExpressionAttributeValues"]) == (old, {":t": token})
    assert (remove["Key"], remove["ExpressionAttributeValues"]) == (old, {":t": token})
    assert table.sent("Scan")[0]["ExpressionAttributeNames"] == {"#a0": "pk", "#a1": "sk", "#a2": MARK}
    report = machine.report
    assert (report.read, report.moved, report.write_units, report.requests) == (1, 1, 6.0, 3 + SEGMENTS)


def test_a_copy_is_marked_for_readers_of_the_stream() -> None:
    """Until the old item is gone: 7 units."""
    table = Table([an_item(1)])
    seen = []
    table.before = lambda send: seen.append((send.operation, {key: MARK in item for key, item in table.items.items()}))
    machine = a_mover(streamed=True)
    table.run(machine)
    old, new = ("k", "s01"), key_of(moving().homes(an_item(1)).new)
    assert [step for step in seen if step[0] != "Scan"] == [
        ("UpdateItem", {old: False}),
        ("TransactWriteItems", {old: True}),
        ("DeleteItem", {old: True, new: True}),
        ("UpdateItem", {new: True}),
    ]
    assert table.items == homes([an_item(1)])
    assert machine.report.write_units == 7.0


def test_stubs_and_frozen_items_of_others() -> None:
    """Stubs are deleted; a frozen item is finished with its own token."""
    frozen = an_item(2, v={"S": "x"}, mark={"S": "f" * 32})
    table = Table([an_item(1, mark=STUB), frozen])
    machine = a_mover()
    table.run(machine)
    assert (machine.report.stubs, machine.report.moved, machine.report.failed) == (1, 1, 0)
    assert table.items == homes([an_item(2, v={"S": "x"})])


def test_a_conflict_is_reported_and_nothing_removed() -> None:
    """Another item is at the new home, of a writer without the stages. An equal one is a copy, and no conflict."""
    made = homes([an_item(1, v={"S": "other"}), an_item(2)])
    items = [an_item(1, v={"S": "mine"}), an_item(2), *made.values()]
    table = Table(map(dict, items))
    machine = a_mover()
    table.run(machine)
    assert (machine.report.conflicts, machine.report.failed, machine.report.moved) == (1, 1, 1)
    [(key, reason)] = machine.report.failures
    assert key == "{'pk': 'k', 'sk': 's01'}"
    assert "hold different items, so neither was removed" in reason
    assert {key: item.get("v") for key, item in table.items.items() if key[1] == "s01"} == {
        ("k", "s01"): {"S": "mine"},
        key_of(homes([an_item(1)]).popitem()[1]): {"S": "other"},
    }
    assert left(table).left == 1


def test_what_cannot_be_told_apart_or_frozen_is_reported() -> None:
    """Keys that look like another key's shard; items that the service refuses to make larger. All others move."""
    homeless = next(f"k.{shard}" for shard in range(1, 5) if f"k.{shard}" != homes([an_item(1)]).popitem()[0][0])
    refused = client_error("ValidationException", "Item size to update has exceeded the maximum allowed size")
    table = Table(
        [an_item(1, homeless), an_item(2), an_item(3)],
        lambda send: refused if send.params.get("Key", {}).get("sk") == {"S": "s02"} else None,
    )
    machine = a_mover()
    table.run(machine)
    assert (machine.report.moved, machine.report.failed) == (1, 2)
    failures = dict(machine.report.failures)
    assert "give new another separator=" in failures[f"{{'pk': '{homeless}', 'sk': 's01'}}"]
    assert "exceeded the maximum" in failures["{'pk': 'k', 'sk': 's02'}"]
    assert left(table).left == 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "refused",
    [
        client_error("ValidationException", "Item size has exceeded"),
        cancelled({"Code": "ValidationError"}, {"Code": "None"}),
    ],
)
@pytest.mark.parametrize("lost", [False, True])
def test_what_is_too_large_at_its_new_home_is_thawed(refused: ClientError, streamed: bool, lost: bool) -> None:
    """With the mark it was not too large yet: a mark in the copy too, or an index, makes the difference."""

    def before(send: Send) -> Exception | str | None:
        parts = [*send.params.get("TransactItems", ({},))[0].items()]
        large = [kind for kind, part in parts if key_of(part.get("Item") or part["Key"])[1] == "s02"]
        if large == ["Update"] and lost and len(table.sent("TransactWriteItems")) % 2:
            return "lost after"
        return refused if large == ["Put"] else None

    table = Table([an_item(1), an_item(2)], before)
    table.run(a_mover(streamed=streamed))
    machine = a_mover(streamed=streamed)
    table.run(machine)
    assert (machine.report.moved, machine.report.failed) == (0, 1)
    assert [reason for _, reason in machine.report.failures] == [str(refused)]
    assert table.items == {("k", "s02"): an_item(2), **homes([an_item(1)])}


@pytest.mark.parametrize(("old", "new"), [(10, 20), (10, 15), (20, 10)])
def test_overlapping_counts(old: int, new: int) -> None:
    """Only what has another shard moves, more shards or fewer."""
    given = moving(CalculatedSuffix("sk", old), CalculatedSuffix("sk", new))
    items = [an_item(one) for one in range(30)]
    table = Table({**item, **given.homes(item).old} for item in items)
    machine = a_mover(strategies=given)
    table.run(machine)
    assert machine.report.moved == sum(not given.homes(item).same for item in items) > 0
    assert set(table.items) == {key_of(given.homes(item).new) for item in items}
    assert left(table, strategies=given).left == 0


def test_it_keeps_its_rate() -> None:
    """20 units a second, of which an item takes 6; and it uses them."""
    table = Table(an_item(one) for one in range(40))
    machine = a_mover(write_units=20.0, workers=10)
    table.run(machine)
    assert machine.report.write_units == 240.0
    assert 240 / 20 - 1.5 <= table.timed.now <= 240 / 20 + 1


def test_few_items_are_frozen_at_a_time() -> None:
    """No more than requests in flight: a service that meets one has to finish it."""
    table = Table(an_item(one) for one in range(40))
    most = 0

    def before(_: Send) -> None:
        nonlocal most
        most = max(most, sum(MARK in item for item in table.items.values()))

    table.before = before
    table.run(a_mover(write_units=20.0))
    assert 1 <= most <= 3


def test_an_outage_in_the_middle() -> None:
    """8 s: it goes on by itself. Of more than a minute, it says so, and what was done stays."""
    items = [an_item(one) for one in range(20)]
    table = Table(map(dict, items))
    table.before = lambda _: client_error("ServiceUnavailable") if 0.05 < table.timed.now < 8 else None
    table.run(a_mover())
    assert table.items == homes(items)
    table = Table(map(dict, items))
    table.before = lambda _: client_error("ServiceUnavailable") if table.timed.now > 0.05 else None
    with pytest.raises(ShardkitError, match=r"refused every request for 60 s \(ServiceUnavailable\)"):
        table.run(a_mover())
    assert STALLED_SECONDS < table.timed.now < STALLED_SECONDS + 30
    table.before = lambda _: None
    table.run(a_mover())
    assert table.items == homes(items)


# -- the plan


def planned(
    items: Iterable[WireItem],
    *,
    strategies: Moving | None = None,
    begun: bool = True,
    write_units: float | str = 10.0,
    **description: Any,
) -> Any:
    table = Table(items)
    machine = Planning(
        strategies or moving(), {**DESCRIPTION, **description}, begun=begun,
        workers=3, segments=SEGMENTS, draw=random.random, write_units=write_units, read_units=100.0,
    )  # fmt: skip
    table.run(machine)
    assert not table.sent("UpdateItem", "TransactWriteItems", "DeleteItem")
    return machine.report


def test_a_plan_counts_what_moves_and_its_units() -> None:
    """An index with all attributes is written too: it gets the mark, the copy, and loses the old item."""
    index = {
        "IndexName": "by-v",
        "KeySchema": [{"AttributeName": "v", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    home = next(iter(homes([an_item(9)]).values()))
    items = [*(an_item(one, v={"S": "x" * 800}) for one in range(7)), an_item(8, mark=STUB), home]
    plan = planned(items, GlobalSecondaryIndexes=[index])
    assert (plan.read, plan.moving, plan.home, plan.stubs, plan.failed) == (9, 7, 1, 1, 0)
    assert (plan.table_units, plan.index_units) == (7 * 6.0 + 1, {"by-v": 7 * 3.0})
    assert plan.expected_seconds == pytest.approx(4.3 + plan.bytes / 4096 / 100)
    streamed = planned(items, StreamSpecification={"StreamEnabled": True})
    assert streamed.table_units == 7 * 7.0 + 1


def test_a_plan_at_a_share_of_the_throughput() -> None:
    """If that is unknown, so is the time: a plan writes nothing, and needs no rate."""
    items = [an_item(one) for one in range(5)]
    unknown = planned(items, write_units="20%")
    assert (unknown.table_units, unknown.expected_seconds) == (30.0, None)
    known = planned(items, write_units="20%", ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 50})
    assert known.expected_seconds == pytest.approx(3 + known.bytes / 4096 / 100)


def test_a_plan_costs_what_the_move_consumes() -> None:
    items = [an_item(one, v={"S": "x" * 900}) for one in range(5)]
    table = Table(map(dict, items))
    machine = a_mover()
    table.run(machine)
    assert planned(items).table_units == machine.report.write_units == 30.0


def test_a_plan_names_what_cannot_move() -> None:
    """Too large for the mark; keys that look like shards. One that is just where its shard would be: only at first."""
    large = an_item(1, v={"S": "x" * (ITEM_BYTES - 30)})
    homeless = [an_item(2, f"k.{shard}") for shard in range(1, 5)]
    plan = planned([large, *homeless])
    assert (plan.too_large, plan.ambiguous, plan.home, plan.moving) == (1, 3, 1, 0)
    plan = planned([large, *homeless], begun=False)
    assert (plan.too_large, plan.ambiguous, plan.home, plan.moving) == (1, 4, 0, 0)
    failures = dict(plan.failures)
    assert "more than DynamoDB's 409,600" in failures["{'pk': 'k', 'sk': 's01'}"]


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({"x": {"S": "x" * (ITEM_BYTES - 100)}}, {}),
        ({"x": {"S": "x" * (ITEM_BYTES - 70)}}, {"StreamSpecification": {"StreamEnabled": True}}),
        ({"v": {"S": "x" * 600}, "x": {"S": "x" * (ITEM_BYTES // 2)}}, {"LocalSecondaryIndexes": []}),
    ],
)
def test_a_plan_counts_the_suffix_and_local_indexes(more: Any, options: Any) -> None:
    """What the mark alone leaves room for may be too large with the suffix, or in a local index."""
    local = {
        "IndexName": "by-v",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "v", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    given: Any = {name: [local] if value == [] else value for name, value in options.items()}
    longer = moving(new=CalculatedSuffix("sk", 4, separator="#" * 99))
    plan = planned([an_item(1, **more), an_item(2)], strategies=longer, **given)
    assert (plan.too_large, plan.moving) == (1, 1)


def test_a_plan_names_keys_that_are_too_long() -> None:
    plan = planned([an_item(1, "k" * 2047), an_item(2, "k" * 2046)])
    assert (plan.too_large, plan.moving) == (1, 1)
    ((_, reason),) = plan.failures
    assert "pk: has 2,049 bytes as stored, DynamoDB allows 2,048" in reason


def test_the_costs_of_the_stages() -> None:
    """For 1 KB, as the protocol says: u = 1, r = 0.5 (1, strongly consistent)."""
    costs = {one.stage: one for one in stage_costs(1000)}
    assert [costs["guard"].write_old, costs["guard"].write_new, costs["guard"].write_absent] == [(0, 1), (0, 2), (0, 1)]
    assert [costs["switch"].write_old, costs["switch"].write_new] == [(1, 1), (1, 1)]
    assert (costs["switch"].write_absent, costs["move"].write_absent) == ((1, 2), (1, 1))
    assert (costs["move"].get_new, costs["move"].get_old) == ((0.5, 0), (1.0, 0))
    assert costs["old"].write_new == costs["new"].write_old == (0, 1)
