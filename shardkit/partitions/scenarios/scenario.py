"""The parts of a scenario: tables, items, and the ways to write and read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shardkit.bulk.load_machine import WINDOW
from shardkit.dynamodb.schema import KeySchema
from shardkit.partitions.scenarios.clients import ATTEMPTS
from shardkit.partitions.scenarios.distributions import Distribution
from shardkit.strategies import Strategy, Unsharded

Order = Literal["as given", "sorted", "random"]
Tool = Literal["batch_writer", "bulk_load", "put_item"]
Operation = Literal["query", "get_item"]
ThroughputEntries = Mapping[str, Any]
"""The partitions and throughput of a table or a global index: arguments of :class:`Partitions`."""


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """A global secondary index; ``included`` lists its projected attributes, if ``projection`` is ``"INCLUDE"``."""

    name: str
    keys: KeySchema
    projection: str
    included: tuple[str, ...]
    throughput: ThroughputEntries


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    name: str
    keys: KeySchema
    throughput: ThroughputEntries
    indexes: tuple[IndexSettings, ...] = ()

    def description(self, types: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of CreateTable; ``types`` are those of the key attributes."""
        keys = dict.fromkeys(name for one in (self.keys, *(index.keys for index in self.indexes)) for name in one.names)
        return {
            "TableName": self.name,
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": types.get(name, "S")} for name in keys],
            **_described(self.keys, self.throughput),
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": index.name,
                    "Projection": {"ProjectionType": index.projection, "NonKeyAttributes": list(index.included)},
                    **_described(index.keys, index.throughput),
                }
                for index in self.indexes
            ],
        }


@dataclass(frozen=True, kw_only=True)
class ItemsSettings:
    """The number, the least and most bytes, and the distributions of the items; or the file that has them.

    ``source_options`` are those of ``shardkit load``.
    """

    number: int | None
    size: tuple[int, int] = (0, 0)
    attributes: Mapping[str, Distribution] = field(default_factory=dict)
    source: str | None = None
    source_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """How the items are written.

    Args:
        tool: boto3's ``batch_writer``, ``bulk_load``, or ``put_item`` at a rate.
        order: the order of the items.
        workers: ``bulk_load``: batches in flight at once; ``batch_writer``: threads, each with its own batch writer.
        window: ``bulk_load``: items that wait to be interleaved.
        cursors: ``bulk_load``: the number of places, evenly spaced, at which the items are read in turn.
        write_units: ``bulk_load``: write units a second, or a share of the table's.
        per_second: ``put_item``: items a second, whatever the answers.
        seconds: ``put_item``: the duration; None: until every item is written once.
        attempts: ``batch_writer`` and ``put_item``: tries of a request, including the first.
    """

    tool: Tool
    order: Order = "as given"
    workers: int = 10
    window: int = WINDOW
    cursors: int = 1
    write_units: float | str | None = None
    per_second: float = 0.0
    seconds: float | None = None
    attempts: int = ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Memory for popular items, as of ``CachedTable``: its bytes, and the seconds for which a copy is served."""

    max_bytes: int
    ttl: float = 60.0


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Reads at a rate; the more items a key has, the more often it is read.

    Args:
        operation: ``query`` (the whole key, merged over its shards) or ``get_item``.
        per_second: reads started a second, whatever the answers.
        seconds: the duration; None: as long as the load takes.
        limit: ``query``: items to read, the first in sort-key order; None: all.
        consistent: whether reads are strongly consistent.
        attempts: ``get_item``: tries of a request, including the first.
        zipf: ``get_item``: the item of rank r is read in proportion to 1 / r ** zipf; 0: all items are read alike.
        cache: ``get_item``: what answers reads of popular items; None: the table answers all.
    """

    operation: Operation
    per_second: float
    seconds: float | None = None
    limit: int | None = None
    consistent: bool = False
    attempts: int = ATTEMPTS
    zipf: float = 0.0
    cache: CacheSettings | None = None


@dataclass(frozen=True, kw_only=True)
class Way:
    name: str
    table: TableSettings
    strategy: Strategy
    load: LoadSettings | None = None
    reads: ReadSettings | None = None

    @property
    def described(self) -> str:
        parts: list[str] = []
        if self.load is not None:
            parts += [self.load.tool, *({self.load.order} - {"as given"})]
        if self.reads is not None:
            parts.append(self.reads.operation + (" with a cache" if self.reads.cache is not None else ""))
        if not isinstance(self.strategy, Unsharded):
            parts.append(repr(self.strategy))
        return ", ".join(parts)

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that decide where an item is stored: keys, and those that a suffix is calculated from."""
        names = frozenset((*self.table.keys.names, *(self.strategy.by_attributes or ())))
        return names.union(*((*index.keys.names, *index.included) for index in self.table.indexes))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Items, and the ways to compare; ``latency_seconds``: the least and the most seconds that a request takes."""

    items: ItemsSettings
    ways: tuple[Way, ...]
    seed: int
    latency_seconds: tuple[float, float]

    @property
    def keys(self) -> KeySchema:
        """The keys of the table, which are the same in all ways."""
        return self.ways[0].table.keys

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that decide where an item is stored, in any way."""
        return frozenset[str]().union(*(way.attributes for way in self.ways))


def _described(keys: KeySchema, throughput: ThroughputEntries) -> dict[str, Any]:
    schema = [{"AttributeName": name, "KeyType": "HASH"} for name in keys.partition]
    schema += [{"AttributeName": name, "KeyType": "RANGE"} for name in keys.sort]
    if throughput["on_demand"]:
        return {"KeySchema": schema, "BillingMode": "PAY_PER_REQUEST"}
    units = {"ReadCapacityUnits": throughput["read_units"] or 0, "WriteCapacityUnits": throughput["write_units"] or 0}
    return {"KeySchema": schema, "ProvisionedThroughput": units}
