"""Copies and comparisons on a virtual clock: whatever is lost or killed, and what a comparison counts when resumed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, ShardkitError, Strategy, Unsharded
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.values import WireItem
from shardkit.passes.changing import Copying
from shardkit.passes.choosing import Wanted
from shardkit.passes.comparing import Comparing
from shardkit.sharding.form import PYTHON_VALUES
from shardkit.sharding.programs import Programs
from tests.support.fakes import client_error, lost_connection, throttled
from tests.support.machines import Timed
from tests.support.stepwise import carried_out
from tests.unit.passes.test_changing import SCHEMA, an_item, sharding

Items = dict[tuple[str, str], WireItem]
HALF = 3


def at(key: WireItem) -> tuple[str, str]:
    return key["pk"]["S"], key["sk"]["S"]


class Two:
    """Two tables in memory; a request says by ``second`` which it is for."""

    def __init__(self, *tables: Items, fault: Callable[[Send], Any] = lambda _: None) -> None:
        self.tables, self.fault = tables, fault
        self.timed = Timed(self._answer)

    def run(self, machine: Any, most: int = 100_000) -> Any:
        return self.timed.run_on(machine, most)

    def _answer(self, send: Send) -> tuple[float, Answer]:
        fault = self.fault(send)
        if isinstance(fault, Exception):
            return 0.01, fault
        answer = self._of(send, self.tables[send.second])
        return 0.01, lost_connection() if fault == "lost after" else answer

    def _of(self, send: Send, items: Items) -> Answer:
        params: Any = send.params
        if send.operation == "Scan":
            own = sorted(key for key in items if sum(map(ord, key[1])) % params["TotalSegments"] == params["Segment"])
            start = at(params["ExclusiveStartKey"]) if "ExclusiveStartKey" in params else ("", "")
            page = [items[key] for key in own if key > start][:4]
            last = {"LastEvaluatedKey": {name: page[-1][name] for name in ("pk", "sk")}} if page else {}
            return {"Items": page, "ScannedCount": len(page), **last}
        if send.operation == "BatchGetItem":
            ((table, asked),) = params["RequestItems"].items()
            assert asked["ConsistentRead"]
            return {"Responses": {table: [items[at(key)] for key in asked["Keys"] if at(key) in items]}}
        assert send.operation == "PutItem"
        after, answer = carried_out(send.operation, params, items.get(at(params["Item"]), {}))
        if not isinstance(answer, Exception):
            items[at(params["Item"])] = after
        return answer


def programs(strategy: Strategy) -> Programs:
    return Programs("T", strategy, SCHEMA, random.Random(0).random, PYTHON_VALUES)


def filled(numbers: Any, strategy: Strategy, **more: Any) -> Items:
    table, items = sharding(strategy), Items()
    for number in numbers:
        item = an_item(number, **more)
        stored = table.physical_item(PYTHON_VALUES.shown(item), "Item", lambda: 0.0)
        wire = PYTHON_VALUES.item(stored)
        items[at(wire)] = wire
    return items


def options(**given: Any) -> Any:
    return {"workers": 3, "segments": HALF, "draw": random.Random(0).random, **given}


FAULTS = st.lists(st.sampled_from([None, None, "throttle", "lost", "lost after"]), max_size=40)


@given(FAULTS, st.lists(st.integers(1, 15), max_size=3), st.booleans())
def test_each_item_is_copied_once_whatever_fails(faults: list[Any], kills: list[int], overwrite: bool) -> None:
    drawn = iter(faults)
    errors = {"throttle": throttled("KeyRangeThroughput"), "lost": lost_connection()}

    def fault(send: Send) -> Any:
        one = next(drawn, None)
        return errors.get(str(one), one)

    for strategy in (CalculatedSuffix("sk", 10), RandomSuffix(10)):
        two = Two(filled(range(20), Unsharded()), filled([3, 4], CalculatedSuffix("sk", 10), n={"N": "7"}), fault=fault)
        kept: dict[str, Any] = {}
        machine: Any = None
        for most in [*kills, 100_000]:
            machine = Copying(sharding(Unsharded()), Wanted("PutItem"), table="T", **options(**kept))
            machine.target, machine.stored, machine.overwrite = programs(strategy), sharding(strategy), overwrite
            two.run(machine, most)
            kept = {"positions": dict(machine.positions)}
            two.timed._simulator._arrivals.clear()  # noqa: SLF001 - answers to a process that is no more
        report = machine.report
        if not kills:
            assert report.changed + report.unchanged == 20
        calculated = isinstance(strategy, CalculatedSuffix)
        assert len(two.tables[1]) == 20 + 2 * (not calculated)
        held = [two.tables[1][key]["n"] for key in filled([3, 4], CalculatedSuffix("sk", 10))]
        assert held == [{"N": "0" if overwrite and calculated else "7"}] * 2


@given(
    st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)), st.lists(st.integers(1, 9))
)
def test_a_comparison_counts_each_difference_once_however_often_it_is_killed(
    gone: set[int], changed: set[int], more: set[int], kills: list[int]
) -> None:
    old, new = Unsharded(), CalculatedSuffix("sk", 10)
    second = filled(set(range(30)) - gone, new) | filled(changed - gone, new, n={"N": "7"})
    two = Two(filled(range(30), old), second | filled({100 + number for number in more}, new))
    kept: dict[str, Any] = {}
    report: Any = None
    for most in [*kills, 100_000]:
        sides = sharding(old), sharding(new)
        machine = Comparing(sides, (programs(old), programs(new)), **options(segments=2 * HALF, **kept))
        report = two.run(machine, most)
        kept = {"positions": dict(machine.positions), "state": dict(machine.state)}
        two.timed._simulator._arrivals.clear()  # noqa: SLF001 - answers to a process that is no more
    assert (report.missing, report.different, report.additional) == (len(gone), len(changed - gone), len(more))
    assert report.read == 30 + len(second) + len(more)


def test_a_sample_says_how_many_there_may_be_in_all() -> None:
    old, new = Unsharded(), CalculatedSuffix("sk", 10)
    two = Two(filled(range(400), old), filled(range(0, 400, 2), new))
    drawn = {number: None for number in range(40) if number not in {1, 5, 9, 25, 30, 33}}
    sides = sharding(old), sharding(new)
    given = options(segments=40, positions=drawn)
    machine = Comparing(sides, (programs(old), programs(new)), **given)
    two.run(machine)
    report = machine.concluded()
    assert report.sample == pytest.approx(6 / 40)
    missing, additional = report.estimates["missing"], report.estimates["additional"]
    assert missing.low <= 200 <= missing.high
    assert missing.value == report.missing * 20 / 3
    assert (additional.value, additional.high) == (0, 18)  # 0.85 ** 18 is 5%


def test_a_table_in_which_items_cannot_be_looked_up() -> None:
    two = Two(filled(range(9), Unsharded()), filled(range(9), RandomSuffix(10)))
    sides = sharding(Unsharded()), sharding(RandomSuffix(10))
    with pytest.raises(ShardkitError, match=r"items cannot be looked up in the other table: .*locate=True"):
        two.run(Comparing(sides, (programs(sides[0].strategy), programs(sides[1].strategy)), **options(segments=6)))


def test_an_item_that_cannot_be_read_is_a_failure_also_after_a_resume() -> None:
    """Otherwise the tables would be equal."""
    two = Two(filled(range(9), Unsharded()), filled(range(9), Unsharded()))

    def logical(stored: WireItem) -> tuple[WireItem, None]:
        if machine.sharding is sides[0] and stored["sk"]["S"] == "s003":
            raise ShardkitError("it cannot be read")
        return stored, None

    sides, both = [sharding(Unsharded()), sharding(Unsharded())], [programs(Unsharded())] * 2
    machine = Comparing(sides, both, **options(segments=6))
    setattr(machine, "logical", logical)  # noqa: B010 - mypy refuses to assign to a method
    assert two.run(machine).failed == 1
    again = Comparing(sides, both, **options(segments=6, positions=machine.positions, state=machine.state))
    assert (again.report.failed, again.concluded().equal) == (1, False)


def test_a_page_that_could_not_be_looked_up_is_compared_again() -> None:
    two = Two(filled(range(9), Unsharded()), filled(range(5), Unsharded()))
    two.fault = lambda send: client_error("ValidationException") if send.operation == "BatchGetItem" else None
    sides, both = [sharding(Unsharded())] * 2, [programs(Unsharded())] * 2
    machine = Comparing(sides, both, **options(segments=6))
    with pytest.raises(ShardkitError, match="items cannot be looked up"):
        two.run(machine)
    two.fault = lambda _: None
    again = Comparing(sides, both, **options(segments=6, positions=machine.positions, state=machine.state))
    assert two.run(again).missing == 4
