"""How long to wait before the next try: exponential, with full jitter, bounded."""

from __future__ import annotations

from math import inf

__all__ = ["ATTEMPTS", "Backoff", "backoff_seconds"]

ATTEMPTS = 10
"""Tries in a row that bring nothing before a request is given up: 13 to 26 seconds with the delays below."""

_FIRST_SECONDS = 0.05
_MOST_SECONDS = 20.0
_MOST_ADDED_SECONDS = 5.0


def backoff_seconds(attempt: float, draw: float, most: float = _MOST_SECONDS, *, asked: float = 0.0) -> float:
    """Give the wait after try number ``attempt`` (from 1; it may lie between two), for a draw from [0, 1).

    Half of the wait is fixed and half is drawn: callers that were refused together come back apart, and never at once.
    The wait is at least what the service ``asked`` for (the header ``x-amz-retry-after``), up to 5 seconds more than it
    would be otherwise.
    Source: AWS asks for exponential backoff on ``UnprocessedItems`` (BatchWriteItem API reference); botocore's retries
    bound what is asked for in the same way.
    """
    doublings = min(attempt - 1, 16)  # the bound is reached after nine; an int has none
    wait = float(min(most, _FIRST_SECONDS * 2**doublings) * (0.5 + draw / 2))
    return max(wait, min(asked, wait + _MOST_ADDED_SECONDS))


class Backoff:
    """The waits of one thing that is refused again and again: each is twice as long, until it succeeds.

    ``until`` is when it may be tried again (seconds); no wait is longer than ``most``, unless the service asks for a
    longer one. A success takes back ``ease`` doublings, or all.
    """

    __slots__ = ("_ease", "_most", "_tries", "until")

    def __init__(self, most: float = _MOST_SECONDS, ease: float = inf) -> None:
        self.until = 0.0
        self._most = most
        self._ease = ease
        self._tries = 0.0

    def refused(self, now: float, draw: float, asked: float = 0.0) -> None:
        """Note a refusal, and the wait that the service asked for with it."""
        self._tries += 1
        self.until = now + backoff_seconds(self._tries, draw, self._most, asked=asked)

    def put_off(self, now: float, asked: float) -> None:
        """Note a refusal of what was sent before the wait began: only what the service asked for is new."""
        self.until = max(self.until, now + min(asked, _MOST_ADDED_SECONDS))

    def eased(self) -> None:
        """Note a success: the next wait is shorter."""
        self._tries = max(0.0, self._tries - self._ease)
