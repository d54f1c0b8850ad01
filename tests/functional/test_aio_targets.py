"""Meters and budgets on what async code holds: clients and sharded tables of aiobotocore, and all that aioboto3 has."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityBudget, CapacityBudgetError, CapacityMeter, ConfigurationError
from shardkit.capacity import HotKeyWarning, Usage
from shardkit.capacity.exporters.emf import EmbeddedMetrics
from shardkit.sharding.shard_map import MAP
from tests.support.wire import Body, Service, serving

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable, bulk_load  # noqa: E402

SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}
STRATEGY = CalculatedSuffix("OrderId", shards=2)
ITEM = {"Date": "2014-07-09", "OrderId": "A17"}
WIRE = {name: {"S": value} for name, value in ITEM.items()}

Use = Callable[[Any], Awaitable[Any]]


def answer(operation: str, body: Body) -> tuple[int, Any]:
    """Answer as the service does: two units for a put, half a one for all else; capacity only where it is asked for."""
    units = {"PutItem": 2.0, "BatchWriteItem": 3.0}.get(operation, 0.5)
    consumed: Any = {"TableName": body.get("TableName", "Orders"), "CapacityUnits": units}
    if operation.startswith("Batch"):
        consumed = [consumed]
    empty: Body = {"Items": [], "Count": 0, "ScannedCount": 0}
    batch_get: Body = {"Responses": {}, "UnprocessedKeys": {}}
    found: Body = {
        "Query": empty, "Scan": empty, "BatchWriteItem": {"UnprocessedItems": {}}, "BatchGetItem": batch_get
    }.get(operation, {})  # fmt: skip
    asked = body.get("ReturnConsumedCapacity", "NONE") != "NONE"
    return 200, {**found, **({"ConsumedCapacity": consumed} if asked else {})}


def with_client(use: Use) -> Service:
    """Use an aiobotocore client."""

    async def main(service: Service) -> None:
        async with get_session().create_client("dynamodb", endpoint_url=service.url) as client:
            await use(client)

    with serving(answer) as service:
        asyncio.run(main(service))
    return service


def with_session(use: Callable[[Any, str], Coroutine[Any, Any, None]]) -> Service:
    """Use an aioboto3 session, and an endpoint."""
    aioboto3 = pytest.importorskip(
        "aioboto3",
        reason="aioboto3 pins an older aiobotocore than the async extra asks for: it needs an environment of its own",
    )
    with serving(answer) as service:
        asyncio.run(use(aioboto3.Session(), service.url))
    return service


async def refused(attached: AbstractContextManager[Any], call: Callable[[], Awaitable[Any]]) -> None:
    """See that a budget holds the second of two calls."""
    with attached:
        await call()
        with pytest.raises(CapacityBudgetError):
            await call()


def test_a_meter_warns_in_the_task_that_called() -> None:
    seen: list[tuple[Any, Any, Any]] = []

    def warned(warning: HotKeyWarning) -> None:
        seen.append((warning.key, warning.physical_key, asyncio.current_task()))

    async def use(client: Any) -> None:
        orders = ShardedTable(client, STRATEGY, table_name="Orders", key_schema=SCHEMA)
        with CapacityMeter(warn_at=0.002, on_warning=warned).attach(orders):
            await orders.put_item(Item=ITEM)
        ((key, stored, task),) = seen
        assert (key, stored) == (
            ITEM["Date"],
            STRATEGY.physical_key(ITEM["Date"], STRATEGY.shard_of(ITEM["Date"], ITEM)),
        )
        assert task is asyncio.current_task()

    with_client(use)


def test_a_meter_on_a_sharded_table_counts_that_table() -> None:
    async def use(client: Any) -> None:
        orders = ShardedTable(client, STRATEGY, table_name="Orders", key_schema=SCHEMA)
        assert (orders.name, orders.meta.client) == ("Orders", client)
        meter = CapacityMeter()
        with meter.attach(orders), meter.scope("one day") as used:
            await client.put_item(TableName="Others", Item=WIRE)
            await orders.put_item(Item=ITEM)
            await orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"))
            await bulk_load(orders, [ITEM])
        await orders.put_item(Item=ITEM)
        assert used.by_table == {"Orders": Usage(read_units=1.5, write_units=5.0, requests=5)}
        assert used.by_key == {
            ("Orders", "2014-07-09"): Usage(read_units=1.0, write_units=5.0, requests=4),
            ("Orders", MAP): Usage(read_units=0.5, requests=1),  # the load looked for a shard map
        }
        assert len(used.by_physical_key) == 3

    with_client(use)


def test_a_meter_counts_every_operation_of_a_sharded_table() -> None:
    """Each request once, by its operation; an exporter shows the same."""

    async def use(client: Any) -> None:
        orders = ShardedTable(client, STRATEGY, table_name="Orders", key_schema=SCHEMA)
        day = Key("Date").eq("2014-07-09")
        meter, written = CapacityMeter(), io.StringIO()
        with meter.attach(orders), EmbeddedMetrics(meter, stream=written):
            await orders.put_item(Item=ITEM)
            await orders.get_item(Key=ITEM)
            await orders.update_item(Key=ITEM, AttributeUpdates={"n": {"Value": 1, "Action": "PUT"}})
            await orders.delete_item(Key=ITEM)
            await orders.query(KeyConditionExpression=day)
            assert [item async for item in orders.query_items(KeyConditionExpression=day)] == []
            await orders.scan()
            assert [item async for item in orders.scan_items(segments=3)] == []
            await orders.batch_get_items([ITEM])
            async with orders.batch_writer() as batch:
                await batch.put_item(Item=ITEM)
        requests = {operation: usage.requests for operation, usage in meter.by_operation.items()}
        assert requests == {
            "PutItem": 1, "GetItem": 1, "UpdateItem": 1, "DeleteItem": 1, "Query": 4, "Scan": 4, "BatchGetItem": 1,
            "BatchWriteItem": 1,
        }  # fmt: skip
        assert {json.loads(line)["Operation"] for line in written.getvalue().splitlines()} >= requests.keys()

    with_client(use)


@pytest.mark.parametrize("key", [None, "2014-07-09"])
def test_a_budget_on_a_sharded_table_holds_that_table(key: str | None) -> None:
    async def use(client: Any) -> None:
        orders = ShardedTable(client, STRATEGY, table_name="Orders", key_schema=SCHEMA)
        budget = CapacityBudget(write_units=0.001, mode="raise")
        await refused(budget.attach(orders, key=key), lambda: orders.put_item(Item=ITEM))
        await orders.put_item(Item=ITEM)

    assert len(with_client(use).requests) == 2


def test_a_session_of_aioboto3() -> None:
    """Its clients and its resources' clients are counted until the meter is detached."""

    async def use(session: Any, url: str) -> None:
        meter = CapacityMeter()
        with meter.attach(session, key_schema={"Orders": "Date"}):
            async with session.resource("dynamodb", endpoint_url=url) as resource:
                await (await resource.Table("Orders")).put_item(Item=ITEM)
            async with session.client("dynamodb", endpoint_url=url) as client:
                await client.get_item(TableName="Orders", Key=WIRE)
        async with session.client("dynamodb", endpoint_url=url) as client:
            await client.get_item(TableName="Orders", Key=WIRE)
        assert meter.by_key == {("Orders", "2014-07-09"): Usage(read_units=0.5, write_units=2.0, requests=2)}
        budget = CapacityBudget(read_units=0.001, mode="raise")
        with budget.attach(session):
            async with session.client("dynamodb", endpoint_url=url) as client:
                await refused(budget.attach(client), lambda: client.get_item(TableName="Orders", Key=WIRE))

    with_session(use)


@pytest.mark.parametrize("target", ["resource", "table", "sharded"])
def test_what_a_resource_of_aioboto3_has(target: str) -> None:
    async def use(session: Any, url: str) -> None:
        async with session.resource("dynamodb", endpoint_url=url) as resource:
            table, others = await resource.Table("Orders"), await resource.Table("Others")
            orders = ShardedTable(table, STRATEGY, key_schema=SCHEMA)
            assert orders.meta.client is table.meta.client
            held = {"resource": resource, "table": table, "sharded": orders}[target]
            meter = CapacityMeter()
            with meter.attach(held, key_schema={"Orders": "Date"}):
                await others.put_item(Item=ITEM)
                await table.put_item(Item=ITEM)
                await orders.put_item(Item={**ITEM, "Date": "2014-07-10"})
                async with table.batch_writer() as batch:
                    await batch.put_item(Item=ITEM)
            assert set(meter.by_table) == {"Orders"} | ({"Others"} if target == "resource" else set())
            assert meter.by_key == {
                ("Orders", "2014-07-09"): Usage(write_units=5.0, requests=2),
                ("Orders", "2014-07-10"): Usage(write_units=2.0, requests=1),
            }
            budget = CapacityBudget(write_units=0.001, mode="raise")
            await refused(budget.attach(held), lambda: table.put_item(Item=ITEM))

    with_session(use)


def test_the_partition_key_of_a_table_of_aioboto3_is_not_asked_for() -> None:
    """It would have to be awaited; nothing is left that never was."""

    async def use(session: Any, url: str) -> None:
        async with session.resource("dynamodb", endpoint_url=url) as resource:
            table = await resource.Table("Orders")
            meter = CapacityMeter()
            with meter.attach(table):
                await table.put_item(Item=ITEM)
            assert (meter.write_units, meter.by_key) == (2.0, {})
            with pytest.raises(ConfigurationError, match=r"the name of the partition key of .* is unknown"):
                CapacityBudget(write_units=1).attach(table, key="2014-07-09")

    assert with_session(use).operations == ["PutItem"]
