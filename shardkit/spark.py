"""Write a Spark DataFrame into a sharded table, or read a table as a DataFrame.

PySpark 3.5 or newer. It is in no extra, because the platform (Glue, EMR, Databricks) brings its own. shardkit and
pyarrow must be installed where the tasks run, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

from shardkit.bulk.load_machine import WINDOW, check_choice
from shardkit.capacity.shared_budget import SharedBudget
from shardkit.core.checks import check_count
from shardkit.errors import ConfigurationError, brief
from shardkit.parts import PartConfig, PartReport, PartsReport, merge, write_part
from shardkit.parts.write import MOST_PARTS
from shardkit.read_parts import ReadConfig, read_part
from shardkit.runtime.processes import Connect
from shardkit.runtime.transports import Transport
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Strategy

__all__ = ["SparkReport", "read", "write"]

_log = logging.getLogger("shardkit")

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
    write_units: float | str | SharedBudget | None = None,
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
        tasks: The number of tasks, at most 100,000. Defaults to ``sparkContext.defaultParallelism``, the cores of the
            cluster. Required where there is no sparkContext: with Spark Connect and on serverless platforms.
        write_units: Write units per second for the table and for each index; each task gets an equal share. Or a
            percentage of the table's throughput, such as ``"80%"``; or a ``SharedBudget``, whose rate the tasks that
            run share with all others that use it. By default no limit.
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
    if tasks is not None:
        check_count("tasks", tasks, "tasks", most=MOST_PARTS)
    order = _ordered(df, last_by)
    _check_mix(mix, order=order, tasks=tasks, write_units=write_units, checkpoint=checkpoint)
    _check_speculation(
        df.sparkSession, write_units=None if isinstance(write_units, SharedBudget) else write_units, last_by=order
    )
    if tasks is None and mix:
        tasks = _slots(df.sparkSession, "tasks")
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
    config = config.described()
    sharding = config.sharding
    _check_columns(df, sharding)
    config = replace(config, divided_by=_divided_by(df, sharding.keys.names)).prepared()
    rows = _mixed(df, sharding.keys.names, order, tasks) if mix else df
    # mapInArrow does not quote the names of columns.
    names = df.columns
    rows = rows.toDF(*[f"c{number}" for number in range(len(names))])

    def written(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - in a task
        from pyspark import TaskContext  # noqa: PLC0415 - in a task

        context = TaskContext.get()
        named = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        report = write_part(named, config, part=context.partitionId(), attempt=context.attemptNumber())
        yield pa.RecordBatch.from_pydict({"report": [report.to_json().decode()]})

    merged = merge(PartReport.from_json(row.report) for row in rows.mapInArrow(written, "report string").collect())
    report = SparkReport(**{one.name: getattr(merged, one.name) for one in fields(merged)}, tasks=tasks)
    if report.duplicates and not order:
        unordered = (
            f"{report.duplicates:,} rows had the primary key of another row, and which of them was kept is not "
            "defined: give last_by"
        )
        report = replace(report, advice=(*report.advice, unordered))
    for advice in report.advice:
        _log.warning("the write into table %s: %s", table, advice)
    report.raise_failures(collect=on_error == "collect")
    return report


def read(
    session: Any,
    *,
    table: str,
    strategy: Strategy,
    keys: Sequence[Any] | None = None,
    segments: int | None = None,
    schema: Any = None,
    indexes: Mapping[str, Strategy] | None = None,
    read_units: float | SharedBudget | None = None,
    consistent_read: bool = False,
    connect: Connect | None = None,
) -> Any:
    """Read a sharded table as a data frame: one row per logical item.

    Example:
        orders = spark.read(session, table="Orders", strategy=CalculatedSuffix("OrderId", shards=10),
                            schema="Date string, OrderId string, Total decimal(12,2)")
        orders.groupBy("Date").sum("Total").show()

    The frame is lazy, and each action reads the table again, as it then is. A task that Spark retries or repeats reads
    its part again. If you use the frame more than once, write it to Parquet, or persist it.

    Args:
        session: The Spark session.
        table: The table's name.
        strategy: How the items are spread, as for ``ShardedTable``; no ``ShardMap``, and no ``Resharding`` between its
            stages.
        keys: Read only the items of these logical partition keys, each by a fan-out query. By default the whole table
            is scanned.
        segments: The number of tasks: segments of the scan, or groups of ``keys``. By default as many as the session
            runs at once (``defaultParallelism``); required with Spark Connect. More segments lose less when a task is
            retried.
        schema: The columns, as DDL text or a ``StructType``. Attributes of other names are not requested, and a missing
            attribute is null. By default inferred from up to 1,000 items. Types are checked: a number must fit its
            column exactly, except that ``double`` and ``float`` take the nearest. ``string`` takes text, or a number as
            it is stored; ``array`` takes lists and sets (sorted); ``date`` and ``timestamp`` take ISO 8601 text.
        indexes: The sharded indexes of the table, as for ``ShardedTable``; their key attributes are hidden.
        read_units: Read units per second of an action; each task gets an equal share, and leaves it unused while it
            waits for a slot. Or a ``SharedBudget``, whose rate the tasks that run share with all others that use it.
            By default no limit.
        consistent_read: Whether reads are strongly consistent, for twice the read units.
        connect: Creates the client of the driver and of each task: a function without arguments. By default
            each client has the region and the endpoint of the driver's, and the credentials that boto3 finds.

    Returns:
        A data frame. If a value does not fit its column, the action fails with an InvalidValueError in the task, which
        names the item's key and the column.

    Raises:
        ConfigurationError: An argument is invalid; a type of the schema has no values of DynamoDB; a sample has no
            items, or no type holds its values; ``read_units`` is given, and ``spark.speculation`` is on.

    Cost: each action takes the read units of the whole items: 0.5 per 4 KB, 1 if strongly consistent; fewer columns do
    not make it cheaper. This call takes one DescribeTable, and without a schema up to 1,000 items. Memory: about ten
    pages of 1 MB per task. IAM: ``dynamodb:DescribeTable`` and ``dynamodb:Scan``, or with ``keys`` ``dynamodb:Query``.
    """
    _check_speculation(session, read_units=None if isinstance(read_units, SharedBudget) else read_units)
    given = None if schema is None else _struct(session, schema)
    config = ReadConfig(
        table=table,
        strategy=strategy,
        parts=_slots(session, "segments") if segments is None else segments,
        keys=keys,
        schema=None if given is None else _arrow_schema(given),
        indexes=indexes,
        read_units=read_units,
        consistent_read=consistent_read,
        connect=connect,
    ).prepared()
    parts = session.range(0, config.parts, 1, config.parts)
    return parts.mapInArrow(partial(_read, config), _ddl(config.schema) if given is None else given)


def _read(config: ReadConfig, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for part in batch.column(0).to_pylist():
            yield from read_part(config, part=part)


def _column(name: str) -> Any:
    from pyspark.sql import functions  # noqa: PLC0415 - the platform's

    return functions.col(_quoted(name))


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
    if isinstance(write_units, float | int | str) and tasks is None:
        raise ConfigurationError(
            "tasks: must be given with mix=False and write_units, of which each task gets an equal share; give the "
            "number of the frame's partitions"
        )


def _check_speculation(session: Any, **options: object) -> None:
    """Refuse options that two attempts of a task at once would break."""
    given = [name for name, value in options.items() if value]
    if given and str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigurationError(
            f"{given[0]}: is not kept with spark.speculation, which runs a task twice at once; set spark.speculation "
            "to false"
        )


def _slots(session: Any, name: str) -> int:
    """Return how many tasks run at once."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception as error:
        raise ConfigurationError(
            f"{name}: must be given, because this session has no sparkContext (Spark Connect, serverless) that "
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


def _divided_by(df: Any, keys: Sequence[str]) -> str:
    # The hash of a number depends on its type.
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    return f"xxhash64({', '.join(f'{name} {types[name]}' for name in keys)})"


# Types of Spark and Arrow. In Spark's simple form, in which both a DDL text and a StructType have them.


def _struct(session: Any, schema: Any) -> Any:
    if isinstance(schema, str):
        return session.createDataFrame([], schema).schema  # parses DDL in every version, also over Spark Connect
    if not hasattr(schema, "fields"):
        raise ConfigurationError(
            f"schema: must be DDL text or a StructType, got {brief(schema)}; for example 'Date string, Total bigint'"
        )
    return schema


def _arrow_schema(struct: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - with Spark

    return pa.schema([_arrow_field(field.name, field.dataType, field.nullable) for field in struct.fields])


def _arrow_field(name: str, kind: Any, nullable: bool) -> Any:  # noqa: FBT001 - as pyarrow's own
    import pyarrow as pa  # noqa: PLC0415 - with Spark

    return pa.field(name, _arrow_type(name, kind), nullable)


def _arrow_type(name: str, kind: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - with Spark

    if kind.typeName() == "array":
        return pa.list_(_arrow_field("element", kind.elementType, kind.containsNull))
    if kind.typeName() == "struct":
        return pa.struct([_arrow_field(field.name, field.dataType, field.nullable) for field in kind.fields])
    if kind.typeName() == "map":
        value = _arrow_field("value", kind.valueType, kind.valueContainsNull)
        return pa.map_(_arrow_type(name, kind.keyType), value)
    if kind.typeName() == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    found = _arrow_scalars().get(kind.simpleString())
    if found is None:
        raise ConfigurationError(
            f"schema: column {name!r} is of type {kind.simpleString()}, which no value of DynamoDB has; give "
            f"{', '.join(_arrow_scalars())}, decimal, array, struct, or map with string keys"
        )
    return found


def _arrow_scalars() -> Mapping[str, Any]:
    import pyarrow as pa  # noqa: PLC0415 - with Spark

    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


def _ddl(schema: Any) -> str:
    return ", ".join(f"{_quoted(field.name)} {_ddl_type(field.type)}" for field in schema)


def _ddl_type(kind: Any) -> str:
    import pyarrow as pa  # noqa: PLC0415 - with Spark

    if pa.types.is_list(kind):
        return f"array<{_ddl_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {_ddl_type(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_ddl_type(kind.key_type)}, {_ddl_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next(name for name, known in _arrow_scalars().items() if known == kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
