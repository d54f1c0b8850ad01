"""Queries and bulk loads: every face and strategy brings what a plain boto3 Table brings."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key

from shardkit import BulkLoadError, CalculatedSuffix, CursorError, RandomSuffix, Strategy, Unsharded
from shardkit.errors import ShardkitError, UnsupportedExpressionError
from tests.functional.contract.faces import Face, FaceTable
from tests.support.tables import make_table

ITEMS: list[dict[str, Any]] = [
    {"Date": date, "OrderId": f"A{number:03}", "Amount": Decimal(number % 5)}
    for date in ("2014-07-09", "2014-07-10")
    for number in range(23)
]
STRATEGIES: dict[str, Strategy] = {
    "calculated": CalculatedSuffix("OrderId", 4),
    "random": RandomSuffix(4),
    "located": RandomSuffix(4, locate=True),
    "unsharded": Unsharded(),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
DAY = Key("Date").eq("2014-07-09")
QUERIES: dict[str, dict[str, Any]] = {
    "a key": {"KeyConditionExpression": DAY},
    "a range, backwards": {
        "KeyConditionExpression": DAY & Key("OrderId").between("A003", "A019"),
        "ScanIndexForward": False,
    },
    "a text": {
        "KeyConditionExpression": "#d = :d AND begins_with(OrderId, :a)",
        "ExpressionAttributeNames": {"#d": "Date"},
        "ExpressionAttributeValues": {":d": "2014-07-09", ":a": "A01"},
    },
    "a filter": {"KeyConditionExpression": DAY, "FilterExpression": Attr("Amount").gt(2)},
    "a projection": {"KeyConditionExpression": DAY, "ProjectionExpression": "Amount"},
    "a count": {"KeyConditionExpression": DAY, "Select": "COUNT"},
    "nothing": {"KeyConditionExpression": Key("Date").eq("2014-07-11")},
    "legacy": {"KeyConditions": {"Date": {"ComparisonOperator": "EQ", "AttributeValueList": ["2014-07-09"]}}},
}
Loaded = Callable[[Strategy], FaceTable]


@pytest.fixture
def plain(face: Face) -> Any:
    table = make_table(face.resource, ("Date", "S"), ("OrderId", "S"))
    with table.batch_writer() as batch:
        for item in ITEMS:
            batch.put_item(Item=item)
    return table


@pytest.fixture
def stored(face: Face) -> Any:
    return make_table(face.resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def loaded(face: Face, stored: Any) -> Loaded:
    def load(strategy: Strategy) -> FaceTable:
        table = face.sharded(stored, strategy, rng=random.Random(3))
        report = table.bulk_load(ITEMS)
        assert (report.items, report.written, report.failed) == (len(ITEMS), len(ITEMS), 0)
        return table

    return load


def pages(table: Any, query: dict[str, Any]) -> list[dict[str, Any]]:
    found = [table.query(**query)]
    while "LastEvaluatedKey" in found[-1]:
        found.append(table.query(**query, ExclusiveStartKey=found[-1]["LastEvaluatedKey"]))
    return found


@every_strategy
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_page_is_boto3s(loaded: Loaded, plain: Any, strategy: Strategy, query: dict[str, Any]) -> None:
    """Items, Count, ScannedCount and the response's shape are a plain table's."""
    shown, expected = loaded(strategy).query(**query), plain.query(**query)
    for response in (shown, expected):
        assert response.pop("ResponseMetadata")["HTTPStatusCode"] == 200
    assert shown == expected


@every_strategy
@pytest.mark.parametrize("limit", [1, 7, 23])
@pytest.mark.parametrize("forward", [True, False])
def test_pages_put_together_are_boto3s(
    loaded: Loaded, plain: Any, strategy: Strategy, limit: int, forward: bool
) -> None:
    """Paging by the cursor loses and repeats nothing, keeps the order, and never exceeds Limit."""
    query = {"KeyConditionExpression": DAY, "ScanIndexForward": forward}
    found = pages(loaded(strategy), {**query, "Limit": limit})
    assert [item for page in found for item in page["Items"]] == plain.query(**query)["Items"]
    assert all(len(page["Items"]) <= limit for page in found)
    assert all(set(page["LastEvaluatedKey"]) == {"shardkit"} for page in found[:-1])


@every_strategy
def test_shards_are_told_beside_the_items(loaded: Loaded, stored: Any, strategy: Strategy) -> None:
    """ReturnShards gives where each item is, and Shard= reads just that shard."""
    table = loaded(strategy)
    page = table.query(KeyConditionExpression=DAY, ReturnShards=True)
    assert len(page["Shards"]) == len(page["Items"])
    for item, shard in zip(page["Items"], page["Shards"], strict=True):
        physical = item["Date"] if shard is None else f"{item['Date']}.{shard}"
        assert stored.get_item(Key={"Date": physical, "OrderId": item["OrderId"]})["Item"]["Amount"] == item["Amount"]
    if not isinstance(strategy, Unsharded):
        one = table.query(KeyConditionExpression=DAY, Shard=2, ReturnShards=True)
        assert set(one["Shards"]) == {2}
        assert one["Items"] == [item for item, shard in zip(page["Items"], page["Shards"], strict=True) if shard == 2]


def test_refusals_are_the_same_on_every_face(loaded: Loaded) -> None:
    """A query without the partition key, and a cursor of another key, are refused with shardkit's errors."""
    table = loaded(STRATEGIES["calculated"])
    with pytest.raises(UnsupportedExpressionError, match="partition key"):
        table.query(KeyConditionExpression=Key("OrderId").eq("A001"))
    cursor = table.query(KeyConditionExpression=DAY, Limit=3)["LastEvaluatedKey"]
    with pytest.raises(CursorError, match="another key"):
        table.query(KeyConditionExpression=Key("Date").eq("2014-07-10"), ExclusiveStartKey=cursor)


@every_strategy
def test_a_bulk_load_writes_every_item_once(loaded: Loaded, plain: Any, stored: Any, strategy: Strategy) -> None:
    """What is read back, key by key, is what a plain table holds."""
    table = loaded(strategy)
    for date in ("2014-07-09", "2014-07-10"):
        condition = Key("Date").eq(date)
        assert (
            table.query(KeyConditionExpression=condition)["Items"]
            == plain.query(KeyConditionExpression=condition)["Items"]
        )
    assert stored.scan(Select="COUNT")["Count"] == len(ITEMS)


@every_strategy
def test_bad_items_do_not_stop_good_ones(face: Face, stored: Any, strategy: Strategy) -> None:
    """The items that cannot be written come back with their reasons; all others are written."""
    table = face.sharded(stored, strategy)
    bad: list[dict[str, Any]] = [{"Date": "2014-07-09"}, {**ITEMS[0], "Amount": 1.5}, {"OrderId": "A1", "Date": 5}]
    with pytest.raises(BulkLoadError) as caught:
        table.bulk_load([*bad, *ITEMS])
    assert [result.item for result in caught.value.failed] == bad
    assert all(isinstance(result.error, ShardkitError) for result in caught.value.failed)
    report = table.bulk_load([*bad, *ITEMS], on_error="collect")
    assert (report.written, report.failed) == (len(ITEMS), len(bad))
    assert stored.scan(Select="COUNT")["Count"] >= len(ITEMS)


def test_a_source_that_breaks_loses_nothing_taken(face: Face, stored: Any) -> None:
    """What was taken before the source failed is written, and the error is raised from the source's."""

    def source() -> Any:
        for number in range(30):
            yield {"Date": "2014-07-09", "OrderId": f"B{number:03}"}
        raise OSError("the disk is gone")

    table = face.sharded(stored, CalculatedSuffix("OrderId", shards=5))
    with pytest.raises(BulkLoadError, match="the disk is gone") as caught:
        table.bulk_load(source())
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.report is not None
    assert caught.value.report.written == 30
