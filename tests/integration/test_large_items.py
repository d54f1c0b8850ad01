"""Promise 2 with items of 1 byte to 400 KB, so that pages really end at 1 MB: written once, asked many times."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given, note, settings
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import item_size
from shardkit.strategies import Strategy
from tests.support.equivalence import Item, Pair, Reading, compare, lopsided, make_pair, readings, write
from tests.support.queries import SHAPES, Query, queries

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

QUERIES = settings().max_examples - 20
MEGABYTE = 1024 * 1024
LARGEST = 400 * 1024 - 16
"""An item's most bytes, less some for the suffix, and for the numbers that engines count otherwise."""
SHAPE = SHAPES["numbers"]
PLACES = {"N": [Decimal(place) for place in range(0, 36, 5)]}


@dataclass(frozen=True)
class Content:
    """The items of one logical key by their sizes in bytes, and how they are sharded."""

    strategy: Strategy
    sizes: list[int]


CONTENTS = {
    "every shard has pages": Content(CalculatedSuffix("sk", 3), [95_000] * 36),
    "one shard has nearly all": Content(CalculatedSuffix("sk", 4, hash=lopsided), [1, 300, LARGEST, 40_000] * 6),
    "most shards are empty": Content(CalculatedSuffix("sk", 20), [1, LARGEST, 5_000, 1, LARGEST, LARGEST, 90_000]),
}


def written(pair: Pair, content: Content, mark: str) -> ShardedTable:
    """Write a content's items under a logical key, padded to their sizes; one in five passes the filter."""
    items: list[Item] = []
    for place, size in enumerate(content.sizes):
        item: Item = {"pk": mark, "sk": place, "keep": place % 5 == 0, "city": mark, "x": ""}
        if 2 * size < LARGEST:
            # What a local index holds of an item counts into the item's 400 KB too: the largest are in none.
            item["b"] = place // 3
        item["x"] = "é" * max(0, (size - item_size(to_wire_item(item))) // 2)
        items.append(item)
    return write(pair, content.strategy, items)


@pytest.mark.long_search
def test_pages_of_a_megabyte(engine_resource: DynamoDBServiceResource) -> None:
    """Whatever is asked, pages put together are the plain table's, both ways, filtered, counted, on indexes."""
    pair = make_pair(engine_resource, SHAPE)
    marks = {name: uuid.uuid4().hex[:8] for name in CONTENTS}
    tables = {name: written(pair, content, marks[name]) for name, content in CONTENTS.items()}
    asked = 0

    @settings(max_examples=QUERIES, print_blob=True)
    @given(
        name=st.sampled_from(list(CONTENTS)),
        query=queries(SHAPE, values=PLACES),  # type: ignore[arg-type]
        reading=readings(most=36),
        larger=st.sampled_from([1, 5]),
    )
    def same(name: str, query: Query, reading: Reading, larger: int) -> None:
        nonlocal asked
        asked += 1
        sizes = tuple(limit and limit * larger for limit in reading.limits)
        note(f"Contents: {CONTENTS[name]}")
        params = query.params(marks[name], marks[name])
        compare(pair.plain, tables[name], params, sort=query.sort, reading=replace(reading, limits=sizes))

    same()
    assert asked >= QUERIES


def test_where_pages_end(engine_resource: DynamoDBServiceResource) -> None:
    """Without Limit a page is one page of every shard: more than a plain table's megabyte, and not the whole answer."""
    pair = make_pair(engine_resource, SHAPE)
    mark = uuid.uuid4().hex[:8]
    sharded = written(pair, CONTENTS["every shard has pages"], mark)
    query: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq(mark)}
    plain, merged = pair.plain.query(**query), sharded.query(**query)
    assert "LastEvaluatedKey" in plain
    assert "LastEvaluatedKey" in merged
    assert plain["Count"] < merged["Count"] < 36
    for shard in (1, 2, 3):
        alone = sharded.query(**query, Shard=shard)
        assert sum(item_size(to_wire_item(item)) for item in alone["Items"]) <= MEGABYTE + LARGEST
