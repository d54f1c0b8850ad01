"""Adaptive capacity: when a partition may use more than its own share of a table's throughput."""

from __future__ import annotations

__all__ = ["Adaptation"]


class Adaptation:
    """Of one partition's reads or writes: it adapts some time after its first throttle, and stays so.

    That it stays is a model: the guide does not say when it ends.

    Args:
        seconds: how long after the first throttle; None: never.

    Source:
        Developer Guide, "Best Practices for Tables", Avoid Depending on DynamoDB Adaptive Capacity: "there is typically
        a 5- to 30-minute interval between the time a table experiences throttling and the time that adaptive capacity
        becomes active".
    """

    __slots__ = ("_seconds", "_since")

    def __init__(self, seconds: float | None, since: float | None = None) -> None:
        self._seconds = seconds
        self._since = since

    def refused(self, now: float) -> None:
        """Note a throttle for lack of the partition's own share."""
        if self._since is None:
            self._since = now

    def active(self, now: float) -> bool:
        """Say whether the partition has adapted."""
        if self._seconds is None:
            return False
        return self._seconds == 0 or (self._since is not None and now - self._since >= self._seconds)

    def copy(self) -> Adaptation:
        """Give that of the other half of a split partition."""
        return Adaptation(self._seconds, self._since)
