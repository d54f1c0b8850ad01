"""spark.write: rows of a frame become items, whatever their order, and whatever becomes of tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable, Strategy
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


def stored(table: Table, strategy: Strategy) -> list[tuple[str, int, int]]:
    items = ShardedTable(table, strategy).scan_items()
    return sorted((str(item["Date"]), int(item["OrderId"]), int(item["Version"])) for item in items)


@pytest.mark.parametrize("strategy", [BY_ID, RandomSuffix(4)])
def test_rows_become_items(spark: Any, table: Table, connect: Connect, strategy: Strategy) -> None:
    """The last version of each key wins, over all partitions of the frame; a repeated write makes no copies."""
    frame = orders(spark, (0, 600, 2), (300, 900, 1))
    wanted = sorted((f"D{number % 10}", number, 2 if number < 600 else 1) for number in range(900))
    for _ in range(2):
        report = write(
            frame, table=table.name, strategy=strategy, tasks=3, last_by="Version", connect=connect, load_id="monday"
        )
        assert (report.items, report.written + report.duplicates, report.failed, report.tasks) == (1200, 1200, 0, 3)
        assert report.duplicates >= 280  # the others were in flight already
        assert [part.part for part in report.parts] == [0, 1, 2]
        assert stored(table, strategy) == wanted
