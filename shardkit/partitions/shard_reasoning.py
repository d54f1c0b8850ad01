"""Why a key needs so many shards, and where sharding does not help or costs more than it brings."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.analysis.shards import ShardsNeeded
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS
from shardkit.partitions.key_load import KeyLoad
from shardkit.partitions.statements import Statement, counted, model, number, rule

__all__ = ["shard_reasoning", "shard_warnings"]

_UNITS_PAGE = "Working with Tables"
_PARTITIONS_PAGE = "Partitions and data distribution"
_UNITS = "Item Size Calculations"


def shard_reasoning(load: KeyLoad, shards: int, needed: ShardsNeeded) -> Iterator[Statement]:
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


def shard_warnings(load: KeyLoad, shards: int, needed: ShardsNeeded) -> Iterator[Statement]:
    """State what stands against it."""
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
