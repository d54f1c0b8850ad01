"""The reads and writes of items in a request, one by one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shardkit.dynamodb.estimator import ItemChange, TableUnits
from shardkit.dynamodb.units import read_units, table_name
from shardkit.dynamodb.values import comparable_item
from shardkit.testing.partitioned import Cost, Item, PartitionedTable

__all__ = ["Action", "Identity", "Request", "Tables", "actions_of"]

Tables = Mapping[str, PartitionedTable]
"""What is simulated, by the table's name."""

Identity = tuple[str, Hashable]
"""An item: its table's name, and its primary key."""

_Kind = Literal["check", "delete", "get", "put", "update"]
_SINGLE: Mapping[str, _Kind] = {"DeleteItem": "delete", "GetItem": "get", "PutItem": "put", "UpdateItem": "update"}
_OF_BATCH: Mapping[str, _Kind] = {"DeleteRequest": "delete", "PutRequest": "put"}
_OF_TRANSACTION: Mapping[str, _Kind] = {
    "ConditionCheck": "check",
    "Delete": "delete",
    "Get": "get",
    "Put": "put",
    "Update": "update",
}


@dataclass(frozen=True)
class Request:
    """A request to the engine: the API's operation name, and its parameters as in the body."""

    operation: str
    params: Mapping[str, Any]

    @property
    def transactional(self) -> bool:
        """Whether it is a transaction, which costs double."""
        return "TransactItems" in self.params


@dataclass(frozen=True, kw_only=True)
class Action:
    """One read or write of an item.

    Args:
        table: its table.
        given: that one's name in the request, which may be an ARN.
        place: its place in the request, or in its table's part of a batch.
        kind: what it does; ``check`` is a transaction's ConditionCheck.
        key: the item's primary key.
        item: what is put.
        consistent: of a read, strongly consistent.
        projected: of a read, not the whole item is asked for.
        transactional: in a transaction.
    """

    table: PartitionedTable
    given: str
    place: int
    kind: _Kind
    key: Item
    item: Item | None = None
    consistent: bool = False
    projected: bool = False
    transactional: bool = False

    @property
    def identity(self) -> Identity:
        """Which item it is about."""
        return self.table.name, comparable_item(self.key)

    def expected(self, before: Item | None) -> Cost:
        """Say what it costs as far as that is known before it: all, but of a read and of an update the least."""
        if self.kind == "get":
            least = read_units(0, consistent=self.consistent, transactional=self.transactional)
            return self.table.read(None, self.key, TableUnits(least))
        return self.took(before, {"delete": None, "put": self.item}.get(self.kind, before))

    def took(self, before: Item | None, after: Item | None) -> Cost:
        """Say what it took, by the item before and after it; of a read, by what was found."""
        if self.kind != "get":
            return self.table.write(self.key, ItemChange(before, after), transactional=self.transactional)
        estimator = self.table.admission.estimator
        if self.transactional:
            units = estimator.transact_get_items([after])
        else:
            units = estimator.get_item(after, consistent=self.consistent)
        return self.table.read(None, self.key, units)

    def failed(self, before: Item | None) -> Cost:
        """Say what it took where its condition failed."""
        units = self.table.admission.estimator.failed_condition(before, self.item)
        return self.table.write(self.key, ItemChange(before, before), units=units)


def actions_of(request: Request, tables: Tables) -> list[Action]:
    """Give the actions of a request on tables that are simulated.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: it is no such request; the engine says what is wrong.
    """
    params = request.params
    if "RequestItems" in params:
        return list(_of_batch(request, tables))
    if "TransactItems" in params:
        return list(_of_transaction(request, tables))
    table = tables[table_name(params["TableName"])]
    return [_action(table, params["TableName"], 0, _SINGLE[request.operation], params, params)]


def _of_batch(request: Request, tables: Tables) -> Iterator[Action]:
    for given, part in request.params["RequestItems"].items():
        table = tables.get(table_name(given))
        if table is None:
            continue
        if request.operation == "BatchGetItem":
            for place, key in enumerate(part["Keys"]):
                yield _action(table, given, place, "get", {"Key": key}, part)
            continue
        for place, entry in enumerate(part):
            ((kind, body),) = entry.items()
            yield _action(table, given, place, _OF_BATCH[kind], body, {})


def _of_transaction(request: Request, tables: Tables) -> Iterator[Action]:
    for place, entry in enumerate(request.params["TransactItems"]):
        ((kind, body),) = entry.items()
        table = tables.get(table_name(body["TableName"]))
        if table is not None:
            yield _action(table, body["TableName"], place, _OF_TRANSACTION[kind], body, body, transactional=True)


def _action(
    table: PartitionedTable,
    given: str,
    place: int,
    kind: _Kind,
    body: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    transactional: bool = False,
) -> Action:
    item = body["Item"] if kind == "put" else None
    return Action(
        table=table,
        given=given,
        place=place,
        kind=kind,
        key=table.primary_key(body["Key"] if item is None else item),
        item=item,
        consistent=bool(options.get("ConsistentRead")),
        projected="ProjectionExpression" in options or "AttributesToGet" in options,
        transactional=transactional,
    )
