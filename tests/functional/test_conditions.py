"""Conditions and updates of single items: what the suffix would change is rewritten or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr

from shardkit import CalculatedSuffix, ShardedTable, Unsharded, UnsupportedExpressionError
from tests.support.recorder import answering, recording
from tests.support.tables import make_table
from tests.support.wire import Recorder

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
STRATEGY = CalculatedSuffix("OrderId", 200)
PHYSICAL = STRATEGY.physical_key("2014-07-09", STRATEGY.shard_of("2014-07-09", KEY))


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    orders = ShardedTable(table, STRATEGY)
    orders.put_item(Item={**KEY, "Amount": 12, "Note": "n"})
    return orders


@pytest.fixture
def wire(table: Table, orders: ShardedTable) -> Iterator[Recorder]:
    with recording(table.meta.client) as recorder:
        yield recorder


CONDITIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "an object": ({"ConditionExpression": Attr("Amount").eq(12)}, True),
    "an object that fails": ({"ConditionExpression": Attr("Amount").gt(12)}, False),
    "a text": ({"ConditionExpression": "Amount = :a", "ExpressionAttributeValues": {":a": 12}}, True),
    "placeholders": (
        {
            "ConditionExpression": "#n0 <> :v0",
            "ExpressionAttributeNames": {"#n0": "Amount"},
            "ExpressionAttributeValues": {":v0": 12},
        },
        False,
    ),
    "legacy": ({"Expected": {"Amount": {"ComparisonOperator": "GE", "AttributeValueList": [12]}}}, True),
    "legacy that fails": ({"Expected": {"Amount": {"Value": 13}}}, False),
    "the key": ({"ConditionExpression": Attr("Date").eq("2014-07-09")}, True),
    "the key, not": ({"ConditionExpression": Attr("Date").ne("2014-07-09")}, False),
    "the key, among": ({"ConditionExpression": Attr("Date").is_in(["2014-07-08", "2014-07-09"])}, True),
    "another key": ({"ConditionExpression": Attr("Date").eq("2014-07-08")}, False),
    "the physical key": ({"ConditionExpression": Attr("Date").eq(PHYSICAL)}, False),
    "the key is there": ({"ConditionExpression": Attr("Date").exists()}, True),
    "the key is a number": ({"ConditionExpression": Attr("Date").eq(5)}, False),
    "the legacy key": ({"Expected": {"Date": {"Value": "2014-07-09"}}}, True),
    "the legacy key, not": ({"Expected": {"Date": {"ComparisonOperator": "NE", "AttributeValueList": ["x"]}}}, True),
}


OPERATIONS = ["put_item", "update_item", "delete_item"]


@pytest.mark.parametrize(
    ("operation", "condition", "holds"),
    [
        pytest.param(operation, condition, holds, id=f"{operation}, {name}")
        for operation in OPERATIONS
        for name, (condition, holds) in CONDITIONS.items()
        # moto does not look at Expected of a DeleteItem.
        if holds or operation != "delete_item" or "Expected" not in condition
    ],
)
def test_conditions_mean_what_they_say(
    orders: ShardedTable, table: Table, operation: str, condition: dict[str, Any], holds: bool
) -> None:
    """A condition holds or fails as it would on a plain table, also one on the partition key."""
    given: dict[str, Any] = {"Item": {**KEY, "New": 1}} if operation == "put_item" else {"Key": KEY}
    if operation == "update_item" and "Expected" in condition:
        given["AttributeUpdates"] = {"New": {"Value": 1, "Action": "PUT"}}
    elif operation == "update_item":
        given["UpdateExpression"] = "REMOVE Nothing"
    before = table.scan()["Items"]
    if holds:
        getattr(orders, operation)(**given, **condition)
        return
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        getattr(orders, operation)(**given, **condition)
    assert table.scan()["Items"] == before


@pytest.mark.parametrize(
    "condition",
    [
        Attr("Date").begins_with("2014"),
        Attr("Date").lt("2015"),
        Attr("Date").between("2014", "2015"),
        Attr("Date").contains("07"),
        Attr("Date").size().eq(10),
    ],
)
def test_conditions_that_a_suffix_would_change_are_refused(
    orders: ShardedTable, wire: Recorder, condition: Any
) -> None:
    """A comparison of the partition key by order, content or length is refused before anything is sent."""
    with pytest.raises(UnsupportedExpressionError, match="Date"):
        orders.put_item(Item=KEY, ConditionExpression=condition)
    with pytest.raises(UnsupportedExpressionError, match="Date"):
        orders.delete_item(
            Key=KEY, Expected={"Date": {"ComparisonOperator": "BEGINS_WITH", "AttributeValueList": ["2014"]}}
        )
    assert wire.requests == []


@pytest.mark.parametrize(
    "update",
    [
        {"UpdateExpression": "SET Copy = #d", "ExpressionAttributeNames": {"#d": "Date"}},
        {
            "UpdateExpression": "SET #d = :d",
            "ExpressionAttributeNames": {"#d": "Date"},
            "ExpressionAttributeValues": {":d": "x"},
        },
        {"AttributeUpdates": {"Date": {"Value": "x", "Action": "PUT"}}},
    ],
)
def test_updates_of_or_from_the_partition_key_are_refused(
    orders: ShardedTable, wire: Recorder, update: dict[str, Any]
) -> None:
    """An update that changes the partition key, or copies it with its suffix, is not sent."""
    with pytest.raises(UnsupportedExpressionError, match="Date"):
        orders.update_item(Key=KEY, **update)
    assert wire.requests == []


def test_an_unsharded_table_takes_every_condition(table: Table) -> None:
    """Where no suffix changes anything, nothing is rewritten or refused."""
    orders = ShardedTable(table, Unsharded())
    orders.put_item(Item=KEY)
    orders.put_item(Item=KEY, ConditionExpression=Attr("Date").begins_with("2014") & Attr("Date").lt("2015"))
    update: dict[str, Any] = {"UpdateExpression": "SET Copy = #d", "ExpressionAttributeNames": {"#d": "Date"}}
    # moto takes any mention of a key for a change of it.
    with answering(table.meta.client, "UpdateItem", lambda _: {}), recording(table.meta.client) as wire:
        orders.update_item(Key=KEY, **update)
    assert wire.requests[0][1] | update == wire.requests[0][1]
