"""When the calls of a budget go: the room, in virtual time."""

from __future__ import annotations

import asyncio
import heapq
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CapacityBudgetError
from shardkit.capacity.budget import Paces
from shardkit.capacity.rate_queue import Pace, Turn
from tests.support.fakes import Clock

RATE = 10.0
FOREVER = 1e9


@dataclass(frozen=True)
class Given:
    """A call: when it comes, what its request shows, what it takes, how long it is under way, how it oversleeps."""

    arrives: float
    units: float
    took: float
    lasts: float = 0.0
    oversleeps: float = 0.0
    timeout: float = FOREVER


@dataclass
class Seen:
    """What happened: (time, units charged, whether a call went) in order; when each went, and was refused, and how."""

    charged: list[tuple[float, float, bool]] = field(default_factory=list)
    went: dict[int, float] = field(default_factory=dict)
    refused: dict[int, tuple[float, CapacityBudgetError]] = field(default_factory=dict)


def simulated(pace: Pace, calls: Sequence[Given]) -> Seen:
    """Let calls come, sleep, go and end, all in the order of time; two at one time in the order in which they came."""
    seen, order = Seen(), count()
    events = [(call.arrives, next(order), number, "comes") for number, call in enumerate(calls)]
    heapq.heapify(events)
    turns: dict[int, Turn] = {}
    expected: dict[int, float] = {}
    while events:
        now, _, number, what = heapq.heappop(events)
        call = calls[number]
        if what == "ends":
            turns[number].settle(call.took, now)
            seen.charged.append((now, call.took - expected[number], False))
            continue
        if what == "comes":
            expected[number] = pace.expected("Query", call.units)
            turns[number] = Turn(pace, "Query", call.units, now, call.timeout)
        try:
            step = turns[number].next(now)
        except CapacityBudgetError as error:
            seen.refused[number] = (now, error)
            turns[number].settle(0.0, now)
            continue
        if step is not None:
            assert step > now
            heapq.heappush(events, (step + call.oversleeps, next(order), number, "wakes"))
        else:
            seen.went[number] = now
            seen.charged.append((now, expected[number], True))
            heapq.heappush(events, (now + call.lasts, next(order), number, "ends"))
    return seen


def beyond(charged: Sequence[tuple[float, float, bool]], burst: float) -> float:
    """By how much, at the most, any window that ends when a call goes had more than the rate and the burst allow."""
    most = 0.0
    for begin, (since, *_) in enumerate(charged):
        total = 0.0
        for now, units, goes in charged[begin:]:
            if goes:
                most = max(most, total - RATE * (now - since) - burst)
            total += units
    return most


units = st.floats(0.5, 40.0) | st.integers(1, 40).map(float)
seconds = st.floats(0.0, 3.0) | st.just(0.0)


@st.composite
def some_calls(draw: st.DrawFn) -> list[Given]:
    return draw(
        st.lists(
            st.builds(
                Given,
                arrives=st.floats(0.0, 10.0),
                units=units,
                took=units | st.just(0.0),
                lasts=seconds,
                oversleeps=seconds,
                timeout=st.just(FOREVER) | st.floats(0.0, 5.0),
            ),
            min_size=1,
            max_size=25,
        )
    )


@given(some_calls(), st.floats(0.0, 30.0))
def test_no_window_has_more_than_the_rate_and_the_burst(calls: list[Given], burst: float) -> None:
    """Whatever the calls: no more than rate × t + burst is charged in any window, and the units of its last call."""
    seen = simulated(Pace("read", RATE, burst=burst, now=0.0), calls)
    assert len(seen.went) + len(seen.refused) == len(calls)
    assert beyond(seen.charged, burst) < 1e-6


@given(st.lists(st.tuples(units, units | st.just(0.0), seconds), min_size=1, max_size=25), st.floats(0.0, 30.0))
def test_calls_one_after_another_begin_no_more_units_than_that(
    calls: list[tuple[float, float, float]], burst: float
) -> None:
    """Where each has ended before the next one comes, that holds for what they took, whatever was expected of them."""
    pace = Pace("write", RATE, burst=burst, now=0.0)
    now, took = 0.0, []
    for size, taken, pause in calls:
        turn = Turn(pace, "PutItem", size, now, FOREVER)
        while (step := turn.next(now)) is not None:
            now = step
        turn.settle(taken, now)
        took.append((now, taken))
        now += pause
    for begin, (since, _) in enumerate(took):
        for end in range(begin, len(took)):
            before_the_last = sum(taken for _, taken in took[begin:end])
            assert before_the_last <= RATE * (took[end][0] - since) + burst + 1e-6


@given(st.lists(units, min_size=1, max_size=30))
def test_calls_go_in_the_order_in_which_they_came_and_nothing_is_wasted(sizes: list[float]) -> None:
    seen = simulated(Pace("read", RATE, burst=5.0, now=0.0), [Given(0.0, size, size) for size in sizes])
    assert list(seen.went) == list(range(len(sizes)))
    for number, when in seen.went.items():
        assert when == pytest.approx(sum(sizes[:number]) / RATE, abs=1e-6)


@given(some_calls())
def test_no_call_waits_longer_than_its_timeout(calls: list[Given]) -> None:
    pace = Pace("read", RATE, burst=0.0, now=0.0)
    seen = simulated(pace, calls)
    for number, when in seen.went.items():
        call = calls[number]
        assert when <= call.arrives + call.timeout + call.oversleeps + 1e-6
    for number, (when, error) in seen.refused.items():
        call = calls[number]
        assert when <= call.arrives + call.timeout + call.oversleeps + 1e-6
        assert when + error.seconds > call.arrives + call.timeout
    assert pace.waiting == 0


def test_one_that_oversleeps_is_overtaken_and_does_not_hold_the_others() -> None:
    calls = [Given(0.0, 10.0, 10.0), Given(0.0, 10.0, 10.0, oversleeps=100.0), Given(0.0, 10.0, 10.0)]
    seen = simulated(Pace("read", RATE, burst=0.0, now=0.0), calls)
    assert seen.went == pytest.approx({0: 0.0, 2: 2.0, 1: 101.0})


def test_one_that_comes_later_does_not_overtake_one_that_waits() -> None:
    pace = Pace("read", RATE, burst=0.0, now=0.0)
    pace.take(10.0, 0.0)
    first = Turn(pace, "Query", 5.0, 0.0, FOREVER)
    assert first.next(0.0) == 1.0
    late = Turn(pace, "Query", 5.0, 1.0, FOREVER)
    assert late.next(1.0) == 1.5
    assert first.next(1.0) is None


def test_what_a_call_took_more_delays_those_that_wait() -> None:
    calls = [Given(0.0, 1.0, 50.0, lasts=0.05), Given(0.0, 1.0, 1.0)]
    seen = simulated(Pace("read", RATE, burst=0.0, now=0.0), calls)
    assert seen.went[1] == pytest.approx(5.0)


def test_a_call_that_is_given_up_makes_room() -> None:
    pace = Pace("read", RATE, burst=0.0, now=0.0)
    pace.take(10.0, 0.0)
    first, second = (Turn(pace, "Query", 10.0, 0.0, FOREVER) for _ in range(2))
    assert (first.next(0.0), second.next(0.0)) == (1.0, 2.0)
    first.settle(0.0, 0.5)
    assert second.next(2.0) is None
    assert pace.waiting == 0
    third = Turn(pace, "Query", 1.0, 2.0, FOREVER)
    assert third.next(2.0) == 3.0


def test_what_sums_leave_over_makes_nobody_wait() -> None:
    """0.1 + 0.2 + 0.3 is more than 0.3 + 0.2 + 0.1: the order in which calls came, and in which they left."""
    pace = Pace("read", RATE, burst=0.0, now=0.0)
    for turn in reversed([Turn(pace, "Query", size, 0.0, FOREVER) for size in (0.1, 0.2, 0.3)]):
        turn.settle(0.0, 0.0)
    assert Turn(pace, "Query", 1.0, 0.0, FOREVER).next(0.0) is None


def test_what_calls_of_an_operation_took_is_expected_of_the_next() -> None:
    pace = Pace("read", RATE, burst=0.0, now=0.0)
    assert pace.expected("Query", 0.5) == 0.5
    for number in range(40):
        turn = Turn(pace, "Query", 0.5, 100.0 * number, FOREVER)
        assert turn.next(100.0 * number) is None
        turn.settle(8.0, 100.0 * number)
    assert pace.expected("Query", 0.5) == pytest.approx(8.0, rel=0.01)
    assert pace.expected("Query", 1.0) == pytest.approx(16.0, rel=0.01)
    assert pace.expected("Scan", 0.5) == 0.5


def test_a_call_that_failed_teaches_nothing_and_costs_nothing() -> None:
    pace = Pace("read", RATE, burst=0.0, now=0.0)
    turn = Turn(pace, "Query", 20.0, 0.0, FOREVER)
    assert turn.next(0.0) is None
    assert pace.debt(0.0) == 20.0
    turn.settle(0.0, 0.0)
    assert pace.debt(0.0) == 0.0
    assert pace.expected("Query", 20.0) == 20.0


def test_unused_units_are_kept_up_to_the_burst() -> None:
    pace = Pace("read", RATE, burst=20.0, now=0.0)
    pace.take(25.0, 100.0)
    assert pace.debt(100.0) == 5.0


def test_a_turn_just_in_time_is_waited_for() -> None:
    pace = Pace("write", RATE, burst=0.0, now=100.0)
    pace.take(20.0, 100.0)
    assert Turn(pace, "PutItem", 1.0, 100.0, 2.0).next(100.0) == 102.0


def test_the_error_says_the_rate_the_debt_and_when() -> None:
    pace = Pace("write", RATE, burst=0.0, now=100.0)
    pace.take(25.0, 100.0)
    with pytest.raises(CapacityBudgetError) as raised:
        Turn(pace, "PutItem", 1.0, 100.0, 2.0).next(100.0)
    error = raised.value
    assert (error.rate, error.debt, error.seconds) == (10.0, 25.0, 2.5)
    for words in ("PutItem was not sent", "10 write units", "25.0", "2.50 seconds", "2 at most", "write_units="):
        assert words in str(error)
    with pytest.raises(CapacityBudgetError, match=r'it does not wait; .* or mode="wait" and a timeout='):
        Turn(pace, "PutItem", 1.0, 0.0, 0.0).next(0.0)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), again.rate, again.debt, again.seconds) == (
        CapacityBudgetError, str(error), 10.0, 25.0, 2.5
    )  # fmt: skip


def test_a_long_wait_is_cut_into_days() -> None:
    """Python's waits have an upper bound."""
    clock, day = Clock(), 86_400.0
    pace = Pace("write", RATE, burst=0.0, now=clock())
    pace.take(2.5 * day * RATE, clock())
    paces = Paces(paces={"write": pace}, timeout=FOREVER, clock=clock, sleep=clock.sleep, async_sleep=asyncio.sleep)
    turn = paces.turn("PutItem", "write", 1.0)
    assert turn is not None
    paces.wait(turn)
    assert clock.sleeps == [day, day, 0.5 * day]
