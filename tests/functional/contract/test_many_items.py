"""Reads of many items: every face and strategy brings what a plain boto3 Table brings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key

from shardkit import (
    CalculatedSuffix,
    CursorError,
    RandomSuffix,
    RangeSuffix,
    Resharding,
    ShardQueryError,
    Strategy,
    Unsharded,
)
from shardkit.errors import UnsupportedExpressionError
from tests.functional.contract.faces import Face, FaceTable, combined, needs
from tests.support.moving import every_stage
from tests.support.recorder import answering
from tests.support.tables import LocalIndex, make_table

ITEMS: list[dict[str, Any]] = [
    {"Date": date, "OrderId": f"A{number:03}", "Amount": Decimal(number % 5), "Placing": Decimal(7 * number % 23)}
    for date in ("2014-07-09", "2014-07-10")
    for number in range(23)
]
STRATEGIES: dict[str, Strategy] = {
    "calculated": CalculatedSuffix("OrderId", 4),
    "ranges": RangeSuffix("OrderId", ["A006", "A01", "A015"]),
    "random": RandomSuffix(4),
    "located": RandomSuffix(4, locate=True),
    "unsharded": Unsharded(),
}
QUERIED = {name: strategy for name, strategy in STRATEGIES.items() if name != "located"}  # whose queries are "random"'s
every_strategy = pytest.mark.parametrize("strategy", QUERIED.values(), ids=QUERIED)
STAGED = {**QUERIED, **every_stage(Unsharded(), CalculatedSuffix("OrderId", 4))}
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
    "an index": {"IndexName": "ByPlacing", "KeyConditionExpression": DAY & Key("Placing").gte(4)},
    "an index, backwards": {
        "IndexName": "ByPlacing",
        "KeyConditionExpression": DAY,
        "FilterExpression": Attr("Amount").gt(2),
        "ScanIndexForward": False,
    },
    "nothing": {"KeyConditionExpression": Key("Date").eq("2014-07-11")},
    "legacy": {"KeyConditions": {"Date": {"ComparisonOperator": "EQ", "AttributeValueList": ["2014-07-09"]}}},
}
PAGED = {
    name: query for name, query in QUERIES.items() if "ProjectionExpression" not in query and "Select" not in query
}
Loaded = Callable[[Strategy], FaceTable]


@pytest.fixture(scope="module")
def plain(face: Face) -> Any:
    return table_with(face, ITEMS)


@pytest.fixture(scope="module")
def loaded(face: Face) -> Loaded:
    """Give a table with all items, which a test only reads; one for each strategy."""
    made: dict[int, FaceTable] = {}

    def load(strategy: Strategy) -> FaceTable:
        if id(strategy) not in made:
            stored, rng = table_with(face, ()), random.Random(3)
            if isinstance(strategy, Resharding):  # items at both places
                face.sharded(stored, replace(strategy, stage="old")).write(puts=ITEMS[::2])
                face.sharded(stored, replace(strategy, stage="switch")).write(puts=ITEMS[1::2])
                made[id(strategy)] = face.sharded(stored, strategy)
            else:
                made[id(strategy)] = face.sharded(stored, strategy, rng=rng)
                made[id(strategy)].write(puts=ITEMS)
        return made[id(strategy)]

    return load


def table_with(face: Face, items: Any) -> Any:
    index = LocalIndex("ByPlacing", ("Placing", "N"))
    table = make_table(face.resource, ("Date", "S"), ("OrderId", "S"), local_indexes=[index])
    with table.batch_writer() as batch:
        for item in items:
            batch.put_item(Item=item)
    return table


def pages(call: Callable[..., dict[str, Any]], query: dict[str, Any]) -> list[dict[str, Any]]:
    found = [call(**query)]
    while "LastEvaluatedKey" in found[-1]:
        found.append(call(**query, ExclusiveStartKey=found[-1]["LastEvaluatedKey"]))
    return found


def items_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for page in found for item in page["Items"]]


def in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: (item["Date"], item["OrderId"]))


# Queries.


@combined(STAGED, "query", QUERIES)
def test_a_page_is_boto3s(loaded: Loaded, plain: Any, strategy: Strategy, query: dict[str, Any]) -> None:
    """Items, Count, ScannedCount and the response's shape are a plain table's."""
    shown, expected = loaded(strategy).query(**query), plain.query(**query)
    for response in (shown, expected):
        assert response.pop("ResponseMetadata")["HTTPStatusCode"] == 200
        if isinstance(strategy, Resharding):  # with a filter, stubs count as evaluated
            del response["ScannedCount"]
    assert shown == expected


@combined(STAGED, "limit", {"1": 1, "7": 7, "23": 23})
@pytest.mark.parametrize("forward", [True, False])
def test_pages_put_together_are_boto3s(
    face: Face, loaded: Loaded, plain: Any, strategy: Strategy, limit: int, forward: bool
) -> None:
    """Paging by the cursor loses and repeats nothing, keeps the order, and never exceeds Limit."""
    asked = DAY if limit > 1 else DAY & Key("OrderId").lt("A008")
    query = {"KeyConditionExpression": asked, "ScanIndexForward": forward}
    found = pages(loaded(strategy).query, {**query, "Limit": limit})
    assert items_of(found) == plain.query(**query)["Items"]
    assert all(len(page["Items"]) <= limit for page in found)
    names = {"shardkit"} if "tokens" in face.offers else {"Date", "OrderId"}
    assert all(set(page["LastEvaluatedKey"]) == names for page in found[:-1])


@combined(STAGED, "query", PAGED)
def test_pages_of_every_query(loaded: Loaded, plain: Any, strategy: Strategy, query: dict[str, Any]) -> None:
    """With a filter, on an index and backwards too."""
    assert items_of(pages(loaded(strategy).query, {**query, "Limit": 6})) == plain.query(**query)["Items"]


@combined(STAGED, "query", PAGED)
def test_query_items_gives_all_items(loaded: Loaded, plain: Any, strategy: Strategy, query: dict[str, Any]) -> None:
    """In order, whatever the page size."""
    expected = plain.query(**query)["Items"]
    assert loaded(strategy).query_items(**query) == loaded(strategy).query_items(**query, Limit=4) == expected


def test_query_items_ends_early_and_tells_shards(face: Face, loaded: Loaded, plain: Any) -> None:
    needs(face, "shards")
    table = loaded(STRATEGIES["calculated"])
    page = table.query(KeyConditionExpression=DAY, ReturnShards=True)
    pairs = list(zip(page["Items"], page["Shards"], strict=True))
    assert table.query_items(KeyConditionExpression=DAY, max_items=5, ReturnShards=True) == pairs[:5]
    assert table.query_items(KeyConditionExpression=DAY, max_items=0) == []
    assert table.query_items(KeyConditionExpression=DAY, Shard=2) == [item for item, shard in pairs if shard == 2]


@pytest.mark.parametrize("kind", ["B", "N"])
def test_other_types_of_sort_keys(face: Face, kind: Any) -> None:
    """Bytes and numbers are ordered as the service orders them, forwards and by pages backwards."""
    keys: list[Any] = [bytes([number]) for number in (0, 1, 2, 127, 128, 255)] if kind == "B" else [-10, -2, 0, 3, 20]
    plain: Any
    plain, stored = (make_table(face.resource, ("Date", "B"), ("Rank", kind)) for _ in range(2))
    table = face.sharded(stored, CalculatedSuffix("Rank", 4))
    items = [{"Date": b"\xff.1", "Rank": key} for key in keys]
    table.write(puts=reversed(items))
    for item in items:
        plain.put_item(Item=item)
    query = {"KeyConditionExpression": Key("Date").eq(b"\xff.1")}
    assert table.query(**query)["Items"] == plain.query(**query)["Items"]
    backwards = {**query, "ScanIndexForward": False}
    assert items_of(pages(table.query, {**backwards, "Limit": 2})) == plain.query(**backwards)["Items"]


@every_strategy
def test_shards_are_told_beside_the_items(face: Face, strategy: Strategy) -> None:
    """ReturnShards gives where each item is, and Shard= reads just that shard."""
    needs(face, "shards")
    stored = table_with(face, ())
    table = face.sharded(stored, strategy, rng=random.Random(3))
    table.write(puts=ITEMS)
    page = table.query(KeyConditionExpression=DAY, ReturnShards=True)
    assert len(page["Shards"]) == len(page["Items"])
    for item, shard in zip(page["Items"], page["Shards"], strict=True):
        physical = strategy.physical_key(item["Date"], shard)
        assert stored.get_item(Key={"Date": physical, "OrderId": item["OrderId"]})["Item"]["Amount"] == item["Amount"]
    if not isinstance(strategy, Unsharded):
        one = table.query(KeyConditionExpression=DAY, Shard=2, ReturnShards=True)
        assert set(one["Shards"]) == {2}
        assert one["Items"] == [item for item, shard in zip(page["Items"], page["Shards"], strict=True) if shard == 2]


def test_refusals_are_the_same_on_every_face(face: Face, loaded: Loaded) -> None:
    """A query without the partition key, and a cursor of another key, are refused with shardkit's errors."""
    table = loaded(STRATEGIES["calculated"])
    with pytest.raises(UnsupportedExpressionError, match="partition key"):
        table.query(KeyConditionExpression=Key("OrderId").eq("A001"))
    cursor = table.query(KeyConditionExpression=DAY, Limit=3)["LastEvaluatedKey"]
    with pytest.raises(CursorError, match="another key" if "tokens" in face.offers else "ExclusiveStartKey"):
        table.query(KeyConditionExpression=Key("Date").eq("2014-07-10"), ExclusiveStartKey=cursor)


# Scans.


@every_strategy
def test_a_scan_is_boto3s(loaded: Loaded, plain: Any, strategy: Strategy) -> None:
    """Whole, filtered and counted: the items have their logical keys; their order is the table's own."""
    table = loaded(strategy)
    for scan in ({}, {"FilterExpression": Attr("Amount").gt(2)}, {"Select": "COUNT"}):
        shown, expected = table.scan(**scan), plain.scan(**scan)
        for response in (shown, expected):
            assert response.pop("ResponseMetadata")["HTTPStatusCode"] == 200
            response["Items"] = in_order(response.get("Items", []))
        assert shown == expected


@every_strategy
def test_pages_of_a_scan(loaded: Loaded, strategy: Strategy) -> None:
    found = pages(loaded(strategy).scan, {"Limit": 7})
    assert [len(page["Items"]) for page in found] == [7] * 6 + [4]
    assert in_order(items_of(found)) == ITEMS


@every_strategy
@pytest.mark.parametrize("segments", [1, 3])
def test_scan_items_gives_all_items(loaded: Loaded, strategy: Strategy, segments: int) -> None:
    assert in_order(loaded(strategy).scan_items(segments=segments, Limit=5)) == ITEMS


def test_a_scan_tells_shards(face: Face, loaded: Loaded) -> None:
    needs(face, "shards")
    strategy = STRATEGIES["calculated"]
    pairs = loaded(strategy).scan_items(ReturnShards=True)
    assert all(shard == strategy.shard_of(item["Date"], item) for item, shard in pairs)
    page = loaded(strategy).scan(ReturnShards=True)
    assert list(zip(page["Items"], page["Shards"], strict=True)) == pairs


def test_a_scan_filtered_by_the_partition_key_is_refused(loaded: Loaded) -> None:
    table = loaded(STRATEGIES["calculated"])
    for call in (table.scan, table.scan_items):
        with pytest.raises(UnsupportedExpressionError, match="query the logical key"):
            call(FilterExpression=Attr("Date").eq("2014-07-09"))


# Many keys.


@pytest.mark.parametrize("name", ["calculated", "ranges", "located", "unsharded"])
def test_items_come_by_their_keys(loaded: Loaded, name: str) -> None:
    """Those that exist; a projection need not name the key."""
    table = loaded(STRATEGIES[name])
    keys = [{"Date": item["Date"], "OrderId": item["OrderId"]} for item in ITEMS]
    missing = {"Date": "2014-07-09", "OrderId": "none"}
    assert in_order(table.batch_get_items([missing, *keys[::-1]], ConsistentRead=True)) == ITEMS
    assert table.batch_get_items(keys[3:4], ProjectionExpression="Amount") == [{"Amount": 3}]


# Options.


def test_a_view_with_other_options(face: Face, loaded: Loaded, plain: Any) -> None:
    needs(face, "views")
    view = loaded(STRATEGIES["calculated"]).with_options(timeout=60, max_concurrency=2, max_buffer_bytes=100_000)
    assert view.query(KeyConditionExpression=DAY)["Items"] == plain.query(KeyConditionExpression=DAY)["Items"]
    assert in_order(view.scan_items(segments=3)) == ITEMS


@pytest.mark.parametrize("accepted", [False, True])
def test_one_shard_fails(face: Face, loaded: Loaded, accepted: bool) -> None:
    """The error says which; its items are missing, or with on_shard_error="partial" those of the others are there."""
    needs(face, "views", "shards")
    table = loaded(STRATEGIES["calculated"]).with_options(on_shard_error="partial" if accepted else "raise")
    page = table.query(KeyConditionExpression=DAY, ReturnShards=True)
    others = [item for item, shard in zip(page["Items"], page["Shards"], strict=True) if shard != 2]

    def denied(body: dict[str, Any]) -> dict[str, Any] | None:
        if "2014-07-09.2" not in str(body):
            return None
        return {"__type": "AccessDeniedException", "message": "no"}

    # One request at a time: a face that cancels requests in flight when one fails has none.
    view = table.with_options(max_concurrency=1)
    with answering(table.client, "Query", denied):
        if accepted:
            assert view.query(KeyConditionExpression=DAY)["Items"] == others
            (error,) = view.query(KeyConditionExpression=DAY)["ShardErrors"].items()
            assert (error[0], "AccessDenied" in str(error[1])) == (2, True)
            assert table.query_items(KeyConditionExpression=DAY) == others
            return
        for call in (view.query, view.query_items):
            with pytest.raises(ShardQueryError, match=r"1 of 4 shards failed .*AccessDenied") as caught:
                call(KeyConditionExpression=DAY)
            assert set(caught.value.errors) == {2}
            assert all(item in others for item in caught.value.partial_items)


def test_an_error_that_all_shards_have_is_boto3s(face: Face, loaded: Loaded) -> None:
    table = loaded(STRATEGIES["calculated"])
    refused = {"__type": "ValidationException", "message": "no"}
    with answering(table.client, "Query", lambda _: refused):
        for call in (table.query, table.query_items):
            with pytest.raises(table.client.exceptions.ClientError, match="ValidationException"):
                call(KeyConditionExpression=DAY)
