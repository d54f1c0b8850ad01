"""What a scenario says: a table, its items, and the ways in which it is written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shardkit.bulk.load_machine import WINDOW
from shardkit.dynamodb.schema import KeySchema
from shardkit.partitions.scenarios.distributions import Distribution
from shardkit.partitions.scenarios.items import Order
from shardkit.partitions.scenarios.retries import ATTEMPTS
from shardkit.strategies import Strategy, Unsharded

Tool = Literal["batch_writer", "bulk_load", "put_item"]
Operation = Literal["query", "get_item"]


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """What a table, or a global index, has of partitions and throughput (``shardkit.partitions.model``)."""

    read_units: float | None
    write_units: float | None
    on_demand: bool
    partitions: int | None
    burst_seconds: float
    adaptive_seconds: float | None
    split_for_heat: float | None


@dataclass(frozen=True, kw_only=True)
class Index:
    """A global secondary index; ``projection`` and ``included`` say what it holds of an item beside the keys."""

    name: str
    keys: KeySchema
    projection: str
    included: tuple[str, ...]
    throughput: Throughput


@dataclass(frozen=True, kw_only=True)
class Table:
    """The table."""

    name: str
    keys: KeySchema
    throughput: Throughput
    indexes: tuple[Index, ...] = ()

    def description(self, types: Mapping[str, str]) -> dict[str, Any]:
        """Give it as CreateTable takes it, with the types of its key attributes."""
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

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the table and its indexes are keyed by, or project by name."""
        names = dict.fromkeys(self.keys.names)
        for index in self.indexes:
            names |= dict.fromkeys((*index.keys.names, *index.included))
        return tuple(names)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data file that the items are read from; ``options`` are those of ``shardkit load``."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ItemsSettings:
    """How many items of which size, and how their attributes are distributed; or the file that has them."""

    number: int | None
    size: tuple[int, int] = (0, 0)
    attributes: Mapping[str, Distribution] = field(default_factory=dict)
    source: Source | None = None


@dataclass(frozen=True, kw_only=True)
class Load:
    """How the items are written.

    Args:
        tool: boto3's ``batch_writer``, ``bulk_load``, or ``put_item`` at a rate.
        order: in which order the tool gets the items.
        workers: of ``bulk_load``: batches on their way at once; of ``batch_writer``: threads, each with one of its own.
        window: of ``bulk_load``: items that wait to be interleaved.
        cursors: of ``bulk_load``: at how many places, evenly spaced, the items are read in turn.
        write_units: of ``bulk_load``: write units a second, or a share of the table's.
        per_second: of ``put_item``: items a second, whatever the answers.
        seconds: of ``put_item``: for how long; None: until every item was written once.
        attempts: of ``batch_writer`` and ``put_item``: tries of a request, the first one included.
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
class Reads:
    """Reads at a rate, of keys as hot as the items': a Query of the whole key, merged over its shards, or a GetItem.

    Args:
        operation: ``query`` or ``get_item``.
        per_second: how many are begun a second, whatever the answers.
        seconds: for how long; None: as long as the load takes.
        limit: of ``query``: items to read, the first in sort-key order; None: all.
        consistent: whether they are strongly consistent.
        attempts: of ``get_item``: tries of a request, the first one included.
    """

    operation: Operation
    per_second: float
    seconds: float | None = None
    limit: int | None = None
    consistent: bool = False
    attempts: int = ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to write and read the table: a row of the answer."""

    name: str
    table: Table
    strategy: Strategy
    load: Load | None = None
    reads: Reads | None = None

    @property
    def described(self) -> str:
        """What the way does, in short: a name where the scenario gives none."""
        parts: list[str] = []
        if self.load is not None:
            parts += [self.load.tool, *({self.load.order} - {"as given"})]
        if self.reads is not None:
            parts.append(self.reads.operation)
        if not isinstance(self.strategy, Unsharded):
            parts.append(repr(self.strategy))
        return ", ".join(parts)

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes of an item that matter: keys of the table and its indexes, and what a suffix is made of."""
        return frozenset((*self.table.attributes, *(self.strategy.by_attributes or ())))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is simulated.

    Args:
        items: the items, the same for all ways.
        ways: the ways that are compared.
        seed: what the random numbers begin with: the same seed gives the same run.
        latency_seconds: the least and the most seconds that a request takes.
    """

    items: ItemsSettings
    ways: tuple[Way, ...]
    seed: int = 1
    latency_seconds: tuple[float, float] = (0.005, 0.010)

    @property
    def keys(self) -> KeySchema:
        """The table's keys, which are the same in all ways."""
        return self.ways[0].table.keys

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes of an item that matter to any way."""
        return frozenset[str]().union(*(way.attributes for way in self.ways))


def _described(keys: KeySchema, throughput: Throughput) -> dict[str, Any]:
    schema = [{"AttributeName": name, "KeyType": "HASH"} for name in keys.partition]
    schema += [{"AttributeName": name, "KeyType": "RANGE"} for name in keys.sort]
    if throughput.on_demand:
        return {"KeySchema": schema, "BillingMode": "PAY_PER_REQUEST"}
    units = {"ReadCapacityUnits": throughput.read_units or 0, "WriteCapacityUnits": throughput.write_units or 0}
    return {"KeySchema": schema, "ProvisionedThroughput": units}
