"""Query and scan_items of a table whose items move, on real engines; and what a page costs in each stage."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import Resharding, ShardedTable
from tests.support.moved import BETWEEN, MOVES
from tests.support.moved_reads import by_key, check_installed, check_queries, empty, fill, reads_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

LONG = os.environ.get("HYPOTHESIS_PROFILE") in {"search", "thorough"}


@pytest.mark.long_search
@pytest.mark.parametrize("at", range(3))
def test_wherever_the_items_are(
    engine_resource: DynamoDBServiceResource, boto3_session: boto3.Session, at: int
) -> None:
    """One move in each stage; the search takes all of them."""
    table = reads_table(engine_resource)
    stage = BETWEEN[at]
    for name in [*MOVES][:: 1 if LONG else len(MOVES)]:
        items = fill(table, stage, MOVES[name], random.Random(at))
        check_queries(table, items, stage, MOVES[name], every=5)
        check_installed(table, items, stage, MOVES[name], boto3_session)
        sharded = ShardedTable(table, Resharding(*MOVES[name], stage=stage))
        ways: list[dict[str, Any]] = [{}, {"segments": 3}, {"IndexName": "city"}]
        for options in ways:
            found: list[Any] = [*sharded.scan_items(**options)]
            assert by_key(found) == by_key(items)
        empty(table)
