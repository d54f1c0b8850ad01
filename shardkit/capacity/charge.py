"""What calls consumed: per table, index and key, with estimates apart from what was reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
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
"""A stored partition key: the letter of its type, and its content."""

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


class Charge:
    """What one or several calls of an operation consumed, per table (indexes included), index, vector index and key.

    The units of the keys sum to the total. What a batch reported is apportioned to its keys, as an estimate.
    """

    def __init__(self, operation: str, shardings: Mapping[str, Sharding] = MappingProxyType({})) -> None:
        self.operation = operation
        self.shardings = shardings
        self.requests: int = 0
        self.tables: defaultdict[str, Account] = defaultdict(Account)
        self.indexes: defaultdict[tuple[str, str], Account] = defaultdict(Account)
        self.vectors: defaultdict[tuple[str, str], VectorBytes] = defaultdict(VectorBytes)
        self._keys: defaultdict[tuple[str, WireKey | None], Account] = defaultdict(Account)

    def add(self, table: str, keys: WireKey | Shares | None, report: Report) -> None:
        """Add a call to one table that reported all that it consumed."""
        self.requests += 1
        self.add_report(table, report, 1)
        if isinstance(keys, Shares):
            for key, units in keys.of(report[0]).items():
                self._keys[table, key].add(units, keys.requests[key])
        else:
            self._keys[table, keys].add(report[0])

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
            KeyUnits(table, *keys_of(table, key, self.shardings), account.units, account.requests)
            for (table, key), account in self._keys.items()
        ]


class Metered(Requested, Protocol):
    """A call that can be charged; shardkit's own calls bring the shardings of their tables, by plain name."""

    shardings: Mapping[str, Sharding]


def charge_of(
    call: Metered,
    consumed: Any,
    parsed: Mapping[str, Any],
    *,
    only: frozenset[str] | None = None,
    partition_keys: Mapping[str, str],
) -> Charge:
    """Return what one API call consumed: what was reported, and estimates for the tables without a report.

    ``consumed`` is the response's ``ConsumedCapacity`` (a structure, a list of them, or None), ``parsed`` the response
    (or the error, under ``Error``). ``only`` are the tables to count; None for all. ``partition_keys`` are the names of
    the tables' partition keys, as far as they are known.
    """
    if call.operation == SEARCH and consumed:  # the report of SearchVectors is that of its index
        consumed = {_VECTORS: {call.params["IndexName"]: consumed}}
    charge = Charge(call.operation, call.shardings)
    whole = whole_of(call, consumed, parsed, partition_keys)
    if whole is not None:
        table, keys, structure = whole
        charge.add(table, keys, report_of(structure, write=OPERATIONS[call.operation]))
        return charge
    write, involved = writes(call), tables_of(call)
    for structure in [consumed] if isinstance(consumed, Mapping) else consumed or ():
        table = table_name(structure.get("TableName") or (min(involved) if len(involved) == 1 else "unknown"))
        if only is None or table in only:
            charge.add_report(table, report_of(structure, write=write), 0)
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
            KeyUnits(table, *keys_of(table, key, call.shardings), units, part.requests[key])
            for key, units in parts.items()
        ]
    # Units without a known access, such as a statement's, have no known key.
    charge.keys = keys_of_call + [KeyUnits(table, *_NO_KEY, known[table]) for table in known.keys() - shares.keys()]
    # However many structures there were, and even if there was none, it is one request to each table.
    charge.requests = 1
    for table in {*charge.tables, *(involved if only is None else involved & only)}:
        charge.tables[table].requests = 1
    for account in charge.indexes.values():
        account.requests = 1
    return charge


def whole_of(
    call: Metered, consumed: Any, parsed: Mapping[str, Any], partition_keys: Mapping[str, str]
) -> tuple[str, WireKey | Shares | None, Mapping[str, Any]] | None:
    """Return the table, the key (or the keys' shares) and the report of a call to one table that reported everything.

    None: the call needs :func:`charge_of`.
    """
    if call.operation in _SINGLE:
        if not isinstance(consumed, Mapping):
            return None
        table = table_name(call.params["TableName"])
        return table, wire_key_of(call, table, partition_keys), consumed
    outlined = _outlined(call, parsed)
    if outlined is None or not isinstance(consumed, list) or len(consumed) != 1:
        return None
    return *outlined, consumed[0]


def _outlined(call: Metered, parsed: Mapping[str, Any]) -> tuple[str, Shares] | None:
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
    only: frozenset[str] | None,
    partition_keys: Mapping[str, str],
    *,
    least: bool = False,
) -> dict[str, Shares]:
    outlined = _outlined(call, parsed)
    if outlined is not None:
        return dict([outlined])
    shares: dict[str, Shares] = {}
    names: dict[str, str | None] = {}
    for table, attributes, units in estimates_of(call, parsed, least=least):
        part = shares.get(table)
        if part is None:
            if only is not None and table not in only:
                continue
            part = shares[table] = Shares()
            names[table] = _key_name(call, table, partition_keys)
        part.add(_wire_key(attributes, names[table]), units)
    return shares


class Shares:
    """The keys of a call to one table, and the units that each should have cost."""

    def __init__(self, known: Mapping[WireKey, tuple[float, int]] | None = None) -> None:
        self._weights: dict[WireKey | None, float] = {}
        self.requests: dict[WireKey | None, int] = {}
        for key, (units, requests) in (known or {}).items():
            self._weights[key], self.requests[key] = float(units), requests

    def add(self, key: WireKey | None, units: float) -> None:
        self._weights[key] = self._weights.get(key, 0.0) + units
        self.requests[key] = self.requests.get(key, 0) + 1

    @property
    def units(self) -> float:
        return sum(self._weights.values())

    def estimated(self, *, write: bool) -> dict[WireKey | None, Units]:
        if write:
            return {key: Units(estimated_write=units) for key, units in self._weights.items()}
        return {key: Units(estimated_read=units) for key, units in self._weights.items()}

    def of(self, reported: Units) -> dict[WireKey | None, Units]:
        """Divide what was reported among the keys, as estimates; a single key gets the report as it is."""
        if len(self._weights) == 1:
            return dict.fromkeys(self._weights, reported)
        reads, written = self._divided(reported.read), self._divided(reported.write)
        return {key: Units(0.0, 0.0, reads.get(key, 0.0), written.get(key, 0.0)) for key in self._weights}

    def _divided(self, units: float) -> Mapping[WireKey | None, float]:
        if not units:
            return {}
        # On a table without indexes the keys cost exactly what their sizes say.
        return self._weights if self.units == units else apportion(units, self._weights)


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
    return _wire_key(attributes or {}, _key_name(call, table, partition_keys))


def _key_name(call: Metered, table: str, partition_keys: Mapping[str, str]) -> str | None:
    sharding = call.shardings.get(table)
    return partition_keys.get(table) if sharding is None else sharding.partition_key


def _wire_key(attributes: Mapping[str, Any], name: str | None) -> WireKey | None:
    wire = None if name is None else attributes.get(name)
    if not isinstance(wire, dict) or len(wire) != 1:
        return None
    ((letter, content),) = wire.items()
    if isinstance(content, bytearray):
        content = bytes(content)
    return (letter, content) if letter in _KEY_TYPES and isinstance(content, str | bytes) else None


def keys_of(table: str, key: WireKey | None, shardings: Mapping[str, Sharding]) -> tuple[KeyValue, KeyValue]:
    """Return the logical and the physical key of a stored key, as in :class:`KeyUnits`."""
    if key is None:
        return _NO_KEY
    letter, content = key
    try:
        sharding = shardings.get(table)
        if sharding is None:
            return _plain(letter, content), None
        ((_, logical),) = sharding.logical({letter: content})[0].items()
        return _plain(letter, logical), _plain(letter, content)
    except (ArithmeticError, AttributeError, ShardkitError, TypeError, ValueError):
        return _NO_KEY


def _plain(letter: str, content: Any) -> KeyValue:
    if letter == "S":
        return content if isinstance(content, str) else None
    value = from_wire({letter: content})
    value = getattr(value, "value", value)  # binary values as bytes, which can be hashed
    hash(value)
    return value
