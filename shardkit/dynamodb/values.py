"""Attribute values in wire form: their types, the sizes of numbers and texts, and which keys are equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from boto3.dynamodb.types import DYNAMODB_CONTEXT, Binary

from shardkit.dynamodb.body import binary_bytes
from shardkit.errors import InvalidValueError, brief

__all__ = [
    "CONTAINER_BYTES",
    "NUMBER_DIGITS",
    "Binary",
    "WireItem",
    "WireValue",
    "comparable_item",
    "number_size",
    "to_number",
    "utf8_size",
]

WireValue: TypeAlias = Mapping[str, Any]
WireItem: TypeAlias = dict[str, WireValue]

to_number: Callable[[Any], Decimal] = DYNAMODB_CONTEXT.create_decimal

NUMBER_DIGITS = 38  # the most that a number can have
CONTAINER_BYTES = 3  # of a list or a map; each of its members adds one more


def utf8_size(text: str) -> int:
    # An unpaired surrogate is not valid UTF-8; it is refused where it is sent, not where it is counted.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def number_size(text: str) -> int:
    """Return a number's bytes: one, plus one per pair of digits on each side of the point, without outer zeros.

    AWS calls its formula approximate: where pairs of digits straddle the decimal point, engines differ by a byte.
    """
    if text.isdecimal():
        return 1 + (len(text.strip("0")) + 1) // 2
    whole, _, fraction = ("", "", "") if "E" in text else text.removeprefix("-").partition(".")
    if not (whole + fraction).isdecimal():
        number = to_number(text)
        if not number.is_finite():  # to_number returns NaN for a text that is not a number
            raise ValueError(f"{brief(text)} is not a number (Infinity and NaN are not supported)")
        return _decimal_size(number)
    whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
    if not fraction:
        whole = whole.rstrip("0")
    if not whole:
        fraction = fraction.lstrip("0")
    negative = text[0] == "-" and bool(whole or fraction)
    return 1 + (len(whole) + 1) // 2 + (len(fraction) + 1) // 2 + negative


def _decimal_size(number: Decimal) -> int:
    # A number with an exponent may have 126 digits when written in full: count without writing it.
    sign, digits, exponent = number.as_tuple()
    if not number:
        return 1
    count = len(digits)
    while not digits[count - 1]:
        count -= 1
    whole = min(max(len(digits) + int(exponent), 0), count)
    return 1 + (whole + 1) // 2 + (count - whole + 1) // 2 + sign


def comparable_item(item: Mapping[str, WireValue]) -> Hashable:
    """Return a hashable form of an item or a key: numbers by value, binary by its bytes, sets in any order."""
    return frozenset((name, comparable(value)) for name, value in item.items())


def differing(one: Mapping[str, WireValue], other: Mapping[str, WireValue]) -> set[str]:
    """Return the names of the attributes in which two items differ."""
    ours, theirs = ({(name, comparable(value)) for name, value in item.items()} for item in (one, other))
    return {name for name, _ in ours ^ theirs}


def comparable(value: WireValue) -> Hashable:
    ((letter, content),) = value.items()
    return letter, _FORMS.get(letter, repr)(content)  # types that AWS adds later are compared as written


def _bytes(content: Any) -> Hashable:
    try:
        return binary_bytes(content)
    except InvalidValueError:
        return repr(content)  # botocore accepts any text as binary from a client's caller


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
