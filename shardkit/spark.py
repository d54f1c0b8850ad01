"""Write a Spark DataFrame into a sharded table.

PySpark 3.5 or newer. It is in no extra, because the platform (Glue, EMR, Databricks) brings its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from shardkit.bulk.load_machine import WINDOW, check_choice
from shardkit.errors import ConfigurationError, brief
from shardkit.parts import PartConfig, PartReport, PartsReport, merge, write_part
from shardkit.runtime.processes import Connect
from shardkit.runtime.transports import Transport
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Strategy

__all__ = ["SparkReport", "write"]

_KEY_COLUMNS = {
    "S": {"string", "char", "varchar", "date", "timestamp", "timestamp_ntz", "time"},
    "N": {"byte", "short", "integer", "long", "float", "double", "decimal"},
    "B": {"binary"},
}
_COLUMNS = set().union(*_KEY_COLUMNS.values(), {"boolean", "void", "array", "map", "struct"})


@dataclass(frozen=True, slots=True)
class SparkReport(PartsReport):
    """The report of :func:`write`: a ``PartsReport`` with the number of planned ``tasks`` (None: one a partition)."""

    tasks: int | None = None


def write(
    df: Any,
    *,
    table: str,
    strategy: Strategy,
    tasks: int | None = None,
    write_units: float | str | None = None,
    load_id: str | None = None,
    last_by: str | Sequence[Any] | None = None,
    mix: bool = True,
    connect: Connect | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    dead_letters: str | os.PathLike[str] | None = None,
    on_error: Literal["raise", "collect"] = "raise",
    window: int = WINDOW,
    indexes: Mapping[str, Strategy] | None = None,
    transport: Transport | None = None,
    workers: int | None = None,
) -> SparkReport:
    """Write the rows of a DataFrame as items, mixed over the table's partitions, and return a report.

    Rows are shuffled by their primary key, so that all writes of a key meet in one task and tasks write all keys at
    once, in any order of the source. A task that is repeated puts each item where the first attempt put it.

    Example:
        report = shardkit.spark.write(df, table="Orders", strategy=CalculatedSuffix("OrderId", shards=10),
                                      last_by="UpdatedAt", write_units=4000)

    Args:
        df: A DataFrame with a column per attribute. Its keys must be the same whenever a task is repeated: write a
            frame with ``uuid()`` or ``rand()`` to storage first.
        table: The table's name.
        strategy: How the items are spread, as for ``ShardedTable``.
        tasks: The number of tasks. Defaults to ``sparkContext.defaultParallelism``, the cores of the cluster. Required
            where there is no sparkContext: with Spark Connect and on serverless platforms.
        write_units: Write units per second for the table and for each index; each task gets an equal share. Or a
            percentage of the table's throughput, such as ``"80%"``. By default no limit.
        load_id: Identifies the write: repeated with the same one, it puts items with random suffixes in the same
            shards. In ``foreachBatch``: ``f"{query}-{batch_id}"``. Drawn by default.
        last_by: A column, or several, by which the writes of one key are ordered: the largest wins, and null is the
            smallest. For the smallest, give ``col("…").desc()``. Without it, any of them wins.
        mix: Shuffle the rows. False writes the partitions of ``df`` as they are: only if they are mixed, and each key
            has one row.
        connect: Creates the client of the driver and of each task: a function without arguments. By default
            each client has the region and the endpoint of the driver's, and the credentials that boto3 finds.
        checkpoint: A folder that all tasks reach, or ``s3://bucket/prefix``. A write that is repeated with the same one
            skips the tasks that were done.
        dead_letters: A folder or ``s3://bucket/prefix`` for items that fail: one file per task and attempt.
        on_error: ``"raise"`` raises BulkLoadError after all tasks if items failed. ``"collect"`` reports them only.
        window: Items per task that wait to be interleaved, at most 10,000,000.
        indexes: The strategies of sharded indexes, as for ``ShardedTable``.
        transport: As for ``ShardedTable``. Defaults to ``"direct"`` where shardkit creates the client and the extra is
            installed in the tasks.
        workers: Batches in flight at once per task, at most 1,000. Defaults to the client's ``max_pool_connections``.

    Returns:
        A report, with a ``PartReport`` per task. An empty frame has no tasks.

    Raises:
        ConfigurationError: An argument does not fit the frame, the table or the cluster. Nothing is written.
        BulkLoadError: Tasks stopped (no access, endless throttles), or items failed. All other tasks have ended.

    Cost: as ``bulk_load`` for each task; one DescribeTable, and one per task. Attempts that are killed also write.
        Memory: the JSON of the window's items per task.
    IAM: ``dynamodb:BatchWriteItem``, ``dynamodb:PutItem`` and ``dynamodb:DescribeTable``; with S3, ``s3:GetObject``,
        ``s3:ListBucket`` and ``s3:PutObject``.
    Source: the guide, "Distribute Write Activity During Data Upload"; Spark, "Apache Arrow in PySpark".
    """
    check_choice("on_error", on_error, ("raise", "collect"))
    order = _ordered(df, last_by)
    _check_mix(mix, order=order, tasks=tasks, write_units=write_units, checkpoint=checkpoint)
    _check_speculation(df, write_units, order)
    if tasks is None and mix:
        tasks = _default_tasks(df)
    config = PartConfig(
        table=table,
        strategy=strategy,
        parts=tasks,
        indexes=indexes,
        load_id=load_id,
        write_units=write_units,
        connect=connect,
        transport=transport,
        workers=workers,
        window=window,
        checkpoint=checkpoint,
        dead_letters=dead_letters,
    )
    _check_pickles(config)
    config = config.prepared()
    sharding = config.sharding
    _check_columns(df, sharding)
    rows = _mixed(df, sharding.keys.names, order, tasks) if mix else df

    def written(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - in a task
        from pyspark import TaskContext  # noqa: PLC0415 - in a task

        context = TaskContext.get()
        report = write_part(batches, config, part=context.partitionId(), attempt=context.attemptNumber())
        yield pa.RecordBatch.from_pydict({"report": [report.to_json().decode()]})

    merged = merge(PartReport.from_json(row.report) for row in rows.mapInArrow(written, "report string").collect())
    report = SparkReport(**{one.name: getattr(merged, one.name) for one in fields(merged)}, tasks=tasks)
    report.raise_failures(collect=on_error == "collect")
    return report


def _column(name: str) -> Any:
    from pyspark.sql import functions  # noqa: PLC0415 - the platform's

    return functions.col(f"`{name.replace('`', '``')}`")


def _ordered(df: Any, last_by: str | Sequence[Any] | None) -> list[Any]:
    """Return the columns that order the writes of a key."""
    given = [] if last_by is None else [last_by] if isinstance(last_by, str) else last_by
    if not isinstance(given, list | tuple):
        given = [given]
    for one in given:
        if isinstance(one, str) and one not in df.columns:
            raise ConfigurationError(
                f"last_by: {one!r} is not a column of the frame (it has {', '.join(df.columns)!s:.300}); give one that "
                'is, or an expression such as pyspark.sql.functions.col("…").desc()'
            )
    return [_column(one) if isinstance(one, str) else one for one in given]


def _check_mix(mix: object, *, order: Sequence[Any], tasks: Any, write_units: Any, checkpoint: Any) -> None:
    if mix is True:
        return
    if mix is not False:
        raise ConfigurationError(f"mix: must be True or False, got {brief(mix)}")
    if order:
        raise ConfigurationError("last_by: needs mix=True, which brings all rows of a key into one task")
    if checkpoint is not None:
        raise ConfigurationError("checkpoint: needs mix=True, which gives a task the same rows in every run")
    if write_units is not None and tasks is None:
        raise ConfigurationError(
            "tasks: must be given with mix=False and write_units, of which each task gets an equal share; give the "
            "number of the frame's partitions"
        )


def _check_speculation(df: Any, write_units: Any, order: Sequence[Any]) -> None:
    if str(df.sparkSession.conf.get("spark.speculation", "false")).lower() != "true":
        return
    if write_units is not None:
        raise ConfigurationError(
            "write_units: is not kept with spark.speculation, which runs a task twice at once; set "
            "spark.speculation to false"
        )
    if order:
        raise ConfigurationError(
            "last_by: is not kept with spark.speculation, because two attempts of a task write the same keys at once; "
            "set spark.speculation to false"
        )


def _default_tasks(df: Any) -> int:
    try:
        return int(df.sparkSession.sparkContext.defaultParallelism)
    except Exception as error:
        raise ConfigurationError(
            "tasks: must be given, because this session has no sparkContext (Spark Connect, serverless) that "
            "would tell how many run at once"
        ) from error


def _check_pickles(config: PartConfig) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415 - the platform's

    try:
        cloudpickle.dumps(config)
    except Exception as error:
        raise ConfigurationError(
            f"connect: or a function of the strategy cannot be sent to tasks ({error}); give functions that create "
            "what they need (clients, locks) themselves"
        ) from error


def _check_columns(df: Any, sharding: Sharding) -> None:
    names = df.columns
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"df: has several columns {twice[0]!r}; rename or drop one")
    types = {field.name: field.dataType for field in df.schema.fields}
    for name in sharding.keys.names:
        if name not in types:
            raise ConfigurationError(
                f"df: has no column {name!r}, a key attribute of table {sharding.table!r} (it has "
                f"{', '.join(names)!s:.300}); rename a column"
            )
        wanted, kind = sharding.types.get(name, "S"), types[name].typeName()
        if kind not in _KEY_COLUMNS[wanted]:
            raise ConfigurationError(
                f"df: column {name!r} is of type {types[name].simpleString()}, and this key attribute of table "
                f"{sharding.table!r} is of type {wanted}; cast the column"
            )
    if missing := [name for name in sharding.strategy.by_attributes or () if name not in types]:
        raise ConfigurationError(
            f"by: {missing[0]!r} is not a column of the frame (it has {', '.join(names)!s:.300}), and shards are "
            "calculated from it; add the column"
        )
    for name, kind in types.items():
        _check_type(name, kind)


def _check_type(name: str, kind: Any) -> None:
    """Refuse a column whose values cannot be attributes."""
    if kind.typeName() not in _COLUMNS or (
        getattr(kind, "keyType", None) is not None and kind.keyType.typeName() != "string"
    ):
        raise ConfigurationError(
            f"df: column {name!r} has the type {kind.simpleString()!s:.200}, which DynamoDB cannot hold; cast or drop "
            "the column (the keys of a map must be strings)"
        )
    for member in (getattr(kind, "elementType", None), getattr(kind, "valueType", None)):
        if member is not None:
            _check_type(name, member)
    for field in getattr(kind, "fields", ()):
        _check_type(f"{name}.{field.name}", field.dataType)


def _mixed(df: Any, keys: Sequence[str], order: Sequence[Any], tasks: int | None) -> Any:
    """Return the rows in as many partitions as tasks, all of a key together, in the order of a hash."""
    from pyspark.sql import functions  # noqa: PLC0415 - the platform's

    kinds = {field.name: field.dataType.typeName() for field in df.schema.fields}
    # 0.0 and -0.0 are one number, with two hashes.
    columns = [_column(name) + 0.0 if kinds[name] in {"float", "double"} else _column(name) for name in keys]
    # Two hashes: rows of a task that are sorted by the one that chose it would come in the same order in every task.
    return df.repartition(tasks, functions.xxhash64(*columns)).sortWithinPartitions(functions.hash(*columns), *order)
