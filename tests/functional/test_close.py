"""Other tables than ShardedTable, and install(): the threads that they have started end when they are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, RandomSuffix, ShardedCounter, ShardedTable, install
from shardkit.cache import CachedTable, CacheOptions, MemoryStore
from tests.support.fakes import Clock
from tests.support.series import a_series
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

DAY: Any = {"KeyConditionExpression": Key("Date").eq("2014-07-09")}
FOUR = CalculatedSuffix("OrderId", shards=4)
Opened = tuple[Any, Callable[[], object]]


def stored(resource: DynamoDBServiceResource) -> Any:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


def counter(resource: DynamoDBServiceResource) -> Opened:
    views = ShardedCounter(make_table(resource, ("Page", "S")), {"Page": "home"}, "Views", shards=101)
    return views, views.value


def series(resource: DynamoDBServiceResource) -> Opened:
    clicks = a_series(resource, strategy=RandomSuffix(4))
    clicks.maintain()
    return clicks, lambda: clicks.query(KeyConditionExpression=Key("Customer").eq("c1"))


def cached(resource: DynamoDBServiceResource) -> Opened:
    clock = Clock()
    orders = CachedTable(
        ShardedTable(stored(resource), FOUR),
        store=MemoryStore(1_000_000, clock=clock),
        ttl=10.0,
        stale_while_revalidate=60.0,
    )
    order = {"Date": "2014-07-09", "OrderId": "A1"}
    orders.put_item(Item=order)

    def use() -> None:
        orders.query(**DAY)
        orders.get_item(Key=order)
        clock.now += 11
        assert orders.get_item(Key=order)["Item"] == order  # stale: a thread reads it again

    return orders, use


def installed(resource: DynamoDBServiceResource) -> Opened:
    table, clock = stored(resource), Clock()
    options = CacheOptions(store=MemoryStore(1_000_000, clock=clock), ttl=10.0, stale_while_revalidate=60.0)
    order = {"Date": "2014-07-09", "OrderId": "A1"}

    def use() -> None:
        table.query(**DAY)
        table.put_item(Item=order)
        for _ in range(2):
            assert table.get_item(Key=order)["Item"] == order
            clock.now += 11  # the second one is stale: a thread reads it again

    return install(resource, {table.name: FOUR}, cache={table.name: options}), use


@pytest.mark.parametrize("opened", [counter, series, cached, installed])
def test_its_threads_end(opened: Callable[[Any], Opened], resource: DynamoDBServiceResource) -> None:
    before = set(threading.enumerate())
    opener, use = opened(resource)
    with opener:
        use()
        started = {thread for thread in threading.enumerate() if thread.name.startswith("shardkit")} - before
        assert started
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()
    use()
    opener.__exit__(None, None, None)
