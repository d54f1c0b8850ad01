"""Python values to wire values: ``"x"`` to ``{"S": "x"}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.values import Binary, WireItem, WireValue, to_number
from shardkit.errors import InvalidKeyError, InvalidValueError, brief

# The parts of a request that hold attribute values (botocore's model: every member of shape AttributeValue).
_ITEMS = ("Item", "Key")
_REQUEST_MAPS = (*_ITEMS, "ExclusiveStartKey", "ExpressionAttributeValues")
_REQUEST_LEGACY = ("KeyConditions", "QueryFilter", "ScanFilter", "Expected", "AttributeUpdates")
_UNWRITABLE = (ArithmeticError, RecursionError, TypeError, ValueError)


def to_wire_item(item: Mapping[str, Any], what: str = "item") -> WireItem:
    """Return an item or a key in wire form, from Python values of the types that a boto3 resource takes.

    Example:
        >>> to_wire_item({"Date": "2014-07-09", "Total": 12})
        {'Date': {'S': '2014-07-09'}, 'Total': {'N': '12'}}

    Raises:
        InvalidKeyError: it is not a mapping, or a name in it is not a str.
        InvalidValueError: DynamoDB cannot hold a value: all that boto3 refuses, and -Infinity.
    """
    if type(item) is not dict and not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"{what}: must be a mapping of attribute names to values, got {type(item).__name__}: {brief(item)}"
        )
    wire: WireItem = {}
    try:
        for name, value in item.items():
            kind = type(value)
            # The most common types without a call: every item of a bulk load goes through here.
            if kind is str:
                wire[name] = {"S": value}
            elif kind is int or kind is Decimal:
                number = to_number(value)
                wire[name] = {"N": str(number)} if number.is_finite() else _write_number(number)
            elif kind is bool:
                wire[name] = {"BOOL": value}
            else:
                wire[name] = (_WRITERS.get(kind) or _writer(value))(value)
        "".join(wire)  # refuses a name that is not a str
    except _UNWRITABLE:
        for name, value in item.items():
            _refuse_unwritable(name, value)
        raise
    return wire


def to_wire_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a request's parameters with every attribute value in wire form."""
    wire = dict(params)
    for name in _REQUEST_MAPS:
        # botocore's validation refuses what is not a mapping, except for items and keys, which are read first.
        if name in wire and (name in _ITEMS or isinstance(wire[name], Mapping)):
            wire[name] = to_wire_item(wire[name], name)
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


def _write(value: Any) -> WireValue:
    return (_WRITERS.get(type(value)) or _writer(value))(value)


def _write_map(members: Mapping[str, Any]) -> WireValue:
    wire = {name: _write(value) for name, value in members.items()}
    try:
        "".join(wire)
    except TypeError as error:
        raise InvalidKeyError("a name in it is not a str") from error
    return {"M": wire}


def _write_text(value: str) -> WireValue:
    return {"S": str.__str__(value)}  # the text of an Enum that is a str, as a plain str


def _write_number(value: Any) -> WireValue:
    number = to_number(value)
    if not number.is_finite():
        raise ValueError(f"Infinity and NaN not supported, got {brief(str(number))}")
    return {"N": str(number)}


def _write_binary(value: Any) -> WireValue:
    return {"B": binary_text(binary_bytes(value))}


def _write_set(members: AbstractSet[Any]) -> WireValue:
    for letter, kinds, write in _SETS:
        if all(isinstance(member, kinds) for member in members):
            return {f"{letter}S": [write(member)[letter] for member in members]}
    for member in members:
        _writer(member)
    raise TypeError("the members of a set must all be strings, all numbers or all binary values")


def _refuse_float(_: float) -> NoReturn:
    raise TypeError("Float types are not supported. Use Decimal types instead.")


_Writer: TypeAlias = Callable[[Any], WireValue]

_BINARY = (Binary, bytearray, bytes)
# In boto3's order: an empty set is one of numbers.
_SETS: tuple[tuple[str, tuple[type, ...], _Writer], ...] = (
    ("N", (int, Decimal), _write_number),
    ("S", (str,), _write_text),
    ("B", _BINARY, _write_binary),
)
# In boto3's order: a value is of the first type that it is an instance of.
_WRITERS: Mapping[type, _Writer] = {
    type(None): lambda _: {"NULL": True},
    bool: lambda value: {"BOOL": value},
    int: _write_number,
    Decimal: _write_number,
    float: _refuse_float,
    str: _write_text,
    **dict.fromkeys(_BINARY, _write_binary),
    set: _write_set,
    AbstractSet: _write_set,
    dict: _write_map,
    Mapping: _write_map,
    list: lambda members: {"L": [_write(member) for member in members]},
    tuple: lambda members: {"L": [_write(member) for member in members]},
}


def _writer(value: Any) -> _Writer:
    for kind, writer in _WRITERS.items():
        if isinstance(value, kind):
            return writer
    text = " (give its ISO text, such as '2014-07-09T10:00:00Z')" if isinstance(value, date) else ""
    raise TypeError(f"it has no type for {type(value).__name__}{text}")


def _refuse_unwritable(name: Any, value: Any) -> None:
    try:
        _write_map({name: value})
    except InvalidKeyError as error:
        raise InvalidKeyError(
            f"attribute {name!r}: names must be str, got {brief({name: value})}; give a str"
        ) from error
    except _UNWRITABLE as error:
        reason = str(error).rstrip(".")
        if isinstance(error, ArithmeticError):
            reason = "a number can have 38 digits, and must be below 1E+126"
        elif isinstance(error, RecursionError):
            reason = "a value can have at most 32 levels"
        raise InvalidValueError(
            f"attribute {name!r}: got {brief(value)}, which DynamoDB cannot hold: {reason}; give str, bytes, int, "
            "Decimal, bool, None, or sets, lists and dicts of these"
        ) from error
