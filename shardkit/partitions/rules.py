"""How many partitions a table has, and the throughput of each, by the rules of the Developer Guide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, rounded_up
from shardkit.partitions.statements import Statement, counted, model, number, rule, show

PARTITION_BYTES = 10 * 1000**3
"""Bytes that a partition holds, "approximately 10 GB" (Best Practices for Tables, Subsequent Allocation)."""
BURST_SECONDS = 300
"""The most seconds of unused throughput that a partition keeps (Best Practices for Tables, Use Burst Capacity)."""
_READ, _WRITE = "read units a second", "write units a second"


def initial_partitions(*, read_units: float, write_units: float) -> int:
    """Estimate how many partitions a new table gets for its provisioned throughput.

    Example:
        >>> initial_partitions(read_units=1000, write_units=500), initial_partitions(read_units=5000, write_units=2000)
        (1, 4)

    Args:
        read_units: read units a second, 0 or more.
        write_units: write units a second, 0 or more.

    Returns:
        ``read_units / 3,000 + write_units / 1,000``, rounded up; at least 1.

    Raises:
        ConfigurationError: a rate is not a number >= 0.

    Source:
        Developer Guide, "Best Practices for Tables", Initial Allocation of Partitions.
    """
    read_units = check_number("read_units", read_units, _READ)
    write_units = check_number("write_units", write_units, _WRITE)
    return max(1, rounded_up(_needed(read_units, write_units)))


def partitions_for_size(size: float) -> int:
    """Estimate how many partitions hold a number of bytes; at least 1.

    Example:
        >>> partitions_for_size(500 * 10**9)
        50

    Args:
        size: bytes, 0 or more.

    Returns:
        ``size / 10 GB``, rounded up.

    Raises:
        ConfigurationError: the size is not a number >= 0.

    Source:
        Developer Guide, "Best Practices for Tables", Subsequent Allocation of Partitions.
    """
    size = check_number("size", size, "bytes")
    return max(1, rounded_up(size / PARTITION_BYTES))


def partitions_by_older_rule(*, size: float, read_units: float, write_units: float) -> int:
    """Estimate a table's partitions as the guide's older edition did: the larger of those for size and throughput.

    Example:
        >>> partitions_by_older_rule(size=500 * 10**9, read_units=100_000, write_units=0)
        50

    Args:
        size: bytes, 0 or more.
        read_units: provisioned read units a second, 0 or more.
        write_units: provisioned write units a second, 0 or more.

    Returns:
        Partitions, at least 1; each has an equal share of the throughput.

    Raises:
        ConfigurationError: an argument is not a number >= 0.

    Source:
        Developer Guide, older edition, "Guidelines for Working with Tables", Understand Partition Behavior.
    """
    return max(partitions_for_size(size), initial_partitions(read_units=read_units, write_units=write_units))


def initial_partitions_stated(read_units: float, write_units: float) -> tuple[int, Statement]:
    """Return the initial partitions, and their rule with its figures."""
    partitions = initial_partitions(read_units=read_units, write_units=write_units)
    needed = number(_needed(read_units, write_units))
    return partitions, rule(
        f"partitions for the throughput: {number(read_units)} read units / {PARTITION_READ_UNITS:,} + "
        f"{number(write_units)} write units / {PARTITION_WRITE_UNITS:,} = {needed}, rounded up: {partitions:,}",
        "Initial Allocation of Partitions",
    )


def _needed(read_units: float, write_units: float) -> float:
    return read_units / PARTITION_READ_UNITS + write_units / PARTITION_WRITE_UNITS


def _halvings(times: int) -> int:
    """Return how often a partition with ``times`` what it can hold must be split in two."""
    return (max(1, times) - 1).bit_length()


def _in_all(shares: Mapping[Fraction, int]) -> str:
    total = sum(shares.values())
    return f"{total:,} partitions, which hold {total * PARTITION_BYTES // 1000**3:,} GB"


@dataclass(frozen=True, slots=True)
class PartitionThroughput:
    """The provisioned throughput of some equal partitions of a table.

    Args:
        partitions: the number of these partitions.
        read_units: read units a second of each.
        write_units: write units a second of each.
    """

    partitions: int
    read_units: float
    write_units: float

    @property
    def burst_read_units(self) -> float:
        """The most read units that each keeps for a burst: 300 seconds of its throughput."""
        return BURST_SECONDS * self.read_units

    @property
    def burst_write_units(self) -> float:
        """The most write units that each keeps for a burst."""
        return BURST_SECONDS * self.write_units


@dataclass(frozen=True)
class TablePartitions:
    """A table's partitions over its life: created, doubled for throughput, split for storage, never removed.

    Example:
        >>> table = TablePartitions.created(read_units=5000, write_units=2000).split()
        >>> for each in table.throughput:
        ...     print(each.partitions, "of", each.read_units, "read and", each.write_units, "write units")
        3 of 1250.0 read and 500.0 write units
        2 of 625.0 read and 250.0 write units

    Each method returns a new object. The figures are estimates, by rules that "are subject to change".

    Args:
        read_units: provisioned read units a second of the table.
        write_units: provisioned write units a second of the table.
        shares: each share of the table's keys, and so of its throughput, with the number of partitions that have it.
        reasoning: how the partitions came about.

    Source:
        Developer Guide, "Best Practices for Tables", Understand Partition Behavior.
    """

    read_units: float
    write_units: float
    shares: Mapping[Fraction, int]
    reasoning: tuple[Statement, ...] = ()

    @classmethod
    def created(cls, *, read_units: float, write_units: float) -> TablePartitions:
        """Return the partitions of a new table with a provisioned throughput.

        Raises:
            ConfigurationError: a rate is not a number >= 0.
        """
        partitions, stated = initial_partitions_stated(read_units, write_units)
        return cls(read_units, write_units, {Fraction(1, partitions): partitions}, (stated,))

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return sum(self.shares.values())

    @property
    def throughput(self) -> tuple[PartitionThroughput, ...]:
        """The throughput of the partitions, the highest first."""
        return tuple(
            PartitionThroughput(count, float(share) * self.read_units, float(share) * self.write_units)
            for share, count in sorted(self.shares.items(), reverse=True)
        )

    def set_throughput(self, *, read_units: float | None = None, write_units: float | None = None) -> TablePartitions:
        """Return the partitions after UpdateTable: more throughput doubles them all; less removes none.

        Args:
            read_units: read units a second from now on; None: unchanged.
            write_units: write units a second from now on; None: unchanged.

        Raises:
            ConfigurationError: a rate is not a number >= 0.
        """
        read = self.read_units if read_units is None else check_number("read_units", read_units, _READ)
        write = self.write_units if write_units is None else check_number("write_units", write_units, _WRITE)
        doublings = _halvings(rounded_up(float(max(self.shares)) * _needed(read, write)))
        after = {share / 2**doublings: count * 2**doublings for share, count in self.shares.items()}
        total = sum(after.values())
        setting = f"{number(read)} read units and {number(write)} write units a second"
        if doublings:
            said = rule(
                f"{setting} are more than {self.partitions:,} partitions serve: doubled to {total:,}",
                "Increased Provisioned Throughput Settings",
            )
        else:
            said = rule(
                f"{setting} are served by {counted(total, 'partition')}; less throughput removes none",
                "Consider Workload Uniformity When Adjusting Provisioned Throughput",
            )
        return TablePartitions(read, write, after, (*self.reasoning, said))

    def split(self, count: int = 1) -> TablePartitions:
        """Return the partitions after some are full: each splits in two, with half of its keys, data and throughput.

        Args:
            count: how many are full, at least 1 and at most all; those with the most throughput split first.

        Raises:
            ConfigurationError: the table has fewer partitions.
        """
        check_count("count", count, "partitions to split", most=self.partitions)
        after: Counter[Fraction] = Counter()
        left = count
        for share, has in sorted(self.shares.items(), reverse=True):
            full = min(has, left)
            left -= full
            after[share] += has - full
            after[share / 2] += 2 * full
        said = rule(
            f"a partition holds about {PARTITION_BYTES // 1000**3} GB, and {count:,} of {self.partitions:,} are full: "
            f"{_in_all(after)}; a split divides the parent's throughput",
            "Increased Storage Requirements",
        )
        return replace(self, shares=dict(+after), reasoning=(*self.reasoning, said))

    def grown_to(self, size: float) -> TablePartitions:
        """Return the partitions after the table has grown; that its data is spread evenly over its keys is a model.

        Args:
            size: bytes of the whole table, with its storage overhead, 0 or more.

        Raises:
            ConfigurationError: the size is not a number >= 0.
        """
        size = check_number("size", size, "bytes")
        after: Counter[Fraction] = Counter()
        for share, count in self.shares.items():
            halvings = _halvings(math.ceil(share * Fraction(size) / PARTITION_BYTES))
            after[share / 2**halvings] += count * 2**halvings
        if after == self.shares:
            return self
        said = model(
            f"{number(size / 1000**3)} GB of data are spread evenly over the keys, and partitions that would hold more "
            f"than {PARTITION_BYTES // 1000**3} GB are split: {_in_all(after)}"
        )
        return replace(self, shares=dict(after), reasoning=(*self.reasoning, said))

    def __str__(self) -> str:
        figures = [
            f"{each.partitions:,} with {number(each.read_units)} read units and {number(each.write_units)} write units "
            f"a second each"
            for each in self.throughput
        ]
        return show(counted(self.partitions, "partition"), figures, self.reasoning, ())

    def to_dict(self) -> dict[str, Any]:
        """Return the partitions as plain values."""
        return {
            "read_units": self.read_units,
            "write_units": self.write_units,
            "partitions": self.partitions,
            "throughput": [asdict(each) for each in self.throughput],
            "reasoning": [one.to_dict() for one in self.reasoning],
        }
