"""Puts and gets: every face and strategy answers as a plain boto3 Table does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr
from botocore.awsrequest import AWSResponse

from shardkit import (
    AmbiguousItemError,
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    ShardUnknownError,
    Strategy,
    Unsharded,
)
from tests.functional.contract.faces import Face, FaceTable
from tests.support.tables import make_table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
ITEM: dict[str, Any] = {
    **KEY,
    "Amount": Decimal("12.50"),
    "Tags": {"a", "b"},
    "Raw": b"\x00\xff",
    "Lines": [{"Sku": "x", "Gift": True, "Note": None}],
}

KNOWING: list[Strategy] = [CalculatedSuffix("OrderId", 7), RandomSuffix(7, locate=True), Unsharded()]
knowing = pytest.mark.parametrize("strategy", KNOWING, ids=["calculated", "located", "unsharded"])
Call = Callable[[Any], dict[str, Any]]

READS: dict[str, Call] = {
    "an item": lambda table: table.get_item(Key=KEY),
    "an item, consistently": lambda table: table.get_item(Key=KEY, ConsistentRead=True),
    "a projection": lambda table: table.get_item(Key=KEY, ProjectionExpression="Amount, Tags"),
    "a projection with the key": lambda table: table.get_item(
        Key=KEY, ProjectionExpression="#d, Amount", ExpressionAttributeNames={"#d": "Date"}
    ),
    "nothing": lambda table: table.get_item(Key={**KEY, "OrderId": "none"}),
}
PUTS: dict[str, Call] = {
    "a put": lambda table: table.put_item(Item=ITEM),
    "a put of another item": lambda table: table.put_item(Item={**ITEM, "OrderId": "B1"}, ReturnValues="ALL_OLD"),
    "a put that returns what was there": lambda table: table.put_item(Item=ITEM, ReturnValues="ALL_OLD"),
    "a put whose condition holds": lambda table: table.put_item(Item=ITEM, ConditionExpression=Attr("Date").exists()),
    "a put on its own key": lambda table: table.put_item(
        Item=ITEM, ConditionExpression=Attr("Date").eq("2014-07-09") & Attr("Date").ne("2014-07-10")
    ),
}


@pytest.fixture
def plain(face: Face) -> Any:
    return make_table(face.resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def stored(face: Face) -> Any:
    return make_table(face.resource, ("Date", "S"), ("OrderId", "S"))


def bare(response: dict[str, Any]) -> dict[str, Any]:
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 200
    return {name: value for name, value in response.items() if name != "ResponseMetadata"}


@knowing
@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_a_read_answers_as_boto3_does(face: Face, plain: Any, stored: Any, strategy: Strategy, call: Call) -> None:
    """Items, their types and the response's shape are those of a plain table."""
    sharded = face.sharded(stored, strategy)
    for table in (plain, sharded):
        table.put_item(Item=ITEM)
    assert bare(call(sharded)) == bare(call(plain))


@knowing
@pytest.mark.parametrize("call", PUTS.values(), ids=PUTS)
def test_a_put_answers_as_boto3_does(face: Face, plain: Any, stored: Any, strategy: Strategy, call: Call) -> None:
    """Attributes are shown with the logical key, and the same items are there afterwards."""
    sharded = face.sharded(stored, strategy)
    for table in (plain, sharded):
        table.put_item(Item=ITEM)
    assert bare(call(sharded)) == bare(call(plain))
    assert len(stored.scan()["Items"]) == len(plain.scan()["Items"])
    assert sharded.get_item(Key=KEY)["Item"] == plain.get_item(Key=KEY)["Item"]


@knowing
def test_consumed_capacity_has_boto3s_shape(face: Face, plain: Any, stored: Any, strategy: Strategy) -> None:
    """ConsumedCapacity is one structure that names the table, also where a read looked on several shards."""
    sharded = face.sharded(stored, strategy)
    asked = {"ReturnConsumedCapacity": "TOTAL"}
    for shown, expected in (
        (sharded.put_item(Item=ITEM, **asked), plain.put_item(Item=ITEM, **asked)),
        (sharded.get_item(Key=KEY, **asked), plain.get_item(Key=KEY, **asked)),
    ):
        assert set(shown) == set(expected)
        assert shown["ConsumedCapacity"]["TableName"] == stored.name
        assert shown["ConsumedCapacity"]["CapacityUnits"] > 0


@pytest.mark.parametrize("strategy", [CalculatedSuffix("OrderId", 7), RandomSuffix(7), RandomSuffix(7, locate=True)])
def test_what_is_stored_carries_the_suffix(face: Face, stored: Any, strategy: Strategy) -> None:
    """ReturnShards tells the shard, and the stored partition key is the logical one with that suffix."""
    sharded = face.sharded(stored, strategy, rng=random.Random(5))
    shard = sharded.put_item(Item=ITEM, ReturnShards=True)["Shard"]
    assert [item["Date"] for item in stored.scan()["Items"]] == [f"2014-07-09.{shard}"]
    read = sharded.get_item(Key=KEY, Shard=shard, ReturnShards=True)
    assert read["Shard"] == shard
    assert read["Item"]["Date"] == "2014-07-09"
    assert "Item" not in sharded.get_item(Key=KEY, Shard=shard % 7 + 1)


@knowing
def test_a_failed_condition_is_boto3s_error(face: Face, plain: Any, stored: Any, strategy: Strategy) -> None:
    """The same class, code and message, and the item that was there with its logical key."""
    sharded = face.sharded(stored, strategy)
    call = {
        "Item": {**KEY, "Amount": 1},
        "ConditionExpression": Attr("Date").not_exists() | Attr("Amount").lt(Decimal(5)),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    shown = []
    for table, client in ((plain, plain.meta.client), (sharded, sharded.client)):
        table.put_item(Item={**KEY, "Amount": 9})
        with pytest.raises(client.exceptions.ConditionalCheckFailedException) as caught:
            table.put_item(**deepcopy(call))
        assert type(caught.value) is client.exceptions.ConditionalCheckFailedException
        response = caught.value.response
        shown.append((caught.value.operation_name, response["Error"], response["Item"], str(caught.value)))
    assert shown[0] == shown[1]
    assert shown[1][2]["Date"] == {"S": "2014-07-09"}


@knowing
def test_item_collection_metrics_show_the_logical_key(face: Face, stored: Any, strategy: Strategy) -> None:
    """The key in ItemCollectionMetrics is the application's, in Python values."""
    sharded = face.sharded(stored, strategy)
    physical = []

    def answer(params: dict[str, Any], **_: Any) -> Any:
        item = json.loads(params["body"])["Item"]
        physical.append(item["Date"]["S"])
        metrics = {"ItemCollectionKey": {"Date": item["Date"]}, "SizeEstimateRangeGB": [0.0, 1.0]}
        nothing: Any = {}
        parsed = {"ItemCollectionMetrics": metrics, "ResponseMetadata": {"HTTPStatusCode": 200}}
        return AWSResponse("", 200, nothing, nothing), parsed

    sharded.client.meta.events.register("before-call.dynamodb.PutItem", answer)
    try:
        response = sharded.put_item(Item=ITEM, ReturnItemCollectionMetrics="SIZE")
    finally:
        sharded.client.meta.events.unregister("before-call.dynamodb.PutItem", answer)
    assert response["ItemCollectionMetrics"] == {
        "ItemCollectionKey": {"Date": "2014-07-09"},
        "SizeEstimateRangeGB": [0.0, 1.0],
    }
    assert (physical == ["2014-07-09"]) == isinstance(strategy, Unsharded)


def test_other_errors_are_boto3s(face: Face, stored: Any) -> None:
    """What the service refuses is raised as boto3 raises it."""
    schema = {"KeySchema": stored.key_schema, "AttributeDefinitions": stored.attribute_definitions}
    stored.delete()
    for strategy in KNOWING:
        sharded = face.sharded(stored, strategy, key_schema=schema)
        with pytest.raises(sharded.client.exceptions.ResourceNotFoundException):
            sharded.put_item(Item=ITEM)


def test_a_shard_that_is_not_the_calculated_one_stores_nothing(face: Face, stored: Any) -> None:
    """No get_item would find the item there; a get may look there."""
    sharded = face.sharded(stored, CalculatedSuffix("OrderId", 7))
    shard = sharded.put_item(Item=ITEM, ReturnShards=True)["Shard"]
    with pytest.raises(ConfigurationError, match=r"^Shard: "):
        sharded.put_item(Item=ITEM, Shard=shard % 7 + 1)
    assert "Item" not in sharded.get_item(Key=KEY, Shard=shard % 7 + 1)
    sharded.put_item(Item=ITEM, Shard=shard)
    assert len(stored.scan()["Items"]) == 1


def test_a_random_suffix_is_not_guessed(face: Face, stored: Any) -> None:
    """Without Shard= and without locate, a read and a conditional put are refused."""
    sharded = face.sharded(stored, RandomSuffix(7))
    with pytest.raises(ShardUnknownError, match="Shard="):
        sharded.get_item(Key=KEY)
    with pytest.raises(ShardUnknownError, match="Shard="):
        sharded.put_item(Item=ITEM, ConditionExpression=Attr("Date").not_exists())


def test_two_copies_are_ambiguous(face: Face, stored: Any) -> None:
    """With locate, a read and a put of an item that two shards hold say which shards."""
    sharded: FaceTable = face.sharded(stored, RandomSuffix(7, locate=True))
    for shard in (2, 6):
        sharded.put_item(Item=ITEM, Shard=shard)
    with pytest.raises(AmbiguousItemError) as read:
        sharded.get_item(Key=KEY)
    with pytest.raises(AmbiguousItemError) as put:
        sharded.put_item(Item=ITEM)
    assert read.value.shards == put.value.shards == (2, 6)


@knowing
def test_the_callers_objects_are_not_changed(face: Face, stored: Any, strategy: Strategy) -> None:
    """Items, keys and expression maps are the same after the call as before."""
    sharded = face.sharded(stored, strategy)
    put = {
        "Item": deepcopy(ITEM),
        "ConditionExpression": "attribute_not_exists(#d) OR #d = :d",
        "ExpressionAttributeNames": {"#d": "Date"},
        "ExpressionAttributeValues": {":d": "2014-07-09"},
    }
    get = {"Key": dict(KEY), "ProjectionExpression": "#t", "ExpressionAttributeNames": {"#t": "Amount"}}
    given = deepcopy((put, get))
    sharded.put_item(**put)
    assert bare(sharded.get_item(**get)) == {"Item": {"Amount": Decimal("12.50")}}
    assert (put, get) == given
