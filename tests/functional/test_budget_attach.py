"""What a budget is attached to, and how often: clients, tables, keys, sessions, beside other budgets and meters."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import Binary

from shardkit import CapacityBudget, CapacityBudgetError, CapacityMeter, ConfigurationError
from tests.support.budgeted import KEY_SCHEMA, budget, client, clock, put, service
from tests.support.fakes import Clock
from tests.support.wire import Service

__all__ = ["budget", "client", "clock", "service"]


def test_one_table(client: Any, service: Service, budget: Any, clock: Clock) -> None:
    table = boto3.resource("dynamodb", endpoint_url=service.url).Table("T")
    with budget(write_units=1).attach(table):
        put(table.meta.client, table="U")
        put(table.meta.client, table="U")
        assert clock.sleeps == []
        table.put_item(Item={"pk": "a"})
        put(table.meta.client)
    assert clock.sleeps == [1.0]
    table.meta.client.close()


@pytest.mark.parametrize(
    ("key", "wire", "other"),
    [
        ("a", {"S": "a"}, {"S": "b"}),
        (7, {"N": "7.0"}, {"N": "8"}),
        (Decimal(7), {"N": "7"}, {"S": "7"}),
        (Binary(b"a"), {"B": b"a"}, {"S": "a"}),
        (bytearray(b"a"), {"B": b"a"}, {"B": b"b"}),
    ],
)
def test_one_key(client: Any, budget: Any, clock: Clock, key: Any, wire: Any, other: Any) -> None:
    with budget(write_units=1).attach(client, key=key, key_schema=KEY_SCHEMA):
        for _ in range(3):
            client.put_item(TableName="T", Item={"pk": other})
        assert clock.sleeps == []
        client.put_item(TableName="T", Item={"pk": wire})
        client.delete_item(TableName="T", Key={"pk": wire})
    assert clock.sleeps == [1.0]


def test_of_a_batch_a_key_is_charged_its_part(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: (
        200, {"ConsumedCapacity": [{"TableName": "T", "CapacityUnits": 8.0}], "UnprocessedItems": {}}
    )  # fmt: skip
    requests = [{"PutRequest": {"Item": {"pk": {"S": key}, "n": {"N": "1"}}}} for key in ("a", "b", "c", "c")]
    with budget(write_units=1).attach(client, key="a", key_schema=KEY_SCHEMA) as one:
        client.batch_write_item(RequestItems={"T": requests})
        client.batch_write_item(RequestItems={"T": requests[1:]})
        client.batch_write_item(RequestItems={"T": requests})
        one.detach()
    assert clock.sleeps == [2.0]


def test_a_batch_on_several_tables(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    """A budget of the client takes all of it, one of a table only what the table took; no key is known."""
    parts = [{"TableName": "T", "CapacityUnits": 8.0}, {"TableName": "U", "CapacityUnits": 3.0}]
    service.answer = lambda operation, body: (200, {"ConsumedCapacity": parts, "UnprocessedItems": {}})
    requests = {table: [{"PutRequest": {"Item": {"pk": {"S": key}}}} for key in ("a", "b")] for table in ("T", "U")}
    table = SimpleNamespace(meta=SimpleNamespace(client=client), name="U")
    for target, seconds in ((client, 11.0), (table, 3.0)):
        clock.sleeps.clear()
        with budget(write_units=1).attach(target):
            for _ in range(2):
                client.batch_write_item(RequestItems=requests)
        assert clock.sleeps == [seconds]


def test_several_attachments_charge_a_call_once(client: Any, budget: Any, clock: Clock) -> None:
    shared = budget(write_units=1)
    with (
        shared.attach(client),
        shared.attach(client),
        shared.attach(client, key="a", key_schema=KEY_SCHEMA) as last,
    ):
        put(client)
        put(client)
        assert clock.sleeps == [1.0]
        last.detach()
    with shared.attach(client, key="a", key_schema=KEY_SCHEMA), shared.attach(client, key="b", key_schema=KEY_SCHEMA):
        put(client, "a")
        put(client, "b")
        put(client, "c")
    assert clock.sleeps == [1.0] * 3


def test_budgets_on_one_client_all_hold(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    with budget(write_units=2).attach(client), budget(write_units=1, timeout=1).attach(client):
        for _ in range(3):
            put(client)
    assert sum(clock.sleeps) == 2.0
    wide = budget(write_units=1)
    with wide.attach(client):
        with budget(write_units=0.001, mode="raise").attach(client):
            put(client)
            clock.now += 1.0
            with pytest.raises(CapacityBudgetError, match=r"of 0\.001 write"):
                put(client, size=5000)
        # What the inner one refused, the outer one is given back.
        clock.sleeps.clear()
        put(client)
    assert clock.sleeps == []


def test_beside_a_meter(client: Any, budget: Any, clock: Clock) -> None:
    for first in (CapacityMeter(), budget(write_units=1)):
        meter = CapacityMeter()
        with first.attach(client), meter.attach(client), budget(write_units=1).attach(client):
            assert "ConsumedCapacity" not in put(client)
        assert meter.write_units == 1.0


def test_what_is_refused_is_no_request_of_the_meter(client: Any, budget: Any) -> None:
    meter = CapacityMeter()
    with meter.attach(client), budget(write_units=1, mode="raise").attach(client):
        put(client)
        with pytest.raises(CapacityBudgetError):
            put(client)
    assert meter.requests == 1


def test_a_call_that_waits_when_the_budget_is_detached_goes_in_its_turn(
    client: Any, clock: Clock, service: Service
) -> None:
    def sleep(seconds: float) -> None:
        attached.detach()
        clock.sleep(seconds)

    budget = CapacityBudget(write_units=1, burst=0, clock=clock, sleep=sleep)
    attached = budget.attach(client)
    put(client)
    assert "ConsumedCapacity" not in put(client)
    assert clock.sleeps == [1.0]
    with budget.attach(client):
        # It was charged, too.
        clock.now += 0.5
        put(client)
    assert clock.sleeps == [1.0, 0.5]


def test_a_session(service: Service, budget: Any, clock: Clock) -> None:
    session = boto3.Session()
    with budget(write_units=1).attach(session) as attached:
        client = session.client("dynamodb", endpoint_url=service.url)
        put(client)
        put(client)
        attached.detach()
        put(client)
    assert clock.sleeps == [1.0]
    client.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "read_units, write_units: both are missing"),
        ({"write_units": 0}, "write_units: must be a number > 0 .write units a second., got 0"),
        ({"write_units": -1}, "write_units"),
        ({"read_units": "80%"}, "read_units"),
        ({"read_units": True}, "read_units"),
        ({"read_units": float("nan")}, "read_units"),
        ({"read_units": float("inf")}, "read_units"),
        ({"read_units": 10**400}, "read_units"),
        ({"read_units": Decimal("sNaN")}, "read_units"),
        ({"read_units": 1, "burst": -1}, "burst"),
        ({"read_units": 1, "timeout": float("inf")}, "timeout: must be a number >= 0 .seconds., got inf"),
        ({"read_units": 1, "timeout": None}, "timeout"),
        ({"read_units": 1, "mode": "drop"}, 'mode: must be "wait" or "raise"'),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CapacityBudget(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": 1.5}, "key: must be a str, bytes or a number .a partition key's value., got 1.5"),
        ({"key": True}, "key: must be a str, bytes or a number .a partition key's value., got True"),
        ({"key": {"S": "a"}}, "key: must be a str, bytes or a number"),
        ({"key": "a"}, 'give key_schema={"Orders": "Date"}'),
        ({"key": "a", "key_schema": {"T": 1}}, "key_schema: must map"),
    ],
)
def test_keys_that_cannot_work(client: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CapacityBudget(write_units=1).attach(client, **options)


def test_a_key_of_a_table_that_nobody_can_describe(resource: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'give key_schema=\{"Missing": "Date"\}'):
        CapacityBudget(write_units=1).attach(resource.Table("Missing"), key="a")


def test_what_a_budget_cannot_be_attached_to() -> None:
    with pytest.raises(ConfigurationError, match="got dict"):
        CapacityBudget(write_units=1).attach({})
