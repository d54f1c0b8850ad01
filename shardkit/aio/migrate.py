"""Move a live table's items from one strategy to another, with an async table: ``plan``, ``move``, ``verify``."""

from __future__ import annotations

from typing import Any, Unpack

from shardkit.aio.table import ShardedTable
from shardkit.core.calls import shows_options
from shardkit.errors import ConfigurationError, brief
from shardkit.migrate.between import movable
from shardkit.migrate.migrating import MoveOptions, PlanOptions, VerifyOptions, moving, planning, verifying
from shardkit.migrate.move_plan import MovePlan
from shardkit.migrate.mover import MoveReport
from shardkit.passes.passes import run_async
from shardkit.runtime.runner import AsyncRunner

__all__ = ["move", "plan", "verify"]


@shows_options(PlanOptions)
async def plan(table: ShardedTable, **options: Unpack[PlanOptions]) -> MovePlan:
    """Read a table, and return what a move would take; nothing is written.

    Example:
        strategy = Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=200), stage="old")
        plan = await shardkit.aio.migrate.plan(ShardedTable(client, strategy, table_name="Orders"))

    Arguments, exceptions, cost and IAM are those of :func:`shardkit.migrate.plan`.

    Returns:
        The plan.
    """
    runner = runner_of(table)
    return await run_async(runner, planning(runner, await runner.run(movable(runner.programs)), options))


@shows_options(MoveOptions)
async def move(table: ShardedTable, **options: Unpack[MoveOptions]) -> MoveReport:
    """Move the items of a table to their new places, then verify all items.

    Example:
        report = await shardkit.aio.migrate.move(orders, write_units=1000)
        report.complete

    Arguments, exceptions, cost and IAM are those of :func:`shardkit.migrate.move`.

    Returns:
        The report.
    """
    runner = runner_of(table)
    return await run_async(runner, moving(runner, await runner.run(movable(runner.programs, "move")), options))


@shows_options(VerifyOptions)
async def verify(table: ShardedTable, **options: Unpack[VerifyOptions]) -> MoveReport:
    """Read all items, strongly consistent, and count those that are not at their new places; nothing is written.

    Example:
        report = await shardkit.aio.migrate.verify(orders)
        report.complete

    Arguments, exceptions, cost and IAM are those of :func:`shardkit.migrate.verify`.

    Returns:
        The report.
    """
    runner = runner_of(table)
    return await run_async(runner, verifying(runner, await runner.run(movable(runner.programs, "move")), options))


def runner_of(table: Any, strategy: str = "Resharding(…)") -> AsyncRunner:
    if not isinstance(table, ShardedTable):
        raise ConfigurationError(
            f"table: must be a shardkit.aio.ShardedTable, got {brief(table)}; give ShardedTable(client, {strategy}, "
            "table_name='…')"
        )
    return table.runner
