"""What ``shardkit simulate`` shows: a row a way, and the heat of each one's partitions in characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.measure import Measurement
from rich.text import Text

from shardkit.cli.figures import clipped, columns, duration, percent, show_table
from shardkit.dynamodb.service_errors import Kind
from shardkit.partitions.partition import LIMITS
from shardkit.partitions.scenarios.outcome import HeatMap, Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["pictures", "reasons", "scales", "show"]

_ROWS, _COLUMNS = 22, 60
_LONGEST_NAME, _WIDE = 40, 1000
_KINDS: tuple[Kind, ...] = ("write", "read")
_SHADES, _PLAIN_SHADES = "·▁▂▃▄▅▆▇█", ".:-=+*%#@"


def pictures(outcome: Outcome) -> list[tuple[str | None, Kind]]:
    """Give the heat maps that are worth a look: of the table (None) and indexes, for the units that they took."""
    return [
        (index, kind)
        for index, heat in outcome.heat.items()
        for kind in _KINDS
        if any(any((*one.taken[kind], *one.throttled[kind])) for one in heat.partitions)
    ]


def scales(outcomes: Sequence[Outcome], columns: int) -> dict[tuple[str | None, Kind], float]:
    """Give the units a second that a picture is scaled to, so that ways can be compared: the most that any way has.

    At the most what a partition serves: a partition begins with a second's units, and may serve more in its first.
    """
    most: dict[tuple[str | None, Kind], float] = {}
    for outcome in outcomes:
        for index, kind in pictures(outcome):
            hottest = HeatMap.of(outcome.heat[index], kind, columns).hottest
            most[index, kind] = min(LIMITS[kind], max(hottest, most.get((index, kind), 0.0)))
    return most


def reasons(outcome: Outcome) -> str:
    """Write how many requests were throttled, and why."""
    return ", ".join(f"{count:,} {reason}" for reason, count in outcome.throttled.items()) or "none"


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the comparison, and then the heat of each way."""
    rows = [_row(outcome) for outcome in outcomes]
    way, *others = rows[0]
    shown: list[str] = []
    for name in others:  # a narrow terminal gets its columns in several tables
        if shown and _width(console, _grid(console, rows, [way, *shown, name])) > console.width:
            show_table(console, _grid(console, rows, [way, *shown]))
            shown.clear()
        shown.append(name)
    show_table(console, _grid(console, rows, [way, *shown]))
    most = scales(outcomes, _COLUMNS)
    for outcome in outcomes:
        _show_one(console, outcome, most)


def _row(outcome: Outcome) -> dict[str, str]:
    partition, rate = outcome.busiest
    return {
        "way": clipped(outcome.way.name, _LONGEST_NAME),
        "time": duration(outcome.seconds),
        "units/s": f"{outcome.units_a_second:,.0f}",
        "share": percent(outcome.share),
        "ceiling": "-" if outcome.ceiling is None else percent(outcome.ceiling),
        "requests": f"{outcome.requests:,}",
        "throttled": f"{sum(outcome.throttled.values()):,}",
        "hottest partition": f"{partition} of {len(outcome.heat[None].partitions)}, {rate:,.0f}/s",
        "hottest key": f"{clipped(outcome.hottest_key, 24)}, {percent(outcome.hottest_key_share)}",
    }


def _width(console: Console, grid: Table) -> int:
    return Measurement.get(console, console.options.update(width=_WIDE), grid).maximum


def _grid(console: Console, rows: Sequence[Mapping[str, str]], names: Sequence[str]) -> Table:
    grid = columns(console, *names)
    for row in rows:
        grid.add_row(*(Text(row[name]) for name in names))
    return grid


def _show_one(console: Console, outcome: Outcome, most: Mapping[tuple[str | None, Kind], float]) -> None:
    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

    console.print()
    line(clipped(outcome.way.name, _WIDE), "bold")
    if outcome.way.load is not None:
        whole = "" if outcome.written == outcome.items else f" of {outcome.items:,}"
        line(f"  {outcome.written:,}{whole} items written, {outcome.write_units:,.0f} write units")
    if outcome.way.reads is not None:
        failed = f", {outcome.failed_reads:,} failed" if outcome.failed_reads else ""
        line(f"  {outcome.reads:,} reads{failed}, {outcome.read_units:,.0f} read units")
    line(f"  throttled requests: {reasons(outcome)}")
    if duration(outcome.counted_seconds) != duration(outcome.seconds):
        line(
            f"  units/s and shares are over {duration(outcome.counted_seconds)}: partitions begin with a second's units"
        )
    if outcome.stopped is not None:
        line(f"  not all was written: {outcome.stopped}", "bold red")
    for index, kind in pictures(outcome):
        for text in _heat(console, outcome, index, kind, most[index, kind]):
            console.print(text, soft_wrap=True)


def _heat(console: Console, outcome: Outcome, index: str | None, kind: Kind, most: float) -> list[Text]:
    """Draw partitions × time; red on a terminal where something was throttled."""
    shades = _SHADES if console.encoding.lower().startswith("utf") else _PLAIN_SHADES
    taken = HeatMap.of(outcome.heat[index], kind, _COLUMNS)
    refused = HeatMap.of(outcome.heat[index], kind, _COLUMNS, throttled=True)
    count = len(taken.rows)
    each = -(-count // _ROWS)
    what = "partitions" if index is None else f"partitions of index {clipped(index)}"
    steps = len(shades) - 1
    drawn = [
        Text(
            f"  {what}, {kind} units a second: {shades[0]} none, {shades[-1]} {most:,.4g}; "
            f"a column is {duration(taken.seconds)}"
        )
    ]
    for row, (served, throttled) in enumerate(zip(taken.in_rows(_ROWS).rows, refused.in_rows(_ROWS).rows, strict=True)):
        first, last = row * each + 1, min(count, row * each + each)
        text = Text(f"  {first if first == last else f'{first}-{last}':>7} ")
        for rate, over in zip(served, throttled, strict=True):
            shade = min(steps, max(1, round(steps * rate / most))) if rate else 0
            text.append(shades[shade], "red" if over else "")
        drawn.append(text)
    return drawn
