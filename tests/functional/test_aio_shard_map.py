"""Async tables and async installed clients with a shard map."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, Unsharded, install
from tests.support.mapped import Moment, before, requests_of
from tests.support.tables import make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable, bulk_load  # noqa: E402

ITEMS = [{"pk": "d", "sk": f"{number:02}"} for number in range(30)]
DAY = Key("pk").eq("d")


@pytest.fixture
def table(moto_endpoint: str) -> Iterator[Any]:
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    yield make_table(resource, ("pk", "S"), ("sk", "S"))
    resource.meta.client.close()


@pytest.fixture
def moment() -> Moment:
    return Moment()


def run(endpoint: str, use: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=endpoint) as client:
            await use(client)

    asyncio.run(main())


def test_follows_the_map_through_all_stages(moto_endpoint: str, table: Any, moment: Moment) -> None:
    admin = moment.admin(table)
    admin.create(Unsharded())

    async def use(client: Any) -> None:
        orders = ShardedTable(client, moment.map(), table_name=table.name)
        await orders.put_item(Item=ITEMS[0])
        with before(client, "PutItem", do=lambda: moment.wait(30)), requests_of(client) as seen:
            await orders.put_item(Item=ITEMS[1])
        assert [name for name, _ in seen] == ["map", "PutItem"]
        found = orders.query_items(KeyConditionExpression=DAY)
        assert await anext(found) == ITEMS[0]
        admin.start(CalculatedSuffix("sk", shards=3))
        moment.advanced(admin, "move")
        assert [item async for item in found] == [ITEMS[1]]
        await asyncio.gather(*(orders.put_item(Item=item) for item in ITEMS[2:10]))
        assert (await bulk_load(orders, ITEMS[10:])).written == 20
        assert (await orders.query(KeyConditionExpression=DAY))["Items"] == ITEMS

    run(moto_endpoint, use)
    assert sum(item["pk"] == "d" for item in table.scan()["Items"]) == 2


def test_an_installed_client_follows_the_map(moto_endpoint: str, table: Any, moment: Moment) -> None:
    admin = moment.admin(table)
    admin.create(CalculatedSuffix("sk", shards=2))

    async def use(client: Any) -> None:
        with install(client, {table.name: moment.map()}):
            items = [{"pk": {"S": "d"}, "sk": {"S": str(number)}} for number in range(3)]
            for item in items:
                await client.put_item(TableName=table.name, Item=item)
            asked = [{"Get": {"TableName": table.name, "Key": items[0]}}]
            answer = await client.transact_get_items(TransactItems=asked)
            assert answer["Responses"] == [{"Item": items[0]}]
            moment.wait(31)
            with requests_of(client) as seen:
                assert (await client.scan(TableName=table.name))["Count"] == 3
            assert [name for name, _ in seen] == ["map", "Scan"]

    run(moto_endpoint, use)
