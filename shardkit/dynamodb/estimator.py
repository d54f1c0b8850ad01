"""What a request will cost: units of its table and of each of the table's indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from shardkit.dynamodb.schema import Index, KeySchema, indexes_of
from shardkit.dynamodb.sizes import item_size, sized
from shardkit.dynamodb.units import read_units, write_units
from shardkit.errors import ConfigurationError, brief

Item: TypeAlias = Mapping[str, Any]
"""An item in Python values or in wire values."""


@dataclass(frozen=True, slots=True)
class TableUnits:
    """The capacity units of one request on one table and its indexes: read units of a read, write units of a write.

    Example:
        >>> units = TableUnits(1.0, global_indexes={"ByCustomer": 2.0}) + TableUnits(3.0)
        >>> units.table, units.global_indexes, units.total
        (4.0, {'ByCustomer': 2.0}, 6.0)

    Args:
        table: units of the table itself.
        local_indexes: units of each local secondary index that was charged.
        global_indexes: units of each global secondary index that was charged.

    Source:
        DynamoDB API reference, ``ConsumedCapacity``: its ``Table``, ``LocalSecondaryIndexes`` and
        ``GlobalSecondaryIndexes`` if a request asks for ``INDEXES``.
    """

    table: float = 0.0
    local_indexes: Mapping[str, float] = field(default_factory=dict)
    global_indexes: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Units of the table and all its indexes; ``CapacityUnits`` in a response."""
        return self.table + sum(self.local_indexes.values()) + sum(self.global_indexes.values())

    def consumed(self, table: str, *, indexes: bool = False) -> dict[str, Any]:
        """Return them as a response's ``ConsumedCapacity``.

        Args:
            table: the table's name.
            indexes: as for ``INDEXES``; by default as for ``TOTAL``.
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
        """Add part by part; both must be read units, or both write units, of one table."""
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

    For an update that changes nothing, and for a transaction's condition check, ``before`` and ``after`` are equal.

    Args:
        before: the item before the write; None if it does not exist.
        after: the item as it will be; None if it is deleted.
    """

    before: Item | None
    after: Item | None


class CapacityEstimator:
    """Estimates the units of requests on one table, for the table and each of its indexes.

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

    Each method is named after a DynamoDB operation, and sends no request. Pass items in Python values or wire values
    (see :func:`item_size`), and whole: a read pays also for what it filters or projects away. None means that there is
    no item.

    Args:
        description: the table, as DescribeTable returns it or CreateTable takes it:
            ``table.meta.client.describe_table(TableName=table.name)["Table"]``.

    Raises:
        ConfigurationError: the key schema, an index or its projection is invalid.
        InvalidKeyError: by the methods: an item is not a mapping of names to values.
        InvalidValueError: by the methods: DynamoDB cannot hold a value.

    Cost:
        No request. A method takes one pass over each item, and one over its part in each index that does not project
        all attributes.

    Source:
        DynamoDB Developer Guide, "DynamoDB read and write operations" (capacity unit consumption), and, for indexes,
        "Provisioned throughput considerations" of global and of local secondary indexes.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        if not isinstance(description, Mapping) or "KeySchema" not in description:
            raise ConfigurationError(
                f'description: must be a table\'s description, got {brief(description, 200)}; give the "Table" that '
                "DescribeTable returns"
            )
        keys = KeySchema.of(description["KeySchema"], f"table {description.get('TableName')!r}")
        self._indexes = {index.name: index for index in indexes_of(description, keys)}

    # -- reads

    def get_item(self, item: Item | None, *, consistent: bool = False) -> TableUnits:
        """Return the read units of a GetItem.

        Example:
            >>> CapacityEstimator({"KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}]}).get_item(None).table
            0.5

        Args:
            item: the item found.
            consistent: strongly consistent (``ConsistentRead=True``).
        """
        return self.batch_get_item([item], consistent=consistent)

    def batch_get_item(self, items: Iterable[Item | None], *, consistent: bool = False) -> TableUnits:
        """Return this table's read units of a BatchGetItem, which rounds each item.

        Args:
            items: the items found, and None for each key without an item.
            consistent: strongly consistent (``ConsistentRead=True``).
        """
        return TableUnits(sum((read_units(_size(item), consistent=consistent) for item in items), 0.0))

    def transact_get_items(self, items: Iterable[Item | None]) -> TableUnits:
        """Return this table's read units of a TransactGetItems: for each item, twice those of a consistent read.

        Args:
            items: the items found, and None for each key without an item.
        """
        return TableUnits(sum((read_units(_size(item), transactional=True) for item in items), 0.0))

    def query(
        self, items: Iterable[Item], *, index: str | None = None, consistent: bool = False, fetch: bool = False
    ) -> TableUnits:
        """Return the read units of one page of a Query, which reads at most 1 MB.

        Args:
            items: all items of the table that it evaluates, before filter and projection; items that are not in the
                index cost nothing.
            index: the index that it reads; an item has the size of its projected attributes there.
            consistent: strongly consistent (``ConsistentRead=True``).
            fetch: whether it selects attributes that a local secondary index does not project; each item is then also
                fetched from the table, and rounded alone.

        Raises:
            ConfigurationError: the table does not have the index, or it is a global index, which supports neither
                consistent reads nor fetches.
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
        """Return the read units of one page of a Scan: those of a :meth:`query` that evaluates the same items."""
        return self.query(items, index=index, consistent=consistent, fetch=fetch)

    # -- writes

    def put_item(self, item: Item, *, before: Item | None = None) -> TableUnits:
        """Return the write units of a PutItem.

        Args:
            item: the new item.
            before: the item that it replaces.
        """
        return self._write(before, item)

    def update_item(self, before: Item | None, after: Item) -> TableUnits:
        """Return the write units of an UpdateItem.

        Args:
            before: the item before the update; None if the update creates it.
            after: the whole item as it will be.
        """
        return self._write(before, after)

    def delete_item(self, before: Item | None) -> TableUnits:
        """Return the write units of a DeleteItem.

        Args:
            before: the item that it deletes.
        """
        return self._write(before, None)

    def failed_condition(self, before: Item | None, after: Item | None = None) -> TableUnits:
        """Return the write units of a put, update or delete whose condition fails; no response reports them.

        Args:
            before: the item as it is and remains.
            after: the item that the write would have stored.
        """
        return TableUnits(write_units(max(_size(before), _size(after)) if before is not None else 0))

    def batch_write_item(self, changes: Iterable[ItemChange]) -> TableUnits:
        """Return this table's write units of a BatchWriteItem: those of its puts and deletes.

        Args:
            changes: the change of each item.
        """
        return sum((self._write(*change) for change in changes), TableUnits())

    def transact_write_items(self, changes: Iterable[ItemChange]) -> TableUnits:
        """Return this table's write units of a TransactWriteItems: double on the table, not on its indexes.

        Args:
            changes: the change of each item; for a condition check, the same item before and after.
        """
        return sum((self._write(*change, transactional=True) for change in changes), TableUnits())

    def _write(self, before: Item | None, after: Item | None, *, transactional: bool = False) -> TableUnits:
        old, new = (None if item is None else sized(item) for item in (before, after))
        size = max(image.size if image is not None else 0 for image in (old, new))
        local: dict[str, float] = {}
        glob: dict[str, float] = {}
        for index in self._indexes.values():
            units = index.write_units(old, new)
            if units:
                (local if index.local else glob)[index.name] = units
        return TableUnits(write_units(size, transactional=transactional), local, glob)

    def _index(self, name: str, *, consistent: bool, fetch: bool) -> Index:
        index = self._indexes.get(name)
        if index is None:
            raise ConfigurationError(
                f"index: the table has no index {name!r} (it has {sorted(self._indexes)}); check the name, or describe "
                "the table again"
            )
        if not index.local and (consistent or fetch):
            raise ConfigurationError(
                f"index: consistent={consistent}, fetch={fetch} are not supported by the global secondary index "
                f"{name!r}; omit them, or read the table"
            )
        return index


def _size(item: Item | None) -> int:
    return 0 if item is None else item_size(item)
