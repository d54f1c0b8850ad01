"""Sharded indexes: every face writes and reads one as a plain boto3 Table does a plain index."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key

from shardkit import CalculatedSuffix, RandomSuffix, Strategy, Unsharded
from shardkit.errors import UnsupportedExpressionError
from tests.functional.contract.conftest import ENGINE
from tests.functional.contract.faces import Face, FaceTable, needs
from tests.support.tables import Attribute, GlobalIndex, make_table

STATUS: Attribute = ("Status", "S")
WAYS: dict[str, tuple[list[Attribute], dict[str, Any]]] = {
    "in place": ([STATUS], {}),
    "source": ([("StatusShard", "S")], {"source": "Status"}),
    "attribute": ([STATUS, ("Shard", "N")], {"attribute": "Shard"}),
}
ASKED: dict[str, Any] = {"IndexName": "by-status", "KeyConditionExpression": Key("Status").eq("open")}


def an_order(number: int, **more: Any) -> dict[str, Any]:
    order = {
        "Date": f"2014-07-0{number % 3 + 1}",
        "OrderId": f"A{number}",
        "Amount": Decimal(number // 4),
        "Lines": Decimal(number),
    }
    return {**order, "Status": "open" if number % 2 else "done", **more}


@pytest.fixture(params=[pytest.param(way, id=way) for way in WAYS])
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "attribute" and ENGINE == "dynoxide":
        pytest.skip("dynoxide cannot query an index key of several attributes")
    return str(request.param)


def make_orders(face: Face, way: str, strategy: Strategy, index: type[Strategy]) -> FaceTable:
    partition, options = WAYS[way]
    indexes = [GlobalIndex("by-status", partition, ("Amount", "N"))]
    table = make_table(face.resource, ("Date", "S"), ("OrderId", "S"), global_indexes=indexes)
    sharded: Any = RandomSuffix(4, **options) if index is RandomSuffix else CalculatedSuffix("OrderId", 4, **options)
    return face.sharded(table, strategy, indexes={"by-status": sharded})


def pages(read: Callable[..., Any], options: dict[str, Any]) -> list[Any]:
    """Read page by page, each from the cursor of the last."""
    found: list[Any] = []
    while True:
        page = read(**options)
        found += page["Items"]
        if "LastEvaluatedKey" not in page:
            return found
        options = {**options, "ExclusiveStartKey": page["LastEvaluatedKey"]}


@pytest.mark.parametrize(
    ("strategy", "index"),
    [(Unsharded(), RandomSuffix), (CalculatedSuffix("OrderId", 3), CalculatedSuffix)],
    ids=["unsharded-random", "sharded-calculated"],
)
def test_an_index(face: Face, way: str, strategy: Strategy, index: type[Strategy]) -> None:
    orders = make_orders(face, way, strategy, index)
    made = {number: an_order(number) for number in range(24)}
    for number in range(6):
        orders.put_item(Item=made[number])
    orders.write(made[number] for number in range(6, 24))
    orders.write(deletes=[{name: made[10][name] for name in ("Date", "OrderId")}])
    sparse = {"Date": "2014-07-01", "OrderId": "B", "Amount": Decimal(1)}
    orders.put_item(Item=sparse)
    key = {name: made[2][name] for name in ("Date", "OrderId")}
    answer = orders.update_item(
        Key=key,
        UpdateExpression="SET #s = :open",
        ConditionExpression=Attr("Status").eq("done"),
        ExpressionAttributeNames={"#s": "Status"},
        ExpressionAttributeValues={":open": "open"},
        ReturnValues="ALL_NEW",
    )
    assert answer["Attributes"] == made[2] | {"Status": "open"}
    open_ones = [made[number] for number in range(1, 24, 2)] + [made[2] | {"Status": "open"}]

    def by_id(items: list[Any]) -> list[Any]:
        return sorted(items, key=lambda item: item["OrderId"])

    forward = orders.query(**ASKED)["Items"]
    assert by_id(forward) == by_id(open_ones)
    assert [order["Amount"] for order in forward] == sorted(order["Amount"] for order in open_ones)
    assert pages(orders.query, {**ASKED, "Limit": 4}) == forward
    assert pages(orders.query, {**ASKED, "Limit": 5, "ScanIndexForward": False}) == forward[::-1]
    assert orders.query_items(**ASKED) == forward
    narrow = orders.query(**ASKED | {"KeyConditionExpression": Key("Status").eq("open") & Key("Amount").lt(2)})["Items"]
    assert narrow == [order for order in forward if order["Amount"] < 2]
    assert orders.query(**ASKED, Select="COUNT")["Count"] == len(forward)
    selected = orders.query(**ASKED, FilterExpression=Attr("Lines").gt(9), ProjectionExpression="OrderId")["Items"]
    assert selected == [{"OrderId": order["OrderId"]} for order in forward if order["Lines"] > 9]
    rest = [made[number] for number in range(0, 24, 2) if number not in {2, 10}]
    assert by_id(orders.scan()["Items"]) == by_id([*open_ones, *rest, sparse])
    assert by_id(pages(orders.scan, {"IndexName": "by-status", "Limit": 5})) == by_id([*open_ones, *rest])
    assert by_id(orders.scan_items(FilterExpression=Attr("Status").eq("open"))) == by_id(open_ones)
    assert orders.batch_get_items([key]) == [made[2] | {"Status": "open"}]


def test_a_load(face: Face, way: str) -> None:
    needs(face, "loads")
    orders = make_orders(face, way, CalculatedSuffix("OrderId", 3), CalculatedSuffix)
    orders.bulk_load([an_order(number) for number in range(30)])
    found = orders.query(**ASKED)["Items"]
    assert sorted(order["OrderId"] for order in found) == sorted(f"A{number}" for number in range(1, 30, 2))


def test_what_cannot_be_rewritten_is_refused(face: Face) -> None:
    orders = make_orders(face, "source", CalculatedSuffix("OrderId", 3), CalculatedSuffix)
    key = {"Date": "2014-07-01", "OrderId": "A1"}
    values = {":v": {"open"}}
    names = {"#s": "Status"}
    with pytest.raises(UnsupportedExpressionError, match="ADD of 'Status' must set it to a :value"):
        orders.update_item(
            Key=key,
            UpdateExpression="ADD #s :v",
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )
    with pytest.raises(UnsupportedExpressionError, match="Item: must not have 'StatusShard'"):
        orders.put_item(Item={**key, "StatusShard": "open.1"})
