"""Ctrl-C during a load: held back for the moment in which an answer is taken in, so that none is half taken in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Interruptions"]


class Interruptions:
    """Holds SIGINT back, as a context manager, but for the times that are spent ``waiting``.

    Example::

        interruptions = Interruptions()
        with interruptions:
            item = take()
            with interruptions.waiting():
                time.sleep(1)  # Ctrl-C is raised here
            put(item)          # and not between these two; it is raised where the block ends

    A second one is not held back. What is done about SIGINT in the end is what the program has set. Where that is none
    of Python's handlers, and in other threads than the main one, which get no signals, this does nothing.

    Cost: 1 µs.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._waiting = False
        self._held: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._handler = handler
            signal.signal(signal.SIGINT, self._interrupted)

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._deliver()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let through what comes, and what was held back."""
        self._waiting = True
        try:
            self._deliver()
            yield
        finally:
            self._waiting = False

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        again = self._held is not None
        self._held = number, frame
        if again or self._waiting:
            self._deliver()

    def _deliver(self) -> None:
        held, self._held = self._held, None
        if held is not None and self._handler is not None:
            self._handler(*held)
