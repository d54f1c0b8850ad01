"""What each read or write of an item in a request costs on a simulated table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.dynamodb.estimator import ItemChange, TableUnits
from shardkit.dynamodb.requests import Access, accesses_of
from shardkit.dynamodb.units import read_units, table_name
from shardkit.dynamodb.values import comparable_item
from shardkit.testing.partitioned import Cost, Item, PartitionedTable

Tables = Mapping[str, PartitionedTable]
Identity = tuple[str, Hashable]  # a table's name, and an item's primary key


@dataclass(frozen=True)
class EngineRequest:
    """A request to the engine: the API's operation name, and its parameters as in the HTTP body."""

    operation: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Action:
    """One read or write of an item in a simulated table; ``key`` is the item's primary key."""

    table: PartitionedTable
    access: Access
    key: Item

    @property
    def kind(self) -> str:
        return self.access.kind

    @property
    def item(self) -> Item | None:
        return self.access.attributes if self.kind == "put" else None

    @property
    def identity(self) -> Identity:
        return self.table.name, comparable_item(self.key)

    def expected(self, before: Item | None) -> Cost:
        """Return the cost known in advance: the least of a get or an update, the exact one of other writes."""
        if self.kind == "get":
            access = self.access
            least = read_units(0, consistent=access.consistent, transactional=access.transactional)
            return self.table.read(None, self.key, TableUnits(least))
        return self.took(before, {"delete": None, "put": self.item}.get(self.kind, before))

    def took(self, before: Item | None, after: Item | None) -> Cost:
        """Return the cost by the item before and after a write; of a read, by the item ``after`` that it found."""
        transactional = self.access.transactional
        if self.kind != "get":
            return self.table.write(self.key, ItemChange(before, after), transactional=transactional)
        estimator = self.table.admission.estimator
        if transactional:
            units = estimator.transact_get_items([after])
        else:
            units = estimator.get_item(after, consistent=self.access.consistent)
        return self.table.read(None, self.key, units)

    def failed(self, before: Item | None) -> Cost:
        """Return the cost of a write whose condition failed."""
        units = self.table.admission.estimator.failed_condition(before, self.item)
        return self.table.write(self.key, ItemChange(before, before), units=units)


def actions_of(request: EngineRequest, tables: Tables) -> list[Action]:
    """Return a request's reads and writes of items in simulated tables.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the request does not have the API's shape.
    """
    accesses = ((table_name(access.table), access) for access in accesses_of(request.operation, request.params))
    return [
        Action(tables[name], access, tables[name].primary_key(access.attributes))
        for name, access in accesses
        if name in tables
    ]
