"""Decide whether the partitions of a table and its global indexes serve a request: all of it, or nothing.

An index without enough throughput throttles the writes to its table (back-pressure).
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


class Demand(NamedTuple):
    """The units that a request takes of the partition of one key, of the table or of an index."""

    partitions: Partitions
    hashed: int
    kind: Kind
    units: float


class Admission:
    """Admits requests to the partitions of a table (None) and of its global indexes (by name).

    Local indexes are stored in the table's partitions.

    Raises:
        ConfigurationError: the description is invalid, or a global index has no partitions.
    """

    def __init__(self, description: Mapping[str, Any], partitions: Mapping[str | None, Partitions]) -> None:
        self.estimator = CapacityEstimator(description)
        self.keys = KeySchema.of(description["KeySchema"], f"table {description.get('TableName')!r}")
        self.partitions = partitions
        self.indexes = {index.name: index for index in indexes_of(description, self.keys)}
        given = sorted(name for name in partitions if name is not None)
        expected = sorted(index.name for index in self.indexes.values() if not index.local)
        if given != expected:
            raise ConfigurationError(
                f"indexes: got partitions for {given}; the table's global indexes are {expected}; give partitions for "
                "each of them"
            )

    def units_of(self, change: ItemChange, *, transactional: bool = False) -> TableUnits:
        estimate = self.estimator.transact_write_items if transactional else self.estimator.batch_write_item
        return estimate([change])

    def of_write(self, key: Mapping[str, WireValue], change: ItemChange, units: TableUnits) -> Iterator[Demand]:
        """Yield the demands of a write: on the partition of its key, and of the key of each index entry.

        ``key`` is needed for a write without an item before and after. Its other attributes are ignored.
        """
        table = units.table + sum(units.local_indexes.values())
        yield Demand(self.partitions[None], self.hash_of(key), "write", table)
        if not units.global_indexes:
            return
        before, after = (None if image is None else sized(image) for image in change)
        for name, taken in units.global_indexes.items():
            index, partitions = self.indexes[name], self.partitions[name]
            entries = {_hash_of(index, entry): entry for entry in map(index.entry, (before, after)) if entry}
            # If the write changes an entry's key, it deletes one entry and puts another.
            for hashed, entry in entries.items():
                yield Demand(partitions, hashed, "write", taken if len(entries) == 1 else write_units(entry.size))

    def of_read(self, index: str | None, key: Mapping[str, WireValue], units: float) -> Demand:
        """Return the demand of a read of an item or item collection in a table (None) or an index.

        ``key`` has the partition key. ``units`` are 0 if unknown until the read is answered.
        """
        if index is None or self.indexes[index].local:
            return Demand(self.partitions[None], self.hash_of(key), "read", units)
        names = self.indexes[index].keys.partition
        return Demand(self.partitions[index], hash_of(*[key[name] for name in names]), "read", units)

    def hash_of(self, key: Mapping[str, WireValue]) -> int:
        return hash_of(key[self.keys.partition_key])

    def store(self, change: ItemChange, now: float) -> None:
        """Add what a write stores to the data of the table and its indexes."""
        for attributes, sign in zip(change, (-1, 1), strict=True):
            if attributes is None:
                continue
            image = sized(attributes)
            key = self.hash_of(image.item)
            self.partitions[None].store(key, sign * (image.size + STORAGE_OVERHEAD), now)
            for index in self.indexes.values():
                entry = index.entry(image)
                if entry is not None:
                    owner = self.partitions[None if index.local else index.name]
                    hashed = key if index.local else _hash_of(index, entry)
                    owner.store(hashed, sign * (entry.size + STORAGE_OVERHEAD), now)

    @staticmethod
    def take(demands: Iterable[Demand], now: float) -> Throttle | None:
        """Take all units and return None, or take nothing and return the throttle."""
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
    sums: dict[tuple[int, int, Kind], Demand] = {}
    for demand in demands:
        partitions, hashed, kind, units = demand
        at = id(partitions), partitions.place(hashed), kind
        sums[at] = demand if at not in sums else Demand(partitions, hashed, kind, sums[at].units + units)
    yield from sums.values()


def _hash_of(index: Index, entry: SizedItem) -> int:
    return hash_of(*[entry.item[name] for name in index.keys.partition])
