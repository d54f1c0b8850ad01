"""Every order of events of a map, its admin and its processes: is any request ever two stages apart from another?

The rules are the package's own (``Lease.check``, ``ShardMapState.wait``). Only the seconds are fewer: a lease of T, and
requests that can take effect for D. A state is what is known now, in seconds ago or seconds left. So the states are
finite, and all that can be reached are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pytest

from shardkit.errors import StageError
from shardkit.sharding import leases, shard_map
from shardkit.sharding.leases import KnownMap, Lease, LeaseEndedError
from shardkit.sharding.shard_map import ShardMapState
from shardkit.strategies import CalculatedSuffix, Unsharded
from shardkit.strategies.resharding import STAGES
from tests.support.profiles import LONG

OLD, NEW = Unsharded(), CalculatedSuffix("sk", shards=2)
FOREVER = 1_000.0


@dataclass(frozen=True)
class Rules:
    """The seconds, and what a mutant does otherwise."""

    lease: int = 2
    effect: int = 2
    wait: int = 0  # added to T + D
    read_from_its_answer: bool = False
    checked_when_planned: bool = False
    extended_by_any_read: bool = False
    recorded_before_the_change: bool = False
    back_at_any_time: bool = False
    unchecked: bool = False

    @property
    def seconds(self) -> int:
        return self.lease + self.effect + self.wait


@dataclass(frozen=True)
class Process:
    """The stage of its operation, the age of its lease, a read of the map, and whether a request was checked."""

    stage: str | None = None
    age: int = 0
    read_age: int | None = None  # since before the request
    read_stage: str | None = None  # what it saw there; None: it is not there yet
    checked: bool = False


@dataclass(frozen=True)
class State:
    stage: str
    before: str
    reached: str
    since: int | None  # seconds ago; None: not recorded
    processes: tuple[Process, ...]
    flights: frozenset[tuple[str, int]] = frozenset()  # stages, and seconds for which they can take effect


@cache
def may_go(age: int, seconds: int) -> bool:
    """Ask a lease of the package."""
    known = KnownMap("T", lambda: (float(age),), lambda _: None)  # type: ignore[arg-type, return-value]
    known.lease = lease = Lease(known, a_map("old", "old", "old", 0), None, (0.0,))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "MAP_LEASE_SECONDS", float(seconds))
        patch.setattr(leases, "RENEW_SECONDS", FOREVER)
        try:
            lease.check(renewed=False)
        except LeaseEndedError:
            return False
    return True


def a_map(stage: Any, before: Any, reached: Any, since: int | None) -> ShardMapState:
    at = None if since is None else FOREVER - since
    return ShardMapState(generation=1, stage=stage, old=OLD, new=NEW, before=before, reached=reached, since=at)


@cache
def changes(stage: str, before: str, reached: str, since: int | None, rules: Rules) -> list[tuple[str, str]]:
    """Return the changes that the package allows now: the new stage, and the furthest one reached."""
    state, found = a_map(stage, before, reached, since), list[tuple[str, str]]()
    for change in (partial(state.started, NEW) if stage == "old" else state.advanced, state.returned):
        try:
            to = change()
        except StageError:
            continue
        if to.generation != 2:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shard_map, "WAIT_SECONDS", float(rules.seconds))
            back = rules.back_at_any_time and change == state.returned
            if back or not state.wait(to, FOREVER):
                found.append((to.stage, to.reached))
    return found


def apart(state: State) -> bool:
    """Return whether two requests that can take effect now, or the map and one, are two stages apart."""
    stages = {STAGES.index(stage) for stage in (state.stage, *(stage for stage, _ in state.flights))}
    return max(stages) - min(stages) > 1


def after(state: State, rules: Rules) -> Iterator[State]:
    """Return the states that can be next."""
    yield later(state, rules)
    for stage, reached in changes(state.stage, state.before, state.reached, state.since, rules):
        # The change itself can take effect long after it was sent.
        for since in range(rules.effect + 1) if rules.recorded_before_the_change else [None]:
            yield replace(state, stage=stage, before=state.stage, reached=reached, since=since)
    if state.since is None:
        yield replace(state, since=0)
    for place, process in enumerate(state.processes):
        for to in steps(process, state, rules):
            one, flights = to
            processes = (*state.processes[:place], one, *state.processes[place + 1 :])
            # The order of processes does not matter.
            yield replace(state, processes=tuple(sorted(processes, key=repr)), flights=flights)


def later(state: State, rules: Rules) -> State:
    """Return the state a second later."""

    def aged(process: Process) -> Process:
        return replace(
            process,
            age=min(process.age + 1, rules.lease) if process.stage else 0,
            read_age=None if process.read_age is None else min(process.read_age + 1, rules.lease),
        )

    flights = frozenset((stage, left - 1) for stage, left in state.flights if left)
    since = None if state.since is None else min(state.since + 1, rules.seconds)
    return replace(state, processes=tuple(sorted(map(aged, state.processes), key=repr)), flights=flights, since=since)


def steps(process: Process, state: State, rules: Rules) -> Iterator[tuple[Process, frozenset[tuple[str, int]]]]:
    if process.read_age is None:
        yield replace(process, read_age=0), state.flights
    elif process.read_stage is None:
        yield replace(process, read_stage=state.stage), state.flights
    else:
        age = 0 if rules.read_from_its_answer else process.read_age
        if process.stage in {None, process.read_stage} or rules.extended_by_any_read:
            stage = process.stage or process.read_stage
            yield Process(stage, age if process.stage is None else min(age, process.age)), state.flights
        yield Process(process.read_stage, age), state.flights  # begun anew
        if process.stage is not None:  # an operation goes on under the old lease
            yield Process(process.stage, process.age), state.flights
    if process.stage is None:
        return
    valid = rules.unchecked or may_go(process.age, rules.lease)
    if rules.checked_when_planned:
        if valid and not process.checked:
            yield replace(process, checked=True), state.flights
        valid = process.checked
    if valid:
        sent = state.flights | {(process.stage, rules.effect)}
        yield replace(process, checked=False), longest(sent)


def longest(flights: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Keep of each stage the request that can take effect longest."""
    left: dict[str, int] = {}
    for stage, seconds in flights:
        left[stage] = max(seconds, left.get(stage, 0))
    return frozenset(left.items())


def explore(rules: Rules, processes: int = 1) -> tuple[int, State | None]:
    """Return how many states can be reached, and the first in which requests are two stages apart."""
    start = State("old", "old", "old", 0, (Process(),) * processes)
    seen, todo = {start}, [start]
    for state in todo:
        if apart(state):
            return len(seen), state
        for following in after(state, rules):
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return len(seen), None


@pytest.mark.long_search
@pytest.mark.parametrize(
    ("lease", "effect", "processes"), [(2, 2, 1), (3, 2, 1), (2, 4, 1), (1, 1, 2)] if LONG else [(1, 1, 1), (2, 1, 1)]
)
def test_no_request_is_two_stages_apart_from_another(lease: int, effect: int, processes: int) -> None:
    count, bad = explore(Rules(lease=lease, effect=effect), processes)
    assert bad is None
    assert count > 1000


WRONG = {
    "from its answer": Rules(read_from_its_answer=True),
    "when planned": Rules(checked_when_planned=True),
    "by any read": Rules(extended_by_any_read=True),
    "back at once": Rules(back_at_any_time=True),
    "recorded before": Rules(recorded_before_the_change=True),
    "unchecked": Rules(unchecked=True),
    "a second less": Rules(wait=-1),
}


@pytest.mark.parametrize("name", WRONG)
def test_finds_a_wrong_rule(name: str) -> None:
    assert explore(replace(WRONG[name], lease=2, effect=1))[1] is not None


def test_a_second_less_is_not_enough_for_a_short_lease() -> None:
    assert explore(Rules(lease=1, effect=1, wait=-1))[1] is not None
