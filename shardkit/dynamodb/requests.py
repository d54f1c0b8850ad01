"""What a request reads and writes, and what each read and write is estimated to cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from shardkit.dynamodb.expressions.key_condition import parse_key_condition
from shardkit.dynamodb.expressions.tokens import NAMES, VALUES, parts, placeholders_in
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import read_units, table_name, write_units
from shardkit.dynamodb.values import comparable_item
from shardkit.errors import ShardkitError

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
"""The operations that consume capacity units, and whether each writes (None: its PartiQL statements decide)."""
SEARCH = "SearchVectors"
"""Consumes bytes of a vector index, and no units."""
METERED = frozenset({*OPERATIONS, SEARCH})
"""The operations that take ``ReturnConsumedCapacity``."""

_Item = Mapping[str, Any]
_COMMENT = r"(?:/\*.*?\*/|--[^\n]*\n)"
_TABLE_OF_STATEMENT = re.compile(
    rf"""\b(?:FROM|INTO|UPDATE)(?:(?:\s|{_COMMENT})*"([^"]+)"|(?:\s|{_COMMENT})+([\w.-]+))""", re.IGNORECASE | re.DOTALL
)
_KINDS = {
    "ConditionCheck": "check",
    "Delete": "delete",
    "DeleteItem": "delete",
    "DeleteRequest": "delete",
    "Get": "get",
    "GetItem": "get",
    "Put": "put",
    "PutItem": "put",
    "PutRequest": "put",
    "Update": "update",
    "UpdateItem": "update",
}
_SINGLE = frozenset({"DeleteItem", "GetItem", "PutItem", "UpdateItem"})


class Requested(Protocol):
    """A call: the API's operation name, and its parameters in wire form."""

    operation: str
    params: dict[str, Any]


def tables_of(call: Requested) -> set[str]:
    """Return the plain names of a call's tables."""
    return {table_name(name) for name in tables_named(call)}


def tables_named(call: Requested) -> set[str]:
    """Return a call's tables as it names them; for PartiQL, what its statements name after FROM, INTO or UPDATE."""
    params = call.params.get("TableCreationParameters") or call.params
    if "TableName" in params:
        return {params["TableName"]}
    names = set(params.get("RequestItems") or ())
    names.update(action["TableName"] for entry in params.get("TransactItems") or () for action in entry.values())
    for statement in _statements(params):
        names.update(quoted or plain for quoted, plain in _TABLE_OF_STATEMENT.findall(statement))
    return names


def _statements(params: Mapping[str, Any]) -> list[str]:
    entries = [params, *(params.get("Statements") or ()), *(params.get("TransactStatements") or ())]
    return [entry["Statement"] for entry in entries if "Statement" in entry]


def writes(call: Requested) -> bool:
    """Return whether a call writes; a PartiQL call either reads or writes, never both."""
    write = OPERATIONS.get(call.operation, False)
    if write is None:
        return any(not text.lstrip().upper().startswith(("SELECT", "EXISTS")) for text in _statements(call.params))
    return write


class Access(NamedTuple):
    """One item that a request reads or writes.

    Args:
        table: its table, as the request names it: a name or an ARN.
        place: its position in the request, or in its table's part of a batch.
        kind: ``get``, ``put``, ``update``, ``delete`` or ``check`` (a transaction's ConditionCheck). A kind that AWS
            adds later has the name that the request gives it.
        attributes: the item of a put, else the primary key.
        consistent: a strongly consistent read.
        projected: a read that asks for some attributes only.
        transactional: in a transaction.
        body: its part of the request, with its expressions; empty for the puts and deletes of a batch.
    """

    table: str
    place: int
    kind: str
    attributes: _Item
    consistent: bool = False
    projected: bool = False
    transactional: bool = False
    body: _Item = MappingProxyType({})


def accesses_of(operation: str, params: Mapping[str, Any]) -> Iterator[Access]:
    """Yield each item that a request reads or writes by its primary key; a Query, a Scan and PartiQL have none.

    Args:
        operation: the API's operation name.
        params: the request's parameters, in wire form.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the request does not have the API's shape.
    """
    if operation in _SINGLE:
        options = _read_options(params)
        yield Access(params["TableName"], 0, _KINDS[operation], _attributes(params), *options, body=params)
    elif "RequestItems" in params:
        for table, part in params["RequestItems"].items():
            if operation == "BatchGetItem":
                options = _read_options(part)
                for place, key in enumerate(part["Keys"]):
                    yield Access(table, place, "get", key, *options)
            else:
                for place, request in enumerate(part):
                    ((name, body),) = request.items()
                    yield Access(table, place, _KINDS.get(name, name), _attributes(body))
    elif "TransactItems" in params:
        for place, entry in enumerate(params["TransactItems"]):
            ((name, body),) = entry.items()
            options = _read_options(body) if name == "Get" else (False, False)
            kind, attributes = _KINDS.get(name, name), _attributes(body)
            yield Access(body["TableName"], place, kind, attributes, *options, transactional=True, body=body)


def _attributes(body: Mapping[str, Any]) -> _Item:
    return body.get("Item") or body.get("Key") or {}


def _read_options(body: Mapping[str, Any]) -> tuple[bool, bool]:
    return bool(body.get("ConsistentRead")), "ProjectionExpression" in body or "AttributesToGet" in body


def found_items(operation: str, params: Mapping[str, Any], parsed: Mapping[str, Any]) -> dict[tuple[str, int], _Item]:
    """Return the items in the response to a GetItem, BatchGetItem or TransactGetItems.

    Returns:
        Each item under its access's table and place. An item of a batch that comes without its key is left out.
    """
    if operation == "GetItem":
        return {(params["TableName"], 0): parsed["Item"]} if "Item" in parsed else {}
    if operation == "TransactGetItems":
        responses = enumerate(zip(params["TransactItems"], parsed.get("Responses") or (), strict=False))
        return {
            (entry["Get"]["TableName"], place): found["Item"] for place, (entry, found) in responses if "Item" in found
        }
    found: dict[tuple[str, int], _Item] = {}
    items_of = {table_name(name): items for name, items in (parsed.get("Responses") or {}).items()}
    for table, part in params["RequestItems"].items():
        names = part["Keys"][0].keys()
        items = {
            comparable_item({name: item[name] for name in names}): item
            for item in items_of.get(table_name(table), ())
            if names <= item.keys()
        }
        for place, key in enumerate(part["Keys"]):
            item = items.get(comparable_item(key))
            if item is not None:
                found[table, place] = item
    return found


Estimate = tuple[str, _Item, float]
"""What one read or write should have cost: its table's plain name, its attributes (the key among them), and units."""

_Size = Callable[[_Item | None], int]


def estimates_of(call: Requested, parsed: Mapping[str, Any], *, least: bool = False) -> Iterator[Estimate]:
    """Yield what each read or write that a call carried out should have cost.

    Args:
        call: the request.
        parsed: its response (or its error, under ``Error``), in wire form.
        least: measure no item: yield the least that each can have cost.
    """
    if "Error" in parsed:
        failed = parsed["Error"].get("Code") == "ConditionalCheckFailedException"
        return _failed_condition(call, parsed) if failed else iter(())
    size: _Size = (lambda _: 0) if least else _size
    if call.operation in {"Query", "Scan"}:
        return _page(call, parsed, size)
    if OPERATIONS.get(call.operation, False) is None:
        return _statements_run(call, parsed, size)
    return _items(call, parsed, least=least)


def _failed_condition(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Estimate]:
    params, before = call.params, parsed.get("Item")
    known = max(_size(before), _size(params.get("Item"))) if before else 0
    for table in tables_of(call):
        yield table, _attributes(params), write_units(known)


def _items(call: Requested, parsed: Mapping[str, Any], *, least: bool) -> Iterator[Estimate]:
    operation, params = call.operation, call.params
    accesses = _processed(call, parsed)
    if least:
        for table, _, kind, attributes, consistent, _, transactional, _ in accesses:
            yield table_name(table), attributes, _least(kind, consistent, transactional)
        return
    found = found_items(operation, params, parsed) if OPERATIONS.get(operation) is False else {}
    returned = _size(parsed.get("Attributes"))
    for table, place, kind, attributes, consistent, _, transactional, _ in accesses:
        if kind == "get":
            size = _size(found.get((table, place)))
            units = read_units(size, consistent=consistent, transactional=transactional)
        else:
            size = max(_size(attributes) if kind == "put" else 0, returned)
            units = write_units(size, transactional=transactional)
        yield table_name(table), attributes, units


def _processed(call: Requested, parsed: Mapping[str, Any]) -> Iterator[Access]:
    accesses = accesses_of(call.operation, call.params)
    unprocessed = parsed.get("UnprocessedItems") or parsed.get("UnprocessedKeys")
    return _without(accesses, accesses_of(call.operation, {"RequestItems": unprocessed})) if unprocessed else accesses


@lru_cache
def _least(kind: str, consistent: bool, transactional: bool) -> float:  # noqa: FBT001 - positional: called per item
    if kind == "get":
        return read_units(0, consistent=consistent, transactional=transactional)
    return write_units(0, transactional=transactional)


def _without(accesses: Iterator[Access], unprocessed: Iterator[Access]) -> Iterator[Access]:
    left = Counter(map(_identity, unprocessed))
    for access in accesses:
        identity = _identity(access)
        if left[identity]:
            left[identity] -= 1
        else:
            yield access


def _identity(access: Access) -> Hashable:
    """Return a hashable form of an access: equal ones are equal, however their values are written."""
    return table_name(access.table), access.kind, comparable_item(access.attributes)


def _page(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Estimate]:
    units = read_units(sum(map(size, parsed.get("Items") or ())), consistent=bool(call.params.get("ConsistentRead")))
    attributes = equals_of(call.params) if call.operation == "Query" else {}
    yield table_name(call.params["TableName"]), attributes, units


def _statements_run(call: Requested, parsed: Mapping[str, Any], size: _Size) -> Iterator[Estimate]:
    # No key is read from a PartiQL statement, and the items that it wrote are not in the response.
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
            yield table_name(quoted or plain), {}, units


def _size(item: _Item | None) -> int:
    try:
        return item_size(item or {})
    except (AttributeError, TypeError, ValueError):
        # A type that AWS adds later must not break the call that is measured: it is estimated at the least.
        return 0


def equals_of(params: Mapping[str, Any]) -> _Item:
    """Return the attributes that a Query compares with ``=``; none if its key condition cannot be read."""
    try:
        text, values = params.get("KeyConditionExpression"), params.get(VALUES)
        if not isinstance(text, str) or not values:
            return parse_key_condition(params).equals
        names = params.get(NAMES) or {}
        return {names.get(name, name): values[value] for name, value in _equals(text)}
    except (LookupError, ShardkitError, TypeError):
        return {}


def attributes_known(call: Requested, parsed: Mapping[str, Any]) -> Iterator[tuple[str, _Item]]:
    """Yield the table of each item or page that a call read or wrote, and the attributes that the request has of it.

    Those are a put's item, the key and what an update sets to a value (`SET a = :v`), and what a Query compares by `=`.
    """
    if call.operation in {"PutItem", "Query"}:
        yield table_name(call.params["TableName"]), call.params.get("Item") or equals_of(call.params)
        return
    for access in _processed(call, parsed):
        known = {**_values_set(access.body), **access.attributes} if access.kind == "update" else access.attributes
        yield table_name(access.table), known


def _values_set(params: _Item) -> _Item:
    # Not with actions() of expressions/update.py, which takes 17 µs: this runs for each update that a meter counts.
    text, values = params.get("UpdateExpression"), params.get(VALUES) or {}
    try:
        if isinstance(text, str):
            names = params.get(NAMES) or {}
            return {names.get(name, name): values[value] for name, value in _set_to(text)}
        legacy = params.get("AttributeUpdates") or {}
        return {
            name: change["Value"]
            for name, change in legacy.items()
            if "Value" in change and change.get("Action", "PUT") == "PUT"
        }
    except (AttributeError, LookupError, ShardkitError, TypeError):
        return {}


@lru_cache(256)
def _set_to(text: str) -> tuple[tuple[str, str], ...]:
    """Return what a SET clause sets to a value alone, as placeholders; cached as above."""
    found = parts(text)
    pairs = []
    # Only SET has a =, and what is before it is the path that it sets.
    for path, sign, value, *after in (found[at : at + 4] for at in range(len(found) - 2)):
        alone = not after or after[0].kind == "keyword" or after[0].text == ","
        if sign.text == "=" and value.kind == "value" and alone and not path.nested:
            pairs.append((path.text, value.text))
    return tuple(pairs)


@lru_cache(256)
def _equals(text: str) -> tuple[tuple[str, str], ...]:
    """Return what a key condition compares by ``=``, as placeholders; cached: an application has few such texts."""
    used = placeholders_in(text)
    params: dict[str, Any] = {
        "KeyConditionExpression": text,
        NAMES: {name: name for name in used if name.startswith("#")},
        VALUES: {value: {"S": value} for value in used if value.startswith(":")},
    }
    return tuple((name, value["S"]) for name, value in parse_key_condition(params).equals.items())
