"""The meter over a ShardedTable: physical calls, logical keys."""

from __future__ import annotations

import random
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityMeter, RandomSuffix, ShardedTable, bulk_load
from tests.support.tables import make_table

DAY: dict[str, Any] = {"KeyConditionExpression": Key("Date").eq("2014-07-09")}


@pytest.fixture
def orders(resource: Any) -> ShardedTable:
    table = make_table(resource, partition_key=("Date", "S"), sort_key=("OrderId", "S"))
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=5))


def items(count: int) -> list[dict[str, Any]]:
    return [{"Date": "2014-07-09", "OrderId": f"A{number:03}"} for number in range(count)]


def test_units_are_those_of_the_service_under_the_logical_key(orders: ShardedTable) -> None:
    """Five physical keys, one logical one; the total is the sum of what the calls reported."""
    meter = CapacityMeter()
    with meter.attach(orders), meter.scope("load") as used:
        report = bulk_load(orders, items(60))
    assert used.write_units == report.write_units == meter.write_units > 0
    assert set(meter.by_key) == {(orders.name, "2014-07-09")}
    assert used.requests == report.requests + 1  # it looked for a shard map


def test_a_fan_out_lands_in_the_callers_scope(orders: ShardedTable) -> None:
    """Threads that a fan-out uses know whose scope they work for."""
    bulk_load(orders, items(20))
    meter = CapacityMeter()
    with meter.attach(orders):
        orders.query(**DAY)
        with meter.scope("read") as read:
            orders.query(**DAY)
    assert read.requests == 5
    assert meter.requests == 10
    assert read.by_operation.keys() == {"Query"}


def test_the_callers_response_says_only_what_was_asked_for(orders: ShardedTable) -> None:
    """The sum is in the response where it was asked for, and the meter has it too."""
    bulk_load(orders, items(20))
    meter = CapacityMeter()
    with meter.attach(orders), meter.scope("read") as read:
        asked = orders.query(**DAY, ReturnConsumedCapacity="TOTAL")
    assert asked["ConsumedCapacity"]["CapacityUnits"] == read.read_units > 0


def test_an_item_that_is_located_counts_its_search(resource: Any) -> None:
    """A read that looks on every shard costs a batch read, under the logical key."""
    table = make_table(resource, partition_key=("Date", "S"), sort_key=("OrderId", "S"))
    orders = ShardedTable(table, RandomSuffix(4, locate=True), rng=random.Random(7))
    meter = CapacityMeter()
    with meter.attach(orders):
        orders.put_item(Item={"Date": "d", "OrderId": "1"})
        orders.get_item(Key={"Date": "d", "OrderId": "1"})
    assert meter.by_operation.keys() == {"BatchGetItem", "GetItem", "PutItem"}
    assert set(meter.by_key) == {(orders.name, "d")}


def test_calls_on_other_tables_are_not_counted(resource: Any, orders: ShardedTable) -> None:
    """A meter on a sharded table sees that table, though its client serves others."""
    other = make_table(resource, partition_key=("Date", "S"), sort_key=("OrderId", "S"))
    meter = CapacityMeter()
    with meter.attach(orders):
        other.put_item(Item={"Date": "d", "OrderId": "1"})
        resource.meta.client.list_tables()
    assert meter.requests == 0
