"""Wire values that can be compared: equal where DynamoDB holds the same, however it is written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from typing import Any

from shardkit.codec import WireValue, binary
from shardkit.errors import InvalidValueError

__all__ = ["comparable", "comparable_item"]


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
