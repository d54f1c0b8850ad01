"""``shardkit demo``: load real flights into a sharded and a plain table, read them back and check them.

The first half does the work and returns plain records; the second half shows them.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from boto3.dynamodb.conditions import Key
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from click.exceptions import BadParameter, Exit
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, bulk_load
from shardkit.cli import install_hint
from shardkit.cli.flights import TOTAL_FLIGHTS, flights_zip, fresh_table, read_flights
from shardkit.cli.options import COUNT, Command, option
from shardkit.cli.screen import bar
from shardkit.errors import ShardkitError

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import DynamoDBServiceResource, Table

    from shardkit.bulk.report import BulkReport

TWO_WEEKS = 12_208  # rows: moto takes half a minute for them, because it scans its whole table for every Query
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
MOST_BARS = 20
DUMMY = "demo"
FAKE_ENVIRONMENT = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), DUMMY)
FAKE_ENVIRONMENT |= dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)

Item = dict[str, Any]


# -- work ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """The load of one table, and its busiest day."""

    seconds: float
    written: int
    write_units: float
    day: str
    day_items: int
    day_units: float


@dataclass(frozen=True)
class Check:
    seconds: float
    read_units: float
    expected: int
    equal: int
    mismatches: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.equal == self.expected and not self.mismatches


@contextmanager
def mocked_dynamodb() -> Iterator[DynamoDBServiceResource]:
    """Yield a mocked DynamoDB in this process, which cannot see the user's profile, credentials and endpoints."""
    from moto import mock_aws

    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    os.environ.update(FAKE_ENVIRONMENT)
    try:
        with mock_aws():
            yield Session().resource("dynamodb", region_name="us-east-1", config=Config(max_pool_connections=50))
    finally:
        for name in FAKE_ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(before)


def dynamodb_at(endpoint_url: str) -> DynamoDBServiceResource:
    """Connect to an endpoint with the environment's credentials; on this machine dummies do, if there are none."""
    session = Session()
    if urlsplit(endpoint_url).hostname in LOCAL_HOSTS:
        key = None if os.environ.keys() & {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"} else DUMMY
        session = Session(key, key, region_name=session.region_name or "us-east-1")
    return session.resource("dynamodb", endpoint_url=endpoint_url, config=Config(max_pool_connections=50))


def load(
    table: ShardedTable | Table, rows: int, meter: CapacityMeter, progress: Callable[[BulkReport], None]
) -> Loaded:
    days: Counter[str] = Counter()
    began = time.perf_counter()
    with meter.attach(table), meter.scope("load") as used:
        report = bulk_load(table, counted(read_flights(rows), days), progress=progress)
    seconds = time.perf_counter() - began
    ((day, items),) = days.most_common(1)
    # DynamoDB reports a batch's units per table; the meter apportions them to keys, as estimates.
    of_day = used.by_key[table.name, day]
    units = of_day.write_units + of_day.estimated_write_units
    return Loaded(seconds, report.written, used.write_units, day, items, units)


def counted(items: Iterable[Item], days: Counter[str]) -> Iterator[Item]:
    for item in items:
        days[item["Date"]] += 1
        yield item


def stream_day(table: ShardedTable, source: list[Item], meter: CapacityMeter) -> tuple[Check, Counter[int | None]]:
    """Read one day in sort-key order and compare it with the source; return also the items of each shard."""
    day = Key("Date").eq(source[0]["Date"])
    with meter.attach(table), meter.scope("query") as used:
        began = time.perf_counter()
        pairs = list(table.query_items(KeyConditionExpression=day, ReturnShards=True))
        seconds = time.perf_counter() - began
    check = compare(source, [item for item, _ in pairs], seconds, used.read_units)
    return check, Counter(shard for _, shard in pairs)


def get_flights(table: ShardedTable, source: list[Item], meter: CapacityMeter) -> Check:
    with meter.attach(table), meter.scope("get") as used:
        began = time.perf_counter()
        items = [table.get_item(Key={name: item[name] for name in ("Date", "Flight")}).get("Item") for item in source]
        seconds = time.perf_counter() - began
    return compare(source, items, seconds, used.read_units)


def compare(source: list[Item], items: list[Any], seconds: float, read_units: float) -> Check:
    """Compare row by row: the same items in the same order, and no others."""
    pairs = list(zip_longest(source, items))
    wrong = tuple(f"row {row}: expected {want}, got {got}" for row, (want, got) in enumerate(pairs) if want != got)
    return Check(seconds, read_units, len(source), len(pairs) - len(wrong), wrong)


# -- show ------------------------------------------------------------------------------------------------------------


@contextmanager
def progress_bar(console: Console, title: str, rows: int) -> Iterator[Callable[[BulkReport], None]]:
    """Show a load's progress; yield the function to call with each report."""
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"{title:<8}", total=rows)
        yield lambda report: progress.update(task, completed=report.written + report.failed)


def show_keys(console: Console, keys: dict[str, int], sharded: Loaded, plain: Loaded, star: str) -> None:
    """Print a bar for every physical key of the busiest day, and one for the plain table's key, to one scale."""
    width = max(10, min(50, console.width - 44))
    grid = Grid(title=f"\nThe busiest day, {sharded.day}: what each partition key took", title_justify="left", box=None)
    for heading in ("partition key", "items", f"write units{star}", ""):
        grid.add_column(heading, justify="left" if heading in {"partition key", ""} else "right", no_wrap=True)
    shown = keys.items() if len(keys) <= MOST_BARS else sorted(keys.items(), key=lambda entry: -entry[1])[:MOST_BARS]
    for key, items in shown:
        units = sharded.day_units * items / sharded.day_items
        grid.add_row(key, f"{items:,}", f"{units:,.0f}", bar(items / plain.day_items, console.encoding, width=width))
    if len(keys) > MOST_BARS:
        grid.add_row(f"and {len(keys) - MOST_BARS} cooler keys")
    whole = bar(1.0, console.encoding, width=width)
    grid.add_row(f"{plain.day} (plain)", f"{plain.day_items:,}", f"{plain.day_units:,.0f}", whole, style="yellow")
    console.print(grid)
    hottest = max(keys.values()) / sharded.day_items
    console.print(
        f"\nThe hottest key took {hottest:.0%} of the day's writes; without shards one key takes 100%. "
        f"DynamoDB gives one key 1,000 write units a second: this day can be written {1 / hottest:.1f} times as fast.\n"
    )


def show_check(console: Console, what: str, check: Check) -> None:
    verdict = "" if check.ok else " [bold red]NOT EQUAL[/]"
    console.print(f"{what}: {check.equal:,} of {check.expected:,} items equal to the source{verdict}")
    for mismatch in check.mismatches[:5]:
        console.print(f"  {mismatch}", markup=False)


def show_totals(console: Console, parts: dict[str, Loaded | Check], star: str) -> None:
    grid = Grid(title="\nWhat it took", title_justify="left", box=None)
    grid.add_column("part")
    for heading in ("items", "seconds", f"write units{star}", f"read units{star}"):
        grid.add_column(heading, justify="right")
    for name, part in parts.items():
        if isinstance(part, Loaded):
            grid.add_row(name, f"{part.written:,}", f"{part.seconds:.2f}", f"{part.write_units:,.1f}", "")
        else:
            grid.add_row(name, f"{part.equal:,}", f"{part.seconds:.2f}", "", f"{part.read_units:,.1f}")
    console.print(grid)
    if star:
        console.print(f"{star} moto makes its capacity units up; with --endpoint-url you see those of the endpoint.")


# -- command ---------------------------------------------------------------------------------------------------------


def run(console: Console, resource: DynamoDBServiceResource, shards: int, rows: int, mocked: bool) -> bool:
    """Run the demo on one service; return whether everything read back is what was written."""
    name = f"shardkit-demo-{uuid.uuid4().hex[:12]}"
    strategy = CalculatedSuffix("Flight", shards=shards)
    meter = CapacityMeter()
    star = "*" if mocked else ""
    with ExitStack() as stack:
        table = ShardedTable(stack.enter_context(fresh_table(resource, name)), strategy)
        with progress_bar(console, "sharded", rows) as progress:
            sharded = load(table, rows, meter, progress)
        plain_table = stack.enter_context(fresh_table(resource, f"{name}-plain"))
        with progress_bar(console, "plain", rows) as progress:
            plain = load(plain_table, rows, meter, progress)

        source = sorted(read_flights(rows, date=sharded.day), key=lambda item: str(item["Flight"]))
        streamed, shards_of_day = stream_day(table, source, meter)
        keys = {str(key): shards_of_day[strategy.split(key)[1]] for key in strategy.physical_keys(sharded.day)}
        show_keys(console, keys, sharded, plain, star)
        show_check(console, f"query_items, {sharded.day} in order", streamed)
        got = get_flights(table, source[:: max(1, len(source) // 5)][:5], meter)
        show_check(console, "get_item, one GetItem each", got)
    parts: dict[str, Loaded | Check] = {"load, sharded": sharded, "load, plain": plain}
    parts |= {"query_items": streamed, "get_item": got}
    show_totals(console, parts, star)
    return streamed.ok and got.ok


@click.command(cls=Command)
@option("--endpoint-url", help="The DynamoDB to use; if not given, moto in this process.")
@option("--shards", type=click.IntRange(min=1, max=1000), default=10, help="The shards of a day.")
@option("--rows", type=COUNT, help=f"How many flights; {TWO_WEEKS:,} in moto, all at an endpoint.")
@option("--all", "everything", is_flag=True, help=f"All {TOTAL_FLIGHTS:,} flights.")
def demo(endpoint_url: str | None, shards: int, rows: int | None, everything: bool) -> None:
    """Load real flights into a sharded and a plain table, compare their hottest keys, read back and check."""
    if rows is not None and everything:
        raise BadParameter("--rows: given with --all; give one of them")
    if endpoint_url is not None and urlsplit(endpoint_url).hostname is None:
        raise BadParameter(f"--endpoint-url: must be a URL such as http://localhost:8000, got {endpoint_url!r}")
    default = TWO_WEEKS if endpoint_url is None and not everything else TOTAL_FLIGHTS
    rows = min(rows or default, TOTAL_FLIGHTS)
    console = Console(highlight=False)
    began = time.perf_counter()
    try:
        flights_zip()
        with ExitStack() as stack:
            resource = dynamodb_at(endpoint_url) if endpoint_url else stack.enter_context(mocked_dynamodb())
            console.rule("shardkit demo")
            console.print(
                f"Loading {rows:,} flights that left New York in 2013 into {endpoint_url or 'moto, in this process'}, "
                f"twice: with the partition key Date spread over {shards} shards, and as it is. Then one day is read "
                "back in order and checked.\n"
            )
            same = run(console, resource, shards, rows, mocked=endpoint_url is None)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("shardkit"):
            raise
        sys.stderr.write(install_hint(error.name, "demo"))
        raise Exit(2) from None
    except (BotoCoreError, ClientError, ShardkitError) as error:
        sys.stderr.write(f"The demo stopped: {error}\n")
        raise Exit(2) from None
    console.print(f"Total: {time.perf_counter() - began:.1f} seconds.")
    if not same:
        console.print("[bold red]What was read is not what was written.[/] Please report this as a bug of shardkit.")
        raise Exit(1)
    server = "--endpoint-url http://localhost:8000"
    then = f"{server} (all flights, on a server of yours)" if endpoint_url is None else "--shards 50 (a wider spread)"
    console.print(f"\nNext: [bold]shardkit demo {then}[/]")
