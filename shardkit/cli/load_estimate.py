"""What a load would write where: every record read, checked and counted, nothing sent."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shardkit import ShardedTable
from shardkit.bulk.pacing import write_rate
from shardkit.bulk.report import ShardTally
from shardkit.bulk.sources.base import BadRecord, Source
from shardkit.bulk.writes import Writes
from shardkit.capacity.units import PARTITION_WRITE_UNITS
from shardkit.codec import sized_to_wire_item

__all__ = ["Estimate", "estimate", "rate_of"]

_MOST_KEYS = 100_000
_SHOWN = 20


@dataclass
class Estimate:
    """What would be written: puts of new items, into the table and not its indexes."""

    rate: float | None
    items: int = 0
    failed: int = 0
    bytes: int = 0
    write_units: int = 0
    shard_items: Counter[int | None] = field(default_factory=Counter)
    shard_units: Counter[int | None] = field(default_factory=Counter)
    key_units: Counter[Any] = field(default_factory=Counter)
    failures: list[tuple[str | int, str]] = field(default_factory=list)

    @property
    def per_shard(self) -> dict[int | None, ShardTally]:
        """What each shard would take."""
        shards = sorted(self.shard_items, key=lambda shard: -1 if shard is None else shard)
        return {shard: ShardTally(self.shard_items[shard], self.shard_units[shard]) for shard in shards}

    @property
    def seconds(self) -> float | None:
        """At the given rate; None: there is none."""
        return None if self.rate is None else self.write_units / self.rate

    @property
    def hottest(self) -> tuple[Any, int] | None:
        """The stored partition key that would take the most write units."""
        return next(iter(self.key_units.most_common(1)), None)

    def to_dict(self) -> dict[str, Any]:
        """Give it for machines."""
        hottest = self.hottest
        return {
            "items": self.items,
            "failed": self.failed,
            "bytes": self.bytes,
            "write_units": self.write_units,
            "seconds": self.seconds,
            "hottest_key": None if hottest is None else {"key": str(hottest[0]), "write_units": hottest[1]},
            "hottest_key_seconds": None if hottest is None else hottest[1] / PARTITION_WRITE_UNITS,
            "per_shard": [
                {"shard": shard, "items": tally.items, "write_units": tally.write_units}
                for shard, tally in self.per_shard.items()
            ],
            "failures": [{"place": place, "reason": reason} for place, reason in self.failures],
        }


def estimate(source: Source, table: ShardedTable, rate: float | None) -> Estimate:
    """Read a source to its end and count; random suffixes are drawn, but are others than the load's."""
    sharding = table.carrier.run(table.carrier.requests.known())
    draw = random.Random(0)  # noqa: S311 - spreads load, keeps no secret
    writes = Writes(sharding, lambda _place: draw.random())
    guess = Estimate(rate)
    for place, record in source.read():
        guess.items += 1
        try:
            if isinstance(record, BadRecord):
                raise record.error  # noqa: TRY301 - told in one place
            write = writes.put(record, place)
        except Exception as error:  # noqa: BLE001 - of whatever kind: the item could not be written
            guess.failed += 1
            if len(guess.failures) < _SHOWN:
                guess.failures.append((source.where(place), str(error)))
            continue
        guess.bytes += sized_to_wire_item(record)[1] + sharding.suffix_bytes(write.shard)
        guess.write_units += write.units
        guess.shard_items[write.shard] += 1
        guess.shard_units[write.shard] += write.units
        guess.key_units[write.identity[0]] += write.units
        if len(guess.key_units) > _MOST_KEYS:  # the hottest is among those that have taken most so far
            guess.key_units = Counter(dict(guess.key_units.most_common(_MOST_KEYS // 2)))
    return guess


def rate_of(write_units: float | str | None, table: ShardedTable) -> float | None:
    """Give write units a second for a number or a share of the table's.

    Raises:
        ConfigurationError: It is neither.
    """
    rate = write_rate(write_units)
    if rate is None or not isinstance(write_units, str):
        return rate
    described: Any = table.table
    provisioned = (described.provisioned_throughput or {}).get("WriteCapacityUnits")
    units = provisioned or (getattr(described, "warm_throughput", None) or {}).get("WriteUnitsPerSecond")
    return rate * float(units) if units else None
