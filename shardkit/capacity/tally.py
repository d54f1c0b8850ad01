"""Units added up: per table, index, operation, key and tag, and over the last while."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Generic, TypeVar

from shardkit.capacity.charge import Charge, KeyValue
from shardkit.capacity.usage import Account, Rates, Units, Usage, VectorBytes, Window
from shardkit.core.heavy_hitters import HeavyHitters, Held
from shardkit.dynamodb.units import table_name

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

KeyOfTable = tuple[str, KeyValue]
PhysicalKey = tuple[str, KeyValue, KeyValue]
"""Table, logical key, physical key."""

K = TypeVar("K", bound=Hashable)


class Ledger(Generic[K]):
    """What each of unboundedly many keys consumed, reads and writes (and throttles) apart, in bounded memory.

    Args:
        capacity: how many are held apart, of readers, of writers, and of throttled ones.
    """

    def __init__(self, capacity: int) -> None:
        self.reads: HeavyHitters[K] = HeavyHitters(capacity)
        self.writes: HeavyHitters[K] = HeavyHitters(capacity)
        self._throttled: HeavyHitters[K] = HeavyHitters(capacity)

    def add(self, key: K, units: Units, requests: int, second: int) -> None:
        """Add what a key consumed in a second."""
        read, write, estimated_read, estimated_write = units
        if write or estimated_write:
            self.writes.add(key, write, estimated_write, requests, second)
            requests = 0
        if read or estimated_read or requests:
            self.reads.add(key, read, estimated_read, requests, second)

    def add_other(self, units: Units, requests: int) -> None:
        """Add what was consumed by nothing that has a key."""
        self.reads.others.add(units.read, units.estimated_read, requests, 0)
        self.writes.others.add(units.write, units.estimated_write, 0, 0)

    def throttled(self, key: K) -> None:
        """Add a throttle."""
        self._throttled.add(key, 1.0)

    def __iter__(self) -> Iterator[K]:
        """Give all that are held."""
        return iter(dict.fromkeys((*self.reads.held, *self.writes.held, *self._throttled.held)))

    def usages(self) -> dict[K, Usage]:
        """Give what is known of each that is held."""
        return {key: self.usage(key) for key in self}

    def usage(self, key: K) -> Usage:
        """Give what is known of one."""
        return _usage(*(sketch.held.get(key) for sketch in (self.reads, self.writes, self._throttled)))

    def peaks(self, key: K) -> tuple[float, float]:
        """Give the read and the write units of its busiest seconds, estimates counted."""
        reads, writes = self.reads.held.get(key, _NONE), self.writes.held.get(key, _NONE)
        return reads.peak, writes.peak

    def before(self, key: K) -> tuple[float, float]:
        """Give the read and the write units that it may have consumed before it was held."""
        reads, writes = self.reads.held.get(key), self.writes.held.get(key)
        # What is not held now may have been once.
        return (self.reads.error if reads is None else reads.before), (
            self.writes.error if writes is None else writes.before
        )

    @property
    def others(self) -> Usage:
        """All that is not under those that are held."""
        return _usage(self.reads.others, self.writes.others, self._throttled.others)

    def hottest(self, n: int, by: str | None = None) -> list[tuple[K, Usage]]:
        """Give the ``n`` that consumed most, estimates counted: by ``"read"``, by ``"write"``, or by their sum."""
        units: dict[K, float] = dict.fromkeys(self, 0.0)
        for side, sketch in (("read", self.reads), ("write", self.writes)):
            if by in {None, side}:
                for key, held in sketch.held.items():
                    units[key] += held.units
        return [(key, self.usage(key)) for key in nlargest(n, units, key=units.__getitem__)]


def _usage(reads: Held | None, writes: Held | None, throttled: Held | None) -> Usage:
    read, write = reads or _NONE, writes or _NONE
    return Usage(
        read.reported,
        write.reported,
        read.estimated,
        write.estimated,
        read.requests + write.requests,
        throttled.requests if throttled is not None else 0,
    )


_NONE = Held(0.0, 0)


class Tally:
    """The totals of a scope; not for several threads at once without a lock.

    Args:
        max_keys: how many keys to hold apart, at least 1.
        window: seconds that ``rates`` looks back, above 0.

    Raises:
        ConfigurationError: ``max_keys`` is less than 1, or ``window`` not above 0.

    Attributes:
        keys: per (table, logical key). Here a batch's units are apportioned and stand under the estimates.
        physical_keys: per (table, logical key, physical key), of sharded tables.
        tags: per (name, value).
        throttles: throttled attempts by reason.
        retries: attempts that followed another one, by what that one met.
        shardings: per table, of those that are sharded.
        by_vector_index_and_operation: bytes per (table, vector index, API operation).
    """

    def __init__(self, *, max_keys: int, window: float) -> None:
        self._window = Window(window)
        self._operations: defaultdict[str, Account] = defaultdict(Account)
        self._tables: defaultdict[tuple[str, str], Account] = defaultdict(Account)
        self._indexes: defaultdict[tuple[str, str, str], Account] = defaultdict(Account)
        self.keys: Ledger[KeyOfTable] = Ledger(max_keys)
        self.physical_keys: Ledger[PhysicalKey] = Ledger(max_keys)
        self.tags: Ledger[tuple[str, str]] = Ledger(max_keys)
        self.throttles: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.shardings: dict[str, Sharding] = {}
        self.by_vector_index_and_operation: dict[tuple[str, str, str], VectorBytes] = {}

    def add(self, charge: Charge, now: float, tags: Iterable[tuple[str, str]] = ()) -> None:
        """Add what an API call consumed, or several; ``now`` is in seconds on the caller's clock."""
        second, requests = int(now), charge.requests
        if charge.sharding is not None:
            self.shardings[table_name(charge.sharding.table)] = charge.sharding
        self._window.account(now).add(charge.total, requests)
        self._operations[charge.operation].add(charge.total, requests)
        for table, units in charge.tables.items():
            self._tables[table, charge.operation].add(units, requests)
        for (table, index), units in charge.indexes.items():
            self._indexes[table, index, charge.operation].add(units, requests)
        vectors = self.by_vector_index_and_operation
        for (table, index), taken in charge.vectors.items():
            place = table, index, charge.operation
            vectors[place] = vectors.get(place, VectorBytes()).plus(taken)
        for table, logical, physical, units, actions in charge.keys:
            if logical is None:
                self.keys.add_other(units, actions)
            else:
                self.keys.add((table, logical), units, actions, second)
                if physical is not None:
                    self.physical_keys.add((table, logical, physical), units, actions, second)
        for tag in tags:
            self.tags.add(tag, charge.total, requests, second)

    def throttled(
        self, reasons: Iterable[str], now: float, *, operation: str, tables: Iterable[str], key: KeyOfTable | None
    ) -> None:
        """Add an attempt that was throttled; ``key`` where that was for the sake of one key's partition."""
        self.throttles.update(reasons)
        accounts = [self._tables[table, operation] for table in tables]
        for account in (self._window.account(now), self._operations[operation], *accounts):
            account.throttles += 1
        if key is not None:
            self.keys.throttled(key)

    def rates(self, now: float) -> Rates:
        """Give the rates of the window that ends now."""
        return self._window.rates(now)

    @property
    def total(self) -> Usage:
        """Everything."""
        return sum(self.by_operation.values(), Usage())

    @property
    def by_operation(self) -> dict[str, Usage]:
        """Per API operation."""
        return {operation: account.usage for operation, account in self._operations.items()}

    @property
    def by_table(self) -> dict[str, Usage]:
        """Per table, its indexes included."""
        return _summed((table, usage) for (table, _), usage in self.by_table_and_operation.items())

    @property
    def by_index(self) -> dict[tuple[str, str], Usage]:
        """Per (table, index)."""
        return _summed(((table, index), usage) for (table, index, _), usage in self.by_index_and_operation.items())

    @property
    def by_vector_index(self) -> dict[tuple[str, str], VectorBytes]:
        """Bytes per (table, vector index)."""
        sums: dict[tuple[str, str], VectorBytes] = {}
        for (table, index, _), taken in self.by_vector_index_and_operation.items():
            sums[table, index] = sums.get((table, index), VectorBytes()).plus(taken)
        return sums

    @property
    def by_table_and_operation(self) -> dict[tuple[str, str], Usage]:
        """Per (table, API operation), the table's indexes included."""
        return {place: account.usage for place, account in self._tables.items()}

    @property
    def by_index_and_operation(self) -> dict[tuple[str, str, str], Usage]:
        """Per (table, index, API operation)."""
        return {place: account.usage for place, account in self._indexes.items()}


def _summed(usages: Iterable[tuple[K, Usage]]) -> dict[K, Usage]:
    sums: dict[K, Usage] = {}
    for key, usage in usages:
        sums[key] = sums.get(key, Usage()) + usage
    return sums
