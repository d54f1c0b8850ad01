"""When a call may go below a rate of capacity units: in its turn, and only while nothing is owed."""

from __future__ import annotations

from math import inf
from typing import Literal

from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.core.token_bucket import TokenBucket
from shardkit.errors import CapacityBudgetError

Side = Literal["read", "write"]

_LEARN = 0.25  # how much the last call counts in what the next one of its operation is expected to take


class Pace:
    """The calls that want to go below one rate, of read or of write units.

    A call goes while nothing is owed, and is then charged what it is expected to take: the units that its request
    shows, times what calls of its operation took of late, compared with that. What it took more is owed by those that
    come after it; what it took less is theirs. So whatever the calls, no more than ``rate × t + burst`` units, and one
    call's beyond, are charged in any time ``t``.

    Calls that wait go in the order in which they came. Each sleeps until its turn, and none wakes another: one that
    oversleeps is overtaken, and loses a moment.

    Args:
        side: what its units are.
        rate: units a second, above 0.
        burst: units that are kept of what was not used.
        now: the time, in seconds on the caller's clock.
    """

    def __init__(self, side: Side, rate: float, *, burst: float, now: float) -> None:
        self.side: Side = side
        self.rate = rate
        self.waiting = 0
        self._bucket = TokenBucket(rate, burst=burst, now=now)
        # Of all calls that came to wait, and of those of them that wait no longer: the difference waits now.
        self._joined = self._left = 0.0
        self._scales: dict[str, float] = {}

    def take(self, units: float, now: float) -> None:
        """Charge units; fewer than 0 are given back."""
        self._bucket.take(units, now)

    def debt(self, now: float) -> float:
        """Say how many units are owed."""
        return (self._bucket.ready(now) - now) * self.rate

    def due(self, place: float, now: float) -> float:
        """Say when a call may go that has this place among those that wait, as it looks now."""
        return self._bucket.ready(now) + max(0.0, place - self._left) / self.rate

    def expected(self, operation: str, units: float) -> float:
        """Say what a call of so many units by its request will take, by what the last ones took."""
        return units * self._scales.get(operation, 1.0)

    def learn(self, operation: str, units: float, took: float) -> None:
        """Note what a call took."""
        scale = self._scales.get(operation, 1.0)
        self._scales[operation] = scale + _LEARN * (took / units - scale)

    def join(self, units: float) -> float:
        """Let a call wait behind all others; gives its place."""
        place = self._joined
        self._joined += units
        self.waiting += 1
        return place

    def leave(self, units: float) -> None:
        """Let a call wait no longer."""
        self._left += units
        self.waiting -= 1
        if not self.waiting:
            self._joined = self._left = 0.0


class Turn:
    """One call's turn: a machine that is done when the call may go, and has then been charged.

    Args:
        pace: what it goes below.
        operation: its operation, by the API's name.
        units: what it takes, as far as its request shows.
        now: the time.
        timeout: seconds that it waits at the most.
    """

    def __init__(self, pace: Pace, operation: str, units: float, now: float, timeout: float) -> None:
        self._pace = pace
        self._operation = operation
        self._units = units
        self._expected = pace.expected(operation, units)
        self._deadline = now + timeout
        self._timeout = timeout
        self._due = inf
        self._place = pace.join(self._expected)
        self._waits = True
        self._charged = 0.0

    @property
    def side(self) -> Side:
        """What its units are."""
        return self._pace.side

    def next(self, now: float) -> Wait | Done[None]:
        """Go, or wait for a while.

        Raises:
            CapacityBudgetError: its turn does not come in time.
        """
        pace = self._pace
        # One whose time has come goes as soon as nothing is owed: it does not wait for those who are late.
        if self._due > now or pace.debt(now) > 0:
            self._due = pace.due(self._place, now)
        if self._due <= now:
            self._leave()
            self._charged = self._expected
            pace.take(self._expected, now)
            return Done(None)
        if self._due > self._deadline:
            self._leave()
            raise self._error(now)
        return Wait(self._due)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take no answer: a turn sends nothing."""
        raise AssertionError(f"a turn sends nothing, and got {answer!r:.100}")

    def settle(self, took: float, now: float) -> None:
        """Charge the rest of what the call took, or give back; a call that does not go took nothing."""
        if self._waits:
            self._leave()
        self._pace.take(took - self._charged, now)
        self._charged = took
        if took and self._units:
            self._pace.learn(self._operation, self._units, took)

    def _leave(self) -> None:
        self._waits = False
        self._pace.leave(self._expected)

    def _error(self, now: float) -> CapacityBudgetError:
        pace, seconds = self._pace, self._due - now
        debt = pace.debt(now)
        waits, more = f"it waits for {self._timeout:g} at the most", "a longer timeout="
        if not self._timeout:
            waits, more = "it does not wait", 'mode="wait" and a timeout='
        return CapacityBudgetError(
            f"{self._operation} was not sent: the budget of {pace.rate:g} {pace.side} units a second owes {debt:.1f} "
            f"units and has {pace.waiting} other calls waiting, so that its turn is in {seconds:.2f} seconds, and "
            f"{waits}; call again then, or give the budget more {pace.side}_units= or {more}",
            rate=pace.rate,
            debt=debt,
            seconds=seconds,
        )
