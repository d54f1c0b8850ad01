"""How many bytes DynamoDB counts for an item."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context
from typing import Any, NamedTuple

from shardkit.codec import WireValue, sized_from_wire_item, sized_to_wire_item
from shardkit.errors import InvalidValueError
from shardkit.jsonform import brief

__all__ = ["STORAGE_OVERHEAD", "SizedItem", "item_size", "sized", "storage_size"]

STORAGE_OVERHEAD = 100
"""Bytes that storage adds to each item, and to each entry of an index, for its own indexing; capacity does not."""

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
        No request; one pass over the item, the same that writes its wire form (about 3 µs for ten attributes).

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats". AWS calls its own formula for numbers approximate:
        where pairs of digits straddle the decimal point, engines differ by a byte.
    """
    return sized(item).size


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


def sized(item: Mapping[str, Any]) -> SizedItem:
    """Give the wire form and the size of an item that is given as Python values or as wire values."""
    if not isinstance(item, Mapping) or not all(map(_is_mapping, item.values())):
        return SizedItem(*sized_to_wire_item(item))
    try:
        try:
            return SizedItem(item, sized_from_wire_item(item)[1])
        except ArithmeticError:
            # boto3 traps 1E+38 written with all its zeros; the service writes it so, and it has a size.
            return SizedItem(item, sized_from_wire_item({name: _shortened(value) for name, value in item.items()})[1])
    except (ArithmeticError, InvalidValueError) as error:
        raise InvalidValueError(f"an item that DynamoDB cannot hold has no size, got {brief(item)}: {error}") from error


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _shortened(value: WireValue) -> WireValue:
    """Give a wire value without the zeros that numbers end in."""
    ((letter, content),) = value.items()
    if letter == "M":
        return {letter: {name: _shortened(member) for name, member in content.items()}}
    if letter == "L":
        return {letter: [_shortened(member) for member in content]}
    if letter == "NS":
        return {letter: [str(_EXACT.create_decimal(number).normalize(_EXACT)) for number in content]}
    return {letter: str(_EXACT.create_decimal(content).normalize(_EXACT))} if letter == "N" else value
