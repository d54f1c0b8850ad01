"""How many bytes DynamoDB counts for an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Context, Decimal
from typing import Any, NamedTuple

from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.decode import refuse_unreadable
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import (
    CONTAINER_BYTES,
    NUMBER_DIGITS,
    Binary,
    WireValue,
    number_size,
    to_number,
    utf8_size,
)
from shardkit.errors import InvalidValueError, brief

ITEM_BYTES = 409_600
"""The largest item: its names and values (API reference: 400 KB)."""
STORAGE_OVERHEAD = 100
"""Bytes that storage adds to each item and to each entry of an index; capacity units do not count them."""

_UNSIZED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_EXACT = Context(prec=300)  # enough for 1E-130 to 9.99E+125, written in full


class SizedItem(NamedTuple):
    """An item in wire form and its size in bytes."""

    item: Mapping[str, WireValue]
    size: int


def item_size(item: Mapping[str, Any]) -> int:
    """Return the size of an item, from which read and write units are counted.

    Example:
        >>> item_size({"Date": "2014-07-09", "Total": 12})
        21
        >>> item_size({"Date": {"S": "2014-07-09"}, "Total": {"N": "12"}})
        21

    Args:
        item: attribute names to Python values, of the types that a boto3 resource takes (``"x"``), or to wire values
            (``{"S": "x"}``; binary as base64 text, ``bytes``, ``bytearray`` or boto3's ``Binary``). If every value is
            a mapping, they are read as wire values: in an item of Python values, the key is not a mapping.

    Returns:
        The bytes of the names and the values, without the 100 bytes that storage adds.

    Raises:
        InvalidKeyError: the item is not a mapping of names to values.
        InvalidValueError: a value has a type that DynamoDB does not have, or is a number that it cannot hold.

    Cost:
        No request; one pass over the item, 3 µs for ten attributes. A number written with an exponent takes 2 µs, text
        that is not ASCII 1 µs per 1,000 characters.

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats". AWS calls its formula for numbers approximate:
        where pairs of digits straddle the decimal point, engines differ by a byte.
    """
    return _size_of_wire(item) if _is_wire(item) else _size_of_python(item)


def storage_size(item: Mapping[str, Any]) -> int:
    """Return the bytes of storage that an item takes in a table, or an entry in an index.

    Example:
        >>> storage_size({"Date": "2014-07-09", "Total": 12})
        121

    Args:
        item: Python values or wire values, as for :func:`item_size`.

    Returns:
        The item's size plus 100 bytes. Features of a table (global tables, streams to Kinesis) may add more.

    Raises:
        InvalidKeyError, InvalidValueError: as :func:`item_size`.

    Cost:
        No request; one pass over the item.

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats".
    """
    return item_size(item) + STORAGE_OVERHEAD


def attribute_sizes(item: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes that each attribute of an item of Python values takes, name and value.

    Example:
        >>> attribute_sizes({"Date": "2014-07-09", "Total": 12})
        {'Date': 14, 'Total': 7}
    """
    try:
        return {name: utf8_size(name) + _PYTHON_SIZES[type(value)](value) for name, value in item.items()}
    except _UNSIZED:
        return {name: _wire_members({name: value}) for name, value in to_wire_item(item).items()}


def sized(item: Mapping[str, Any]) -> SizedItem:
    """Return the wire form and the size of an item in Python values or wire values."""
    wire = item if _is_wire(item) else to_wire_item(item)
    return SizedItem(wire, _size_of_wire(wire))


def _is_wire(item: Mapping[str, Any]) -> bool:
    # to_wire_item refuses what is not a mapping.
    return isinstance(item, Mapping) and all(map(_is_mapping, item.values()))


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


# -- Python values of the most common types. Others, and invalid ones, are converted to wire values first: that follows
# boto3's rules for subclasses, and raises the errors.


def _size_of_python(item: Mapping[str, Any]) -> int:
    try:
        return _python_members(item)
    except _UNSIZED:
        return _wire_members(to_wire_item(item))


def _python_members(members: Mapping[str, Any]) -> int:
    size = 0
    for name, value in members.items():
        size += len(name) if name.isascii() else utf8_size(name)
        size += _PYTHON_SIZES[type(value)](value)
    return size


def _python_number(value: int | Decimal) -> int:
    text = str(value)
    if len(text) > NUMBER_DIGITS:
        to_number(value)
    return number_size(text)


def _python_set(members: AbstractSet[Any]) -> int:
    kinds = {*map(type, members)}
    if not any(kinds <= alike for alike in _ALIKE):
        raise TypeError
    return sum(_PYTHON_SIZES[type(member)](member) for member in members)


def _python_list(members: Sequence[Any]) -> int:
    return CONTAINER_BYTES + len(members) + sum(_PYTHON_SIZES[type(member)](member) for member in members)


def _python_document(members: Mapping[str, Any]) -> int:
    return CONTAINER_BYTES + len(members) + _python_members(members)


_ALIKE = ({int, Decimal}, {str}, {bytes, bytearray, Binary})
_PYTHON_SIZES: Mapping[type, Callable[[Any], int]] = {
    str: utf8_size,
    int: _python_number,
    Decimal: _python_number,
    bool: lambda _: 1,
    type(None): lambda _: 1,
    bytes: len,
    bytearray: len,
    Binary: lambda binary: len(binary.value),
    set: _python_set,
    frozenset: _python_set,
    list: _python_list,
    tuple: _python_list,
    dict: _python_document,
}


# -- wire values


def _size_of_wire(item: Mapping[str, WireValue]) -> int:
    try:
        return _wire_members(item)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason: Exception = error
        try:
            refuse_unreadable(item)
        except (ArithmeticError, InvalidValueError) as named:  # names the attribute
            reason = named
        if isinstance(reason, ArithmeticError):
            reason = InvalidValueError("it has a number of more than 38 digits, or one beyond 1E-130 to 9.99…E+125")
        raise InvalidValueError(f"item: DynamoDB cannot hold it, got {brief(item)}: {reason}") from reason


def _wire_members(members: Mapping[str, WireValue]) -> int:
    size = 0
    for name, value in members.items():
        ((letter, content),) = value.items()
        size += len(name) if name.isascii() else utf8_size(name)
        size += _WIRE_SIZES[letter](content)
    return size


def _wire_number(text: str) -> int:
    if len(text) > NUMBER_DIGITS:
        # Trailing zeros do not count as digits, though boto3 refuses to read 1E+38 written in full.
        to_number(_EXACT.create_decimal(text).normalize(_EXACT))
    return number_size(text)


def _wire_list(members: Sequence[WireValue]) -> int:
    size = CONTAINER_BYTES + len(members)
    for value in members:
        ((letter, content),) = value.items()
        size += _WIRE_SIZES[letter](content)
    return size


def _wire_document(members: Mapping[str, WireValue]) -> int:
    return CONTAINER_BYTES + len(members) + _wire_members(members)


_WIRE_SIZES: Mapping[str, Callable[[Any], int]] = {
    "S": utf8_size,
    "N": _wire_number,
    "B": lambda content: len(binary_bytes(content)),
    "BOOL": lambda _: 1,
    "NULL": lambda _: 1,
    "M": _wire_document,
    "L": _wire_list,
    "SS": lambda members: sum(map(utf8_size, members)),
    "NS": lambda members: sum(map(_wire_number, members)),
    "BS": lambda members: sum(len(binary_bytes(member)) for member in members),
}
