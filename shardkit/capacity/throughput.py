"""What DescribeTable says of the throughput of a table, or of a global index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Throughput", "UnitsPerSecond", "throughput_of"]


class UnitsPerSecond(NamedTuple):
    """Read and write units a second; None: not said."""

    read: float | None
    write: float | None


class Throughput(NamedTuple):
    """What is said of a table or of an index.

    Args:
        provisioned: what it has; an on-demand one has none.
        warm: what it can take at once.
        maximum: what an on-demand one is let take at the most.
    """

    provisioned: UnitsPerSecond
    warm: UnitsPerSecond
    maximum: UnitsPerSecond


def throughput_of(described: Mapping[str, Any]) -> Throughput:
    """Read a ``TableDescription``, or a ``GlobalSecondaryIndexDescription`` in it.

    Source:
        DynamoDB API reference, ``ProvisionedThroughputDescription``, ``TableWarmThroughputDescription``,
        ``OnDemandThroughput``.
    """
    return Throughput(
        _read(described, "ProvisionedThroughput", "ReadCapacityUnits", "WriteCapacityUnits"),
        _read(described, "WarmThroughput", "ReadUnitsPerSecond", "WriteUnitsPerSecond"),
        _read(described, "OnDemandThroughput", "MaxReadRequestUnits", "MaxWriteRequestUnits"),
    )


def _read(described: Mapping[str, Any], name: str, read: str, write: str) -> UnitsPerSecond:
    found = described.get(name) or {}
    # -1 is how the service says that there is no maximum; 0 is what an on-demand table has provisioned.
    values = [found.get(key) for key in (read, write)]
    return UnitsPerSecond(*(float(value) if value is not None and value > 0 else None for value in values))
