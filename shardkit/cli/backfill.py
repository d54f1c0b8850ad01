"""``shardkit backfill``: give a table's items the attribute of a sharded index, and verify."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from shardkit.bulk.pacing import WriteRate
from shardkit.capacity import CapacityEstimator
from shardkit.cli import options
from shardkit.cli.command import FAILED, STOPPED, Call, Command, Outcome
from shardkit.cli.live_table import (
    MOST_UNITS,
    Sampled,
    SampleOptions,
    describe,
    live_outcome,
    read_sample,
    sample_to_json,
    show_sampled,
)
from shardkit.cli.options import COUNT, calculated_suffix, option, parsed_strategy, rate_of
from shardkit.cli.passes import CONNECTIONS, PACE, PassProgress, consumed, pace, throttles
from shardkit.cli.screen import Line, duration, say
from shardkit.core.checks import check_number
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import READ_UNIT_BYTES
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.migrate.backfill import BackfillOptions, backfill_index
from shardkit.migrate.backfill_machine import BackfillReport
from shardkit.migrate.repair import index_of, repair
from shardkit.runtime.transports import default_transport
from shardkit.strategies import Strategy, Unsharded
from shardkit.table import ShardedTable

if TYPE_CHECKING:
    from rich.console import Console

INDEX = "Index"  # how --help groups the options
_FIGURES = {
    "items": "items",
    "to_write": "items to update",
    "table_units": "write units of the table",
    "index_units": "write units of its indexes",
}


@click.command("backfill", cls=Command)
@click.argument("table")
@option("--index", group=INDEX, required=True, help="The global secondary index whose attribute is filled.")
@option("--source", group=INDEX, help="The attribute that has the logical value (source=).")
@option("--attribute", group=INDEX, help="Instead of --source: the index's attribute for the shard (attribute=).")
@option("--by", group=INDEX, help="Attributes (A or A,B) to calculate the shard from.")
@option("--shards", type=COUNT, group=INDEX, help="Shards of a key of the index, with --by.")
@option(
    "--strategy",
    group=INDEX,
    help='Instead of these four, a text form: {"type": "RandomSuffix", "shards": 10, "source": "Status"}.',
)
@option("--table-strategy", group=INDEX, help="The table's own strategy as JSON, if its partition keys have suffixes.")
@pace
@option("--workers", type=COUNT, group=PACE, default=CONNECTIONS, help="Requests in flight at once.")
@option("--journal", help="A file that makes it resumable; deleted at the end.")
@option("--verify-only", is_flag=True, help="Verify all items; write nothing.")
@option("--dry-run", is_flag=True, help="Read a sample and say what it would cost; write nothing.")
@option("--max-units", type=float, default=MOST_UNITS, help="The most read units that --dry-run takes.")
@options.connection
@options.as_json
@options.progress
def backfill(
    call: Call,
    table: str,
    index: str,
    table_strategy: str | None,
    write_units: str,
    read_units: float,
    workers: int,
    journal: str | None,
    verify_only: bool,
    dry_run: bool,
    max_units: float,
    **index_options: Any,
) -> Outcome:
    """Give a table's items the attribute of a sharded index, then verify.

    First deploy all writers with indexes=. Items that have the attribute are not written, and changes by other writers
    are not undone. Run it again at any time.

    Exit codes: 0 all items have it, 1 some are left, 2 wrong use, 3 stopped before its end (run it again).
    """
    shown = call.enter(PassProgress(call.shown, _line))
    strategy = index_strategy(**index_options)
    own = Unsharded() if table_strategy is None else parsed_strategy(table_strategy, "--table-strategy")
    rate = rate_of(write_units)
    target = ShardedTable(
        call.dynamodb(max(CONNECTIONS, workers)).Table(table),
        own,
        indexes={index: strategy},
        max_concurrency=workers,
        transport=default_transport(call.aws.profile),
    )
    call.say(f"{table}, index {index}: {strategy!r}")
    if dry_run:
        return live_outcome(estimate(call, target, index, rate, read_units, most_units=max_units))
    how: BackfillOptions = {"write_units": rate, "read_units": read_units, "verify_only": verify_only}
    how |= {"journal": journal, "progress": shown.update}
    done = shown.run(call, table, lambda: backfill_index(target, index, **how))
    report = done or shown.report or BackfillReport("")
    code, note = (0 if report.complete else FAILED), ""
    if done is None:
        again = (
            f"goes on from {journal}" if journal and not verify_only else "goes on, and reads the table from its start"
        )
        code, note = STOPPED, f"stopped before its end: the same command {again}"
    return Outcome(
        lambda: {"exit_code": code, **asdict(report)}, lambda console: show_report(console, report), code, note
    )


def index_strategy(
    source: str | None, attribute: str | None, by: str | None, shards: int | None, strategy: str | None
) -> Strategy:
    given = {"--source": source, "--attribute": attribute, "--by": by, "--shards": shards}
    if strategy is not None:
        if more := [name for name, value in given.items() if value is not None]:
            raise ConfigurationError(
                f"--strategy: is not supported together with {', '.join(more)}; give one or the other"
            )
        return parsed_strategy(strategy)
    if by is None or shards is None or (source is None) == (attribute is None):
        raise ConfigurationError(
            "--by, --shards, --source: give all three, or --attribute instead of --source; for a random suffix, give "
            '--strategy \'{"type": "RandomSuffix", "shards": 10, "source": "Status"}\''
        )
    return calculated_suffix(by, shards, source=source, attribute=attribute)


def _line(report: BackfillReport, seconds: float) -> Line:
    filled = f"{report.read:,} items read, {report.written:,} updated"
    verified = f", {report.verified:,} verified, {report.left:,} left" if report.verified else ""
    return Line(report.read + report.verified, f"{filled}{verified}{throttles(report)}, {duration(seconds)}")


def show_report(console: Console, report: BackfillReport) -> None:
    if report.read or not report.verified:
        overtaken = f", {report.overtaken:,} changed by others meanwhile" if report.overtaken else ""
        failed = f", {report.failed:,} failed" if report.failed else ""
        say(console, f"{report.read:,} items read: {report.written:,} updated{overtaken}{failed}")
    for key, reason in report.failures:
        say(console, f"failed: {key}: {reason}")
    if report.verified or report.complete:
        left = f"{report.left:,} without the attribute, or with a wrong one" if report.left else "none is left"
        say(console, f"{report.verified:,} items verified: {left}")
    if report.verified and not report.in_index:
        say(console, "no item has the logical key of the index: check --source, or the key of the index", "yellow")
    if report.left and not report.failures:
        say(console, "advice: let every writer use indexes=, then run it again")
    say(console, consumed(report))


@dataclass(frozen=True)
class Estimate:
    """What a backfill would take, as a sample says."""

    found: Sampled
    index: str
    indexes: tuple[str, ...]
    rate: WriteRate
    read_rate: float

    @property
    def read_units(self) -> float:
        """Read units of both passes: one is eventually consistent."""
        return 1.5 * self.found.total("bytes").value / READ_UNIT_BYTES

    @property
    def seconds(self) -> float | None:
        of_indexes = {name: self.found.total(f"units of {name}").value for name in self.indexes}
        slower = self.rate.seconds(self.found.total("table_units").value, of_indexes)
        if slower is None:
            return None
        fill, verify = (self.read_units * share / self.read_rate for share in (1 / 3, 2 / 3))
        return max(slower, fill) + verify

    def to_json(self) -> dict[str, Any]:
        told = sample_to_json(self.found, (*_FIGURES, "failed", "to_remove"))
        return {**told, "index": self.index, "read_units": self.read_units, "seconds": self.seconds}

    def show(self, console: Console) -> None:
        found = self.found
        show_sampled(console, found, _FIGURES)
        if found.whole:
            exact = {name: found.total(name).value for name in _FIGURES}
            say(console, f"{exact['to_write']:,.0f} of {exact['items']:,.0f} items would be updated")
            say(
                console,
                f"{exact['table_units']:,.0f} write units of the table, {exact['index_units']:,.0f} of its indexes",
            )
        if removed := found.sample.read("to_remove"):
            what = "of the items that were read have no logical key, and would leave the index: check --source"
            say(console, f"{removed:,.0f} {what}", "yellow")
        if failed := found.sample.read("failed"):
            say(console, f"{failed:,.0f} of the items that were read cannot be given the attribute", "yellow")
        taken = "" if self.seconds is None else f"; at the given rates {duration(self.seconds)}"
        say(console, f"about {self.read_units:,.0f} read units, with the verification{taken}")


def estimate(
    call: Call,
    table: ShardedTable,
    index: str,
    write_units: float | str | None,
    read_units: float,
    *,
    most_units: float,
) -> Estimate:
    """Read a sample of a table, and estimate what a backfill would take."""
    check_number("--read-units", read_units, "read units a second", above=True)
    sharding = table.runner.run(table.runner.programs.known())
    filled = index_of(sharding, index)
    client, draw = table.meta.client, random.Random(0).random  # noqa: S311 - spreads load, keeps no secret
    description = client.describe_table(TableName=table.name)["Table"]
    estimator, rate = CapacityEstimator(description), WriteRate.of(write_units, description)

    def take(item: Mapping[str, Any]) -> Mapping[str, float]:
        stored = to_wire_item(item)
        figures = {"bytes": float(item_size(stored))}
        try:
            found = repair(sharding, filled, stored, draw)
        except ShardkitError:
            return {**figures, "failed": 1}
        if found is None:
            return figures
        after = {name: value for name, value in stored.items() if name != found.name}
        if found.value is not None:
            after[found.name] = found.value
        units = estimator.update_item(stored, after)
        of_indexes = {f"units of {name}": cost for name, cost in units.global_indexes.items()}
        figures |= {"to_write": 1, "table_units": units.table, "index_units": units.total - units.table}
        return {**figures, **of_indexes, "to_remove": float(found.value is None)}

    how: SampleOptions = {"most_units": most_units, "rate": read_units, "progress": call.shown is not None}
    read = read_sample(describe(client, table.name, None), take, call.stderr, **how)
    names = tuple(sorted(one["IndexName"] for one in description.get("GlobalSecondaryIndexes") or ()))
    return Estimate(read(), index, names, rate, read_units)
