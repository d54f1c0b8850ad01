"""A token bucket in capacity units that may go into debt: requests are delayed, never refused."""

from __future__ import annotations

from math import inf

_NOTHING = 1e-9  # units; less than this is a rounding error
_LEARN = 0.25  # the weight of the last request


class TokenBucket:
    """A balance of units that grows at a rate up to a burst; while it is not negative, any request may go.

    Example:
        bucket = TokenBucket(rate=100)
        bucket.take(250, now=0.0)          # goes at once, and leaves a debt
        bucket.ready(now=0.0) == 2.5       # the next request waits until the debt is paid

    Args:
        rate: Units a second; infinity for no limit. At 0, debts are never paid.
        burst: The most units that the balance can hold.
        balance: The initial balance.
        debt: The longest time, in seconds, that paying a debt may take; a larger debt is reduced to that.
        now: The time at which the bucket starts, in seconds on the caller's clock; by default that of the first call.

    In any time ``t``, at most ``rate × t + burst`` units are taken, plus what the last request takes beyond the
    balance. So a request larger than the burst does not wait forever. A clock that moves back adds no units.
    """

    __slots__ = ("_balance", "_burst", "_debt", "_rate", "_then")

    def __init__(
        self, rate: float, *, burst: float = 0.0, balance: float = 0.0, debt: float = inf, now: float | None = None
    ) -> None:
        self._rate = rate
        self._debt = debt
        self._burst = burst
        self._balance = balance
        self._then = now

    @property
    def rate(self) -> float:
        return self._rate

    def change(self, rate: float, *, burst: float, now: float) -> None:
        """Change the rate and the burst from now on; a debt stays."""
        self._flow(now)
        self._rate, self._burst = rate, burst
        self.take(0.0, now)

    def take(self, units: float, now: float) -> None:
        """Take units, going into debt if necessary; a negative number gives units back."""
        if now != self._then:
            self._flow(now)
        left = self._balance - units
        if left < 0 and self._debt < inf:
            left = max(left, -self._debt * self._rate)
        self._balance = min(self._burst, left)

    def holds(self, units: float, now: float) -> bool:
        """Return whether ``units`` can be taken now without debt.

        For more units than the burst: whether the bucket is full. For 0 units (not known yet): whether any are left.
        """
        if now != self._then:
            self._flow(now)
        balance = self._balance
        if balance >= units > 0 or self._rate == inf:
            return True
        return balance > 0 and balance >= min(units, self._burst) - _NOTHING

    def spare(self, now: float) -> float:
        """Return the units that can be taken now without debt."""
        if now != self._then:
            self._flow(now)
        return inf if self._rate == inf else self._balance

    def pays(self, units: float, now: float) -> bool:
        """Take units if that makes no debt; return whether they were taken."""
        if now != self._then:
            self._flow(now)
        if self._balance < units and self._rate != inf:
            return False
        self._balance -= units
        return True

    def halve(self, now: float) -> TokenBucket:
        """Halve the rate, burst and balance, and return a bucket with the other half."""
        self._flow(now)
        self._rate, self._burst, self._balance = self._rate / 2, self._burst / 2, self._balance / 2
        return self.copy(now)

    def copy(self, now: float) -> TokenBucket:
        self._flow(now)
        return TokenBucket(self._rate, burst=self._burst, balance=self._balance, debt=self._debt, now=now)

    def ready(self, now: float) -> float:
        """Return the time when the next request may go; at most ``now`` if it may go at once; infinity: never."""
        if now != self._then:
            self._flow(now)
        if self._balance >= -_NOTHING or self._rate == inf:
            return now
        return now - self._balance / self._rate if self._rate else inf

    def _flow(self, now: float) -> None:
        then = self._then
        if self._rate == inf:
            self._balance = 0.0
        if then is None:
            self._then = now
        elif now > then:
            balance = self._balance + (now - then) * self._rate
            self._balance = min(self._burst, balance)
            self._then = now


class Correction:
    """By which factor recent requests took more or fewer units than estimated."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1.0

    def learn(self, estimated: float, took: float) -> None:
        self.factor += _LEARN * (took / estimated - self.factor)
