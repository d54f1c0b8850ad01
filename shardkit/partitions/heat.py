"""What each partition took and refused, over time: what a heat map is drawn from, in bounded memory."""

from __future__ import annotations

from shardkit.dynamodb.service_errors import Kind

__all__ = ["COLUMNS", "Heat", "PartitionHeat"]

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
