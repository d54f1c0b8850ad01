"""Budgets over sharded tables: fan-outs and bulk loads."""

from __future__ import annotations

import threading
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    CapacityBudget,
    CapacityBudgetError,
    CapacityMeter,
    ConfigurationError,
    ShardedTable,
    ShardQueryError,
    bulk_load,
)
from tests.support.fakes import Clock
from tests.support.tables import make_table


@pytest.fixture
def orders(resource: Any) -> ShardedTable:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=5))


def days(count: int) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{number % 2:02}", "OrderId": f"A{number}"} for number in range(count)]


class Ticking(Clock):
    """For many threads: who sleeps moves it no further than to the end of the sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        with self._lock:
            self.sleeps.append(seconds)
            self.now = max(self.now, until)


def test_a_fan_out_is_held_request_by_request(orders: ShardedTable) -> None:
    bulk_load(orders, days(20))
    clock = Ticking()
    budget = CapacityBudget(read_units=0.5, burst=0, clock=clock, sleep=clock.sleep)
    with budget.attach(orders, key="2014-07-01"):
        assert len(orders.query(KeyConditionExpression=Key("Date").eq("2014-07-00"))["Items"]) == 10
        assert clock.now == 0.0
        assert len(orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01"))["Items"]) == 10
    # Five requests of at least half a unit: four of them are paid when the last one begins.
    assert clock.now >= 4 * 0.5 / 0.5


@pytest.mark.parametrize("key", [417, b"417"])
def test_a_key_of_another_type_is_refused(orders: ShardedTable, key: Any) -> None:
    """It was accepted, and held no call."""
    budget, said = (
        CapacityBudget(write_units=1),
        r"key: must be text, as 'Date' of table .* is, got .*417",
    )
    with budget.attach(orders, key=key):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=said):
                orders.put_item(Item=days(1)[0])
    orders.put_item(Item=days(1)[0])
    with pytest.raises(ConfigurationError, match=said):
        budget.attach(orders.table, key=key)


def test_a_key_as_it_is_stored_is_warned_of_once(orders: ShardedTable, caplog: pytest.LogCaptureFixture) -> None:
    """It may be a logical key with a dot, so it is not refused."""
    for key in ("2014-07-01", "2014-07-01.6", "2014-07-01.3"):
        with CapacityBudget(write_units=100).attach(orders, key=key):
            for item in days(4):
                orders.put_item(Item=item)
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("key: '2014-07-01.3' looks like a key as table")
    assert said.endswith("logical key, perhaps '2014-07-01'")


def test_a_fan_out_that_is_refused_says_so(orders: ShardedTable) -> None:
    clock = Ticking()
    budget = CapacityBudget(read_units=0.001, mode="raise", burst=0, clock=clock, sleep=clock.sleep)
    with budget.attach(orders), pytest.raises(Exception, match="was not sent") as raised:
        orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01"))
    errors = getattr(raised.value, "errors", {None: raised.value})
    assert all(isinstance(one, CapacityBudgetError) for one in errors.values())


def test_a_first_fan_out_finds_the_burst_saved(orders: ShardedTable) -> None:
    """A budget that raises starts as after a pause, not with nothing; and the bound holds: the clock stands still."""
    strict = CapacityBudget(read_units=5, burst=2, mode="raise", clock=lambda: 0.0)
    meter = CapacityMeter()
    with meter.attach(orders), meter.scope("all") as used, strict.attach(orders):
        orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01"))
        with pytest.raises((CapacityBudgetError, ShardQueryError), match="was not sent"):
            [orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01")) for _ in range(9)]
    assert 5 * 2 <= used.read_units <= 5 * 2 + 5  # moto reports a unit for each shard


def test_a_bulk_load_is_held_and_ends(orders: ShardedTable) -> None:
    clock = Ticking()
    budget = CapacityBudget(write_units=10, burst=0, timeout=1000, clock=clock, sleep=clock.sleep)
    with budget.attach(orders):
        report = bulk_load(orders, days(200), workers=4)
    assert report.written == 200
    assert clock.now >= (report.write_units - 4 * 25 * report.write_units / 200) / 10
    assert len(orders.scan()["Items"]) == 200


def test_a_bulk_load_whose_turn_is_too_late_ends_with_the_reason(orders: ShardedTable) -> None:
    clock = Ticking()
    budget = CapacityBudget(write_units=0.001, mode="raise", burst=0, clock=clock, sleep=clock.sleep)
    with budget.attach(orders), pytest.raises(BulkLoadError, match="was not sent") as raised:
        bulk_load(orders, days(100), workers=1)
    assert raised.value.report is not None
    assert (raised.value.report.written, raised.value.report.failed) == (25, 75)
    assert len(orders.scan()["Items"]) == 25


def test_a_bulk_load_by_processes_is_held(moto_endpoint: str) -> None:
    """What other processes send for the client's load goes when the client's budget lets it go."""
    resource: Any = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=5))
    clock = Ticking()
    strict = CapacityBudget(write_units=0.001, mode="raise", burst=0, clock=clock, sleep=clock.sleep)
    with strict.attach(orders), pytest.raises(BulkLoadError, match="was not sent"):
        bulk_load(orders, days(100), workers=1, processes=1)
    assert len(orders.scan()["Items"]) == 25
    wide = CapacityBudget(write_units=10, burst=0, timeout=1000, clock=clock, sleep=clock.sleep)
    with wide.attach(orders):
        assert bulk_load(orders, days(100), workers=1, processes=1).written == 100
    assert len(orders.scan()["Items"]) == 100
    assert clock.sleeps
    resource.meta.client.close()
