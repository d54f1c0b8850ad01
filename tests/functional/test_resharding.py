"""Single items of a table whose items move: each operation, in each stage and state, as on an unsharded table."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from shardkit import ShardedTable
from shardkit.sharding.resharding.moving import MARK
from tests.support.moving import ADOPT, PLACES, Held, resharding
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

LONG = os.environ.get("HYPOTHESIS_PROFILE") in {"search", "thorough"}
KEY = {"pk": "k", "sk": "s1"}
ITEM = {**KEY, "n": 1, "tags": {"a", "b"}, "raw": b"\x00\xff"}
NAMES = {"#shardkit_m": "n", "#n": "n"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get": ("get_item", {"Key": KEY, "ConsistentRead": True}),
    "get eventually": ("get_item", {"Key": KEY}),
    "get a part": ("get_item", {"Key": KEY, "ProjectionExpression": "n"}),
    "get nothing of it": ("get_item", {"Key": KEY, "AttributesToGet": ["other"]}),
    "put": ("put_item", {"Item": {**KEY, "n": 2}, "ReturnValues": "ALL_OLD"}),
    "put a new one": ("put_item", {"Item": {**KEY, "n": 2}, "ConditionExpression": "attribute_not_exists(pk)"}),
    "put on a condition": (
        "put_item",
        {"Item": {**KEY, "n": 2}, "ConditionExpression": "#shardkit_m = :n OR #shardkit_m = :x",
         "ExpressionAttributeNames": {"#shardkit_m": "n"}, "ExpressionAttributeValues": {":n": 1, ":x": 5}},
    ),
    "put on a false condition": (
        "put_item",
        {"Item": {**KEY, "n": 2}, "ConditionExpression": "n = :n OR n = :x",
         "ExpressionAttributeValues": {":n": 7, ":x": 5}, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"},
    ),
    "update": (
        "update_item",
        {"Key": KEY, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 5}, "ReturnValues": "ALL_NEW"},
    ),
    "update one that is there": (
        "update_item",
        {"Key": KEY, "UpdateExpression": "SET n = :n REMOVE tags", "ExpressionAttributeValues": {":n": 5, ":k": "k"},
         "ConditionExpression": "attribute_exists(sk) AND pk = :k", "ReturnValues": "UPDATED_OLD"},
    ),
    "update on a false condition": (
        "update_item",
        {"Key": KEY, "UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 5},
         "ConditionExpression": "n > :n"},
    ),
    "delete": ("delete_item", {"Key": KEY, "ReturnValues": "ALL_OLD"}),
    "delete on a condition": (
        "delete_item",
        {"Key": KEY, "ConditionExpression": "#n = :n", "ExpressionAttributeNames": {"#n": "n"},
         "ExpressionAttributeValues": {":n": 1}},
    ),
}  # fmt: skip


def outcome(table: Any, method: str, params: dict[str, Any]) -> Any:
    """What a call returns or raises, and the item afterwards; moto returns units unasked."""
    try:
        response = getattr(table, method)(**params)
    except ClientError as error:
        answer: Any = error.response["Error"]["Code"], error.response.get("Item")
    else:
        answer = {name: value for name, value in response.items() if name in {"Attributes", "Item"}}
    return answer, table.get_item(Key=KEY).get("Item")


@pytest.fixture(scope="module")
def plain() -> dict[tuple[bool, str], Any]:
    """The outcomes on an unsharded table, with and without the item."""
    found = {}
    with mock_aws():
        resource = boto3.resource("dynamodb", region_name="us-east-1")
        table: Any = make_table(resource, ("pk", "S"), ("sk", "S"))
        for there in (False, True):
            for call, (method, params) in CALLS.items():
                if there:
                    table.put_item(Item=ITEM)
                found[there, call] = outcome(table, method, params)
                table.delete_item(Key=KEY)
        resource.meta.client.close()
    return found


@pytest.mark.long_search
@pytest.mark.parametrize(("stage", "state"), PLACES)
def test_as_on_an_unsharded_table(
    resource: DynamoDBServiceResource, plain: dict[tuple[bool, str], Any], stage: Any, state: str
) -> None:
    """Answers, errors and what is read afterwards are the same; nobody sees the mark (a third of the calls, or all)."""
    moved = make_table(resource, ("pk", "S"), ("sk", "S"))
    table = ShardedTable(moved, resharding(stage))
    first, step = (0, 1) if LONG else (PLACES.index((stage, state)) % 3, 3)
    for call, (method, params) in [*CALLS.items()][first::step]:
        Held(moved).put(ITEM, state)
        assert outcome(table, method, params) == plain[state != "absent", call], call
        Held(moved).clear()


def test_where_a_write_goes(resource: DynamoDBServiceResource) -> None:
    """An item stays where it is; a new one goes to its old home in guard, and to its new one from switch on."""
    moved = make_table(resource, ("pk", "S"), ("sk", "S"))
    held, stub = Held(moved), {MARK: "stub"}
    home = ADOPT[1].physical_key("k", ADOPT[1].shard_of("k", KEY))
    new = {home: {"n": 2}}
    expected = {
        ("guard", "absent"): {"k": {"n": 2}},
        ("switch", "absent"): {"k": stub, **new},
        ("move", "absent"): new,
        ("move", "moved"): new,
        **{(stage, "live"): {"k": {"n": 2}} for stage in ("guard", "switch", "move")},
        **{(stage, "stub"): {"k": stub, **new} for stage in ("guard", "switch", "move")},
        **{("switch", state): {"k": stub, **new} for state in ("frozen", "copied")},
        **{("move", state): new for state in ("frozen", "copied")},
    }
    found = {}
    for stage, state in PLACES:
        held.put(ITEM, state)
        ShardedTable(moved, resharding(stage)).put_item(Item={**KEY, "n": 2})
        found[stage, state] = held.places()
        held.clear()
    assert found == expected
