"""The result of a way: its time, its share of the throughput, its throttles, and the heat of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.dynamodb.service_errors import Kind
from shardkit.partitions.partition import Heat
from shardkit.partitions.scenarios.scenario import Way


@dataclass(frozen=True, kw_only=True)
class WayResult:
    """The result of a simulated way.

    Args:
        way: the way.
        kind: the relevant kind of units: those of writes, if there is a load.
        seconds: virtual time from the first request until the last item was written (without a load: until the last
            read ended).
        items: items to write; of several with one key, ``bulk_load`` may write only the last one.
        written: items written.
        provisioned: units a second of the table: the provisioned ones, or all that its partitions serve.
        least_seconds: the seconds in which the rate of the busiest partition (of the table or an index), or of the
            whole table, yields the units that it served. A run can be one second shorter, because each partition
            starts with one second's units.
        requests: requests, retries included.
        throttled: throttled requests, and batches with unprocessed items, by reason.
        reads: reads started.
        cache_hits: those that a cache answered, without a request.
        saved_read_units: what they would have consumed.
        failed_reads: reads that ended in an error.
        hottest_key: the stored partition key that takes the most write units.
        hottest_key_share: its share of the items' write units.
        heat: the heat of the table (None), and of each global index by its name.
        stopped: the error that stopped the load early; None: it ended.
    """

    way: Way
    kind: Kind
    seconds: float
    items: int
    written: int
    provisioned: float
    least_seconds: float
    requests: int
    throttled: Mapping[str, int]
    reads: int
    cache_hits: int
    saved_read_units: float
    failed_reads: int
    hottest_key: str
    hottest_key_share: float
    heat: Mapping[str | None, Heat]
    stopped: str | None

    @property
    def counted_seconds(self) -> float:
        """The seconds that rates and shares refer to: long enough for the rates to yield all that was served."""
        return max(self.seconds, self.least_seconds)

    @property
    def units_a_second(self) -> float:
        return self.served(self.kind) / self.counted_seconds if self.counted_seconds else 0.0

    @property
    def share(self) -> float:
        return self.units_a_second / self.provisioned if self.provisioned else 0.0

    @property
    def ceiling(self) -> float | None:
        """The highest share that hashing allows, from ``least_seconds``; None: the scenario sets the rate."""
        load = self.way.load
        if load is None or load.tool == "put_item" or not (self.least_seconds and self.provisioned):
            return None
        return self.served(self.kind) / (self.least_seconds * self.provisioned)

    @property
    def complete(self) -> bool:
        """Whether all items were written, and all reads answered."""
        return self.written == self.items and not self.failed_reads and self.stopped is None

    @property
    def busiest(self) -> tuple[int, float]:
        """The partition of the table that served most: its number, from 1, and its units a second."""
        seconds = self.counted_seconds or 1.0
        served = [sum(one.taken[self.kind]) / seconds for one in self.heat[None].by_range]
        number = max(range(len(served)), key=served.__getitem__)
        return number + 1, served[number]

    def served(self, kind: Kind) -> float:
        """Return the units that the table served, without its global indexes."""
        return sum(sum(one.taken[kind]) for one in self.heat[None].partitions)

    def to_dict(self) -> dict[str, Any]:
        busiest, rate = self.busiest
        return {
            "name": self.way.name,
            "strategy": self.way.strategy.to_dict(),
            "seconds": self.seconds,
            "counted_seconds": self.counted_seconds,
            "items": self.items,
            "written": self.written,
            "write_units": self.served("write"),
            "read_units": self.served("read"),
            "kind": self.kind,
            "units_a_second": self.units_a_second,
            "provisioned": self.provisioned,
            "share": self.share,
            "ceiling": self.ceiling,
            "requests": self.requests,
            "throttled": dict(self.throttled),
            "reads": self.reads,
            "cache_hits": self.cache_hits,
            "saved_read_units": self.saved_read_units,
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
    """Units a second by column of ``seconds``, in a row for each partition, in the order of the ranges."""

    seconds: float
    rows: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, heat: Heat, kind: Kind, columns: int, *, throttled: bool = False) -> HeatMap:
        """Return what partitions served (or throttled), in at most ``columns`` columns."""
        cells = [(one.throttled if throttled else one.taken)[kind] for one in heat.by_range]
        length = max((len(row) for one in heat.partitions for row in one.taken.values()), default=0)
        each = -(-length // columns) or 1
        starts = range(0, length, each)
        seconds = each * heat.seconds
        return cls(seconds, tuple(tuple(sum(row[start : start + each]) / seconds for start in starts) for row in cells))

    @property
    def hottest(self) -> float:
        return max((rate for row in self.rows for rate in row), default=0.0)

    def in_rows(self, most: int) -> HeatMap:
        """Return the map in at most ``most`` rows: neighbours share one, which shows the hottest of them."""
        each = -(-len(self.rows) // most) or 1
        parts = [self.rows[start : start + each] for start in range(0, len(self.rows), each)]
        return HeatMap(self.seconds, tuple(tuple(map(max, zip(*part, strict=True))) for part in parts))
