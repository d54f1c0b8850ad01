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
    Resharding,
    ShardUnknownError,
    Strategy,
    Unsharded,
)
from shardkit.errors import InvalidKeyError
from tests.functional.contract.faces import Face, combined, needs
from tests.support.moving import every_stage, stored_in
from tests.support.tables import make_table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
ITEM: dict[str, Any] = {
    **KEY,
    "Amount": Decimal("12.50"),
    "Tags": {"a", "b"},
    "Raw": b"\x00\xff",
    "Lines": [{"Sku": "x", "Gift": True, "Note": None}],
}

KNOWING: dict[str, Strategy] = {
    "calculated": CalculatedSuffix("OrderId", 7),
    "located": RandomSuffix(7, locate=True),
    "unsharded": Unsharded(),
    **every_stage(Unsharded(), CalculatedSuffix("OrderId", 7)),
}
knowing = pytest.mark.parametrize("strategy", KNOWING.values(), ids=KNOWING)
Response = dict[str, Any]
Call = Callable[[Any], Response]

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
CHANGE: dict[str, Any] = {
    "UpdateExpression": "SET Amount = :a, Extra = :a",
    "ExpressionAttributeValues": {":a": Decimal(13)},
}


def updating(returned: str) -> Call:
    return lambda table: table.update_item(Key=KEY, **CHANGE, ReturnValues=returned)


CHANGES: dict[str, Call] = {
    **{
        f"an update that returns {returned}": updating(returned)
        for returned in ("NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW")
    },
    "an update whose condition holds": lambda table: table.update_item(
        Key=KEY, **CHANGE, ConditionExpression=Attr("OrderId").eq("A17") & Attr("Amount").gt(1)
    ),
    "a delete": lambda table: table.delete_item(Key=KEY),
    "a delete that returns what was there": lambda table: table.delete_item(Key=KEY, ReturnValues="ALL_OLD"),
    "a delete whose condition holds": lambda table: table.delete_item(
        Key=KEY, ConditionExpression=Attr("Date").exists()
    ),
    "a delete of nothing": lambda table: table.delete_item(Key={**KEY, "OrderId": "none"}, ReturnValues="ALL_OLD"),
}


@pytest.fixture
def plain(face: Face) -> Any:
    return make_table(face.resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def stored(face: Face) -> Any:
    return make_table(face.resource, ("Date", "S"), ("OrderId", "S"))


def bare(response: dict[str, Any]) -> dict[str, Any]:
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 200
    # moto shows ConsumedCapacity of updates and deletes unasked; a test of its own compares it.
    return {name: value for name, value in response.items() if name not in {"ResponseMetadata", "ConsumedCapacity"}}


@combined(KNOWING, "call", READS)
def test_a_read_answers_as_boto3_does(face: Face, plain: Any, stored: Any, strategy: Strategy, call: Call) -> None:
    """Items, their types and the response's shape are those of a plain table."""
    sharded = face.sharded(stored, strategy)
    for table in (plain, sharded):
        table.put_item(Item=ITEM)
    assert bare(call(sharded)) == bare(call(plain))


@combined(KNOWING, "call", PUTS)
def test_a_put_answers_as_boto3_does(face: Face, plain: Any, stored: Any, strategy: Strategy, call: Call) -> None:
    """Attributes are shown with the logical key, and the same items are there afterwards."""
    sharded = face.sharded(stored, strategy)
    for table in (plain, sharded):
        table.put_item(Item=ITEM)
    assert bare(call(sharded)) == bare(call(plain))
    assert stored_in(stored) == stored_in(plain)
    assert sharded.get_item(Key=KEY)["Item"] == plain.get_item(Key=KEY)["Item"]


@combined(KNOWING, "call", CHANGES)
def test_a_change_answers_as_boto3_does(face: Face, plain: Any, stored: Any, strategy: Strategy, call: Call) -> None:
    """Attributes are shown with the logical key, and the item that was there is changed: no copy is made."""
    sharded = face.sharded(stored, strategy)
    for table in (plain, sharded):
        table.put_item(Item=ITEM)
    assert bare(call(sharded)) == bare(call(plain))
    assert bare(sharded.get_item(Key=KEY)) == bare(plain.get_item(Key=KEY))
    assert stored_in(stored) == stored_in(plain)


@knowing
def test_an_update_that_makes_an_item(face: Face, stored: Any, strategy: Strategy) -> None:
    """As with boto3, unless the item would have to be found first."""
    sharded = face.sharded(stored, strategy)
    if strategy.locate:
        with pytest.raises(ShardUnknownError, match="Shard="):
            sharded.update_item(Key=KEY, **CHANGE)
        assert stored.scan()["Items"] == []
    else:
        sharded.update_item(Key=KEY, **CHANGE)
        assert sharded.get_item(Key=KEY)["Item"] == {**KEY, "Amount": 13, "Extra": 13}


@pytest.mark.parametrize("strategy", [CalculatedSuffix("OrderId", 7), RandomSuffix(7, locate=True)])
def test_a_binary_partition_key(face: Face, strategy: Strategy) -> None:
    """It carries a suffix too."""
    stored: Any = make_table(face.resource, ("Date", "B"), ("OrderId", "S"))
    sharded = face.sharded(stored, strategy)
    key = {**KEY, "Date": b"\x00\xff"}
    sharded.put_item(Item={**key, "Amount": 1})
    assert sharded.get_item(Key=key)["Item"]["Date"] == b"\x00\xff"
    assert stored.scan()["Items"][0]["Date"].value.startswith(b"\x00\xff.")
    sharded.delete_item(Key=key)
    assert stored.scan()["Items"] == []


@knowing
def test_a_key_attribute_that_is_missing(face: Face, stored: Any, strategy: Strategy) -> None:
    """It is refused before anything is written."""
    sharded = face.sharded(stored, strategy)
    with pytest.raises(InvalidKeyError, match="OrderId"):
        sharded.put_item(Item={"Date": "2014-07-09"})
    for call in (sharded.get_item, sharded.delete_item):
        with pytest.raises((InvalidKeyError, ShardUnknownError), match="OrderId"):
            call(Key={"Date": "2014-07-09"})
    with pytest.raises((InvalidKeyError, ShardUnknownError), match="OrderId"):
        sharded.update_item(Key={"Date": "2014-07-09"}, **CHANGE)
    assert stored.scan()["Items"] == []


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
    needs(face, "shards")
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
    # On installed faces, a handler may answer the logical call.
    if "stored keys" in face.offers and not isinstance(strategy, Resharding):
        assert (physical == ["2014-07-09"]) == isinstance(strategy, Unsharded)


def test_other_errors_are_boto3s(face: Face, stored: Any) -> None:
    """What the service refuses is raised as boto3 raises it."""
    schema = {"KeySchema": stored.key_schema, "AttributeDefinitions": stored.attribute_definitions}
    stored.delete()
    for strategy in KNOWING.values():
        sharded = face.sharded(stored, strategy, key_schema=schema)
        with pytest.raises(sharded.client.exceptions.ResourceNotFoundException):
            sharded.put_item(Item=ITEM)


def test_a_shard_that_is_not_the_calculated_one_stores_nothing(face: Face, stored: Any) -> None:
    """No get_item would find the item there; a get may look there."""
    needs(face, "shards")
    sharded = face.sharded(stored, CalculatedSuffix("OrderId", 7))
    shard = sharded.put_item(Item=ITEM, ReturnShards=True)["Shard"]
    with pytest.raises(ConfigurationError, match=r"^Shard: "):
        sharded.put_item(Item=ITEM, Shard=shard % 7 + 1)
    assert "Item" not in sharded.get_item(Key=KEY, Shard=shard % 7 + 1)
    sharded.put_item(Item=ITEM, Shard=shard)
    assert len(stored.scan()["Items"]) == 1


def test_a_random_suffix_is_not_guessed(face: Face, stored: Any) -> None:
    """Without Shard= and without locate, reads, changes and conditional puts are refused."""
    sharded = face.sharded(stored, RandomSuffix(7))
    calls: list[Callable[[], Response]] = [
        lambda: sharded.get_item(Key=KEY),
        lambda: sharded.update_item(Key=KEY, **CHANGE),
        lambda: sharded.delete_item(Key=KEY),
        lambda: sharded.put_item(Item=ITEM, ConditionExpression=Attr("Date").not_exists()),
    ]
    for call in calls:
        with pytest.raises(ShardUnknownError, match="Shard="):
            call()
    assert stored.scan()["Items"] == []


def test_two_copies_are_ambiguous(face: Face, stored: Any) -> None:
    """With locate, reads and writes of an item that two shards hold say which shards."""
    sharded = face.sharded(stored, RandomSuffix(7, locate=True))
    for shard in (2, 6):
        stored.put_item(Item={**ITEM, "Date": f"{ITEM['Date']}.{shard}"})
    calls: list[Callable[[], Response]] = [
        lambda: sharded.get_item(Key=KEY),
        lambda: sharded.update_item(Key=KEY, **CHANGE),
        lambda: sharded.delete_item(Key=KEY),
        lambda: sharded.put_item(Item=ITEM),
    ]
    for call in calls:
        with pytest.raises(AmbiguousItemError) as caught:
            call()
        assert caught.value.shards == (2, 6)


def test_the_stored_form_and_back(face: Face, stored: Any) -> None:
    """physical_key, physical_item and logical_item."""
    needs(face, "stored keys")
    sharded = face.sharded(stored, CalculatedSuffix("OrderId", 7))
    sharded.put_item(Item=ITEM)
    (item,) = stored.scan()["Items"]
    assert sharded.stored("physical_key", KEY) == {name: item[name] for name in KEY}
    assert sharded.stored("physical_item", ITEM)["Date"] == item["Date"]
    assert sharded.stored("logical_item", item) == sharded.get_item(Key=KEY)["Item"]


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
