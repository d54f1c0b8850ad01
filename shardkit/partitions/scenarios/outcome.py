"""What became of a way: its time, its share of the throughput, its throttles, and the heat of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardkit.dynamodb.service_errors import Kind
from shardkit.partitions.partition import Heat
from shardkit.partitions.scenarios.scenario import Way

__all__ = ["HeatMap", "Outcome"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a simulated way came to.

    Args:
        way: the way.
        seconds: of virtual time, from the first request until the last item was written (or, without a load, until the
            last read ended).
        items: items that were to be written; of several with one key, ``bulk_load`` may write the last one only.
        written: items that were.
        provisioned: units a second that the table has of the kind that matters (``kind``): what is provisioned, or all
            that its partitions serve.
        least_seconds: in how many seconds the busiest partition (of the table or of an index), or the table as a whole,
            is given by its rate what it served. A run can be one second shorter: each begins with a second's units.
        limited: whether the scenario leaves it to the partitions how fast it goes.
        requests: requests, each retry counted.
        throttled: requests that were throttled, by the service's reason; a batch of which a part came back says none.
        reads: reads that were begun.
        failed_reads: reads that ended in an error.
        hottest_key: the partition key, as stored, that takes the most write units of the items.
        hottest_key_share: its part of them.
        heat: the table's heat, and that of each global index by its name.
        stopped: what ended the load before its end.
    """

    way: Way
    seconds: float
    items: int = 0
    written: int = 0
    provisioned: float = 0.0
    least_seconds: float = 0.0
    limited: bool = False
    requests: int = 0
    throttled: Mapping[str, int] = field(default_factory=dict)
    reads: int = 0
    failed_reads: int = 0
    hottest_key: str = ""
    hottest_key_share: float = 0.0
    heat: Mapping[str | None, Heat] = field(default_factory=dict)
    stopped: str | None = None

    @property
    def write_units(self) -> float:
        """Write units that the table served, without those of global indexes."""
        return self._served("write")

    @property
    def read_units(self) -> float:
        """Read units that the table served, without those of global indexes."""
        return self._served("read")

    @property
    def kind(self) -> Kind:
        """The units that matter: of writes, where something is written."""
        return "read" if self.way.load is None else "write"

    @property
    def counted_seconds(self) -> float:
        """The seconds that rates and shares are over: until all that was served is given by the rates too."""
        return max(self.seconds, self.least_seconds)

    @property
    def units_a_second(self) -> float:
        """Units a second of that kind, over the whole time."""
        return self._served(self.kind) / self.counted_seconds if self.counted_seconds else 0.0

    @property
    def share(self) -> float:
        """The share of the units that there were, over the whole time."""
        return self.units_a_second / self.provisioned if self.provisioned else 0.0

    @property
    def ceiling(self) -> float | None:
        """The share that hashing allows: that of ``least_seconds``; None where the scenario sets the rate."""
        if not (self.limited and self.least_seconds and self.provisioned):
            return None
        return self._served(self.kind) / (self.least_seconds * self.provisioned)

    @property
    def complete(self) -> bool:
        """Whether all items were written, and all reads answered."""
        return self.written == self.items and not self.failed_reads and self.stopped is None

    @property
    def busiest(self) -> tuple[int, float]:
        """The table's partition that served the most: its number from 1, and its units a second."""
        seconds = self.counted_seconds or 1.0
        served = [sum(one.taken[self.kind]) / seconds for one in self.heat[None].by_range]
        number = max(range(len(served)), key=served.__getitem__)
        return number + 1, served[number]

    def _served(self, kind: Kind) -> float:
        return sum(sum(one.taken[kind]) for one in self.heat[None].partitions)

    def to_dict(self) -> dict[str, Any]:
        """Give it for machines."""
        busiest, rate = self.busiest
        return {
            "name": self.way.name,
            "strategy": self.way.strategy.to_dict(),
            "seconds": self.seconds,
            "counted_seconds": self.counted_seconds,
            "items": self.items,
            "written": self.written,
            "write_units": self.write_units,
            "read_units": self.read_units,
            "kind": self.kind,
            "units_a_second": self.units_a_second,
            "provisioned": self.provisioned,
            "share": self.share,
            "ceiling": self.ceiling,
            "requests": self.requests,
            "throttled": dict(self.throttled),
            "reads": self.reads,
            "failed_reads": self.failed_reads,
            "partitions": len(self.heat[None].partitions),
            "hottest_partition": {"partition": busiest, "units_a_second": rate},
            "hottest_key": {"key": self.hottest_key, "share": self.hottest_key_share},
            "stopped": self.stopped,
            "heat": [
                {
                    "index": index,
                    "seconds": heat.seconds,
                    "partitions": [
                        {"taken": partition.taken, "throttled": partition.throttled} for partition in heat.by_range
                    ],
                }
                for index, heat in self.heat.items()
            ],
        }


@dataclass(frozen=True)
class HeatMap:
    """Units a second by partition and time.

    Args:
        seconds: how long a column is.
        rows: for each partition, in the order of their ranges, units a second by column.
    """

    seconds: float
    rows: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, heat: Heat, kind: Kind, columns: int, *, throttled: bool = False) -> HeatMap:
        """Draw up what partitions served (or refused), in so many columns at the most."""
        cells = [(one.throttled if throttled else one.taken)[kind] for one in heat.by_range]
        length = max((len(row) for one in heat.partitions for row in one.taken.values()), default=0)
        each = -(-length // columns) or 1
        starts = range(0, length, each)
        seconds = each * heat.seconds
        return cls(seconds, tuple(tuple(sum(row[start : start + each]) / seconds for start in starts) for row in cells))

    @property
    def hottest(self) -> float:
        """The most units a second of all."""
        return max((rate for row in self.rows for rate in row), default=0.0)

    def in_rows(self, most: int) -> HeatMap:
        """Give it in so many rows at the most: neighbours together, by the hotter of them."""
        each = -(-len(self.rows) // most) or 1
        parts = [self.rows[start : start + each] for start in range(0, len(self.rows), each)]
        return HeatMap(self.seconds, tuple(tuple(map(max, zip(*part, strict=True))) for part in parts))
