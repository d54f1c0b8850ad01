"""How fast a load sends: as a whole by write units per second, each physical key by items in flight.

When the service throttles, its reason decides what slows down: one hot key, or the whole load. Both recover as TCP
does: a sudden cut, then ever faster growth while nothing is throttled.

If much is refused, for whatever reason, the load sends slightly more than was written lately (as TCP's BBR does by its
delivery rate), so that the refusals of full partitions cost little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any

from shardkit.core.backoff import Backoff
from shardkit.core.shares import SharedRate, SharedRates
from shardkit.core.token_bucket import Correction, TokenBucket
from shardkit.dynamodb.schema import throughput_of
from shardkit.dynamodb.service_errors import Scope, throttle_reasons, throttled_scope
from shardkit.errors import ConfigurationError, brief

KEY_ITEMS = 100
"""Most items of one physical key in flight: four batches. At 10 ms per batch that is 10,000 items per second, ten times
what a partition accepts, so this limit only affects keys whose partition has been split."""

_REST_SECONDS = 1.0
"""The longest rest of a key: after one second, a partition has another second's units. Longer rests leave partitions
idle (simulated: with 20 s, loads of a few hundred keys took up to 1.8 times as long)."""

_REST_EASED = 0.05
"""How much of one doubling of a key's rests each written item takes back. So the keys of a full partition settle on
rests at which few of their items are refused. When one success reset the rests, every second item was refused."""

_SLOWED_KEYS = 10_000  # of more, the oldest are forgotten: a key that is still hot is slowed again
_BURST_SECONDS = 1.0
_LEAST_RATE = 1.0
_ASK_AGAIN_SECONDS = 60.0
_CUT_SECONDS = 1.0  # a cut shows its effect after a second, in which partitions use what they had saved
_RETURN_SECONDS = 3.0  # after a cut, to the rate before it
_DEBT_SECONDS = 1.0  # of a measured rate: it may be wrong, so one batch per second is always sent
_LATELY_SECONDS = 0.5
_PAUSE_SECONDS = 1.5
_SENT_OVER_WRITTEN = 1.1
_TRIED_OVER_WRITTEN = 1.5
_TRIES_MORE = 4
_REFUSED_SHARE = 0.05  # about half of what is refused when a tenth too much is sent
_FASTER = 1.25
_MUCH_FASTER = 2.0  # if nothing is refused
_HOLDS_SECONDS = 10.0
_ASKS_SECONDS = 0.1  # between single writes, each a request for one item
_HEARD_SECONDS = 1.0


class KeyPace:
    """Which physical keys may send, and how many keys are in flight."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._flying: dict[Hashable, int] = {}
        self._slowed: dict[Hashable, _Slowed] = {}
        self._alarms: list[tuple[float, int, Hashable]] = []
        self._rests = 0
        self._total = self._squares = 0

    def goes(self, key: Hashable, now: float) -> bool:
        """Count one more item of a key as in flight and return True; or return False if it must wait."""
        flying = self._flying.get(key, 0)
        slowed = self._slowed.get(key) if self._slowed else None
        if slowed is None:
            if flying >= KEY_ITEMS:
                return False
        elif slowed.backoff.until > now or flying >= max(1.0, slowed.allowance):
            return False
        self._flying[key] = flying + 1
        self._total += 1
        self._squares += 2 * flying + 1
        return True

    def resting(self, key: Hashable, now: float) -> bool:
        slowed = self._slowed.get(key)
        return slowed is not None and slowed.backoff.until > now

    def landed(self, keys: Sequence[Hashable]) -> None:
        counts = self._flying
        for key in keys:
            flying = counts[key] - 1
            if flying:
                counts[key] = flying
            else:
                del counts[key]
            self._squares -= 2 * flying + 1
        self._total -= len(keys)

    def written(self, keys: Sequence[Hashable]) -> None:
        """Count items as written, by the key of each: a slowed key gets faster."""
        if self._slowed.keys().isdisjoint(keys):
            return
        for key in keys:
            slowed = self._slowed.get(key)
            if slowed is not None:
                slowed.backoff.eased()
                slowed.allowance += 1 / max(1.0, slowed.allowance)
                if slowed.allowance >= KEY_ITEMS:
                    del self._slowed[key]

    def throttled(self, key: Hashable, now: float, asked: float = 0.0) -> None:
        """Slow a key down, at least for the seconds that the service ``asked`` for."""
        slowed = self._slowed.get(key)
        if slowed is None:
            if len(self._slowed) >= _SLOWED_KEYS:
                del self._slowed[next(iter(self._slowed))]
            slowed = self._slowed[key] = _Slowed()
        until = slowed.backoff.until
        if until <= now:
            slowed.allowance = max(1.0, min(slowed.allowance, self._flying.get(key, 0)) / 2)
            slowed.backoff.refused(now, self._draw(), asked)
        else:
            slowed.backoff.put_off(now, asked)
        if slowed.backoff.until > until:
            self._rests += 1
            heappush(self._alarms, (slowed.backoff.until, self._rests, key))

    @property
    def alarm(self) -> float:
        return self._alarms[0][0] if self._alarms else inf

    def rested(self, now: float) -> list[Hashable]:
        """Return each key whose rest has ended, once."""
        keys = []
        while self._alarms and self._alarms[0][0] <= now:
            keys.append(heappop(self._alarms)[2])
        return keys

    @property
    def mix(self) -> float:
        """Effective number of keys in flight: 1/Σp², for each key's share p of the items."""
        return self._total**2 / self._squares if self._squares else 0.0


@dataclass(slots=True)
class _Slowed:
    """A throttled key: how many of its items may be in flight, and how long it rests."""

    allowance: float = KEY_ITEMS
    backoff: Backoff = field(default_factory=lambda: Backoff(_REST_SECONDS, _REST_EASED))


class TablePace:
    """When the next batch may be sent: a token bucket at the requested rate, or less when the table throttles.

    The requested rate may be this process's share of a budget, which then has the bucket.

    A table and each of its global indexes have their own throughput, and an index without enough throttles the table's
    writes. So a batch is charged for the busiest of them, by what its units are ``worth`` (:class:`WriteRate`).

    After a cut, the rate grows as in TCP CUBIC (RFC 9438) and botocore's ``adaptive`` retries: fast at first, slowly
    near the rate before the cut, and ever faster beyond it. So new throughput, or that after an outage, is used within
    half a minute. A tenth more every second, as in TCP Reno, took minutes.

    """

    def __init__(self, write_units: float | str | SharedRates | None, draw: Callable[[], float]) -> None:
        rate = write_rate(write_units)
        self._share = write_units if isinstance(write_units, str) else None
        self.worth: Mapping[str, float] = {}
        self._limit = inf if rate is None or self._share is not None else rate
        self._draw = draw
        self.shared: SharedRate | None = None
        # The requested rate always holds, and is charged for what is consumed; the slowed rate for what is sent.
        self._requested = TokenBucket(self._limit, burst=self._limit * _BURST_SECONDS)
        self._bucket: TokenBucket | SharedRate = self._requested
        if isinstance(write_units, SharedRates):
            self._bucket = self.shared = write_units.shared_rate("write", "write_units")
        self._slowed = TokenBucket(inf, debt=_DEBT_SECONDS)
        self._backoff = Backoff()
        self._correction = Correction()
        self._throughput = self._units = 0.0
        self._since = self._cut = -inf
        self._before = self._lost = 0.0
        self._written = False  # since the rate was cut
        self._ask_at = -inf

    @property
    def rate(self) -> float:
        return min(self._limit, self._slowed.rate)

    def asks(self, now: float) -> bool:
        """Return whether to send DescribeTable now; if so, not again for a minute."""
        if self._share is None or now < self._ask_at:
            return False
        self._ask_at = now + _ASK_AGAIN_SECONDS
        return True

    @property
    def unknown(self) -> bool:
        """Whether nothing may be sent yet, because the throughput that ``write_units`` is a share of is unknown."""
        return self._share is not None and self._limit == inf

    def described(self, table: Mapping[str, Any], now: float) -> ConfigurationError | None:
        """Apply the throughput in a DescribeTable response; return an error if it has none."""
        rate = WriteRate.of(self._share, table)
        if rate.units is not None and (rate.units, rate.worth) != (self._limit, self.worth):
            # Earlier measurements do not apply to it.
            self._limit, self.worth, self._throughput, self._units, self._since = rate.units, rate.worth, 0.0, 0.0, now
            self._requested.change(self._limit, burst=self._limit * _BURST_SECONDS, now=now)
            self._slowed.change(inf, burst=0.0, now=now)
        return rate.error

    def ready(self, now: float) -> float:
        ready = self._bucket.ready(now)
        if self.shared is not None:
            ready = min(ready, now + self.shared.may_change_in)
        return max(self._backoff.until, ready, self._slowed.ready(now))

    def sent(self, units: float, now: float) -> float:
        """Charge and return what a batch is expected to consume, by its items' sizes and recent batches."""
        expected = units * self._correction.factor
        self._bucket.take(expected, now)
        self._slowed.take(expected, now)
        return expected

    def settled(self, expected: float, units: float, took: float, now: float) -> None:
        """Charge or refund the difference between ``expected``, as charged, and what a batch ``took``; speed up.

        ``units`` are those by the sizes of the items that were written; ``took`` is 0 if nothing was written.
        """
        self._bucket.take(took - expected, now)
        if not took:
            return
        if units:
            self._correction.learn(units, took)
        if self._slowed.rate < inf:
            late = (now - self._cut) / _RETURN_SECONDS - 1
            rate = self._before * (1 + self._lost * late**3)
            self._slowed.change(rate if rate < self._limit else inf, burst=0.0, now=now)
        self._backoff.eased()
        self._written = True
        self._units += took
        if now - self._since >= 1.0:
            self._throughput = self._units / (now - self._since)
            self._since, self._units = now, 0.0

    def throttled(self, now: float, asked: float = 0.0) -> None:
        """Slow the whole load down, and pause at least for the seconds that the service ``asked`` for."""
        # One pause for all requests that were in flight when it began.
        if self._backoff.until > now:
            self._backoff.put_off(now, asked)
            return
        self._backoff.refused(now, self._draw(), asked)
        # Without a measurement the rate to cut is unknown. If nothing is written, only the pauses grow.
        if self._throughput and self._written and now - self._cut >= _CUT_SECONDS:
            self._cut, self._written = now, False
            self._before = max(_LEAST_RATE, min(self.rate, max(self._throughput, self._units)))
            self._lost = 0.2 + 0.3 * self._draw()
            self._slowed.change(self._before * (1 - self._lost), burst=0.0, now=now)


class LearntPace:
    """When the next batch may be sent: at once, until much is refused; then at slightly more than was written lately.

    It serves keys with few items: keys with many find their own pace (``KeyPace``). "Lately" is the best half second of
    the last four. Every fourth half second tries half as much again. So the rate does not sink with a share (up to a
    quarter) that is refused however little is sent, for example by a partition that others use up. If little is
    refused, the rate grows by a quarter each half second; if nothing is, it doubles. One batch per second is always
    sent.

    Sending only a twentieth more, without tries, left other partitions too little (simulated: 92% of the throughput was
    used, now 98%).
    """

    def __init__(self) -> None:
        self._bucket = TokenBucket(inf, debt=_DEBT_SECONDS)
        self._rates: deque[float] = deque(maxlen=_TRIES_MORE)
        self._number = 0
        self._since: float | None = None
        self._heard = inf
        self._written = self._refused = 0

    def ready(self, now: float) -> float:
        return self._bucket.ready(now)

    def sent(self, units: int, now: float) -> None:
        if self._since is None:
            self._since = now
        self._bucket.take(units, now)

    def settled(self, written: int, refused: int, now: float) -> None:
        assert self._since is not None
        if now - self._heard > _PAUSE_SECONDS:  # the time that the source takes does not count
            self._since, self._written, self._refused = now, 0, 0
        self._heard = now
        self._written += written
        self._refused += refused
        seconds = now - self._since
        if seconds < _LATELY_SECONDS:
            return
        lately = self._written / seconds
        if self._bucket.rate < inf:  # the first half second also uses what partitions had saved
            self._rates.append(lately)
        if self._refused > _REFUSED_SHARE * (self._written + self._refused):
            self._number += 1
            more = _SENT_OVER_WRITTEN if self._number % _TRIES_MORE else _TRIED_OVER_WRITTEN
            rate = max(_LEAST_RATE, more * max([lately, *self._rates]))
        else:
            rate = self._bucket.rate * (_FASTER if self._refused else _MUCH_FASTER)
        self._bucket.change(rate, burst=0.0, now=now)
        self._since, self._written, self._refused = now, 0, 0


class Reasons:
    """The last reason that the service gave for a throttle."""

    def __init__(self) -> None:
        self._scope: Scope = "key"
        self._names: frozenset[str] = frozenset()
        self._until = self._silent_until = -inf
        self._asks = True

    def asks(self, now: float) -> bool:
        """Return whether to send an unprocessed item alone now, to get a reason; if so, not again for 0.1 s."""
        if not self._asks or now < self._silent_until:
            return False
        self._silent_until = now + _ASKS_SECONDS
        return True

    def heard(self, error: Exception, now: float) -> tuple[Scope, frozenset[str]]:
        """Record a throttle; return what it is about, and the service's names of the reasons."""
        self._scope, self._names = throttled_scope(error), throttle_reasons(error)
        self._until, self._silent_until = now + _HOLDS_SECONDS, now + _HEARD_SECONDS
        return self._scope, self._names

    def lately(self, now: float) -> tuple[Scope, frozenset[str]]:
        """Return the same for unprocessed items: by default "key", and no reason."""
        return (self._scope, self._names) if now < self._until else ("key", frozenset())

    def not_allowed(self) -> None:
        self._asks = False


def write_rate(write_units: float | str | SharedRates | None) -> float | None:
    """Parse ``write_units=``: a number of units per second, or a share of the table's (``"80%"`` returns 0.8).

    Of a shared budget, return the rate of all its members.
    """
    if write_units is None:
        return None
    if isinstance(write_units, SharedRates):
        return write_units.shared_rate("write", "write_units").whole
    try:
        if isinstance(write_units, str):
            number = float(write_units.strip().removesuffix("%")) / 100 if write_units.strip().endswith("%") else 0.0
        else:
            number = 0.0 if isinstance(write_units, bool) else float(write_units)
    except (OverflowError, TypeError, ValueError):
        number = 0.0
    if not 0 < number < inf:
        raise ConfigurationError(
            f"write_units: must be a number of write units per second above 0, or a share of the table's throughput, "
            f'got {brief(write_units)}; give 500, "80%" or a SharedBudget'
        )
    return number


@dataclass(frozen=True)
class WriteRate:
    """What ``write_units=`` means for a table.

    If it is a number, it limits the table and each of its global indexes. If it is a share, each may use that share of
    its own throughput.

    Attributes:
        units: Write units of the table per second; None for no limit, or if unknown.
        worth: How many of these one unit of each global index counts as: more than 1 if it has less throughput than the
            table. 1 for indexes not in it.
        error: Why the rate is unknown: it is a share of a throughput that DescribeTable does not return.
    """

    units: float | None
    worth: Mapping[str, float] = field(default_factory=dict)
    error: ConfigurationError | None = None

    @classmethod
    def of(cls, write_units: float | str | SharedRates | None, table: Mapping[str, Any]) -> WriteRate:
        """Apply ``write_units=`` to the throughput in a DescribeTable response."""
        rate = write_rate(write_units)
        if rate is None or not isinstance(write_units, str):
            return cls(rate)
        units = _own_units(table)
        if units is None:
            return cls(
                None,
                error=ConfigurationError(
                    f"write_units: {rate:.0%} of the throughput of table {table.get('TableName')!r} is unknown, "
                    "because DescribeTable returns none; give write_units as a number of units per second"
                ),
            )
        owned = {index["IndexName"]: _own_units(index) for index in table.get("GlobalSecondaryIndexes") or ()}
        worth = {name: units / own if units and own else 1.0 for name, own in owned.items()}
        return cls(max(_LEAST_RATE, rate * units), worth)

    def slowest(self, table: float, indexes: Mapping[str, float]) -> tuple[str | None, float]:
        """Return which takes longest for its units, None for the table, and these units at the rate."""
        units: dict[str | None, float] = {None: table}
        for name, taken in indexes.items():
            units[name] = taken * self.worth.get(name, 1.0)
        slowest = max(units, key=units.__getitem__)
        return slowest, units[slowest]

    def seconds(self, table: float, indexes: Mapping[str, float]) -> float | None:
        """Return how long units of the table and its global indexes take; None without a rate."""
        return None if self.units is None else self.slowest(table, indexes)[1] / self.units


def _own_units(described: Mapping[str, Any]) -> float | None:
    found = throughput_of(described)
    on_demand = [units for units in (found.warm.write, found.maximum.write) if units is not None]
    return found.provisioned.write or min(on_demand, default=None)


def units_of(
    consumed: Mapping[str, Any] | list[Mapping[str, Any]] | None, worth: Mapping[str, float]
) -> tuple[float, float | None]:
    """Return all units of a ``ConsumedCapacity``, and those of the table or of its busiest global index (the larger).

    Local indexes consume the table's units. The second value is None if nothing was reported.
    """
    total, most = 0.0, None
    for one in [consumed] if isinstance(consumed, Mapping) else consumed or ():
        units = float(one.get("CapacityUnits", 0.0))
        total += units
        if indexes := one.get("GlobalSecondaryIndexes"):
            taken = {name: float(index.get("CapacityUnits", 0.0)) for name, index in indexes.items()}
            units = max(units - sum(taken.values()), *(units * worth.get(name, 1.0) for name, units in taken.items()))
        most = max(units, most or 0.0)
    return total, most
