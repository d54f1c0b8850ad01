"""Bytes to read and write units, sums of what the service reported, and what a call should have cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, TypeVar

from shardkit.capacity.sizes import item_size
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.expressions import parse_key_condition

__all__ = [
    "OPERATIONS",
    "Action",
    "Requested",
    "actions_of",
    "add_consumed",
    "apportion",
    "read_units",
    "table_name",
    "tables_of",
    "write_units",
    "writes",
]

K = TypeVar("K", bound=Hashable)

# What has ``ReturnConsumedCapacity``, and whether it writes (None: its statements say).
OPERATIONS: Mapping[str, bool | None] = {
    "BatchExecuteStatement": None,
    "BatchGetItem": False,
    "BatchWriteItem": True,
    "DeleteItem": True,
    "ExecuteStatement": None,
    "ExecuteTransaction": None,
    "GetItem": False,
    "PutItem": True,
    "Query": False,
    "Scan": False,
    "TransactGetItems": False,
    "TransactWriteItems": True,
    "UpdateItem": True,
}
_TABLE_OF_STATEMENT = re.compile(r"""\b(?:FROM|INTO|UPDATE)\s+(?:"([^"]+)"|([\w.-]+))""", re.IGNORECASE)

_READ_BLOCK = 4096
_WRITE_BLOCK = 1024
# The service reports halves; a batch is apportioned in finer parts, which a float still adds up exactly.
_PARTS = 1024


def read_units(size: int, *, consistent: bool = False, transactional: bool = False) -> float:
    """Give the read units of one read: of an item, or of all that a Query or Scan page evaluated.

    Example:
        >>> read_units(3500), read_units(3500, consistent=True), read_units(3500, transactional=True)
        (0.5, 1.0, 2.0)

    Args:
        size: bytes, of the item (GetItem and BatchGetItem round each item) or of the page's items together, before
            filter and projection (Query and Scan round the sum); 0 where nothing was found.
        consistent: strongly consistent; eventually consistent reads cost half of it.
        transactional: read in a transaction, which costs twice a strongly consistent read.

    Returns:
        Read units, at least those of one block of 4096 bytes.

    Raises:
        ConfigurationError: ``size`` is negative.

    Cost:
        No request.

    Source:
        DynamoDB Developer Guide, "Read and write capacity: capacity unit consumption".
    """
    blocks = _blocks(size, _READ_BLOCK)
    if transactional:
        return blocks * 2.0
    return float(blocks) if consistent else blocks / 2


def write_units(size: int, *, transactional: bool = False) -> float:
    """Give the write units of one write to a table.

    Example:
        >>> write_units(500), write_units(1600), write_units(500, transactional=True)
        (1.0, 2.0, 2.0)

    Args:
        size: bytes: for a put or an update the larger of the item before and after, for a delete the deleted item;
            0 where there was none.
        transactional: written in a transaction, which costs twice as much (on the table, not on its indexes).

    Returns:
        Write units, at least those of one block of 1024 bytes.

    Raises:
        ConfigurationError: ``size`` is negative.

    Cost:
        No request.

    Source:
        DynamoDB Developer Guide, "Read and write capacity: capacity unit consumption".
    """
    return _blocks(size, _WRITE_BLOCK) * (2.0 if transactional else 1.0)


def _blocks(size: int, block: int) -> int:
    if size < 0:
        raise ConfigurationError(
            f"a size is a number of bytes and not negative, got {size}; give 0 where there is no item"
        )
    return max(1, -(-size // block))


def add_consumed(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add two ``ConsumedCapacity`` structures of one table, part by part.

    Example:
        >>> add_consumed({"TableName": "Orders", "CapacityUnits": 0.5}, {"TableName": "Orders", "CapacityUnits": 2.0})
        {'TableName': 'Orders', 'CapacityUnits': 2.5}

    Args:
        a: a structure as boto3 gives it: units under ``CapacityUnits``, ``ReadCapacityUnits``,
            ``WriteCapacityUnits``, and the same under ``Table``, ``LocalSecondaryIndexes`` and
            ``GlobalSecondaryIndexes``; any part may be missing. None counts as an empty one.
        b: another one.

    Returns:
        A new structure with every part that either has, in units; neither argument is changed or shared.

    Raises:
        ConfigurationError: the two are of different tables.

    Cost:
        No request.

    Source:
        DynamoDB API reference, ``ConsumedCapacity``.
    """
    one, other = a or {}, b or {}
    names = {str(part["TableName"]) for part in (one, other) if part.get("TableName") is not None}
    if len(names) > 1:
        raise ConfigurationError(
            f"capacity of different tables cannot be added up, got {sorted(names)}; add them per table"
        )
    return _add(one, other)


def _add(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for name in (*a, *(name for name in b if name not in a)):
        one, other = a.get(name), b.get(name)
        if isinstance(one, Mapping) or isinstance(other, Mapping):
            total[name] = _add(one or {}, other or {})
        elif one is None or other is None:
            total[name] = other if one is None else one
        else:
            total[name] = one if isinstance(one, str) else one + other
    return total


def apportion(units: float, weights: Mapping[K, float]) -> dict[K, float]:
    """Divide the units that a batch consumed over the keys in it; the parts add up to exactly the whole.

    Example:
        >>> apportion(6.0, {"2014-07-09": 1.0, "2014-07-10": 2.0})
        {'2014-07-09': 2.0, '2014-07-10': 4.0}

    Args:
        units: what was reported, in read or write units.
        weights: for each key the units that it is estimated to have consumed, not negative.

    Returns:
        Units for each key, an estimate: in proportion to the weights, in multiples of 1/1024 of a unit.

    Raises:
        ConfigurationError: there is no key, or a weight is negative.

    Cost:
        No request.
    """
    if not weights or min(weights.values()) < 0:
        raise ConfigurationError(
            f"units are divided over keys of weight 0 or more, got {dict(weights)!r:.200}; give such keys"
        )
    fractions = {key: Fraction(weight) for key, weight in weights.items()}
    whole = sum(fractions.values())
    if not whole:
        fractions, whole = dict.fromkeys(weights, Fraction(1)), Fraction(len(weights))
    parts, rest = divmod(units * _PARTS, 1)
    exact = {key: int(parts) * weight / whole for key, weight in fractions.items()}
    shares = {key: int(share) for key, share in exact.items()}
    # What rounding down left over goes to those that lost most by it (fewer parts than there are keys).
    by_loss = sorted(exact, key=lambda key: shares[key] - exact[key])
    for key in by_loss[: int(parts) - sum(shares.values())]:
        shares[key] += 1
    result = {key: share / _PARTS for key, share in shares.items()}
    result[by_loss[0]] += rest / _PARTS
    return result


class Requested(Protocol):
    """What is needed of a call: the API's operation name, and its parameters in wire form."""

    operation: str
    params: dict[str, Any]


def tables_of(call: Requested) -> set[str]:
    """Name the tables of a call; for PartiQL, those that its statements name in the usual way."""
    params = call.params
    names: set[str] = set()
    if "TableName" in params:
        names.add(params["TableName"])
    names.update(params.get("RequestItems") or ())
    names.update(action["TableName"] for entry in params.get("TransactItems") or () for action in entry.values())
    for statement in _statements(params):
        names.update(quoted or plain for quoted, plain in _TABLE_OF_STATEMENT.findall(statement))
    return {table_name(name) for name in names}


def table_name(name: str) -> str:
    """Give the plain name of a table that may be named by its ARN, in requests and in responses."""
    return name.partition(":table/")[2].partition("/")[0] if name.startswith("arn:") else name


def _statements(params: Mapping[str, Any]) -> list[str]:
    entries = [params, *(params.get("Statements") or ()), *(params.get("TransactStatements") or ())]
    return [entry["Statement"] for entry in entries if "Statement" in entry]


def writes(call: Requested) -> bool:
    """Say whether a call writes; PartiQL never mixes both in one."""
    write = OPERATIONS[call.operation]
    if write is None:
        return any(not text.lstrip().upper().startswith(("SELECT", "EXISTS")) for text in _statements(call.params))
    return write


class Action(NamedTuple):
    """One read or write in a call: its table, attributes (the key among them), and the units that it should cost."""

    table: str
    attributes: Mapping[str, Any]
    units: float


def actions_of(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    """Give the reads or writes that a call carried out, by its response (or its error, under ``Error``)."""
    if "Error" not in parsed:
        yield from _ACTIONS[call.operation](call, parsed)
    elif parsed["Error"].get("Code") == "ConditionalCheckFailedException":
        params, before = call.params, parsed.get("Item")
        size = max(_size(before), _size(params.get("Item"))) if before else 0
        for table in tables_of(call):
            yield Action(table, params.get("Item") or params.get("Key") or {}, write_units(size))


def _write(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    item = call.params.get("Item")
    units = write_units(max(_size(item), _size(parsed.get("Attributes"))))
    yield Action(table_name(call.params["TableName"]), item or call.params.get("Key") or {}, units)


def _get(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    units = read_units(_size(parsed.get("Item")), consistent=bool(call.params.get("ConsistentRead")))
    yield Action(table_name(call.params["TableName"]), call.params["Key"], units)


def _page(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    size = sum(map(_size, parsed.get("Items") or ()))
    units = read_units(size, consistent=bool(call.params.get("ConsistentRead")))
    attributes = _equals(call.params) if call.operation == "Query" else {}
    yield Action(table_name(call.params["TableName"]), attributes, units)


def _transact_writes(call: Requested, _: Mapping[str, Any]) -> Iterator[Action]:
    for entry in call.params["TransactItems"]:
        for action in entry.values():
            item = action.get("Item")
            units = write_units(_size(item), transactional=True)
            yield Action(table_name(action["TableName"]), item or action.get("Key") or {}, units)


def _transact_gets(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    responses = parsed.get("Responses") or ()
    for place, entry in enumerate(call.params["TransactItems"]):
        item = responses[place].get("Item") if place < len(responses) else None
        action = entry["Get"]
        yield Action(table_name(action["TableName"]), action["Key"], read_units(_size(item), transactional=True))


def _batch_gets(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    found, unprocessed = _by_table(parsed.get("Responses")), _by_table(parsed.get("UnprocessedKeys"))
    for table, request in _by_table(call.params["RequestItems"]).items():
        keys = request["Keys"]
        names = keys[0].keys()
        sizes = {
            _frozen({name: item[name] for name in names}): _size(item)
            for item in found.get(table, ())
            if names <= item.keys()
        }
        left = Counter(map(_frozen, unprocessed.get(table, {}).get("Keys", ())))
        for key in keys:
            identity = _frozen(key)
            if left[identity]:
                left[identity] -= 1
                continue
            units = read_units(sizes.get(identity, 0), consistent=bool(request.get("ConsistentRead")))
            yield Action(table, key, units)


def _batch_writes(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    unprocessed = _by_table(parsed.get("UnprocessedItems"))
    for table, requests in _by_table(call.params["RequestItems"]).items():
        left = Counter(map(_frozen, unprocessed.get(table, ())))
        for request in requests:
            if left:
                identity = _frozen(request)
                if left[identity]:
                    left[identity] -= 1
                    continue
            item = (request.get("PutRequest") or {}).get("Item")
            attributes = item or (request.get("DeleteRequest") or {}).get("Key") or {}
            yield Action(table, attributes, write_units(_size(item)))


def _statements_run(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Action]:
    # PartiQL: no key is read from a statement, and what it wrote is not visible.
    double = call.operation == "ExecuteTransaction"
    responses = parsed.get("Responses") or ()
    for place, statement in enumerate(_statements(call.params)):
        response = responses[place] if place < len(responses) else {}
        if "Error" in response:
            continue
        # ExecuteStatement answers with Items, the two others with one Item a statement.
        size = sum(map(_size, parsed.get("Items") or ())) + _size(response.get("Item"))
        units = (
            write_units(size, transactional=double)
            if writes(call)
            else read_units(size, consistent=bool(call.params.get("ConsistentRead")), transactional=double)
        )
        for quoted, plain in _TABLE_OF_STATEMENT.findall(statement)[:1]:
            yield Action(table_name(quoted or plain), {}, units)


def _by_table(by_name: Mapping[str, Any] | None) -> dict[str, Any]:
    return {table_name(name): content for name, content in (by_name or {}).items()}


def _size(item: Mapping[str, Any] | None) -> int:
    try:
        return item_size(item or {})
    except (AttributeError, TypeError, ValueError):
        # A type that AWS adds later must not break the call that is measured; the estimate is the least then.
        return 0


def _equals(params: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return parse_key_condition(params).equals
    except ShardkitError:
        return {}


def _frozen(value: Any) -> Any:
    """Make a wire value hashable, so that equal ones are equal: a number by value, a set in any order."""
    if isinstance(value, Mapping):
        if len(value) == 1:
            ((kind, content),) = value.items()
            if kind == "N" and isinstance(content, str):
                return ("N", Decimal(content))
            if kind in ("SS", "NS", "BS") and isinstance(content, list | tuple):
                members = (Decimal(member) if kind == "NS" else _frozen(member) for member in content)
                return (kind, frozenset(members))
        return frozenset((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    value = getattr(value, "value", value)
    return bytes(value) if isinstance(value, bytearray) else value


_ACTIONS: Mapping[str, Callable[[Requested, Mapping[str, Any]], Iterator[Action]]] = {
    "BatchExecuteStatement": _statements_run,
    "BatchGetItem": _batch_gets,
    "BatchWriteItem": _batch_writes,
    "DeleteItem": _write,
    "ExecuteStatement": _statements_run,
    "ExecuteTransaction": _statements_run,
    "GetItem": _get,
    "PutItem": _write,
    "Query": _page,
    "Scan": _page,
    "TransactGetItems": _transact_gets,
    "TransactWriteItems": _transact_writes,
    "UpdateItem": _write,
}
