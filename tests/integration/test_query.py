"""Promise 2 on real engines: merged queries beside a plain table's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given, settings

from shardkit import RandomSuffix, ShardedTable
from tests.support.equivalence import Case, cases, check, kept, make_pair
from tests.support.long_numbers import check_long_numbers
from tests.support.queries import SHAPES
from tests.support.tables import make_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource

QUERIES = 2000
"""That each engine is asked at least, whatever the profile of hypothesis; every one is read in three or four ways."""
OF_ONE_CONTENT = 10
CONTENTS = QUERIES // len(SHAPES) // OF_ONE_CONTENT


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_as_a_plain_table(engine_resource: DynamoDBServiceResource, shape: str) -> None:
    """Same items, sort-key order, no page over Limit, one fixed order; one pair of tables, other keys in every case."""
    pair = make_pair(engine_resource, SHAPES[shape])
    asked = 0

    # A failure prints how to repeat it; the case that it prints is kept in `KEPT`.
    @settings(max_examples=max(CONTENTS, settings().max_examples // OF_ONE_CONTENT), print_blob=True)
    @given(case=cases(SHAPES[shape], asked=OF_ONE_CONTENT))
    @kept(shape)
    def same(case: Case) -> None:
        nonlocal asked
        asked += check(pair, case)

    same()
    assert asked >= QUERIES / len(SHAPES)


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


def test_numbers_of_more_than_38_digits(engine_resource: DynamoDBServiceResource) -> None:
    """1E100 is printed with 101 digits, which boto3 refuses: a sort key that is not shown need not be read by it."""
    check_long_numbers(engine_resource)
