"""The sums of a scope: per table, index, operation, key and tag, and over the last window."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import nlargest
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from shardkit.capacity.charge import Charge, KeyOfIndex, KeyOfTable, KeyValue
from shardkit.capacity.lookups import Lookups
from shardkit.capacity.usage import Account, Rates, Units, Usage, VectorBytes, Window
from shardkit.core.heavy_hitters import HeavyHitters, KeyCounters

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

PhysicalKey = tuple[str, KeyValue, KeyValue]
"""Table, logical key, physical key."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ledger(Generic[K]):
    """What each key of any number of keys consumed, in bounded memory: so many by reads, by writes and by throttles."""

    def __init__(self, capacity: int) -> None:
        self.reads: HeavyHitters[K] = HeavyHitters(capacity)
        self.writes: HeavyHitters[K] = HeavyHitters(capacity)
        self._throttled: HeavyHitters[K] = HeavyHitters(capacity)

    def add(self, key: K, units: Units, requests: int, second: int) -> None:
        read, write, estimated_read, estimated_write = units
        if write or estimated_write:
            self.writes.add(key, write, estimated_write, requests, second)
            requests = 0
        if read or estimated_read or requests:
            self.reads.add(key, read, estimated_read, requests, second)

    def add_other(self, units: Units, requests: int) -> None:
        """Add units of an unknown key."""
        self.reads.others.add(units.read, units.estimated_read, requests, 0)
        self.writes.others.add(units.write, units.estimated_write, 0, 0)

    def throttled(self, key: K) -> None:
        self._throttled.add(key, 1.0)

    def __iter__(self) -> Iterator[K]:
        return iter(dict.fromkeys((*self.reads.held, *self.writes.held, *self._throttled.held)))

    def usages(self) -> dict[K, Usage]:
        return {key: self.usage(key) for key in self}

    def usage(self, key: K) -> Usage:
        return _usage(*(sketch.held.get(key) for sketch in (self.reads, self.writes, self._throttled)))

    def peaks(self, key: K) -> tuple[float, float]:
        """Return the read units and the write units of a key's busiest seconds, estimates included."""
        reads, writes = self.reads.held.get(key, _NONE), self.writes.held.get(key, _NONE)
        return reads.peak, writes.peak

    def units_in(self, key: K, second: int) -> tuple[float, float]:
        """Return the read units and the write units of a key in the latest second, estimates included."""
        reads, writes = self.reads.held.get(key, _NONE), self.writes.held.get(key, _NONE)
        return reads.units_in(second), writes.units_in(second)

    def before(self, key: K) -> tuple[float, float]:
        """Return the read units and the write units that a key may have consumed before it was held."""
        reads, writes = self.reads.held.get(key), self.writes.held.get(key)
        # A key that is not held now may have been held before.
        return (self.reads.error if reads is None else reads.before), (
            self.writes.error if writes is None else writes.before
        )

    @property
    def others(self) -> Usage:
        """The usage of all keys that are not held."""
        return _usage(self.reads.others, self.writes.others, self._throttled.others)

    def hottest(self, n: int, by: str | None = None) -> list[tuple[K, Usage]]:
        """Return the ``n`` keys with the most units, estimates included: ``"read"`` or ``"write"`` units, or both."""
        units: dict[K, float] = dict.fromkeys(self, 0.0)
        for side, sketch in (("read", self.reads), ("write", self.writes)):
            if by in {None, side}:
                for key, held in sketch.held.items():
                    units[key] += held.units
        return [(key, self.usage(key)) for key in nlargest(n, units, key=units.__getitem__)]


def _usage(reads: KeyCounters | None, writes: KeyCounters | None, throttled: KeyCounters | None) -> Usage:
    read, write = reads or _NONE, writes or _NONE
    return Usage(
        read.reported,
        write.reported,
        read.estimated,
        write.estimated,
        read.requests + write.requests,
        throttled.requests if throttled is not None else 0,
    )


_NONE = KeyCounters(0.0, 0)


class Tally:
    """The sums of a scope; several threads need a lock.

    Attributes:
        keys: per (table, logical key); units of batches are apportioned, as estimates.
        physical_keys: per (table, logical key, physical key), of sharded tables.
        index_keys: per (table, index, stored key of the index), of global indexes without the table's key.
        tags: per (name, value).
        throttles: throttled attempts by reason.
        retries: retried attempts, by what the attempt before met.
        shardings: per sharded table.
        described: the tables of ``index_keys``, sharded or not.
        by_vector_index_and_operation: bytes per (table, vector index, API operation).
        lookups: reads of cached tables.
    """

    def __init__(self, *, max_keys: int, window: float) -> None:
        self._window = Window(window)
        self._operations: defaultdict[str, Account] = defaultdict(Account)
        self._tables: defaultdict[tuple[str, str], Account] = defaultdict(Account)
        self._indexes: defaultdict[tuple[str, str, str], Account] = defaultdict(Account)
        self.keys: Ledger[KeyOfTable] = Ledger(max_keys)
        self.physical_keys: Ledger[PhysicalKey] = Ledger(max_keys)
        self.index_keys: Ledger[KeyOfIndex] = Ledger(max_keys)
        self.tags: Ledger[tuple[str, str]] = Ledger(max_keys)
        self.lookups: Lookups = Lookups(max_keys)
        self.throttles: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.shardings: dict[str, Sharding] = {}
        self.described: dict[str, Sharding] = {}
        self.by_vector_index_and_operation: defaultdict[tuple[str, str, str], VectorBytes] = defaultdict(VectorBytes)

    def add(self, charge: Charge, now: float, tags: Iterable[tuple[str, str]] = ()) -> None:
        """Add what calls consumed; ``now`` is in seconds on the caller's clock."""
        second, requests, operation, total = int(now), charge.requests, charge.operation, charge.total
        self.shardings.update(charge.shardings)
        self._window.account(now).add(total, requests)
        self._operations[operation].add(total, requests)
        for table, account in charge.tables.items():
            self._tables[table, operation].add(account.units, account.requests)
        for (table, index), account in charge.indexes.items():
            self._indexes[table, index, operation].add(account.units, account.requests)
        for (table, index), taken in charge.vectors.items():
            place = table, index, operation
            self.by_vector_index_and_operation[place] = self.by_vector_index_and_operation[place].plus(taken)
        for table, logical, physical, units, accesses in charge.keys:
            if logical is None:
                self.keys.add_other(units, accesses)
            else:
                self.keys.add((table, logical), units, accesses, second)
                if physical is not None:
                    self.physical_keys.add((table, logical, physical), units, accesses, second)
        if charge.index_keys is not None:
            for of_index, (account, sharding) in charge.index_keys.items():
                self.described[of_index[0]] = sharding
                self.index_keys.add(of_index, account.units, account.requests, second)
        for tag in tags:
            self.tags.add(tag, total, requests, second)

    def throttled(
        self,
        reasons: Iterable[str],
        now: float,
        *,
        operation: str,
        tables: Iterable[str],
        key: KeyOfTable | None,
        index_keys: Mapping[KeyOfIndex, Sharding | None] = MappingProxyType({}),
    ) -> None:
        """Add an attempt that was throttled; ``key`` and ``index_keys`` if the partitions of some keys were too hot."""
        self.throttles.update(reasons)
        accounts = [self._tables[table, operation] for table in tables]
        for account in (self._window.account(now), self._operations[operation], *accounts):
            account.throttles += 1
        if key is not None:
            self.keys.throttled(key)
        for of_index, sharding in index_keys.items():
            self.index_keys.throttled(of_index)
            if sharding is not None:
                self.described[of_index[0]] = sharding

    def rates(self, now: float) -> Rates:
        return self._window.rates(now)

    @property
    def total(self) -> Usage:
        return sum(self.by_operation.values(), Usage())

    @property
    def by_operation(self) -> dict[str, Usage]:
        return {operation: account.usage for operation, account in self._operations.items()}

    @property
    def by_table(self) -> dict[str, Usage]:
        """Per table, its indexes included."""
        return _summed(((table, usage) for (table, _), usage in self.by_table_and_operation.items()), add)

    @property
    def by_index(self) -> dict[tuple[str, str], Usage]:
        usages = self.by_index_and_operation.items()
        return _summed((((table, index), usage) for (table, index, _), usage in usages), add)

    @property
    def by_vector_index(self) -> dict[tuple[str, str], VectorBytes]:
        """Bytes per (table, vector index)."""
        taken = self.by_vector_index_and_operation.items()
        return _summed((((table, index), part) for (table, index, _), part in taken), VectorBytes.plus)

    @property
    def by_table_and_operation(self) -> dict[tuple[str, str], Usage]:
        return {place: account.usage for place, account in self._tables.items()}

    @property
    def by_index_and_operation(self) -> dict[tuple[str, str, str], Usage]:
        return {place: account.usage for place, account in self._indexes.items()}


def _summed(parts: Iterable[tuple[K, V]], plus: Callable[[V, V], V]) -> dict[K, V]:
    sums: dict[K, V] = {}
    for key, part in parts:
        sums[key] = plus(sums[key], part) if key in sums else part
    return sums
