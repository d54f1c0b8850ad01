"""shardkit's own loops over a client whose partitions are simulated, in virtual time: minutes of load in seconds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from moto import mock_aws

from shardkit import CalculatedSuffix, CapacityBudget, CapacityMeter, ShardedTable, bulk_load
from shardkit.partitions.simulated_table import SimulatedTable
from shardkit.partitions.simulator import Simulator
from shardkit.sharding.shard_map import MAP
from shardkit.testing import VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.support.simulated import SHARES
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table

DAY = "2014-07-09"
LONGEST_WAIT = 2.0
"""Seconds that a load may be at rest in all: a throttled key waits for a second at the most."""


@pytest.fixture
def table() -> Iterator[Table]:
    with mock_aws():
        # As an application's is: botocore's retries are on, and shardkit takes the pace over from the first throttle.
        resource = boto3.resource("dynamodb", region_name=REGION, config=Config(max_pool_connections=10))
        yield make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


def orders(count: int, size: int = 0) -> list[dict[str, Any]]:
    note = {"Note": "x" * size} if size else {}
    return [{"Date": DAY, "OrderId": f"A{number:05}", **note} for number in range(count)]


def test_a_load_takes_the_time_that_the_partitions_take(table: Table, clock: VirtualClock) -> None:
    """All on one partition, of 100 units a second: a minute of load."""
    with simulate_partitions(table, partitions=4, write_units=400, clock=clock, **SHARES) as simulated:
        report = bulk_load(table, orders(600, size=9500))
    assert report.written == 600
    assert report.write_units == 6000
    assert report.seconds == pytest.approx(clock(), abs=0.01)
    least = (6000 - 100) / 100
    assert least - 0.2 <= clock() <= least + LONGEST_WAIT
    assert simulated.throttles.keys() == {"TableWriteKeyRangeThroughputExceeded"}
    assert table.scan(Select="COUNT", Limit=1000)["Count"] > 0


class Half(random.Random):
    """Draws the same for everybody, so that waits are the same."""

    def random(self) -> float:
        return 0.5


def test_as_the_simulator_has_it(table: Table, clock: VirtualClock) -> None:
    """The same load, over moto behind simulated partitions, and in the pure simulator: request by request."""
    strategy, items = CalculatedSuffix("OrderId", shards=10), orders(800)
    sharded = ShardedTable(table, strategy, rng=Half())
    with simulate_partitions(sharded, partitions=4, write_units=80, clock=clock, **SHARES) as simulated:
        report = bulk_load(sharded, items, workers=1)
    description: Any = {
        **table.meta.client.describe_table(TableName="Orders")["Table"],
        "BillingModeSummary": {"BillingMode": "PROVISIONED"},
        "ProvisionedThroughput": {"ReadCapacityUnits": 80, "WriteCapacityUnits": 80},
    }
    pure = SimulatedTable.described(description, count=4, burst_seconds=0, adaptive_seconds=None)
    simulator = Simulator(pure, latency=(0.0, 0.0))
    simulator.draw = Half().random
    expected = simulator.load(items, strategy, workers=1)
    assert report.written == expected.written == 800
    assert report.throttles
    counts = (report.requests, report.retried, report.throttles, report.write_units)
    assert counts == (expected.requests, expected.retried, expected.throttles, expected.write_units)
    assert report.seconds == pytest.approx(expected.seconds)
    heat, pure_heat = (
        [(partition.taken["write"], partition.throttled["write"]) for partition in of.heat.by_range]
        for of in (simulated.partitions, pure.partitions)
    )
    assert heat == pure_heat


def test_the_workers_of_a_load_share_its_time(table: Table, clock: VirtualClock) -> None:
    """However many requests are under way, time passes only where the load itself waits."""
    with simulate_partitions(table, partitions=1, write_units=1000, clock=clock, **SHARES):
        report = bulk_load(table, orders(1000), workers=10, write_units=50)
    assert report.throttles == 0
    assert clock() == pytest.approx(1000 / 50, rel=0.05)


def test_a_fan_out_waits_in_its_time(table: Table, clock: VirtualClock) -> None:
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=4))
    bulk_load(sharded, orders(40, size=9000))
    condition = Key("Date").eq(DAY)
    with simulate_partitions(sharded, partitions=4, read_units=16, clock=clock, **SHARES) as simulated:
        items = [item["OrderId"] for item in sharded.query_items(KeyConditionExpression=condition)]
        again = [item["OrderId"] for item in sharded.query_items(KeyConditionExpression=condition)]
    assert items == again == [item["OrderId"] for item in orders(40)]
    assert simulated.throttles
    # 40 items of 9 KB are 45 units and some for rounding; twice, from partitions that have 4 each a second. With fewer,
    # a shard behind another one's debt may be refused until it is given up.
    assert clock() > 5.0


def test_a_budget_keeps_it_from_being_throttled(table: Table, clock: VirtualClock) -> None:
    budget = CapacityBudget(write_units=80, clock=clock, sleep=clock.sleep)
    with (
        simulate_partitions(table, partitions=1, write_units=100, clock=clock, **SHARES) as simulated,
        budget.attach(table),
    ):
        for item in orders(400):
            table.put_item(Item=item)
    simulated.assert_not_throttled()
    assert clock() == pytest.approx(400 / 80, rel=0.05)


def test_a_meter_sees_the_units_and_the_throttles(table: Table, clock: VirtualClock) -> None:
    meter = CapacityMeter(clock=clock)
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=3))
    with (
        simulate_partitions(sharded, partitions=2, write_units=40, clock=clock, **SHARES) as simulated,
        meter.attach(sharded),
    ):
        bulk_load(sharded, orders(200, size=2000))
    assert meter.write_units == sum(hot.write_units for hot in simulated.hottest_partitions()) == 400
    assert meter.throttles
    by_key = {hot.key: hot.write_units for hot in simulated.hottest_keys()}
    assert set(by_key) == {MAP, *(f"{DAY}.{shard}" for shard in (1, 2, 3))}
    assert sum(by_key.values()) == 400


def test_afterwards_time_is_the_machines_again(table: Table, clock: VirtualClock) -> None:
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=3))
    with simulate_partitions(sharded, clock=clock):
        bulk_load(sharded, orders(10))
    virtual = clock()
    report = bulk_load(sharded, orders(10))
    assert clock() == virtual
    assert report.seconds > 0
