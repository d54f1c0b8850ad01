"""What calls consumed: per table, index and key, with estimates apart from what was reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from shardkit.capacity.usage import Account, Units, VectorBytes
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.requests import (
    OPERATIONS,
    SEARCH,
    Requested,
    attributes_known,
    equals_of,
    estimates_of,
    tables_named,
    tables_of,
    writes,
)
from shardkit.dynamodb.units import apportion, table_name
from shardkit.errors import ShardkitError

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

KeyValue = object
"""A partition key as a boto3 resource shows it: str, bytes or Decimal."""

WireKey = tuple[str, str | bytes]
"""A stored partition key: the letter of its type, and its content."""

IndexKey = tuple[WireKey, ...]
"""A stored partition key of an index, which has up to four attributes."""
KeyOfTable = tuple[str, KeyValue]
"""A table's name, and a partition key of it, without its suffix."""
KeyOfIndex = tuple[str, str, KeyValue]
"""A table's name, an index's, and a stored partition key of the index: a tuple if it has several attributes."""

K = TypeVar("K", bound=Hashable)

Report = tuple[Units, Mapping[str, Units], Mapping[str, VectorBytes]]
"""What the service reported of one table: its units, those of each index, and the bytes of each vector index."""

_NOTHING = Units()
_NO_KEY = (None, None)
_KEY_TYPES = frozenset({"B", "N", "S"})
_LOCAL, _GLOBAL = _INDEXES = ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
_VECTORS = "VectorIndexes"
_NO_INDEXES: Mapping[str, Any] = MappingProxyType({})
_SINGLE = frozenset({"DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"})


class KeyUnits(NamedTuple):
    """What a key consumed; ``logical`` is None if it is unknown, ``physical`` if the table is not sharded."""

    table: str
    logical: KeyValue
    physical: KeyValue
    units: Units
    requests: int = 1


class IndexKeys(NamedTuple):
    """The keys of a call in global indexes of one table, by index, with the table's sharding."""

    sharding: Sharding
    shares: Mapping[str, Shares[IndexKey]]


class Charge:
    """What one or several calls of an operation consumed, per table (indexes included), index, vector index and key.

    The units of the keys sum to the total. What a batch reported is apportioned to its keys, as an estimate.
    ``shardings`` are those of the tables, by plain name.
    """

    def __init__(self, operation: str, shardings: Mapping[str, Sharding] = MappingProxyType({})) -> None:
        self.operation = operation
        self.shardings = shardings
        self.requests: int = 0
        self.tables: defaultdict[str, Account] = defaultdict(Account)
        self.indexes: defaultdict[tuple[str, str], Account] = defaultdict(Account)
        self.vectors: defaultdict[tuple[str, str], VectorBytes] = defaultdict(VectorBytes)
        # Usually none, and made for each of them only then: this runs for every call.
        self.index_keys: dict[KeyOfIndex, tuple[Account, Sharding]] | None = None
        self._keys: defaultdict[tuple[str, WireKey | None], Account] = defaultdict(Account)

    def add(self, table: str, keys: KeysOfCall, report: Report, index_keys: IndexKeys | None = None) -> None:
        """Add a call to one table that reported all that it consumed."""
        self.requests += 1
        self.add_report(table, report, 1)
        if isinstance(keys, Shares):
            for key, units in keys.of(report[0]).items():
                self._keys[table, key].add(units, keys.requests[key])
        else:
            self._keys[table, keys].add(report[0])
        if index_keys is not None:
            self.add_index_keys(table, index_keys, report[1])

    def add_index_keys(self, table: str, keys: IndexKeys, reported: Mapping[str, Units]) -> None:
        """Divide what was reported of each index among the keys that the call named in it."""
        found = self.index_keys = {} if self.index_keys is None else self.index_keys
        for index, shares in keys.shares.items():
            for key, units in shares.of(reported[index]).items():
                shown = None if key is None else _index_key_shown(key)
                if shown is not None:
                    account, _ = found.setdefault((table, index, shown), (Account(), keys.sharding))
                    account.add(units, shares.requests[key])

    def add_report(self, table: str, report: Report, requests: int) -> None:
        """Add what was reported of a table, without its keys."""
        units, indexes, vectors = report
        self.tables[table].add(units, requests)
        if indexes:
            for index, part in indexes.items():
                self.indexes[table, index].add(part, requests)
        if vectors:
            for index, taken in vectors.items():
                self.vectors[table, index] = self.vectors[table, index].plus(taken)

    @property
    def total(self) -> Units:
        total = Account()
        for account in self.tables.values():
            total.add(account.units)
        return total.units

    @cached_property
    def keys(self) -> list[KeyUnits]:
        """The units of each key. Read it only after the last call was added."""
        return [
            KeyUnits(table, *keys_of(key, self.shardings.get(table)), account.units, account.requests)
            for (table, key), account in self._keys.items()
        ]


class Metered(Requested, Protocol):
    """A call that can be charged; shardkit's own calls bring the shardings of their tables, as they name them."""

    shardings: Mapping[str, Sharding]


def sharding_in(call: Metered, table: str) -> Sharding | None:
    """Return the sharding of a call's table, by its plain name.

    Tables of two accounts may have one name, so it is looked up by what the call names it.
    """
    if not call.shardings:
        return None
    name = call.params.get("TableName")
    names = tables_named(call) if name is None else (name,)
    return next((call.shardings[name] for name in names if name in call.shardings and table_name(name) == table), None)


def charge_of(
    call: Metered,
    consumed: Any,
    parsed: Mapping[str, Any],
    *,
    only: Container[str] | None = None,
    partition_keys: Mapping[str, str],
    described: Mapping[str, Sharding] | None = None,
) -> Charge:
    """Return what one API call consumed: what was reported, and estimates for the tables without a report.

    ``consumed`` is the response's ``ConsumedCapacity`` (a structure, a list of them, or None), ``parsed`` the response
    (or the error, under ``Error``). ``only`` are the tables to count; None for all. ``partition_keys`` are the names of
    the tables' partition keys, as far as they are known. ``described`` are tables whose indexes are known, beside those
    of the call; None: keys of indexes are not wanted.
    """
    if call.operation == SEARCH and consumed:  # the report of SearchVectors is that of its index
        consumed = {_VECTORS: {call.params["IndexName"]: consumed}}
    whole = whole_of(call, consumed, parsed, partition_keys, described)
    if whole is not None:
        table, keys, structure, index_keys = whole
        sharding = sharding_in(call, table)
        charge = Charge(call.operation, {} if sharding is None else {table: sharding})
        charge.add(table, keys, report_of(structure, write=OPERATIONS[call.operation]), index_keys)
        return charge
    write, involved = writes(call), tables_of(call)
    shardings = {table: own for table in involved if (own := sharding_in(call, table)) is not None}
    charge = Charge(call.operation, shardings)
    for structure in [consumed] if isinstance(consumed, Mapping) else consumed or ():
        table = table_name(structure.get("TableName") or (min(involved) if len(involved) == 1 else "unknown"))
        if only is None or table in only:
            report = report_of(structure, write=write)
            charge.add_report(table, report, 0)
            index_keys = _index_keys(call, parsed, table, structure, described)
            if index_keys is not None:
                charge.add_index_keys(table, index_keys, report[1])
    known = {table: account.units for table, account in charge.tables.items()}
    # If the report equals the least that the call can have cost, each access cost its least: no item is measured.
    shares = _shares(call, parsed, only, partition_keys, least=bool(known))
    if known and any(table not in known or part.units != sum(known[table][:2]) for table, part in shares.items()):
        shares = _shares(call, parsed, only, partition_keys)
    keys_of_call: list[KeyUnits] = []
    for table, part in shares.items():
        if table in known:
            parts = part.of(known[table])
        else:
            parts = part.estimated(write=write)
            total = Units(*map(sum, zip(*parts.values(), strict=True)))
            index = call.params.get("IndexName")
            charge.add_report(table, (total, {} if index is None else {index: total}, {}), 0)
        keys_of_call += [
            KeyUnits(table, *keys_of(key, shardings.get(table)), units, part.requests[key])
            for key, units in parts.items()
        ]
    # Units without a known access, such as a statement's, have no known key.
    charge.keys = keys_of_call + [KeyUnits(table, *_NO_KEY, known[table]) for table in known.keys() - shares.keys()]
    # However many structures there were, and even if there was none, it is one request to each table.
    charge.requests = 1
    for table in {*charge.tables, *(table for table in involved if only is None or table in only)}:
        charge.tables[table].requests = 1
    for account in charge.indexes.values():
        account.requests = 1
    return charge


def whole_of(
    call: Metered,
    consumed: Any,
    parsed: Mapping[str, Any],
    partition_keys: Mapping[str, str],
    described: Mapping[str, Sharding] | None = None,
) -> tuple[str, KeysOfCall, Mapping[str, Any], IndexKeys | None] | None:
    """Return a call to one table that reported everything: the table, its key or keys, the report, its keys in indexes.

    None: the call needs :func:`charge_of`, whose arguments these are.
    """
    if call.operation in _SINGLE:
        if not isinstance(consumed, Mapping):
            return None
        table = table_name(call.params["TableName"])
        index_keys = _index_keys(call, parsed, table, consumed, described) if _GLOBAL in consumed else None
        return table, wire_key_of(call, table, partition_keys), consumed, index_keys
    outlined = _outlined(call, parsed)
    if outlined is None or not isinstance(consumed, list) or len(consumed) != 1:
        return None
    return *outlined, consumed[0], _index_keys(call, parsed, outlined[0], consumed[0], described)


def _index_keys(
    call: Metered,
    parsed: Mapping[str, Any],
    table: str,
    structure: Mapping[str, Any],
    described: Mapping[str, Sharding] | None,
) -> IndexKeys | None:
    """Return the keys that a call named in those global indexes that it consumed, with equal shares of the units.

    An index whose key has the table's partition key is left out: it is hot only where the table is.
    """
    consumed = structure.get(_GLOBAL)
    if not consumed or described is None:
        return None
    sharding = sharding_in(call, table) or described.get(table)
    if sharding is None:
        return None
    shares: defaultdict[str, Shares[IndexKey]] = defaultdict(Shares)
    names = {index: _attributes_of_index(sharding, index) for index in consumed}
    for index, key in _keys_named(call, parsed, table, names):
        shares[index].add(key, 1.0)
    return IndexKeys(sharding, shares) if shares else None


def _attributes_of_index(sharding: Sharding, index: str) -> tuple[str, ...]:
    """Return the attributes of an index's partition key; none if the table's is one of them, or if it is unknown."""
    schema = sharding.indexes.get(index)
    return () if schema is None or sharding.partition_key in schema.partition else schema.partition


def _keys_named(
    call: Metered, parsed: Mapping[str, Any], table: str, names: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, IndexKey]]:
    """Yield each index and key that a call named, for each item or page; ``names`` are the indexes' attributes."""
    names = {index: attributes for index, attributes in names.items() if attributes}
    for of, attributes in attributes_known(call, parsed) if names else ():
        if of == table:
            for index, parts in names.items():
                key = [part for name in parts if (part := wire_key(attributes, name)) is not None]
                if len(key) == len(parts):
                    yield index, tuple(key)


def index_keys_throttled(
    call: Metered, table: str, indexes: Iterable[str], described: Mapping[str, Sharding]
) -> dict[KeyOfIndex, Sharding | None]:
    """Return the throttled keys of a table's indexes, and what is known of the table.

    A key is None if the request does not name it, or names several. Indexes that have the table's key are left out.
    """
    sharding = sharding_in(call, table) or described.get(table)
    names = {index: () if sharding is None else _attributes_of_index(sharding, index) for index in indexes}
    named: defaultdict[str, set[IndexKey]] = defaultdict(set)
    for index, key in _keys_named(call, {}, table, names):
        named[index].add(key)
    own = () if sharding is None else sharding.indexes
    return {
        (table, index, _index_key_shown(*named[index]) if len(named[index]) == 1 else None): sharding
        for index, attributes in names.items()
        if attributes or index not in own
    }


def _outlined(call: Metered, parsed: Mapping[str, Any]) -> tuple[str, Shares[WireKey]] | None:
    """Return the table and the shares of a load's batch, which knows its keys and holds its items as bytes."""
    if call.operation != "BatchWriteItem" or "Error" in parsed or parsed.get("UnprocessedItems"):
        return None
    for name, requests in call.params["RequestItems"].items():
        outline = getattr(requests, "outline", None)
        if outline is not None:  # it writes to one table
            return table_name(name), Shares(outline())
    return None


def _shares(
    call: Metered,
    parsed: Mapping[str, Any],
    only: Container[str] | None,
    partition_keys: Mapping[str, str],
    *,
    least: bool = False,
) -> dict[str, Shares[WireKey]]:
    outlined = _outlined(call, parsed)
    if outlined is not None:
        return dict([outlined])
    shares: dict[str, Shares[WireKey]] = {}
    names: dict[str, str | None] = {}
    for table, attributes, units in estimates_of(call, parsed, least=least):
        part = shares.get(table)
        if part is None:
            if only is not None and table not in only:
                continue
            part = shares[table] = Shares()
            names[table] = _key_name(call, table, partition_keys)
        part.add(wire_key(attributes, names[table]), units)
    return shares


class Shares(Generic[K]):
    """The keys of a call to one table or index, and the units that each should have cost."""

    def __init__(self, known: Mapping[K, tuple[float, int]] | None = None) -> None:
        self._weights: dict[K | None, float] = {}
        self.requests: dict[K | None, int] = {}
        for key, (units, requests) in (known or {}).items():
            self._weights[key], self.requests[key] = float(units), requests

    def add(self, key: K | None, units: float) -> None:
        self._weights[key] = self._weights.get(key, 0.0) + units
        self.requests[key] = self.requests.get(key, 0) + 1

    @property
    def units(self) -> float:
        return sum(self._weights.values())

    def estimated(self, *, write: bool) -> dict[K | None, Units]:
        if write:
            return {key: Units(estimated_write=units) for key, units in self._weights.items()}
        return {key: Units(estimated_read=units) for key, units in self._weights.items()}

    def of(self, reported: Units) -> dict[K | None, Units]:
        """Divide what was reported among the keys, as estimates; a single key gets the report as it is."""
        if len(self._weights) == 1:
            return dict.fromkeys(self._weights, reported)
        reads, written = self._divided(reported.read), self._divided(reported.write)
        return {key: Units(0.0, 0.0, reads.get(key, 0.0), written.get(key, 0.0)) for key in self._weights}

    def _divided(self, units: float) -> Mapping[K | None, float]:
        if not units:
            return {}
        # On a table without indexes the keys cost exactly what their sizes say.
        return self._weights if self.units == units else apportion(units, self._weights)


KeysOfCall = WireKey | Shares[WireKey] | None
"""The stored key of a call to one table, or the shares of its keys; None: it is unknown."""


def report_of(structure: Mapping[str, Any], *, write: bool | None) -> Report:
    """Read what the service reported of one table; ``write`` says whose units they are if the report does not."""
    indexes = vectors = _NO_INDEXES
    if _LOCAL in structure or _GLOBAL in structure:
        indexes = {
            index: _units(part, write=write) for kind in _INDEXES for index, part in (structure.get(kind) or {}).items()
        }
    if structure.get(_VECTORS):
        vectors = {
            index: VectorBytes(
                float(part.get("VectorSearchRequestBytes") or 0), float(part.get("VectorWriteRequestBytes") or 0)
            )
            for index, part in structure[_VECTORS].items()
        }
    return _units(structure, write=write), indexes, vectors


def _units(structure: Mapping[str, Any], *, write: bool | None) -> Units:
    units = structure.get("CapacityUnits")
    if units is not None and "ReadCapacityUnits" not in structure and "WriteCapacityUnits" not in structure:
        return Units(0.0, float(units)) if write else Units(float(units))
    read, written = structure.get("ReadCapacityUnits"), structure.get("WriteCapacityUnits")
    parts = float(read or 0), float(written or 0)
    if units is None and read is None and written is None:
        whole = _NOTHING
        indexes = (part for kind in _INDEXES for part in (structure.get(kind) or {}).values())
        for piece in filter(None, [structure.get("Table"), *indexes]):
            whole = whole.plus(_units(piece, write=write))
        return whole
    if units is None or sum(parts) == units:
        # A repeated TransactWriteItems is charged as reads: where the service tells the sides apart, it is right.
        return Units(*parts)
    return Units(0.0, float(units)) if write else Units(float(units))


def wire_key_of(call: Metered, table: str, partition_keys: Mapping[str, str]) -> WireKey | None:
    """Return the stored key of a call to one table; None: it is unknown, or there are several."""
    params = call.params
    attributes = params.get("Key") or params.get("Item")
    if attributes is None and call.operation == "Query":
        attributes = equals_of(params)
    return wire_key(attributes or {}, _key_name(call, table, partition_keys))


def _key_name(call: Metered, table: str, partition_keys: Mapping[str, str]) -> str | None:
    sharding = sharding_in(call, table)
    return partition_keys.get(table) if sharding is None else sharding.partition_key


def wire_key(attributes: Mapping[str, Any], name: str | None) -> WireKey | None:
    wire = None if name is None else attributes.get(name)
    if not isinstance(wire, dict) or len(wire) != 1:
        return None
    ((letter, content),) = wire.items()
    if isinstance(content, bytearray):
        content = bytes(content)
    return (letter, content) if letter in _KEY_TYPES and isinstance(content, str | bytes) else None


def keys_of(key: WireKey | None, sharding: Sharding | None) -> tuple[KeyValue, KeyValue]:
    """Return the logical and the physical key of a stored key, as in :class:`KeyUnits`."""
    if key is None:
        return _NO_KEY
    letter, content = key
    try:
        if sharding is None:
            return plain_key(letter, content), None
        ((_, logical),) = sharding.logical({letter: content})[0].items()
        return plain_key(letter, logical), plain_key(letter, content)
    except (ArithmeticError, AttributeError, ShardkitError, TypeError, ValueError):
        return _NO_KEY


def _index_key_shown(key: IndexKey) -> KeyValue:
    """Return a key of an index as in :data:`KeyOfIndex`; None if it cannot be read."""
    try:
        parts = tuple(plain_key(*part) for part in key)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return None if None in parts else parts[0] if len(parts) == 1 else parts


def plain_key(letter: str, content: Any) -> KeyValue:
    """Return a key's wire value as a boto3 resource shows it; binary values as bytes, which can be hashed."""
    if letter == "S":
        return content if isinstance(content, str) else None
    value = from_wire({letter: content})
    value = getattr(value, "value", value)
    hash(value)
    return value
