"""How long to wait before the next try: exponential, with full jitter, bounded."""

from __future__ import annotations

__all__ = ["ATTEMPTS", "backoff_seconds"]

ATTEMPTS = 10
"""Tries in a row that bring nothing before a request is given up: 13 to 26 seconds with the delays below."""

_FIRST_SECONDS = 0.05
_MOST_SECONDS = 20.0


def backoff_seconds(attempt: int, draw: float) -> float:
    """Give the wait after try number ``attempt`` (from 1), for a draw from [0, 1).

    Half of the wait is fixed and half is drawn: callers that were refused together come back apart, and never at once.
    Source: AWS asks for exponential backoff on ``UnprocessedItems`` (BatchWriteItem API reference).
    """
    doublings = min(attempt - 1, 16)  # the bound is reached after nine; an int has none
    return float(min(_MOST_SECONDS, _FIRST_SECONDS * 2**doublings) * (0.5 + draw / 2))
