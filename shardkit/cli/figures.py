"""How the commands write figures: sizes, durations, shares, bars."""

from __future__ import annotations

import math

__all__ = ["bar", "duration", "percent", "size"]

_KILO = 1000
_LARGE_SHARE = 0.1


def size(count: float) -> str:
    """Write bytes: ``350 bytes``, ``1.2 MB``."""
    if count < _KILO:
        return f"{count:,.0f} bytes"
    power = min(4, int(math.log(count, _KILO)))
    return f"{count / _KILO**power:,.1f} {' KMGT'[power]}B"


def duration(seconds: float) -> str:
    """Write a duration: ``2.6 s``, ``1:05 min``, ``1:00:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min" if minutes else f"{seconds:.1f} s"


def percent(share: float) -> str:
    """Write a share of the whole: ``17%``, ``0.17%``."""
    return f"{share:.0%}" if share >= _LARGE_SHARE or not share else f"{share:.2%}"


def bar(share: float, encoding: str, *, width: int = 30) -> str:
    """Draw a share of the longest bar, in characters that the encoding has; what is not nothing has one at least."""
    block = "█" if encoding.lower().startswith("utf") else "#"
    return block * max(1 if share > 0 else 0, round(width * share))
