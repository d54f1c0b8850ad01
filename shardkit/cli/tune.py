"""``shardkit tune``: give hot keys of a table with a shard map more shards, by what its processes report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from shardkit.cli import options
from shardkit.cli.command import STOPPED, Call, Command, Outcome
from shardkit.cli.options import COUNT, option, rate_of
from shardkit.cli.screen import tell
from shardkit.errors import StageError
from shardkit.partitions.describe import estimate_table
from shardkit.shard_map import ShardMap, Tuner
from shardkit.table import ShardedTable


@click.command("tune", cls=Command)
@click.argument("table")
@option("--control", required=True, help="The table to which the processes report (HeatReport).")
@option("--apply", is_flag=True, help="Do it; without it, only say what would be done.")
@option("--max-shards", type=COUNT, default=64, help="The most shards of a key.")
@option("--max-read-units", type=click.FloatRange(min=0), help="The most read units a second for queries and moves.")
@option("--finish", is_flag=True, help="Move the items after a growth, which the next one needs.")
@option("--write-units", default="100", help="With --finish: write units a second, or a share: 20%.")
@option("--log", is_flag=True, help="Show the last 50 decisions, and do nothing.")
@options.connection
@options.as_json
def tune(call: Call, table: str, control: str, log: bool, write_units: str, **given: Any) -> Outcome:
    """Give hot keys more shards, by what the processes of a table with a shard map report. Run it each minute.

    Exit codes: 0 done, or nothing to do, 2 wrong use, 3 another process did something meanwhile, or items are left.
    """
    resource = call.dynamodb()
    partitions = estimate_table(resource.meta.client.describe_table(TableName=table)["Table"]).table.partitions
    orders = ShardedTable(resource.Table(table), ShardMap())
    tuner = Tuner(orders, resource.Table(control), partitions=partitions, write_units=rate_of(write_units), **given)
    try:
        decisions = tuner.log() if log else [tuner.step()]
    except StageError as error:
        raise call.ended(str(error), STOPPED) from None
    return Outcome(lambda: decisions, lambda console: _show(console, decisions))


def _show(console: Any, decisions: list[dict[str, Any]]) -> None:
    for told in decisions:
        at, until = (f"{datetime.fromtimestamp(told[name], UTC):%Y-%m-%d %H:%M}" for name in ("at", "until"))
        what = told["action"] if told["applied"] or told["action"] == "none" else f"would {told['action']}"
        shards = "".join(f"; {key[2:]} gets {number:,} shards" for key, number in told["shards"].items())
        cost = f"; {told['read_units']:,.0f} read units/s" if shards else ""
        key = f"; {told['key'][2:]}: " if told["key"] else ""
        asked = f"{told['peak']:,.0f} to {told['upper_bound']:,.0f} write units/s in its busiest second"
        tell(console, f"{at}{f' to {until[11:]}' if until != at else ''} UTC: {what}: {told['reason']}{shards}{cost}")
        tell(console, f"  {told['reports']} of {told['processes']} processes{key and key + asked}")
