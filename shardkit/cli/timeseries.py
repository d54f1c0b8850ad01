"""``shardkit timeseries``: plan and do the maintenance of a time series, by a configuration file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from shardkit.analysis.prices import Prices
from shardkit.cli import options
from shardkit.cli.command import FAILED, Call, Command, Outcome
from shardkit.cli.options import COUNT, OUTPUT, connection, option, parsed_toml, seconds_of, several
from shardkit.errors import ConfigurationError, MaintenanceError
from shardkit.partitions.scenarios.entries import Entries
from shardkit.strategies import Strategy
from shardkit.timeseries.periods import Calendar, TimeFormat
from shardkit.timeseries.settings import TableClass, Throughput

if TYPE_CHECKING:
    from shardkit.timeseries import TimeSeries, Tuning

_NAMED = ("day", "week", "month")
_LENGTHS = "day, week, month, or a duration (6h)"
_OF_ITEMS = ("strategy", "indexes", "late", "missing")
_MOST = 10**12
_TUNING = "Tuning"
_UNITS = ("read_units", "write_units", "max_read_units", "max_write_units", "warm_read_units", "warm_write_units")
_PRICES = tuple(Prices.__dataclass_fields__)
_tuned = several(
    option("--trace", "traces", group=_TUNING, multiple=True, help="Trace files of all processes, or a folder."),
    option("--tune", group=_TUNING, is_flag=True, help="Plan new tables by --trace; without it, show that as advice."),
    option("--deployed", group=_TUNING, is_flag=True, help="Confirm that all processes have plans=."),
    option("--max-shards", group=_TUNING, type=COUNT, default=64, help="The most shards of a new table."),
)
_now = option("--now", group=OUTPUT, help="As if it were another time, for rehearsals: 2014-08-01T00:00:00Z.")


@click.group()
def timeseries() -> None:
    """Maintain the tables of a time series: create, dial down, archive and delete them.

    CONFIG is a TOML file (docs/timeseries.md).
    """


@timeseries.command("plan", cls=Command, refused="not planned")
@click.argument("config")
@_tuned
@connection
@_now
@options.as_json
def plan(call: Call, config: str, now: str | None, **tuning: Any) -> Outcome:
    """Show what maintain would do, and what it saves. Nothing is changed."""
    return Outcome.of_text(_opened(call, config).plan(_moment(now), tuning=_tuning(**tuning)))


@timeseries.command("maintain", cls=Command)
@click.argument("config")
@_tuned
@connection
@_now
@options.as_json
def maintain(call: Call, config: str, now: str | None, **tuning: Any) -> Outcome:
    """Show the plan (with --json: on stderr), and do it. Run it regularly, for example every hour."""
    try:
        report = _opened(call, config).maintain(
            _moment(now), on_plan=lambda planned: click.echo(str(planned), err=call.as_json), tuning=_tuning(**tuning)
        )
    except MaintenanceError as error:
        return Outcome.of_text(error.report, FAILED)
    return Outcome.of_text(report)


def _tuning(traces: tuple[str, ...], *, tune: bool, deployed: bool, max_shards: int) -> Tuning | None:
    from shardkit.analysis.trace_files import highest_seconds
    from shardkit.timeseries import Tuning

    if tune and not (deployed and traces):
        raise ConfigurationError(
            "--tune: needs --trace FILES and --deployed, because a process without plans= keeps to its strategy, so it "
            "would write and read items of a tuned table at other places; deploy plans= to all processes first"
        )
    return Tuning(heat=highest_seconds(traces), deployed=tune, max_shards=max_shards) if traces else None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"--now: {text!r} is not a time; give, for example, 2014-08-01T00:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _opened(call: Call, config: str) -> TimeSeries:
    from shardkit.timeseries import TimeSeries

    settings = _read(config)
    return TimeSeries(call.dynamodb(), **settings)


def _read(config: str) -> dict[str, Any]:
    """Return the arguments of the time series in a configuration file."""
    problems: list[str] = []
    given = Entries(parsed_toml("config", config), "", problems)
    schema = given.table("schema", needed=True)
    settings: dict[str, Any] = {
        "name": given.text("name", "-", needed=True),
        "at": given.text("at", "-", needed=True),
        "period": _length(given),
        "time_format": given.choice("time_format", "iso", get_args(TimeFormat)),
        "schema": {} if schema is None else schema.all(),
        "hot": _throughput(given.table("hot")),
        "cold": _throughput(given.table("cold")) if "cold" in given else None,
        "keep": given.count("keep", None, "periods that have ended", least=0, most=1_000_000),
        "delete": given.flag("delete", default=False),
        "archive": given.text("archive", None),
        "ahead": _duration(given, "ahead", problems),
        "cool_after": _duration(given, "cool_after", problems) or timedelta(),
        "prices": prices_of(given),
        "plans": given.text("plans", None),
    }
    form = given.table("strategy", needed=True) if "plans" in given else None
    for name in _OF_ITEMS:
        if (name != "strategy" or form is None) and given.take(name, "left out") is not None:
            given.note(name, "must be left out, because it is about items, not tables; give it to TimeSeries only")
    given.end()
    if problems:
        lines = [f"  {problem}" for problem in problems]
        raise ConfigurationError("\n".join([f"{Path(config).name} is not a time series:", *lines]))
    return settings if form is None else {**settings, "strategy": Strategy.from_dict(form.all())}


def _length(given: Entries) -> Any:
    text = given.text("period", "day", _LENGTHS, needed=True)
    if text in _NAMED:
        return text
    try:
        return Calendar(timedelta(seconds=seconds_of("period", text))).length
    except ConfigurationError:
        given.note("period", f"must be {_LENGTHS}, from a minute to 366 days")
        return "day"


def _duration(given: Entries, name: str, problems: list[str]) -> timedelta | None:
    text = given.text(name, None, "a duration (90m, 6h, 1d)")
    try:
        return None if text is None else timedelta(seconds=seconds_of(name, text))
    except ConfigurationError as error:
        problems.append(str(error))
        return timedelta(days=1)


def _throughput(part: Entries | None) -> Throughput:
    if part is None:
        return Throughput()
    units: dict[str, Any] = {each: part.count(each, None, "units a second", most=_MOST) for each in _UNITS}
    table_class = cast("TableClass", part.choice("table_class", "STANDARD", get_args(TableClass)))
    indexes = part.table("indexes")
    tables = {} if indexes is None else {name: indexes.table(name) for name in indexes.all()}
    part.end()
    return Throughput(
        **units,
        table_class=table_class,
        indexes={name: _throughput(table) for name, table in tables.items() if table is not None},
    )


def prices_of(given: Entries) -> Prices | None:
    part = given.table("prices")
    if part is None:
        return None
    prices = {name: part.number(name, None, "a price") for name in _PRICES}
    part.end()
    return Prices(**{name: price for name, price in prices.items() if price is not None})
