"""Checks of arguments, in one place and with one kind of error: what was given, what it is not, and what to give."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from math import isfinite
from typing import Any

from shardkit.errors import ConfigurationError, brief

__all__ = [
    "MOST_CURSORS",
    "MOST_SIDE_BY_SIDE",
    "check_count",
    "check_headroom",
    "check_key",
    "check_number",
    "check_side_by_side",
    "did_you_mean",
]

MOST_SIDE_BY_SIDE = 1000
"""Requests that one process has under way at once."""
MOST_CURSORS = 1000
"""Places at which a source is read in turn."""
_MOST = 10**15  # more than there is of anything here; every float up to it is exact
_COMPARED = 1000  # names; each takes some microseconds


def check_number(name: str, given: Any, unit: str, *, above: bool = False) -> float:
    """Check an argument that is a finite number of ``unit``, 0 or more; ``above``: more than 0.

    Raises:
        ConfigurationError: It is not.
    """
    try:
        known = isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
    except OverflowError:  # an int that no float holds
        known = False
    if not known or given < 0 or (above and not given):
        least = "above 0" if above else "of 0 or more"
        raise ConfigurationError(f"{name}={brief(given)} is no number of {unit}; give a number {least}")
    number: float = given
    return number


def check_count(name: str, given: Any, unit: str, *, least: int = 1, most: int = _MOST, why: str = "") -> int:
    """Check an argument that is a whole number of ``unit``, from ``least`` to ``most``; ``why`` there is a most.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        to = "or more" if most >= _MOST else f"to {most:,}{why and f': {why}'}"
        raise ConfigurationError(f"{name}={brief(given)} is no whole number of {unit}; give {least:,} {to}")
    return given


def check_side_by_side(name: str, given: Any, *, processes: int = 1) -> int:
    """Check how many requests are under way at once.

    Raises:
        ConfigurationError: it is none, or more than so many processes can have.
    """
    most, why = MOST_SIDE_BY_SIDE * processes, "each has a thread and a connection of its own"
    return check_count(name, given, "requests side by side", most=most, why=why)


def check_headroom(given: Any) -> float:
    """Check an argument that is the part of a partition's throughput to leave free.

    Raises:
        ConfigurationError: It is no number from 0 to below 1.
    """
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
        raise ConfigurationError(
            f"headroom={brief(given)} is no part of a partition's throughput; give a number from 0 to below 1"
        )
    return given


def check_key(given: Any) -> str | bytes | int | Decimal:
    """Check an argument that is a partition key's value; binary is given as bytes, which can be hashed.

    Raises:
        ConfigurationError: It is not.
    """
    key = getattr(given, "value", given)  # of boto3's Binary
    key = bytes(key) if isinstance(key, bytearray) else key
    if isinstance(key, bool) or not isinstance(key, str | bytes | int | Decimal):
        raise ConfigurationError(f"key={brief(key)} is no partition key's value; give text, bytes or a number")
    return key


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that was probably meant: `` (did you mean OrderId?)``; nothing where none is like it."""
    folded = {one.casefold(): one for one in islice(known, _COMPARED)}
    near = get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {folded[near[0]]}?)" if near else ""
