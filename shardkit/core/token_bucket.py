"""A token bucket in capacity units that may go into debt: what is asked for is never refused, only put off."""

from __future__ import annotations

from math import inf

__all__ = ["TokenBucket"]


_NOTHING = 1e-9  # units: what rounding leaves of a debt that is paid


class TokenBucket:
    """Units that flow in at a rate, up to a burst; requests go while it is not in debt, whatever they take.

    Example::

        bucket = TokenBucket(rate=100)
        bucket.take(250, now=0.0)          # goes at once, into debt
        bucket.ready(now=0.0) == 2.5       # the next one waits until it is paid

    Args:
        rate: Units a second, above 0; infinity: no limit.
        burst: Units that are kept of what was not used.
        balance: Units that it begins with.
        debt: Seconds that it takes to pay a debt, at the most: what is more is forgiven.
        now: When it begins, in seconds on the caller's clock; when it is first asked, if not given.

    So in any time ``t`` no more than ``rate × t + burst`` units are begun, and what the last request takes beyond. A
    request larger than the burst does not wait for ever. Time that goes backwards brings nothing.
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
        """Units a second."""
        return self._rate

    def change(self, rate: float, *, burst: float, now: float) -> None:
        """Flow at another rate from now on; a debt stays."""
        self._flow(now)
        self._rate, self._burst = rate, burst
        self.take(0.0, now)

    def take(self, units: float, now: float) -> None:
        """Take units, into debt if need be; fewer than 0 are given back."""
        if now != self._then:
            self._flow(now)
        left = self._balance - units
        if left < 0 and self._debt < inf:
            left = max(left, -self._debt * self._rate)
        self._balance = min(self._burst, left)

    def holds(self, units: float, now: float) -> bool:
        """Say whether so many units can be taken now without debt; of more than the burst, whether it is full.

        Of 0 units, which is what one says who does not know yet: whether anything is left.
        """
        if now != self._then:
            self._flow(now)
        balance = self._balance
        if balance >= units > 0 or self._rate == inf:
            return True
        return balance > 0 and balance >= min(units, self._burst) - _NOTHING

    def spare(self, now: float) -> float:
        """Give the units that can be taken now without debt."""
        if now != self._then:
            self._flow(now)
        return inf if self._rate == inf else self._balance

    def pays(self, units: float, now: float) -> bool:
        """Take units if that makes no debt, and say whether."""
        if now != self._then:
            self._flow(now)
        if self._balance < units and self._rate != inf:
            return False
        self._balance -= units
        return True

    def halve(self, now: float) -> TokenBucket:
        """Keep one half of it, and give the other as a bucket of its own: of the rate, the burst and what is left."""
        self._flow(now)
        self._rate, self._burst, self._balance = self._rate / 2, self._burst / 2, self._balance / 2
        return self.copy(now)

    def copy(self, now: float) -> TokenBucket:
        """Give a bucket like this one."""
        self._flow(now)
        return TokenBucket(self._rate, burst=self._burst, balance=self._balance, debt=self._debt, now=now)

    def ready(self, now: float) -> float:
        """Say when the next request may go: a time, not after ``now`` if it may at once."""
        self._flow(now)
        return now if self._balance >= -_NOTHING or self._rate == inf else now - self._balance / self._rate

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
