"""Clocks for tests: the machine's clock, and a virtual one whose waits end at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from shardkit.core.checks import check_number

T = TypeVar("T")


class RealClock:
    """The machine's clock, for a simulation in real time.

    Example:
        for item in clock.pace(items, per_second=200):
            orders.put_item(Item=item)
    """

    def __call__(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Wait for some seconds without blocking other tasks."""
        await asyncio.sleep(seconds)

    def pace(self, items: Iterable[T], *, per_second: float) -> Iterator[T]:
        """Yield items at a steady rate; a late item comes at once and does not delay those after it.

        Args:
            items: the items.
            per_second: items a second, above 0.

        Raises:
            ConfigurationError: ``per_second`` is not a number above 0.
        """
        rate = check_number("per_second", per_second, "calls a second", above=True)
        begun = self()
        for place, item in enumerate(items):
            early = begun + place / rate - self()
            if early > 0:
                self.sleep(early)
            yield item


class VirtualClock(RealClock):
    """A clock that advances only when a caller waits on it, and then at once: ten minutes take no time.

    Example:
        >>> clock = VirtualClock()
        >>> clock.sleep(600.0)
        >>> clock()
        600.0

    A VirtualClock serves one loop at a time: a test's, or one of shardkit's, which waits only while no request is in
    flight, so requests take no time. If several threads wait on one clock, each wait advances the time of all.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the time in seconds; it starts at 0."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        with self._lock:
            self._now += max(0.0, seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Advance the time, and let other tasks run."""
        self.sleep(seconds)
        await asyncio.sleep(0)
