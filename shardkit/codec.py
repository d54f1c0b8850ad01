"""Python values ⇄ wire values: ``"x"`` as a boto3 resource shows it, ``{"S": "x"}`` as it goes over HTTP.

Wire values have JSON's form: binary is base64 text. Where botocore has parsed them (errors that carry an item, calls of
others) binary is bytes; ``binary`` reads both. Sizes are counted on the way, and nowhere else, by the Developer Guide's
"DynamoDB item sizes and formats". AWS calls its own formula for numbers approximate: where pairs of digits straddle the
decimal point, engines differ by a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from boto3.dynamodb.types import DYNAMODB_CONTEXT, Binary

from shardkit.errors import InvalidKeyError, InvalidValueError
from shardkit.jsonform import binary, binary_text, brief, encode

__all__ = [
    "Binary",
    "WireItem",
    "WireValue",
    "binary",
    "binary_text",
    "encode",
    "from_wire",
    "from_wire_item",
    "from_wire_response",
    "sized_from_wire_item",
    "sized_to_wire_item",
    "to_wire_item",
    "to_wire_params",
]

WireValue: TypeAlias = Mapping[str, Any]
WireItem: TypeAlias = dict[str, WireValue]

_number: Callable[[Any], Decimal] = DYNAMODB_CONTEXT.create_decimal

# Where attribute values stand in requests and responses (botocore's model: every place of shape AttributeValue).
_REQUEST_MAPS = ("Item", "Key", "ExclusiveStartKey", "ExpressionAttributeValues")
_ITEMS = ("Item", "Key")
_REQUEST_LEGACY = ("KeyConditions", "QueryFilter", "ScanFilter", "Expected", "AttributeUpdates")
_RESPONSE_MAPS = ("Item", "Attributes")


def from_wire(value: WireValue) -> Any:
    """Give the Python value of one wire value, of the types that a boto3 resource shows."""
    try:
        (letter,) = value
        return _READERS[letter](value[letter])[0]
    except (AttributeError, LookupError, TypeError, ValueError):
        _refuse_unreadable("a value", value)
        raise


def from_wire_item(item: Mapping[str, WireValue]) -> dict[str, Any]:
    """Give the Python values of an item or a key.

    Example:
        >>> from_wire_item({"Date": {"S": "2014-07-09"}, "Gift": {"BOOL": True}})
        {'Date': '2014-07-09', 'Gift': True}

    Args:
        item: attribute names to wire values; binary as base64 text or bytes.

    Raises:
        InvalidValueError: a value is not in wire form, or of an unknown type; it is a TypeError, as boto3 raises.
        ArithmeticError: a number that DynamoDB cannot hold: as boto3.

    Cost:
        One pass; without the sizes, half of what :func:`sized_from_wire_item` takes: every item read goes through here.
    """
    shown: dict[str, Any] = {}
    try:
        for name, value in item.items():
            (letter,) = value
            # The commonest types without a call.
            if letter == "S" or letter == "BOOL":  # noqa: PLR1714 - two comparisons are faster than a tuple
                shown[name] = value[letter]
            elif letter == "N":
                shown[name] = _number(value["N"])
            else:
                shown[name] = _READERS[letter](value[letter])[0]
    except (AttributeError, LookupError, TypeError, ValueError):
        _refuse_unreadable_members(item)
        raise
    return shown


def sized_from_wire_item(item: Mapping[str, WireValue]) -> tuple[dict[str, Any], int]:
    """Give the Python values of an item or a key, and its size in bytes.

    Example:
        >>> sized_from_wire_item({"Date": {"S": "2014-07-09"}, "Gift": {"BOOL": True}})
        ({'Date': '2014-07-09', 'Gift': True}, 19)

    Args:
        item: attribute names to wire values; binary as base64 text or bytes.

    Raises:
        InvalidValueError: a value is not in wire form, or of an unknown type; it is a TypeError, as boto3 raises.
        ArithmeticError: a number that DynamoDB cannot hold: as boto3.

    Cost:
        One pass, 2 µs for ten attributes.
    """
    try:
        return _read_map(item)
    except (AttributeError, LookupError, TypeError, ValueError):
        _refuse_unreadable_members(item)
        raise


def to_wire_item(item: Mapping[str, Any]) -> WireItem:
    """Give the wire form of an item or a key."""
    return sized_to_wire_item(item)[0]


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
    if type(item) is not dict and not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"an item or a key is a mapping of attribute names to values, got {type(item).__name__}: {brief(item)}"
        )
    try:
        return _written_map(item)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        for name, value in item.items():
            _refuse_unwritable(name, value)
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


def from_wire_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """Give a response with every attribute value as a Python value; cursors are written apart."""
    shown = dict(response)
    for name in _RESPONSE_MAPS:
        if isinstance(shown.get(name), Mapping):
            shown[name] = from_wire_item(shown[name])
    if "Items" in shown:
        shown["Items"] = [from_wire_item(item) for item in shown["Items"]]
    metrics = shown.get("ItemCollectionMetrics")
    if isinstance(metrics, Mapping) and "ItemCollectionKey" in metrics:
        shown["ItemCollectionMetrics"] = {
            **metrics,
            "ItemCollectionKey": from_wire_item(metrics["ItemCollectionKey"]),
        }
    return shown


_CONTAINER_BYTES = 3  # of a list or a map; each of its members has one more


def _utf8_size(text: str) -> int:
    # A lone surrogate is no valid UTF-8; it is refused where it is sent, not where it is counted.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _number_size(text: str) -> int:
    """Count a byte, and one for every pair of digits on each side of the point, without the zeros at both ends."""
    if text.isdecimal():
        return 1 + (len(text.strip("0")) + 1) // 2
    whole, _, fraction = text.removeprefix("-").partition(".")
    if not (whole + fraction).isdecimal():
        number = _number(text)
        if not number.is_finite():
            raise ValueError(f"Infinity and NaN not supported, got {text!r:.100}")
        return _number_size(format(number, "f"))
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    if not fraction:
        whole = whole.rstrip("0")
    if not whole:
        fraction = fraction.lstrip("0")
    negative = text[0] == "-" and bool(whole or fraction)
    return 1 + (len(whole) + 1) // 2 + (len(fraction) + 1) // 2 + negative


def _read_map(members: Mapping[str, WireValue]) -> tuple[dict[str, Any], int]:
    shown: dict[str, Any] = {}
    size = 0
    for name, value in members.items():
        (letter,) = value
        content = value[letter]
        size += len(name) if name.isascii() else _utf8_size(name)
        # The commonest types without a call.
        if letter == "S":
            shown[name] = content
            size += len(content) if content.isascii() else _utf8_size(content)
        elif letter == "N":
            shown[name] = _number(content)
            size += _number_size(content)
        elif letter == "BOOL":
            shown[name] = content
            size += 1
        else:
            shown[name], more = _READERS[letter](content)
            size += more
    return shown, size


def _read_list(members: list[WireValue]) -> tuple[list[Any], int]:
    shown = []
    size = _CONTAINER_BYTES + len(members)
    for value in members:
        (letter,) = value
        member, more = _READERS[letter](value[letter])
        shown.append(member)
        size += more
    return shown, size


def _read_document(members: Mapping[str, WireValue]) -> tuple[dict[str, Any], int]:
    shown, size = _read_map(members)
    return shown, size + _CONTAINER_BYTES + len(members)


def _read_binary(content: Any) -> tuple[Any, int]:
    raw = binary(content)
    return Binary(raw), len(raw)


def _read_set(read: Callable[[Any], tuple[Any, int]]) -> Callable[[list[Any]], tuple[set[Any], int]]:
    def read_members(members: list[Any]) -> tuple[set[Any], int]:
        pairs = [read(member) for member in members]
        return {member for member, _ in pairs}, sum(size for _, size in pairs)

    return read_members


def _read_text(content: str) -> tuple[str, int]:
    return content, _utf8_size(content)


def _read_number(content: str) -> tuple[Decimal, int]:
    return _number(content), _number_size(content)


_READERS: Mapping[str, Callable[[Any], tuple[Any, int]]] = {
    "S": _read_text,
    "N": _read_number,
    "B": _read_binary,
    "BOOL": lambda content: (content, 1),
    "NULL": lambda _: (None, 1),
    "M": _read_document,
    "L": _read_list,
    "SS": _read_set(_read_text),
    "NS": _read_set(_read_number),
    "BS": _read_set(_read_binary),
}


def _refuse_unreadable_members(item: Any) -> None:
    for name, value in item.items():
        _refuse_unreadable(f"attribute {name!r}", value)


def _refuse_unreadable(what: str, value: Any) -> None:
    try:
        _read_map({"": value})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"{what} is no wire value that can be read, got {brief(value)} ({error}); give one type "
            f'({" ".join(_READERS)}) and its content, for example {{"S": "x"}} or {{"N": "12.5"}}'
        ) from error


def _written_map(members: Mapping[str, Any]) -> tuple[WireItem, int]:
    wire: WireItem = {}
    size = 0
    for name, value in members.items():
        kind = type(value)
        size += len(name) if name.isascii() else _utf8_size(name)
        if kind is str:
            wire[name] = {"S": value}
            size += len(value) if value.isascii() else _utf8_size(value)
        elif kind is int or kind is Decimal:
            text = str(_number(value))
            wire[name] = {"N": text}
            size += _number_size(text)
        elif kind is bool:
            wire[name] = {"BOOL": value}
            size += 1
        else:
            wire[name], more = (_WRITERS.get(kind) or _writer(value))(value)
            size += more
    return wire, size


def _written_document(members: Mapping[str, Any]) -> tuple[WireValue, int]:
    wire, size = _written_map(members)
    return {"M": wire}, size + _CONTAINER_BYTES + len(wire)


def _written_list(members: list[Any]) -> tuple[WireValue, int]:
    wire = []
    size = _CONTAINER_BYTES + len(members)
    for value in members:
        member, more = (_WRITERS.get(type(value)) or _writer(value))(value)
        wire.append(member)
        size += more
    return {"L": wire}, size


def _written_text(value: str) -> tuple[WireValue, int]:
    # Of an Enum that is a str it is the text that is wanted, and exactly a str.
    text = str.__str__(value)
    return {"S": text}, _utf8_size(text)


def _written_number(value: Any) -> tuple[WireValue, int]:
    text = str(_number(value))
    return {"N": text}, _number_size(text)


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


def _refuse_unwritable(name: Any, value: Any) -> None:
    try:
        _written_map({name: value})
    except AttributeError as error:
        raise InvalidKeyError(
            f"attribute {name!r} is {brief(value)}, with a name that is no str; DynamoDB's names are, so give a str"
        ) from error
    except (ArithmeticError, TypeError, ValueError) as error:
        numeric = isinstance(error, ArithmeticError)
        reason = "a number has 38 digits, and is below 1E+126" if numeric else str(error)
        raise InvalidValueError(
            f"attribute {name!r} is {brief(value)}, which DynamoDB cannot hold: {reason}; give str, bytes, "
            "int, Decimal, bool, None, or sets, lists and dicts of these"
        ) from error
