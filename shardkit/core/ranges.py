"""Ranges of sort keys: checked boundaries, the names of ranges, and boundaries that cut a sample evenly."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

from shardkit.core.hashing import checked, number_text
from shardkit.errors import ConfigurationError, InvalidKeyError, brief

Boundary: TypeAlias = "str | bytes | Decimal"
"""Python orders each of these types as DynamoDB orders sort keys: text by code point, which is by UTF-8 bytes."""

NAME_CHARACTERS = frozenset("x0123456789abcdef")
"""Of the names of ranges."""
MOST_BYTES = 64
"""Of a boundary. Every item stores the hex of its range's boundary in its partition key."""
_MOST_DIGITS = 38
_TYPE_NAMES = {str: "text", bytes: "binary", Decimal: "a number"}


def sort_key(value: Any) -> Boundary:
    """Return a sort key's value as it is compared: numbers as Decimal, binary as bytes."""
    plain = checked(value)
    if isinstance(plain, tuple):
        raise InvalidKeyError(f"value: must be a single value, because it is a sort key, got {brief(value)}")
    return Decimal(plain) if isinstance(plain, int) else plain


def sample(values: Any) -> list[Boundary]:
    """Return sort keys as they are compared; refuse those that are not of one type."""
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        raise ConfigurationError(f"values: must be an iterable of sort keys, got {brief(values)}; give a list of them")
    listed = [sort_key(value) for value in values]
    if len({type(value) for value in listed}) > 1:
        raise InvalidKeyError(
            f"values: must be of one type (text, numbers or binary), got {brief(listed)}; give those of one table"
        )
    return listed


def boundaries(given: Any, what: str) -> tuple[Boundary, ...]:
    """Return boundaries in canonical form; refuse those that are not of one type and in ascending order."""
    try:
        listed = tuple(map(sort_key, given)) if isinstance(given, list | tuple) else None
    except InvalidKeyError as error:
        raise ConfigurationError(f"{what}: must be values of a sort key, got {brief(given)}: {error}") from error
    if listed is None:
        raise ConfigurationError(f"{what}: must be a list or a tuple of sort key values, got {brief(given)}")
    if len({type(one) for one in listed}) > 1:
        raise ConfigurationError(f"{what}: must be of one type (text, numbers or binary), got {brief(given)}")
    listed = tuple(Decimal(number_text(one)) if isinstance(one, Decimal) else one for one in listed)
    for one in listed:
        digits = len(number_text(one).lstrip("-").replace(".", "").strip("0")) if isinstance(one, Decimal) else 0
        if digits > _MOST_DIGITS or not 0 < len(_content(one)) <= MOST_BYTES:
            raise ConfigurationError(
                f"{what}: must be of 1 to {MOST_BYTES} bytes, numbers of at most {_MOST_DIGITS} digits, got "
                f"{brief(one)}; give the shortest text or number that separates the ranges"
            )
    for one, following in pairwise(listed):
        if not one < following:  # type: ignore[operator]
            raise ConfigurationError(
                f"{what}: must be in ascending order, without repetitions, got {brief(following)} after {brief(one)}"
            )
    return listed


def place(bounds: tuple[Boundary, ...], value: Any, what: str) -> int:
    """Return the index of the range that holds a sort key: a boundary is the lowest sort key of its range."""
    compared = sort_key(value)
    if bounds and type(compared) is not type(bounds[0]):
        raise InvalidKeyError(
            f"{what}: must be {_TYPE_NAMES[type(bounds[0])]}, as the boundaries are, got {brief(value)}, "
            f"{_TYPE_NAMES[type(compared)]}; convert it, or give other boundaries"
        )
    return bisect_right(bounds, compared)


def name(boundary: Boundary | None) -> str:
    """Return the name of the range above a boundary; None: of the lowest range."""
    # The name is the range's own boundary, not its number: a new boundary renames no other range. In hex it cannot
    # contain a separator. The letter keeps it apart from the decimal suffixes of other strategies.
    return "x" if boundary is None else f"x{_content(boundary).hex()}"


def cuts(ordered: list[Boundary], ranges: int) -> Iterator[Boundary]:
    """Yield the boundaries that cut a sorted sample into ranges of equal size; fewer if values repeat."""
    last: Any = ordered[0]
    for number in range(1, ranges):
        value: Any = ordered[number * len(ordered) // ranges]
        if value > last:
            yield _shortest(ordered[bisect_left(ordered, value) - 1], value)
            last = value


def growth(values: list[Boundary]) -> tuple[float, float]:
    """Return which shares of the later half of a sample lie above, and below, the whole earlier half."""
    half = len(values) // 2
    earlier, later = values[:half], values[half:]
    if not earlier:
        return 0.0, 0.0
    high: Any = max(earlier)
    low: Any = min(earlier)
    return sum(one > high for one in later) / len(later), sum(one < low for one in later) / len(later)


def fullest(bounds: tuple[Boundary, ...], values: list[Boundary]) -> float:
    """Return how many of some sort keys the fullest range holds, as a multiple of the mean."""
    counts = Counter(place(bounds, value, "values") for value in values)
    if not counts:
        raise ConfigurationError("values: must not be empty; give sort keys")
    return max(counts.values()) * (len(bounds) + 1) / counts.total()


def _content(boundary: Boundary) -> bytes:
    if isinstance(boundary, bytes):
        return boundary
    return (number_text(boundary) if isinstance(boundary, Decimal) else boundary).encode("utf-8")


def _shortest(below: Any, value: Any) -> Boundary:
    """Return the shortest prefix of a value that is above another one; of a number, the number."""
    if isinstance(value, Decimal):
        return value
    length = next(length for length in range(1, len(value) + 1) if value[:length] > below)
    cut: Boundary = value[:length]
    return cut
