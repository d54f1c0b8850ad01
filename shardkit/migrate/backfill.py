"""backfill_index: gives the items that a table already has the attribute of a sharded index."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from shardkit.core.calls import shows_options
from shardkit.migrate.backfill_machine import Backfill, BackfillReport
from shardkit.migrate.repair import index_of
from shardkit.passes.passes import Passes, run
from shardkit.runtime.runner import AsyncRunner, Runner, runner_of
from shardkit.sharding.layout import Sharding


class BackfillOptions(TypedDict, total=False):
    """The options of :func:`backfill_index`, which documents them."""

    write_units: float | str | None
    read_units: float | None
    verify_only: bool
    journal: str | os.PathLike[str] | None
    progress: Callable[[BackfillReport], object] | None


@shows_options(BackfillOptions)
def backfill_index(table: Any, index: str, **options: Unpack[BackfillOptions]) -> BackfillReport:
    """Give the items that a table already has the attribute of a sharded index, then verify all items.

    Example:
        by_status = CalculatedSuffix("OrderId", shards=10, source="status")
        orders = ShardedTable(table, Unsharded(), indexes={"by-status": by_status})
        report = backfill_index(orders, "by-status", write_units=500)
        report.complete

    First let every writer use ``indexes=``: docs/sharded-indexes.md has the order. Each update has the condition that
    the item is still as it was read, so it undoes no other write. Items that are right already are not written, so you
    can repeat it.

    Args:
        table: A ``ShardedTable`` with ``indexes=``; its ``max_concurrency`` limits the requests in flight.
        index: The name of one of these indexes, with ``attribute=`` or ``source=``.
        **options: The options:

            * ``write_units: float | str | None = 100``: Write units per second that it may consume of the table and of
              each global index; or a share of their throughput, such as ``"20%"``. None: no limit.
            * ``read_units: float | None = 100``: Read units per second. None: no limit.
            * ``verify_only: bool = False``: Only verify, and write nothing.
            * ``journal: str | os.PathLike | None = None``: A file that makes it resumable: pages that were done are not
              read again. It is deleted at the end.
            * ``progress: Callable[[BackfillReport], object] | None = None``: Called after every request, with the
              report so far.

    Returns:
        A report: ``complete``; ``read``, ``written``, ``overtaken`` (a writer was faster), ``failed`` and ``failures``
        of the backfill; ``verified``, ``in_index`` and ``left`` of the verification; ``read_units``, ``write_units``,
        ``requests``, ``throttles``, ``seconds``. If ``complete`` is False, ``left`` items lack the attribute or have a
        wrong one: ``failures`` says why, or a writer does not use ``indexes=`` yet. If ``in_index`` is 0, no item has
        the index's logical key: its name may be misspelt.

    Raises:
        ConfigurationError: An argument is invalid, the index is not sharded or has its suffix in place, the journal is
            of another backfill, or no item has the source although items have the index's attribute.
        ShardkitError: The service refused all requests for a minute.

    Cost: a Scan of the table, eventually consistent, and a second one, strongly consistent, to verify: together 1.5
        read units per 4 KB. One UpdateItem for each item that needs it: the write units of the item, and of its entry
        in the index. Memory: one page for each of ``max_concurrency`` segments.
    IAM: ``dynamodb:DescribeTable``, ``dynamodb:Scan``, ``dynamodb:UpdateItem``.
    """
    runner = runner_of(table)
    return run(runner, backfilling(runner, runner.run(runner.programs.known()), index, options))


def backfilling(
    runner: Runner | AsyncRunner, sharding: Sharding, name: str, options: BackfillOptions
) -> Passes[BackfillReport]:
    """Return the passes of a backfill."""
    # It updates items where it finds them, without the conditions of the stages.
    sharding.refuse_if_moving("backfill_index()", "backfill in stage 'old' or 'new'")
    index = index_of(sharding, name)
    return Passes(
        runner,
        "backfill",
        lambda given: Backfill(sharding, index, **given),
        options,
        known=BackfillOptions.__annotations__,
        kinds=(True,) if options.get("verify_only", False) else (False, True),
        header={
            "table": sharding.table,
            "keys": list(sharding.key_names),
            "table_strategy": sharding.strategy.to_dict(),
            "index": name,
            "strategy": index.strategy.to_dict(),
        },
    )
