"""``shardkit demo``: load real flights into a plain and a sharded table behind simulated partitions, and check them.

The first half does the work; the second half shows it. Every figure is counted: by the loads, by the simulated
partitions, or by a meter.
"""

from __future__ import annotations

import os
import textwrap
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from boto3.dynamodb.conditions import Key
from boto3.session import Session
from click.exceptions import BadParameter
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from shardkit.bulk.load import streaming_bulk
from shardkit.bulk.report import BulkReport
from shardkit.capacity import CapacityMeter
from shardkit.cli import install_hint
from shardkit.cli.command import FAILED, WRONG_USE, Call, Command, Outcome, out
from shardkit.cli.flights import FLIGHTS, fresh_table, read_flights
from shardkit.cli.options import option
from shardkit.cli.screen import bar, columns, duration, percent, say, show_heat, show_table
from shardkit.partitions.partition import LIMITS, Heat
from shardkit.strategies import CalculatedSuffix, Strategy, Unsharded
from shardkit.table import ShardedTable
from shardkit.testing.clock import VirtualClock
from shardkit.testing.front import AWS_HOSTS
from shardkit.testing.simulation import SimulatedPartitions, simulate_partitions

if TYPE_CHECKING:
    from rich.console import Console
    from types_boto3_dynamodb.service_resource import DynamoDBServiceResource

ROWS = 4000  # moto takes most of the demo's CPU: about half a millisecond to write an item
RATE = 3000  # write units a second that both loads may use, of the 4,000 that four partitions serve
COLUMN_SECONDS = 0.2  # of the heat maps
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
DUMMY = "demo"
FAKE_ENVIRONMENT = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), DUMMY)
FAKE_ENVIRONMENT |= dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)

Item = dict[str, Any]


# -- work ------------------------------------------------------------------------------------------------------------


@contextmanager
def mocked_dynamodb() -> Iterator[None]:
    """Mock DynamoDB in this process; it cannot see the user's profile, credentials and endpoints."""
    from moto import mock_aws

    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    os.environ.update(FAKE_ENVIRONMENT)
    try:
        with mock_aws():
            yield
    finally:
        for name in FAKE_ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(before)


def dynamodb(endpoint_url: str | None) -> DynamoDBServiceResource:
    """Connect with the environment's credentials; without any, a local engine gets invented ones."""
    session = Session()
    if endpoint_url is None or urlsplit(endpoint_url).hostname in LOCAL_HOSTS:
        key = None if os.environ.keys() & {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"} else DUMMY
        session = Session(key, key, region_name=session.region_name or "us-east-1")
    return session.resource("dynamodb", endpoint_url=endpoint_url)


def flight(item: Item) -> Item:
    """Return a flight under its month, sorted by departure; with few attributes, because moto is slow with many."""
    some: Item = {name: item[name] for name in ("dest", "tailnum") if name in item}
    return {"Month": item["Date"][:7], "Departure": f"{item['Date']} {item['Flight']}"} | some


class Side:
    """A load into a table behind simulated partitions, in a virtual time of its own.

    Requests take no time in it: only the partitions, and the rate of the load, decide how long it takes.
    """

    def __init__(
        self, title: str, table: ShardedTable, simulated: SimulatedPartitions, flights: Iterable[Item]
    ) -> None:
        self.title = title
        self.table = table
        self.simulated = simulated
        self.report = BulkReport()
        self.ended = False
        self._results = streaming_bulk(table, flights, write_units=RATE, progress=self._take)

    def _take(self, report: BulkReport) -> None:
        self.report = report

    @property
    def now(self) -> float:
        return self.simulated.clock()

    @property
    def heat(self) -> Heat:
        return self.simulated.partitions.heat

    @property
    def busiest(self) -> float:
        """The share of all write units that the busiest partition took."""
        taken = [sum(partition.taken["write"]) for partition in self.heat.partitions]
        return max(taken) / (sum(taken) or 1.0)

    def rates(self) -> list[tuple[float, bool]]:
        """Return the write units that each partition took in the last second, and whether it throttled."""
        last = round(1 / self.heat.seconds)
        end = int((self.now - (self.heat.began or 0.0)) / self.heat.seconds)
        lately = slice(max(0, end - last), max(last, end))
        rows = [(one.taken["write"][lately], one.throttled["write"][lately]) for one in self.heat.by_range]
        return [(sum(taken), any(throttled)) for taken, throttled in rows]

    def advance(self) -> None:
        """Go on until one more item has its result."""
        self.ended = next(self._results, None) is None


@contextmanager
def side(
    name: str, title: str, strategy: Strategy, flights: Sequence[Item], endpoint_url: str | None
) -> Iterator[Side]:
    with ExitStack() as stack:
        resource = dynamodb(endpoint_url)
        stack.callback(resource.meta.client.close)
        table = ShardedTable(stack.enter_context(fresh_table(resource, name, "Month", "Departure")), strategy)
        simulated = stack.enter_context(simulate_partitions(table, clock=VirtualClock()))
        simulated.partitions.heat.seconds = COLUMN_SECONDS
        yield Side(title, table, simulated, flights)


def advance(sides: Sequence[Side]) -> bool:
    """Advance the load whose virtual time is behind; return whether any is left."""
    running = [one for one in sides if not one.ended]
    if running:
        min(running, key=lambda one: one.now).advance()
    return bool(running)


@dataclass(frozen=True)
class Check:
    """A day that was read back, compared with the source."""

    read_units: float
    requests: int
    expected: int
    equal: int
    mismatches: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.equal == self.expected and not self.mismatches


def read_day(table: ShardedTable, day: str, source: Sequence[Item]) -> Check:
    """Read a day in the order of departures, and compare it with the source."""
    meter = CapacityMeter()
    condition = Key("Month").eq(day[:7]) & Key("Departure").begins_with(day)
    with meter.attach(table):
        page = table.query(KeyConditionExpression=condition)
        items = page["Items"]
        while "LastEvaluatedKey" in page:
            page = table.query(KeyConditionExpression=condition, ExclusiveStartKey=page["LastEvaluatedKey"])
            items += page["Items"]
    return compare(source, items, meter.read_units, meter.requests)


def compare(source: Sequence[Item], items: Sequence[Mapping[str, Any]], read_units: float, requests: int) -> Check:
    """Compare row by row: the same items in the same order, and no others."""
    pairs = list(zip_longest(source, items))
    wrong = tuple(f"row {row}: expected {want}, got {got}" for row, (want, got) in enumerate(pairs) if want != got)
    return Check(read_units, requests, len(source), len(pairs) - len(wrong), wrong)


# -- show ------------------------------------------------------------------------------------------------------------

_FRAME_SECONDS = 0.1
_LEAST_WIDTH, _WIDTH = 60, 80


def introduce(console: Console, sides: Sequence[Side], rows: int, endpoint_url: str | None) -> None:
    partitions = sides[0].simulated.partitions
    text = (
        f"{rows:,} flights that left New York in January 2013 are loaded into two new on-demand tables. The partition "
        f"key is the month, so all have the same key. Each table has {len(partitions)} partitions, and each partition "
        f"serves {partitions.serves['write']:,.0f} write units a second. Each load sends at most {RATE:,}.\n\n"
        f"{endpoint_url or 'moto, in this process,'} stores the items. A model of DynamoDB's partitions in front of it "
        "throttles, in virtual time: requests take no time, and a partition begins with one second's units."
    )
    for part in text.split("\n\n"):
        lines = textwrap.wrap(part, min(_WIDTH, console.width), break_long_words=False, break_on_hyphens=False)
        say(console, "\n".join([*lines, ""]))


def show_loads(console: Console, sides: Sequence[Side]) -> None:
    """Run the loads, and show them side by side while they run: on a terminal live, else a line per virtual second."""
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        shown, second = 0.0, 1
        while advance(sides):
            if live is not None:
                if time.monotonic() - shown >= _FRAME_SECONDS:
                    shown = time.monotonic()
                    live.update(picture(console, sides), refresh=True)
            elif min((one.now for one in sides if not one.ended), default=0.0) >= second:
                say(console, f"{second:>3} s: " + "; ".join(f"{one.title}: {_progress(one)}" for one in sides))
                second += 1
        if live is not None:
            live.update(picture(console, sides), refresh=True)


def _progress(one: Side) -> str:
    return f"{one.report.written:,} written, {one.report.throttles:,} throttled"


def picture(console: Console, sides: Sequence[Side]) -> Grid:
    """Return a column for each side: its time, its progress, and the last second of each of its partitions."""
    width = max(_LEAST_WIDTH, min(console.width, 120)) // len(sides) - 2
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for _ in sides:
        grid.add_column(width=width, no_wrap=True)
    grid.add_row(*(Text(one.title, "bold") for one in sides))
    grid.add_row(*(_time(one) for one in sides))
    grid.add_row(*(Text(f"{one.report.written:,} flights written") for one in sides))
    grid.add_row(
        *(Text(f"{one.report.throttles:,} requests throttled", "red" if one.report.throttles else "") for one in sides)
    )
    for number, rates in enumerate(zip(*(one.rates() for one in sides), strict=True), start=1):
        grid.add_row(*(_partition(number, rate, over, width, console.encoding) for rate, over in rates))
    return grid


def _time(one: Side) -> Text:
    return Text(f"done in {duration(one.report.seconds)}", "green") if one.ended else Text(f"{one.now:.1f} s")


def _partition(number: int, rate: float, over: bool, width: int, encoding: str) -> Text:
    longest = width - 12
    drawn = bar(min(1.0, rate / LIMITS["write"]), encoding, width=longest)
    return Text.assemble(f"{number} ", (f"{drawn:<{longest}}", "red" if over else "green"), f" {rate:>6,.0f}/s")


def _rate(report: BulkReport) -> str:
    return f"{report.write_units / report.seconds:,.0f}" if report.seconds else "-"  # a single batch takes no time


def show_results(console: Console, sides: Sequence[Side], checks: Sequence[Check], day: str) -> None:
    reports = [one.report for one in sides]
    grid = columns(console, "load", *(one.title for one in sides))
    grid.add_row("virtual time", *(duration(report.seconds) for report in reports))
    grid.add_row("write units a second", *(_rate(report) for report in reports))
    grid.add_row("writes on the busiest partition", *(percent(one.busiest) for one in sides))
    grid.add_row("requests", *(f"{report.requests:,}" for report in reports))
    grid.add_row("requests throttled", *(f"{report.throttles:,}" for report in reports))
    grid.add_row("items sent again", *(f"{report.retried:,}" for report in reports))
    show_table(console, grid)
    console.print(f"\n{day}, the busiest day, read back in the order of departures:")
    grid = columns(console, "query", *(one.title for one in sides))
    grid.add_row("equal to the source", *(f"{check.equal:,} of {check.expected:,}" for check in checks))
    grid.add_row("read units", *(f"{check.read_units:,.1f}" for check in checks))
    grid.add_row("requests", *(f"{check.requests:,}" for check in checks))
    show_table(console, grid)
    for mismatch in [mismatch for check in checks for mismatch in check.mismatches][:5]:
        say(console, f"  {mismatch}", "red")


def show_heats(console: Console, sides: Sequence[Side]) -> None:
    for one in sides:
        console.print()
        say(console, one.title, "bold")
        show_heat(console, one.heat, "write", LIMITS["write"])


# -- command ---------------------------------------------------------------------------------------------------------


def run(console: Console, endpoint_url: str | None, shards: int, rows: int) -> bool:
    """Run the demo on one service; return whether everything read back is what was written."""
    flights = [flight(item) for item in read_flights(rows)]
    name = f"shardkit-demo-{uuid.uuid4().hex[:12]}"
    kinds = {"plain": Unsharded(), f"{shards} shards": CalculatedSuffix("Departure", shards=shards)}
    with ExitStack() as stack:
        sides = [
            stack.enter_context(side(f"{name}-{number}", title, strategy, flights, endpoint_url))
            for number, (title, strategy) in enumerate(kinds.items())
        ]
        introduce(console, sides, rows, endpoint_url)
        show_loads(console, sides)
        days = Counter(item["Departure"][:10] for item in flights)
        ((day, _),) = days.most_common(1)
        source = sorted(
            (item for item in flights if item["Departure"].startswith(day)), key=lambda item: item["Departure"]
        )
        checks = [read_day(one.table, day, source) for one in sides]
    show_results(console, sides, checks, day)
    show_heats(console, sides)
    return all(check.ok for check in checks)


def _is_engine(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and not (parts.hostname or AWS_HOSTS[0]).endswith(AWS_HOSTS)


@click.command(cls=Command, refused="The demo stopped")
@option("--endpoint-url", help="An engine for tests, such as DynamoDB Local; if not given, moto in this process.")
@option("--shards", type=click.IntRange(min=1, max=1000), default=10, help="The shards of the month.")
@option("--rows", type=click.IntRange(min=1, max=FLIGHTS), default=ROWS, help="How many flights.")
def demo(call: Call, shards: int, rows: int) -> Outcome:
    """Load real flights into a plain and a sharded table, side by side, and see which partitions throttle.

    A model of DynamoDB's partitions throttles, in virtual time. Then a day is read back, and checked.

    Exit codes: 0 all that was read is what was written, 1 it is not, 2 wrong use, 3 stopped before its end.
    """
    endpoint_url = call.aws.endpoint_url
    if endpoint_url is not None and not _is_engine(endpoint_url):
        raise BadParameter(f"--endpoint-url: must be an engine's, such as http://localhost:8000, got {endpoint_url!r}")
    console = out()
    began = time.perf_counter()
    try:
        with mocked_dynamodb() if endpoint_url is None else nullcontext():
            same = run(console, endpoint_url, shards, rows)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "shardkit":
            raise
        raise call.ended(install_hint(missing, "demo").rstrip(), WRONG_USE) from None
    console.print(f"\nThe demo took {time.perf_counter() - began:.1f} seconds.")
    if not same:
        say(console, "What was read is not what was written. Please report this as a bug of shardkit.", "bold red")
    else:
        say(console, "Next: how many shards does your key need? shardkit plan shards --help")
    return Outcome(dict, lambda _: None, 0 if same else FAILED)
