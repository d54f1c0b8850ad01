"""Whose time a client's calls live in: the machine's, or one of its own that a test gave it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from shardkit.errors import ConfigurationError

__all__ = ["Clock", "clock_of", "on_clock"]


class Clock(Protocol):
    """What gives the time, in seconds, and waits."""

    def __call__(self) -> float:
        """Give the time."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    async def sleep_async(self, seconds: float) -> None:
        """Wait in a task."""


_clocks: WeakKeyDictionary[Any, tuple[Clock, int]] = WeakKeyDictionary()  # and how many hold the client to it
_lock = threading.Lock()


def clock_of(client: Any) -> Clock | None:
    """Give the clock that a client was given; None: the machine's."""
    clock, _ = _clocks.get(client, (None, 0))
    return clock


@contextmanager
def on_clock(client: Any, clock: Clock) -> Iterator[None]:
    """Let shardkit's own loops over a client live in a clock's time.

    Raises:
        ConfigurationError: the client is on another clock already.
    """
    with _lock:
        before, held = _clocks.get(client, (clock, 0))
        if before is not clock:
            raise ConfigurationError(
                f"the client is on a clock already ({before!r:.100}), got {clock!r:.100}; give the same clock= to all "
                "that is simulated on one client"
            )
        _clocks[client] = clock, held + 1
    try:
        yield
    finally:
        with _lock:
            _, held = _clocks.pop(client)
            if held > 1:
                _clocks[client] = clock, held - 1
