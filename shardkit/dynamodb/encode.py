"""Python values to wire values: ``"x"`` to ``{"S": "x"}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from shardkit.dynamodb.body import binary, binary_text
from shardkit.dynamodb.values import (
    CONTAINER_BYTES,
    Binary,
    WireItem,
    WireValue,
    number_size,
    refuse_infinite,
    to_number,
    utf8_size,
)
from shardkit.errors import InvalidKeyError, InvalidValueError, brief

# Where attribute values stand in requests (botocore's model: every place of shape AttributeValue).
_REQUEST_MAPS = ("Item", "Key", "ExclusiveStartKey", "ExpressionAttributeValues")
_ITEMS = ("Item", "Key")
_UNWRITABLE = (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError)
_REQUEST_LEGACY = ("KeyConditions", "QueryFilter", "ScanFilter", "Expected", "AttributeUpdates")


def to_wire_item(item: Mapping[str, Any]) -> WireItem:
    """Give the wire form of an item or a key.

    Arguments and exceptions are those of :func:`sized_to_wire_item`.

    Cost:
        One pass; without the size, two thirds of what that takes: every item of a bulk load goes through here.
    """
    _check_mapping(item)
    wire: WireItem = {}
    try:
        for name, value in item.items():
            kind = type(value)
            # The commonest types without a call.
            if kind is str:
                wire[name] = {"S": value}
            elif kind is int or kind is Decimal:
                number = to_number(value)
                if not number.is_finite():
                    refuse_infinite(number)
                wire[name] = {"N": str(number)}
            elif kind is bool:
                wire[name] = {"BOOL": value}
            else:
                wire[name] = (_WRITERS.get(kind) or _writer(value))(value)[0]
        "".join(wire)  # refuses a name that is no str
    except _UNWRITABLE:
        _refuse_unwritable_members(item)
        raise
    return wire


def sized_to_wire_item(item: Mapping[str, Any]) -> tuple[WireItem, int]:
    """Give the wire form of an item or a key, and its size in bytes.

    Example:
        >>> sized_to_wire_item({"Date": "2014-07-09", "Total": 12})
        ({'Date': {'S': '2014-07-09'}, 'Total': {'N': '12'}}, 21)

    Args:
        item: attribute names to Python values, of the types that a boto3 resource takes.

    Raises:
        InvalidKeyError: it is no mapping, or a name in it is no str.
        InvalidValueError: DynamoDB cannot hold a value: all that boto3 refuses, and -Infinity.

    Cost:
        One pass, 3 µs for ten attributes.
    """
    _check_mapping(item)
    try:
        return _written_map(item)
    except _UNWRITABLE:
        _refuse_unwritable_members(item)
        raise


def to_wire_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Give a request's parameters with every attribute value in wire form; what the caller gave is not changed."""
    wire = dict(params)
    for name in _REQUEST_MAPS:
        # What is no mapping is for botocore's validation to refuse; items and keys are read here first.
        if name in wire and (name in _ITEMS or isinstance(wire[name], Mapping)):
            wire[name] = to_wire_item(wire[name])
    for name in _REQUEST_LEGACY:
        if name in wire and isinstance(wire[name], Mapping):
            wire[name] = {attribute: _legacy(attribute, condition) for attribute, condition in wire[name].items()}
    return wire


def _legacy(attribute: str, condition: Any) -> Any:
    if not isinstance(condition, Mapping):
        return condition
    wire = dict(condition)
    if "Value" in wire:
        wire["Value"] = to_wire_item({attribute: wire["Value"]})[attribute]
    if isinstance(wire.get("AttributeValueList"), list | tuple):
        wire["AttributeValueList"] = [
            to_wire_item({attribute: value})[attribute] for value in wire["AttributeValueList"]
        ]
    return wire


def _written_map(members: Mapping[str, Any]) -> tuple[WireItem, int]:
    wire: WireItem = {}
    size = 0
    for name, value in members.items():
        kind = type(value)
        size += len(name) if name.isascii() else utf8_size(name)
        if kind is str:
            wire[name] = {"S": value}
            size += len(value) if value.isascii() else utf8_size(value)
        elif kind is int or kind is Decimal:
            text = str(to_number(value))
            wire[name] = {"N": text}
            size += number_size(text)
        elif kind is bool:
            wire[name] = {"BOOL": value}
            size += 1
        else:
            wire[name], more = (_WRITERS.get(kind) or _writer(value))(value)
            size += more
    return wire, size


def _written_document(members: Mapping[str, Any]) -> tuple[WireValue, int]:
    wire, size = _written_map(members)
    return {"M": wire}, size + CONTAINER_BYTES + len(wire)


def _written_list(members: list[Any]) -> tuple[WireValue, int]:
    wire = []
    size = CONTAINER_BYTES + len(members)
    for value in members:
        member, more = (_WRITERS.get(type(value)) or _writer(value))(value)
        wire.append(member)
        size += more
    return {"L": wire}, size


def _written_text(value: str) -> tuple[WireValue, int]:
    # Of an Enum that is a str it is the text that is wanted, and exactly a str.
    text = str.__str__(value)
    return {"S": text}, utf8_size(text)


def _written_number(value: Any) -> tuple[WireValue, int]:
    text = str(to_number(value))
    return {"N": text}, number_size(text)


def _written_binary(value: Any) -> tuple[WireValue, int]:
    raw = binary(value)
    return {"B": binary_text(raw)}, len(raw)


def _written_set(members: AbstractSet[Any]) -> tuple[WireValue, int]:
    # boto3's order: an empty set is one of numbers.
    for letter, kinds, write in _SETS:
        if all(isinstance(member, kinds) for member in members):
            pairs = [write(member) for member in members]
            return {f"{letter}S": [wire[letter] for wire, _ in pairs]}, sum(size for _, size in pairs)
    for member in members:
        _writer(member)
    raise TypeError("a set is of strings, of numbers or of binary values, not mixed and of nothing else")


def _refuse_float(_: float) -> NoReturn:
    raise TypeError("Float types are not supported. Use Decimal types instead.")


_Writer: TypeAlias = Callable[[Any], tuple[WireValue, int]]

_BINARY = (Binary, bytearray, bytes)
_SETS: tuple[tuple[str, tuple[type, ...], _Writer], ...] = (
    ("N", (int, Decimal), _written_number),
    ("S", (str,), _written_text),
    ("B", _BINARY, _written_binary),
)
# In boto3's order: a value is of the first type that it is an instance of.
_WRITERS: Mapping[type, _Writer] = {
    type(None): lambda _: ({"NULL": True}, 1),
    bool: lambda value: ({"BOOL": value}, 1),
    int: _written_number,
    Decimal: _written_number,
    float: _refuse_float,
    str: _written_text,
    **dict.fromkeys(_BINARY, _written_binary),
    set: _written_set,
    AbstractSet: _written_set,
    dict: _written_document,
    Mapping: _written_document,
    list: _written_list,
    tuple: _written_list,
}


def _writer(value: Any) -> _Writer:
    for kind, writer in _WRITERS.items():
        if isinstance(value, kind):
            return writer
    raise TypeError(f'Unsupported type "{type(value)}" for value "{brief(value)}"')


def _check_mapping(item: Any) -> None:
    if type(item) is not dict and not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"an item or a key is a mapping of attribute names to values, got {type(item).__name__}: {brief(item)}"
        )


def _refuse_unwritable_members(item: Mapping[str, Any]) -> None:
    for name, value in item.items():
        _refuse_unwritable(name, value)


def _refuse_unwritable(name: Any, value: Any) -> None:
    try:
        _written_map({name: value})
    except AttributeError as error:
        raise InvalidKeyError(
            f"attribute {name!r} is {brief(value)}, with a name that is no str; DynamoDB's names are, so give a str"
        ) from error
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        reason = str(error)
        if isinstance(error, ArithmeticError):
            reason = "a number has 38 digits, and is below 1E+126"
        elif isinstance(error, RecursionError):
            reason = "a value has at most 32 levels"
        raise InvalidValueError(
            f"attribute {name!r} is {brief(value)}, which DynamoDB cannot hold: {reason}; give str, bytes, "
            "int, Decimal, bool, None, or sets, lists and dicts of these"
        ) from error
