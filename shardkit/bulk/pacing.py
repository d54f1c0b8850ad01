"""How fast a load may go: the whole of it by write units a second, each physical key by items in flight.

Both slow down where the service throttles, by what it says of the reason: a hot key by itself, the table all of it.
Both come back the way TCP does: a part less at once, then more and more as long as all goes well.

Where much is refused, whatever the reason, the load sends a little more than was written lately (as TCP's BBR does by
the rate that gets through), so that what full partitions send back costs little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from types import MappingProxyType
from typing import Any

from shardkit.core.backoff import Backoff
from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.schema import throughput_of
from shardkit.dynamodb.service_errors import Scope, throttle_reasons, throttled_scope
from shardkit.errors import ConfigurationError, brief

__all__ = ["KEY_ITEMS", "KeyPace", "LearntPace", "Reasons", "TablePace", "units_of", "write_rate", "write_throughput"]

KEY_ITEMS = 100
"""Items of one physical key in flight at the most: four batches. At 10 ms a batch that is 10,000 items a second, ten
times what a partition takes, so that only a key whose partition has been split is ever held back by it."""

_REST_SECONDS = 1.0
"""The most that a key rests: in a second a partition has another second's units. Of longer rests partitions stand idle
(simulated: with 20 s, loads of a few hundred keys took up to 1.8 times as long)."""

_REST_EASED = 0.05
"""How much of a doubling of its rests an item that is written takes back: so a full partition's keys find the rests
at which few of their items are refused; where one success forgot them all, every second one was."""

_SLOWED_KEYS = 10_000  # of more, the first are forgotten: a key that is still hot is slowed again
_BURST_SECONDS = 1.0
_LEAST_RATE = 1.0
_ASK_AGAIN_SECONDS = 60.0
_CUT_SECONDS = 1.0  # what a slowing brings is seen after a second, in which partitions serve what they kept
_RETURN_SECONDS = 3.0  # after a slowing
_DEBT_SECONDS = 1.0  # of a pace that is found out: it may be wrong, and one batch a second goes in any case
_LATELY_SECONDS = 0.5
_PAUSE_SECONDS = 1.5
_SENT_OVER_WRITTEN = 1.1
_TRIED_OVER_WRITTEN = 1.5
_TRIES_MORE = 4
_REFUSED_SHARE = 0.05  # about half of what is refused at a tenth more
_FASTER = 1.25
_MUCH_FASTER = 2.0  # where nothing is refused
_LEARN = 0.25  # how much the last batch counts in what an item is expected to take
_HOLDS_SECONDS = 10.0
_ASKS_SECONDS = 0.1  # each is a request for one item
_HEARD_SECONDS = 1.0


class KeyPace:
    """Which physical keys may send, and how mixed what is in flight is."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._flying: dict[Hashable, int] = {}
        self._slowed: dict[Hashable, _Slowed] = {}
        self._alarms: list[tuple[float, int, Hashable]] = []
        self._rests = 0
        self._total = self._squares = 0

    def goes(self, key: Hashable, now: float) -> bool:
        """Let one more item of a key take off, if it may; say whether."""
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
        """Say whether a key waits for its next try."""
        slowed = self._slowed.get(key)
        return slowed is not None and slowed.backoff.until > now

    def landed(self, keys: Sequence[Hashable]) -> None:
        """Note items that have their answer, whatever that is, by the key of each."""
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
        """Note items that are written, by the key of each: a key that was slowed gets faster."""
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
        """Slow a key down, for as long as the service ``asked`` at the least."""
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
        """When the next key has rested."""
        return self._alarms[0][0] if self._alarms else inf

    def rested(self, now: float) -> list[Hashable]:
        """Give the keys that have rested by now, once."""
        keys = []
        while self._alarms and self._alarms[0][0] <= now:
            keys.append(heappop(self._alarms)[2])
        return keys

    @property
    def mix(self) -> float:
        """How many keys are in flight in effect: 1/Σp², for the shares p of each among the items."""
        return self._total**2 / self._squares if self._squares else 0.0


@dataclass(slots=True)
class _Slowed:
    """A key that was throttled: how many of its items may be in flight, and how long it rests."""

    allowance: float = KEY_ITEMS
    backoff: Backoff = field(default_factory=lambda: Backoff(_REST_SECONDS, _REST_EASED))


class TablePace:
    """When the next batch may go: a token bucket whose rate is what was asked for, less where the table throttles.

    A table and its global indexes each have a throughput of their own, and an index that is short of it throttles the
    table's writes. A number of units is the most that each of them may take. Of a share each may take its own: what an
    index takes is ``worth`` as many times more of the bucket as its throughput is less than the table's, and a batch is
    charged what the busiest of them took.

    After a slowing the rate grows as TCP CUBIC's does (RFC 9438), and that of botocore's ``adaptive`` retries: fast at
    first, slowly about what was written before it, and ever faster when it is beyond. So what is there again, after an
    outage or with more throughput, is used within half a minute; a tenth more every second, as TCP Reno has it, took
    minutes.

    Args:
        write_units: Write units a second; a share of the table's own as text, ``"80%"``; None: as fast as it goes.
        draw: Draws from [0, 1), for the jitter.

    Attributes:
        worth: How many of the bucket's units one of each index is; 1 where it is not in it.
    """

    def __init__(self, write_units: float | str | None, draw: Callable[[], float]) -> None:
        rate = write_rate(write_units)
        self.share = rate if isinstance(write_units, str) else None
        self.worth: Mapping[str, float] = {}
        self._limit = inf if rate is None or self.share is not None else rate
        self._draw = draw
        # What was asked for holds always, and is charged what is taken; what throttles leave is charged what is sent.
        self._bucket = TokenBucket(self._limit, burst=self._limit * _BURST_SECONDS)
        self._slowed = TokenBucket(inf, debt=_DEBT_SECONDS)
        self._backoff = Backoff()
        self._scale = 1.0
        self._throughput = self._units = 0.0
        self._since = self._cut = -inf
        self._before = self._lost = 0.0
        self._written = False  # since the rate was cut
        self._ask_at = 0.0 if self.share is None else -inf

    @property
    def rate(self) -> float:
        """Write units a second at the most, now."""
        return min(self._limit, self._slowed.rate)

    def asks(self, now: float) -> bool:
        """Say whether it is time to ask for the table's throughput (then it is not, for a while)."""
        if self.share is None or now < self._ask_at:
            return False
        self._ask_at = now + _ASK_AGAIN_SECONDS
        return True

    @property
    def unknown(self) -> bool:
        """Whether nothing may be sent yet, because a share is asked for and the table's throughput is not known."""
        return self.share is not None and self._limit == inf

    def described(self, table: Mapping[str, Any], now: float) -> ConfigurationError | None:
        """Follow what DescribeTable says; where it says no throughput, give the error that this is."""
        assert self.share is not None
        units, worth = write_throughput(table)
        if units is None:
            return ConfigurationError(
                f"write_units is {self.share:.0%} of the table's throughput, but DescribeTable says none for "
                f"{table.get('TableName')!r}; give write_units as a number of units a second"
            )
        limit = max(_LEAST_RATE, self.share * units)
        if (limit, worth) != (self._limit, self.worth):
            # What was measured before says nothing of it.
            self._limit, self.worth, self._throughput, self._units, self._since = limit, worth, 0.0, 0.0, now
            self._bucket.change(limit, burst=limit * _BURST_SECONDS, now=now)
            self._slowed.change(inf, burst=0.0, now=now)
        return None

    def ready(self, now: float) -> float:
        """Say when the next batch may go; a time not after ``now``: at once."""
        return max(self._backoff.until, self._bucket.ready(now), self._slowed.ready(now))

    def sent(self, units: float, now: float) -> float:
        """Charge what a batch of so many units of its items' sizes is expected to take, by what the last ones took."""
        expected = units * self._scale
        self._bucket.take(expected, now)
        self._slowed.take(expected, now)
        return expected

    def settled(self, expected: float, units: float, took: float, now: float) -> None:
        """Charge the rest of what a batch took (or give back), and go faster if it was slowed.

        Args:
            expected: What ``sent`` charged.
            units: The units of the sizes of those of its items that are written.
            took: What they took; 0: nothing was written.
            now: The time.
        """
        self._bucket.take(took - expected, now)
        if not took:
            return
        if units:
            self._scale += _LEARN * (took / units - self._scale)
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
        """Slow all down; nothing goes before the service ``asked``."""
        # One rest for all that was under way when it began.
        if self._backoff.until > now:
            self._backoff.put_off(now, asked)
            return
        self._backoff.refused(now, self._draw(), asked)
        # Without a measure it is not known how fast it was; and where nothing gets through, the rests grow.
        if self._throughput and self._written and now - self._cut >= _CUT_SECONDS:
            self._cut, self._written = now, False
            self._before = max(_LEAST_RATE, min(self.rate, max(self._throughput, self._units)))
            self._lost = 0.2 + 0.3 * self._draw()
            self._slowed.change(self._before * (1 - self._lost), burst=0.0, now=now)


class LearntPace:
    """When the next batch may go: at once, until much is refused; then a little more is sent than was written lately.

    It is for keys of few items: those of many find their own pace (``KeyPace``). Lately is the best half second of the
    last four, and every fourth one tries what half as much again brings: so the pace does not follow a share that is
    refused however little is sent (by a partition that others use up, say), up to a quarter. Where little is refused,
    it grows by a quarter each half second, and doubles where nothing is. One batch a second goes in any case.

    A first form, with a twentieth more and no tries, let full partitions leave the others too little (simulated: 92% of
    the throughput was used, where it is 98%).
    """

    def __init__(self) -> None:
        self._bucket = TokenBucket(inf, debt=_DEBT_SECONDS)
        self._rates: deque[float] = deque(maxlen=_TRIES_MORE)
        self._number = 0
        self._since: float | None = None
        self._heard = inf
        self._written = self._refused = 0

    def ready(self, now: float) -> float:
        """Say when the next batch may go; a time not after ``now``: at once."""
        return self._bucket.ready(now)

    def sent(self, units: int, now: float) -> None:
        """Note a batch that takes off, by the units of its items' sizes."""
        if self._since is None:
            self._since = now
        self._bucket.take(units, now)

    def settled(self, written: int, refused: int, now: float) -> None:
        """Note how many of these units were written and refused."""
        assert self._since is not None
        if now - self._heard > _PAUSE_SECONDS:  # what the source takes is its own time
            self._since, self._written, self._refused = now, 0, 0
        self._heard = now
        self._written += written
        self._refused += refused
        seconds = now - self._since
        if seconds < _LATELY_SECONDS:
            return
        lately = self._written / seconds
        if self._bucket.rate < inf:  # the first one has what partitions had kept before
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
    """The reason that was heard last."""

    def __init__(self) -> None:
        self._scope: Scope = "key"
        self._names: frozenset[str] = frozenset()
        self._until = self._silent_until = -inf
        self._asks = True

    def asks(self, now: float) -> bool:
        """Say whether one of the items that came back now is to be written alone; if so, it is noted that one is."""
        if not self._asks or now < self._silent_until:
            return False
        self._silent_until = now + _ASKS_SECONDS
        return True

    def heard(self, error: Exception, now: float) -> tuple[Scope, frozenset[str]]:
        """Note a throttle that says its reason; say what it is about, and the reasons as the service names them."""
        self._scope, self._names = throttled_scope(error), throttle_reasons(error)
        self._until, self._silent_until = now + _HOLDS_SECONDS, now + _HEARD_SECONDS
        return self._scope, self._names

    def lately(self, now: float) -> tuple[Scope, frozenset[str]]:
        """Say the same of items that come back now; their keys, and no reason, if none was heard lately."""
        return (self._scope, self._names) if now < self._until else ("key", frozenset())

    def not_allowed(self) -> None:
        """Note that single writes are refused: none is asked for again."""
        self._asks = False


def write_rate(write_units: float | str | None) -> float | None:
    """Read ``write_units=``: a number of units a second, or a share of the table's (``"80%"`` gives 0.8).

    Raises:
        ConfigurationError: It is neither.
    """
    if write_units is None:
        return None
    try:
        if isinstance(write_units, str):
            number = float(write_units.strip().removesuffix("%")) / 100 if write_units.strip().endswith("%") else 0.0
        else:
            number = 0.0 if isinstance(write_units, bool) else float(write_units)
    except (OverflowError, TypeError, ValueError):
        number = 0.0
    if not 0 < number < inf:
        raise ConfigurationError(
            f"write_units={brief(write_units)} is neither a number of write units a second above 0 nor a share of the "
            'table\'s throughput; give 500 or "80%"'
        )
    return number


def write_throughput(table: Mapping[str, Any]) -> tuple[float | None, dict[str, float]]:
    """Read what DescribeTable says of a table's write throughput: provisioned, warm, or an on-demand table's most.

    Returns:
        The table's write units a second, None where there are none; and for each global index how many of them one of
        its own is worth (1 where its own are not known). A local index takes the table's.
    """
    units = _own_units(table)
    owned = {index["IndexName"]: _own_units(index) for index in table.get("GlobalSecondaryIndexes") or ()}
    return units, {name: units / own if units and own else 1.0 for name, own in owned.items()}


def _own_units(described: Mapping[str, Any]) -> float | None:
    found = throughput_of(described)
    on_demand = [units for units in (found.warm.write, found.maximum.write) if units is not None]
    return found.provisioned.write or min(on_demand, default=None)


def units_of(
    consumed: Mapping[str, Any] | list[Mapping[str, Any]] | None, worth: Mapping[str, float] = MappingProxyType({})
) -> tuple[float, float | None]:
    """Read a ``ConsumedCapacity``: all units, and those of the table or its busiest index, whichever took more.

    A local index takes the table's units; one unit of a global index counts as many as it is ``worth``. Where nothing
    was reported the second is None.
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
