"""Units added up: per table, index, operation and logical key; what was reported and what is estimated, apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shardkit.capacity.charges import Action, Requested, actions_of, tables_of, writes
from shardkit.capacity.units import apportion, table_name
from shardkit.codec import from_wire
from shardkit.errors import ConfigurationError, ShardkitError

if TYPE_CHECKING:
    from shardkit.sharding import Sharding

__all__ = ["Charge", "KeyOfTable", "KeyValue", "Metered", "Tally", "Usage", "charge_of"]

# A partition key as a boto3 resource shows it: str, bytes or Decimal.
KeyValue = object
KeyOfTable = tuple[str, KeyValue]
K = TypeVar("K")

_INDEXES = ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
# What is about one key: here the report says what the key consumed, and nothing is apportioned.
_SINGLE = frozenset({"DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"})


@dataclass(frozen=True, slots=True)
class Usage:
    """Units consumed: what the service reported, and, apart from it, what is estimated.

    Example:
        >>> Usage(read_units=0.5, requests=1) + Usage(estimated_write_units=1.0, requests=1)
        Usage(read_units=0.5, write_units=0.0, estimated_read_units=0.0, estimated_write_units=1.0, requests=2)

    Args:
        read_units: reported by the service.
        write_units: reported by the service.
        estimated_read_units: read units that no response said; never a part of ``read_units``.
        estimated_write_units: write units that no response said; never a part of ``write_units``.
        requests: API calls, botocore's retries not counted; for a key, the reads and writes of it.
    """

    read_units: float = 0.0
    write_units: float = 0.0
    estimated_read_units: float = 0.0
    estimated_write_units: float = 0.0
    requests: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Add figure by figure."""
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.read_units + other.read_units,
            self.write_units + other.write_units,
            self.estimated_read_units + other.estimated_read_units,
            self.estimated_write_units + other.estimated_write_units,
            self.requests + other.requests,
        )

    @property
    def units_with_estimates(self) -> float:
        """Read and write units, reported and estimated, in one figure: for ranking, not for accounting."""
        return self.read_units + self.write_units + self.estimated_read_units + self.estimated_write_units

    def __str__(self) -> str:
        """Give the figures with their units; estimates are marked."""
        parts = [f"{_figure(self.read_units)} read units", f"{_figure(self.write_units)} write units"]
        for estimate, side in ((self.estimated_read_units, "read"), (self.estimated_write_units, "write")):
            if estimate:
                parts.append(f"+ estimated {_figure(estimate)} {side} units")
        return "  ".join(parts)


def _figure(units: float) -> str:
    return f"{units:,.1f}"


_REQUEST = Usage(requests=1)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one API call consumed, ready to be added to a :class:`Tally`.

    Args:
        operation: the API's name, ``"PutItem"``.
        tables: per table, its indexes included.
        indexes: per (table, index), as far as the service said it.
        keys: per (table, logical key); what a batch reported is apportioned here, as an estimate.
    """

    operation: str
    tables: Mapping[str, Usage] = field(default_factory=dict)
    indexes: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    keys: Mapping[KeyOfTable, Usage] = field(default_factory=dict)

    @property
    def total(self) -> Usage:
        """What the call consumed on all tables: one request."""
        units = sum(self.tables.values(), Usage())
        return Usage(
            units.read_units, units.write_units, units.estimated_read_units, units.estimated_write_units, requests=1
        )


class Tally:
    """The totals of a scope; not for several threads at once without a lock.

    Example:
        >>> tally = Tally()
        >>> tally.add(Charge("GetItem", {"Orders": Usage(read_units=0.5, requests=1)}))
        >>> tally.total.read_units, tally.by_table["Orders"].requests
        (0.5, 1)

    Args:
        max_keys: how many keys to hold apart, at least 1. Beyond it (at twice as many) those with the fewest units
            are added to ``other_keys``, so that the memory stays bounded; a key that comes again starts anew.

    Raises:
        ConfigurationError: ``max_keys`` is less than 1.

    Attributes:
        total: everything.
        by_table: per table, its indexes included.
        by_index: per (table, index).
        by_operation: per API operation.
        by_key: per (table, logical key). Here a batch's units are apportioned and stand under the estimates.
        other_keys: what was consumed by keys that are not in ``by_key`` any more.
    """

    def __init__(self, *, max_keys: int = 100_000) -> None:
        if max_keys < 1:
            raise ConfigurationError(
                f"max_keys is how many keys to hold apart, at least 1, got {max_keys}; give a larger one"
            )
        self._max_keys = max_keys
        self.total = Usage()
        self.by_table: dict[str, Usage] = {}
        self.by_index: dict[tuple[str, str], Usage] = {}
        self.by_operation: dict[str, Usage] = {}
        self.by_key: dict[KeyOfTable, Usage] = {}
        self.other_keys = Usage()

    def add(self, charge: Charge) -> None:
        """Add what one API call consumed."""
        total = charge.total
        self.total += total
        _add(self.by_operation, {charge.operation: total})
        _add(self.by_table, charge.tables)
        _add(self.by_index, charge.indexes)
        _add(self.by_key, charge.keys)
        if len(self.by_key) > 2 * self._max_keys:
            kept = dict(self.hottest(self._max_keys))
            self.other_keys = sum((self.by_key[key] for key in self.by_key if key not in kept), self.other_keys)
            self.by_key = kept

    def hottest(self, n: int) -> list[tuple[KeyOfTable, Usage]]:
        """Give the ``n`` keys that consumed the most units, estimates counted in the ranking, the most first.

        Example:
            >>> tally = Tally()
            >>> tally.add(Charge("GetItem", keys={("Orders", "a"): Usage(0.5), ("Orders", "b"): Usage(2.0)}))
            >>> [key for key, usage in tally.hottest(1)]
            [('Orders', 'b')]

        Args:
            n: how many at most.

        Returns:
            Pairs of (table, logical key) and its :class:`Usage`.
        """
        ranked = sorted(self.by_key.items(), key=lambda pair: pair[1].units_with_estimates, reverse=True)
        return ranked[: max(n, 0)]


def _add(totals: dict[K, Usage], more: Mapping[K, Usage]) -> None:
    for key, usage in more.items():
        known = totals.get(key)
        totals[key] = usage if known is None else known + usage


class Metered(Requested, Protocol):
    """What is needed of a call to charge it: shardkit's own bring the table's sharding."""

    sharding: Sharding | None


def charge_of(
    call: Metered,
    consumed: Any,
    parsed: Mapping[str, Any],
    *,
    only: frozenset[str] | None = None,
    partition_key: Callable[[str], str | None],
) -> Charge:
    """Say what one API call consumed.

    Args:
        call: the request, in wire form.
        consumed: the response's ``ConsumedCapacity``: a structure, a list of them, or None.
        parsed: the response (or the error, under ``Error``), in wire form.
        only: the tables to look at; None for all.
        partition_key: a table name to the name of its partition key, or None where that is unknown.

    Returns:
        The :class:`Charge`: what was reported, and estimates for the tables of which nothing was.
    """
    write, involved = writes(call), tables_of(call)
    tables: dict[str, Usage] = {}
    indexes: dict[tuple[str, str], Usage] = {}
    for structure in [consumed] if isinstance(consumed, Mapping) else consumed or ():
        table = table_name(structure.get("TableName") or (min(involved) if len(involved) == 1 else "unknown"))
        _add(tables, {table: _reported(structure, write=write)})
        for kind in _INDEXES:
            for index, part in (structure.get(kind) or {}).items():
                _add(indexes, {(table, index): _reported(part, write=write)})
    keys: dict[KeyOfTable, Usage] = {}
    weights: dict[str, dict[KeyValue, float]] = {}
    for action in actions_of(call, parsed):
        key = _logical_key(call, action, partition_key)
        by_key = weights.setdefault(action.table, {})
        by_key[key] = by_key.get(key, 0.0) + action.units
        _add(keys, {(action.table, key): _REQUEST})
    for table, by_key in weights.items():
        reported = tables.get(table)
        if reported is None:
            shares = {key: _estimated(units, write=write) for key, units in by_key.items()}
            tables[table] = sum(shares.values(), Usage())
            if "IndexName" in call.params:
                indexes[table, call.params["IndexName"]] = tables[table]
        elif call.operation in _SINGLE:
            shares = dict.fromkeys(by_key, reported)
        else:
            reads, written = apportion(reported.read_units, by_key), apportion(reported.write_units, by_key)
            shares = {key: Usage(0.0, 0.0, reads[key], written[key]) for key in by_key}
        _add(keys, {(table, key): share for key, share in shares.items()})

    def counts(table: str) -> bool:
        return only is None or table in only

    return Charge(
        call.operation,
        {name: tables.get(name, Usage()) + _REQUEST for name in sorted(involved | tables.keys()) if counts(name)},
        {name: usage + _REQUEST for name, usage in indexes.items() if counts(name[0])},
        {name: usage for name, usage in keys.items() if counts(name[0]) and name[1] is not None},
    )


def _reported(structure: Mapping[str, Any], *, write: bool) -> Usage:
    read, written, units = (
        structure.get(name) for name in ("ReadCapacityUnits", "WriteCapacityUnits", "CapacityUnits")
    )
    parts = float(read or 0), float(written or 0)
    if units is None and read is None and written is None:
        indexes = (structure.get(kind) or {} for kind in _INDEXES)
        pieces = [structure.get("Table") or {}, *(piece for some in indexes for piece in some.values())]
        return sum((_reported(piece, write=write) for piece in pieces if piece), Usage())
    if units is None or (sum(parts) == units and (read is not None or written is not None)):
        # A repeated TransactWriteItems is charged as reads: where the service tells the sides apart, it is right.
        return Usage(*parts)
    return Usage(write_units=float(units)) if write else Usage(read_units=float(units))


def _estimated(units: float, *, write: bool) -> Usage:
    return Usage(estimated_write_units=units) if write else Usage(estimated_read_units=units)


def _logical_key(call: Metered, action: Action, partition_key: Callable[[str], str | None]) -> KeyValue:
    sharding = call.sharding
    if sharding is not None and table_name(sharding.table) != action.table:
        sharding = None
    name = sharding.keys.partition_key if sharding is not None else partition_key(action.table)
    wire = action.attributes.get(name) if name is not None else None
    if wire is None:
        return None
    try:
        value = from_wire(sharding.logical(wire)[0] if sharding is not None else wire)
        value = getattr(value, "value", value)
        value = bytes(value) if isinstance(value, bytearray) else value
        hash(value)
    except (ArithmeticError, AttributeError, ShardkitError, TypeError, ValueError):
        return None
    return value
