"""What ``shardkit load`` shows: the plan before, the rate meanwhile, the report after."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from shardkit import ShardedTable
from shardkit.bulk.report import BulkReport, ShardTally
from shardkit.bulk.sources.sections import SectionedSource
from shardkit.cli.figures import bar, duration, size
from shardkit.cli.load_estimate import Estimate
from shardkit.cli.progress import LINE_SECONDS, LIVE_SECONDS
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS

__all__ = ["Progress", "show_estimate", "show_plan", "show_report", "to_json"]

MOST_SHARDS = 20
MOST_FAILURES = 10
_SMOOTH_SECONDS = 5.0


class Progress:
    """Shows how far a load is: a live display on a terminal, else a line every ten seconds; nothing without a console.

    ``report`` is the last that it was given.
    """

    def __init__(
        self, console: Console | None, source: SectionedSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.report = BulkReport()
        self._console = console
        self._source = source
        self._clock = clock
        self._began = self._shown = clock()
        self._before: list[tuple[float, int, float]] = []
        self._opened = ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Progress:  # noqa: PYI034 - typing.Self needs Python 3.11
        if self._console is not None and self._console.is_terminal:
            live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live = self._opened.enter_context(live)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def update(self, report: BulkReport) -> None:
        """Take a report, and show it if the last is old enough."""
        self.report = report
        now = self._clock()
        if self._console is None or now - self._shown < (LINE_SECONDS if self._live is None else LIVE_SECONDS):
            return
        self._shown = now
        self._before = [one for one in self._before if now - one[0] <= _SMOOTH_SECONDS] or [
            (now - report.seconds, 0, 0.0)
        ]
        since, items, units = self._before[0]
        self._before.append((now, report.written, report.write_units))
        seconds = now - since
        items, units = report.written - items, report.write_units - units
        written = [f"{report.written:,} written"]
        if seconds:
            written += [f"{items / seconds:,.0f} items/s", f"{units / seconds:,.0f} units/s"]
        if self._live is None:
            parts = [*written, *_troubles(report), *self._left()]
            self._console.print(", ".join(parts), markup=False, soft_wrap=True)
        else:
            self._live.update(self._display(report, ", ".join(written), now), refresh=True)

    def _share(self) -> float | None:
        """How much of the source has its result; what waits was read, and counts for nothing yet."""
        report, source = self.report, self._source
        settled = _settled(report) + report.resumed
        if source.total:
            return settled / source.total
        taken = report.items + report.resumed
        return source.bytes_read / source.bytes_total * settled / taken if source.bytes_total and taken else None

    def _left(self) -> list[str]:
        share, report = self._share(), self.report
        if not share:
            return []
        # What a resumed load passes over was not done at its rate, nor in the time since its first request.
        here = share * _settled(report) / (_settled(report) + report.resumed)
        left = [f"about {duration(report.seconds * (1 - share) / here)} left"] if here and report.seconds else []
        return [f"{share:.0%}", *left]

    def _display(self, report: BulkReport, written: str, now: float) -> RenderableType:
        share = self._share()
        top = Grid.grid(padding=(0, 1))
        left = ", ".join(self._left()) or f"{duration(now - self._began)} so far"
        top.add_row(ProgressBar(total=1.0, completed=share or 0.0, width=24, pulse=share is None), left)
        lines: list[RenderableType] = [top, Text(written)]
        if troubles := _troubles(report):
            lines.append(Text(", ".join(troubles), style="yellow"))
        lines.append(_heat(report.per_shard, self._console.encoding if self._console else "utf-8"))
        return Group(*lines)


def _settled(report: BulkReport) -> int:
    return report.written + report.failed + report.duplicates


def _troubles(report: BulkReport) -> list[str]:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in report.throttles_by_reason.items())
    throttles = [f"{report.throttles:,} throttles" + (f" ({reasons})" if reasons else "")] if report.throttles else []
    failed = report.failed - report.stopped
    return [*throttles, *([f"{failed:,} failed"] if failed else [])]


def _heat(shards: Mapping[int | None, ShardTally], encoding: str) -> Grid:
    """A bar for each shard, the hottest ones if there are many."""
    grid = Grid(box=None, padding=(0, 2, 0, 0))
    for heading in ("shard", "items", "write units", ""):
        grid.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    most = max((tally.write_units for tally in shards.values()), default=0.0) or 1.0
    hottest = sorted(shards, key=lambda shard: -shards[shard].write_units)[:MOST_SHARDS]
    for shard in sorted(hottest, key=lambda one: -1 if one is None else one):
        tally = shards[shard]
        drawn = bar(tally.write_units / most, encoding)
        grid.add_row("-" if shard is None else str(shard), f"{tally.items:,}", f"{tally.write_units:,.0f}", drawn)
    if len(shards) > MOST_SHARDS:
        grid.add_row("...", "", "", f"and {len(shards) - MOST_SHARDS} cooler shards")
    return grid


def show_plan(console: Console, where: str, source: SectionedSource, table: ShardedTable) -> None:
    """Say what will be read how, and written where."""
    several = f", {source.cursors} cursors" if source.cursors > 1 else ""
    of = f", {size(source.bytes_total)}" if source.bytes_total else ""
    console.print(
        f"{where} ({source.format}{of}{several}) into {table.table.name} with {table.strategy!r}",
        markup=False,
        soft_wrap=True,
    )
    if source.types:
        console.print(
            "types: " + ", ".join(f"{name}:{letter}" for name, letter in source.types.items()),
            markup=False,
            soft_wrap=True,
        )


def show_report(console: Console, report: BulkReport, dead_letters: str | None, *, complete: bool = True) -> None:
    """Say what became of it; the dead letters are not ``complete`` where their disk was full."""
    console.print(str(report), markup=False, soft_wrap=True)
    if report.per_shard:
        console.print(_heat(report.per_shard, console.encoding))
    if report.throttles_by_reason:
        grid = Grid(box=box.SIMPLE, title="Throttles by reason", title_justify="left")
        grid.add_column("reason")
        grid.add_column("requests", justify="right")
        for reason, count in report.throttles_by_reason.items():
            grid.add_row(Text(str(reason)), f"{count:,}")
        console.print(grid)
    for key, count in sorted(report.hot_keys.items(), key=lambda entry: -entry[1])[:MOST_FAILURES]:
        console.print(f"hot key: {key}, throttled {count:,} times", markup=False, soft_wrap=True)
    for advice in report.advice:
        console.print(f"advice: {advice}", markup=False, soft_wrap=True)
    # What failed because the load stopped came last, and for one reason, which is told elsewhere.
    failed = report.failed - report.stopped
    shown = report.failures[: min(failed, MOST_FAILURES)]
    _show_failures(console, [(one.place, str(one.error)) for one in shown], failed)
    if failed:
        which = "all of them" if complete else "those that were kept"
        kept = f"{which} are in {dead_letters}" if dead_letters else "with --dead-letters they are kept in a file"
        console.print(kept, markup=False, soft_wrap=True)


def _show_failures(console: Console, failures: list[tuple[Any, str]], count: int) -> None:
    for place, reason in failures:
        console.print(f"failed: {place}: {reason}", markup=False, soft_wrap=True)
    if count > len(failures):
        console.print(f"and {count - len(failures):,} more failures", markup=False, soft_wrap=True)


def show_estimate(console: Console, guess: Estimate) -> None:
    """Say what would be written where, and what that takes."""
    good = guess.items - guess.failed
    console.print(f"{guess.items:,} items: {good:,} would be written, {guess.failed:,} would fail")
    console.print(f"{size(guess.bytes)}, {guess.units.total:,.0f} write units: {guess.units.table:,.0f} of the table")
    for kind, indexes in (("local", guess.units.local_indexes), ("global", guess.units.global_indexes)):
        for name, units in indexes.items():
            console.print(f"{units:,.0f} of the {kind} index {name}", markup=False, soft_wrap=True)
    if guess.seconds is not None:
        index = guess.slowest[0]
        slowest = f", for which index {index} takes longest" if index else ""
        rate = f"at {guess.rate:,.0f} write units a second{slowest}: {duration(guess.seconds)}"
        console.print(rate, markup=False, soft_wrap=True)
    if guess.hottest is not None:
        key, units = guess.hottest
        console.print(
            f"hottest key: {key}, {units:,} write units: {duration(units / PARTITION_WRITE_UNITS)} at the least, for a "
            f"key takes {PARTITION_WRITE_UNITS:,} a second",
            markup=False,
            soft_wrap=True,
        )
    if guess.per_shard:
        console.print(_heat(guess.per_shard, console.encoding))
    for advice in guess.advice:
        console.print(f"advice: {advice}", markup=False, soft_wrap=True)
    _show_failures(console, guess.failures[:MOST_FAILURES], guess.failed)


def to_json(report: BulkReport, code: int) -> dict[str, Any]:
    """Give a report for machines: at most a hundred failures, the dead letters have them all."""
    plain = (
        "items",
        "written",
        "failed",
        "stopped",
        "duplicates",
        "resumed",
        "failed_before",
        "retried",
        "requests",
        "throttles",
        "write_units",
    )
    return {
        "exit_code": code,
        **{name: getattr(report, name) for name in plain},
        "seconds": report.seconds,
        "keys_in_flight": report.keys_in_flight,
        "throttles_by_reason": {str(reason): count for reason, count in report.throttles_by_reason.items()},
        "hot_keys": [{"key": str(key), "throttles": count} for key, count in report.hot_keys.items()],
        "per_shard": [
            {"shard": shard, "items": tally.items, "write_units": tally.write_units}
            for shard, tally in report.per_shard.items()
        ],
        "advice": list(report.advice),
        "failures": [{"place": one.place, "reason": str(one.error)} for one in report.failures[:100]],
    }
