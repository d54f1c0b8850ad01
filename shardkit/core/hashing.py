"""The hash functions that suffixes are calculated with: the same in every process, version and language."""

from __future__ import annotations

import hashlib
import math
import re
from decimal import Decimal
from typing import Any

from shardkit.errors import InvalidKeyError, brief

_MOST_DIGITS = 1000  # of a number written in full; DynamoDB stores 1E-130 to 9.99E+125
_SURROGATE = re.compile("[\ud800-\udfff]").search


def stable_hash(value: Any) -> int:
    """Hash a value to 64 bits, the same in every process, version and language.

    Example:
        stable_hash(Decimal("1.50")) == stable_hash("1.5")
        stable_hash("A17") % 200 + 1  # what CalculatedSuffix("OrderId", shards=200) does

    The hash is the first 8 bytes, big-endian, of a SHA-256. Its input is the UTF-8 of a text, the bytes themselves, or
    a number's exact decimal text, without an exponent or trailing zeros.

    Each member of a tuple is hashed as its type letter (S, B, N), its length (4 bytes, big-endian) and its bytes.

    Args:
        value: A str, bytes, bytearray, Binary, int or Decimal, or a non-empty tuple of these.

    Returns:
        An int from 0 to 2**64 - 1.

    Raises:
        InvalidKeyError: The value has another type, or is NaN, Infinity, a number of over 1000 digits, a text with an
            unpaired surrogate, or an empty tuple.

    Cost: one SHA-256 over the value; no request.
    Source: ``tests/vectors/stable_hash.json``, for implementations in other languages.
    """
    # Fast path, here and below: nearly all values of written items are ASCII text.
    if type(value) is str and value.isascii():
        data = value.encode("ascii")
    elif isinstance(value, tuple):
        encoded = [_encoded(member) for member in _members(value)]
        data = b"".join(letter + len(content).to_bytes(4, "big") + content for letter, content in encoded)
    else:
        data = _encoded(value)[1]
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def key_draw(load: str, key: tuple[Any, ...]) -> float:
    """Return the draw, from [0, 1), for the random suffix of an item, by its logical primary key.

    It is the same wherever and however often the load with this id writes the item, so a repeated write makes no copy
    on another shard.
    """
    return (stable_hash((load, *key)) >> 11) / 2**53


def code_point_product(value: Any) -> int:
    """Return the product of a text's code points: the guide's formula, which spreads badly.

    Example:
        code_point_product("A17") == 65 * 49 * 55

    Use it only for data already written with it. The strategy does the rest of the formula, "modulo 200 + 1".

    Args:
        value: A str.

    Returns:
        An int >= 0; 1 for the empty text.

    Raises:
        InvalidKeyError: The value is not a str.

    Cost: O(length squared); no request.
    Source: Developer Guide, "Best Practices for Tables", "Using a Calculated Value".
    """
    if not isinstance(value, str):
        raise InvalidKeyError(f"value: must be a str, got {brief(value)}; use stable_hash, or a by= that returns a str")
    return math.prod(map(ord, value))


def checked(value: Any) -> Any:
    """Return a value, or a tuple of values, that can be hashed; binary values as bytes."""
    if type(value) is str and value.isascii():
        return value
    members = tuple((_encoded(member), unwrapped(member))[1] for member in _members(value))
    return members if isinstance(value, tuple) else members[0]


def unwrapped(value: Any) -> Any:
    """Return bytes for every Python value that boto3 writes as type B, and any other value unchanged."""
    # boto3's Binary, recognized by its attribute: this folder does not import boto3.
    content = getattr(value, "value", None)
    raw = content if isinstance(content, bytes | bytearray) else value
    return bytes(raw) if isinstance(raw, bytearray) else raw


def number_text(number: Decimal) -> str:
    """Write a number in full, without an exponent or trailing zeros: equal numbers have equal texts."""
    text = format(number, "f") if number else "0"  # exact at any length, whatever the context
    return text.rstrip("0").rstrip(".") if "." in text else text


def _members(value: Any) -> tuple[Any, ...]:
    if value == () and isinstance(value, tuple):
        raise InvalidKeyError("value: an empty tuple has nothing to calculate a shard from; give it a member")
    return value if isinstance(value, tuple) else (value,)


def _encoded(value: Any) -> tuple[bytes, bytes]:
    # The type letter and the bytes to hash.
    raw = unwrapped(value)
    if isinstance(raw, bytes):
        return b"B", raw
    if isinstance(raw, str) and not _SURROGATE(raw):
        return b"S", raw.encode("utf-8")
    if isinstance(raw, int | Decimal) and not isinstance(raw, bool):
        number = Decimal(raw)
        if not number or (number.is_finite() and abs(number.adjusted()) < _MOST_DIGITS):
            return b"N", number_text(number).encode("ascii")
    raise InvalidKeyError(
        f"value: no shard can be calculated from {brief(raw)} ({type(raw).__name__}); use text, bytes, an int or a "
        "Decimal (unpaired surrogates, NaN, Infinity and numbers of over 1000 digits are not supported)"
    )
