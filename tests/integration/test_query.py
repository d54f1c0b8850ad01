"""Promise 2 on real engines: merged queries beside a plain table's."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given, settings

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable
from shardkit.table_types import ShardedPageResponse
from tests.support.engines import EngineName
from tests.support.equivalence import Case, cases, check, check_an_index_of_two_and_two, kept, make_pair
from tests.support.queries import SHAPES
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

CONTENTS = settings().max_examples // len(SHAPES) - 5
OF_ONE_CONTENT = 10
"""Queries of one content, each read in three or four ways: 80 on each engine, in the long search 1,280."""


@pytest.mark.long_search
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_as_a_plain_table(engine_resource: DynamoDBServiceResource, shape: str) -> None:
    """Same items, sort-key order, no page over Limit, one fixed order; one pair of tables, other keys in every case."""
    pair = make_pair(engine_resource, SHAPES[shape])
    asked = 0

    # A failure prints how to repeat it; the case that it prints is kept in `KEPT`.
    @settings(max_examples=CONTENTS, print_blob=True)
    @given(case=cases(SHAPES[shape], asked=OF_ONE_CONTENT))
    @kept(shape)
    def same(case: Case) -> None:
        nonlocal asked
        asked += check(pair, case)

    same()
    assert asked >= CONTENTS * OF_ONE_CONTENT


def test_one_primary_key_on_many_shards(engine_resource: DynamoDBServiceResource) -> None:
    """Merging never de-duplicates: what is stored is shown, by shard among equal sort keys."""
    table = ShardedTable(make_table(engine_resource, sort_key=("sk", "N")), RandomSuffix(3))
    for shard in (3, 1, 2):
        for number in (1, 2):
            table.put_item(Item={"pk": "k", "sk": number}, Shard=shard)
    query: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "ReturnShards": True}
    seen = [(int(item["sk"]), shard) for item, shard in table.query_items(**query)]
    assert seen == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    paged: list[tuple[int, int | None]] = []
    start: dict[str, Any] = {}
    while len(paged) < 6:
        page = table.query(**query, Limit=1, **start)
        paged += [(int(item["sk"]), shard) for item, shard in zip(page["Items"], page["Shards"], strict=True)]
        start = {"ExclusiveStartKey": page.get("LastEvaluatedKey")}
    assert paged == seen


NUMBERS = ("-9.99E125", "-1E100", "-1E-130", "0", "1E-130", "7", "1E100", "1.23E101", "9.99E125")
"""In their order."""
_DAY = Key("pk").eq("k")
READS: dict[str, dict[str, Any]] = {
    "table": {"KeyConditionExpression": _DAY},
    "range": {"KeyConditionExpression": _DAY & Key("sk").between(Decimal("-9.99E125"), Decimal("9.99E125"))},
    "local index": {"IndexName": "by-a", "KeyConditionExpression": _DAY},
    "another partition key": {"IndexName": "city", "KeyConditionExpression": Key("city").eq("Bern")},
}


def test_numbers_of_more_than_38_digits(engine_resource: DynamoDBServiceResource) -> None:
    """1E100 is printed with 101 digits, which boto3 refuses: a sort key that is not shown need not be read by it."""
    orders = _filled(engine_resource)
    for query in READS.values():
        for forward in (True, False):
            asked = {**query, "ScanIndexForward": forward}
            places = list(range(len(NUMBERS)))[:: 1 if forward else -1]
            projected = {**asked, "ProjectionExpression": "#p", "ExpressionAttributeNames": {"#p": "place"}}
            with orders.query_items(**projected) as stream:
                assert [item["place"] for item in stream] == places
            for limit in (1, 4, None) if forward else (4,):
                shown = [item for page in _pages(orders, projected, limit) for item in page["Items"]]
                assert shown == [{"place": place} for place in places]
                counts = [page["Count"] for page in _pages(orders, {**asked, "Select": "COUNT"}, limit)]
                assert sum(counts) == len(NUMBERS)
                assert max(counts) <= (limit or len(NUMBERS))


def _filled(resource: DynamoDBServiceResource) -> ShardedTable:
    table = make_table(
        resource,
        sort_key=("sk", "N"),
        local_indexes=[LocalIndex("by-a", ("a", "N"))],
        global_indexes=[GlobalIndex("city", ("city", "S"), ("a", "N"))],
    )
    orders = ShardedTable(table, CalculatedSuffix("sk", shards=3))
    with closing(boto3.client("dynamodb", endpoint_url=table.meta.client.meta.endpoint_url)) as client:
        for place, text in enumerate(NUMBERS):
            number = Decimal(text)
            key: Any = orders.physical_key({"pk": "k", "sk": number})["pk"]
            digits = {"N": f"{number:f}"}  # as services print it: moto gives back what it is given
            client.put_item(
                TableName=table.name,
                Item={"pk": {"S": key}, "sk": digits, "a": digits, "city": {"S": "Bern"}, "place": {"N": str(place)}},
            )
    return orders


def _pages(orders: ShardedTable, query: dict[str, Any], limit: int | None) -> list[ShardedPageResponse]:
    pages: list[ShardedPageResponse] = []
    more: dict[str, Any] = {} if limit is None else {"Limit": limit}
    while not pages or "LastEvaluatedKey" in pages[-1]:
        start: dict[str, Any] = {"ExclusiveStartKey": pages[-1]["LastEvaluatedKey"]} if pages else {}
        pages.append(orders.query(**query, **more, **start))
    return pages


@pytest.mark.parametrize("descending", [False, True])
def test_an_index_key_of_several_attributes(
    engine_resource: DynamoDBServiceResource, engine_name: EngineName, descending: bool
) -> None:
    if engine_name == "dynoxide":
        pytest.skip("dynoxide cannot query an index key of several attributes")
    check_an_index_of_two_and_two(engine_resource, descending=descending)
