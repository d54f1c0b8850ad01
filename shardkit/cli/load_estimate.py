"""Estimate what a load would write where: read, check and count every record, and send nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from shardkit.bulk.one_shard import OneShard
from shardkit.bulk.pacing import WriteRate
from shardkit.bulk.report import ShardTally
from shardkit.bulk.sources.base import BadRecord, Source
from shardkit.bulk.writes import Writes
from shardkit.capacity import CapacityEstimator, TableUnits
from shardkit.core.shares import SharedRates
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS
from shardkit.table import ShardedTable

_MOST_KEYS = 100_000
_SHOWN = 20


@dataclass
class Estimate:
    """What a load would write, if all items are new.

    Attributes:
        units: Write units of the table and of each index.
    """

    rate: WriteRate
    one_shard: OneShard
    items: int = 0
    failed: int = 0
    bytes: int = 0
    units: TableUnits = field(default_factory=TableUnits)
    shard_items: Counter[int | None] = field(default_factory=Counter)
    shard_units: Counter[int | None] = field(default_factory=Counter)
    key_units: Counter[Any] = field(default_factory=Counter)
    failures: list[tuple[str | int, str]] = field(default_factory=list)

    @property
    def per_shard(self) -> dict[int | None, ShardTally]:
        shards = sorted(self.shard_items, key=lambda shard: -1 if shard is None else shard)
        return {shard: ShardTally(self.shard_items[shard], self.shard_units[shard]) for shard in shards}

    @property
    def slowest(self) -> tuple[str | None, float]:
        """The global index that takes longest (None for the table and its local indexes), and its units at the rate."""
        own = self.units.table + sum(self.units.local_indexes.values())
        return self.rate.slowest(own, self.units.global_indexes)

    @property
    def seconds(self) -> float | None:
        """Seconds until the slowest has everything at the given rate; None without a rate."""
        return None if self.rate.units is None else self.slowest[1] / self.rate.units

    @property
    def hottest(self) -> tuple[Any, int] | None:
        """The stored partition key with the most write units, and these."""
        return next(iter(self.key_units.most_common(1)), None)

    @property
    def advice(self) -> list[str]:
        """What the load would advise."""
        return [*self.one_shard.advice(), *(() if self.failed else self.one_shard.missing())]

    def to_dict(self) -> dict[str, Any]:
        hottest = self.hottest
        return {
            "items": self.items,
            "failed": self.failed,
            "bytes": self.bytes,
            "write_units": self.units.total,
            "table_write_units": self.units.table,
            "local_index_write_units": dict(self.units.local_indexes),
            "global_index_write_units": dict(self.units.global_indexes),
            "seconds": self.seconds,
            "slowest_index": self.slowest[0],
            "hottest_key": None if hottest is None else {"key": str(hottest[0]), "write_units": hottest[1]},
            "hottest_key_seconds": None if hottest is None else hottest[1] / PARTITION_WRITE_UNITS,
            "per_shard": [{"shard": shard, **asdict(tally)} for shard, tally in self.per_shard.items()],
            "advice": self.advice,
            "failures": [{"place": place, "reason": reason} for place, reason in self.failures],
        }


def estimate(source: Source, table: ShardedTable, write_units: float | str | SharedRates | None) -> Estimate:
    """Read a source to its end and count; random suffixes differ from those of the load."""
    sharding = table.runner.run(table.runner.programs.to_load())
    description = table.table.meta.client.describe_table(TableName=table.table.name)["Table"]
    estimator = CapacityEstimator(description)
    draw = random.Random(0)  # noqa: S311 - spreads load, keeps no secret
    writes = Writes(sharding, lambda *_: draw.random())
    rate = WriteRate.of(write_units, description)
    if rate.error is not None:
        raise rate.error
    guess = Estimate(rate, OneShard(sharding))
    index_keys = sharding.types.keys() - set(sharding.keys.names)
    for place, record in source.read():
        guess.items += 1
        try:
            if isinstance(record, BadRecord):
                raise record.error  # noqa: TRY301 - reported in one place
            write = writes.put(record, place)
            wire = to_wire_item(record)
            for name in index_keys & wire.keys():
                sharding.checked(name, wire[name], "item")
            if sharding.sharded:
                wire = sharding.sharded.stored(wire, record, draw.random)
            size = item_size(wire)
        except Exception as error:  # noqa: BLE001 - whatever the error, the item could not be written
            guess.failed += 1
            if len(guess.failures) < _SHOWN:
                guess.failures.append((source.where(place), str(error)))
            continue
        guess.bytes += size + sharding.suffix_bytes(wire[sharding.partition_key], write.shard)
        guess.units += estimator.put_item(sharding.stored(wire, write.shard))
        guess.shard_items[write.shard] += 1
        guess.shard_units[write.shard] += write.units
        guess.key_units[write.identity[0]] += write.units
        guess.one_shard.add([write])
        if len(guess.key_units) > _MOST_KEYS:  # the hottest key is among those with most units so far
            guess.key_units = Counter(dict(guess.key_units.most_common(_MOST_KEYS // 2)))
    return guess
