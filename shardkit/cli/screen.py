"""What the commands print with: figures, tables, progress."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rich import box
from rich.cells import cell_len, chop_cells
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console

    from shardkit.dynamodb.service_errors import Kind
    from shardkit.partitions.partition import Heat

R = TypeVar("R")
_KILO = 1000
_LARGE_SHARE = 0.1


def size(count: float) -> str:
    """Return a number of bytes as text: ``350 bytes``, ``1.2 MB``."""
    if count < _KILO:
        return f"{count:,.0f} bytes"
    power = min(4, int(math.log(count, _KILO)))
    return f"{count / _KILO**power:,.1f} {' KMGT'[power]}B"


def duration(seconds: float) -> str:
    """Return a duration as text: ``2.6 s``, ``1:05 min``, ``1:00:00``."""
    if seconds == math.inf:
        return "forever"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min" if minutes else f"{seconds:.1f} s"


def percent(share: float) -> str:
    """Return a share of the whole as text: ``17%``, ``0.17%``."""
    return f"{share:.0%}" if share >= _LARGE_SHARE or not share else f"{share:.2%}"


def bar(share: float, encoding: str, *, width: int = 30) -> str:
    """Return a bar of ``share`` of ``width``, in characters that the encoding has; at least one for a share above 0."""
    block = "█" if encoding.lower().startswith("utf") else "#"
    return block * max(1 if share > 0 else 0, round(width * share))


def clipped(text: str, longest: int = 60) -> str:
    """Return a name or a key on one line, shortened to ``longest`` columns, of which some characters take two."""
    plain = text if text.isprintable() else repr(text)
    return plain if cell_len(plain) <= longest else f"{chop_cells(plain, longest - 3)[0]}..."


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line as it is: no markup, no wrapping."""
    console.print(Text(text, style), soft_wrap=True)


def tell(console: Console, text: str, style: str = "") -> None:
    """Print a line of prose: on a terminal, wrapped between words, with what follows indented; elsewhere as it is."""
    lines = [text]
    if console.is_terminal:
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        lines = textwrap.wrap(
            text, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    for line in lines or [""]:
        say(console, line, style)


def columns(console: Console, *headings: str) -> Table:
    """Return an empty table: the first column and those without a heading hold text, the others figures."""
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place and heading else "left", no_wrap=True)
    return table


def show_table(console: Console, table: Table) -> None:
    """Print a blank line and a table; in a file, without trailing spaces."""
    console.print()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        say(console, line.rstrip())


HEAT_COLUMNS = 60
_HEAT_ROWS = 22
_SHADES, _PLAIN_SHADES = "·▁▂▃▄▅▆▇█", ".:-=+*%#@"


def show_heat(console: Console, heat: Heat, kind: Kind, most: float, what: str = "partitions") -> None:
    """Print a heat map, partitions × time; red where a partition throttled. ``most``: of the darkest shade."""
    from shardkit.partitions.scenarios.way_result import HeatMap

    shades = _SHADES if console.encoding.lower().startswith("utf") else _PLAIN_SHADES
    taken = HeatMap.of(heat, kind, HEAT_COLUMNS)
    refused = HeatMap.of(heat, kind, HEAT_COLUMNS, throttled=True)
    count = len(taken.rows)
    each = -(-count // _HEAT_ROWS)
    steps = len(shades) - 1
    say(
        console,
        f"  {what}, {kind} units a second: {shades[0]} none, {shades[-1]} {most:,.4g}; "
        f"a column is {duration(taken.seconds)}",
    )
    rows = zip(taken.in_rows(_HEAT_ROWS).rows, refused.in_rows(_HEAT_ROWS).rows, strict=True)
    for row, (served, throttled) in enumerate(rows):
        first, last = row * each + 1, min(count, row * each + each)
        text = Text(f"  {first if first == last else f'{first}-{last}':>7} ")
        for rate, over in zip(served, throttled, strict=True):
            shade = min(steps, max(1, round(steps * rate / most))) if rate else 0
            text.append(shades[shade], "red" if over else "")
        console.print(text, soft_wrap=True)


LINE_SECONDS, LIVE_SECONDS = 10.0, 0.25


class Line(NamedTuple):
    """How much is completed, a line, and what is added to it where there is no bar."""

    completed: float
    text: str
    more: str = ""


class CommandProgress(Generic[R]):
    """Shows a command's progress: live on a terminal, else a line every ten seconds; nothing without a console.

    Args:
        console: Where to show it.
        line: Says what to show of a report, and of the seconds so far.
        total: The value of ``completed`` at the end; None if unknown.
        clock: For tests.

    Attributes:
        report: The last report.
    """

    report: R | None = None

    def __init__(
        self,
        console: Console | None,
        line: Callable[[R, float], Line],
        total: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._line = line
        self._total = total
        self._clock = clock
        self._began = self._shown = clock()
        self._opened = ExitStack()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def restart(self, total: float | None) -> None:
        """Begin another phase, which is shown at once."""
        self._opened.close()
        self._bar = None
        self._total, self._began, self._shown = total, self._clock(), -math.inf

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def due(self) -> bool:
        """Whether enough time has passed to show it again."""
        if self._console is None:
            return False
        return self._clock() - self._shown >= (LIVE_SECONDS if self._console.is_terminal else LINE_SECONDS)

    def update(self, report: R) -> None:
        """Keep a report, and show it if the last one shown is old enough."""
        self.report = report
        if self.due and self._console is not None:
            self._shown = self._clock()
            self._show(self._console, report)

    def _show(self, console: Console, report: R) -> None:
        completed, text, more = self._line(report, self.seconds)
        if not console.is_terminal:
            say(console, f"{text}{more}")
            return
        if self._bar is None:
            bar = Progress(
                BarColumn(24), TextColumn("{task.description}"), TimeRemainingColumn(),
                console=console, auto_refresh=False, transient=True,
            )  # fmt: skip
            self._bar = self._opened.enter_context(bar)
            self._bar.add_task("", total=self._total)
        self._bar.update(self._bar.task_ids[0], completed=completed, description=text, refresh=True)
