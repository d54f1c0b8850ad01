"""stage_items: write the items of a source to S3, in the form that an import reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Literal, get_args

from shardkit.bulk.load import as_source, check_items
from shardkit.bulk.load_machine import check_choice
from shardkit.bulk.sources.base import Item, Source
from shardkit.core.checks import check_count, check_progress
from shardkit.dynamodb.schema import definition_of
from shardkit.errors import ConfigurationError
from shardkit.runtime.processes import Connect
from shardkit.runtime.runner import runner_of
from shardkit.runtime.tasks import Tasks
from shardkit.sharding.layout import Sharding
from shardkit.staging.manifest import Compression, S3Folder
from shardkit.staging.stage import OnError, StagePlan, StageProgress, StageReport, run_dry, run_stage

_MOST_PROCESSES = 256
_COMPRESSIONS: dict[str, Compression] = {"gzip": "GZIP", "zstd": "ZSTD", "none": "NONE"}


def stage_items(
    source: Iterable[Item] | Source,
    to: str,
    *,
    table: Any,
    processes: int | None = None,
    compression: Literal["gzip", "zstd", "none"] = "gzip",
    on_error: OnError = "raise",
    work_dir: str | os.PathLike[str] | None = None,
    s3: Any = None,
    connect: Connect | None = None,
    dry_run: bool = False,
    progress: Callable[[StageProgress], object] | None = None,
) -> StageReport:
    """Write the items of a source to S3 as DynamoDB JSON, sharded and in mixed order, for an import into a table.

    Example:
        orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=10))
        source = open_source("orders.csv", table=orders)
        print(stage_items(source, "s3://bucket/orders", table=orders, processes=8))

    The items are in the order of a hash of their primary key, so that the import writes to all partitions at once. Of
    several items with the same primary key, the last one in the source is staged. Each item is checked as
    ``bulk_load`` checks it, and for what DynamoDB would refuse.

    The objects are below ``data/``, and ``manifest.json`` is written last: without it, the stage is not complete, and
    cannot be imported. If the call is stopped for whatever reason, the same call goes on where it stopped, if the
    source is files. Of an iterable, a frame or a pipe it starts anew, and refuses what was uploaded before. If
    the stage is complete already, the same call only checks the objects.

    Args:
        source: The items: what ``bulk_load`` takes, an iterable, a frame, or a source (``open_source``).
        to: ``s3://bucket/prefix``, with no other objects below ``prefix/data/``.
        table: A ``ShardedTable``, or a boto3 ``Table`` (its keys are written unchanged). If the table does not exist
            yet, give the ``ShardedTable`` the arguments of CreateTable as ``key_schema=``.
        processes: Processes that read, sort, compress and upload, at most 256. Call it under
            ``if __name__ == "__main__":``. Defaults to this process alone. Items that are not in files, and those of a
            single compressed file, are read in this process; so are all if the strategy has a function that cannot be
            pickled.
        compression: Of the objects.
        on_error: ``"raise"`` stages nothing if there are items that cannot be staged; all items are read first.
            ``"collect"`` leaves them out, and only reports them.
        work_dir: The folder in which a folder for temporary files is made: about the bytes of the items as DynamoDB
            JSON. Defaults to the system's folder for temporary files, which may be in memory.
        s3: The boto3 S3 client. By default one is created from the environment.
        connect: Creates the S3 client of each process: a function without arguments at the top level of a module. By
            default it has the region, endpoint and configuration of ``s3``, and the credentials that boto3 finds.
        dry_run: Read and check all items, and report what a stage would take; write nothing. Of the items with the same
            primary key, it finds only those within a part of a file.
        progress: Called now and then, with how far it is.

    Returns:
        The report.

    Raises:
        ConfigurationError: An argument is invalid, there are no items, or ``work_dir`` is in use by the same stage.
        StagingError: Items cannot be staged (``report`` has them), S3 refuses a request, the disk is full, or ``to``
            holds other objects. No manifest is written.
        StageError: The table is between the stages of a ``Resharding``.

    Cost: one PutObject per 100 MB of DynamoDB JSON and one for the manifest; two ListObjectsV2 per 1,000 objects; one
        DescribeTable, unless ``key_schema=`` was given. 18 µs of CPU per item of 270 bytes. Memory: 200 MB per process.
    IAM: ``s3:PutObject``, ``s3:GetObject``, ``s3:ListBucket``; ``dynamodb:DescribeTable``.
    Source: "DynamoDB data import from Amazon S3", Developer Guide.
    """
    check_items(source, "source")
    if hasattr(source, "__aiter__") and not hasattr(source, "__iter__"):
        raise ConfigurationError(
            f"source: {type(source).__name__} is an async iterable, which is not supported; give a list, or a file"
        )
    folder = S3Folder.of(to, "to")
    if processes is not None:
        check_count("processes", processes, "processes", most=_MOST_PROCESSES, why="each is a Python of its own")
    check_choice("compression", compression, tuple(_COMPRESSIONS))
    check_choice("on_error", on_error, get_args(OnError))
    check_progress(progress)
    sharding, definition = _target(table)
    if s3 is None:
        import boto3  # noqa: PLC0415 - not before the arguments are checked

        s3 = boto3.client("s3")
    plan = StagePlan(
        source=as_source(source),
        folder=folder,
        sharding=sharding,
        definition=definition,
        s3=s3,
        compression=_COMPRESSIONS[compression],
        on_error=on_error,
        work_dir=work_dir,
        progress=progress or (lambda _: None),
    )
    with Tasks(processes, "the stage", connect) if processes else nullcontext() as tasks:
        return run_dry(plan, tasks) if dry_run else run_stage(plan, tasks)


def _target(table: Any) -> tuple[Sharding, Mapping[str, Any]]:
    """Return the sharding that the items are written with, and CreateTable's arguments of the table."""
    runner = runner_of(table)
    programs = runner.programs
    sharding = runner.run(programs.known())
    sharding.refuse_if_moving("stage_items()", "stage the items in stage 'old' or 'new'")
    if sharding.placed is not sharding:
        raise ConfigurationError(
            f"table: {programs.table!r} is in stage 'guard' of a Resharding, which is not supported; stage the items "
            "in stage 'old' or 'new'"
        )
    description = programs.given
    if description is None:
        description = runner.client.describe_table(TableName=programs.table)["Table"]
    return sharding, definition_of(description)
