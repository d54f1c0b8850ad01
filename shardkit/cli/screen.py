"""How the commands write figures: sizes, durations, shares, bars."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console

__all__ = [
    "LINE_SECONDS",
    "LIVE_SECONDS",
    "CommandProgress",
    "bar",
    "clipped",
    "columns",
    "drawing",
    "duration",
    "percent",
    "picture",
    "show_table",
    "size",
]

_KILO = 1000
_LARGE_SHARE = 0.1


def size(count: float) -> str:
    """Write bytes: ``350 bytes``, ``1.2 MB``."""
    if count < _KILO:
        return f"{count:,.0f} bytes"
    power = min(4, int(math.log(count, _KILO)))
    return f"{count / _KILO**power:,.1f} {' KMGT'[power]}B"


def duration(seconds: float) -> str:
    """Write a duration: ``2.6 s``, ``1:05 min``, ``1:00:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min" if minutes else f"{seconds:.1f} s"


def percent(share: float) -> str:
    """Write a share of the whole: ``17%``, ``0.17%``."""
    return f"{share:.0%}" if share >= _LARGE_SHARE or not share else f"{share:.2%}"


def bar(share: float, encoding: str, *, width: int = 30) -> str:
    """Draw a share of the longest bar, in characters that the encoding has; what is not nothing has one at least."""
    block = "█" if encoding.lower().startswith("utf") else "#"
    return block * max(1 if share > 0 else 0, round(width * share))


def clipped(text: str, longest: int = 60) -> str:
    """Write a name or a key on one line, cut short."""
    plain = text if text.isprintable() else repr(text)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def columns(console: Console, *headings: str) -> Table:
    """Begin a table: text in the first column and under no heading, else figures; with lines on a terminal only."""
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place and heading else "left", no_wrap=True)
    return table


def show_table(console: Console, table: Table) -> None:
    """Print a table after a blank line; where it is no terminal, without the spaces that lines end in."""
    console.print()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), markup=False, soft_wrap=True)


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


T = TypeVar("T")

_WIDTH = 8.0  # inches
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "shardkit", "font.size": 9.0}


def drawing(path: str | None, plot: Callable[[], Callable[[T, str], None]]) -> Callable[[T], None]:
    """Give what draws the picture, and refuse at once what cannot be drawn.

    Args:
        path: the file; None: no picture is wanted.
        plot: imports what draws it, and gives that.

    Raises:
        ConfigurationError: matplotlib is not installed; no such format, or no such folder.
    """
    if path is None:
        return lambda _shown: None
    try:
        from matplotlib import figure

        draw = plot()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'--plot needs the package {error.name!r}, which is not installed: pip install "shardkit[plot]"'
        ) from error
    known = figure.Figure().canvas.get_supported_filetypes()
    if (ending := Path(path).suffix.removeprefix(".").lower()) not in known:
        raise ConfigurationError(f"--plot {path}: {ending!r} is no format of a picture; give one of {', '.join(known)}")
    if not Path(path).resolve().parent.is_dir():
        raise ConfigurationError(f"--plot {path}: there is no folder {Path(path).resolve().parent}; make it first")
    return lambda shown: draw(shown, path)


@contextmanager
def picture(path: str, height: float) -> Iterator[Any]:
    """Give a figure to draw on, so many inches high, and save it: the same data give the same picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure((_WIDTH, height), layout="constrained")
        yield figure
        # Without the day of drawing.
        figure.savefig(path, metadata={"Date": None} if path.lower().endswith("svg") else None, dpi=150)
