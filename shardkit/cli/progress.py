"""How far a command is, shown while it works."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.console import Console
    from typing_extensions import Self

__all__ = ["LINE_SECONDS", "LIVE_SECONDS", "CommandProgress"]

LINE_SECONDS = 10.0
LIVE_SECONDS = 0.25


class CommandProgress:
    """Shows how far a command is: a bar on a terminal, else a line every ten seconds; nothing without a console.

    Args:
        console: where it is shown.
        total: what is to be completed; None: that is not known.
        clock: gives the time in seconds.
    """

    def __init__(
        self, console: Console | None, total: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._total = total
        self._clock = clock
        self._began = self._shown = clock()
        self._opened = ExitStack()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if self._console is not None and self._console.is_terminal:
            bar = Progress(
                BarColumn(24), TextColumn("{task.description}"), TimeRemainingColumn(),
                console=self._console, auto_refresh=False, transient=True,
            )  # fmt: skip
            self._bar = self._opened.enter_context(bar)
            self._bar.add_task("", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def seconds(self) -> float:
        """For how long it has been shown."""
        return self._clock() - self._began

    @property
    def due(self) -> bool:
        """Whether it is to be shown again: what was shown last is old enough."""
        if self._console is None:
            return False
        return self._clock() - self._shown >= (LINE_SECONDS if self._bar is None else LIVE_SECONDS)

    def show(self, completed: float, said: str, more: str = "") -> None:
        """Show it: what is completed, and what is said of it; in a line without a bar, more."""
        self._shown = self._clock()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=completed, description=said, refresh=True)
        elif self._console is not None:
            self._console.print(f"{said}{more}", markup=False, soft_wrap=True)
