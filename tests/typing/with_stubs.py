"""What the stubs of boto3 add: their Table is a TableLike, and the parts of responses that boto3 defines are typed."""

from __future__ import annotations

from typing import assert_type

from mypy_boto3_dynamodb.service_resource import Table as OlderTable
from types_boto3_dynamodb import DynamoDBServiceResource
from types_boto3_dynamodb.type_defs import GetItemOutputTableTypeDef, QueryOutputTableTypeDef

from shardkit import CalculatedSuffix, ShardedTable, TableLike

KEY = {"Date": "2014-07-09", "OrderId": "A17"}


def count(table: TableLike) -> int:
    return table.scan(Select="COUNT")["Count"]


def takes_tables_of_the_stubs(resource: DynamoDBServiceResource, older: OlderTable) -> None:
    table = resource.Table("Orders")
    count(table)
    count(older)
    count(ShardedTable(table, CalculatedSuffix("OrderId", shards=200)))


def responses_are_those_of_the_stubs(orders: ShardedTable) -> None:
    page: QueryOutputTableTypeDef = orders.query()
    item: GetItemOutputTableTypeDef = orders.get_item(Key=KEY)
    assert page, item


def parts_of_responses(orders: ShardedTable) -> None:
    page = orders.query(ReturnConsumedCapacity="TOTAL")
    assert_type(page["ConsumedCapacity"].get("CapacityUnits"), float | None)
    assert_type(page["ResponseMetadata"]["HTTPStatusCode"], int)
    page["ConsumedCapacity"]["CapacityUnit"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
    orders.put_item(Item=KEY)["ResponseMetadata"]["Retries"]  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
