"""spark.write: rows of a frame become items, whatever their order, and whatever becomes of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    ShardedTable,
    SharedBudget,
    Strategy,
)
from shardkit.spark import write
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

BY_ID = CalculatedSuffix("OrderId", shards=4)
Connect = Callable[[], "DynamoDBServiceResource"]


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "N"))


@pytest.fixture
def written(table: Table, connect: Connect) -> Callable[..., Any]:
    """Writes a frame into the table."""
    return partial(write, table=table.name, strategy=BY_ID, connect=connect)


def orders(spark: Any, *ranges: tuple[int, int, int]) -> Any:
    """Orders of ten days; each range has a first number, an end, and a version."""
    from pyspark.sql import functions as f

    number, version = f.col("id"), f.col("version")
    made = [spark.range(*ends, 1, 3).withColumn("version", f.lit(one)) for *ends, one in ranges]
    rows = made[0] if len(made) == 1 else made[0].union(made[1])
    return rows.select(
        f.concat(f.lit("D"), (number % 10).cast("string")).alias("Date"),
        number.alias("OrderId"),
        version.alias("Version"),
    )


def stored(table: Table, strategy: Strategy = BY_ID) -> list[tuple[str, int, int]]:
    items = ShardedTable(table, strategy).scan_items()
    return sorted((str(item["Date"]), int(item["OrderId"]), int(item["Version"])) for item in items)


@pytest.mark.parametrize("strategy", [BY_ID, RandomSuffix(4)])
def test_rows_become_items(spark: Any, table: Table, written: Callable[..., Any], strategy: Strategy) -> None:
    """The last version of each key wins, over all partitions of the frame; a repeated write makes no copies."""
    frame = orders(spark, (0, 600, 2), (300, 900, 1))
    wanted = sorted((f"D{number % 10}", number, 2 if number < 600 else 1) for number in range(900))
    for _ in range(2):
        report = written(frame, strategy=strategy, tasks=3, last_by="Version", load_id="monday")
        assert (report.items, report.written + report.duplicates, report.failed, report.tasks) == (1200, 1200, 0, 3)
        assert report.duplicates >= 280  # the others were in flight already
        assert [part.part for part in report.parts] == [0, 1, 2]
        assert stored(table, strategy) == wanted


def test_which_write_of_a_key_is_the_last(spark: Any, table: Table, written: Callable[..., Any]) -> None:
    """Null is the smallest; of equal values the next column decides; an expression may turn the order round."""
    from pyspark.sql import functions as f

    rows = [("D1", 1, None, 9), ("D1", 1, "a", 1), ("D1", 1, "b", 2), ("D1", 1, "b", 3), ("D1", 1, "a", 4)]
    frame = spark.createDataFrame(rows, "Date string, OrderId int, At string, Version int").repartition(3)
    for last_by, version in [
        (["At", "Version"], 3),
        ([f.col("At").desc_nulls_last(), "Version"], 9),
        (f.col("Version").desc(), 1),
        ("Version", 9),
    ]:
        report = written(frame, last_by=last_by, tasks=2)
        assert (report.written, report.duplicates) == (1, 4)
        assert stored(table) == [("D1", 1, version)]
    assert written(frame, tasks=2).advice == (
        "4 rows had the primary key of another row, and which of them was kept is not defined: give last_by",
    )


@pytest.mark.parametrize(("count", "tasks"), [(30, 1), (2, 5), (0, 3)])
def test_as_many_tasks_as_asked_for(
    spark: Any, table: Table, written: Callable[..., Any], count: int, tasks: int
) -> None:
    report = written(orders(spark, (0, count, 1)), tasks=tasks)
    assert (report.written, report.tasks) == (count, tasks)
    assert len(report.parts) in {0, tasks}  # of an empty frame, Spark may start no task
    assert len(stored(table)) == count


def test_a_frame_that_is_mixed_already(spark: Any, table: Table, written: Callable[..., Any]) -> None:
    """Its partitions are written as they are."""
    report = written(orders(spark, (0, 90, 1)), mix=False)
    assert report.advice == ()
    assert [part.report.items for part in report.parts] == [30, 30, 30]
    assert report.tasks is None
    assert written(orders(spark, (0, 90, 2)), mix=False, tasks=3, write_units=3000).parts[0].limit == 1000
    with pytest.raises(Exception, match="part: must be from 0 to 1, because 2 parts were planned"):
        written(orders(spark, (0, 90, 3)), mix=False, tasks=2, write_units=3000)


def test_all_types_of_columns(spark: Any, resource: DynamoDBServiceResource, connect: Connect) -> None:
    table = make_table(resource, ("Id", "B"), ("At", "S"))
    frame = spark.sql(
        """
        SELECT X'00ff' AS Id, DATE'2014-07-09' AS At, TIMESTAMP'2014-07-09 12:00:00.5' AS T, true AS Yes,
               CAST(1.50 AS decimal(5,2)) AS D, 0.1D AS F, CAST(0.1 AS float) AS G, 7 AS N, NULL AS Void,
               CAST(NULL AS string) AS Missing, array('a', NULL) AS L, map('k', 1) AS M,
               named_struct('x', 1, 'y', CAST(NULL AS int), 'z', array(X'01')) AS S, '' AS Empty, 1 AS `a.b``c`
        """
    )
    report = write(frame, table=table.name, strategy=RandomSuffix(3), connect=connect, last_by="a.b`c")
    assert (report.written, report.failures) == (1, ())
    (item,) = ShardedTable(table, RandomSuffix(3)).scan_items()
    assert item == {
        "Id": b"\x00\xff", "At": "2014-07-09", "T": "2014-07-09T12:00:00.500000Z", "Yes": True, "D": Decimal("1.5"),
        "F": Decimal("0.1"), "G": Decimal("0.1"), "N": 7, "L": ["a", None], "M": {"k": 1},
        "S": {"x": 1, "z": [b"\x01"]}, "Empty": "", "a.b`c": 1,
    }  # fmt: skip


def test_rows_that_fail(spark: Any, table: Table, written: Callable[..., Any], tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    bad = f.when(f.col("OrderId") % 10 == 3, f.lit(float("nan"))).otherwise(f.lit(1.0))
    frame = orders(spark, (0, 100, 1)).withColumn("Price", bad)
    with pytest.raises(BulkLoadError, match=r"10 of 100 items were not written; .*'Price' holds.*NaN") as raised:
        written(frame, tasks=2)
    assert {failure.item.text for failure in raised.value.failed if "'OrderId': 13" in failure.item.text}
    report = written(frame, tasks=2, on_error="collect", dead_letters=tmp_path / "letters")
    assert (report.written, report.failed, len(stored(table))) == (90, 10, 90)
    lines = [line for one in report.parts for line in Path(str(one.dead_letters)).read_text("utf-8").splitlines()]
    assert len(lines) == 10
    assert {json.loads(line)["load"] for line in lines} == {report.load_id}


def test_a_write_that_is_repeated_skips_what_is_done(
    spark: Any, table: Table, written: Callable[..., Any], tmp_path: Path
) -> None:
    frame = orders(spark, (0, 300, 1))
    again = partial(written, frame, strategy=RandomSuffix(5), tasks=3, checkpoint=tmp_path)
    first = again()
    (tmp_path / "part-00001.json").unlink()
    second = again()
    assert second.load_id == first.load_id
    assert [part.resumed for part in second.parts] == [True, False, True]
    assert second.written + second.resumed == 300
    assert len(stored(table, RandomSuffix(5))) == 300
    third = again()
    assert (third.resumed, third.requests, third.at_once) == (300, 0, 0)
    with pytest.raises(ConfigurationError, match=r"checkpoint: .* is of another write: parts was 3, is 4"):
        again(tasks=4)
    # Hashes of another type are others: rows would move into tasks that are done, and be missing.
    cast = frame.withColumn("OrderId", frame.OrderId.cast("decimal(9,0)"))
    with pytest.raises(
        ConfigurationError, match=r"divided_by was .*, OrderId bigint\)', is .*, OrderId decimal\(9,0\)\)'"
    ):
        written(cast, strategy=RandomSuffix(5), tasks=3, checkpoint=tmp_path)


def elsewhere(endpoint: str) -> DynamoDBServiceResource:
    """The engine for the driver; for tasks, a place where nothing answers."""
    from pyspark import TaskContext

    url = endpoint if TaskContext.get() is None else "http://127.0.0.1:9"
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=1)
    return boto3.resource("dynamodb", endpoint_url=url, region_name="us-east-1", config=config)


def test_tasks_that_do_not_reach_the_table(spark: Any, table: Table, written: Callable[..., Any]) -> None:
    """Each of them stops; the driver says so once."""
    connect = partial(elsewhere, str(table.meta.client.meta.endpoint_url))
    with pytest.raises(BulkLoadError, match=r"^2 of 2 parts stopped; the first, part 0 on .*127.0.0.1:9") as raised:
        written(orders(spark, (0, 100, 1)), tasks=2, connect=connect, on_error="collect")
    assert raised.value.report is not None
    assert raised.value.report.written == 0
    assert stored(table) == []


def test_what_spark_raises_itself(spark: Any, table: Table, written: Callable[..., Any]) -> None:
    """An error of the frame fails the task, for Spark to retry: it is not taken for the end of its rows."""
    from pyspark.sql import functions as f

    fails = f.udf(lambda number: 1 // (90 - number), "int")
    with pytest.raises(Exception, match="division"):
        written(orders(spark, (0, 100, 1)).withColumn("Version", fails("OrderId")), tasks=1, window=10)


def test_a_stream_writes_each_batch(spark: Any, table: Table, written: Callable[..., Any], tmp_path: Path) -> None:
    """A batch that is repeated, as after a failure of the driver, makes no copies."""
    frame = orders(spark, (0, 60, 1))
    frame.write.json(str(tmp_path / "in"))
    reports = []

    def batch(rows: Any, number: int) -> None:
        for _ in range(2):
            reports.append(written(rows, strategy=RandomSuffix(7), load_id=f"orders-{number}", tasks=2))

    source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    query = source.writeStream.foreachBatch(batch).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "state")).start()
    query.awaitTermination()
    assert {report.load_id for report in reports} == {"orders-0", "orders-1", "orders-2"}
    assert len(stored(table, RandomSuffix(7))) == sum(report.items for report in reports) / 2 == 60


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("Date", {}, "df: has no column 'OrderId', a key attribute of table"),
        ("OrderId AS Date, OrderId", {}, "df: column 'Date' is of type bigint, .* is of type S; cast"),
        ("Date, Date AS OrderId", {}, "df: column 'OrderId' is of type string, .* is of type N"),
        ("Date, OrderId, OrderId", {}, "df: has several columns 'OrderId'"),
        ("*, INTERVAL 1 DAY AS I", {}, "df: column 'I' has the type interval day"),
        ("*, array(named_struct('a', INTERVAL 1 MONTH)) AS I", {}, "df: column 'I.a' has the type interval"),
        ("*, map(1, 2) AS M", {}, "df: column 'M' has the type map<int,int>.*keys of a map must be strings"),
        ("*", {"strategy": CalculatedSuffix(("Shop", "OrderId"), shards=2)}, "by: 'Shop' is not a column of the frame"),
        ("*", {"last_by": "At"}, "last_by: 'At' is not a column of the frame"),
        ("*", {"last_by": ["Version", "-Version"]}, "last_by: '-Version' is not a column of the frame"),
        ("*", {"last_by": "Version", "mix": False}, "last_by: needs mix=True"),
        ("*", {"checkpoint": "/tmp", "mix": False}, "checkpoint: needs mix=True"),  # noqa: S108 - never opened
        ("*", {"write_units": 100, "mix": False}, "tasks: must be given with mix=False and write_units"),
        ("*", {"mix": None}, "mix: must be True or False"),
        ("*", {"on_error": "ignore"}, "on_error: must be one of 'raise', 'collect'"),
        ("*", {"tasks": 0}, "tasks: must be"),
        ("*", {"load_id": 5}, "load_id: must be a text"),
        ("*", {"table": "Missing"}, "ResourceNotFound"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    spark: Any, table: Table, written: Callable[..., Any], columns: str, options: dict[str, Any], problem: str
) -> None:
    orders(spark, (0, 10, 1)).createOrReplaceTempView("orders")
    with pytest.raises(ConfigurationError, match=problem):
        written(spark.sql(f"SELECT {columns} FROM orders"), **options)  # noqa: S608 - of this file
    assert stored(table) == []


def test_a_function_that_cannot_travel(spark: Any, table: Table, written: Callable[..., Any]) -> None:
    client = boto3.client("dynamodb", region_name="us-east-1")
    with pytest.raises(ConfigurationError, match="connect: or a function of the strategy cannot be sent to tasks"):
        written(orders(spark, (0, 10, 1)), connect=lambda: client)


@pytest.mark.parametrize("options", [{"write_units": 100}, {"last_by": "Version"}])
def test_speculation(spark: Any, written: Callable[..., Any], options: dict[str, Any]) -> None:
    class Frame:
        """A frame of a session whose speculation is on: a running session's cannot be changed."""

        columns = ("Version",)
        sparkSession = SimpleNamespace(conf={"spark.speculation": "true"})  # noqa: N815 - Spark's name

    with pytest.raises(ConfigurationError, match=f"{next(iter(options))}: is not kept with spark.speculation"):
        written(Frame(), tasks=2, **options)


def test_tasks_share_a_budget(
    spark: Any, table: Table, written: Callable[..., Any], resource: DynamoDBServiceResource
) -> None:
    """It travels to them without its client; more tasks than run at once cost nothing."""
    budget = SharedBudget(make_table(resource, ("Name", "S")), "Orders", write_units=5000)
    report = written(orders(spark, (0, 300, 1)), tasks=3, write_units=budget)
    assert (report.written, report.advice) == (300, ())
    assert {part.limit for part in report.parts} == {None}
