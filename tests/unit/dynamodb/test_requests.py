from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from shardkit.dynamodb.requests import OPERATIONS, estimates_of, tables_of, writes
from shardkit.dynamodb.values import Binary

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"


@dataclass
class Call:
    operation: str
    params: dict[str, Any]


def put(**attributes: Any) -> dict[str, Any]:
    return {"PutRequest": {"Item": {"k": {"S": "x"}, **attributes}}}


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}),
        ({"NS": ["1", "2.50"]}, {"NS": ["2.5", "1"]}),
        ({"BS": [b"a", bytearray(b"b")]}, {"BS": [Binary(b"b"), b"a"]}),
        ({"L": [{"N": "1.0"}, {"B": bytearray(b"x")}]}, {"L": [{"N": "1"}, {"B": b"x"}]}),
        ({"M": {"a": {"N": "1e1"}, "b": {"NULL": True}}}, {"M": {"b": {"NULL": True}, "a": {"N": "10"}}}),
    ],
)
def test_an_unprocessed_write_is_recognized_however_it_is_written(sent: Any, left: Any) -> None:
    call = Call("BatchWriteItem", {"RequestItems": {f"{ARN}Orders": [put(a=sent), put(a={"S": "other"})]}})
    (estimate,) = estimates_of(call, {"UnprocessedItems": {"Orders": [put(a=left)]}})
    assert estimate == ("Orders", {"k": {"S": "x"}, "a": {"S": "other"}}, 1.0)


def test_a_list_keeps_its_order() -> None:
    requests = [put(a={"L": [{"S": "1"}, {"S": "2"}]})]
    call = Call("BatchWriteItem", {"RequestItems": {"Orders": requests}})
    left = {"UnprocessedItems": {"Orders": [put(a={"L": [{"S": "2"}, {"S": "1"}]})]}}
    assert len(list(estimates_of(call, left))) == 1


def test_a_table_by_its_arn_is_the_table_of_its_plain_name() -> None:
    actions = [{"Put": {"TableName": "Orders", "Item": {}}}, {"Delete": {"TableName": f"{ARN}Orders", "Key": {}}}]
    assert tables_of(Call("TransactWriteItems", {"TransactItems": actions})) == {"Orders"}


KEY = {"k": {"S": "x"}}
LARGE = {**KEY, "v": {"B": b"x" * 5000}}  # 5 write units, 2 read units
SQL = 'SELECT * FROM "Orders" WHERE k = ?'


def one(operation: str, params: dict[str, Any], parsed: dict[str, Any]) -> tuple[dict[str, Any], float]:
    ((table, attributes, units),) = estimates_of(Call(operation, {"TableName": f"{ARN}Orders", **params}), parsed)
    assert table == "Orders"
    return dict(attributes), units


@pytest.mark.parametrize(
    ("operation", "params", "parsed", "attributes", "units"),
    [
        ("PutItem", {"Item": LARGE}, {}, LARGE, 5), ("PutItem", {"Item": KEY}, {"Attributes": LARGE}, KEY, 5),
        ("UpdateItem", {"Key": KEY}, {}, KEY, 1), ("UpdateItem", {"Key": KEY}, {"Attributes": LARGE}, KEY, 5),
        ("DeleteItem", {"Key": KEY}, {"Attributes": LARGE}, KEY, 5),
        ("GetItem", {"Key": KEY}, {}, KEY, 0.5), ("GetItem", {"Key": KEY}, {"Item": LARGE}, KEY, 1),
        ("GetItem", {"Key": KEY, "ConsistentRead": True}, {"Item": LARGE}, KEY, 2),
        ("Scan", {}, {"Items": [LARGE, LARGE]}, {}, 1.5), ("Scan", {"ConsistentRead": True}, {"Items": []}, {}, 1),
        ("Query", {"KeyConditionExpression": "k = :k", "ExpressionAttributeValues": {":k": {"S": "x"}}},
         {"Items": [LARGE, LARGE]}, KEY, 1.5),
        ("Query", {"KeyConditionExpression": "no expression"}, {}, {}, 0.5),
    ],
)  # fmt: skip
def test_what_a_call_should_cost(
    operation: str, params: dict[str, Any], parsed: dict[str, Any], attributes: dict[str, Any], units: float
) -> None:
    assert one(operation, params, parsed) == (attributes, units)


@pytest.mark.parametrize(
    ("params", "before", "units"),
    [
        ({"Item": KEY}, LARGE, 5), ({"Item": LARGE}, KEY, 5), ({"Item": LARGE}, None, 1), ({"Key": KEY}, LARGE, 5),
        ({"Key": KEY}, None, 1),
    ],
)  # fmt: skip
def test_a_failed_condition(params: dict[str, Any], before: Any, units: float) -> None:
    parsed = {"Error": {"Code": "ConditionalCheckFailedException"}, **({"Item": before} if before else {})}
    assert one("PutItem", params, parsed) == (params.get("Item") or KEY, units)


def test_another_error_costs_nothing() -> None:
    call = Call("PutItem", {"TableName": "Orders", "Item": KEY})
    assert not list(estimates_of(call, {"Error": {"Code": "ProvisionedThroughputExceededException"}}))


def test_transactions() -> None:
    write = Call("TransactWriteItems", {"TransactItems": [
        {"Put": {"TableName": "Orders", "Item": LARGE}}, {"ConditionCheck": {"TableName": "Other", "Key": KEY}},
    ]})  # fmt: skip
    assert list(estimates_of(write, {})) == [("Orders", LARGE, 10.0), ("Other", KEY, 2.0)]
    read = Call("TransactGetItems", {"TransactItems": [{"Get": {"TableName": "Orders", "Key": KEY}}] * 2})
    assert list(estimates_of(read, {"Responses": [{"Item": LARGE}]})) == [
        ("Orders", KEY, 4.0),
        ("Orders", KEY, 2.0),
    ]


def test_a_batch_of_reads() -> None:
    keys = [{"k": {"S": name}} for name in ("large", "missing", "left", "projected")]
    found = {**LARGE, "k": {"S": "large"}}
    call = Call("BatchGetItem", {"RequestItems": {"Orders": {"Keys": keys, "ConsistentRead": True}}})
    parsed = {
        "Responses": {"Orders": [found, {"v": {"S": "without its key"}}]},
        "UnprocessedKeys": {f"{ARN}Orders": {"Keys": [{"k": {"S": "left"}}]}},
    }
    assert [units for _, _, units in estimates_of(call, parsed)] == [2.0, 1.0, 1.0]
    assert [attributes for _, attributes, _ in estimates_of(call, parsed)] == [keys[0], keys[1], keys[3]]


def test_a_batch_of_writes() -> None:
    requests = [{"PutRequest": {"Item": LARGE}}, {"DeleteRequest": {"Key": {"k": {"B": "no base64"}}}}, put(), put()]
    call = Call("BatchWriteItem", {"RequestItems": {"Orders": requests}})
    assert [units for _, _, units in estimates_of(call, {})] == [5.0, 1.0, 1.0, 1.0]
    left = {"UnprocessedItems": {"Orders": [put(), {"DeleteRequest": {"Key": {"k": {"B": "no base64"}}}}]}}
    assert [attributes for _, attributes, _ in estimates_of(call, left)] == [LARGE, KEY]


def test_statements() -> None:
    call = Call("ExecuteStatement", {"Statement": SQL, "ConsistentRead": True})
    assert list(estimates_of(call, {"Items": [LARGE, LARGE]})) == [("Orders", {}, 3.0)]
    assert not writes(call)
    write = "INSERT INTO Orders VALUE {'k': 'x'}"
    batch = Call("BatchExecuteStatement", {"Statements": [{"Statement": write}, {"Statement": write}]})
    assert list(estimates_of(batch, {"Responses": [{"Error": {}}]})) == [("Orders", {}, 1.0)]
    assert writes(batch)
    transaction = Call("ExecuteTransaction", {"TransactStatements": [{"Statement": SQL}]})
    assert list(estimates_of(transaction, {"Responses": [{"Item": LARGE}]})) == [("Orders", {}, 4.0)]
    assert tables_of(transaction) == {"Orders"}
    transaction = Call("ExecuteTransaction", {"TransactStatements": [{"Statement": write}, {"Statement": write}]})
    assert list(estimates_of(transaction, {})) == [("Orders", {}, 2.0)] * 2


def test_a_type_that_is_added_later_costs_the_least() -> None:
    assert one("PutItem", {"Item": {"k": {"Q": 1}}}, {})[1] == 1
    requests = [put(a={"Q": [1]}), put(a={"Q": [2]})]
    call = Call("BatchWriteItem", {"RequestItems": {"Orders": requests}})
    left = {"UnprocessedItems": {"Orders": [put(a={"Q": [1]})]}}
    assert [attributes["a"] for _, attributes, _ in estimates_of(call, left)] == [{"Q": [2]}]


def test_what_writes() -> None:
    written = {"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"}
    assert {operation for operation in OPERATIONS if writes(Call(operation, {}))} == written
