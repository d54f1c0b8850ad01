"""A function that takes a TableLike; the same with and without the stubs of boto3."""
# pyright: reportUnknownMemberType=false
# A misspelt method also has an unknown type: the first error is enough.

from __future__ import annotations

from typing import Any, assert_type

from boto3.dynamodb.conditions import Key

from shardkit import ShardedTable, TableLike
from shardkit.aio import ShardedTable as AsyncShardedTable


def total(table: TableLike, day: str) -> int:
    page = table.query(KeyConditionExpression=Key("Date").eq(day))
    assert_type(page["Items"], list[dict[str, Any]])
    table.update_item(
        Key={"Date": day, "OrderId": "sum"},
        UpdateExpression="SET Total = :t",
        ExpressionAttributeValues={":t": 1},
    )
    with table.batch_writer(overwrite_by_pkeys=["Date", "OrderId"]) as batch:
        batch.put_item({"Date": day, "OrderId": table.name})
        batch.delete_item(Key={"Date": day, "OrderId": "A17"})
    return sum(int(item["Total"]) for item in page["Items"])


def takes_a_sharded_table(orders: ShardedTable) -> None:
    total(orders, "2014-07-09")
    total(orders.with_options(timeout=0.2), "2014-07-09")


def takes_no_other(orders: AsyncShardedTable) -> None:
    total(orders, "2014-07-09")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    total("Orders", "2014-07-09")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def has_what_both_have(table: TableLike) -> None:
    table.qurey()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    table.query(Limt=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    table.query(ReturnShards=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    table.query()["Shards"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    table.query_items()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
