"""Plan the shards of a hot key: how many, what reads then cost, and whether it is worth it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from shardkit.analysis.per_key import NOT_COUNTED, SUFFIXED, PerKey
from shardkit.analysis.shards import HEADROOM, PROBABILITY, TIMES, Fit, ShardsNeeded, better_of, shards_needed
from shardkit.core.checks import check_count, check_headroom, check_number
from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, read_units, write_units
from shardkit.errors import ConfigurationError
from shardkit.partitions.plan_load import IndexWrites
from shardkit.partitions.statements import Statement, counted, model, number, percent, rule, show
from shardkit.partitions.stored_items import PAGE_BYTES

_UNITS = ("Item Size Calculations", "Working with Tables")


@dataclass(frozen=True, slots=True)
class FanOut:
    """What a Query of the whole key costs.

    Args:
        items: the items that it evaluates, evenly spread over the shards.
        requests: requests to all shards, in pages of at most 1 MB.
        read_units: read units of all shards.
        plain_requests: requests if the key were not sharded.
        plain_read_units: read units if the key were not sharded.
    """

    items: int
    requests: int
    read_units: float
    plain_requests: int
    plain_read_units: float

    def __str__(self) -> str:
        what = f"a Query of {self.items:,} items" if self.items else "a Query of an empty key"
        return (
            f"{what} takes {counted(self.requests, 'request')} and {counted(self.read_units, 'read unit')} "
            f"(unsharded {self.plain_requests:,} and {number(self.plain_read_units)})"
        )


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another number of partitions, and the shards that the key then needs.

    Args:
        partitions: partitions of the table; its sharded indexes grow in the same ratio.
        write_units: write units a second with which a new table gets them.
        shards: shards that the key then needs; None: no number is enough.
        query_read_units: read units of a Query of an empty key then.
    """

    partitions: int
    write_units: int
    shards: int | None
    query_read_units: float | None


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """How many shards a key needs, and what that costs.

    Args:
        shards: the number of shards; 1: no sharding. None: no number is enough, and the other figures are those of
            ``least_shards``.
        least_shards: the number that is enough if no two shards share a partition; None: no number is.
        reason: why so many shards, or why no number is enough.
        asked_probability: the argument ``probability``.
        headroom: the part of a partition's throughput that is left free.
        item_size: bytes of an item, without a suffix.
        stored_size: bytes of an item with the longest suffix.
        item_write_units: write units of a write, on the table and its local indexes.
        fits: how the shards fit on the table's partitions, then on those of each index that is sharded with it.
        empty_query: the cost of a Query that finds nothing; None: no number of shards is enough.
        query: the cost of a Query of ``items_per_query`` items; None: that is 0, or no number of shards is enough.
        alternatives: the shards with more partitions.
        reasoning: the rules and the models that the figures come from.
        warnings: where sharding does not help, or costs more than it gains.
    """

    shards: int | None
    least_shards: int | None
    reason: str
    asked_probability: float
    headroom: float
    item_size: int
    stored_size: int
    item_write_units: float
    fits: tuple[Fit, ...]
    empty_query: FanOut | None
    query: FanOut | None
    alternatives: tuple[Alternative, ...]
    reasoning: tuple[Statement, ...]
    warnings: tuple[Statement, ...]

    @property
    def table(self) -> Fit:
        """How the shards fit on the table's partitions."""
        return self.fits[0]

    @property
    def probability(self) -> float:
        """The lowest probability, over the table and its indexes, that no partition gets more than it serves."""
        return min(fit.probability for fit in self.fits)

    @property
    def better(self) -> Alternative | None:
        """The alternative to prefer: each doubling of the partitions up to it divides the shards by 4 or more.

        None: the table's own partitions are as good.
        """
        return better_of(self.shards, self.alternatives)

    def __str__(self) -> str:
        table = self.table
        units = f"{counted(table.write_units, 'write unit')} and {counted(table.read_units, 'read unit')} a second"
        figures = [f"the key takes {units}, {counted(self.item_write_units, 'write unit')} a write"]
        for fit in self.fits:
            where = "the table"
            if fit.index is not None:
                where = f"index {fit.index} ({counted(fit.write_units, 'write unit')} a second)"
            line = f"{where} has {counted(fit.partitions, 'partition')}{' (assumed)' if fit.assumed else ''}"
            if self.shards is not None:
                line += (
                    f", each serves {fit.most:,} of the shards; none gets more with a probability of "
                    f"{percent(fit.probability)}"
                )
            figures.append(line)
        figures += [str(query) for query in (self.empty_query, self.query) if query is not None]
        for other in self.alternatives:
            needed = "no number of shards is enough"
            if other.shards is not None and other.query_read_units is not None:
                needed = f"{counted(other.shards, 'shard')}, an empty Query {number(other.query_read_units)} read units"
            figures.append(f"or with {counted(other.partitions, 'partition')}: {needed}")
        if self.shards is None:
            title = "No number of shards serves this load"
        else:
            title = "No sharding: 1 shard" if self.shards == 1 else f"{self.shards:,} shards"
        better = self.better
        alone = _alone(self.shards if better is None else better.shards)
        if better is None:
            figures = [*alone, *figures]
        else:
            has = counted(better.partitions, "partition")
            once = f"a table has {has} if it once had {counted(better.write_units, 'write unit')} a second"
            query = f"a Query of an empty key takes {counted(better.query_read_units or 0.0, 'read unit')}"
            lines = [f"{better.shards:,} shards, with {has}", *alone, f"{once}, or as much warm throughput", query]
            title = "\n  ".join(lines) + f"\n\n{title}, with {counted(table.partitions, 'partition')}"
        return show(title, figures, self.reasoning, self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        better = None if self.better is None else asdict(self.better)
        return {**asdict(self), "probability": self.probability, "better": better}


def _alone(shards: int | None) -> list[str]:
    """Return what to write for so many shards: for one key, which is cheaper, or for all."""
    if shards is None or shards == 1:
        return []
    return [
        f"write: {PerKey({'<key>': shards}).line}",
        f"for this key alone: the others keep one shard, and cheap Queries; {NOT_COUNTED}",
        SUFFIXED,
        f"for all keys, only if many will be hot, or you cannot list them (days): shards={shards}",
    ]


def plan_shards(
    item_size: int,
    writes_per_second: float,
    *,
    reads_per_second: float = 0.0,
    queries_per_second: float = 0.0,
    items_per_query: int = 0,
    consistent: bool = False,
    indexes: Iterable[IndexWrites] = (),
    partitions: int | None = None,
    headroom: float = HEADROOM,
    probability: float = PROBABILITY,
) -> ShardPlan:
    """Plan how many shards a partition key value needs.

    Each shard is a partition key value, which a hash assigns to a partition, so some partitions get more shards than
    others. The plan has the smallest number of shards with which even the fullest partition serves all that it gets.

    Example:
        >>> plan = plan_shards(350, 4000, partitions=16)
        >>> plan.shards, plan.least_shards, plan.empty_query.read_units
        (45, 5, 22.5)
        >>> plan_shards(350, 500).shards
        1

    Args:
        item_size: bytes of an item, names and values, without a suffix.
        writes_per_second: items of the key written a second, at the peak.
        reads_per_second: items of the key read a second one by one (GetItem, with a calculated suffix).
        queries_per_second: queries of the whole key a second; each queries every shard.
        items_per_query: items that each query evaluates.
        consistent: whether reads are strongly consistent.
        indexes: the table's secondary indexes.
        partitions: the partitions of the table (``shardkit plan table``); None: unknown, twice what the key takes is
            assumed.
        headroom: the part of a partition's throughput to leave free, from 0 to below 1.
        probability: the probability that no partition gets more than it serves, above 0 and below 1; for the table and
            for each index separately.

    Returns:
        The plan; ``print`` it, or see ``better``, ``reasoning``, ``warnings`` and ``alternatives``.

    Raises:
        ConfigurationError: an argument is invalid.

    Cost:
        No request; up to a few seconds of CPU for tens of thousands of writes a second.

    Source:
        Developer Guide, "Best Practices for Tables" (partitions and their limits) and "Working with Tables" (units);
        the hashing is a model (``shardkit.partitions.probability_within``).
    """
    check_count("item_size", item_size, "bytes", most=ITEM_BYTES)
    writes_per_second = check_number("writes_per_second", writes_per_second, "writes a second")
    reads_per_second = check_number("reads_per_second", reads_per_second, "reads a second")
    queries_per_second = check_number("queries_per_second", queries_per_second, "queries a second")
    check_count("items_per_query", items_per_query, "items", least=0)
    if partitions is not None:
        check_count("partitions", partitions, "partitions")
    check_headroom(headroom)
    if not 0 < probability < 1:
        raise ConfigurationError(f"probability: must be above 0 and below 1, got {probability!r}")
    load = _KeyLoad(
        item_size=item_size,
        writes=writes_per_second,
        reads=reads_per_second,
        queries=queries_per_second,
        items_of_query=items_per_query,
        consistent=consistent,
        indexes=tuple(indexes),
        headroom=headroom,
        partitions=partitions,
    )
    needed = load.needed(probability)
    shards = needed.shards
    looked_at = shards or needed.least_shards or 1
    alternatives = () if shards == 1 else [_alternative(replace(load, times=times), probability) for times in TIMES]
    return ShardPlan(
        shards=shards,
        least_shards=needed.least_shards,
        reason=needed.reason,
        asked_probability=probability,
        headroom=headroom,
        item_size=item_size,
        stored_size=load.stored_size(looked_at),
        item_write_units=load.item_write_units(looked_at),
        fits=needed.fits,
        empty_query=load.fan_out(shards, 0) if shards else None,
        query=load.fan_out(shards, items_per_query) if shards and items_per_query else None,
        alternatives=tuple(alternatives),
        reasoning=tuple(_reasoning(load, looked_at, needed)),
        warnings=tuple(_warnings(load, looked_at, needed)),
    )


@dataclass(frozen=True)
class _KeyLoad:
    """The load of a key. ``times`` multiplies the partitions of the table and its indexes."""

    item_size: int
    writes: float
    reads: float
    queries: float
    items_of_query: int
    consistent: bool
    indexes: tuple[IndexWrites, ...]
    headroom: float
    partitions: int | None
    times: int = 1

    @property
    def limit(self) -> float:
        return 1 - self.headroom

    def suffix_bytes(self, shards: int) -> int:
        return len(f".{shards}") if shards > 1 else 0

    def stored_size(self, shards: int) -> int:
        return self.item_size + self.suffix_bytes(shards)

    def index_write_units(self, index: IndexWrites, shards: int) -> float:
        """Write units a second, on an index."""
        return self.writes * index.write_units(self.suffix_bytes(shards))

    def item_write_units(self, shards: int) -> float:
        """Write units of a write, on the table and its local indexes."""
        suffix = self.suffix_bytes(shards)
        local = sum(index.write_units(suffix) for index in self.indexes if index.local)
        return write_units(self.stored_size(shards)) + local

    def query(self, shards: int, items: int) -> tuple[int, float]:
        """Requests and read units of a Query of ``items`` items, evenly spread over the shards."""
        size = self.stored_size(shards) * items / shards
        units = read_units(math.ceil(size), consistent=self.consistent)
        return shards * max(1, math.ceil(size / PAGE_BYTES)), shards * units

    def query_read_units(self, shards: int, items: int) -> float:
        return self.query(shards, items)[1]

    def fan_out(self, shards: int, items: int) -> FanOut:
        return FanOut(items, *self.query(shards, items), *self.query(1, items))

    def read_units(self, shards: int) -> float:
        """Read units a second."""
        single = self.reads * read_units(self.stored_size(shards), consistent=self.consistent)
        return single + self.queries * self.query_read_units(shards, self.items_of_query)

    def write_units(self, shards: int) -> float:
        """Write units a second, on the table."""
        return self.writes * self.item_write_units(shards)

    def fits(self, shards: int) -> Iterator[Fit]:
        """Yield how the shards fit the table, and each index that is sharded with it."""
        options: dict[str, Any] = {"headroom": self.headroom, "times": self.times}
        units = self.read_units(shards), self.write_units(shards)
        yield Fit.of(shards, *units, partitions=self.partitions, **options)
        for index in self.indexes:
            if not index.local and index.hottest_share is None:
                units = 0.0, self.index_write_units(index, shards)
                yield Fit.of(shards, *units, partitions=index.partitions, index=index.name, **options)

    def needed(self, probability: float) -> ShardsNeeded:
        return shards_needed(self.fits, headroom=self.headroom, probability=probability)


def _alternative(load: _KeyLoad, probability: float) -> Alternative:
    needed = load.needed(probability)
    shards, partitions = needed.shards, needed.fits[0].partitions
    units = None if shards is None else load.query_read_units(shards, 0)
    return Alternative(partitions, partitions * PARTITION_WRITE_UNITS, shards, units)


def _reasoning(load: _KeyLoad, shards: int, needed: ShardsNeeded) -> Iterator[Statement]:
    yield rule(
        f"a write of {load.stored_size(shards):,} bytes takes {counted(load.item_write_units(shards), 'write unit')}: "
        "1 per KB, rounded up" + (", with local indexes" if any(index.local for index in load.indexes) else ""),
        *_UNITS,
    )
    yield rule(
        f"a partition serves {PARTITION_READ_UNITS:,} read units or {PARTITION_WRITE_UNITS:,} write units a second",
        "Initial Allocation of Partitions",
    )
    yield rule(
        "a hash of the partition key value, with its suffix, decides which partition stores an item",
        "Data distribution: Partition key",
        "Partitions and data distribution",
    )
    yield model(
        f"{load.headroom:.0%} of a partition's throughput is left free; reads and writes are counted separately"
        + ("" if needed.least_shards is None else f": at least {counted(needed.least_shards, 'shard')}")
    )
    if needed.shards == 1:
        return
    yield model(needed.reason)
    yield from map(model, needed.assumptions)
    yield rule(
        f"with more partitions, fewer shards are enough: a table that once had {PARTITION_WRITE_UNITS:,} write units a "
        "second for each partition keeps the partitions",
        "Consider Workload Uniformity When Adjusting Provisioned Throughput",
    )
    yield rule(
        "a Query reads every shard, rounds up each shard's bytes to 4 KB, and takes "
        f"{counted(load.query_read_units(1, 0), 'read unit')} for an empty shard",
        *_UNITS,
    )
    yield rule(
        "in a table without local indexes, DynamoDB also splits the items of one key over partitions, as their "
        "throughput requires",
        "Data distribution: Partition key and sort key",
        "Partitions and data distribution",
    )
    yield model(
        "such splits are not counted: they take time, and new items that all sort last still go to one partition"
    )


def _warnings(load: _KeyLoad, shards: int, needed: ShardsNeeded) -> Iterator[Statement]:
    per_shard = load.queries * load.query_read_units(1, 0)
    if per_shard > load.limit * PARTITION_READ_UNITS:
        yield model(
            f"no number of shards serves this load: every Query reads every shard, so {number(load.queries)} queries a "
            f"second take at least {number(per_shard)} read units a second of each; query less often, or query a copy"
        )
    elif needed.shards is None:
        yield model(f"no number of shards is enough: {needed.reason}")
    if load.writes and load.item_write_units(shards) > load.item_write_units(1):
        yield rule(
            f"with its suffix, an item of {load.item_size:,} bytes has {load.stored_size(shards):,}: "
            f"{number(load.item_write_units(shards))} write units instead of {number(load.item_write_units(1))}",
            *_UNITS,
        )
    for index in load.indexes:
        hottest = load.index_write_units(index, shards) * (index.hottest_share or 0.0)
        if hottest > load.limit * PARTITION_WRITE_UNITS:
            yield rule(
                f"index {index.name} has its own hot key, with {number(hottest)} write units a second, and a partition "
                f"serves {PARTITION_WRITE_UNITS:,}: it throttles the table's writes, whatever the number of shards; "
                "give the index a key with more values",
                "provisioned throughput considerations",
                "Global Secondary Indexes",
            )
    if needed.shards is None or shards == 1:
        return
    if load.write_units(1) <= load.limit * PARTITION_WRITE_UNITS:
        yield rule(
            "only the reads need shards, because one partition serves the writes: consider a cache first; a single "
            "hot item is always on one shard",
            "Cache Popular Items",
        )
    items = load.items_of_query
    extra = load.queries * (load.query_read_units(shards, items) - load.query_read_units(1, items))
    gained = max(0.0, load.write_units(shards) - load.limit * PARTITION_WRITE_UNITS)
    if extra / PARTITION_READ_UNITS > gained / PARTITION_WRITE_UNITS:
        yield model(
            f"sharding costs more than it brings: queries take {number(extra)} more read units a second, the "
            f"throughput of {counted(extra / PARTITION_READ_UNITS, 'partition')}, for {number(gained)} write units a "
            f"second that one partition does not serve, the throughput of {number(gained / PARTITION_WRITE_UNITS)}"
        )
