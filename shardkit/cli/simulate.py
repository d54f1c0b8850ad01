"""``shardkit simulate``: a table's partitions under a load, by a scenario file, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.measure import Measurement
from rich.text import Text

from shardkit.cli import options
from shardkit.cli.command import FAILED, Call, Command, Outcome
from shardkit.cli.options import OUTPUT, BadRecords, check_attributes, option, parsed_toml, read_all
from shardkit.cli.pictures import drawing, picture
from shardkit.cli.screen import (
    HEAT_COLUMNS,
    CommandProgress,
    Line,
    clipped,
    columns,
    duration,
    percent,
    say,
    show_heat,
    show_table,
)
from shardkit.cli.simulate_series import draw_series, show_series
from shardkit.dynamodb.service_errors import Kind
from shardkit.partitions.partition import LIMITS
from shardkit.partitions.scenarios.items import Kept, generated
from shardkit.partitions.scenarios.reading import read_scenario
from shardkit.partitions.scenarios.running import run
from shardkit.partitions.scenarios.series import read_series
from shardkit.partitions.scenarios.way_result import HeatMap, WayResult
from shardkit.partitions.simulator import draws

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from shardkit.bulk.sources.sections import SectionedSource


@click.command(cls=Command)
@click.argument("scenario")
@option("--plot", group=OUTPUT, help="Draw the heat of each way's partitions: heat.svg, heat.png.")
@options.as_json
@options.progress
def simulate(call: Call, scenario: str, plot: str | None) -> Outcome:
    """Simulate a table's partitions under a load, in virtual time. Nothing is sent.

    SCENARIO is a TOML file (docs/simulate.md).

    Exit codes: 0 everything was written and read, 1 not everything, 2 wrong use, 3 stopped before its end.
    """
    parsed = parsed_toml("scenario", scenario)
    if "series" in parsed:  # figures of the rules, without a simulated load
        plan = read_series(parsed, scenario)
        draw_plan = partial(drawing(plot, draw_series), plan)
        told = {"scenario": scenario, **plan.to_dict()}
        return Outcome(lambda: told, lambda console: show_series(console, plan), draw=draw_plan)
    asked = read_scenario(parsed, scenario)
    draw_plot = drawing(plot, draw)
    given = asked.items
    source = None if given.source is None else _opened(scenario, given.source, given.source_options)
    if source is not None:
        check_attributes("[table]", asked.keys.names, source)
        others = sorted(asked.attributes.difference(asked.keys.names))
        check_attributes("[sharding], [table.indexes]", others, source, rare=True)
    kept = Kept(asked.attributes, needed=asked.keys.names, number=given.number)
    bad = BadRecords() if source is None else read_all(source, kept.add, call)
    bad.show(call.stderr)

    def line(done: tuple[str, float], _: float) -> Line:
        return Line(done[1], clipped(done[0]), f": {percent(done[1])}")

    with call.refusing("not simulated"):
        items = generated(given, asked.keys, draws(f"items {asked.seed}")) if source is None else kept.items()
        with CommandProgress(call.shown, line, 1.0) as shown:
            outcomes = [run(asked, way, items, progress=partial(_update, shown, way.name)) for way in asked.ways]

    def told_ways() -> dict[str, Any]:
        ways = [outcome.to_dict() for outcome in outcomes]
        return {"scenario": scenario, "items": len(items), "ways": ways, **bad.to_dict()}

    complete = all(outcome.complete for outcome in outcomes) and not bad.count
    return Outcome(
        told_ways, lambda console: show(console, outcomes), 0 if complete else FAILED, draw=partial(draw_plot, outcomes)
    )


def _opened(scenario: str, path: str, options: Mapping[str, Any]) -> SectionedSource:
    """Open the data file; a relative path starts at the scenario's folder."""
    from shardkit.bulk.sources.opening import open_source

    where = path if "://" in path else str(Path(scenario).parent / path)
    return open_source(where, **options)


def _update(shown: CommandProgress[tuple[str, float]], way: str, share: float) -> None:
    shown.update((way, share))


_KINDS: tuple[Kind, ...] = ("write", "read")


def pictures(outcome: WayResult) -> list[tuple[str | None, Kind]]:
    """Return which heat maps to show: of the table (None) and each index, for the kinds of units that they took."""
    return [
        (index, kind)
        for index, heat in outcome.heat.items()
        for kind in _KINDS
        if any(any((*one.taken[kind], *one.throttled[kind])) for one in heat.partitions)
    ]


def scales(outcomes: Sequence[WayResult], columns: int) -> dict[tuple[str | None, Kind], float]:
    """Return the units a second of the darkest shade, the same for all ways: the most that any partition took.

    It is at most what a partition serves; in its first second, which starts with saved units, that may be more.
    """
    most: dict[tuple[str | None, Kind], float] = {}
    for outcome in outcomes:
        for index, kind in pictures(outcome):
            hottest = HeatMap.of(outcome.heat[index], kind, columns).hottest
            most[index, kind] = min(LIMITS[kind], max(hottest, most.get((index, kind), 0.0)))
    return most


_LONGEST_NAME, _WIDE = 40, 1000


def show(console: Console, outcomes: Sequence[WayResult]) -> None:
    rows = [_row(outcome) for outcome in outcomes]
    way, *others = rows[0]
    shown: list[str] = []
    wide = console.options.update(width=_WIDE)
    for name in others:  # a narrow terminal gets its columns in several tables
        wider = _grid(console, rows, [way, *shown, name])
        if shown and Measurement.get(console, wide, wider).maximum > console.width:
            show_table(console, _grid(console, rows, [way, *shown]))
            shown.clear()
        shown.append(name)
    show_table(console, _grid(console, rows, [way, *shown]))
    most = scales(outcomes, HEAT_COLUMNS)
    for outcome in outcomes:
        _show_one(console, outcome, most)


def _row(outcome: WayResult) -> dict[str, str]:
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


def _grid(console: Console, rows: Sequence[Mapping[str, str]], names: Sequence[str]) -> Table:
    grid = columns(console, *names)
    for row in rows:
        grid.add_row(*(Text(row[name]) for name in names))
    return grid


def _show_one(console: Console, outcome: WayResult, most: Mapping[tuple[str | None, Kind], float]) -> None:
    line = partial(say, console)
    console.print()
    line(clipped(outcome.way.name, _WIDE), "bold")
    if outcome.way.load is not None:
        whole = "" if outcome.written == outcome.items else f" of {outcome.items:,}"
        line(f"  {outcome.written:,}{whole} items written, {outcome.served('write'):,.0f} write units")
    if outcome.way.reads is not None:
        failed = f", {outcome.failed_reads:,} failed" if outcome.failed_reads else ""
        line(f"  {outcome.reads:,} reads{failed}, {outcome.served('read'):,.0f} read units")
        if outcome.way.reads.cache is not None:
            hits = f"  {outcome.cache_hits:,} of them from the cache ({percent(outcome.cache_hits / outcome.reads)})"
            line(f"{hits}, {outcome.saved_read_units:,.0f} read units saved")
    reasons = [f"{count:,} {reason}" for reason, count in outcome.throttled.items()]
    line(f"  throttled requests: {', '.join(reasons) or 'none'}")
    if duration(outcome.counted_seconds) != duration(outcome.seconds):
        line(
            f"  units/s and shares are over {duration(outcome.counted_seconds)}: partitions begin with a second's units"
        )
    if outcome.stopped is not None:
        line(f"  stopped before all was written: {outcome.stopped}", "bold red")
    for index, kind in pictures(outcome):
        what = "partitions" if index is None else f"partitions of index {clipped(index)}"
        show_heat(console, outcome.heat[index], kind, most[index, kind], what)


_PANEL, _ROW = 0.75, 0.12  # inches
_MOST_ROWS, _PLOT_COLUMNS = 60, 400
_MINUTES = 300.0  # a longer axis is in minutes; in seconds


def draw(outcomes: Sequence[WayResult], path: str, *, dark: bool = False) -> None:
    """Draw a panel for each way and kind of units, all on the same time axis."""
    panels = [(outcome, *one) for outcome in outcomes for one in pictures(outcome)]
    heights = [_PANEL + _ROW * min(_MOST_ROWS, max(4, len(one.heat[index].partitions))) for one, index, _ in panels]
    maps = [HeatMap.of(outcome.heat[index], kind, _PLOT_COLUMNS) for outcome, index, kind in panels]
    longest = max(one.seconds * len(one.rows[0]) for one in maps)
    most = scales(outcomes, _PLOT_COLUMNS)
    with picture(path, sum(heights), dark=dark) as figure:
        drawn = figure.subplots(len(panels), squeeze=False, height_ratios=heights, sharex=True)[:, 0]
        unit, seconds = ("minutes", 60.0) if longest >= _MINUTES else ("seconds", 1.0)
        for axes, taken, (outcome, index, kind) in zip(drawn, maps, panels, strict=True):
            image = axes.imshow(
                taken.rows, aspect="auto", interpolation="nearest", vmin=0.0, vmax=most[index, kind], clip_on=False,
                extent=(0.0, taken.seconds * len(taken.rows[0]) / seconds, len(taken.rows) + 0.5, 0.5),
            )  # fmt: skip
            axes.set(xlim=(0.0, longest / seconds), title=_title(outcome, index, kind))
            axes.set_ylabel("partition" if index is None else f"partition of {clipped(index, 20)}")
            axes.yaxis.get_major_locator().set_params(integer=True)
            bar = figure.colorbar(image, ax=axes, pad=0.01)
            bar.set_label(f"{kind} units\na second")
            bar.ax.yaxis.set_major_formatter("{x:,.0f}")
        drawn[-1].set_xlabel(f"time ({unit})")


def _title(outcome: WayResult, index: str | None, kind: Kind) -> str:
    units = sum(sum(one.taken[kind]) for one in outcome.heat[index].partitions)
    title = f"{clipped(outcome.way.name)}: {units:,.0f} {kind} units in {duration(outcome.seconds)}"
    if index is not None or kind != ("read" if outcome.way.load is None else "write"):
        return title  # the share is of the table's other units
    ceiling = "" if outcome.ceiling is None else f", ceiling {percent(outcome.ceiling)}"
    return f"{title}, {percent(outcome.share)} of the throughput{ceiling}"
