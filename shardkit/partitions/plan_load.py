"""Plan a bulk load: the throughput to set, the partitions that it makes, and those that a slower load makes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from shardkit.analysis.verdict import TABLE_UNITS
from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.sizes import ITEM_BYTES, STORAGE_OVERHEAD
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError
from shardkit.partitions.rules import TablePartitions, initial_partitions, partitions_for_size
from shardkit.partitions.statements import Statement, counted, model, number, rule, show

_ADJUSTING = "Consider Workload Uniformity When Adjusting Provisioned Throughput"


@dataclass(frozen=True, slots=True)
class IndexWrites:
    """What a secondary index gets of each write to its table.

    Example:
        >>> IndexWrites("ByCustomer", 200, share=0.5).write_units()
        0.5

    Args:
        name: the index's name.
        entry_size: bytes of an entry: the projected attributes with the keys, without a suffix.
        local: whether it is a local secondary index, which takes its units from the table's partitions.
        hottest_share: for an index with another partition key than the table's, the share of its writes that goes to
            its hottest partition key value, above 0 and at most 1. None: its partition key is the table's, so it is
            sharded with the table.
        moves: whether a write changes the key of an existing entry, which takes a delete and a put.
        share: the share of the table's writes that write an entry, above 0 and at most 1 (low for a sparse index).
        partitions: the number of partitions of a global index; None: unknown, twice what its load takes is assumed.

    Raises:
        ConfigurationError: an argument is invalid.

    Source:
        Developer Guide, "Provisioned throughput considerations for global secondary indexes".
    """

    name: str
    entry_size: int
    local: bool = False
    hottest_share: float | None = None
    moves: bool = False
    share: float = 1.0
    partitions: int | None = None

    def __post_init__(self) -> None:
        check_count(f"entry_size of index {self.name!r}", self.entry_size, "bytes", most=ITEM_BYTES)
        if self.partitions is not None:
            check_count(f"partitions of index {self.name!r}", self.partitions, "partitions")
        for name, share in (("share", self.share), ("hottest_share", self.hottest_share)):
            if share is not None and not 0 < share <= 1:
                raise ConfigurationError(f"{name} of index {self.name!r}: must be above 0 and at most 1, got {share!r}")
        if self.local and self.hottest_share is not None:
            raise ConfigurationError(f"hottest_share of index {self.name!r}: must be None, because the index is local")

    def write_units(self, suffix_bytes: int = 0) -> float:
        """Return the average write units of a write to the table; an entry holds the table's key with its suffix."""
        return self.share * write_units_of(self.entry_size + suffix_bytes) * (2 if self.moves else 1)


@dataclass(frozen=True, slots=True)
class IndexLoad:
    """What a global secondary index needs for a bulk load.

    Args:
        name: the index's name.
        total_write_units: write units of the whole load.
        write_units: write units a second to set for the index.
        partitions: the partitions that the index then has.
    """

    name: str
    total_write_units: float
    write_units: float
    partitions: int


@dataclass(frozen=True, kw_only=True)
class BulkLoadPlan:
    """The plan of a bulk load: what it consumes, the throughput to set, and each partition's throughput afterwards.

    Args:
        items: the number of items.
        item_size: bytes of an item.
        item_write_units: write units of an item, on the table and its local indexes.
        total_write_units: write units of all items.
        write_units: write units a second to set for the table.
        seconds: how long the load takes at that rate, evenly spread over the partitions.
        partitions: the partitions of a new table with that rate.
        partition_write_units: write units a second of each of them.
        size: bytes of storage of the items with their overhead, without indexes.
        partitions_when_loaded: the partitions after the load, with those split for storage.
        steady_write_units: write units a second that are provisioned after the load; None: not given.
        steady_partition_write_units: each partition's part of them; None: not given.
        indexes: what each global secondary index needs.
        reasoning: the rules and the models that the figures come from.
        warnings: arguments against the plan.
        slower: the load at a rate that makes no more partitions than the data and the steady rate need anyway; None:
            this plan is that load.
    """

    items: int
    item_size: int
    item_write_units: float
    total_write_units: float
    write_units: int
    seconds: float
    partitions: int
    partition_write_units: float
    size: int
    partitions_when_loaded: int
    steady_write_units: float | None
    steady_partition_write_units: float | None
    indexes: tuple[IndexLoad, ...]
    reasoning: tuple[Statement, ...]
    warnings: tuple[Statement, ...]
    slower: BulkLoadPlan | None = None

    def __str__(self) -> str:
        size = number(self.size / 1000**3)
        figures = [
            f"consumes {counted(self.total_write_units, 'write unit')}, {number(self.item_write_units)} an item",
            *self._set(),
            f"stores {size} GB, when all is loaded on {counted(self.partitions_when_loaded, 'partition')}",
        ]
        if self.steady_write_units is not None and self.steady_partition_write_units is not None:
            figures.append(
                f"afterwards, at {counted(self.steady_write_units, 'write unit')} a second: "
                f"{number(self.steady_partition_write_units)} a partition"
            )
        if self.slower is not None:
            figures += ["or slower:", *(f"  {line}" for line in self.slower._set())]  # noqa: SLF001 - its own class
            left = self.slower.steady_partition_write_units
            if left is not None:
                figures.append(f"  afterwards: {counted(left, 'write unit')} a second a partition")
        title = f"Load of {self.items:,} items of {self.item_size:,} bytes"
        return show(title, figures, self.reasoning, self.warnings)

    def _set(self) -> list[str]:
        each = counted(self.partition_write_units, "write unit")
        minutes, seconds = divmod(round(self.seconds), 60)
        takes = f"{minutes // 60:,}:{minutes % 60:02}:{seconds:02}"
        return [
            f"set {counted(self.write_units, 'write unit')} a second: it takes {takes} (h:mm:ss)",
            f"that makes {counted(self.partitions, 'partition')} of {each} a second",
            *(
                f"set {counted(index.write_units, 'write unit')} a second for index {index.name}: "
                f"{counted(index.partitions, 'partition')}, {counted(index.total_write_units, 'write unit')} in all"
                for index in self.indexes
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


def plan_bulk_load(
    items: int,
    item_size: int,
    *,
    within: timedelta | float | None = None,
    write_units: float | None = None,
    steady_write_units: float | None = None,
    indexes: Iterable[IndexWrites] = (),
) -> BulkLoadPlan:
    """Plan a bulk load into a new table, from the time that it may take or the throughput that it may use.

    Example:
        >>> plan = plan_bulk_load(20_000_000, 1000, write_units=11_000, steady_write_units=200)
        >>> plan.partitions, round(plan.seconds / 60), round(plan.steady_partition_write_units)
        (11, 30, 18)
        >>> plan.slower.write_units, plan.slower.partitions
        (3000, 3)

    Args:
        items: the number of items, at least 1.
        item_size: bytes of an item, names and values (see ``shardkit size``, or ``item_size``).
        within: the time that it may take: a timedelta, or seconds.
        write_units: write units a second that it may use; instead of ``within``.
        steady_write_units: write units a second that the table is set to afterwards.
        indexes: the table's secondary indexes.

    Returns:
        The plan; ``print`` it, or see ``reasoning``, ``warnings`` and ``slower``.

    Raises:
        ConfigurationError: not exactly one of ``within`` and ``write_units`` is given, or an argument is invalid.

    Source:
        Developer Guide, "Best Practices for Tables", Consider Workload Uniformity When Adjusting
        Provisioned Throughput.
    """
    check_count("items", items, "items")
    check_count("item_size", item_size, "bytes", most=ITEM_BYTES)
    if steady_write_units is not None:
        steady_write_units = check_number("steady_write_units", steady_write_units, "write units a second")
    load = _TableLoad(items, item_size, steady_write_units, tuple(indexes))
    if (within is None) == (write_units is None):
        raise ConfigurationError(f"within: got {within!r} with write_units={write_units!r}; give one of them")
    if write_units is not None:
        rate = math.ceil(check_number("write_units", write_units, "write units a second", above=True))
    else:
        seconds = within.total_seconds() if isinstance(within, timedelta) else within
        seconds = check_number("within", seconds, "seconds", above=True)
        rate = max(1, math.ceil(round(load.units / seconds, 9)))
    plan = load.at(rate)
    slower = load.at(load.least_partitions * PARTITION_WRITE_UNITS)
    return replace(plan, slower=slower) if slower.partitions < plan.partitions else plan


@dataclass(frozen=True)
class _TableLoad:
    items: int
    item_size: int
    steady: float | None
    indexes: tuple[IndexWrites, ...]

    @property
    def item_units(self) -> float:
        return write_units_of(self.item_size) + sum(index.write_units() for index in self.indexes if index.local)

    @property
    def units(self) -> float:
        return self.items * self.item_units

    @property
    def size(self) -> int:
        return self.items * (self.item_size + STORAGE_OVERHEAD)

    @property
    def least_partitions(self) -> int:
        """The partitions that the data and the steady rate need, however slow the load is."""
        return max(partitions_for_size(self.size), initial_partitions(read_units=0, write_units=self.steady or 0))

    def at(self, rate: int) -> BulkLoadPlan:
        seconds = self.units / rate
        created = TablePartitions.created(read_units=0, write_units=rate)
        loaded = created.grown_to(self.size)
        indexes = []
        for index in self.indexes:
            if not index.local:
                total = self.items * index.write_units()
                units = total / seconds  # a second: the index and the table end together
                needed = initial_partitions(read_units=0, write_units=units)
                indexes.append(IndexLoad(index.name, total, units, needed))
        return BulkLoadPlan(
            items=self.items,
            item_size=self.item_size,
            item_write_units=self.item_units,
            total_write_units=self.units,
            write_units=rate,
            seconds=seconds,
            partitions=created.partitions,
            partition_write_units=rate / created.partitions,
            size=self.size,
            partitions_when_loaded=loaded.partitions,
            steady_write_units=self.steady,
            steady_partition_write_units=None if self.steady is None else self.steady / loaded.partitions,
            indexes=tuple(indexes),
            reasoning=tuple(self._reasoning(loaded, seconds)),
            warnings=tuple(self._warnings(rate, loaded.partitions)),
        )

    def _reasoning(self, loaded: TablePartitions, seconds: float) -> Iterator[Statement]:
        yield rule(
            f"an item of {self.item_size:,} bytes takes {counted(write_units_of(self.item_size), 'write unit')} "
            f"(1 per KB, rounded up): {number(self.units)} in all"
            + (" with local indexes" if any(index.local for index in self.indexes) else ""),
            "Capacity Units Calculations for Various Operations",
            "Working with Tables",
        )
        yield rule(
            f"{number(self.items * self.item_size / 1000**3)} GB of items take {number(self.size / 1000**3)} GB of "
            f"storage: {STORAGE_OVERHEAD} bytes more per item",
            "Item Size Calculations",
            "Working with Tables",
        )
        yield from loaded.reasoning
        if self.steady is not None:
            yield rule(
                f"less throughput removes no partitions: {number(self.steady)} write units a second afterwards are "
                f"{number(self.steady / loaded.partitions)} for each of {loaded.partitions:,}",
                _ADJUSTING,
            )
        items = math.floor(round(PARTITION_WRITE_UNITS * seconds / self.item_units, 9))
        yield rule(
            f"a partition serves {PARTITION_WRITE_UNITS:,} write units a second: in that time, a partition key value "
            f"takes at most {items:,} items",
            "Initial Allocation of Partitions",
        )
        yield model("the writes are spread evenly over the partitions, as an interleaved load of many keys nearly does")

    def _warnings(self, rate: int, partitions: int) -> Iterator[Statement]:
        if rate > TABLE_UNITS:
            yield rule(
                f"{rate:,} write units a second exceed a table's default quota ({TABLE_UNITS:,}): ask AWS for more",
                "table-level read and write throughput",
                "Quotas",
            )
        if partitions > self.least_partitions:
            yield rule(
                f"the load leaves {counted(partitions, 'partition')}, but {self.least_partitions:,} would do: if one "
                "needs more than its part of the steady rate, load slower or write less to one partition key value",
                _ADJUSTING,
            )
        for index in self.indexes:
            share = index.hottest_share
            if share is not None and rate / self.item_units * index.write_units() * share > PARTITION_WRITE_UNITS:
                yield rule(
                    f"the hottest key of index {index.name} takes {share:.0%} of its writes, more than a partition "
                    f"serves ({PARTITION_WRITE_UNITS:,} write units a second): it slows the load",
                    "provisioned throughput considerations",
                    "Global Secondary Indexes",
                )
