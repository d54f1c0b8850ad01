"""Checks of arguments: numbers, and keys."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isfinite
from typing import Any

from shardkit.errors import ConfigurationError

__all__ = ["count_of", "key_of", "number_of"]


def number_of(name: str, given: Any, what: str, *, above: float = -1.0) -> float:
    """Check an argument that is a finite number, 0 or more, or ``above`` some number.

    Raises:
        ConfigurationError: It is not.
    """
    try:
        number = float(given) if isinstance(given, int | float | Decimal) and not isinstance(given, bool) else inf
    except (OverflowError, ValueError):  # an int that no float holds, a signaling NaN
        number = inf
    if not isfinite(number) or number < 0 or number <= above:
        raise ConfigurationError(f"{name} is {what}; got {given!r:.100}")
    return number


def count_of(name: str, given: Any, what: str, *, least: int = 0) -> int:
    """Check an argument that is a whole number, ``least`` or more.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ConfigurationError(f"{name} is {what}; got {given!r:.100}")
    return given


def key_of(given: Any) -> str | bytes | int | Decimal:
    """Check an argument that is a partition key's value; binary is given as bytes, which can be hashed.

    Raises:
        ConfigurationError: It is not.
    """
    key = getattr(given, "value", given)  # of boto3's Binary
    key = bytes(key) if isinstance(key, bytearray) else key
    if isinstance(key, bool) or not isinstance(key, str | bytes | int | Decimal):
        raise ConfigurationError(f"key is a partition key's value (text, bytes or a number), got {key!r:.100}")
    return key
