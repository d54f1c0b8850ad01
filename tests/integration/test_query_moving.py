"""Query and scan_items of a table whose items move, on real engines; and what a page costs in each stage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityMeter, Resharding, ShardedTable, Strategy, Unsharded
from shardkit.strategies.resharding import STAGES
from tests.support.engines import ServerName
from tests.support.moved import BETWEEN, MOVES
from tests.support.moved_reads import PAGED, by_key, check_installed, check_queries, empty, fill, reads_table
from tests.support.profiles import LONG
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.long_search
@pytest.mark.parametrize("at", range(3))
def test_wherever_the_items_are(
    engine_resource: DynamoDBServiceResource, boto3_session: boto3.Session, at: int
) -> None:
    """A part of the queries of one move in each stage; the search takes all of all moves."""
    table = reads_table(engine_resource)
    stage = BETWEEN[at]
    for name in [*MOVES][:: 1 if LONG else len(MOVES)]:
        items = fill(table, stage, MOVES[name], random.Random(at))
        check_queries(table, items, stage, MOVES[name], every=5 if LONG else 10)
        check_installed(table, items, stage, MOVES[name], boto3_session, PAGED if LONG else PAGED[at : at + 1])
        sharded = ShardedTable(table, Resharding(*MOVES[name], stage=stage))
        ways: list[dict[str, Any]] = [{}, {"segments": 3}, {"IndexName": "city"}]
        for options in ways:
            found: list[Any] = [*sharded.scan_items(**options)]
            assert by_key(found) == by_key(items)
        empty(table)


ITEMS = [{"pk": "k", "sk": f"s{number:04}", "text": "x" * 950} for number in range(200)]  # 1 KB each
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "resharding.md"
UNITS: dict[str, tuple[Strategy, Strategy]] = {
    "from no suffix to 10 shards": (Unsharded(), CalculatedSuffix("sk", 10)),
    "from 10 shards to 20": (CalculatedSuffix("sk", 10), CalculatedSuffix("sk", 20)),
    "from 10 shards to 15": (CalculatedSuffix("sk", 10), CalculatedSuffix("sk", 15)),
}


@pytest.mark.integration
@pytest.mark.parametrize("row", UNITS)
def test_the_units_of_a_page_are_those_of_the_reference(
    boto3_session: boto3.Session, engine_endpoint: Callable[[ServerName], str], row: str
) -> None:
    """In the first stage; between the stages, with all items at their old places and at their new ones; at last."""
    resource = boto3_session.resource("dynamodb", endpoint_url=engine_endpoint("dynoxide"))
    old, new = UNITS[row]
    found = []
    for strategy, stages in ((old, STAGES[:2]), (new, STAGES[3:])):
        table = make_table(resource, sort_key=("sk", "S"))
        with ShardedTable(table, strategy).batch_writer() as batch:
            for item in ITEMS:
                batch.put_item(Item=item)
        for stage in stages:
            sharded = ShardedTable(table, Resharding(old, new, stage=stage), rng=random.Random(0))
            query: dict[str, Any] = {"KeyConditionExpression": Key("pk").eq("k"), "Limit": 50}
            sharded.query(**query)  # from its items shardkit learns their size
            meter = CapacityMeter()
            with meter.attach(sharded), meter.scope("a page") as used:
                assert len(sharded.query(**query)["Items"]) == 50
            found.append(f"{used.read_units:g}")
    resource.meta.client.close()
    assert f"| {row} | {' | '.join(found)} |" in PAGE.read_text(encoding="utf-8")
