"""When a call may be sent under a rate of capacity units: in its turn, and only while no units are owed."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from shardkit.core.shares import SharedRate
from shardkit.core.token_bucket import Correction, TokenBucket
from shardkit.dynamodb.service_errors import Kind
from shardkit.errors import CapacityBudgetError


class Pace:
    """The calls that share one rate, of read or of write units; or this process's share of a rate.

    :class:`shardkit.CapacityBudget` describes how a call is charged.

    Calls wait in the order in which they came. Each sleeps until its turn, and none wakes another: a call that
    oversleeps is overtaken.
    """

    def __init__(self, side: Kind, rate: float | SharedRate, *, burst: float, now: float) -> None:
        self.side: Kind = side
        self.shared = None if isinstance(rate, int | float) else rate
        self.waiting = 0
        self._bucket = TokenBucket(rate, burst=burst, now=now) if isinstance(rate, int | float) else rate
        # Units of all calls that came to wait, and of those that have left; the difference is waiting now.
        self._joined = self._left = 0.0
        self._corrections: defaultdict[str, Correction] = defaultdict(Correction)

    @property
    def rate(self) -> float:
        return self._bucket.rate

    def take(self, units: float, now: float) -> None:
        """Charge units; negative units are given back."""
        self._bucket.take(units, now)

    def debt(self, now: float) -> float:
        late = self._bucket.ready(now) - now
        return late and late * (self.rate or 1.0)

    def due(self, place: float, now: float) -> float:
        """Return when the waiting call at this place may be sent, as far as is known now."""
        ahead, rate = max(0.0, place - self._left), self.rate  # a share may end between two looks at it
        return self._bucket.ready(now) + (ahead / rate if rate else 0.0)

    def asked_again(self, now: float) -> float:
        """Return when a waiting call asks again, however late its turn is: a share may become larger."""
        if self.shared is None:
            return inf
        if self.shared.error is not None:
            raise self.shared.error
        return now + self.shared.may_change_in

    def expected(self, operation: str, units: float) -> float:
        return units * self._corrections[operation].factor

    def learn(self, operation: str, units: float, took: float) -> None:
        self._corrections[operation].learn(units, took)

    def join(self, units: float) -> float:
        """Add a call to the end of the queue, and return its place."""
        place = self._joined
        self._joined += units
        self.waiting += 1
        return place

    def leave(self, units: float) -> None:
        self._left += units
        self.waiting -= 1
        if not self.waiting:
            self._joined = self._left = 0.0


class Turn:
    """One call's turn: ``units`` are those that its request shows, ``timeout`` is the most seconds that it waits."""

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
    def side(self) -> Kind:
        return self._pace.side

    def next(self, now: float) -> float | None:
        """Charge the call if it may be sent now, and return None; else return when to ask again.

        Raises:
            CapacityBudgetError: its turn comes too late.
        """
        pace = self._pace
        # When a call's turn has come and the budget owes nothing, the call is sent. It does not wait for earlier calls
        # that still sleep.
        if self._due > now or pace.debt(now) > 0:
            self._due = pace.due(self._place, now)
        if self._due <= now:
            self._leave()
            self._charged = self._expected
            pace.take(self._expected, now)
            return None
        try:
            again = min(self._due, pace.asked_again(now))
        except Exception:
            self._leave()
            raise
        if again > self._deadline:
            self._leave()
            raise self._error(now)
        return again

    def check(self) -> None:
        """Raise if the call may not go any more, because it stood still after its turn had come."""
        if self._pace.shared is not None:
            self._pace.shared.check()

    def settle(self, took: float, now: float) -> None:
        """Charge the rest of what the call took, or give it back; a call that was not sent took 0."""
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
        waits, more = f"it waits {self._timeout:g} at most", "a longer timeout="
        if not self._timeout:
            waits, more = "it does not wait", 'a larger burst=, or mode="wait" and a timeout='
        rate = pace.rate
        state = (
            f"the budget of {rate:g} {pace.side} units a second owes {debt:.1f} units and has {pace.waiting} other "
            f"calls waiting; the call's turn is in {seconds:.2f} seconds, but {waits}"
            if rate
            else f"this process has no share of the {pace.side} units of its SharedBudget now, and {waits}"
        )
        return CapacityBudgetError(
            f"{self._operation} was not sent: {state}; retry later, or give the budget more {pace.side}_units= or "
            f"{more}",
            rate=rate,
            debt=debt,
            seconds=seconds,
        )
