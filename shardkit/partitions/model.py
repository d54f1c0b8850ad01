"""A model of the partitions of a table or a global index: what each serves, when it throttles, when it splits.

The caller gives the time, in seconds; it never goes back. The model:

1. Each partition owns a range of a space of 64-bit hashes; together they always own all of it.
2. A partition serves at most 3,000 read and 1,000 write units a second. A provisioned table also has a total.
3. Without adaptive capacity, a partition has only its share of the provisioned throughput; a split halves the share.
   With it, a partition may use what the others leave: at once (as today), or some time after its first throttle (as
   the guide says).
4. Unused throughput of a share, or of the table, is kept for up to ``burst_seconds``, and for at least one second,
   because rates are units a second. It is never served faster than rule 2 allows. A new table has one second's units.
5. A partition splits when it holds too much data, and optionally when it has been full for a while. Partitions never
   merge.

A throttled request takes nothing. A request larger than the units that can be kept is served once they are all there;
the rest is a debt, and nothing else is served until it is paid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from shardkit.core.checks import check_count, check_number
from shardkit.core.hashing import stable_hash
from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.service_errors import Kind, Limit, Throttle
from shardkit.dynamodb.units import partitions_taken, rounded_up
from shardkit.dynamodb.values import WireValue
from shardkit.partitions.partition import LIMITS, Heat, Partition, PartitionHeat, Served, kept
from shardkit.partitions.rules import BURST_SECONDS, PARTITION_BYTES, initial_partitions

HASHES = 2**64
"""The number of hashes."""
MOST_PARTITIONS = 1_000_000
"""The most partitions of a modelled table: each takes memory."""
_ON_DEMAND_PARTITIONS = rounded_up(partitions_taken(12_000, 4_000))
"""The partitions of a new on-demand table (Developer Guide, "DynamoDB on-demand capacity mode", Initial throughput)."""


@lru_cache(2**16)
def hash_of_plain(value: str | bytes | Decimal | tuple[str | bytes | Decimal, ...]) -> int:
    """Return the hash of a stored partition key, from its value (or values) as text, bytes or number."""
    return stable_hash(value)


def hash_of(*values: WireValue) -> int:
    """Return the hash of a stored partition key, from its wire value (an index's key may have up to four).

    Example:
        >>> hash_of({"S": "2014-07-09.57"}) == hash_of({"S": "2014-07-09.57"})
        True

    Args:
        values: the value of each attribute of the partition key, in the order of the key schema.

    Returns:
        An int from 0 to 2**64 - 1. AWS does not document which hash the service uses; this is :func:`stable_hash`.
    """
    plain: list[Any] = [value["S"] if "S" in value else from_wire(value) for value in values]
    return hash_of_plain(*plain) if len(plain) == 1 else hash_of_plain(tuple(plain))


class Partitions:
    """The simulated partitions of one table, or of one global index.

    Example:
        >>> partitions = Partitions(read_units=0, write_units=400, count=4, burst_seconds=0, adaptive_seconds=None)
        >>> hot = hash_of({"S": "2014-07-09"})
        >>> for _ in range(100):
        ...     assert partitions.throttle(hot, "write", 0.0, units=1) is None
        ...     partitions.take(hot, "write", 1, 0.0)
        >>> partitions.throttle(hot, "write", 0.0, units=1).reason
        'TableWriteKeyRangeThroughputExceeded'

    Args:
        read_units: provisioned read units a second, or the maximum of an on-demand table; None: no limit but that of
            each partition.
        write_units: provisioned write units a second, likewise.
        count: the number of partitions; None: :func:`initial_partitions` of the throughput, and for an on-demand table
            at least four.
        burst_seconds: for how many seconds unused throughput is kept; 0: no burst.
        adaptive_seconds: how long after its first throttle a partition may use more than its share; 0: at once, as
            today; 300 to 1,800: as the guide says; None: never.
        on_demand: whether the table is on-demand: throttles have another code, and partitions have no shares.
        split_bytes: the size above which a partition is split.
        split_for_heat: after how many seconds of throttles a partition is split; None: never.
        resource: the ARN that throttles name, or the end of one: ``table/orders/index/by-city``.
        now: the time from which unused throughput is kept; if not given, from each partition's first request.

    Attributes:
        resource: the argument ``resource``.
        serves: units a second that each partition serves alone, by kind of units, before any split.
        heat: the units that each partition served and throttled, over time.

    Raises:
        ConfigurationError: an argument is invalid.

    Cost:
        No request; 1 to 2 µs per decision. Memory: a few KB per partition, and its heat.

    Source:
        Developer Guide, "Best Practices for Tables"; Elhemali et al., "Amazon DynamoDB" (USENIX ATC 2022), section 4.
        The module's docstring and docs/reference/simulate.md list the assumptions.
    """

    def __init__(
        self,
        *,
        read_units: float | None,
        write_units: float | None,
        count: int | None = None,
        burst_seconds: float = BURST_SECONDS,
        adaptive_seconds: float | None = 0.0,
        on_demand: bool = False,
        split_bytes: float = PARTITION_BYTES,
        split_for_heat: float | None = None,
        resource: str = "table/orders",
        now: float | None = None,
    ) -> None:
        self._now = now
        self._units: dict[Kind, float | None] = {"read": read_units, "write": write_units}
        for kind, units in self._units.items():
            if units is not None:
                check_number(f"{kind}_units", units, f"{kind} units a second")
        check_number("burst_seconds", burst_seconds, "seconds")
        check_number("split_bytes", split_bytes, "bytes", above=True)
        optional = {"now": now, "adaptive_seconds": adaptive_seconds, "split_for_heat": split_for_heat}
        for name, seconds in optional.items():
            if seconds is not None:
                check_number(name, seconds, "seconds")
        if count is None:
            count = initial_partitions(read_units=read_units or 0, write_units=write_units or 0)
            if on_demand:
                count = max(count, _ON_DEMAND_PARTITIONS)
        check_count("count", count, "partitions", most=MOST_PARTITIONS)
        self.resource = resource
        self.serves = dict(LIMITS)
        if adaptive_seconds is None and not on_demand:
            shares = {kind: units / count for kind, units in self._units.items() if units is not None}
            self.serves |= {kind: min(LIMITS[kind], share) for kind, share in shares.items()}
        self.heat = Heat()
        self._burst_seconds = burst_seconds
        self._adaptive_seconds = adaptive_seconds
        self._on_demand = on_demand
        self._split_bytes = split_bytes
        self._split_for_heat = split_for_heat
        self._totals = {kind: None if units is None else self._bucket(units) for kind, units in self._units.items()}
        self._partitions = [self._partition(HASHES * n // count, Fraction(1, count)) for n in range(count)]
        self._starts = [partition.start for partition in self._partitions]
        total: Limit = "MaxOnDemandThroughput" if on_demand else "ProvisionedThroughput"
        self._throttles: dict[tuple[Kind, bool], Throttle] = {
            (kind, whole): Throttle(kind, total if whole else "KeyRangeThroughput", resource, on_demand)
            for kind in LIMITS
            for whole in (False, True)
        }

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def ranges(self) -> list[range]:
        """The range of the hash space of each partition, in order."""
        return [range(*ends) for ends in zip(self._starts, [*self._starts[1:], HASHES], strict=True)]

    @property
    def stored(self) -> list[float]:
        """The bytes that each partition holds, in the order of their ranges."""
        return [partition.stored for partition in self._partitions]

    def total(self, kind: Kind) -> float:
        """Return the units a second of the table, or, without a limit for it, of all partitions together."""
        units = self._units[kind]
        return len(self) * LIMITS[kind] if units is None else units

    def place(self, hashed: int) -> int:
        """Return the number of the partition that owns a hash, from 0, in the order of their ranges."""
        return bisect_right(self._starts, hashed) - 1

    def throttle(self, hashed: int, kind: Kind, now: float, *, units: float = 0.0) -> Throttle | None:
        """Return the throttle that a call on a key gets now, or None; a throttle is recorded.

        Args:
            hashed: the hash of the partition key (:func:`hash_of`).
            kind: the kind of units: "read" or "write".
            now: the time in seconds.
            units: the units that the call takes; 0 if unknown: it is then served while any units are left.
        """
        return self._refusal(self._partitions[bisect_right(self._starts, hashed) - 1], kind, units, now)

    def take(self, hashed: int, kind: Kind, units: float, now: float) -> None:
        """Take units, into debt if needed: what a read takes is known only afterwards."""
        self._take(self._partitions[bisect_right(self._starts, hashed) - 1], hashed, kind, units, now)

    def serve(self, hashed: int, kind: Kind, units: float, now: float) -> Throttle | None:
        """Take units and return None, or take nothing and return the throttle."""
        partition = self._partitions[bisect_right(self._starts, hashed) - 1]
        throttle = self._refusal(partition, kind, units, now)
        if throttle is None:
            self._take(partition, hashed, kind, units, now)
        return throttle

    def serve_all(self, wanted: Sequence[tuple[int, float]], kind: Kind, now: float) -> dict[int, Throttle]:
        """Serve several calls, each as :meth:`serve` does.

        Args:
            wanted: the hash and the units of each call.
            kind: the kind of units.
            now: the time in seconds.

        Returns:
            The throttle of each call that got one, by its place in ``wanted``.
        """
        partitions, starts = self._partitions, self._starts
        places = [bisect_right(starts, hashed) - 1 for hashed, _ in wanted]
        alone = set(places)
        # If a partition has enough units for all of its calls, serve them at once instead of one by one.
        total = self._totals[kind]
        units = sum([units for _, units in wanted])
        if wanted and self._split_for_heat is None and (total is None or total.spare(now) >= units):
            sums = dict.fromkeys(places, 0.0)
            for place, (_, units) in zip(places, wanted, strict=True):
                sums[place] += units
            served = 0.0
            for place, units in sums.items():
                partition = partitions[place]
                if partition.served[kind].pays(units, now):
                    self.heat.add(partition.heat.taken[kind], units, now)
                    alone.remove(place)
                    served += units
            if total is not None:
                total.take(served, now)
        if not alone:
            return {}
        return {
            number: throttle
            for number, (place, (hashed, units)) in enumerate(zip(places, wanted, strict=True))
            if place in alone and (throttle := self.serve(hashed, kind, units, now)) is not None
        }

    def _refusal(self, partition: Partition, kind: Kind, units: float, now: float) -> Throttle | None:
        total = self._totals[kind]
        served = partition.served[kind].holds(units, now)
        # Asked always: its time begins with the first call, also if the partition refuses that.
        left = total is None or total.holds(units, now)
        if served and left:
            return None
        self.heat.add(partition.heat.throttled[kind], units, now)
        if not served and self._split_for_heat is not None and not partition.served[kind].limit.holds(units, now):
            full = partition.full_for(now) >= self._split_for_heat
            if full and (at := partition.heat_split()) is not None:
                self._split(self.place(partition.start), at, now)
        return self._throttles[kind, served]

    def _take(self, partition: Partition, hashed: int, kind: Kind, units: float, now: float) -> None:
        partition.served[kind].take(units, now)
        total = self._totals[kind]
        if total is not None:
            total.take(units, now)
        self.heat.add(partition.heat.taken[kind], units, now)
        if self._split_for_heat is not None:
            partition.see(hashed, units)

    def store(self, hashed: int, size: float, now: float) -> None:
        """Add bytes to a partition (negative: remove them), and split it in half if it holds too much.

        Both halves then hold the same: the model does not keep where in a range the data is.
        """
        place = self.place(hashed)
        partition = self._partitions[place]
        partition.stored = max(0.0, partition.stored + size)
        if partition.stored > self._split_bytes:
            owned = self.ranges[place]
            self._split(place, (owned.start + owned.stop) // 2, now)

    def _bucket(self, units: float) -> TokenBucket:
        return TokenBucket(units, burst=kept(units, self._burst_seconds), balance=kept(units), now=self._now)

    def _partition(self, start: int, share: Fraction) -> Partition:
        heat = PartitionHeat(start)
        self.heat.partitions.append(heat)
        served = {}
        for kind, limit in LIMITS.items():
            units = self._units[kind]
            shared = units is not None and not self._on_demand and self._adaptive_seconds != 0
            own = self._bucket(units * float(share)) if shared and units is not None else None
            bucket = TokenBucket(limit, burst=kept(limit), balance=kept(limit), now=self._now)
            served[kind] = Served(bucket, own, self._adaptive_seconds)
        return Partition(start, share, served, heat)

    def _split(self, place: int, at: int, now: float) -> None:
        """Split a partition in two, the second of which starts at a hash."""
        left = self._partitions[place]
        if at == left.start:
            return  # it owns a single hash
        heat = PartitionHeat(at)
        self.heat.partitions.append(heat)
        left.share /= 2
        left.stored /= 2
        right = Partition(at, left.share, {kind: served.halve(now) for kind, served in left.served.items()}, heat)
        right.stored = left.stored
        left.cooled()
        self._partitions.insert(place + 1, right)
        self._starts.insert(place + 1, at)
