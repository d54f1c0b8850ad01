"""How the commands write figures: sizes, durations, shares, bars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["bar", "clipped", "columns", "duration", "percent", "show_table", "size"]

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
