"""Why a key needs so many shards, and where sharding does not help or costs more than it brings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardkit.capacity.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS
from shardkit.partitions.key_load import MOST_SHARDS, Fit, KeyLoad
from shardkit.partitions.statements import Statement, counted, model, number, percent, rule

__all__ = ["shard_reasoning", "shard_warnings"]

_UNITS_PAGE = "Working with Tables"
_PARTITIONS_PAGE = "Partitions and data distribution"
_UNITS = "Item Size Calculations"


def shard_reasoning(load: KeyLoad, shards: int, least: int, table: Fit) -> Iterator[Statement]:
    """State the rules and the models that a number of shards comes from."""
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
        + (f": at least {counted(least, 'shard')}" if table.most else "")
    )
    if shards == 1:
        return
    yield model(
        "each shard is on any partition with the same probability, all partitions have equal parts of the keys, and "
        f"all shards are equally hot: {table.partitions:,} partitions get "
        f"{counted(shards / table.partitions, 'shard')} on average, and the fullest at most {table.most:,} with a "
        f"probability of {percent(table.probability)} (exact)"
    )
    yield model(
        "a hot partition takes up to what a partition serves, also where its part of the provisioned throughput is "
        "less, as long as the table has units left: by adaptive capacity, which the guide calls best effort"
    )
    if load.partitions is None:
        yield model(
            "the table has as many partitions as twice the load needs, as an on-demand table has for its earlier peak"
        )
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


def shard_warnings(load: KeyLoad, shards: int, fits: Iterable[Fit], probability: float) -> Iterator[Statement]:
    """State what stands against it."""
    for fit in fits:
        if fit.probability < probability:
            yield _unreached(load, shards, fit)
    if load.writes and load.item_write_units(shards) > load.item_write_units(1):
        yield rule(
            f"the suffix makes an item of {load.item_size:,} bytes one of {load.stored_size(shards):,}: "
            f"{number(load.item_write_units(shards))} write units instead of {number(load.item_write_units(1))}",
            _UNITS,
            _UNITS_PAGE,
        )
    yield from _hot_indexes(load, shards)
    if shards == 1:
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


def _unreached(load: KeyLoad, shards: int, fit: Fit) -> Statement:
    where = "the table's" if fit.index is None else f"index {fit.index}'s"
    asked = load.queries * load.query_read_units(1, 0)
    if fit.index is None and asked > load.limit * PARTITION_READ_UNITS:
        return model(
            f"no number of shards serves this load on {where} partitions: every Query asks every shard, and "
            f"{number(load.queries)} of them a second take {number(asked)} read "
            "units a second of each at least; query less often, or keep a copy of what is read"
        )
    return model(
        f"with {shards:,} shards the fullest of {where} {fit.partitions:,} partitions is asked for too much with a "
        f"probability of {percent(1 - fit.probability)}, and no number of shards up to {MOST_SHARDS:,} is enough: more "
        "partitions are needed"
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
