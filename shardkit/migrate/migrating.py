"""Move a live table's items from one strategy to another: ``plan``, ``move``, ``verify``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from shardkit.core.calls import shows_options
from shardkit.migrate.between import Movable, movable
from shardkit.migrate.move_plan import MovePlan, Planning, has_stream
from shardkit.migrate.mover import Mover, MoveReport
from shardkit.passes.passes import Passes, run
from shardkit.runtime.runner import AsyncRunner, Runner, runner_of

__all__ = ["MoveOptions", "MovePlan", "MoveReport", "PlanOptions", "VerifyOptions", "move", "plan", "verify"]


class PlanOptions(TypedDict, total=False):
    """The options of :func:`plan`, which documents them."""

    write_units: float | str | None
    read_units: float | None
    progress: Callable[[MovePlan], object] | None


class MoveOptions(TypedDict, total=False):
    """The options of :func:`move`, which documents them."""

    write_units: float | str | None
    read_units: float | None
    journal: str | os.PathLike[str] | None
    progress: Callable[[MoveReport], object] | None


class VerifyOptions(TypedDict, total=False):
    """The options of :func:`verify`, which documents them."""

    read_units: float | None
    progress: Callable[[MoveReport], object] | None


@shows_options(PlanOptions)
def plan(table: Any, **options: Unpack[PlanOptions]) -> MovePlan:
    """Read a table, and return what a move would take; nothing is written.

    Example:
        orders = ShardedTable(table, Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=200), stage="old"))
        plan = shardkit.migrate.plan(orders, write_units=1000)
        print(plan.moving, plan.table_units, plan.expected_seconds, plan.failures)

    Args:
        table: A ``ShardedTable`` whose strategy is a ``Resharding``, in any stage, or a ``ShardMap`` with a move under
            way. Its ``max_concurrency`` limits the requests in flight.
        **options: The options:

            * ``write_units: float | str | None = 100``: The write units per second that the move would get, or a share
              of the table's throughput, such as ``"20%"``; for ``expected_seconds``.
            * ``read_units: float | None = 100``: Read units per second, of the plan and of the move. None: no limit.
            * ``progress: Callable[[MovePlan], object] | None = None``: Called after every request.

    Returns:
        The plan: how many items move, their units, the time, the indexes that cannot be read meanwhile
        (``refused_indexes``), and the items that cannot be moved (``failures``). A key of an unsharded table that looks
        like a shard of another (``v1.5``) is among them. Give ``new`` another ``separator=``. Only a plan in stage
        ``"old"`` finds all such keys: later, one whose item would have just that shard looks like an item that has
        moved.

    Raises:
        ConfigurationError: An argument is invalid, or no items have to move between the strategies.

    Cost: a Scan of the table, eventually consistent: 0.5 read units per 4 KB. Memory: one page for each of
        ``max_concurrency`` segments.
    IAM: ``dynamodb:DescribeTable``, ``dynamodb:Scan``.
    """
    runner = runner_of(table)
    return run(runner, planning(runner, runner.run(movable(runner.programs)), options))


@shows_options(MoveOptions)
def move(table: Any, **options: Unpack[MoveOptions]) -> MoveReport:
    """Move the items of a table to their new places, then verify all items.

    Example:
        orders = ShardedTable(table, Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=200), stage="move"))
        report = shardkit.migrate.move(orders, write_units=1000)
        report.complete

    First bring every process to stage ``"move"``: docs/adopt.md has the order. Services read and write meanwhile. You
    can stop it at any time, also by killing it, and run it again, or run several at once.

    Args:
        table: A ``ShardedTable`` whose strategy is a ``Resharding`` in stage ``"move"``, or a ``ShardMap`` in it. Its
            ``max_concurrency`` limits the requests in flight, and is the number of segments that are read in parallel.
        **options: The options:

            * ``write_units: float | str | None = 100``: Write units per second that it may consume of the table and of
              each global index; or a share of their throughput, such as ``"20%"``. None: no limit.
            * ``read_units: float | None = 100``: Read units per second of its scans. None: no limit.
            * ``journal: str | os.PathLike | None = None``: A file that saves reading again what was done. Without it,
              a repeated move reads the table from its start, and skips what has moved.
            * ``progress: Callable[[MoveReport], object] | None = None``: Called after every request, with the report
              so far.

    Returns:
        A report: ``complete``; ``read``, ``moved``, ``stubs``, ``conflicts``, ``failed`` and ``failures`` of the move;
        ``verified`` and ``left`` of the verification; ``read_units``, ``write_units``, ``requests``, ``throttles``,
        ``seconds``. If ``complete`` is False, run it again; ``failures`` says what it cannot move. It never removes an
        item that is not at its new place.

    Raises:
        ConfigurationError: An argument is invalid, no items have to move, or the journal is of another move.
        StageError: The strategy is in another stage.
        ShardkitError: The service refused all requests for a minute.

    Cost: a Scan, eventually consistent, and a second one, strongly consistent, to verify: together 1.5 read units per
        4 KB. For each item of up to 1 KB that moves 6 write units: 1 to freeze it, 4 for the transaction that copies
        it, 1 to remove it; with a stream on the table 7. Each global index is written too. Memory: one page of keys
        for each of ``max_concurrency`` segments.
    IAM: ``dynamodb:DescribeTable``, ``dynamodb:Scan``, ``dynamodb:PutItem``, ``dynamodb:UpdateItem``,
        ``dynamodb:DeleteItem``, ``dynamodb:ConditionCheckItem``.
    """
    runner = runner_of(table)
    return run(runner, moving(runner, runner.run(movable(runner.programs, "move")), options))


@shows_options(VerifyOptions)
def verify(table: Any, **options: Unpack[VerifyOptions]) -> MoveReport:
    """Read all items, strongly consistent, and count those that are not at their new places; nothing is written.

    Example:
        report = shardkit.migrate.verify(orders)
        report.complete

    Args:
        table: As for :func:`move`.
        **options: The options:

            * ``read_units: float | None = 100``: Read units per second. None: no limit.
            * ``progress: Callable[[MoveReport], object] | None = None``: Called after every request.

    Returns:
        A report: ``complete``, ``verified``, ``left`` (items outside their new places or with a mark, and stubs),
        ``failures``. If it is complete and every process is in stage ``"move"``, go on to stage ``"new"``.

    Raises:
        ConfigurationError: An argument is invalid, or no items have to move.
        StageError: The strategy is in another stage.

    Cost: a Scan, strongly consistent: 1 read unit per 4 KB.
    IAM: ``dynamodb:DescribeTable``, ``dynamodb:Scan``.
    """
    runner = runner_of(table)
    return run(runner, verifying(runner, runner.run(movable(runner.programs, "move")), options))


def plan_return(table: Any, **options: Unpack[PlanOptions]) -> MovePlan:
    """Read a table, strongly consistent, whose processes are to go back to stage ``"guard"`` or ``"old"``.

    The plan's ``ambiguous`` are the items that ``"guard"`` would not find, or not write; ``"old"`` would not find those
    with stubs either.
    """
    runner = runner_of(table)
    return run(runner, planning(runner, runner.run(movable(runner.programs)), options, returning=True))


def planning(
    runner: Runner | AsyncRunner, movable: Movable, options: PlanOptions, *, returning: bool = False
) -> Passes[MovePlan]:
    given = {"begun": movable.stage != "old" and not returning, "returning": returning}
    return Passes(
        runner,
        "plan",
        lambda options: Planning(movable.moving, movable.description, **given, **options),
        options,
        known=PlanOptions.__annotations__,
        kinds=(False,),
        held=movable.held,
    )


def moving(runner: Runner | AsyncRunner, movable: Movable, options: MoveOptions) -> Passes[MoveReport]:
    header = {
        "table": movable.moving.table,
        "keys": list(movable.moving.key_names),
        "old": movable.moving.strategy.old.to_dict(),
        "new": movable.moving.strategy.new.to_dict(),
    }
    return Passes(
        runner,
        "move",
        _mover(movable),
        options,
        known=MoveOptions.__annotations__,
        kinds=(False, True),
        header=header,
        held=movable.held,
    )


def verifying(runner: Runner | AsyncRunner, movable: Movable, options: VerifyOptions) -> Passes[MoveReport]:
    known = VerifyOptions.__annotations__
    return Passes(runner, "verify", _mover(movable), options, known=known, kinds=(True,), held=movable.held)


def _mover(movable: Movable) -> Callable[..., Mover]:
    streamed = has_stream(movable.description)
    return lambda given: Mover(movable.moving, token=lambda: uuid.uuid4().hex, streamed=streamed, **given)
