"""Reads of a table whose items are at any of their places, through the public faces, beside what was stored."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr, Key

from shardkit import Resharding, ShardedTable, Strategy, install
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.strategies import Stage
from tests.support.moved import STATES, MovedTable, in_stage, neighbours
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

Item = dict[str, Any]
INDEXES: list[GlobalIndex] = [
    GlobalIndex("same", ("pk", "S"), ("b", "S")),
    GlobalIndex("city", ("city", "S"), ("b", "S")),
    GlobalIndex("keys", ("sk", "N"), ("pk", "S")),
    GlobalIndex("keys-only", ("sk", "N"), ("pk", "S"), projection="KEYS_ONLY"),
]


def reads_table(resource: DynamoDBServiceResource) -> Table:
    return make_table(
        resource, sort_key=("sk", "N"), local_indexes=[LocalIndex("local", ("b", "S"))], global_indexes=INDEXES
    )


def fill(table: Table, stage: Stage, move: tuple[Strategy, Strategy], rng: random.Random) -> list[Item]:
    """Store items of two keys in all states, and return the logical ones."""
    model = MovedTable(in_stage(stage, *move))
    for number in range(18):
        item = {"pk": rng.choice("kkkj"), "sk": number, "b": rng.choice("xyz"), "keep": number % 3 > 0, "city": "Bern"}
        model.store(item, STATES[number % len(STATES)])
    with table.batch_writer() as batch:
        for stored in model.items:
            batch.put_item(Item=from_wire_item(stored))
    return [from_wire_item(item) for item in model.logical()]


def by_key(items: Iterable[Item]) -> list[Item]:
    return sorted(items, key=lambda item: (item["pk"], item["sk"]))


def empty(table: Table) -> None:
    with table.batch_writer() as batch:
        for item in table.scan()["Items"]:
            batch.delete_item(Key={"pk": item["pk"], "sk": item["sk"]})


QUERIES: list[dict[str, Any]] = [
    {"KeyConditionExpression": Key("pk").eq("k")},
    {"KeyConditionExpression": Key("pk").eq("k") & Key("sk").between(3, 14)},
    {"KeyConditionExpression": Key("pk").eq("k") & Key("sk").gt(4)},
    {"KeyConditionExpression": Key("pk").eq("k") & Key("sk").eq(7)},
    {"KeyConditionExpression": Key("pk").eq("k"), "IndexName": "local"},
    {"KeyConditionExpression": Key("pk").eq("k") & Key("b").gte("y"), "IndexName": "local"},
    {"KeyConditionExpression": Key("pk").eq("k"), "IndexName": "same"},
]
_WITHIN = [lambda sk: True, lambda sk: 3 <= sk <= 14, lambda sk: sk > 4, lambda sk: sk == 7, None, None, None]


def expected(items: Sequence[Item], at: int, *, descending: bool, filtered: bool) -> list[Item]:
    found = [item for item in items if item["pk"] == "k" and (item["keep"] or not filtered)]
    within = _WITHIN[at]
    if within is not None:
        return sorted(filter(lambda item: within(item["sk"]), found), key=lambda item: item["sk"], reverse=descending)
    found = [item for item in found if at != 5 or item["b"] >= "y"]
    return sorted(found, key=lambda item: (item["b"], item["sk"]), reverse=descending)


def check_queries(
    table: Table, items: Sequence[Item], stage: Stage, move: tuple[Strategy, Strategy], *, every: int = 1
) -> None:
    """Queries in pages, of which each is read in a stage that may run beside ``stage``, and as streams.

    ``every``: 5 asks every fifth of them.
    """
    ways = ((False, False, 2), (True, False, 3), (False, True, None), (True, True, 4))
    asked = [*itertools.product(range(len(QUERIES)), ways)][len(stage) % every :: every]
    for at, (descending, filtered, limit) in asked:
        query = QUERIES[at] | ({"ScanIndexForward": False} if descending else {})
        query |= {"FilterExpression": Attr("keep").eq(True)} if filtered else {}
        wanted = expected(items, at, descending=descending, filtered=filtered)
        sharded = ShardedTable(table, Resharding(*move, stage=stage))
        assert [*sharded.query_items(**query)] == wanted
        stages = itertools.cycle(neighbours(stage))
        tables = (ShardedTable(table, Resharding(*move, stage=one)) for one in stages)
        assert [*_paged(tables, query, limit)] == wanted
        counted = sharded.query(**query, Select="COUNT")
        assert "LastEvaluatedKey" in counted or counted["Count"] == len(wanted)


def _paged(tables: Iterator[ShardedTable], query: Mapping[str, Any], limit: int | None) -> Iterator[Item]:
    more: dict[str, Any] = {} if limit is None else {"Limit": limit}
    while True:
        page = next(tables).query(**query, **more)
        assert limit is None or len(page["Items"]) <= limit
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        more["ExclusiveStartKey"] = page["LastEvaluatedKey"]


PAGED: Sequence[tuple[str | None, int]] = ((None, 2), ("local", 3), ("same", 3))
"""An index, and the items of a page."""


def check_installed(
    table: Table,
    items: Sequence[Item],
    stage: Stage,
    move: tuple[Strategy, Strategy],
    session: boto3.Session,
    ways: Sequence[tuple[str | None, int]] = PAGED,
) -> None:
    """Paginators of an installed client: their cursors are keys, which each next stage accepts."""
    clients: list[Any] = []
    for one in neighbours(stage):
        client = session.client("dynamodb", endpoint_url=table.meta.client.meta.endpoint_url)
        install(client, {table.name: Resharding(*move, stage=one)})
        clients.append(client)
    query: dict[str, Any] = {"TableName": table.name, "KeyConditionExpression": "pk = :k"}
    query["ExpressionAttributeValues"] = {":k": {"S": "k"}}
    for index, limit in ways:
        named: dict[str, Any] = {"IndexName": index} if index else {}
        wanted = [to_wire_item(item) for item in expected(items, 4 if index else 0, descending=False, filtered=False)]
        pages = clients[0].get_paginator("query").paginate(**query, **named, PaginationConfig={"PageSize": limit})
        assert [item for page in pages for item in page["Items"]] == wanted
        found: list[Any] = []
        start: dict[str, Any] = {}
        for client in itertools.cycle(clients):
            page = client.query(**query, **named, Limit=limit, **start)
            found += page["Items"]
            if "LastEvaluatedKey" not in page:
                break
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        assert found == wanted
    for client in clients:
        client.close()
