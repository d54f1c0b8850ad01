"""Leases by themselves: whose reads extend them, who renews them, and what a change of the map waits for."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from shardkit.core.machine import Answer, Done, Program, ProgramMachine, Send, SideBySide, Wait
from shardkit.errors import StageError
from shardkit.sharding.leases import Held, KnownMap, Leased, LeaseEndedError, MapChangedError
from shardkit.sharding.shard_map import MAP_LEASE_SECONDS, ShardMapState, created
from shardkit.strategies import CalculatedSuffix, Unsharded
from tests.support.tables import described

KEY: dict[str, Any] = {"pk": {"S": "shardkit:map"}}
FIRST = replace(created(Unsharded()), since=0.0)
SECOND = replace(FIRST, generation=2, stage="guard", new=Unsharded())


class Clocks:
    """Two clocks, as a process has them."""

    def __init__(self) -> None:
        self.monotonic = self.wall = 0.0

    def __call__(self) -> tuple[float, float]:
        return self.monotonic, self.wall


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def known(clocks: Clocks) -> KnownMap:
    return KnownMap("T", clocks, lambda _: described(Unsharded(), {"pk": "S"}, ["pk"]))


def answered(state: ShardMapState) -> dict[str, Any]:
    return {"Item": {**KEY, **state.to_attributes()}}


def reading(known: KnownMap) -> Callable[[ShardMapState], None]:
    """Begin to read a map; returns what answers."""
    steps = ProgramMachine(known.read(KEY))
    send = steps.next(0.0)
    assert isinstance(send, Send)
    assert send.params["ConsistentRead"]
    return lambda state: steps.receive(send, answered(state), 0.0)


def held_by(known: KnownMap) -> Held:
    reading(known)(FIRST)
    held = Held()
    assert known.lease is not None
    held.add(known.lease, KEY)
    return held


def test_a_lease_begins_before_its_request(known: KnownMap, clocks: Clocks) -> None:
    answer = reading(known)
    clocks.monotonic = MAP_LEASE_SECONDS - 1
    answer(FIRST)
    assert known.lease is not None
    assert known.lease.valid
    clocks.monotonic = MAP_LEASE_SECONDS
    assert not known.lease.valid


@pytest.mark.parametrize("clock", ["monotonic", "wall"])
def test_the_faster_clock_counts(known: KnownMap, clocks: Clocks, clock: str) -> None:
    """One stops while the machine is suspended, the other may be set back."""
    held = held_by(known)
    setattr(clocks, clock, MAP_LEASE_SECONDS)
    setattr(clocks, "wall" if clock == "monotonic" else "monotonic", -100.0)
    with pytest.raises(LeaseEndedError):
        held.check()


def test_reads_may_be_answered_in_another_order(known: KnownMap, clocks: Clocks) -> None:
    slow = reading(known)
    clocks.monotonic = 10.0
    reading(known)(FIRST)
    slow(FIRST)
    assert known.lease is not None
    assert known.lease.began == (10.0, 0.0)
    old = reading(known)
    reading(known)(SECOND)
    lease = known.lease
    old(FIRST)
    assert known.lease is lease
    assert lease.state.generation == 2


@pytest.mark.parametrize("generation", [1, 2])
def test_a_map_that_was_deleted_and_made_again_is_followed_when_the_lease_has_ended(
    known: KnownMap, clocks: Clocks, generation: int
) -> None:
    """Also if it is of the same generation, or of an earlier one."""
    again = replace(FIRST, old=CalculatedSuffix("sk", shards=2))
    reading(known)(replace(SECOND, generation=generation))
    held = Held()
    lease = known.lease
    assert lease is not None
    held.add(lease, KEY)
    clocks.monotonic = 29.0
    reading(known)(again)
    assert known.lease is lease
    clocks.monotonic = 30.0
    with pytest.raises(LeaseEndedError):
        held.check()
    reading(known)(again)
    assert known.lease.state == again
    assert known.lease.valid


def test_another_generation_does_not_extend_a_lease(known: KnownMap, clocks: Clocks) -> None:
    held = held_by(known)
    clocks.monotonic = 29.0
    reading(known)(SECOND)
    held.check()
    clocks.monotonic = 30.0
    with pytest.raises(LeaseEndedError):
        held.check()


def test_one_caller_renews_a_lease_for_all(known: KnownMap, clocks: Clocks) -> None:
    held = held_by(known)
    clocks.monotonic = 20.0
    with pytest.raises(LeaseEndedError):
        held.check()
    held.check()
    held.check(renewed=True)
    clocks.monotonic = 23.0  # the one that was to do it has not
    with pytest.raises(LeaseEndedError):
        held.check()
    reading(known)(FIRST)
    held.check()


def two() -> SideBySide[Answer]:
    """Return a machine of two requests at once."""

    def one(name: str) -> Program[Answer]:
        answer: Answer = yield Send(name, {})
        return answer

    return SideBySide([ProgramMachine(one("A")), ProgramMachine(one("B"))], 2)


def sent(step: object) -> Send:
    assert isinstance(step, Send)
    return step


def test_a_change_waits_for_what_is_in_flight(known: KnownMap, clocks: Clocks) -> None:
    """A write that came after those of the new stage could undo one of them."""
    leased = Leased(two(), held_by(known))
    first, second = sent(leased.next(0.0)), sent(leased.next(0.0))
    clocks.monotonic = MAP_LEASE_SECONDS
    assert known.lease is not None
    leased.receive(first, LeaseEndedError(known.lease), 0.0)
    asked = sent(leased.next(0.0))
    assert asked.operation == "GetItem"
    leased.receive(asked, answered(SECOND), 0.0)
    assert leased.next(0.0) == Wait()
    leased.receive(second, {}, 0.0)
    with pytest.raises(MapChangedError):
        leased.next(0.0)


def test_requests_go_on_when_the_map_is_the_same(known: KnownMap, clocks: Clocks) -> None:
    leased = Leased(two(), held_by(known))
    sends = [sent(leased.next(0.0)), sent(leased.next(0.0))]
    clocks.monotonic = MAP_LEASE_SECONDS
    assert known.lease is not None
    for send in sends:
        leased.receive(send, LeaseEndedError(known.lease), 0.0)
    asked = sent(leased.next(0.0))
    assert leased.next(0.0) == Wait()
    reading(known)(FIRST)  # another call was faster
    leased.receive(asked, answered(FIRST), 0.0)
    for name in ("A", "B"):
        again = sent(leased.next(0.0))
        assert again.operation == name
        leased.receive(again, {"Answer": name}, 0.0)
    assert leased.next(0.0) == Done([{"Answer": "A"}, {"Answer": "B"}])


def test_a_map_that_cannot_be_read_is_the_requests_error(known: KnownMap, clocks: Clocks) -> None:
    leased = Leased(two(), held_by(known))
    sends = [sent(leased.next(0.0)), sent(leased.next(0.0))]
    clocks.monotonic = MAP_LEASE_SECONDS
    assert known.lease is not None
    for send in sends:
        leased.receive(send, LeaseEndedError(known.lease), 0.0)
    error = ConnectionError("no route")
    leased.receive(sent(leased.next(0.0)), error, 0.0)
    assert leased.next(0.0) == Done([error, error])


def test_errors_can_be_pickled(known: KnownMap) -> None:
    held_by(known)
    assert known.lease is not None
    error = LeaseEndedError(known.lease)
    assert isinstance(pickle.loads(pickle.dumps(error)), StageError)  # noqa: S301 - its own
    assert str(copy(MapChangedError("T"))) == str(MapChangedError("T"))
