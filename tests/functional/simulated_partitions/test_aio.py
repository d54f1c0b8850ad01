"""simulate_partitions in front of an aiobotocore client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ConfigurationError
from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.testing import SimulatedPartitionsFixture, VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.support.simulated import SHARES
from tests.support.tables import make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore", reason="needs the async extra")

LONGEST_WAIT = 2.0
"""Seconds that a load may be at rest in all: a throttled key waits for a second at the most."""


@pytest.fixture
def run(moto_endpoint: str) -> Callable[[Callable[[Any, str], Coroutine[Any, Any, None]]], None]:
    """Runs a test with an async client, and the name of a table of its own."""
    resource = boto3.resource("dynamodb", region_name=REGION, endpoint_url=moto_endpoint)
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))

    def run(test: Callable[[Any, str], Coroutine[Any, Any, None]]) -> None:
        from aiobotocore.session import get_session

        async def with_client() -> None:
            config = Config(retries={"total_max_attempts": 1})
            session: Any = get_session()
            async with session.create_client(
                "dynamodb", region_name=REGION, endpoint_url=moto_endpoint, config=config
            ) as client:
                await test(client, table.name)

        asyncio.run(with_client())
        resource.meta.client.close()

    return run


def item(number: int) -> dict[str, Any]:
    return {"Date": {"S": "2014-07-09"}, "OrderId": {"S": f"A{number}"}}


def test_throttles_and_units(run: Any) -> None:
    async def test(client: Any, table: str) -> None:
        clock = VirtualClock()
        async with simulate_partitions(client, table, partitions=1, write_units=3, clock=clock, **SHARES) as simulated:
            for number in range(3):
                answer = await client.put_item(TableName=table, Item=item(number), ReturnConsumedCapacity="TOTAL")
                assert answer["ConsumedCapacity"] == {"TableName": table, "CapacityUnits": 1.0}
            with pytest.raises(client.exceptions.ProvisionedThroughputExceededException) as caught:
                await client.put_item(TableName=table, Item=item(3))
            assert throttle_reasons(caught.value) == {"TableWriteKeyRangeThroughputExceeded"}
            clock.sleep(1.0)
            requests = {table: [{"PutRequest": {"Item": item(number)}} for number in range(4, 9)]}
            answer = await client.batch_write_item(RequestItems=requests)
            assert len(answer["UnprocessedItems"][table]) == 2
        assert simulated.throttles == {"TableWriteKeyRangeThroughputExceeded": 3}
        assert (await client.scan(TableName=table, Select="COUNT"))["Count"] == 6

    run(test)


def test_it_is_entered_as_its_client_asks(run: Any) -> None:
    async def test(client: Any, table: str) -> None:
        with pytest.raises(ConfigurationError, match="an async client; enter it with 'async with'"):
            simulate_partitions(client, table).__enter__()
        sync = boto3.client("dynamodb", region_name=REGION, endpoint_url=client.meta.endpoint_url)
        with pytest.raises(ConfigurationError, match="a sync client; enter it with 'with'"):
            await simulate_partitions(sync, table).__aenter__()
        sync.close()

    run(test)


def test_requests_side_by_side(run: Any) -> None:
    async def test(client: Any, table: str) -> None:
        async with simulate_partitions(
            client, table, partitions=1, write_units=5, clock=VirtualClock(), **SHARES
        ) as simulated:
            calls = (client.put_item(TableName=table, Item=item(number)) for number in range(12))
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, ClientError) for answer in answers) == 7
        assert simulated.throttles == {"TableWriteKeyRangeThroughputExceeded": 7}

    run(test)


def test_a_load_in_virtual_time(run: Any) -> None:
    async def test(client: Any, table: str) -> None:
        from shardkit.aio import ShardedTable, bulk_load

        clock = VirtualClock()
        orders = ShardedTable(client, CalculatedSuffix("OrderId", shards=4), table_name=table)
        items = [{"Date": "2014-07-09", "OrderId": f"A{number:03}"} for number in range(300)]
        async with simulate_partitions(client, table, partitions=4, write_units=40, clock=clock, **SHARES) as simulated:
            report = await bulk_load(orders, items)
        assert report.written == 300
        least = (max(hot.write_units for hot in simulated.hottest_partitions(4)) - 10) / 10
        assert least - 0.2 <= clock() <= least + LONGEST_WAIT
        assert report.seconds == pytest.approx(clock(), abs=0.01)

    run(test)


def test_an_async_table_in_virtual_time(run: Any, simulated_partitions: SimulatedPartitionsFixture) -> None:
    """The fixture takes it too; merged reads that are throttled wait on its clock."""

    async def test(client: Any, table: str) -> None:
        from shardkit.aio import ShardedTable

        orders = ShardedTable(client, CalculatedSuffix("OrderId", shards=4), table_name=table)
        async with orders.batch_writer() as batch:
            for number in range(40):
                await batch.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number:03}"})
        async with simulated_partitions(orders, partitions=1, read_units=1, **SHARES) as simulated:
            day = [item async for item in orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09"))]
            page = await orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"))
        assert [item["OrderId"] for item in day] == [f"A{number:03}" for number in range(40)]
        assert page["Items"] == day
        assert simulated.throttles
        assert simulated_partitions.clock() > 0

    run(test)
