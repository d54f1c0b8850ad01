"""Query and scan_items of a table whose items move, on every face, on moto."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, Resharding, ShardedTable, StageError, Unsharded, install
from shardkit.strategies import Stage
from tests.support.moved import BETWEEN, MOVES, neighbours
from tests.support.moved_reads import by_key, check_installed, check_queries, fill, reads_table
from tests.support.recorder import recording

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

K = Key("pk").eq("k")
ADOPT, DOUBLE = MOVES["adopt"], MOVES["double"]


@pytest.mark.parametrize(("stage", "name"), [("guard", "adopt"), ("move", "ranges")])
def test_wherever_the_items_are(
    resource: DynamoDBServiceResource, boto3_session: boto3.Session, stage: Stage, name: str
) -> None:
    table = reads_table(resource)
    items = fill(table, stage, MOVES[name], random.Random(1))
    check_queries(table, items, stage, MOVES[name], every=13)
    check_installed(table, items, stage, MOVES[name], boto3_session, [("local" if stage == "move" else None, 5)])
    sharded = ShardedTable(table, Resharding(*MOVES[name], stage=stage))
    ways: list[dict[str, Any]] = [{}, {"segments": 3}, {"IndexName": "city"}, {"IndexName": "keys"}]
    for options in ways:
        found: list[Any] = [*sharded.scan_items(**options)]
        assert by_key(found) == by_key(items)


def test_a_global_index_shows_an_item_once(resource: DynamoDBServiceResource) -> None:
    """Of an item that is being copied, an index has two entries: a page and a stream show one; stubs are hidden."""
    table = reads_table(resource)
    items = fill(table, "move", ADOPT, random.Random(2))
    sharded = ShardedTable(table, Resharding(*ADOPT, stage="move"))
    city: dict[str, Any] = {"KeyConditionExpression": Key("city").eq("Bern"), "IndexName": "city"}
    for found in (sharded.query(**city)["Items"], [*sharded.query_items(**city)]):
        assert by_key(found) == by_key(items)
        assert [item["b"] for item in found] == sorted(item["b"] for item in items)
    (of_seven,) = [item for item in items if item["sk"] == 7]
    exact: Any = {"KeyConditionExpression": Key("sk").eq(7) & Key("pk").eq(of_seven["pk"]), "IndexName": "keys"}
    assert sharded.query(**exact)["Items"] == [of_seven]


def test_a_cursor_of_every_stage_is_accepted_in_the_next(resource: DynamoDBServiceResource) -> None:
    """Of a table that was never moved: stage by stage, forwards and backwards, one item a page."""
    table = reads_table(resource)
    stages: list[Stage] = ["old", "guard", "switch", "move", "new", "move", "switch", "guard", "old"]
    tables = {stage: ShardedTable(table, Resharding(*DOUBLE, stage=stage)) for stage in stages}
    for number in range(9):
        # Such that each stage finds all: those which do not move.
        candidates = range(number * 100, number * 100 + 100)
        still = next(one for one in candidates if _home(tables["old"], one) == _home(tables["new"], one))
        tables["old"].put_item(Item={"pk": "k", "sk": still, "b": "x"})
    found: list[int] = []
    more: dict[str, Any] = {}
    for stage in stages:
        page = tables[stage].query(KeyConditionExpression=K, Limit=1, **more)
        found += [int(item["sk"]) // 100 for item in page["Items"]]
        more["ExclusiveStartKey"] = page.get("LastEvaluatedKey")
    assert found == [*range(9)]


def _home(table: ShardedTable, number: int) -> Any:
    return table.physical_key({"pk": "k", "sk": number})["pk"]


def test_one_read_of_shards_that_both_strategies_have(resource: DynamoDBServiceResource) -> None:
    """From 2 to 4, shards 1 and 2 are read once; only 3 and 4 are read after them, strongly consistently."""
    table = reads_table(resource)
    sharded = ShardedTable(table, Resharding(*DOUBLE, stage="move"), max_concurrency=1)
    with recording(table.meta.client) as sent:
        sharded.query(KeyConditionExpression=K)
    asked = [body for operation, body in sent.requests if operation == "Query"]
    assert [body.get("ConsistentRead", False) for body in asked] == [False, False, True, True]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("query", {"KeyConditionExpression": K, "Shard": 1}, r"^Shard=: .*leave it out"),
    ("query", {"KeyConditionExpression": K, "ReturnShards": True}, r"^ReturnShards=: .*leave it out"),
    (
        "query",
        {"KeyConditionExpression": Key("sk").eq(1), "IndexName": "keys-only"},
        r"^IndexName='keys-only': .*read the table, or an index that projects ALL",
    ),
    ("scan", {}, r"^scan\(\): .*use scan_items\(\)"),
]


@pytest.mark.parametrize(("method", "params", "message"), REFUSED)
def test_what_is_refused_between_the_stages(
    resource: DynamoDBServiceResource, method: str, params: dict[str, Any], message: str
) -> None:
    table = reads_table(resource)
    table.put_item(Item={"pk": "k", "sk": 1, "b": "x"})
    for stage in BETWEEN:
        with pytest.raises(StageError, match=message) as caught:
            getattr(ShardedTable(table, Resharding(*ADOPT, stage=stage)), method)(**params)
        assert caught.value.stage == stage
    assert neighbours("guard") == ["guard", "switch"]


def test_an_installed_scan_is_refused(resource: DynamoDBServiceResource) -> None:
    table = reads_table(resource)
    client = table.meta.client
    with (
        install(client, {table.name: Resharding(Unsharded(), CalculatedSuffix("sk", 3), stage="move")}),
        pytest.raises(ClientError, match=r"use scan_items\(\)") as caught,
    ):
        client.scan(TableName=table.name)
    assert isinstance(caught.value, StageError)
