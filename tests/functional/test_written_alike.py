"""Transactions and batches end as on a plain table, over moto; tests/integration has the real engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from shardkit import ShardedTable, install
from tests.support.equivalence import make_pair
from tests.support.queries import SHAPES
from tests.support.written_alike import STRATEGIES, Call, calls, check

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

CASES = settings().max_examples // 5


@pytest.mark.long_search
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_as_on_a_plain_table(
    boto3_session: boto3.Session, resource: DynamoDBServiceResource, strategy: str
) -> None:
    """The same outcome of every call, reasons and items included, and the same items in the end."""
    pair = make_pair(resource, SHAPES["numbers"])
    sharded = ShardedTable(pair.physical, STRATEGIES[strategy])
    other = boto3_session.resource("dynamodb", endpoint_url=resource.meta.client.meta.endpoint_url)
    install(other, {sharded.name: STRATEGIES[strategy]})

    @settings(max_examples=CASES)
    @given(made=calls(strategy))
    def same(made: list[Call]) -> None:
        check(pair, sharded, other.meta.client, made)

    same()
    other.meta.client.close()
