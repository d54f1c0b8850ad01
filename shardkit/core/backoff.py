"""How long to wait before the next try: bounded exponential backoff with jitter."""

from __future__ import annotations

from math import inf

ATTEMPTS = 10
"""A request is given up when it has failed this often in a row: after 13 to 26 seconds with the delays below."""

_FIRST_SECONDS = 0.05
_MOST_SECONDS = 20.0
_MOST_ADDED_SECONDS = 5.0


def backoff_seconds(attempt: float, draw: float, most: float = _MOST_SECONDS, *, asked: float = 0.0) -> float:
    """Return the seconds to wait after try ``attempt`` (1 or more; fractions interpolate), given a draw from [0, 1).

    Half of the wait is fixed and half is random, so that callers that were throttled together retry at different times.
    If the service ``asked`` for a longer wait (the header ``x-amz-retry-after``), the wait is extended to that, but by
    at most 5 seconds.
    Source: AWS recommends exponential backoff for ``UnprocessedItems`` (BatchWriteItem API reference); botocore bounds
    the requested wait in the same way.
    """
    doublings = min(attempt - 1, 16)  # nine doublings reach the bound; more would only make 2**n huge
    wait = float(min(most, _FIRST_SECONDS * 2**doublings) * (0.5 + draw / 2))
    return max(wait, min(asked, wait + _MOST_ADDED_SECONDS))


class Backoff:
    """The growing waits of one thing that is throttled repeatedly: each refusal doubles the wait.

    ``until`` is the time (in seconds) of the next allowed try. No wait is longer than ``most``, unless the service asks
    for more. A success undoes ``ease`` doublings, by default all.
    """

    __slots__ = ("_ease", "_most", "_tries", "until")

    def __init__(self, most: float = _MOST_SECONDS, ease: float = inf) -> None:
        self.until = 0.0
        self._most = most
        self._ease = ease
        self._tries = 0.0

    def refused(self, now: float, draw: float, asked: float = 0.0) -> None:
        """Record a refusal, and the wait that the service asked for."""
        self._tries += 1
        self.until = now + backoff_seconds(self._tries, draw, self._most, asked=asked)

    def put_off(self, now: float, asked: float) -> None:
        """Record a refusal of a request sent before the current wait began: only the wait asked for counts."""
        self.until = max(self.until, now + min(asked, _MOST_ADDED_SECONDS))

    def eased(self) -> None:
        self._tries = max(0.0, self._tries - self._ease)
