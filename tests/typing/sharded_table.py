"""What mypy and pyright find in code that uses a ShardedTable; the same with and without the stubs of boto3."""
# pyright: reportUnknownMemberType=false
# A misspelt method also has an unknown type: the first error is enough.

from __future__ import annotations

from typing import Any, assert_type

from boto3.dynamodb.conditions import Attr, Key

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.table_types import TransactWriteItem

KEY = {"Date": "2014-07-09", "OrderId": "A17"}


def found(table: Any) -> None:
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=200))

    page = orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50, ReturnShards=True)
    assert_type(page["Items"], list[dict[str, Any]])
    assert_type(page["Count"], int)
    assert_type(page.get("LastEvaluatedKey"), dict[str, Any] | None)
    assert_type(page.get("Shards"), list[int | None] | None)
    assert_type(page.get("ShardErrors"), dict[int | None, Exception] | None)
    assert_type(orders.scan(FilterExpression=Attr("Total").gt(10))["Items"], list[dict[str, Any]])
    assert_type(orders.get_item(Key=KEY, ConsistentRead=True).get("Item"), dict[str, Any] | None)
    assert_type(orders.put_item(Item=KEY, ReturnValues="ALL_OLD")["Attributes"], dict[str, Any])
    assert_type(orders.delete_item(Key=KEY, ReturnShards=True).get("Shard"), int | None)
    assert_type(orders.batch_get_items([KEY], ConsistentRead=True)["UnprocessedKeys"], list[dict[str, Any]])
    assert_type(orders.item_count, int)
    assert_type(orders.with_options(timeout=0.2), ShardedTable)

    orders.query_items(KeyConditionExpression="#d = :d", ExpressionAttributeNames={"#d": "Date"}, max_items=5)
    orders.scan_items(segments=4, Limit=100)
    orders.update_item(Key=KEY, UpdateExpression="SET Total = :t", ExpressionAttributeValues={":t": 13})
    parts: list[TransactWriteItem] = [{"Put": {"Item": KEY}}, {"Delete": {"Key": KEY, "Shard": 5}}]
    orders.transact_write_items(TransactItems=parts, ClientRequestToken="one")
    responses = orders.transact_get_items(TransactItems=[{"Get": {"Key": key}} for key in [KEY]])["Responses"]
    assert_type(responses[0].get("Item"), dict[str, Any] | None)
    with orders.batch_writer() as batch:
        batch.put_item(Item=KEY)


def misspelt_methods(orders: ShardedTable) -> None:
    orders.qurey()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    orders.item_cuont  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    orders.batch_get_item  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def misspelt_keywords(orders: ShardedTable) -> None:
    orders.query(Limt=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.query_items(Limt=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.scan(Shard=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.scan_items(KeyConditionExpression="a = :a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.get_item(Key=KEY, ConsistantRead=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.get_item(Kye=KEY)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.put_item()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.put_item(Item=KEY, UpdateExpression="SET a = b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.update_item(Key=KEY, Update="SET a = b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.delete_item(Key=KEY, shard=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.batch_get_items([KEY], Limit=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.transact_get_items(TransactItem=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def wrong_values(orders: ShardedTable) -> None:
    orders.query(Limit="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.query(Select="ALL")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.put_item(Item=KEY, ReturnValues="OLD")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    parts: list[TransactWriteItem] = [{"Put": {"Itme": KEY}}]  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]
    orders.transact_write_items(TransactItems=parts)


def misspelt_response_keys(orders: ShardedTable) -> None:
    orders.query()["Itmes"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    orders.scan()["Shard"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    orders.get_item(Key=KEY)["Itme"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    orders.put_item(Item=KEY)["Items"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    orders.batch_get_items([KEY])["Item"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
