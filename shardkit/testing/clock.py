"""Clocks for tests: the machine's, and one whose time passes at once where somebody waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from shardkit.core.checks import check_number

__all__ = ["RealClock", "VirtualClock"]

T = TypeVar("T")


class RealClock:
    """The machine's time, as the clock of a simulation.

    Example::

        for item in clock.pace(items, per_second=200):
            orders.put_item(Item=item)
    """

    def __call__(self) -> float:
        """Give the time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Wait in a task."""
        await asyncio.sleep(seconds)

    def pace(self, items: Iterable[T], *, per_second: float) -> Iterator[T]:
        """Give items one after another, so many a second; one that is late comes at once, and those after it in time.

        Args:
            items: what to give.
            per_second: how many a second, above 0.

        Raises:
            ConfigurationError: ``per_second`` is no such number.
        """
        rate = check_number("per_second", per_second, "calls a second", above=True)
        begun = self()
        for place, item in enumerate(items):
            early = begun + place / rate - self()
            if early > 0:
                self.sleep(early)
            yield item


class VirtualClock(RealClock):
    """A time of its own, which passes only where somebody waits for it, and then at once: ten minutes take no time.

    Example:
        >>> clock = VirtualClock()
        >>> clock.sleep(600.0)
        >>> clock()
        600.0

    It is the time of one loop: of a test's, or of one of shardkit's, which waits on it only while no request is under
    way; so requests take no time. Threads that each wait on it for themselves make its time pass faster than theirs.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Give the time in seconds; it begins at 0."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._now += max(0.0, seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Let time pass, and other tasks go on."""
        self.sleep(seconds)
        await asyncio.sleep(0)
