"""What a call reads and writes, and what each of that should have cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from shardkit.dynamodb.expressions.key_condition import parse_key_condition
from shardkit.dynamodb.expressions.tokens import NAMES, VALUES, placeholders_in
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import read_units, table_name, write_units
from shardkit.dynamodb.values import comparable_item
from shardkit.errors import ShardkitError

__all__ = [
    "METERED",
    "OPERATIONS",
    "SEARCH",
    "Action",
    "Requested",
    "actions_of",
    "equals_of",
    "nothing",
    "tables_of",
    "writes",
]

# What consumes units, and whether it writes (None: its statements say).
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
SEARCH = "SearchVectors"
"""It consumes bytes of a vector index, and no units."""
METERED = frozenset({*OPERATIONS, SEARCH})
"""What has ``ReturnConsumedCapacity``."""
_TABLE_OF_STATEMENT = re.compile(r"""\b(?:FROM|INTO|UPDATE)\s+(?:"([^"]+)"|([\w.-]+))""", re.IGNORECASE)


class Requested(Protocol):
    """What is needed of a call: the API's operation name, and its parameters in wire form."""

    operation: str
    params: dict[str, Any]


def tables_of(call: Requested) -> set[str]:
    """Name the tables of a call; for PartiQL, those that its statements name in the usual way."""
    params = call.params
    if "TableName" in params:
        return {table_name(params["TableName"])}
    names = set(params.get("RequestItems") or ())
    names.update(action["TableName"] for entry in params.get("TransactItems") or () for action in entry.values())
    for statement in _statements(params):
        names.update(quoted or plain for quoted, plain in _TABLE_OF_STATEMENT.findall(statement))
    return {table_name(name) for name in names}


def _statements(params: Mapping[str, Any]) -> list[str]:
    entries = [params, *(params.get("Statements") or ()), *(params.get("TransactStatements") or ())]
    return [entry["Statement"] for entry in entries if "Statement" in entry]


def writes(call: Requested) -> bool:
    """Say whether a call writes; PartiQL never mixes both in one."""
    write = OPERATIONS.get(call.operation, False)
    if write is None:
        return any(not text.lstrip().upper().startswith(("SELECT", "EXISTS")) for text in _statements(call.params))
    return write


class Action(NamedTuple):
    """One read or write in a call: its table, attributes (the key among them), and the units that it should cost."""

    table: str
    attributes: Mapping[str, Any]
    units: float


_Size = Callable[[Mapping[str, Any] | None], int]


def nothing(_: Mapping[str, Any] | None) -> int:
    """Look at no item: what it costs is then the least that it can."""
    return 0


def actions_of(call: Requested, parsed: Mapping[str, Any], *, size: _Size | None = None) -> Iterator[Action]:
    """Give the reads or writes that a call carried out, by its response (or its error, under ``Error``)."""
    if "Error" not in parsed:
        yield from _ACTIONS[call.operation](call, parsed, size or _size)
    elif parsed["Error"].get("Code") == "ConditionalCheckFailedException":
        params, before = call.params, parsed.get("Item")
        known = max(_size(before), _size(params.get("Item"))) if before else 0
        for table in tables_of(call):
            yield Action(table, params.get("Item") or params.get("Key") or {}, write_units(known))


def _write(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    item = call.params.get("Item")
    units = write_units(max(size(item), size(parsed.get("Attributes"))))
    yield Action(table_name(call.params["TableName"]), item or call.params.get("Key") or {}, units)


def _get(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    units = read_units(size(parsed.get("Item")), consistent=bool(call.params.get("ConsistentRead")))
    yield Action(table_name(call.params["TableName"]), call.params["Key"], units)


def _page(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    units = read_units(sum(map(size, parsed.get("Items") or ())), consistent=bool(call.params.get("ConsistentRead")))
    attributes = equals_of(call.params) if call.operation == "Query" else {}
    yield Action(table_name(call.params["TableName"]), attributes, units)


def _transact_writes(call: Requested, _: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    for entry in call.params["TransactItems"]:
        for action in entry.values():
            item = action.get("Item")
            units = write_units(size(item), transactional=True)
            yield Action(table_name(action["TableName"]), item or action.get("Key") or {}, units)


def _transact_gets(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    responses = parsed.get("Responses") or ()
    for place, entry in enumerate(call.params["TransactItems"]):
        item = responses[place].get("Item") if place < len(responses) else None
        action = entry["Get"]
        yield Action(table_name(action["TableName"]), action["Key"], read_units(size(item), transactional=True))


def _batch_gets(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    found, unprocessed = _by_table(parsed.get("Responses")), _by_table(parsed.get("UnprocessedKeys"))
    for table, request in _by_table(call.params["RequestItems"]).items():
        keys = request["Keys"]
        names = keys[0].keys()
        consistent = bool(request.get("ConsistentRead"))
        left = Counter(map(comparable_item, unprocessed.get(table, {}).get("Keys", ())))
        if size is nothing and not left:
            yield from (Action(table, key, read_units(0, consistent=consistent)) for key in keys)
            continue
        sizes = {
            comparable_item({name: item[name] for name in names}): size(item)
            for item in found.get(table, ())
            if names <= item.keys()
        }
        for key in keys:
            identity = comparable_item(key)
            if left[identity]:
                left[identity] -= 1
                continue
            yield Action(table, key, read_units(sizes.get(identity, 0), consistent=consistent))


def _batch_writes(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    unprocessed = _by_table(parsed.get("UnprocessedItems"))
    for table, requests in _by_table(call.params["RequestItems"]).items():
        left = Counter(map(_write_of, unprocessed.get(table, ())))
        for request in requests:
            if left:
                identity = _write_of(request)
                if left[identity]:
                    left[identity] -= 1
                    continue
            item = (request.get("PutRequest") or {}).get("Item")
            attributes = item or (request.get("DeleteRequest") or {}).get("Key") or {}
            yield Action(table, attributes, write_units(size(item)))


def _statements_run(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Action]:
    # PartiQL: no key is read from a statement, and what it wrote is not visible.
    double = call.operation == "ExecuteTransaction"
    responses = parsed.get("Responses") or ()
    for place, statement in enumerate(_statements(call.params)):
        response = responses[place] if place < len(responses) else {}
        if "Error" in response:
            continue
        # ExecuteStatement answers with Items, the two others with one Item a statement.
        found = sum(map(size, parsed.get("Items") or ())) + size(response.get("Item"))
        units = (
            write_units(found, transactional=double)
            if writes(call)
            else read_units(found, consistent=bool(call.params.get("ConsistentRead")), transactional=double)
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


def equals_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the attributes that a Query asks to be equal to a value."""
    try:
        text, values = params.get("KeyConditionExpression"), params.get(VALUES)
        if not isinstance(text, str) or not values:
            return parse_key_condition(params).equals
        names = params.get(NAMES) or {}
        return {names.get(name, name): values[value] for name, value in _equals(text)}
    except (LookupError, ShardkitError, TypeError):
        return {}


@lru_cache(256)
def _equals(text: str) -> tuple[tuple[str, str], ...]:
    """Give what a key condition compares by ``=``, as it is written there; an application has few such texts."""
    used = placeholders_in(text)
    params: dict[str, Any] = {
        "KeyConditionExpression": text,
        NAMES: {name: name for name in used if name.startswith("#")},
        VALUES: {value: {"S": value} for value in used if value.startswith(":")},
    }
    return tuple((name, value["S"]) for name, value in parse_key_condition(params).equals.items())


def _write_of(request: Mapping[str, Any]) -> Hashable:
    """Make one write of a batch hashable, equal ones equal, however they are written."""
    return frozenset(
        (kind, name, comparable_item(attributes)) for kind, body in request.items() for name, attributes in body.items()
    )


_ACTIONS: Mapping[str, Callable[[Requested, Mapping[str, Any], _Size], Iterator[Action]]] = {
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
    SEARCH: lambda *_: iter(()),
    "TransactGetItems": _transact_gets,
    "TransactWriteItems": _transact_writes,
    "UpdateItem": _write,
}
