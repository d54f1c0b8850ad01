"""Checks of arguments that raise ``ConfigurationError`` with messages of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from math import inf, isfinite
from typing import Any

from shardkit.core.hashing import unwrapped
from shardkit.errors import ConfigurationError, brief

MOST_SIDE_BY_SIDE = 1000
"""Requests that one process may have in flight."""
MOST_CURSORS = 1000
"""Places at which a source may be read alternately."""
_MOST = 10**15  # no real count is larger; floats are exact up to here
_COMPARED = 1000  # names; each comparison takes some microseconds


def check_number(name: str, given: Any, unit: str, *, above: bool = False, most: float = inf) -> float:
    """Return an argument that must be a finite number >= 0, or > 0 if ``above``, and at most ``most``."""
    try:
        valid = isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
    except OverflowError:  # an int too large for a float
        valid = False
    if not valid or not 0 <= given <= most or (above and not given):
        bounds = f"{'>' if above else '>='} 0" + ("" if most == inf else f" and <= {most:g}")
        raise ConfigurationError(f"{name}: must be a number {bounds} ({unit}), got {brief(given)}")
    number: float = given
    return number


def check_count(name: str, given: Any, unit: str, *, least: int = 1, most: int = _MOST, why: str = "") -> int:
    """Return an argument that must be an integer from ``least`` to ``most``; ``why`` explains the upper bound."""
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        bounds = f">= {least:,}" if most >= _MOST else f"from {least:,} to {most:,}"
        what = f"{unit}; {why}" if why else unit
        raise ConfigurationError(f"{name}: must be an integer {bounds} ({what}), got {brief(given)}")
    return given


def check_text(name: str, given: Any) -> None:
    try:
        str.encode(given)
    except (TypeError, UnicodeEncodeError):  # of the latter, an unpaired surrogate
        raise ConfigurationError(f"{name}: must be a str that UTF-8 can encode, got {brief(given)}") from None


def check_side_by_side(name: str, given: Any, *, processes: int = 1) -> int:
    most, why = MOST_SIDE_BY_SIDE * processes, "each needs a thread and a connection"
    return check_count(name, given, "concurrent requests", most=most, why=why)


def check_option_names(given: Iterable[str], known: Sequence[str], of: str) -> None:
    """Refuse names that are no option ``of`` something, such as ``a load``."""
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"{name}: is not an option of {of}{did_you_mean(name, known)}; the options are {', '.join(known)}"
            )


def check_progress(given: Any) -> None:
    if given is not None and not callable(given):
        raise ConfigurationError(f"progress: must be a function of one report, got {brief(given)}")


def check_headroom(given: Any) -> float:
    """Return an argument that must be a share of a partition's throughput, from 0 to below 1."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
        raise ConfigurationError(
            f"headroom: must be a number >= 0 and < 1 (a share of a partition's throughput), got {brief(given)}"
        )
    return given


def check_key(given: Any, name: str = "key") -> str | bytes | int | Decimal:
    """Return an argument that must be a partition key's value; binary values as bytes, which can be hashed."""
    key = unwrapped(given)
    if isinstance(key, bool) or not isinstance(key, str | bytes | int | Decimal):
        raise ConfigurationError(
            f"{name}: must be a str, bytes or a number (a partition key's value), got {brief(key)}"
        )
    return key


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean OrderId?)`` with the most similar known name; empty if none is similar."""
    near = most_similar(name, known)
    return "" if near is None else f" (did you mean {near}?)"


def most_similar(name: str, known: Iterable[str]) -> str | None:
    folded = {one.casefold(): one for one in islice(known, _COMPARED)}
    near = get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None
