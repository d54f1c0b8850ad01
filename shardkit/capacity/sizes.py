"""How many bytes DynamoDB counts for an item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardkit.codec import sized_from_wire_item
from shardkit.errors import InvalidKeyError, InvalidValueError
from shardkit.jsonform import brief

__all__ = ["item_size"]


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
        return sized_from_wire_item(item)[1]
    except (ArithmeticError, InvalidValueError) as error:
        raise InvalidKeyError(f"an item that DynamoDB cannot hold has no size, got {brief(item)}: {error}") from error
