"""Promise 2 on real engines: merged queries beside a plain table's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from hypothesis import given

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable
from tests.equivalence import SHAPES, Case, cases, check, compare, make_pair
from tests.tables import make_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_as_a_plain_table(engine_resource: DynamoDBServiceResource, shape: str) -> None:
    """Same items, sort-key order, no page over Limit, one fixed order; one pair of tables, other keys in every case."""
    pair = make_pair(engine_resource, SHAPES[shape])

    @given(case=cases(SHAPES[shape]))
    def same(case: Case) -> None:
        check(pair, case)

    same()


def test_pages_of_a_megabyte(engine_resource: DynamoDBServiceResource) -> None:
    """Without Limit a shard's page ends at 1 MB: pages put together, both ways, are the plain table's."""
    plain = make_table(engine_resource, sort_key=("sk", "N"))
    sharded = ShardedTable(make_table(engine_resource, sort_key=("sk", "N")), CalculatedSuffix("sk", shards=3))
    with plain.batch_writer() as one, sharded.batch_writer() as other:
        for number in range(60):
            item = {"pk": "k", "sk": number, "a": number % 2, "text": "x" * 100_000}
            one.put_item(Item=item)
            other.put_item(Item=item)
    for more in ({}, {"ScanIndexForward": False}, {"FilterExpression": Attr("a").eq(1)}, {"Select": "COUNT"}):
        query: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), **more}
        for limit in (None, 25):
            compare(plain, sharded, query, sort="sk", limit=limit)
    first = sharded.query(KeyConditionExpression=Key("pk").eq("k"))
    assert 10 <= first["Count"] < 60


def test_one_primary_key_on_many_shards(engine_resource: DynamoDBServiceResource) -> None:
    """Merging never de-duplicates: what is stored is shown, by shard among equal sort keys."""
    table = ShardedTable(make_table(engine_resource, sort_key=("sk", "N")), RandomSuffix(3))
    for shard in (3, 1, 2):
        for number in (1, 2):
            table.put_item(Item={"pk": "k", "sk": number}, Shard=shard)
    query: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "ReturnShards": True}
    seen = [(int(item["sk"]), shard) for item, shard in table.query_items(**query)]
    assert seen == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    paged: list[tuple[int, int]] = []
    start: dict[str, Any] = {}
    while len(paged) < 6:
        page = table.query(**query, Limit=1, **start)
        paged += [(int(item["sk"]), shard) for item, shard in zip(page["Items"], page["Shards"], strict=True)]
        start = {"ExclusiveStartKey": page.get("LastEvaluatedKey")}
    assert paged == seen
