"""Counters on real engines: many threads add and reset at once, and the sum is exact."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from botocore.config import Config
from hypothesis import settings

from shardkit import ShardedCounter
from shardkit.sharding.counter import RESET
from tests.support.engines import EngineName
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

THREADS = 16
ADDS = 10_000 if settings().max_examples > 100 else 160
"""10,000 in the long search."""
HOME = {"Page": "home"}


@pytest.mark.long_search
def test_the_sum_of_many_threads_is_exact(
    engine_resource: DynamoDBServiceResource, boto3_session: boto3.Session, engine_name: EngineName
) -> None:
    """Some of them reset meanwhile: what they return and what is left is the sum."""
    name = make_table(engine_resource, ("Page", "S")).name
    url = engine_resource.meta.client.meta.endpoint_url
    table = boto3_session.resource("dynamodb", endpoint_url=url, config=Config(max_pool_connections=20)).Table(name)
    views = ShardedCounter(table, HOME, "Hits", shards=10)
    adds = ADDS if engine_name == "dynoxide" else ADDS // 10

    def work(number: int) -> Decimal:
        for _ in range(adds // THREADS):
            views.add(number)
        return views.reset() if number % 5 == 0 else Decimal(0)

    with ThreadPoolExecutor(THREADS) as threads:
        taken = sum(threads.map(work, range(1, THREADS + 1)))
    seen = views.value(ConsistentRead=True)
    assert seen.total + taken == adds // THREADS * sum(range(1, THREADS + 1))
    assert taken > 0
    assert views.reset() == seen.total
    assert views.value(ConsistentRead=True).total == 0
    assert all(RESET in item for item in table.scan()["Items"])
    table.meta.client.close()


def test_what_a_value_costs(engine_resource: DynamoDBServiceResource, engine_name: EngineName) -> None:
    """Half a read unit per shard, twice that if consistent. DynamoDB Local does not count shards without an item."""
    views = ShardedCounter(make_table(engine_resource, ("Page", "S")), HOME, "Hits", shards=10)
    views.add()
    counted = 10 if engine_name == "dynoxide" else 1
    assert views.value().read_units == counted / 2
    assert views.value(ConsistentRead=True).read_units == counted


def test_an_add_with_a_token_is_made_once(engine_resource: DynamoDBServiceResource) -> None:
    views = ShardedCounter(make_table(engine_resource, ("Page", "S")), HOME, "Hits", shards=10)
    for token in ("a", "b", "a", "a"):
        views.add(5, token=token)
    assert views.value(ConsistentRead=True).total == 10
