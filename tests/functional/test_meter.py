from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from shardkit.capacity import CapacityMeter, Usage
from shardkit.runtime.hooks import prepare
from shardkit.runtime.own_call import OwnCall, visible

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient, DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    resource.create_table(
        TableName="Other",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return resource.create_table(
        TableName="Orders",
        AttributeDefinitions=[
            {"AttributeName": "Date", "AttributeType": "S"},
            {"AttributeName": "OrderId", "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": "Date", "KeyType": "HASH"},
            {"AttributeName": "OrderId", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


@pytest.fixture
def client(table: Table) -> DynamoDBClient:
    return boto3.client("dynamodb", region_name="us-east-1")


def test_a_table(resource: DynamoDBServiceResource, table: Table) -> None:
    meter = CapacityMeter()
    with meter.attach(table):
        seen: list[Any] = [
            table.put_item(Item={"Date": "2014-07-09", "OrderId": "A1", "Total": 12}),
            table.get_item(Key={"Date": "2014-07-09", "OrderId": "A1"}),
            table.query(KeyConditionExpression=Key("Date").eq("2014-07-09")),
            table.scan(),
        ]
        resource.Table("Other").put_item(Item={"pk": "x"})
    assert all("ConsumedCapacity" not in response for response in seen)
    assert seen[1]["Item"]["Total"] == 12
    assert meter.by_table.keys() == {"Orders"}
    assert meter.by_operation.keys() == {"PutItem", "GetItem", "Query", "Scan"}
    assert meter.requests == 4
    assert meter.write_units > 0
    assert meter.read_units > 0
    assert meter.by_key.keys() == {("Orders", "2014-07-09")}
    assert meter.by_key["Orders", "2014-07-09"].requests == 3


def test_what_was_reported_is_what_is_counted(table: Table) -> None:
    meter = CapacityMeter()
    with meter.attach(table), table.batch_writer() as writer:
        for number in range(40):
            writer.put_item(Item={"Date": f"2014-07-0{number % 3}", "OrderId": str(number)})
    reported = 0.0
    with meter.attach(table), meter.scope("asked") as used:
        for operation, params in (
            ("put_item", {"Item": {"Date": "d", "OrderId": "1"}}),
            ("update_item", {"Key": {"Date": "d", "OrderId": "1"}, "UpdateExpression": "SET a = :a",
                             "ExpressionAttributeValues": {":a": 1}}),
            ("delete_item", {"Key": {"Date": "d", "OrderId": "1"}}),
        ):  # fmt: skip
            response = getattr(table, operation)(ReturnConsumedCapacity="TOTAL", **params)
            reported += response["ConsumedCapacity"]["CapacityUnits"]
    assert used.write_units == reported > 0
    batches = meter.by_operation["BatchWriteItem"]
    assert batches.requests == 2
    keys = {key: usage for (_, key), usage in meter.by_key.items() if str(key).startswith("2014")}
    assert sum(usage.requests for usage in keys.values()) == 40
    assert sum(usage.estimated_write_units for usage in keys.values()) == (
        batches.write_units + batches.estimated_write_units
    )


def test_a_client(client: DynamoDBClient) -> None:
    meter = CapacityMeter()
    attachment = meter.attach(client, key_schema={"Orders": "Date"})
    silent: Any = client.put_item(TableName="Orders", Item={"Date": {"S": "d"}, "OrderId": {"S": "1"}})
    asking = client.get_item(
        TableName="Orders", Key={"Date": {"S": "d"}, "OrderId": {"S": "1"}}, ReturnConsumedCapacity="TOTAL"
    )
    client.put_item(TableName="Other", Item={"pk": {"S": "x"}})
    client.list_tables()
    for page in client.get_paginator("query").paginate(
        TableName="Orders",
        KeyConditionExpression="#d = :d",
        ExpressionAttributeNames={"#d": "Date"},
        ExpressionAttributeValues={":d": {"S": "d"}},
    ):
        assert "ConsumedCapacity" not in page
    assert "ConsumedCapacity" not in silent
    assert asking["ConsumedCapacity"]["TableName"] == "Orders"
    assert meter.by_table.keys() == {"Orders", "Other"}
    assert meter.by_key.keys() == {("Orders", "d")}
    assert meter.requests == 4
    attachment.detach()
    before = meter.total
    client.put_item(TableName="Other", Item={"pk": {"S": "x"}})
    assert meter.total == before


def test_the_callers_arguments_are_not_changed(client: DynamoDBClient) -> None:
    arguments: dict[str, Any] = {"TableName": "Other", "Item": {"pk": {"S": "x"}}}
    with CapacityMeter().attach(client):
        client.put_item(**arguments)
    assert arguments == {"TableName": "Other", "Item": {"pk": {"S": "x"}}}


def test_a_failed_condition_is_an_estimate(table: Table) -> None:
    meter = CapacityMeter()
    table.put_item(Item={"Date": "d", "OrderId": "1", "body": "x" * 2000})
    with meter.attach(table), pytest.raises(ClientError, match="ConditionalCheckFailed"):
        table.put_item(
            Item={"Date": "d", "OrderId": "1"},
            ConditionExpression=Attr("Date").not_exists(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert meter.total == Usage(estimated_write_units=2, requests=1)
    assert meter.by_key["Orders", "d"].estimated_write_units == 2


def test_a_table_whose_description_is_refused_has_no_keys(resource: DynamoDBServiceResource) -> None:
    missing = resource.Table("Missing")
    meter = CapacityMeter()
    with meter.attach(missing), pytest.raises(ClientError):
        missing.put_item(Item={"Date": "d"})
    assert meter.requests == 1
    assert meter.by_key == {}
    loaded_by_nobody = resource.Table("Missing")
    with meter.attach(loaded_by_nobody, key_schema={"Missing": "Date"}):
        pass


def test_threads(client: DynamoDBClient) -> None:
    meter = CapacityMeter()

    def write(number: int) -> None:
        client.put_item(TableName="Other", Item={"pk": {"S": str(number % 3)}})

    with meter.attach(client, key_schema={"Other": "pk"}), ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(30)))
        with meter.scope("copied") as copied:
            futures = [threads.submit(contextvars.copy_context().run, write, number) for number in range(30)]
            outside = [threads.submit(write, number) for number in range(10)]
            for future in futures + outside:
                future.result()
    assert (meter.requests, copied.requests) == (70, 30)
    assert sum(usage.requests for usage in meter.by_key.values()) == 70


def test_own_calls_show_nothing_that_was_not_asked_for(table: Table) -> None:
    meter = CapacityMeter()
    item = {"Date": {"S": "d"}, "OrderId": {"S": "1"}}
    prepare(table.meta.client)
    with meter.attach(table), OwnCall("PutItem", {"TableName": "Orders", "Item": item}, {}) as call:
        response = call.response(table.meta.client.put_item(**visible(call.params)))
    assert "ConsumedCapacity" not in response
    assert meter.by_key.keys() == {("Orders", "d")}
