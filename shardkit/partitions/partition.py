"""One partition: a range of the hash space, the reads and writes that it can serve, and its heat over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.service_errors import Kind
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS

LIMITS: dict[Kind, float] = {"read": PARTITION_READ_UNITS, "write": PARTITION_WRITE_UNITS}
"""The most units a second that a partition serves."""
_SECOND = 1.0  # rates are units a second: units not used early in a second can be used later in it
_COOL_SECONDS = 10.0  # after this long without a throttle, a partition is no longer full
_SAMPLED = 1000  # hashes that are sampled to find where to split a full partition
COLUMNS = 1024
"""The most columns of a heat map: when they are full, each column is made to cover twice the seconds."""


def kept(rate: float, burst_seconds: float = 0.0) -> float:
    """Return how many unused units of a rate are kept: those of the burst, and at least those of one second."""
    return rate * max(burst_seconds, _SECOND)


class Partition:
    """A partition, and what it saw since it became full.

    Its range of the hash space goes from ``start`` to the next partition's. ``share`` is its share of the table's
    throughput; ``stored``, the bytes that it holds.
    """

    __slots__ = ("_full_since", "_seen", "_throttled", "heat", "served", "share", "start", "stored")

    def __init__(self, start: int, share: Fraction, served: dict[Kind, Served], heat: PartitionHeat) -> None:
        self.start = start
        self.share = share
        self.served = served
        self.heat = heat
        self.stored = 0.0
        self._full_since: float | None = None
        self._throttled = 0.0
        self._seen: Counter[int] = Counter()

    def full_for(self, now: float) -> float:
        """Record a throttle, and return for how many seconds the partition has been full."""
        if self._full_since is None or now - self._throttled > _COOL_SECONDS:
            self._full_since = now
            self._seen.clear()
        self._throttled = now
        return now - self._full_since

    def see(self, hashed: int, units: float) -> None:
        """Record which hashes a full partition serves."""
        if self._full_since is not None and (hashed in self._seen or len(self._seen) < _SAMPLED):
            self._seen[hashed] += units  # type: ignore[assignment]  # a Counter counts any number

    def cooled(self) -> None:
        self._full_since = None
        self._seen.clear()

    def heat_split(self) -> int | None:
        """Return the hash to split at, so that both halves take the same load; None: one key takes all of it.

        Source:
            Elhemali et al., "Amazon DynamoDB" (USENIX ATC 2022), 4.1.4: the split point is chosen by the key
            distribution that the partition observed, and a partition with one hot item is not split.
        """
        seen = sorted(self._seen.items())
        total, passed = sum(self._seen.values()), 0.0
        best: tuple[float, int] | None = None
        for (hashed, units), (follows, _) in pairwise(seen):
            passed += units
            off = abs(total / 2 - passed)
            if best is None or off < best[0]:
                best = off, (hashed + follows + 1) // 2
        return None if best is None else best[1]


@dataclass(slots=True)
class Served:
    """What a partition can serve of one kind of units.

    Args:
        limit: the limit of any partition.
        share: the partition's share of the table's throughput; None if there are no shares, or the partition adapted.
        adaptive_seconds: how long after its first throttle the partition may use more than its share, and from then on
            always may (the guide does not say when that ends); None: never.
        throttled: the time of the first throttle because the share was used up.

    Source:
        Developer Guide, "Best Practices for Tables", Avoid Depending on DynamoDB Adaptive Capacity: "there is typically
        a 5- to 30-minute interval between the time a table experiences throttling and the time that adaptive capacity
        becomes active".
    """

    limit: TokenBucket
    share: TokenBucket | None
    adaptive_seconds: float | None
    throttled: float | None = None

    def holds(self, units: float, now: float) -> bool:
        """Return whether the partition can serve units now; start or finish adapting if its share is used up."""
        if not self.limit.holds(units, now):
            return False
        if self.share is None or self.share.holds(units, now):
            return True
        if self.throttled is None:
            self.throttled = now
        if self.adaptive_seconds is None or now - self.throttled < self.adaptive_seconds:
            return False
        self.share = None
        return True

    def pays(self, units: float, now: float) -> bool:
        """Serve units if both limits hold them, without adapting; return whether it did."""
        if not self.limit.pays(units, now):
            return False
        if self.share is None or self.share.pays(units, now):
            return True
        self.limit.take(-units, now)
        return False

    def take(self, units: float, now: float) -> None:
        self.limit.take(units, now)
        if self.share is not None:
            self.share.take(units, now)

    def halve(self, now: float) -> Served:
        """Keep half of the share, and return the other half of a split partition; both keep the full limit."""
        share = None if self.share is None else self.share.halve(now)
        return Served(self.limit.copy(now), share, self.adaptive_seconds, self.throttled)


@dataclass(slots=True)
class PartitionHeat:
    """One partition's units over time, in columns of :attr:`Heat.seconds`.

    Args:
        start: the start of its range of the hash space.
        taken: read and write units that it served, by column; trailing columns may be missing.
        throttled: read and write units that it throttled, likewise.
    """

    start: int
    taken: dict[Kind, list[float]] = field(default_factory=lambda: {"read": [], "write": []})
    throttled: dict[Kind, list[float]] = field(default_factory=lambda: {"read": [], "write": []})


class Heat:
    """The units of all partitions over time.

    Attributes:
        seconds: the seconds of a column.
        began: the time of the first column; None: nothing was added yet.
        partitions: the heat of each partition, in order of creation.

    Memory: at most 32 KB per partition and kind of units.
    """

    def __init__(self) -> None:
        self.seconds = 1.0
        self.began: float | None = None
        self.partitions: list[PartitionHeat] = []

    @property
    def by_range(self) -> list[PartitionHeat]:
        """The partitions in the order of their ranges."""
        return sorted(self.partitions, key=lambda partition: partition.start)

    def add(self, cells: list[float], units: float, now: float) -> None:
        """Add units to the column of a time; ``cells`` is a list of one partition."""
        if self.began is None:
            self.began = now
        column = int((now - self.began) / self.seconds)
        while column >= COLUMNS:
            self._halve()
            column = int((now - self.began) / self.seconds)
        while column >= len(cells):
            cells.append(0.0)
        cells[column] += units

    def _halve(self) -> None:
        self.seconds *= 2
        for partition in self.partitions:
            for lists in (partition.taken, partition.throttled):
                for cells in lists.values():
                    if len(cells) % 2:
                        cells.append(0.0)
                    cells[:] = [a + b for a, b in zip(cells[::2], cells[1::2], strict=True)]
