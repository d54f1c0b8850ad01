"""How many bytes DynamoDB counts for an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from shardkit.errors import InvalidKeyError

__all__ = ["item_size"]


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Give the size of an item in wire form, as read and write units are counted from it.

    Example:
        >>> item_size({"Date": {"S": "2014-07-09"}, "Total": {"N": "12"}})
        21

    Args:
        item: attribute names to wire values (``{"S": "x"}``). Binary values may be ``bytes``, ``bytearray`` or
            boto3's ``Binary``.

    Returns:
        Bytes: of the names and the values. The 100 bytes an item that storage adds are not in it.

    Raises:
        InvalidKeyError: a value is not in wire form, has an unknown type, or is a number that is none.

    Cost:
        No request; one pass over the item.

    Source:
        DynamoDB Developer Guide, "DynamoDB item sizes and formats". AWS calls its own formula for numbers approximate:
        where pairs of digits straddle the decimal point, engines differ by a byte.
    """
    return sum(_text(name) + _value(value) for name, value in item.items())


def _text(text: Any) -> int:
    if not isinstance(text, str):
        raise InvalidKeyError(f"a string in wire form is a str, got {type(text).__name__}; give the value as str")
    # A lone surrogate is no valid UTF-8; the service will say so, the size must not.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _binary(data: Any) -> int:
    data = getattr(data, "value", data)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidKeyError(f"a binary value in wire form is bytes, got {type(data).__name__}; give the raw bytes")
    return data.nbytes if isinstance(data, memoryview) else len(data)


def _number(text: Any) -> int:
    try:
        negative, digits, exponent = Decimal(text).as_tuple()
    except (InvalidOperation, TypeError, ValueError):
        negative, digits, exponent = 0, (), "n"
    if not isinstance(exponent, int):
        raise InvalidKeyError(f"a number in wire form is decimal text, got {text!r:.100}; give for example '12.5'")
    first, end = 0, len(digits)
    while first < end and digits[first] == 0:
        first += 1
    if first == end:
        return 1
    while digits[end - 1] == 0:
        end -= 1
        exponent += 1
    count = end - first
    before = max(count + min(exponent, 0), 0)
    return 1 + (before + 1) // 2 + (count - before + 1) // 2 + negative


def _value(value: Any) -> int:
    if not isinstance(value, Mapping) or len(value) != 1:
        raise InvalidKeyError(
            f'a wire value is a mapping of one type to one value, got {value!r:.100}; give {{"S": "x"}}'
        )
    ((kind, content),) = value.items()
    size = _SIZES.get(kind)
    if size is None:
        raise InvalidKeyError(f"DynamoDB's types are {' '.join(_SIZES)}, got {kind!r}; give one of them")
    return size(content)


_SIZES: Mapping[str, Callable[[Any], int]] = {
    "S": _text,
    "N": _number,
    "B": _binary,
    "BOOL": lambda _: 1,
    "NULL": lambda _: 1,
    "M": lambda members: 3 + sum(1 + _text(name) + _value(member) for name, member in members.items()),
    "L": lambda members: 3 + sum(1 + _value(member) for member in members),
    "SS": lambda members: sum(map(_text, members)),
    "NS": lambda members: sum(map(_number, members)),
    "BS": lambda members: sum(map(_binary, members)),
}
