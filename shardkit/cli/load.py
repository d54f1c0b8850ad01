"""``shardkit load``: load files into a table, spread, mixed and resumable."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from shardkit.bulk.load import bulk_load
from shardkit.bulk.load_end import InterruptedLoadError
from shardkit.bulk.load_machine import WINDOW
from shardkit.bulk.report import BulkLoadError, BulkReport, ShardTally
from shardkit.bulk.sources.sections import SectionedSource
from shardkit.capacity import SharedBudget
from shardkit.cli import options
from shardkit.cli.command import FAILED, STOPPED, Call, Command, Outcome
from shardkit.cli.load_estimate import Estimate, estimate
from shardkit.cli.options import COUNT, OUTPUT, SOURCE, option, rate_of, show_failures, source_for_table
from shardkit.cli.screen import CommandProgress, Line, bar, duration, say, size
from shardkit.core.remaining import History, seconds_left
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS
from shardkit.errors import ConfigurationError
from shardkit.runtime.transports import default_transport, direct_options
from shardkit.strategies import Unsharded
from shardkit.table import ShardedTable

# How --help groups the options.
PACE, SAFETY = "Pace", "Failures and resuming"


@click.command(cls=Command)
@click.argument("source")
@option("--table", required=True, help="Table to load into.")
@options.spreading
@options.reading
@options.exported
@option("--cursors", group=SOURCE, default="auto", help="At how many positions the source is read in turn.")
@option("--write-units", group=PACE, help="Write units per second, or a share: 500, 80%.")
@option(
    "--shared-budget",
    nargs=2,
    group=PACE,
    metavar="TABLE NAME",
    help="Share --write-units with all loads that name the same budget: a table for it, and its name there.",
)
@option("--workers", type=COUNT, group=PACE, help="Batches in flight at once; default: 10 (per process).")
@option("--processes", type=COUNT, group=PACE, help="Processes that send requests, to use all cores.")
@option(
    "--transport",
    group=PACE,
    type=click.Choice(["client", "direct"]),
    help="Send through boto3's client or past it; default: past it, if shardkit[direct] is installed.",
)
@option("--window", type=COUNT, group=PACE, default=WINDOW, help="Items that wait to be interleaved.")
@option(
    "--max-failures",
    group=SAFETY,
    type=click.IntRange(min=0),
    help="Stop when more items fail; 0: at the first.",
)
@option(
    "--duplicates",
    group=SAFETY,
    type=click.Choice(["last", "first", "error"]),
    default="last",
    help="Which write of one key to keep.",
)
@option("--journal", group=SAFETY, help="A file that makes the load resumable.")
@option("--dead-letters", group=SAFETY, help="A file for the items that fail.")
@options.connection
@option("--dry-run", group=OUTPUT, is_flag=True, help="Show what would be written; write nothing.")
@options.as_json
@options.progress
def load(
    call: Call,
    source: str,
    table: str,
    cursors: str,
    write_units: str | None,
    shared_budget: tuple[str, str] | None,
    workers: int | None,
    processes: int | None,
    transport: Literal["client", "direct"] | None,
    dry_run: bool,
    **more: Any,
) -> Outcome:
    """Load files into a table: every partition busy, no item lost or written twice.

    SOURCE is a file, pipe, folder, pattern, s3://bucket/prefix, or - (standard input).

    Exit codes: 0 all written, 1 some items failed, 2 wrong use, 3 stopped before its end (--journal: run it again).
    """
    how = {name: more.pop(name) for name in ("window", "max_failures", "duplicates", "journal", "dead_letters")}
    connections = max(10, workers or 0)
    try:
        resource = call.dynamodb(connections)
        if transport == "direct":
            direct_options(transport)  # refuses it if its extra is not installed
        way = "client" if transport == "client" else default_transport(call.aws.profile)
        make = partial(ShardedTable, resource.Table(table), transport=way)
        opened, target = source_for_table(call, source, make, cursors=_cursors(cursors), follows=True, **more)
        units = _rate(write_units, shared_budget, resource, call)
        show_plan(call.stderr, source, opened, target)
        if dry_run:
            guess = estimate(opened, target, units)
            return Outcome(guess.to_dict, partial(show_estimate, guess=guess), FAILED if guess.failed else 0)
        how |= {"workers": workers, "processes": processes, "write_units": units}
        connect = partial(call.aws.dynamodb, connections) if processes else None
        code, report, problem = _load(target, opened, call.shown, connect=connect, **how)
    except KeyboardInterrupt:
        raise call.ended("stopped before the first write") from None
    if problem is not None:
        call.say(str(problem))
    journal, dead_letters, note = how["journal"], how["dead_letters"], ""
    if code == STOPPED:
        again = f"the same command resumes from {journal}" if journal else "with --journal it could be resumed"
        note = f"stopped before its end: {again}"
    return Outcome(
        lambda: to_json(report, code),
        lambda console: show_report(console, report, dead_letters, complete=problem is None),
        code,
        note,
    )


def _load(
    table: ShardedTable, source: SectionedSource, stderr: Console | None, **options: Any
) -> tuple[int, BulkReport, Exception | None]:
    """Load until the end or Ctrl-C; return the exit code, the report, and the error that stopped it."""
    with LoadProgress(stderr, source) as shown, _interrupted(stderr):
        try:
            report = bulk_load(table, source, on_error="collect", progress=shown.update, **options)
        except BulkLoadError as error:
            if error.report is None:
                raise
            return STOPPED, error.report, error
        except InterruptedLoadError as error:
            return STOPPED, error.report or shown.report or BulkReport(), None
        except KeyboardInterrupt:  # the second one
            return STOPPED, shown.report or BulkReport(), None
        except OSError as error:  # standard error cannot be written
            return STOPPED, shown.report or BulkReport(), error
    return (FAILED if report.failed or report.failed_before else 0), report, None


@contextmanager
def _interrupted(stderr: Console | None) -> Iterator[None]:
    """Print a message at the first Ctrl-C; the second one interrupts as usual."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        if stderr is not None:
            # The signal may arrive while another line is being written.
            with suppress(RuntimeError):
                stderr.print("stopping: finishing what is in flight; press Ctrl-C again to stop now")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _rate(
    write_units: str | None, budget: tuple[str, str] | None, resource: Any, call: Call
) -> float | str | SharedBudget | None:
    rate = rate_of(write_units)
    if budget is None:
        return rate
    if rate is None or isinstance(rate, str):
        raise ConfigurationError(
            "--shared-budget: needs the rate of all loads together, as a number of write units per second; give "
            "--write-units 500"
        )
    table, name = budget
    return call.enter(SharedBudget(resource.Table(table), name, rate))


def _cursors(text: str) -> int | Literal["auto"]:
    # Thousands of digits, which int() refuses, are refused later as text.
    with suppress(ValueError):
        return int(text)
    return cast("Literal['auto']", text)


MOST_SHARDS = 20
MOST_FAILURES = 10
_SMOOTH_SECONDS = 5.0


class LoadProgress(CommandProgress[BulkReport]):
    """Shows a load's progress; ``report`` is the last report."""

    def __init__(
        self, console: Console | None, source: SectionedSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(console, self._line_of, clock=clock)
        self._source = source
        self._before: list[tuple[float, int, float]] = []
        self._history = History()  # of this run, since its first request
        self._live: Live | None = None

    def update(self, report: BulkReport) -> None:
        if report.requests and self._console is not None:
            self._history.add(self._clock(), _settled(report))
        super().update(report)

    def _line_of(self, report: BulkReport, _: float) -> Line:
        return Line(0, ", ".join([*self._written(report), *_troubles(report), *self._left(report)]))

    def _show(self, console: Console, report: BulkReport) -> None:
        if not console.is_terminal:
            super()._show(console, report)
            return
        if self._live is None:
            self._live = self._opened.enter_context(Live(console=console, auto_refresh=False, transient=True))
        share = self._share(report)
        top = Grid.grid(padding=(0, 1))
        left = ", ".join(self._left(report)) or f"{duration(self.seconds)} so far"
        top.add_row(ProgressBar(total=1.0, completed=share or 0.0, width=24, pulse=share is None), left)
        lines: list[RenderableType] = [top, Text(", ".join(self._written(report)))]
        if troubles := _troubles(report):
            lines.append(Text(", ".join(troubles), style="yellow"))
        self._live.update(Group(*lines, _heat(report.per_shard, console.encoding)), refresh=True)

    def _written(self, report: BulkReport) -> list[str]:
        """Return how many items were written, and the rates of the last seconds."""
        now = self._clock()
        self._before = [one for one in self._before if now - one[0] <= _SMOOTH_SECONDS] or [
            (now - report.seconds, 0, 0.0)
        ]
        since, items, units = self._before[0]
        self._before.append((now, report.written, report.write_units))
        seconds = now - since
        written = [f"{report.written:,} written"]
        if seconds:
            rates = (report.written - items) / seconds, (report.write_units - units) / seconds
            written += [f"{rates[0]:,.0f} items/s", f"{rates[1]:,.0f} units/s"]
        return written

    def _share(self, report: BulkReport) -> float | None:
        """Return the share of the source that has results; items that wait do not count."""
        source = self._source
        settled = _settled(report) + report.resumed
        if source.total:
            return settled / source.total
        taken = report.items + report.resumed
        return source.bytes_read / source.bytes_total * settled / taken if source.bytes_total and taken else None

    def _left(self, report: BulkReport) -> list[str]:
        share = self._share(report)
        if not share:
            return []
        settled = _settled(report) + report.resumed
        left = seconds_left(self._history.entries, settled * (1 - share) / share)
        return [f"{share:.0%}", *([] if left is None else [f"about {duration(left)} left"])]


def _settled(report: BulkReport) -> int:
    return report.written + report.failed + report.duplicates


def _troubles(report: BulkReport) -> list[str]:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in report.throttles_by_reason.items())
    throttles = [f"{report.throttles:,} throttles" + (f" ({reasons})" if reasons else "")] if report.throttles else []
    failed = report.failed - report.stopped
    return [*throttles, *([f"{failed:,} failed"] if failed else [])]


def _heat(shards: Mapping[int | None, ShardTally], encoding: str) -> Grid:
    """Return one bar per shard, only the hottest if there are many."""
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
    several = f", {source.cursors} cursors" if source.cursors > 1 else ""
    past = "" if table.runner.transport == "client" else ", past boto3's client"
    say(
        console, f"{where} ({options.described(source, several)}) into {table.table.name} with {table.strategy!r}{past}"
    )
    for name, strategy in (table.runner.programs.indexes or {}).items():
        say(console, f"index {name} with {strategy!r}")
    if isinstance(table.strategy, Unsharded):
        say(
            console,
            "keys are written without a suffix; if the table's keys have one, give --shards and --by, or --strategy",
        )
    if isinstance(getattr(table.strategy, "shards", None), Mapping):
        first = table.strategy.first
        say(console, f"shards are counted over all keys: those with one shard are all in shard {first}")
    options.say_types(console, source)


def show_report(console: Console, report: BulkReport, dead_letters: str | None, *, complete: bool = True) -> None:
    """Print a report; ``complete``: whether the dead letters have all failed items (the disk was not full)."""
    say(console, str(report))
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
        say(console, f"hot key: {key}, throttled {count:,} times")
    for advice in report.advice:
        say(console, f"advice: {advice}")
    # Items that failed because the load stopped are last; their reason is printed elsewhere.
    failed = report.failed - report.stopped
    shown = report.failures[: min(failed, MOST_FAILURES)]
    show_failures(console, [(one.place, str(one.error)) for one in shown], failed)
    if failed:
        which = "all of them" if complete else "those that could be written"
        kept = f"{which} are in {dead_letters}" if dead_letters else "with --dead-letters they are written to a file"
        say(console, kept)
    elif report.failed_before and dead_letters and _has_content(dead_letters):
        say(console, f"those that failed before are in {dead_letters}")


def _has_content(path: str) -> bool:
    file = Path(path)
    return file.is_file() and file.stat().st_size > 0


def show_estimate(console: Console, guess: Estimate) -> None:
    good = guess.items - guess.failed
    console.print(f"{guess.items:,} items: {good:,} would be written, {guess.failed:,} would fail")
    console.print(f"{size(guess.bytes)}, {guess.units.total:,.0f} write units: {guess.units.table:,.0f} of the table")
    for kind, indexes in (("local", guess.units.local_indexes), ("global", guess.units.global_indexes)):
        for name, units in indexes.items():
            say(console, f"{units:,.0f} of the {kind} index {name}")
    if guess.seconds is not None:
        index = guess.slowest[0]
        slowest = f", for which index {index} takes longest" if index else ""
        say(console, f"at {guess.rate.units:,.0f} write units per second{slowest}: {duration(guess.seconds)}")
    if guess.hottest is not None:
        key, units = guess.hottest
        say(
            console,
            f"hottest key: {key}, {units:,} write units: at least {duration(units / PARTITION_WRITE_UNITS)}, because "
            f"one key accepts {PARTITION_WRITE_UNITS:,} per second",
        )
    if guess.per_shard:
        console.print(_heat(guess.per_shard, console.encoding))
    for advice in guess.advice:
        say(console, f"advice: {advice}")
    show_failures(console, guess.failures[:MOST_FAILURES], guess.failed)


def to_json(report: BulkReport, code: int) -> dict[str, Any]:
    """Return a report as JSON, with at most 100 failures; the dead letters have all of them."""
    figures = {field.name: getattr(report, field.name) for field in fields(report)}
    return {
        "exit_code": code,
        **{name: figure for name, figure in figures.items() if isinstance(figure, int | float)},
        "throttles_by_reason": {str(reason): count for reason, count in report.throttles_by_reason.items()},
        "hot_keys": [{"key": str(key), "throttles": count} for key, count in report.hot_keys.items()],
        "per_shard": [{"shard": shard, **asdict(tally)} for shard, tally in report.per_shard.items()],
        "advice": list(report.advice),
        "failures": [{"place": one.place, "reason": str(one.error)} for one in report.failures[:100]],
    }
