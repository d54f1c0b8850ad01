"""Whether the partitions of a table and of its global indexes take a request now: all of it, or nothing of it.

An index that is short of throughput throttles the writes to its table (back-pressure).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shardkit.dynamodb.estimator import CapacityEstimator, ItemChange, TableUnits
from shardkit.dynamodb.schema import Index, KeySchema, indexes_of
from shardkit.dynamodb.service_errors import Kind, Throttle
from shardkit.dynamodb.sizes import STORAGE_OVERHEAD, SizedItem, sized
from shardkit.dynamodb.units import write_units
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ConfigurationError
from shardkit.partitions.model import Partitions, hash_of

__all__ = ["Admission", "Demand"]


class Demand(NamedTuple):
    """Units that a request takes of one key's partition, of the table or of an index."""

    partitions: Partitions
    hashed: int
    kind: Kind
    units: float


class Admission:
    """The partitions of one table: its own, and those of its global indexes. What a local index takes is the table's.

    Args:
        description: the table, as DescribeTable answers under ``Table``, or as CreateTable takes it.
        partitions: the table's.
        indexes: those of each global index, by its name.

    Raises:
        ConfigurationError: the description cannot be read, or a global index has no partitions.
    """

    def __init__(
        self, description: Mapping[str, Any], partitions: Partitions, indexes: Mapping[str, Partitions] | None = None
    ) -> None:
        self.estimator = CapacityEstimator(description)
        self.keys = KeySchema.of(description["KeySchema"], f"table {description.get('TableName')!r}")
        self.partitions = partitions
        self.index_partitions = dict(indexes or {})
        self.indexes = {index.name: index for index in indexes_of(description, self.keys)}
        of_their_own = {index.name for index in self.indexes.values() if not index.local}
        if of_their_own != self.index_partitions.keys():
            raise ConfigurationError(
                f"partitions were given for the indexes {sorted(self.index_partitions)}, and the global indexes of the "
                f"table are {sorted(of_their_own)}; give each of them its own"
            )

    def units_of(self, change: ItemChange, *, transactional: bool = False) -> TableUnits:
        """Give the units that a write takes."""
        changes = (change,)
        if transactional:
            return self.estimator.transact_write_items(changes)
        return self.estimator.batch_write_item(changes)

    def of_write(self, key: Mapping[str, WireValue], change: ItemChange, units: TableUnits) -> Iterator[Demand]:
        """Say where a write takes its units: the table's key's partition, and that of each index entry's key.

        Args:
            key: the primary key (and more, which is not looked at): of no item before and after, it is a write too.
            change: the item before and after it.
            units: what it takes.
        """
        before, after = (None if image is None else sized(image) for image in change)
        table = units.table + sum(units.local_indexes.values())
        yield Demand(self.partitions, self.hash_of(key), "write", table)
        for name, taken in units.global_indexes.items():
            index, partitions = self.indexes[name], self.index_partitions[name]
            entries = {_hash_of(index, entry): entry for entry in map(index.entry, (before, after)) if entry}
            # An entry that moves to another key is deleted in one place and put in another.
            for hashed, entry in entries.items():
                yield Demand(partitions, hashed, "write", taken if len(entries) == 1 else write_units(entry.size))

    def of_read(self, index: str | None, key: Mapping[str, WireValue], units: float) -> Demand:
        """Say where a read takes its units: of a table's item or item collection, or of an index's.

        Args:
            index: the index that is read; None: the table.
            key: the partition key (and more, which is not looked at).
            units: what it takes; 0 where that is not known before it is answered.
        """
        if index is None or self.indexes[index].local:
            return Demand(self.partitions, self.hash_of(key), "read", units)
        names = self.indexes[index].keys.partition
        return Demand(self.index_partitions[index], hash_of(*[key[name] for name in names]), "read", units)

    def hash_of(self, key: Mapping[str, WireValue]) -> int:
        """Give the hash of the table's partition key, of an item or a key."""
        return hash_of(key[self.keys.partition_key])

    def store(self, change: ItemChange, now: float) -> None:
        """Let the table's data grow by a write, and that of its indexes."""
        images = [None if image is None else sized(image) for image in change]
        for image, sign in zip(images, (-1, 1), strict=True):
            if image is None:
                continue
            self.partitions.store(self.hash_of(image.item), sign * (image.size + STORAGE_OVERHEAD), now)
            for index in self.indexes.values():
                entry = index.entry(image)
                if entry is not None:
                    owner = self.partitions if index.local else self.index_partitions[index.name]
                    hashed = self.hash_of(image.item) if index.local else _hash_of(index, entry)
                    owner.store(hashed, sign * (entry.size + STORAGE_OVERHEAD), now)

    @staticmethod
    def take(demands: Iterable[Demand], now: float) -> Throttle | None:
        """Take all of what is wanted, or nothing and say why not."""
        wanted = list(demands)
        for partitions, hashed, kind, units in _by_partition(wanted) if len(wanted) > 1 else wanted:
            throttle = partitions.throttle(hashed, kind, now, units=units)
            if throttle is not None:
                return throttle
        for partitions, hashed, kind, units in wanted:
            if units:
                partitions.take(hashed, kind, units, now)
        return None


def _by_partition(demands: Iterable[Demand]) -> Iterator[Demand]:
    """Add up what is wanted of one partition."""
    sums: dict[tuple[int, int, Kind], Demand] = {}
    for demand in demands:
        partitions, hashed, kind, units = demand
        at = id(partitions), partitions.place(hashed), kind
        sums[at] = demand if at not in sums else Demand(partitions, hashed, kind, sums[at].units + units)
    yield from sums.values()


def _hash_of(index: Index, entry: SizedItem) -> int:
    return hash_of(*[entry.item[name] for name in index.keys.partition])
