"""What mypy and pyright find in code that uses the async ShardedTable; the same with and without the stubs of boto3."""
# pyright: reportUnknownMemberType=false
# A misspelt method also has an unknown type: the first error is enough.

from __future__ import annotations

from typing import Any, assert_type

from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix
from shardkit.aio import ShardedTable

KEY = {"Date": "2014-07-09", "OrderId": "A17"}


async def found(client: Any) -> None:
    orders = ShardedTable(client, CalculatedSuffix("OrderId", shards=200), table_name="Orders")
    assert_type((await orders.query(KeyConditionExpression=Key("Date").eq("d")))["Items"], list[dict[str, Any]])
    assert_type((await orders.get_item(Key=KEY)).get("Item"), dict[str, Any] | None)
    assert_type((await orders.transact_get_items(TransactItems=[{"Get": {"Key": KEY}}]))["Responses"][0].get("Item"),
                dict[str, Any] | None)  # fmt: skip
    assert_type(await orders.item_count, int)
    assert_type(orders.table_name, str)
    async with orders.query_items(KeyConditionExpression=Key("Date").eq("d"), max_items=5) as items:
        assert [item["OrderId"] async for item in items]
    async with orders.batch_writer() as batch:
        await batch.put_item(Item=KEY)


async def misspelt(orders: ShardedTable) -> None:
    await orders.qurey()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    await orders.query(Limt=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.scan_items(Limt=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    (await orders.query())["Itmes"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]


async def not_awaited(orders: ShardedTable) -> None:
    orders.query()["Items"]  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
