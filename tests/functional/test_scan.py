"""scan and scan_items: physical segments, logical items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    CursorError,
    ShardedTable,
    ShardQueryError,
    Unsharded,
    UnsupportedExpressionError,
)
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

STRATEGY = CalculatedSuffix("OrderId", 5)
ITEMS: list[dict[str, Any]] = [
    {"Date": "2014-07-09", "OrderId": f"A{number:02}", "Amount": number, "Status": "new"} for number in range(17)
]


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    index = GlobalIndex("by-status", ("Status", "S"), ("Amount", "N"), projection="KEYS_ONLY")
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[index])


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    orders = ShardedTable(table, STRATEGY)
    with orders.batch_writer() as batch:
        for item in ITEMS:
            batch.put_item(Item=item)
    return orders


def ordered(items: Any) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: item["Amount"])


def test_a_cursor_of_another_read_is_refused(orders: ShardedTable, table: Table) -> None:
    """A stored key, an index's cursor and damage are no cursors of this Scan."""
    cursor = orders.scan(Limit=4)["LastEvaluatedKey"]
    wrong: list[Any] = [
        {"Date": "2014-07-09.1", "OrderId": "A01"},
        {"shardkit": cursor["shardkit"][:-2] + "xx"},
        {"shardkit": 5},
        orders.scan(Limit=4, IndexName="by-status")["LastEvaluatedKey"],
        "x",
    ]
    with recording(table.meta.client) as wire:
        for one in wrong:
            with pytest.raises(CursorError):
                orders.scan(ExclusiveStartKey=one)
    assert wire.requests == []


def test_filters_and_projections(orders: ShardedTable) -> None:
    """They work as on a plain table; the key that tells the shard need not be projected."""
    page = orders.scan(FilterExpression=Attr("Amount").gt(14), ProjectionExpression="Amount", ReturnShards=True)
    assert ordered(page["Items"]) == [{"Amount": 15}, {"Amount": 16}]
    assert page["ScannedCount"] == 17
    expected = {item["Amount"]: STRATEGY.shard_of("2014-07-09", item) for item in ITEMS}
    assert page["Shards"] == [expected[item["Amount"]] for item in page["Items"]]


@pytest.mark.parametrize(
    "scan",
    [
        {"FilterExpression": Attr("Date").eq("2014-07-09")},
        {"FilterExpression": Attr("Date").begins_with("2014") | Attr("Amount").eq(1)},
        {"ScanFilter": {"Date": {"ComparisonOperator": "EQ", "AttributeValueList": ["2014-07-09"]}}},
    ],
)
def test_a_filter_on_the_partition_key_is_refused(orders: ShardedTable, table: Table, scan: dict[str, Any]) -> None:
    """It would compare stored keys; the error says to query instead."""
    with recording(table.meta.client) as wire:
        with pytest.raises(UnsupportedExpressionError, match="query the logical key"):
            orders.scan(**scan)
        with pytest.raises(UnsupportedExpressionError, match="query the logical key"):
            list(orders.scan_items(**scan))
    assert wire.requests == []
    counted = orders.scan(FilterExpression=Attr("Date").exists(), Select="COUNT")
    assert counted["Count"] == 17
    assert "Items" not in counted


def test_items_that_others_wrote_are_shown_as_they_are(orders: ShardedTable, table: Table) -> None:
    """A key without a suffix, or with one that no shard has, is nobody's logical key; its shard is None."""
    foreign: list[dict[str, Any]] = [
        {"Date": date, "OrderId": "x", "Amount": 100 + number}
        for number, date in enumerate(("2014-07-09", "2014-07-09.6", "2014-07-09.01", "2014-07-09.x", ".1"))
    ]
    for item in foreign:
        table.put_item(Item=item)
    page = orders.scan(FilterExpression=Attr("Amount").gte(100), ReturnShards=True)
    assert ordered(page["Items"]) == foreign
    assert page["Shards"] == [None] * len(foreign)


@pytest.mark.parametrize("segments", [1, 3, 20])
def test_scan_items_streams_every_segment(orders: ShardedTable, table: Table, segments: int) -> None:
    """Every item comes once, whatever the number of segments, each asked page by page."""
    with recording(table.meta.client) as wire:
        assert ordered(orders.scan_items(segments=segments, Limit=3)) == ITEMS
    asked = {(body.get("Segment"), body.get("TotalSegments")) for _, body in wire.requests}
    assert asked == ({(None, None)} if segments == 1 else {(number, segments) for number in range(segments)})
    shown = {item["Amount"]: shard for item, shard in orders.scan_items(segments=segments, ReturnShards=True)}
    assert shown == {item["Amount"]: STRATEGY.shard_of("2014-07-09", item) for item in ITEMS}


def test_scan_items_reads_an_index(orders: ShardedTable) -> None:
    """An index's items show the logical key too."""
    found = ordered(orders.scan_items(IndexName="by-status"))
    assert [(item["Date"], item["Amount"]) for item in found] == [("2014-07-09", number) for number in range(17)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"segments": 0}, ConfigurationError),
        ({"segments": True}, ConfigurationError),
        ({"segments": "4"}, ConfigurationError),
        ({"Segment": 1, "TotalSegments": 2}, UnsupportedExpressionError),
        ({"ExclusiveStartKey": {"shardkit": "x"}}, UnsupportedExpressionError),
        ({"Select": "COUNT"}, UnsupportedExpressionError),
    ],
)
def test_scan_items_refuses_what_it_cannot_do(
    orders: ShardedTable, table: Table, options: dict[str, Any], error: type[Exception]
) -> None:
    """Before anything is read."""
    with recording(table.meta.client) as wire, pytest.raises(error):
        list(orders.scan_items(**options))
    assert wire.requests == []


def test_a_failed_segment_is_an_error_behind_the_items_that_came(orders: ShardedTable, table: Table) -> None:
    """Nothing is swallowed: the error says which segments failed."""

    def answer(body: dict[str, Any]) -> dict[str, Any] | None:
        return {"__type": "AccessDeniedException", "message": "no"} if body.get("Segment") == 1 else None

    with answering(table.meta.client, "Scan", answer), pytest.raises(ShardQueryError, match="AccessDenied") as caught:
        list(orders.scan_items(segments=3))
    assert list(caught.value.errors) == [1]


def test_a_table_without_suffixes_is_filtered_by_its_partition_key(resource: Any) -> None:
    """What is stored is what the application knows, so the filter may see it."""
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    plain = ShardedTable(table, Unsharded())
    for date in ("a", "b"):
        plain.put_item(Item={"Date": date, "OrderId": "1"})
    assert [item["Date"] for item in plain.scan(FilterExpression=Attr("Date").eq("b"))["Items"]] == ["b"]
