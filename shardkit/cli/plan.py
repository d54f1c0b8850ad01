"""``shardkit plan``: the throughput for a load, the shards for a key, the partitions of a table."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import click

from shardkit.cli import options
from shardkit.cli.command import Call, Command, Outcome
from shardkit.cli.options import OUTPUT, option, seconds_of, several
from shardkit.cli.plan_trace import trace
from shardkit.errors import ConfigurationError
from shardkit.partitions import IndexWrites, estimate_table, plan_bulk_load, plan_shards

LOAD, INDEXES, TABLE = "Load", "Indexes", "Table"  # how --help groups the options

item_size = option("--item-size", group=LOAD, type=int, required=True, help="Bytes of an item: see shardkit size.")
indexes = several(
    option(
        "--index",
        group=INDEXES,
        multiple=True,
        help="A global index, repeatable: NAME:BYTES of an entry; :SHARE of its hottest key if it has its own.",
    ),
    option("--local-index", group=INDEXES, multiple=True, help="A local index, repeatable: NAME:BYTES of an entry."),
)


@click.group()
def plan() -> None:
    """Plan before you pay: the throughput for a load, the shards for a key, the partitions of a table."""


plan.add_command(trace)
_command = partial(plan.command, cls=Command, refused="not planned")


@_command("load")
@option("--items", group=LOAD, type=int, required=True, help="How many items.")
@item_size
@option("--within", group=LOAD, help="The time that the load may take: 90s, 30m, 3h.")
@option("--write-units", group=LOAD, type=float, help="Write units a second, instead of --within.")
@option("--steady-write-units", group=LOAD, type=float, help="Write units a second that the table has afterwards.")
@indexes
@options.as_json
def load(_: Call, within: str | None, index: tuple[str, ...], local_index: tuple[str, ...], **figures: Any) -> Outcome:
    """Plan a bulk load into a new table: throughput to set, partitions that it makes, what they have afterwards."""
    seconds = None if within is None else seconds_of("--within", within)
    return Outcome.of_text(plan_bulk_load(within=seconds, indexes=_indexes(index, local_index), **figures))


@_command("shards")
@item_size
@option(
    "--writes-per-second",
    group=LOAD,
    type=float,
    required=True,
    help="Items of the hottest key written a second, at its peak.",
)
@option("--reads-per-second", group=LOAD, default=0.0, help="Items of the key read a second, one by one.")
@option("--queries-per-second", group=LOAD, default=0.0, help="Queries of the whole key a second.")
@option("--items-per-query", group=LOAD, default=0, help="Items that each query evaluates.")
@option("--consistent", group=LOAD, is_flag=True, help="Reads are strongly consistent.")
@indexes
@option(
    "--partitions",
    group=TABLE,
    type=int,
    help="Partitions of the table (shardkit plan table); if not given, twice what the key takes.",
)
@option("--headroom", group=OUTPUT, default=0.2, help="The part of a partition's throughput to leave free.")
@option(
    "--probability",
    group=OUTPUT,
    default=0.99,
    help="The probability that no partition gets more than it serves.",
)
@options.as_json
def shards(_: Call, index: tuple[str, ...], local_index: tuple[str, ...], **figures: Any) -> Outcome:
    """Plan the shards of a hot key: how many, what a Query then costs, and whether it is worth it."""
    return Outcome.of_text(plan_shards(indexes=_indexes(index, local_index), **figures))


@_command("table")
@click.argument("table", metavar="NAME")
@options.connection
@options.as_json
def table(call: Call, table: str) -> Outcome:
    """Estimate the partitions of a table and its global indexes. One DescribeTable is sent.

    NAME is the table's.
    """
    return Outcome.of_text(estimate_table(call.dynamodb().meta.client.describe_table(TableName=table)["Table"]))


def _indexes(given: tuple[str, ...], local: tuple[str, ...]) -> list[IndexWrites]:
    return [
        *(_index(text, "--index", shares=True) for text in given),
        *(_index(text, "--local-index", shares=False) for text in local),
    ]


def _index(text: str, option: str, *, shares: bool) -> IndexWrites:
    form = r"(?P<name>[^:]+):(?P<size>\d{1,15})" + (r"(?::(?P<share>\d*\.?\d+))?" if shares else r"(?P<share>)")
    found = re.fullmatch(form, text)
    if found is None:
        forms = "NAME:BYTES or NAME:BYTES:SHARE" if shares else "NAME:BYTES"
        raise ConfigurationError(f"{option}: {text!r} is not {forms}; give for example ByCustomer:200")
    share = float(found["share"]) if found["share"] else None
    return IndexWrites(found["name"], int(found["size"]), local=not shares, hottest_share=share)
