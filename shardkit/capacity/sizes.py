"""How many bytes DynamoDB counts for an item."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context
from typing import Any

from shardkit.codec import WireValue, sized_from_wire_item
from shardkit.errors import InvalidKeyError, InvalidValueError
from shardkit.jsonform import brief

__all__ = ["item_size"]

_EXACT = Context(prec=300)  # 1E-130 to 9.99E+125, written out


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Give the size of an item in wire form, as read and write units are counted from it.

    Example:
        >>> item_size({"Date": {"S": "2014-07-09"}, "Total": {"N": "12"}})
        21

    Args:
        item: attribute names to wire values (``{"S": "x"}``). Binary values may be base64 text, ``bytes``,
            ``bytearray`` or boto3's ``Binary``.

    Returns:
        Bytes: of the names and the values. The 100 bytes an item that storage adds are not in it.

    Raises:
        InvalidKeyError: a value is not in wire form, has an unknown type, or is a number that DynamoDB cannot hold.

    Cost:
        No request; one pass over the item.

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats". AWS calls its own formula for numbers approximate:
        where pairs of digits straddle the decimal point, engines differ by a byte.
    """
    try:
        try:
            return sized_from_wire_item(item)[1]
        except ArithmeticError:
            # boto3 traps 1E+38 written with all its zeros; the service writes it so, and it has a size.
            return sized_from_wire_item({name: _shortened(value) for name, value in item.items()})[1]
    except (ArithmeticError, InvalidValueError) as error:
        raise InvalidKeyError(f"an item that DynamoDB cannot hold has no size, got {brief(item)}: {error}") from error


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
