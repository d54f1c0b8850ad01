"""Delay Ctrl-C during a load while an answer is processed, so that none is half processed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interruptions:
    """A context manager that delays SIGINT, except while ``waiting``.

    Example:
        interruptions = Interruptions()
        with interruptions:
            item = take()
            with interruptions.waiting():
                time.sleep(1)  # Ctrl-C is raised here
            put(item)          # not here; it is raised at the end of the outer block

    A second SIGINT is not delayed. Delayed signals go to the handler that the program has set. In threads other than
    the main one, which receive no signals, and if the handler is not a Python function, this does nothing.

    Cost: 18 µs, because Python's ``signal`` is slow; 1 µs within ``kept``.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._kept = False
        self._waiting = True
        self._held: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if self._handler is None:
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler) and threading.current_thread() is threading.main_thread():
                self._handler = handler
                signal.signal(signal.SIGINT, self._interrupted)
        self._waiting = False

    def __exit__(self, *_: object) -> None:
        self._leave(restore=not self._kept)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Enter and leave often in this block: the program's handler comes back only at the block's end.

        If the program sets another handler in the block, that one stays, and nothing more is delayed.
        """
        self._kept = True
        try:
            yield
        finally:
            self._kept = False
            self._leave(restore=signal.getsignal(signal.SIGINT) == self._interrupted)

    def _leave(self, *, restore: bool) -> None:
        handler = self._handler
        if restore and handler is not None:
            # Still delayed: signal() calls pending handlers first, and an exception would end it.
            self._waiting = False
            signal.signal(signal.SIGINT, handler)
            self._handler = None
        self._waiting = True
        self._deliver(handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Deliver a delayed SIGINT, and any that comes in this block."""
        before, self._waiting = self._waiting, True
        try:
            self._deliver(self._handler)
            yield
        finally:
            self._waiting = before

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        again = self._held is not None
        self._held = number, frame
        if again or self._waiting:
            self._deliver(self._handler)

    def _deliver(self, handler: Callable[[int, FrameType | None], Any] | None) -> None:
        held, self._held = self._held, None
        if held is not None and handler is not None:
            handler(*held)
