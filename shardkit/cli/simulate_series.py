"""How ``shardkit simulate`` shows a time series: one table, and a table for each period."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from shardkit.cli.pictures import BLUE, ORANGE, picture
from shardkit.cli.screen import columns, say, show_table
from shardkit.partitions.plan_series import PeriodPartitions, SeriesPlan

if TYPE_CHECKING:
    from rich.console import Console

_MOST_ROWS = 40


def show_series(console: Console, plan: SeriesPlan) -> None:
    each = "each: write\nunits/s"
    grid = columns(
        console, "\nperiod", "one table:\npartitions", each, "own table:\npartitions", each, "write units\nof deletes"
    )
    for row in _rows(plan):
        grid.add_row(*map(Text, row))
    show_table(console, grid)
    console.print()
    for line in str(plan).splitlines():
        say(console, line)


def _rows(plan: SeriesPlan) -> Iterator[tuple[str, ...]]:
    step = max(1, len(plan.periods) // _MOST_ROWS)
    for each in plan.periods[step - 1 :: step]:
        yield (
            f"{each.period:,}",
            f"{each.partitions:,}",
            f"{each.write_units:,.0f}",
            f"{each.own_partitions:,}",
            f"{each.own_write_units:,.0f}",
            f"{each.deletes:,.0f}",
        )


def draw_series(plan: SeriesPlan, path: str, *, dark: bool = False) -> None:
    """Draw the throughput per partition by period."""
    with picture(path, 3.6, dark=dark) as figure:
        draw_throughput(figure, plan)


def draw_throughput(figure: Any, plan: SeriesPlan) -> None:
    kinds = ("write", "read")
    numbers = [each.period for each in plan.periods]
    for axes, kind in zip(figure.subplots(1, 2, sharex=True), kinds, strict=True):

        def units(each: PeriodPartitions, of: str, kind: str = kind) -> float:
            value: float = getattr(each, f"{of}{kind}_units")
            return value

        own, one = ([units(each, of) for each in plan.periods] for of in ("own_", ""))
        end = numbers[-1] + 1
        for what, values, colour in (("a table for each period", own, BLUE), ("one table", one, ORANGE)):
            axes.plot([*numbers, end], [*values, values[-1]], color=colour, drawstyle="steps-post")
            text = f"{what}: {values[-1]:,.0f}"
            axes.annotate(text, (end, values[-1]), (0, 5), textcoords="offset points", ha="right")
        axes.set(
            title=f"{kind} units a second per partition",
            xlabel="period",
            ylim=(0, 1.15 * max(own)),
            xlim=(numbers[0], end),
        )
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle("Partitions share a table's throughput: the more data, the less for each", x=0.01, ha="left")
