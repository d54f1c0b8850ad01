"""Plan the shards of a hot key: how many, what reads then cost, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from shardkit.analysis.shards import HEADROOM, PROBABILITY, Fit, ShardsNeeded, shards_needed
from shardkit.core.checks import check_count, check_headroom, check_number
from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS
from shardkit.errors import ConfigurationError
from shardkit.partitions.key_load import KeyLoad
from shardkit.partitions.plan_load import IndexWrites
from shardkit.partitions.statements import Statement, counted, model, number, percent, rule, show

_TIMES = (2, 4, 8)


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
        write_units: write units a second that give a new table so many partitions.
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
        least_shards: the number that is enough if each shard is on a partition of its own; None: no number is.
        reason: why so many, or why no number is enough, in a sentence.
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

    def __str__(self) -> str:
        """Return the plan, its alternatives, the warnings and the reasoning, as text."""
        figures = [
            (
                f"the key takes {counted(self.table.write_units, 'write unit')} and "
                f"{counted(self.table.read_units, 'read unit')} a second, "
                f"{counted(self.item_write_units, 'write unit')} a write"
            )
        ]
        for fit in self.fits:
            where = (
                "the table"
                if fit.index is None
                else f"index {fit.index} ({counted(fit.write_units, 'write unit')} a second)"
            )
            serves = (
                ""
                if self.shards is None
                else f", each serves {fit.most:,} of the shards; none gets more with a probability of "
                f"{percent(fit.probability)}"
            )
            assumed = " (assumed)" if fit.assumed else ""
            figures.append(f"{where} has {counted(fit.partitions, 'partition')}{assumed}{serves}")
        figures += [str(query) for query in (self.empty_query, self.query) if query is not None]
        for other in self.alternatives:
            shards = "no number of shards is enough" if other.shards is None else counted(other.shards, "shard")
            cost = (
                ""
                if other.query_read_units is None
                else f", an empty Query {number(other.query_read_units)} read units"
            )
            figures.append(f"or with {counted(other.partitions, 'partition')}: {shards}{cost}")
        if self.shards is None:
            title = "No number of shards serves this load"
        else:
            title = "No sharding: 1 shard" if self.shards == 1 else f"{self.shards:,} shards"
        return show(title, figures, self.reasoning, self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {**asdict(self), "probability": self.probability}


def plan_shards(
    item_size: int,
    writes_per_second: float,
    reads_per_second: float = 0.0,
    *,
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
        partitions: the partitions of the table (``shardkit plan table``); None: unknown, twice what the load takes is
            assumed.
        headroom: the part of a partition's throughput to leave free, from 0 to below 1.
        probability: the probability that no partition gets more than it serves, above 0 and below 1; for the table and
            for each index separately.

    Returns:
        The plan; ``print`` it, or see ``reasoning``, ``warnings`` and ``alternatives``.

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
    load = KeyLoad(
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
    return _planned(load, probability)


def _planned(load: KeyLoad, probability: float) -> ShardPlan:
    needed = shards_needed(load.fits, headroom=load.headroom, probability=probability)
    shards = needed.shards
    looked_at = shards or needed.least_shards or 1
    alternatives = (
        () if shards == 1 else tuple(_alternative(replace(load, times=times), probability) for times in _TIMES)
    )
    return ShardPlan(
        shards=shards,
        least_shards=needed.least_shards,
        reason=needed.reason,
        asked_probability=probability,
        headroom=load.headroom,
        item_size=load.item_size,
        stored_size=load.stored_size(looked_at),
        item_write_units=load.item_write_units(looked_at),
        fits=needed.fits,
        empty_query=_fan_out(load, shards, 0) if shards else None,
        query=_fan_out(load, shards, load.items_of_query) if shards and load.items_of_query else None,
        alternatives=alternatives,
        reasoning=tuple(_reasoning(load, looked_at, needed)),
        warnings=tuple(_warnings(load, looked_at, needed)),
    )


def _fan_out(load: KeyLoad, shards: int, items: int) -> FanOut:
    return FanOut(
        items,
        load.query_requests(shards, items),
        load.query_read_units(shards, items),
        load.query_requests(1, items),
        load.query_read_units(1, items),
    )


def _alternative(load: KeyLoad, probability: float) -> Alternative:
    needed = shards_needed(load.fits, headroom=load.headroom, probability=probability)
    shards, partitions = needed.shards, needed.fits[0].partitions
    units = None if shards is None else load.query_read_units(shards, 0)
    return Alternative(partitions, partitions * PARTITION_WRITE_UNITS, shards, units)


_UNITS_PAGE = "Working with Tables"
_PARTITIONS_PAGE = "Partitions and data distribution"
_UNITS = "Item Size Calculations"


def _reasoning(load: KeyLoad, shards: int, needed: ShardsNeeded) -> Iterator[Statement]:
    yield rule(
        f"a write of {load.stored_size(shards):,} bytes takes {counted(load.item_write_units(shards), 'write unit')}, "
        "1 for each KB begun" + (", with local indexes" if any(index.local for index in load.indexes) else ""),
        _UNITS,
        _UNITS_PAGE,
    )
    yield rule(
        f"a partition serves {PARTITION_READ_UNITS:,} read units or {PARTITION_WRITE_UNITS:,} write units a second",
        "Initial Allocation of Partitions",
    )
    yield rule(
        "a hash of the partition key value, which has the suffix, decides on which partition an item is stored",
        "Data distribution: Partition key",
        _PARTITIONS_PAGE,
    )
    yield model(
        f"{load.headroom:.0%} of it is left free, reads and writes are counted each by itself"
        + ("" if needed.least_shards is None else f": at least {counted(needed.least_shards, 'shard')}")
    )
    if needed.shards == 1:
        return
    yield model(needed.reason)
    yield from map(model, needed.assumptions)
    yield rule(
        f"more partitions take fewer shards: a table that is set once to {PARTITION_WRITE_UNITS:,} write units a "
        "second for each keeps them when it is set lower",
        "Consider Workload Uniformity When Adjusting Provisioned Throughput",
    )
    yield rule(
        f"a Query asks each shard, rounds what it reads of each up to 4 KB, and takes "
        f"{counted(load.query_read_units(1, 0), 'read unit')} of one where nothing is found",
        _UNITS,
        _UNITS_PAGE,
    )
    yield rule(
        "without local indexes DynamoDB also splits the items of one key over partitions by itself, as its throughput "
        "requires",
        "Data distribution: Partition key and sort key",
        _PARTITIONS_PAGE,
    )
    yield model(
        "that is not counted here: it takes time, and new items that all sort last go to one partition all the same"
    )


def _warnings(load: KeyLoad, shards: int, needed: ShardsNeeded) -> Iterator[Statement]:
    asked = load.queries * load.query_read_units(1, 0)
    if asked > load.limit * PARTITION_READ_UNITS:
        yield model(
            f"no number of shards serves this load: every Query asks every shard, and {number(load.queries)} of them a "
            f"second take {number(asked)} read units a second of each at least; query less often, or keep a copy of "
            "what is read"
        )
    elif needed.shards is None:
        yield model(f"no number of shards is enough: {needed.reason}")
    if load.writes and load.item_write_units(shards) > load.item_write_units(1):
        yield rule(
            f"the suffix makes an item of {load.item_size:,} bytes one of {load.stored_size(shards):,}: "
            f"{number(load.item_write_units(shards))} write units instead of {number(load.item_write_units(1))}",
            _UNITS,
            _UNITS_PAGE,
        )
    yield from _hot_indexes(load, shards)
    if needed.shards is None or shards == 1:
        return
    if load.write_units(1) <= load.limit * PARTITION_WRITE_UNITS:
        yield rule(
            "one partition serves the writes, it is the reads that ask for shards: look in a cache first; and one item "
            "that is read by all is on one shard, however many there are",
            "Cache Popular Items",
        )
    extra = load.queries * (
        load.query_read_units(shards, load.items_of_query) - load.query_read_units(1, load.items_of_query)
    )
    gained = max(0.0, load.write_units(shards) - load.limit * PARTITION_WRITE_UNITS)
    if extra / PARTITION_READ_UNITS > gained / PARTITION_WRITE_UNITS:
        yield model(
            f"sharding costs more than it brings: queries take {number(extra)} read units a second more, the "
            f"throughput of {counted(extra / PARTITION_READ_UNITS, 'partition')}, for {number(gained)} write units a "
            f"second that one partition does not serve, the throughput of {number(gained / PARTITION_WRITE_UNITS)}"
        )


def _hot_indexes(load: KeyLoad, shards: int) -> Iterator[Statement]:
    for index in load.indexes:
        if index.hottest_share is None:
            continue
        hottest = load.index_write_units(index, shards) * index.hottest_share
        if hottest > load.limit * PARTITION_WRITE_UNITS:
            yield rule(
                f"index {index.name} has a hot key of its own, with {number(hottest)} write units a second of the "
                f"{PARTITION_WRITE_UNITS:,} that a partition serves: it throttles the table's writes however many "
                "shards there are; give the index a key with more values",
                "provisioned throughput considerations",
                "Global Secondary Indexes",
            )
