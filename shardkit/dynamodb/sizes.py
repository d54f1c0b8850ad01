"""How many bytes DynamoDB counts for an item, where the codec does not walk it anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Context, Decimal
from typing import Any, NamedTuple

from shardkit.dynamodb.body import binary
from shardkit.dynamodb.decode import sized_from_wire_item
from shardkit.dynamodb.encode import sized_to_wire_item
from shardkit.dynamodb.values import CONTAINER_BYTES, Binary, WireValue, number_size, to_number, utf8_size
from shardkit.errors import InvalidValueError, brief

ITEM_BYTES = 409_600
"""An item's names and values at the most (API reference: 400 KB)."""
STORAGE_OVERHEAD = 100
"""Bytes that storage adds to each item, and to each entry of an index, for its own indexing; capacity does not."""

_UNSIZED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_DIGITS = 38  # of a number at the most
_EXACT = Context(prec=300)  # 1E-130 to 9.99E+125, written out


class SizedItem(NamedTuple):
    """An item in wire form and its size in bytes."""

    item: Mapping[str, WireValue]
    size: int


def item_size(item: Mapping[str, Any]) -> int:
    """Give the size of an item, as read and write units are counted from it.

    Example:
        >>> item_size({"Date": "2014-07-09", "Total": 12})
        21
        >>> item_size({"Date": {"S": "2014-07-09"}, "Total": {"N": "12"}})
        21

    Args:
        item: attribute names to Python values, of the types that a boto3 resource takes (``"x"``), or to wire values
            (``{"S": "x"}``; binary as base64 text, ``bytes``, ``bytearray`` or boto3's ``Binary``). It is taken for
            wire values where every value is a mapping: an item of Python values has its key, which is none.

    Returns:
        Bytes: of the names and the values. The 100 bytes an item that storage adds are not in it.

    Raises:
        InvalidKeyError: it is no mapping of names to values.
        InvalidValueError: a value is of a type that DynamoDB has not, or a number that it cannot hold.

    Cost:
        No request; one pass over the item, 3 µs for ten attributes: less than boto3 takes to turn it into wire values
        and to write those as JSON. Without the JSON, less too, but for numbers that are written with an exponent (2 µs
        each) and texts that are not ASCII, of over 500 characters or so: their bytes have to be counted (1 µs per
        1,000 characters), and boto3 looks at them only when it writes the JSON, which takes ten times that.

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats". AWS calls its own formula for numbers approximate:
        where pairs of digits straddle the decimal point, engines differ by a byte.
    """
    return _size_of_wire(item) if _is_wire(item) else _size_of_python(item)


def storage_size(item: Mapping[str, Any]) -> int:
    """Give the bytes of storage that an item takes in a table, or an entry in an index.

    Example:
        >>> storage_size({"Date": "2014-07-09", "Total": 12})
        121

    Args:
        item: Python values or wire values, as for :func:`item_size`.

    Returns:
        Bytes: the item's size, and 100. Features of a table (global tables, streams to Kinesis) may add more.

    Raises:
        InvalidKeyError: as :func:`item_size`.
        InvalidValueError: as :func:`item_size`.

    Cost:
        No request; one pass over the item.

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats".
    """
    return item_size(item) + STORAGE_OVERHEAD


def attribute_sizes(item: Mapping[str, Any]) -> dict[str, int]:
    """Give the bytes that each attribute takes, name and value; an item's size is their sum.

    Example:
        >>> attribute_sizes({"Date": "2014-07-09", "Total": 12})
        {'Date': 14, 'Total': 7}

    Args:
        item: attribute names to Python values, of the types that a boto3 resource takes.

    Raises:
        InvalidKeyError: as :func:`item_size`.
        InvalidValueError: as :func:`item_size`.

    Cost:
        No request; one pass over the item.
    """
    try:
        return {name: utf8_size(name) + _PYTHON_SIZES[type(value)](value) for name, value in item.items()}
    except _UNSIZED:
        sized_to_wire_item(item)  # says what cannot be held, and knows boto3's rules for subclasses
        return {name: sized_to_wire_item({name: value})[1] for name, value in item.items()}


def sized(item: Mapping[str, Any]) -> SizedItem:
    """Give the wire form and the size of an item that is given as Python values or as wire values."""
    return SizedItem(item, _size_of_wire(item)) if _is_wire(item) else SizedItem(*sized_to_wire_item(item))


def _is_wire(item: Mapping[str, Any]) -> bool:
    # What is no mapping is the codec's to refuse.
    return isinstance(item, Mapping) and all(map(_is_mapping, item.values()))


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


# -- Python values: of the types that nearly all are of. For others, and for what is wrong, the codec is asked, which
# knows boto3's rules for subclasses and says what cannot be held.


def _size_of_python(item: Mapping[str, Any]) -> int:
    try:
        return _python_members(item)
    except _UNSIZED:
        return sized_to_wire_item(item)[1]


def _python_members(members: Mapping[str, Any]) -> int:
    size = 0
    for name, value in members.items():
        size += len(name) if name.isascii() else utf8_size(name)
        size += _PYTHON_SIZES[type(value)](value)
    return size


def _python_number(value: int | Decimal) -> int:
    text = str(value)
    if len(text) > _DIGITS:
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
            sized_from_wire_item(item)
        except (ArithmeticError, InvalidValueError) as told:  # it knows where, and what to do
            reason = told
        if isinstance(reason, ArithmeticError):
            reason = InvalidValueError("it has a number of more than 38 digits, or one beyond 1E-130 to 9.99…E+125")
        raise InvalidValueError(
            f"an item that DynamoDB cannot hold has no size, got {brief(item)}: {reason}"
        ) from reason


def _wire_members(members: Mapping[str, WireValue]) -> int:
    size = 0
    for name, value in members.items():
        ((letter, content),) = value.items()
        size += len(name) if name.isascii() else utf8_size(name)
        size += _WIRE_SIZES[letter](content)
    return size


def _wire_number(text: str) -> int:
    if len(text) > _DIGITS:
        # Digits that are zeros at the end do not count, though boto3 refuses to read 1E+38 with all of them.
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
    "B": lambda content: len(binary(content)),
    "BOOL": lambda _: 1,
    "NULL": lambda _: 1,
    "M": _wire_document,
    "L": _wire_list,
    "SS": lambda members: sum(map(utf8_size, members)),
    "NS": lambda members: sum(map(_wire_number, members)),
    "BS": lambda members: sum(len(binary(member)) for member in members),
}
