"""``shardkit plan``: the throughput for a load, the shards for a key, the partitions of a table.

Exit codes: 0 planned · 2 wrong use, or the table cannot be described.
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer
from rich.console import Console

from shardkit.cli import options
from shardkit.cli.options import OUTPUT, WRONG_USE, dynamodb, refusing
from shardkit.errors import ConfigurationError
from shardkit.partitions import IndexWrites, estimate_table, plan_bulk_load, plan_shards

LOAD, INDEXES, TABLE = "Load", "Indexes", "Table"  # how --help groups the options
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

plan = typer.Typer(
    help="Plan before you pay: the throughput for a load, the shards for a key, the partitions of a table.",
    no_args_is_help=True,
)

ItemSizeOption = Annotated[int, typer.Option(rich_help_panel=LOAD, help="Bytes of an item: see shardkit size.")]
IndexOption = Annotated[
    list[str] | None,
    typer.Option(
        rich_help_panel=INDEXES,
        help="A global index, repeatable: NAME:BYTES of an entry; :SHARE of its hottest key if it has its own.",
    ),
]
LocalIndexOption = Annotated[
    list[str] | None, typer.Option(rich_help_panel=INDEXES, help="A local index, repeatable: NAME:BYTES of an entry.")
]


@plan.command("load")
def load(
    items: Annotated[int, typer.Option(rich_help_panel=LOAD, help="How many items.")],
    item_size: ItemSizeOption,
    within: Annotated[
        str | None, typer.Option(rich_help_panel=LOAD, help="The time that the load may take: 90s, 30m, 3h.")
    ] = None,
    write_units: Annotated[
        float | None, typer.Option(rich_help_panel=LOAD, help="Write units a second, instead of --within.")
    ] = None,
    steady_write_units: Annotated[
        float | None, typer.Option(rich_help_panel=LOAD, help="Write units a second that the table has afterwards.")
    ] = None,
    index: IndexOption = None,
    local_index: LocalIndexOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Plan a bulk load into a new table: throughput to set, partitions that it makes, what they have afterwards."""
    with _planning():
        planned = plan_bulk_load(
            items,
            item_size,
            within=None if within is None else _seconds(within),
            write_units=write_units,
            steady_write_units=steady_write_units,
            indexes=_indexes(index, local_index),
        )
    _show(planned, as_json=as_json)


@plan.command("shards")
def shards(
    item_size: ItemSizeOption,
    writes_per_second: Annotated[
        float, typer.Option(rich_help_panel=LOAD, help="Items of the hottest key written a second, at its peak.")
    ],
    reads_per_second: Annotated[
        float, typer.Option(rich_help_panel=LOAD, help="Items of the key read a second, one by one.")
    ] = 0.0,
    queries_per_second: Annotated[
        float, typer.Option(rich_help_panel=LOAD, help="Queries of the whole key a second.")
    ] = 0.0,
    items_per_query: Annotated[int, typer.Option(rich_help_panel=LOAD, help="Items that each query evaluates.")] = 0,
    consistent: Annotated[
        bool, typer.Option("--consistent", rich_help_panel=LOAD, help="Reads are strongly consistent.")
    ] = False,
    index: IndexOption = None,
    local_index: LocalIndexOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=TABLE,
            help="Partitions of the table (shardkit plan table); if not given, as many as twice the load takes.",
        ),
    ] = None,
    headroom: Annotated[
        float, typer.Option(rich_help_panel=OUTPUT, help="The part of a partition's throughput to leave free.")
    ] = 0.2,
    probability: Annotated[
        float, typer.Option(rich_help_panel=OUTPUT, help="The probability that no partition gets more than it serves.")
    ] = 0.99,
    as_json: options.JsonOption = False,
) -> None:
    """Plan the shards of a hot key: how many, what a Query then costs, and whether it is worth it."""
    with _planning():
        planned = plan_shards(
            item_size,
            writes_per_second,
            reads_per_second,
            queries_per_second=queries_per_second,
            items_per_query=items_per_query,
            consistent=consistent,
            indexes=_indexes(index, local_index),
            partitions=partitions,
            headroom=headroom,
            probability=probability,
        )
    _show(planned, as_json=as_json)


@plan.command("table")
def table(
    name: Annotated[str, typer.Argument(help="The table.")],
    region: options.RegionOption = None,
    profile: options.ProfileOption = None,
    endpoint_url: options.EndpointOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Estimate the partitions of a table and its global indexes. One DescribeTable is sent."""
    with _planning():
        client = dynamodb(profile, region, endpoint_url).meta.client
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


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ConfigurationError(
            f"--within: {text!r} is not a duration; give seconds, minutes, hours or days: 90s, 30m, 3h, 1d"
        )
    return float(found[1]) * _SECONDS[found[2]]


def _indexes(given: list[str] | None, local: list[str] | None) -> list[IndexWrites]:
    return [
        *(_index(text, "--index", shares=True) for text in given or ()),
        *(_index(text, "--local-index", shares=False) for text in local or ()),
    ]


def _index(text: str, option: str, *, shares: bool) -> IndexWrites:
    form = r"(?P<name>[^:]+):(?P<size>\d{1,15})" + (r"(?::(?P<share>\d*\.?\d+))?" if shares else r"(?P<share>)")
    found = re.fullmatch(form, text)
    if found is None:
        forms = "NAME:BYTES or NAME:BYTES:SHARE" if shares else "NAME:BYTES"
        raise ConfigurationError(f"{option}: {text!r} is not {forms}; give for example ByCustomer:200")
    share = float(found["share"]) if found["share"] else None
    return IndexWrites(found["name"], int(found["size"]), local=not shares, hottest_share=share)
