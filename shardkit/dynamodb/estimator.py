"""What a request will cost, by the rules: units of its table and of each of the table's indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from shardkit.dynamodb.schema import Index, KeySchema, indexes_of
from shardkit.dynamodb.sizes import SizedItem, sized
from shardkit.dynamodb.units import read_units, write_units
from shardkit.errors import ConfigurationError

Item: TypeAlias = Mapping[str, Any]
"""An item in Python values or in wire values."""


@dataclass(frozen=True, slots=True)
class TableUnits:
    """Capacity units on one table: read units of a read, write units of a write, by where they are charged.

    Example:
        >>> units = TableUnits(1.0, global_indexes={"ByCustomer": 2.0}) + TableUnits(3.0)
        >>> units.table, units.global_indexes, units.total
        (4.0, {'ByCustomer': 2.0}, 6.0)

    Args:
        table: units of the table itself.
        local_indexes: units of each local secondary index; one that was charged nothing is not there.
        global_indexes: units of each global secondary index, likewise.

    Source:
        DynamoDB API reference, ``ConsumedCapacity``: what it has under ``Table``, ``LocalSecondaryIndexes`` and
        ``GlobalSecondaryIndexes`` where a request asks for ``INDEXES``.
    """

    table: float = 0.0
    local_indexes: Mapping[str, float] = field(default_factory=dict)
    global_indexes: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Units of the table and all its indexes; ``CapacityUnits`` in a response."""
        return self.table + sum(self.local_indexes.values()) + sum(self.global_indexes.values())

    def consumed(self, table: str, *, indexes: bool = False) -> dict[str, Any]:
        """Give them as a response's ``ConsumedCapacity``.

        Args:
            table: the table's name.
            indexes: whether ``INDEXES`` were asked for, and not the ``TOTAL`` alone.
        """
        consumed: dict[str, Any] = {"TableName": table, "CapacityUnits": self.total}
        if indexes:
            consumed["Table"] = {"CapacityUnits": self.table}
            for name, parts in (
                ("LocalSecondaryIndexes", self.local_indexes),
                ("GlobalSecondaryIndexes", self.global_indexes),
            ):
                if parts:
                    consumed[name] = {index: {"CapacityUnits": units} for index, units in parts.items()}
        return consumed

    def __add__(self, other: TableUnits) -> TableUnits:
        """Add part by part: of requests on one table that both read or both write."""
        if not isinstance(other, TableUnits):
            return NotImplemented
        return TableUnits(
            self.table + other.table,
            _added(self.local_indexes, other.local_indexes),
            _added(self.global_indexes, other.global_indexes),
        )


def _added(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in (*a, *(name for name in b if name not in a))}


class ItemChange(NamedTuple):
    """What one write does to an item: a put of a new item is ``ItemChange(None, item)``, a delete ``(item, None)``.

    An update that changes nothing and a condition check of a transaction have the same item on both sides.

    Args:
        before: the item as it is; None where there is none.
        after: the item as it will be; None where it is deleted.
    """

    before: Item | None
    after: Item | None


class CapacityEstimator:
    """Says what requests on one table will cost, on the table and on each of its indexes.

    Example:
        >>> estimator = CapacityEstimator({
        ...     "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}],
        ...     "GlobalSecondaryIndexes": [{
        ...         "IndexName": "ByCustomer",
        ...         "KeySchema": [{"AttributeName": "Customer", "KeyType": "HASH"}],
        ...         "Projection": {"ProjectionType": "KEYS_ONLY"},
        ...     }],
        ... })
        >>> estimator.put_item({"Date": "2014-07-09", "Customer": "C1", "Note": "x" * 1500})
        TableUnits(table=2.0, local_indexes={}, global_indexes={'ByCustomer': 1.0})

    Each method has the name of a DynamoDB operation, and costs no request. Items are given as Python values or as wire
    values (see :func:`item_size`), and whole: what a read filters or projects away is paid for too. Where an item is
    None, there is none.

    Args:
        description: the table, as DescribeTable answers under ``Table``, or as CreateTable takes it:
            ``table.meta.client.describe_table(TableName=table.name)["Table"]``.

    Raises:
        ConfigurationError: the key schema, an index or its projection cannot be read.
        InvalidKeyError: by the methods: an item is no mapping of names to values.
        InvalidValueError: by the methods: an item holds what DynamoDB cannot hold.

    Cost:
        No request. A method takes one pass over each item, and one over what each index that does not project all
        attributes holds of it.

    Source:
        DynamoDB Developer Guide, "DynamoDB read and write operations" (capacity unit consumption), and, for indexes,
        "Provisioned throughput considerations" of global and of local secondary indexes.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        if not isinstance(description, Mapping) or "KeySchema" not in description:
            raise ConfigurationError(
                f"a table is estimated by its description, got {description!r:.200}; give what DescribeTable answers "
                'under "Table"'
            )
        keys = KeySchema.of(description["KeySchema"], f"table {description.get('TableName')!r}")
        self._indexes = {index.name: index for index in indexes_of(description, keys)}

    # -- reads

    def get_item(self, item: Item | None, *, consistent: bool = False) -> TableUnits:
        """Give the read units of a GetItem.

        Example:
            >>> CapacityEstimator({"KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}]}).get_item(None).table
            0.5

        Args:
            item: what is found.
            consistent: strongly consistent (``ConsistentRead=True``).
        """
        return self.batch_get_item([item], consistent=consistent)

    def batch_get_item(self, items: Iterable[Item | None], *, consistent: bool = False) -> TableUnits:
        """Give the read units of this table in a BatchGetItem, which rounds each item.

        Args:
            items: what is found, with a None for each key that has no item.
            consistent: strongly consistent (``ConsistentRead=True``).
        """
        return TableUnits(sum((read_units(_size(item), consistent=consistent) for item in items), 0.0))

    def transact_get_items(self, items: Iterable[Item | None]) -> TableUnits:
        """Give the read units of this table in a TransactGetItems: of each item twice a strongly consistent read's.

        Args:
            items: what is found, with a None for each key that has no item.
        """
        return TableUnits(sum((read_units(_size(item), transactional=True) for item in items), 0.0))

    def query(
        self, items: Iterable[Item], *, index: str | None = None, consistent: bool = False, fetch: bool = False
    ) -> TableUnits:
        """Give the read units of a Query: of one request, which reads at most 1 MB.

        Args:
            items: all items of the table that it evaluates, before its filter and projection; those that are not in the
                index cost nothing.
            index: the index that it reads, where each item has the size of what is projected.
            consistent: strongly consistent (``ConsistentRead=True``).
            fetch: it asks a local secondary index for attributes that are not projected: each item is then fetched from
                the table, and is rounded alone.

        Raises:
            ConfigurationError: the table has no such index; or the index is a global one, which has no consistent reads
                and fetches nothing.
        """
        images = list(map(sized, items))
        if index is None:
            return TableUnits(read_units(sum(image.size for image in images), consistent=consistent))
        read = self._index(index, consistent=consistent, fetch=fetch)
        pairs = [(image.size, entry.size) for image in images if (entry := read.entry(image)) is not None]
        units = {index: read_units(sum(size for _, size in pairs), consistent=consistent)}
        if not read.local:
            return TableUnits(global_indexes=units)
        fetched = (read_units(size, consistent=consistent) for size, _ in pairs)
        return TableUnits(sum(fetched, 0.0) if fetch else 0.0, local_indexes=units)

    def scan(
        self, items: Iterable[Item], *, index: str | None = None, consistent: bool = False, fetch: bool = False
    ) -> TableUnits:
        """Give the read units of a Scan: those of a :meth:`query` that evaluates the same items."""
        return self.query(items, index=index, consistent=consistent, fetch=fetch)

    # -- writes

    def put_item(self, item: Item, *, before: Item | None = None) -> TableUnits:
        """Give the write units of a PutItem.

        Args:
            item: what is put.
            before: the item that it replaces.
        """
        return self._write(_sized(before), sized(item))

    def update_item(self, before: Item | None, after: Item) -> TableUnits:
        """Give the write units of an UpdateItem.

        Args:
            before: the item as it is; an update of none makes one.
            after: the item as it will be, the whole of it.
        """
        return self._write(_sized(before), sized(after))

    def delete_item(self, before: Item | None) -> TableUnits:
        """Give the write units of a DeleteItem.

        Args:
            before: the item that is deleted.
        """
        return self._write(_sized(before), None)

    def failed_condition(self, before: Item | None, after: Item | None = None) -> TableUnits:
        """Give the write units of a put, update or delete whose condition fails; no response ever says them.

        Args:
            before: the item as it is, and stays.
            after: the item as the write would have made it.
        """
        return TableUnits(write_units(max(_size(before), _size(after)) if before is not None else 0))

    def batch_write_item(self, changes: Iterable[ItemChange]) -> TableUnits:
        """Give the write units of this table in a BatchWriteItem: those of its puts and deletes.

        Args:
            changes: what becomes of each item.
        """
        return self._writes(changes)

    def transact_write_items(self, changes: Iterable[ItemChange]) -> TableUnits:
        """Give the write units of this table in a TransactWriteItems: double on the table, and not on its indexes.

        Args:
            changes: what becomes of each item; for a condition check, the same item before and after.
        """
        return self._writes(changes, transactional=True)

    def _writes(self, changes: Iterable[ItemChange], *, transactional: bool = False) -> TableUnits:
        units = (self._write(_sized(before), _sized(after), transactional=transactional) for before, after in changes)
        return sum(units, TableUnits())

    def _write(self, before: SizedItem | None, after: SizedItem | None, *, transactional: bool = False) -> TableUnits:
        size = max(image.size if image is not None else 0 for image in (before, after))
        local: dict[str, float] = {}
        glob: dict[str, float] = {}
        for index in self._indexes.values():
            units = index.write_units(before, after)
            if units:
                (local if index.local else glob)[index.name] = units
        return TableUnits(write_units(size, transactional=transactional), local, glob)

    def _index(self, name: str, *, consistent: bool, fetch: bool) -> Index:
        index = self._indexes.get(name)
        if index is None:
            raise ConfigurationError(
                f"the table has no index {name!r} (it has {sorted(self._indexes)}); check the name, or describe the "
                "table again"
            )
        if not index.local and (consistent or fetch):
            raise ConfigurationError(
                f"{name!r} is a global secondary index, which is read eventually consistent and as far as it is "
                f"projected, got consistent={consistent}, fetch={fetch}; leave them out, or read the table"
            )
        return index


def _sized(item: Item | None) -> SizedItem | None:
    return None if item is None else sized(item)


def _size(item: Item | None) -> int:
    return 0 if item is None else sized(item).size
