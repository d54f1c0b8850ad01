"""RandomSuffix(locate=True): an item is looked for, and acted on where it is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr

from shardkit import AmbiguousItemError, RandomSuffix, ShardedTable, ShardQueryError, ShardUnknownError
from shardkit.errors import UnsupportedExpressionError
from tests.support.recorder import answering, recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
SET: dict[str, Any] = {"UpdateExpression": "SET Amount = :a", "ExpressionAttributeValues": {":a": 2}}


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, RandomSuffix(5, locate=True), rng=random.Random(11))


def test_an_item_is_found_where_it_is(orders: ShardedTable, table: Table) -> None:
    """A read asks all shards in one request, and says which one had the item."""
    orders.put_item(Item={**KEY, "Amount": 1}, Shard=4)
    with recording(table.meta.client) as wire:
        found = orders.get_item(Key=KEY, ReturnShards=True, ConsistentRead=True, ProjectionExpression="Amount")
    assert (found["Item"], found["Shard"]) == ({"Amount": 1}, 4)
    ((operation, body),) = wire.requests
    asked = body["RequestItems"][table.name]
    assert operation == "BatchGetItem"
    assert [key["Date"]["S"] for key in asked["Keys"]] == [f"2014-07-09.{shard}" for shard in range(1, 6)]
    assert asked["ConsistentRead"] is True
    missing = orders.get_item(Key={**KEY, "OrderId": "none"}, ReturnShards=True)
    assert missing["Shard"] is None
    assert "Item" not in missing


def test_more_shards_than_a_batch_takes_are_asked_in_several(table: Table) -> None:
    """230 shards are three requests of at most 100 keys."""
    orders = ShardedTable(table, RandomSuffix(230, locate=True))
    orders.put_item(Item=KEY, Shard=217)
    with recording(table.meta.client) as wire:
        assert orders.get_item(Key=KEY, ReturnShards=True)["Shard"] == 217
    sizes = [len(body["RequestItems"][table.name]["Keys"]) for body in wire.bodies("BatchGetItem")]
    assert sorted(sizes) == [30, 100, 100]


def test_a_put_replaces_the_item_where_it_is(orders: ShardedTable, table: Table) -> None:
    """The first put draws a shard under attribute_not_exists; later ones go there under attribute_exists."""
    with recording(table.meta.client) as wire:
        shard = orders.put_item(Item={**KEY, "Amount": 1}, ReturnShards=True)["Shard"]
        again = orders.put_item(Item={**KEY, "Amount": 2}, ReturnShards=True, ReturnValues="ALL_OLD")
    assert again["Shard"] == shard
    assert again["Attributes"] == {**KEY, "Amount": 1}
    assert table.scan()["Items"] == [{"Date": f"2014-07-09.{shard}", "OrderId": "A17", "Amount": 2}]
    assert wire.operations == ["DescribeTable", "BatchGetItem", "PutItem", "BatchGetItem", "PutItem"]
    finds = [body["RequestItems"][table.name] for body in wire.bodies("BatchGetItem")]
    assert all(find["ConsistentRead"] is True for find in finds)
    assert [body["ConditionExpression"].partition("(")[0] for body in wire.bodies("PutItem")] == [
        "attribute_not_exists",
        "attribute_exists",
    ]


def test_updates_and_deletes_act_where_the_item_is(orders: ShardedTable, table: Table) -> None:
    """An update and a delete find the item, and make or leave no copy."""
    orders.put_item(Item={**KEY, "Amount": 1}, Shard=2)
    updated = orders.update_item(Key=KEY, ReturnShards=True, ReturnValues="ALL_NEW", **SET)
    assert (updated["Shard"], updated["Attributes"]) == (2, {**KEY, "Amount": 2})
    deleted = orders.delete_item(Key=KEY, ReturnShards=True, ReturnValues="ALL_OLD")
    assert (deleted["Shard"], deleted["Attributes"]) == (2, {**KEY, "Amount": 2})
    assert table.scan()["Items"] == []
    assert "Attributes" not in orders.delete_item(Key=KEY, ReturnValues="ALL_OLD")


def test_an_update_that_finds_nothing_is_refused(orders: ShardedTable, table: Table) -> None:
    """It would make an item in a shard that nobody chose; with Shard= it is made there."""
    with recording(table.meta.client) as wire, pytest.raises(ShardUnknownError, match="Shard="):
        orders.update_item(Key=KEY, **SET)
    assert "UpdateItem" not in wire.operations
    orders.update_item(Key=KEY, Shard=3, **SET)
    assert table.scan()["Items"] == [{"Date": "2014-07-09.3", "OrderId": "A17", "Amount": 2}]


CALLS: dict[str, Callable[[ShardedTable], Any]] = {
    "get": lambda orders: orders.get_item(Key=KEY),
    "put": lambda orders: orders.put_item(Item=KEY),
    "update": lambda orders: orders.update_item(Key=KEY, **SET),
    "delete": lambda orders: orders.delete_item(Key=KEY),
    "batch get": lambda orders: orders.batch_get_items([{**KEY, "OrderId": "other"}, KEY]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_two_copies_are_ambiguous(orders: ShardedTable, table: Table, call: Callable[[ShardedTable], Any]) -> None:
    """Nothing is read or written that may be the wrong one; the error says which shards, and Shard= still works."""
    for shard in (1, 5):
        orders.put_item(Item={**KEY, "Amount": shard}, Shard=shard)
    with recording(table.meta.client) as wire, pytest.raises(AmbiguousItemError, match=r"\[1, 5\]") as caught:
        call(orders)
    assert caught.value.shards == (1, 5)
    assert wire.operations == ["BatchGetItem"]
    orders.delete_item(Key=KEY, Shard=1)
    assert orders.get_item(Key=KEY)["Item"]["Amount"] == 5


def test_the_callers_condition_is_kept(orders: ShardedTable, table: Table) -> None:
    """It is joined with shardkit's own, holds or fails as it would, and its error shows the logical key."""
    orders.put_item(Item={**KEY, "Amount": 1}, Shard=4)
    orders.put_item(Item={**KEY, "Amount": 2}, ConditionExpression=Attr("Amount").eq(9) | Attr("Date").eq("2014-07-09"))
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException) as caught:
        orders.update_item(
            Key=KEY,
            UpdateExpression="SET Amount = :a",
            ConditionExpression="Amount > :a",
            ExpressionAttributeValues={":a": 5},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    response: Any = caught.value.response
    assert response["Item"] == {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "A17"}, "Amount": {"N": "2"}}
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        orders.put_item(Item=KEY, ConditionExpression=Attr("Date").not_exists())
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        orders.delete_item(Key={**KEY, "OrderId": "none"}, ConditionExpression=Attr("Date").exists())
    assert len(table.scan()["Items"]) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda orders: orders.put_item(Item=KEY, Expected={"Amount": {"Exists": False}}),
        lambda orders: orders.delete_item(Key=KEY, Expected={"Amount": {"Value": 1}}),
        lambda orders: orders.update_item(Key=KEY, AttributeUpdates={"Amount": {"Value": 1, "Action": "PUT"}}),
    ],
)
def test_legacy_conditions_are_refused(orders: ShardedTable, table: Table, call: Callable[[ShardedTable], Any]) -> None:
    """They cannot be combined with the condition that locating needs."""
    with recording(table.meta.client) as wire, pytest.raises(UnsupportedExpressionError, match="Shard="):
        call(orders)
    assert set(wire.operations) <= {"DescribeTable"}


def once(table: Table, operation: str, act: Callable[[], Any]) -> Any:
    """Act in between shardkit's find and its write, the first time that this operation goes out."""
    left = [act]

    def answer(body: dict[str, Any]) -> None:
        if left:
            left.pop()()

    return answering(table.meta.client, operation, answer)


def test_an_item_that_appears_before_the_put_is_replaced(table: Table) -> None:
    """The condition fails, the item is looked for again, and replaced where it is: no second copy."""
    orders = ShardedTable(table, RandomSuffix(1, locate=True))

    def appear() -> None:
        table.put_item(Item={"Date": "2014-07-09.1", "OrderId": "A17", "Amount": 7})

    with once(table, "PutItem", appear):
        response = orders.put_item(Item={**KEY, "Amount": 1}, ReturnValues="ALL_OLD")
    assert response["Attributes"] == {**KEY, "Amount": 7}
    assert table.scan()["Items"] == [{"Date": "2014-07-09.1", "OrderId": "A17", "Amount": 1}]


def test_an_item_that_vanishes_before_the_put_is_made_anew(orders: ShardedTable, table: Table) -> None:
    """The put does not fail for want of an item that it was going to replace."""
    orders.put_item(Item=KEY, Shard=2)
    with once(table, "PutItem", lambda: table.delete_item(Key={**KEY, "Date": "2014-07-09.2"})):
        orders.put_item(Item={**KEY, "Amount": 1})
    assert orders.get_item(Key=KEY)["Item"] == {**KEY, "Amount": 1}
    assert len(table.scan()["Items"]) == 1


def test_an_item_that_moves_before_the_update_is_updated_there(orders: ShardedTable, table: Table) -> None:
    """The update finds it again in its new shard."""
    orders.put_item(Item=KEY, Shard=2)

    def move() -> None:
        table.delete_item(Key={**KEY, "Date": "2014-07-09.2"})
        table.put_item(Item={**KEY, "Date": "2014-07-09.5"})

    with once(table, "UpdateItem", move):
        assert orders.update_item(Key=KEY, ReturnShards=True, **SET)["Shard"] == 5
    assert table.scan()["Items"] == [{"Date": "2014-07-09.5", "OrderId": "A17", "Amount": 2}]


def test_an_item_that_vanishes_before_the_update_is_not_made_anew(orders: ShardedTable, table: Table) -> None:
    """An update that finds nothing the second time is refused, as it is the first time."""
    orders.put_item(Item=KEY, Shard=2)
    with (
        once(table, "UpdateItem", lambda: table.delete_item(Key={**KEY, "Date": "2014-07-09.2"})),
        pytest.raises(ShardUnknownError),
    ):
        orders.update_item(Key=KEY, **SET)
    assert table.scan()["Items"] == []


def test_an_item_that_vanishes_before_the_delete_is_gone(orders: ShardedTable, table: Table) -> None:
    """A delete of what is not there any more succeeds, as it does on a plain table."""
    orders.put_item(Item=KEY, Shard=2)
    with once(table, "DeleteItem", lambda: table.delete_item(Key={**KEY, "Date": "2014-07-09.2"})):
        orders.delete_item(Key=KEY)
    assert table.scan()["Items"] == []


def test_an_answer_that_is_not_whole_is_no_answer(orders: ShardedTable, table: Table) -> None:
    """Where keys stay unprocessed, the item may be in one of their shards: nothing is written."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    orders.runner.clock, orders.runner.sleep = lambda: now[0], sleep

    def unprocessed(body: dict[str, Any]) -> dict[str, Any]:
        return {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    with answering(table.meta.client, "BatchGetItem", unprocessed), recording(table.meta.client) as wire:
        with pytest.raises(ShardQueryError, match="unprocessed"):
            orders.put_item(Item=KEY)
        with pytest.raises(ShardQueryError, match="unprocessed") as caught:
            orders.get_item(Key=KEY)
    assert caught.value.errors.keys() == {1, 2, 3, 4, 5}
    assert "PutItem" not in wire.operations
    assert now[0] > 1
