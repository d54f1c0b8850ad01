"""Estimate the least number of partitions of a live table, from its description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from shardkit.dynamodb.schema import UnitsPerSecond, throughput_of
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, partitions_taken, rounded_up
from shardkit.errors import ConfigurationError, brief
from shardkit.partitions.rules import (
    BURST_SECONDS,
    PARTITION_BYTES,
    initial_partitions_stated,
    partitions_for_size,
)
from shardkit.partitions.statements import Statement, counted, model, number, rule, show

_SPLITS = "Subsequent Allocation of Partitions"


@dataclass(frozen=True, kw_only=True)
class ThroughputEstimate:
    """The partitions of a table with its local indexes, or of a global secondary index.

    Args:
        index: the global index's name; None: the table.
        billing_mode: ``"PROVISIONED"`` or ``"PAY_PER_REQUEST"`` (on-demand).
        read_units: provisioned read units a second; of an on-demand table, warm ones; None: not in the description.
        write_units: provisioned write units a second, likewise.
        max_read_units: the maximum read units a second of an on-demand table; None: no maximum.
        max_write_units: the maximum write units a second, likewise.
        items: the number of items, which the service counts about every six hours.
        size: bytes of storage, of a table with its local indexes.
        partitions: the least number of partitions.
        reasoning: the rules and models that the figures come from.
    """

    index: str | None
    billing_mode: Literal["PROVISIONED", "PAY_PER_REQUEST"]
    read_units: float | None
    write_units: float | None
    max_read_units: float | None
    max_write_units: float | None
    items: int
    size: int
    partitions: int
    reasoning: tuple[Statement, ...]

    @property
    def partition_read_units(self) -> float | None:
        """Read units a second of each partition, if there are no more partitions."""
        return None if self.read_units is None else self.read_units / self.partitions

    @property
    def partition_write_units(self) -> float | None:
        """Write units a second of each partition, if there are no more partitions."""
        return None if self.write_units is None else self.write_units / self.partitions

    def __str__(self) -> str:
        name = "table" if self.index is None else f"index {self.index}"
        figures = [f"{self.items:,} items, {number(self.size / 1000**3)} GB"]
        read, write = self.read_units, self.write_units
        if read is not None and write is not None:
            kind = "provisioned" if self.billing_mode == "PROVISIONED" else "on-demand, warm for"
            each = f"{number(read / self.partitions)} and {number(write / self.partitions)} a partition"
            figures.append(
                f"{kind} {number(read)} read units and {number(write)} write units a second: {each}, less if there are "
                "more"
            )
        else:
            figures.append("on-demand; the description has no warm throughput")
        for most, units in ((self.max_read_units, "read units"), (self.max_write_units, "write units")):
            if most is not None:
                figures.append(f"at most {number(most)} {units} a second")
        return show(f"{name}: at least {counted(self.partitions, 'partition')}", figures, self.reasoning, ())

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values."""
        return {
            **asdict(self),
            "partition_read_units": self.partition_read_units,
            "partition_write_units": self.partition_write_units,
        }


@dataclass(frozen=True, kw_only=True)
class TableEstimate:
    """The least number of partitions of a live table and of its global indexes.

    Args:
        table_name: the table's name.
        table: the table, with its local indexes.
        indexes: its global secondary indexes.
    """

    table_name: str
    table: ThroughputEstimate
    indexes: tuple[ThroughputEstimate, ...]

    def __str__(self) -> str:
        return "\n\n".join([self.table_name, *map(str, (self.table, *self.indexes))])

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values."""
        return {
            "table_name": self.table_name,
            "table": self.table.to_dict(),
            "indexes": [index.to_dict() for index in self.indexes],
        }


def estimate_table(description: Mapping[str, Any]) -> TableEstimate:
    """Estimate the partitions of a live table: a lower bound, because its earlier peaks are unknown.

    Example:
        >>> estimate = estimate_table({
        ...     "TableName": "Orders",
        ...     "TableSizeBytes": 25 * 10**9,
        ...     "ItemCount": 25_000_000,
        ...     "ProvisionedThroughput": {"ReadCapacityUnits": 5000, "WriteCapacityUnits": 2000},
        ... })
        >>> estimate.table.partitions, estimate.table.partition_write_units
        (4, 500.0)

    Args:
        description: the ``Table`` of a DescribeTable response.

    Returns:
        Throughput, size and partitions of the table and each global secondary index.

    Raises:
        ConfigurationError: the argument is not a table's description.

    Source:
        Developer Guide, "Best Practices for Tables", Understand Partition Behavior; DynamoDB API reference,
        ``TableDescription`` (``ProvisionedThroughput``, ``WarmThroughput``, ``OnDemandThroughput``).
    """
    if not isinstance(description, Mapping) or "TableName" not in description:
        raise ConfigurationError(
            f'description: must be the "Table" of a DescribeTable response, got {brief(description, 200)}'
        )
    on_demand = (description.get("BillingModeSummary") or {}).get("BillingMode") == "PAY_PER_REQUEST"
    local = sum(int(index.get("IndexSizeBytes") or 0) for index in description.get("LocalSecondaryIndexes") or ())
    size = int(description.get("TableSizeBytes") or 0) + local
    return TableEstimate(
        table_name=str(description["TableName"]),
        table=_estimate(None, description, size, on_demand=on_demand),
        indexes=tuple(
            _estimate(str(index["IndexName"]), index, int(index.get("IndexSizeBytes") or 0), on_demand=on_demand)
            for index in description.get("GlobalSecondaryIndexes") or ()
        ),
    )


def _estimate(index: str | None, described: Mapping[str, Any], size: int, *, on_demand: bool) -> ThroughputEstimate:
    throughput = throughput_of(described)
    read, write = throughput.warm if on_demand else throughput.provisioned
    bounds = list(_bounds(None if on_demand else throughput.provisioned, throughput.warm, size))
    partitions = max(partitions for partitions, _ in bounds)
    return ThroughputEstimate(
        index=index,
        billing_mode="PAY_PER_REQUEST" if on_demand else "PROVISIONED",
        read_units=read,
        write_units=write,
        max_read_units=throughput.maximum.read if on_demand else None,
        max_write_units=throughput.maximum.write if on_demand else None,
        items=int(described.get("ItemCount") or 0),
        size=size,
        partitions=partitions,
        reasoning=(
            *(said for _, said in bounds),
            rule(
                "a table never loses partitions: there may be more, from a higher throughput or splits in the past",
                "Consider Workload Uniformity When Adjusting Provisioned Throughput",
            ),
            rule(
                f"a partition keeps up to {BURST_SECONDS} seconds of unused throughput for bursts",
                "Use Burst Capacity Sparingly",
            ),
        ),
    )


def _bounds(provisioned: UnitsPerSecond | None, warm: UnitsPerSecond, size: int) -> Iterator[tuple[int, Statement]]:
    partitions = partitions_for_size(size)
    data = f"{number(size / 1000**3)} GB / {PARTITION_BYTES // 1000**3} GB"
    yield partitions, rule(f"partitions for the data: {data}, rounded up: {partitions:,}", _SPLITS)
    if provisioned is not None:
        read, write = (units or 0.0 for units in provisioned)
        yield initial_partitions_stated(read, write)
    read, write = (units or 0.0 for units in warm)
    if read or write:
        partitions = max(1, rounded_up(partitions_taken(read, write)))
        said = model(
            f"partitions that serve the warm throughput of {number(read)} read units and {number(write)} write units "
            f"at once, {PARTITION_READ_UNITS:,} and {PARTITION_WRITE_UNITS:,} each: at least {partitions:,}"
        )
        yield partitions, said
