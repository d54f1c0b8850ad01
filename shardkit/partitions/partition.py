"""One partition: a range of the hash space, and what it can serve of reads and of writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.service_errors import Kind
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS

__all__ = ["COLUMNS", "LIMITS", "Adaptation", "Heat", "Partition", "PartitionHeat", "Served", "kept"]

LIMITS: dict[Kind, float] = {"read": PARTITION_READ_UNITS, "write": PARTITION_WRITE_UNITS}
"""Units a second that a partition serves at the most."""
_SECOND = 1.0  # rates are of units a second: what is not used of it in a part of the second is there in the rest of it
_COOL_SECONDS = 10.0  # without a throttle, a partition is no longer full
_SAMPLED = 1000  # hashes that are looked at to find where a full partition is split


def kept(rate: float, burst_seconds: float = 0.0) -> float:
    """Give the units that are kept of what is not used of a rate: those of the burst, and of one second at least."""
    return rate * max(burst_seconds, _SECOND)


@dataclass(slots=True)
class Served:
    """What a partition can serve of one kind of units.

    ``limit`` is that of any partition; ``share`` its own of the table's throughput, None where there is none to share
    or the partition has adapted.
    """

    limit: TokenBucket
    share: TokenBucket | None
    adaptation: Adaptation

    def holds(self, units: float, now: float) -> bool:
        """Say whether it can serve so many units now."""
        if not self.limit.holds(units, now):
            return False
        if self.share is None or self.share.holds(units, now):
            return True
        if self.adaptation.active(now):
            self.share = None
            return True
        self.adaptation.refused(now)
        return False

    def pays(self, units: float, now: float) -> bool:
        """Serve units if they are there whatever else is looked at, and say whether."""
        if self.share is None:
            return self.limit.pays(units, now)
        if self.share.spare(now) < units or not self.limit.pays(units, now):
            return False
        self.share.take(units, now)
        return True

    def take(self, units: float, now: float) -> None:
        """Serve units."""
        self.limit.take(units, now)
        if self.share is not None:
            self.share.take(units, now)

    def halve(self, now: float) -> Served:
        """Give what the other half of a split partition serves; both serve as much as any, and half of the share."""
        share = None if self.share is None else self.share.halve(now)
        return Served(self.limit.copy(now), share, self.adaptation.copy())


class Partition:
    """A partition.

    Attributes:
        start: where its range of the hash space begins; it ends where the next one's begins.
        share: its part of the table's throughput: a split divides the parent's in two.
        stored: bytes.
        served: reads and writes.
        heat: what it took and refused.
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
        """Note a throttle, and say for how many seconds there have been some."""
        if self._full_since is None or now - self._throttled > _COOL_SECONDS:
            self._full_since = now
            self._seen.clear()
        self._throttled = now
        return now - self._full_since

    def see(self, hashed: int, units: float) -> None:
        """Note what a full partition serves, and where."""
        if self._full_since is not None and (hashed in self._seen or len(self._seen) < _SAMPLED):
            self._seen[hashed] += units  # type: ignore[assignment]  # a Counter counts any number

    def cooled(self) -> None:
        """Begin anew, after a split."""
        self._full_since = None
        self._seen.clear()

    def heat_split(self) -> int | None:
        """Give where to split it so that both halves take as much as can be; None: one key takes it all.

        Source:
            Elhemali et al., "Amazon DynamoDB" (USENIX ATC 2022), 4.1.4: the split point is chosen by the key
            distribution that the partition observed, and none is made where one item is hot.
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


class Adaptation:
    """Of one partition's reads or writes: it adapts some time after its first throttle, and stays so.

    That it stays is a model: the guide does not say when it ends.

    Args:
        seconds: how long after the first throttle; None: never.

    Source:
        Developer Guide, "Best Practices for Tables", Avoid Depending on DynamoDB Adaptive Capacity: "there is typically
        a 5- to 30-minute interval between the time a table experiences throttling and the time that adaptive capacity
        becomes active".
    """

    __slots__ = ("_seconds", "_since")

    def __init__(self, seconds: float | None, since: float | None = None) -> None:
        self._seconds = seconds
        self._since = since

    def refused(self, now: float) -> None:
        """Note a throttle for lack of the partition's own share."""
        if self._since is None:
            self._since = now

    def active(self, now: float) -> bool:
        """Say whether the partition has adapted."""
        if self._seconds is None:
            return False
        return self._seconds == 0 or (self._since is not None and now - self._since >= self._seconds)

    def copy(self) -> Adaptation:
        """Give that of the other half of a split partition."""
        return Adaptation(self._seconds, self._since)


COLUMNS = 1024
"""Columns at the most: of a longer time, each stands for twice as many seconds, as often as is needed."""


class PartitionHeat:
    """One partition's units, a column a second (or, after a long time, every few).

    Attributes:
        start: where its range of the hash space begins; those of all partitions, sorted by it, are in the order of
            their ranges.
        taken: read and write units that it served, by column; the last ones may be missing.
        throttled: read and write units that it refused, likewise.
    """

    __slots__ = ("start", "taken", "throttled")

    def __init__(self, start: int) -> None:
        self.start = start
        self.taken: dict[Kind, list[float]] = {"read": [], "write": []}
        self.throttled: dict[Kind, list[float]] = {"read": [], "write": []}


class Heat:
    """The units of every partition, by time.

    Attributes:
        seconds: how long a column is.
        began: the time of the first column; None: nothing was added yet.
        partitions: each one's, in the order in which they were made.

    Memory: 32 KB a partition and kind of unit at the most.
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
        """Add units to the column of a time, in one of a partition's lists."""
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
