"""Attribute values in wire form: their types, how a number and a text are counted, and which keys are equal.

AWS calls its own formula for numbers approximate: where pairs of digits straddle the decimal point, engines differ by a
byte.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

from boto3.dynamodb.types import DYNAMODB_CONTEXT, Binary

from shardkit.dynamodb.body import binary
from shardkit.errors import InvalidValueError

__all__ = [
    "CONTAINER_BYTES",
    "Binary",
    "WireItem",
    "WireValue",
    "comparable",
    "comparable_item",
    "number_size",
    "refuse_infinite",
    "to_number",
    "utf8_size",
]

WireValue: TypeAlias = Mapping[str, Any]
WireItem: TypeAlias = dict[str, WireValue]

to_number: Callable[[Any], Decimal] = DYNAMODB_CONTEXT.create_decimal

CONTAINER_BYTES = 3  # of a list or a map; each of its members has one more


def utf8_size(text: str) -> int:
    """Count a text's bytes."""
    # A lone surrogate is no valid UTF-8; it is refused where it is sent, not where it is counted.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def refuse_infinite(number: Decimal) -> NoReturn:
    """Refuse a number that is none."""
    raise ValueError(f"Infinity and NaN not supported, got {str(number)!r:.100}")


def number_size(text: str) -> int:
    """Count a byte, and one for every pair of digits on each side of the point, without the zeros at both ends."""
    if text.isdecimal():
        return 1 + (len(text.strip("0")) + 1) // 2
    # With an exponent there is nothing to take apart.
    whole, _, fraction = ("", "", "") if "E" in text else text.removeprefix("-").partition(".")
    if not (whole + fraction).isdecimal():
        number = to_number(text)
        if not number.is_finite():  # NaN too is what Python makes of text that is none
            raise ValueError(f"{text!r:.100} is no number (Infinity and NaN not supported)")
        return _decimal_size(number)
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    if not fraction:
        whole = whole.rstrip("0")
    if not whole:
        fraction = fraction.lstrip("0")
    negative = text[0] == "-" and bool(whole or fraction)
    return 1 + (len(whole) + 1) // 2 + (len(fraction) + 1) // 2 + negative


def _decimal_size(number: Decimal) -> int:
    # What is written with an exponent may be of 126 digits when written out.
    sign, digits, exponent = number.as_tuple()
    if not number:
        return 1
    count = len(digits)
    while not digits[count - 1]:
        count -= 1
    whole = min(max(len(digits) + int(exponent), 0), count)
    return 1 + (whole + 1) // 2 + (count - whole + 1) // 2 + sign


def comparable(value: WireValue) -> Hashable:
    """Give a hashable form of a wire value: numbers by value, binary by its bytes, a set in any order."""
    ((letter, content),) = value.items()
    # A type that AWS adds later is compared as it is written.
    return letter, _FORMS.get(letter, repr)(content)


def comparable_item(item: Mapping[str, WireValue]) -> Hashable:
    """Give a hashable form of an item, a key, or a map's members."""
    return frozenset((name, comparable(value)) for name, value in item.items())


def _bytes(content: Any) -> Hashable:
    try:
        return binary(content)
    except InvalidValueError:
        return repr(content)  # botocore takes any text for binary from a client's caller


_FORMS: Mapping[str, Callable[[Any], Hashable]] = {
    "S": str,
    "N": Decimal,
    "B": _bytes,
    "BOOL": bool,
    "NULL": bool,
    "M": comparable_item,
    "L": lambda members: tuple(map(comparable, members)),
    "SS": frozenset,
    "NS": lambda members: frozenset(map(Decimal, members)),
    "BS": lambda members: frozenset(map(_bytes, members)),
}
