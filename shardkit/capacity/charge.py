"""What one call consumed: per table, index and key; what was reported, and what is estimated, apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shardkit.capacity.usage import Account, Units, VectorBytes
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.requests import OPERATIONS, SEARCH, Requested, equals_of, estimates_of, tables_of, writes
from shardkit.dynamodb.units import apportion, table_name
from shardkit.errors import ShardkitError

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

KeyValue = object
"""A partition key as a boto3 resource shows it: str, bytes or Decimal."""

WireKey = tuple[str, str | bytes]
"""A stored partition key, as its type's letter and its content."""

Whole = tuple[str, "WireKey | Shares | None", Mapping[str, Any]]

_NOTHING = Units()
_NO_KEY = (None, None)
_KEY_TYPES = frozenset({"B", "N", "S"})
_LOCAL, _GLOBAL = _INDEXES = ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
_VECTORS = "VectorIndexes"
_NO_INDEXES: Mapping[str, Any] = MappingProxyType({})
_NO_BYTES = VectorBytes()
SINGLE = frozenset({"DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"})
"""Operations that are about one key: the report says what that consumed, and nothing is apportioned."""


class KeyUnits(NamedTuple):
    """What a key consumed: ``logical`` is None where it is not known, ``physical`` where the table is not sharded."""

    table: str
    logical: KeyValue
    physical: KeyValue
    units: Units
    requests: int = 1


class Charge(NamedTuple):
    """What an API call consumed: in all, per table (its indexes included), per index, and per key.

    The units of ``keys`` sum to the total; what a batch reported is apportioned there, as an estimate. It may be
    that of several calls (``requests``) of one kind. ``vectors`` are the bytes of each vector index.
    """

    operation: str
    total: Units
    tables: Mapping[str, Units]
    indexes: Mapping[tuple[str, str], Units]
    keys: Sequence[KeyUnits]
    sharding: Sharding | None = None
    requests: int = 1
    vectors: Mapping[tuple[str, str], VectorBytes] = MappingProxyType({})


class Metered(Requested, Protocol):
    """What is needed of a call to charge it: shardkit's own bring the table's sharding."""

    sharding: Sharding | None


def charge_of(
    call: Metered,
    consumed: Any,
    parsed: Mapping[str, Any],
    *,
    only: frozenset[str] | None = None,
    partition_keys: Mapping[str, str],
) -> Charge:
    """Say what one API call consumed.

    Args:
        call: the request, in wire form.
        consumed: the response's ``ConsumedCapacity``: a structure, a list of them, or None.
        parsed: the response (or the error, under ``Error``), in wire form.
        only: the tables to look at; None for all.
        partition_keys: a table's name to the name of its partition key, where that is known.

    Returns:
        The :class:`Charge`: what was reported, and estimates for the tables of which nothing was.
    """
    if call.operation == SEARCH and consumed:  # it says the one index's bytes
        consumed = {_VECTORS: {call.params["IndexName"]: consumed}}
    whole = whole_of(call, consumed, parsed, partition_keys)
    if whole is None:
        return _of_several(call, consumed, parsed, only, partition_keys)
    table, keys, report = whole
    alike = Alike(call.operation, table, call.sharding)
    alike.add(keys, *reported(call.operation, report))
    return alike.charge()


def whole_of(
    call: Metered, consumed: Any, parsed: Mapping[str, Any], partition_keys: Mapping[str, str]
) -> Whole | None:
    """Give the table, the key or the keys' shares, and the report of a call to one table of which all was reported.

    None: there is more to the call, or less is known of it.
    """
    if call.operation in SINGLE:
        if not isinstance(consumed, Mapping):
            return None
        table = table_name(call.params["TableName"])
        return table, wire_key_of(call, table, partition_keys), consumed
    outlined = _outlined(call, parsed)
    if outlined is None or not isinstance(consumed, list) or len(consumed) != 1:
        return None
    return *outlined, consumed[0]


def _outlined(call: Metered, parsed: Mapping[str, Any]) -> tuple[str, Shares] | None:
    """Give the table and the shares of a batch of shardkit's own, which knows them, and keeps its items as bytes."""
    if call.operation != "BatchWriteItem" or "Error" in parsed or parsed.get("UnprocessedItems"):
        return None
    for name, requests in call.params["RequestItems"].items():
        outline = getattr(requests, "outline", None)
        if outline is not None:  # it writes to one table
            return table_name(name), Shares(outline())
    return None


def reported(
    operation: str, consumed: Mapping[str, Any]
) -> tuple[Units, Mapping[str, Units], Mapping[str, VectorBytes]]:
    """Give what was reported of a call to one table: in all, per index, and the bytes of its vector indexes."""
    write = OPERATIONS[operation] is True
    return _reported(consumed, write=write), _of_indexes(consumed, write=write), _of_vectors(consumed)


class Alike:
    """Calls of one operation to one table and the same indexes, of which all was reported."""

    def __init__(self, operation: str, table: str, sharding: Sharding | None) -> None:
        self._operation = operation
        self._table = table
        self._sharding = sharding
        self._total = Account()
        self._indexes: defaultdict[str, Account] = defaultdict(Account)
        self._keys: defaultdict[WireKey | None, Account] = defaultdict(Account)
        self._vectors: dict[str, VectorBytes] = {}

    def add(
        self,
        keys: WireKey | Shares | None,
        units: Units,
        indexes: Mapping[str, Units],
        vectors: Mapping[str, VectorBytes],
    ) -> None:
        """Add what one of them consumed."""
        self._total.add(units)
        for index, taken in vectors.items():
            self._vectors[index] = self._vectors.get(index, _NO_BYTES).plus(taken)
        for index, part in indexes.items():
            self._indexes[index].add(part)
        if isinstance(keys, Shares):
            for key, part in keys.of(units).items():
                self._keys[key].add(part, keys.requests[key])
        else:
            self._keys[keys].add(units)

    def charge(self) -> Charge:
        """Give what they consumed together."""
        table, total, requests = self._table, self._total.units, self._total.requests
        keys = [
            KeyUnits(table, *keys_of(table, key, self._sharding), account.units, account.requests)
            for key, account in self._keys.items()
        ]
        indexes = {(table, index): account.units for index, account in self._indexes.items()}
        vectors = {(table, index): taken for index, taken in self._vectors.items()}
        return Charge(self._operation, total, {table: total}, indexes, keys, self._sharding, requests, vectors)


def _of_several(
    call: Metered,
    consumed: Any,
    parsed: Mapping[str, Any],
    only: frozenset[str] | None,
    partition_keys: Mapping[str, str],
) -> Charge:
    write, involved = writes(call), tables_of(call)
    tables: dict[str, Units] = {}
    indexes: dict[tuple[str, str], Units] = {}
    vectors: dict[tuple[str, str], VectorBytes] = {}
    for structure in [consumed] if isinstance(consumed, Mapping) else consumed or ():
        table = table_name(structure.get("TableName") or (min(involved) if len(involved) == 1 else "unknown"))
        tables[table] = tables.get(table, _NOTHING).plus(_reported(structure, write=write))
        for index, units in _of_indexes(structure, write=write).items():
            indexes[table, index] = indexes.get((table, index), _NOTHING).plus(units)
        for index, taken in _of_vectors(structure).items():
            vectors[table, index] = vectors.get((table, index), _NO_BYTES).plus(taken)
    # If the report equals the least that the call can have cost, each access cost its least: no item is measured.
    shares = _shares(call, parsed, only, partition_keys, least=bool(tables))
    if tables and any(table not in tables or part.units != _sum(tables[table]) for table, part in shares.items()):
        shares = _shares(call, parsed, only, partition_keys)
    keys: list[KeyUnits] = []
    for table, part in shares.items():
        reported = tables.get(table)
        if reported is None:
            parts = part.estimated(write=write)
            tables[table] = Units(*map(sum, zip(*parts.values(), strict=True)))
            if "IndexName" in call.params:
                indexes[table, call.params["IndexName"]] = tables[table]
        else:
            parts = part.of(reported)
        keys += [
            KeyUnits(table, *keys_of(table, key, call.sharding), units, part.requests[key])
            for key, units in parts.items()
        ]
    # What is reported for a table of which no action is known, by a statement for one, is that of no known key.
    keys += [KeyUnits(table, *_NO_KEY, units) for table, units in tables.items() if table not in shares]
    if only is not None:
        tables = {table: units for table, units in tables.items() if table in only}
        indexes = {index: units for index, units in indexes.items() if index[0] in only}
        vectors = {index: taken for index, taken in vectors.items() if index[0] in only}
        keys = [key for key in keys if key.table in only]
        involved &= only
    total = Units(*map(sum, zip(_NOTHING, *tables.values(), strict=True)))
    tables = {name: tables.get(name, _NOTHING) for name in involved | tables.keys()}
    return Charge(call.operation, total, tables, indexes, keys, call.sharding, vectors=vectors)


def _shares(
    call: Metered,
    parsed: Mapping[str, Any],
    only: frozenset[str] | None,
    partition_keys: Mapping[str, str],
    *,
    least: bool = False,
) -> dict[str, Shares]:
    outlined = _outlined(call, parsed)
    if outlined is not None:
        return dict([outlined])
    shares: dict[str, Shares] = {}
    for table, attributes, units in estimates_of(call, parsed, least=least):
        if only is None or table in only:
            part = shares.get(table)
            if part is None:
                part = shares[table] = Shares()
            part.add(_wire_key(call, table, attributes, partition_keys), units)
    return shares


def _sum(units: Units) -> float:
    return units.read + units.write


class Shares:
    """The keys of a call to one table, and how much each weighs in what the table consumed."""

    def __init__(self, known: Mapping[WireKey, tuple[float, int]] | None = None) -> None:
        self._weights: dict[WireKey | None, float] = {}
        self.requests: dict[WireKey | None, int] = {}
        for key, (units, requests) in (known or {}).items():
            self._weights[key], self.requests[key] = float(units), requests

    def add(self, key: WireKey | None, units: float) -> None:
        """Add a read or a write that should have cost so many units."""
        self._weights[key] = self._weights.get(key, 0.0) + units
        self.requests[key] = self.requests.get(key, 0) + 1

    @property
    def units(self) -> float:
        """What all should have cost."""
        return sum(self._weights.values())

    def estimated(self, *, write: bool) -> dict[WireKey | None, Units]:
        """Give what each should have cost."""
        if write:
            return {key: Units(estimated_write=units) for key, units in self._weights.items()}
        return {key: Units(estimated_read=units) for key, units in self._weights.items()}

    def of(self, reported: Units) -> dict[WireKey | None, Units]:
        """Divide what was reported for all, as an estimate; one key alone has it as it was reported."""
        if len(self._weights) == 1:
            return dict.fromkeys(self._weights, reported)
        reads, written = self._divided(reported.read), self._divided(reported.write)
        return {key: Units(0.0, 0.0, reads.get(key, 0.0), written.get(key, 0.0)) for key in self._weights}

    def _divided(self, units: float) -> Mapping[WireKey | None, float]:
        if not units:
            return {}
        # On a table without indexes they cost just what their sizes say.
        return self._weights if self.units == units else apportion(units, self._weights)


def _reported(structure: Mapping[str, Any], *, write: bool) -> Units:
    units = structure.get("CapacityUnits")
    if units is not None and "ReadCapacityUnits" not in structure and "WriteCapacityUnits" not in structure:
        return Units(0.0, float(units)) if write else Units(float(units))
    read, written = structure.get("ReadCapacityUnits"), structure.get("WriteCapacityUnits")
    parts = float(read or 0), float(written or 0)
    if units is None and read is None and written is None:
        indexes = (structure.get(kind) or {} for kind in _INDEXES)
        pieces = [structure.get("Table") or {}, *(piece for some in indexes for piece in some.values())]
        whole = _NOTHING
        for piece in filter(None, pieces):
            whole = whole.plus(_reported(piece, write=write))
        return whole
    if units is None or (sum(parts) == units and (read is not None or written is not None)):
        # A repeated TransactWriteItems is charged as reads: where the service tells the sides apart, it is right.
        return Units(*parts)
    return Units(0.0, float(units)) if write else Units(float(units))


def _of_indexes(structure: Mapping[str, Any], *, write: bool) -> Mapping[str, Units]:
    if _LOCAL not in structure and _GLOBAL not in structure:
        return _NO_INDEXES
    return {
        index: _reported(part, write=write) for kind in _INDEXES for index, part in (structure.get(kind) or {}).items()
    }


def _of_vectors(structure: Mapping[str, Any]) -> Mapping[str, VectorBytes]:
    parts = structure.get(_VECTORS)
    if not parts:
        return _NO_INDEXES
    return {
        index: VectorBytes(
            float(part.get("VectorSearchRequestBytes") or 0), float(part.get("VectorWriteRequestBytes") or 0)
        )
        for index, part in parts.items()
    }


def wire_key_of(call: Metered, table: str, partition_keys: Mapping[str, str]) -> WireKey | None:
    """Give the stored key that a call to one table is about; None: it is not known, or there are several."""
    params = call.params
    attributes = params.get("Key") or params.get("Item")
    if attributes is None and call.operation == "Query":
        attributes = equals_of(params)
    return _wire_key(call, table, attributes or {}, partition_keys)


def _wire_key(
    call: Metered, table: str, attributes: Mapping[str, Any], partition_keys: Mapping[str, str]
) -> WireKey | None:
    sharding = call.sharding
    if sharding is not None and table_name(sharding.table) == table:
        name: str | None = sharding.partition_key
    else:
        name = partition_keys.get(table)
    wire = None if name is None else attributes.get(name)
    if not isinstance(wire, dict) or len(wire) != 1:
        return None
    ((letter, content),) = wire.items()
    if isinstance(content, bytearray):
        content = bytes(content)
    return (letter, content) if letter in _KEY_TYPES and isinstance(content, str | bytes) else None


def keys_of(table: str, key: WireKey | None, sharding: Sharding | None) -> tuple[KeyValue, KeyValue]:
    """Give the logical key of a stored one, and the physical one where the table is sharded; None: not known."""
    if key is None:
        return _NO_KEY
    letter, content = key
    try:
        if sharding is None or table_name(sharding.table) != table:
            return _plain(letter, content), None
        ((_, logical),) = sharding.logical({letter: content})[0].items()
        return _plain(letter, logical), _plain(letter, content)
    except (ArithmeticError, AttributeError, ShardkitError, TypeError, ValueError):
        return _NO_KEY


def _plain(letter: str, content: Any) -> KeyValue:
    """Give a key's Python value: binary as bytes, which can be hashed."""
    if letter == "S":
        return content if isinstance(content, str) else None
    value = from_wire({letter: content})
    value = getattr(value, "value", value)
    hash(value)
    return value
