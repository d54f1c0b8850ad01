"""``shardkit plan``: the throughput for a load, the shards for a key, the partitions of a table.

Exit codes: 0 planned · 2 wrong use, or the table cannot be described.
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from typing import Any

import click
from rich.console import Console

from shardkit.cli import options
from shardkit.cli.options import OUTPUT, WRONG_USE, dynamodb, option, refusing, seconds_of, several
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


@plan.command("load", cls=options.Command)
@option("--items", group=LOAD, type=int, required=True, help="How many items.")
@item_size
@option("--within", group=LOAD, help="The time that the load may take: 90s, 30m, 3h.")
@option("--write-units", group=LOAD, type=float, help="Write units a second, instead of --within.")
@option("--steady-write-units", group=LOAD, type=float, help="Write units a second that the table has afterwards.")
@indexes
@options.as_json
def load(
    within: str | None, index: tuple[str, ...], local_index: tuple[str, ...], as_json: bool, **figures: Any
) -> None:
    """Plan a bulk load into a new table: throughput to set, partitions that it makes, what they have afterwards."""
    with _planning():
        seconds = None if within is None else seconds_of("--within", within)
        planned = plan_bulk_load(within=seconds, indexes=_indexes(index, local_index), **figures)
    _show(planned, as_json=as_json)


@plan.command("shards", cls=options.Command)
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
    help="Partitions of the table (shardkit plan table); if not given, as many as twice the load takes.",
)
@option("--headroom", group=OUTPUT, default=0.2, help="The part of a partition's throughput to leave free.")
@option(
    "--probability",
    group=OUTPUT,
    default=0.99,
    help="The probability that no partition gets more than it serves.",
)
@options.as_json
def shards(index: tuple[str, ...], local_index: tuple[str, ...], as_json: bool, **figures: Any) -> None:
    """Plan the shards of a hot key: how many, what a Query then costs, and whether it is worth it."""
    with _planning():
        planned = plan_shards(indexes=_indexes(index, local_index), **figures)
    _show(planned, as_json=as_json)


@plan.command("table", cls=options.Command)
@click.argument("name")
@options.connection
@options.as_json
def table(name: str, as_json: bool, **connection: Any) -> None:
    """Estimate the partitions of a table and its global indexes. One DescribeTable is sent.

    NAME is the table's.
    """
    with _planning():
        client = dynamodb(**connection).meta.client
        try:
            description = client.describe_table(TableName=name)["Table"]
        finally:
            client.close()
        planned = estimate_table(description)
    _show(planned, as_json=as_json)


def _planning() -> AbstractContextManager[None]:
    return refusing(Console(stderr=True, highlight=False), WRONG_USE, "not planned")


def _show(planned: Any, *, as_json: bool) -> None:
    print(json.dumps(planned.to_dict()) if as_json else str(planned))


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
