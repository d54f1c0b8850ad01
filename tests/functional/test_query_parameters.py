"""Promise 2 for every parameter of Query: what it does on a plain table it does on a sharded one, or it is refused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.errors import (
    ConfigurationError,
    CursorError,
    ShardkitError,
    UnsupportedExpressionError,
    UnsupportedParameterError,
)
from shardkit.sharding.operations import DECISIONS, KEYWORDS
from tests.support.recorder import recording
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

WALK = "SHARDKIT_OPERATION_WALK"
DAY = Key("pk").eq("day")
CITY = Key("city").eq("Bern")
NOT_MOTO = {"AttributesToGet", "ConditionalOperator", "QueryFilter"}
"""It ignores the first, and takes the others for something else: for them the engines have to do."""


def equals(**values: Any) -> dict[str, Any]:
    """Conditions as the legacy parameters have them."""
    return {name: {"AttributeValueList": [value], "ComparisonOperator": "EQ"} for name, value in values.items()}


@dataclass(frozen=True)
class Use:
    """A parameter at work: what it is given with, and what a Query without its effect looks like."""

    parameter: str
    params: dict[str, Any]
    without: dict[str, Any]


OBJECTS: dict[str, Any] = {"KeyConditionExpression": DAY}
LEGACY: dict[str, Any] = {"KeyConditions": equals(pk="day")}
TEXT: dict[str, Any] = {"KeyConditionExpression": "pk = :d", "ExpressionAttributeValues": {":d": "day"}}
ODD = {"QueryFilter": equals(odd=True, third=True)}
INDEX = {**OBJECTS, "IndexName": "by-a"}


def adds(parameter: str, value: Any, base: dict[str, Any] | None = None) -> Use:
    """A parameter that is added to a Query."""
    base = OBJECTS if base is None else base
    return Use(parameter, {**base, parameter: value}, base)


USES = [
    adds("AttributesToGet", ["odd"], LEGACY),
    adds("ConditionalOperator", "OR", {**LEGACY, **ODD}),
    # Refused on a global index: on the others its effect is not seen in an answer.
    adds("ConsistentRead", True, {"KeyConditionExpression": CITY, "IndexName": "city"}),
    adds("ExclusiveStartKey", {"pk": "day", "sk": 4}),
    adds("ExclusiveStartKey", {"pk": "day", "sk": 4}, {**OBJECTS, "ScanIndexForward": False}),
    adds("ExclusiveStartKey", {"pk": "day", "sk": 4, "a": -4}, INDEX),
    Use(
        "ExpressionAttributeNames",
        {**TEXT, "ProjectionExpression": "#o", "ExpressionAttributeNames": {"#o": "odd"}},
        TEXT,
    ),
    Use("ExpressionAttributeValues", TEXT, {**TEXT, "ExpressionAttributeValues": {":d": "another"}}),
    adds("FilterExpression", Attr("odd").eq(True)),
    adds("IndexName", "by-a"),
    Use("IndexName", {"IndexName": "city", "KeyConditionExpression": CITY & Key("a").gt(-5)}, OBJECTS),
    Use("KeyConditionExpression", {"KeyConditionExpression": DAY & Key("sk").between(3, 6)}, OBJECTS),
    Use("KeyConditions", {"KeyConditions": equals(pk="day", sk=3)}, LEGACY),
    adds("Limit", 5),
    adds("Limit", 5, {**INDEX, "ScanIndexForward": False}),
    adds("ProjectionExpression", "third, doc.deep[1]"),
    adds("QueryFilter", equals(odd=True), LEGACY),
    adds("ReturnConsumedCapacity", "TOTAL"),
    adds("ReturnConsumedCapacity", "INDEXES", INDEX),
    adds("ScanIndexForward", False),
    adds("Select", "COUNT"),
    adds("Select", "COUNT", {**OBJECTS, "FilterExpression": Attr("odd").eq(True)}),
    Use("Select", {**OBJECTS, "Select": "SPECIFIC_ATTRIBUTES", "ProjectionExpression": "odd"}, OBJECTS),
    Use("Select", {**INDEX, "Select": "ALL_PROJECTED_ATTRIBUTES"}, OBJECTS),
    Use("Select", {**INDEX, "Select": "ALL_ATTRIBUTES"}, OBJECTS),
]


@dataclass(frozen=True)
class Refusal:
    """A value of a parameter that a plain table may take and a sharded one refuses, with the reason."""

    parameter: str
    params: dict[str, Any]
    error: type[ShardkitError]
    reason: str


REFUSALS = [
    Refusal("TableName", {**OBJECTS, "TableName": "another"}, ConfigurationError, "is not this sharded table"),
    Refusal(
        "FilterExpression", {**OBJECTS, "FilterExpression": Attr("pk").eq("day")}, UnsupportedExpressionError, "'pk'"
    ),
    Refusal("QueryFilter", {**LEGACY, "QueryFilter": equals(pk="day")}, UnsupportedExpressionError, "'pk'"),
    Refusal("ExclusiveStartKey", {**OBJECTS, "ExclusiveStartKey": {"pk": "day"}}, CursorError, "LastEvaluatedKey"),
    Refusal("ExclusiveStartKey", {**OBJECTS, "ExclusiveStartKey": {"pk": "other", "sk": 1}}, CursorError, "not a key"),
    Refusal("Limit", {**OBJECTS, "Limit": 0}, ConfigurationError, "must be an integer >= 1"),
    Refusal("IndexName", {"IndexName": "city-pk", "KeyConditionExpression": CITY}, UnsupportedExpressionError, "order"),
    Refusal("KeyConditionExpression", {"KeyConditionExpression": Key("sk").eq(1)}, UnsupportedExpressionError, "'pk'"),
    Refusal("NotYetInvented", {**OBJECTS, "NotYetInvented": True}, UnsupportedParameterError, "not a parameter"),
]


def tables(resource: DynamoDBServiceResource) -> tuple[Table, ShardedTable]:
    """A plain table and a sharded one, with the same twelve items of a day."""

    def make() -> Table:
        return make_table(
            resource,
            sort_key=("sk", "N"),
            local_indexes=[LocalIndex("by-a", ("a", "N"))],
            global_indexes=[
                GlobalIndex("city", ("city", "S"), ("a", "N")),
                GlobalIndex("city-pk", ("city", "S"), ("pk", "S")),
            ],
        )

    plain, sharded = make(), ShardedTable(make(), CalculatedSuffix("sk", shards=4))
    with plain.batch_writer() as one, sharded.batch_writer() as other:
        for number in range(12):
            item = {"pk": "day", "sk": number, "a": -number, "city": "Bern", "doc": {"deep": [1, "two"]}}
            item |= {"odd": number % 2 == 1, "third": number % 3 == 0}
            one.put_item(Item=item)
            other.put_item(Item=item)
    return plain, sharded


def answer(table: Any, params: dict[str, Any]) -> Any:
    """What a Query shows: its page, or the code of the service's error."""
    try:
        page = dict(table.query(**params))
    except ClientError as error:
        return error.response["Error"]["Code"]
    del page["ResponseMetadata"]
    # Its cursor and its units are the table's own; that they are there is not.
    page["LastEvaluatedKey"] = "LastEvaluatedKey" in page
    page["ConsumedCapacity"] = sorted(page.get("ConsumedCapacity", {}))
    return page


def check(resource: DynamoDBServiceResource, use: Use) -> None:
    """A parameter's effect is there, and it is the same on both tables."""
    plain, sharded = tables(resource)
    expected = answer(plain, use.params)
    assert expected != answer(plain, use.without)
    assert answer(sharded, use.params) == expected


@pytest.mark.parametrize("use", [use for use in USES if use.parameter not in NOT_MOTO], ids=lambda use: use.parameter)
def test_on_moto(resource: DynamoDBServiceResource, use: Use) -> None:
    """Each parameter that moto knows."""
    check(resource, use)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.parameter)
def test_on_engines(engine_resource: DynamoDBServiceResource, use: Use) -> None:
    """Each parameter."""
    check(engine_resource, use)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.parameter)
def test_refusals(resource: DynamoDBServiceResource, refusal: Refusal) -> None:
    """What cannot be honoured is refused before a request goes out, with the reason."""
    _, sharded = tables(resource)
    for method in (sharded.query, lambda **params: next(sharded.query_items(**params))):
        with recording(sharded.meta.client) as wire, pytest.raises(refusal.error, match=refusal.reason):
            method(**refusal.params)
        assert wire.requests == []


@pytest.mark.parametrize("parameter", ["ConsistentRead", "ReturnConsumedCapacity"])
def test_what_goes_to_every_shard(resource: DynamoDBServiceResource, parameter: str) -> None:
    """Parameters whose effect an answer does not show are in every shard's request, as they were given."""
    _, sharded = tables(resource)
    value = {"ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL"}[parameter]
    query: dict[str, Any] = {**OBJECTS, parameter: value}
    with recording(sharded.meta.client) as wire:
        sharded.query(**query)
        list(sharded.query_items(**query))
    assert [body[parameter] for body in wire.bodies("Query")] == [value] * 8


def test_its_own_name(resource: DynamoDBServiceResource) -> None:
    """TableName may be given where it is the table's own."""
    _, sharded = tables(resource)
    assert answer(sharded, {**OBJECTS, "TableName": sharded.name}) == answer(sharded, OBJECTS)


def test_every_parameter_is_tried() -> None:
    """None of those that shardkit says it knows is left out here."""
    tried = {use.parameter for use in USES} | {refusal.parameter for refusal in REFUSALS}
    assert tried - {"NotYetInvented"} == KEYWORDS["Query"]


@pytest.mark.skipif(not os.environ.get(WALK), reason=f"{WALK} is not set: the newest boto3 is walked in CI")
@pytest.mark.parametrize("operation", sorted(KEYWORDS.keys() & DECISIONS.keys()))
def test_every_parameter_of_this_botocore_is_decided(operation: str) -> None:
    """A parameter that AWS added waits for a decision: honour it, or refuse it with the reason."""
    shape: Any = boto3.client("dynamodb").meta.service_model.operation_model(operation).input_shape
    members = set(shape.members)
    if operation == "BatchGetItem":
        members = (members | set(shape.members["RequestItems"].value.members)) - {"RequestItems", "Keys"}
    assert members == KEYWORDS[operation]
