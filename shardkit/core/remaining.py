"""How long a job still takes, by its pace so far."""

from __future__ import annotations

from collections.abc import Sequence

Done = tuple[float, float]
"""A time in seconds, and what was done until then."""

_SAMPLES = 480
_SPACING = 0.25
_SECONDS = 5.0
_UNSTEADY_SECONDS = 30.0
_STEADY = 1.25


class History:
    """What was done until when, of the whole run: when it is full, every second entry is dropped."""

    def __init__(self) -> None:
        self.entries: list[Done] = []
        self._spacing = _SPACING

    def add(self, now: float, done: float) -> None:
        """Add an entry, unless the last one is recent."""
        if self.entries and now - self.entries[-1][0] < self._spacing:
            return
        if len(self.entries) == _SAMPLES:
            del self.entries[1::2]  # the first one stays
            self._spacing *= 2
        self.entries.append((now, done))


def seconds_left(history: Sequence[Done], left: float) -> float | None:
    """Return how long the rest of a job takes, at the pace of the last half of its history (at least 5 seconds).

    A job begins slowly: connections are made, and a pace is found. So it returns None in the first 5 seconds; in the
    first 30 also while the pace still changes by a quarter; and always if nothing was done lately.

    Args:
        history: What was done until when, the oldest first. What an earlier run did does not count.
        left: What is left to do, in the same unit.
    """
    if not history:
        return None
    end, done = history[-1]
    seconds = end - history[0][0]
    if seconds < _SECONDS:
        return None
    lately = max(_SECONDS, seconds / 2)
    middle, start = _done(history, end - lately / 2), _done(history, end - lately)
    before, after = middle - start, done - middle
    steady = max(before, after) <= _STEADY * min(before, after)
    if before + after <= 0 or (seconds < _UNSTEADY_SECONDS and not steady):
        return None
    return left * lately / (before + after)


def _done(history: Sequence[Done], at: float) -> float:
    """Return what was done at a time, in proportion between the two entries around it."""
    last, before = history[0]
    for time, done in history:
        if time >= at:
            return done if time <= last else before + (done - before) * (at - last) / (time - last)
        last, before = time, done
    return before
