"""shardkit.spark.read: logical items as rows, on each PySpark, from dynoxide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, Resharding, ShardedTable, SharedBudget, bulk_load
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

Connect = Callable[[], "DynamoDBServiceResource"]

STRATEGY = CalculatedSuffix("OrderId", shards=4)


@pytest.fixture
def orders(resource: DynamoDBServiceResource) -> ShardedTable:
    return ShardedTable(make_table(resource, ("Date", "S"), ("OrderId", "S")), STRATEGY)


@pytest.fixture(autouse=True)
def zone(spark: Any) -> Iterator[None]:
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def days(count: int) -> list[dict[str, Any]]:
    return [
        {"Date": f"2014-07-{number % 7 + 1:02}", "OrderId": f"A{number:04}", "Total": Decimal(number) / 4}
        for number in range(count)
    ]


def test_all_items_once(spark: Any, connect: Connect, orders: ShardedTable) -> None:
    from shardkit.spark import read

    items = days(3000)
    bulk_load(orders, items)
    schema = "OrderId string, Total decimal(10,2), Date string"
    frame = read(spark, table=orders.name, strategy=STRATEGY, schema=schema, segments=3, connect=connect)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.columns == ["OrderId", "Total", "Date"]
    rows = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["OrderId"])
    assert rows == items
    # Each action reads the table as it then is.
    orders.delete_item(Key={"Date": items[0]["Date"], "OrderId": items[0]["OrderId"]})
    assert frame.count() == 2999


def test_keys(spark: Any, connect: Connect, orders: ShardedTable) -> None:
    from shardkit.spark import read

    items = days(700)
    bulk_load(orders, items)
    wanted = ["2014-07-03", "2014-07-05", "2014-07-03", "2014-07-31"]
    frame = read(spark, table=orders.name, strategy=STRATEGY, keys=wanted, connect=connect, read_units=10_000)
    assert frame.dtypes == [("Date", "string"), ("OrderId", "string"), ("Total", "decimal(38,18)")]
    rows = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["OrderId"])
    assert rows == [item for item in items if item["Date"] in wanted]


def test_tasks_share_a_budget(
    spark: Any, connect: Connect, orders: ShardedTable, resource: DynamoDBServiceResource
) -> None:
    from shardkit.spark import read

    bulk_load(orders, days(50))
    budgets = make_table(resource, ("Name", "S"))
    budget = SharedBudget(budgets, "Orders", read_units=5000)
    frame = read(spark, table=orders.name, strategy=STRATEGY, schema="Date string", read_units=budget, connect=connect)
    assert frame.count() == 50
    assert [item["Name"] for item in budgets.scan()["Items"]] == ["Orders"]


EVERYTHING: dict[str, Any] = {
    "Date": "2014-07-09",
    "OrderId": "A1",
    "Long": -(2**63),
    "Exact": Decimal("12345678901234567890.123456789012345678"),
    "Digits": Decimal("1E+40"),
    "Half": Decimal("0.5"),
    "Bytes": b"\x00\xff",
    "Yes": True,
    "Texts": {"b", "a"},
    "Numbers": {Decimal(2), Decimal("1.5")},
    "Blobs": {b"y", b"x"},
    "List": [Decimal(1), None, Decimal(2)],
    "Map": {"a": Decimal(1), "b": None},
    "Deep `quoted`": {"in side": [{"x": True}], "no": None},
    "Nothing": None,
    "Day": "2014-07-09",
    "At": "2014-07-09T01:02:03.000004+02:00",
    "Local": "2014-07-09T01:02:03",
}


def test_types_of_a_schema(spark: Any, connect: Connect, orders: ShardedTable) -> None:
    from shardkit.spark import read

    orders.put_item(Item=EVERYTHING)
    schema = (
        "Long bigint, Exact decimal(38,18), Digits string, Half double, Bytes binary, Yes boolean, "
        "Texts array<string>, Numbers array<decimal(3,1)>, Blobs array<binary>, List array<int>, "
        "Map map<string, smallint>, `Deep ``quoted``` struct<`in side`: array<struct<x: boolean>>, no: string>, "
        "Nothing date, Missing float, Day date, At timestamp, Local timestamp_ntz"
    )
    given = spark.createDataFrame([], schema).schema  # the same as a StructType
    for one, zone in ((schema, "UTC"), (given, "America/New_York")):
        spark.conf.set("spark.sql.session.timeZone", zone)
        frame = read(spark, table=orders.name, strategy=STRATEGY, schema=one, segments=1, connect=connect)
        (row,) = frame.collect()
        shown = row.asDict(recursive=True)
        at = shown.pop("At").astimezone(UTC)
        assert at == datetime(2014, 7, 8, 23, 2, 3, 4, tzinfo=UTC)
        assert shown == {
            "Long": -(2**63),
            "Exact": Decimal("12345678901234567890.123456789012345678"),
            "Digits": "1" + "0" * 40,
            "Half": 0.5,
            "Bytes": b"\x00\xff",
            "Yes": True,
            "Texts": ["a", "b"],
            "Numbers": [Decimal("1.5"), Decimal(2)],
            "Blobs": [b"x", b"y"],
            "List": [1, None, 2],
            "Map": {"a": 1, "b": None},
            "Deep `quoted`": {"in side": [{"x": True}], "no": None},
            "Nothing": None,
            "Missing": None,
            "Day": date(2014, 7, 9),
            "Local": datetime(2014, 7, 9, 1, 2, 3),  # noqa: DTZ001 - without a time zone
        }


def test_types_of_a_sample(spark: Any, connect: Connect, orders: ShardedTable) -> None:
    from shardkit.spark import read

    orders.put_item(Item={name: value for name, value in EVERYTHING.items() if name != "Digits"})
    frame = read(spark, table=orders.name, strategy=STRATEGY, connect=connect)
    assert dict(frame.dtypes) == {
        "Date": "string",
        "OrderId": "string",
        "Long": "bigint",
        "Exact": "decimal(38,18)",
        "Half": "decimal(38,18)",
        "Bytes": "binary",
        "Yes": "boolean",
        "Texts": "array<string>",
        "Numbers": "array<decimal(38,18)>",
        "Blobs": "array<binary>",
        "List": "array<bigint>",
        "Map": "struct<a:bigint,b:string>",
        "Deep `quoted`": "struct<in side:array<struct<x:boolean>>,no:string>",
        "Nothing": "string",
        "Day": "string",
        "At": "string",
        "Local": "string",
    }
    (row,) = frame.collect()
    assert row.asDict(recursive=True)["Deep `quoted`"] == {"in side": [{"x": True}], "no": None}


def test_a_value_that_does_not_fit_is_named(spark: Any, connect: Connect, orders: ShardedTable) -> None:
    from shardkit.spark import read

    orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A1", "Total": 2**31})
    frame = read(spark, table=orders.name, strategy=STRATEGY, schema="Total int", connect=connect)
    with pytest.raises(Exception, match=r"InvalidValueError: item .*'OrderId': 'A1'.*: column 'Total' holds"):
        frame.collect()


def test_keys_of_sharded_indexes_are_hidden(spark: Any, connect: Connect, resource: DynamoDBServiceResource) -> None:
    from shardkit.spark import read

    index = GlobalIndex("by-status", ("status-key", "S"))
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[index])
    indexes = {"by-status": CalculatedSuffix("OrderId", shards=3, source="status")}
    orders = ShardedTable(table, RandomSuffix(3), indexes=indexes)
    orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A1", "status": "open"})
    assert "status-key" in table.scan()["Items"][0]
    frame = read(spark, table=table.name, strategy=RandomSuffix(3), indexes=indexes, connect=connect)
    assert [row.asDict() for row in frame.collect()] == [{"Date": "2014-07-09", "OrderId": "A1", "status": "open"}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schema": "Total interval day"}, "schema: column 'Total' is of type interval day"),
        ({"schema": ["Date", "Total"]}, "schema: must be DDL text or a StructType"),
        ({"schema": "Total map<int, string>"}, "schema: column 'Total' is of type map"),
        ({}, "schema: there are no items to infer it from"),
        ({"segments": 0}, "parts: must be"),
        ({"read_units": 0, "schema": "Total int"}, "read_units: must be"),
        ({"keys": "2014-07-09"}, "keys: must be a list"),
        (
            {"strategy": Resharding(STRATEGY, CalculatedSuffix("OrderId", shards=8), stage="move")},
            "a read in parts: not possible in stage 'move'",
        ),
    ],
)
def test_refused_before_anything_is_read(
    options: dict[str, Any], says: str, spark: Any, connect: Connect, orders: ShardedTable
) -> None:
    from shardkit.spark import read

    with pytest.raises(ValueError) as caught:
        read(spark, **{"table": orders.name, "strategy": STRATEGY, "connect": connect, **options})
    assert says in str(caught.value)
