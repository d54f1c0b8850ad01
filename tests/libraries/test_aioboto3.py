"""aioboto3: its clients, resources and Tables, in an environment with the older aiobotocore that it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from tests.support.installed import Setting

aioboto3 = pytest.importorskip("aioboto3")

DAY = "2014-07-09"
ITEMS: list[dict[str, Any]] = [{"pk": DAY, "sk": f"A{number:03}", "n": Decimal(number)} for number in range(40)]
WIRE = [{"pk": {"S": DAY}, "sk": {"S": item["sk"]}, "n": {"N": str(item["n"])}} for item in ITEMS]


@asynccontextmanager
async def resource_of(setting: Setting, table: str) -> AsyncIterator[Any]:
    async with aioboto3.Session().resource("dynamodb", endpoint_url=setting.url) as resource:
        with setting.install(resource, table):
            yield resource


def test_a_table(setting: Setting) -> None:
    stored = setting.make_table()

    async def main() -> None:
        async with resource_of(setting, stored.name) as resource:
            table = await resource.Table(stored.name)
            async with table.batch_writer() as batch:
                for item in ITEMS[1:]:
                    await batch.put_item(Item=item)
            await table.put_item(Item=ITEMS[0])
            key = {"pk": DAY, "sk": "A007"}
            assert (await table.get_item(Key=key))["Item"] == ITEMS[7]
            answer = await table.update_item(
                Key=key,
                UpdateExpression="SET n = n + :one",
                ExpressionAttributeValues={":one": 1},
                ReturnValues="ALL_NEW",
            )
            assert answer["Attributes"] == {**key, "n": 8}
            await table.put_item(Item=ITEMS[7])

            day = Key("pk").eq(DAY)
            page = await table.query(KeyConditionExpression=day, Limit=15)
            assert page["Items"] == ITEMS[:15]
            assert page["LastEvaluatedKey"] == {"pk": DAY, "sk": "A014"}
            rest = await table.query(
                KeyConditionExpression=Key("pk").eq(DAY), ExclusiveStartKey=page["LastEvaluatedKey"]
            )
            assert rest["Items"] == ITEMS[15:]
            found = (await table.scan())["Items"]
            assert sorted(found, key=lambda item: item["sk"]) == ITEMS
            keys = [{"pk": DAY, "sk": sort_key} for sort_key in ("A003", "A033")]
            batch_get = await resource.batch_get_item(RequestItems={stored.name: {"Keys": keys}})
            answered = batch_get["Responses"][stored.name]
            assert sorted(answered, key=lambda item: item["sk"]) == [ITEMS[3], ITEMS[33]]

    asyncio.run(main())
    setting.assert_stored(stored, {DAY: 40})


@pytest.mark.parametrize("reached", ["client", "session"])
def test_a_client(reached: str, setting: Setting) -> None:
    """Paginators, transactions and many calls at once, over a client or whatever clients the session makes."""
    stored = setting.make_table()
    asked = {"KeyConditionExpression": "pk = :day", "ExpressionAttributeValues": {":day": {"S": DAY}}}

    async def use(client: Any) -> None:
        puts = [{"Put": {"TableName": stored.name, "Item": item}} for item in WIRE[:10]]
        await client.transact_write_items(TransactItems=puts)
        await asyncio.gather(*(client.put_item(TableName=stored.name, Item=item) for item in WIRE[10:]))
        pages = client.get_paginator("query").paginate(TableName=stored.name, **asked, PaginationConfig={"PageSize": 7})
        assert [item async for page in pages for item in page["Items"]] == WIRE
        await client.get_waiter("table_exists").wait(TableName=stored.name)

    async def main() -> None:
        session = aioboto3.Session()
        if reached == "session":
            with setting.install(session, stored.name):
                async with session.client("dynamodb", endpoint_url=setting.url) as client:
                    await use(client)
        else:
            async with session.client("dynamodb", endpoint_url=setting.url) as client:
                with setting.install(client, stored.name):
                    await use(client)

    asyncio.run(main())
    setting.assert_stored(stored, {DAY: 40})


def test_a_cached_table(setting: Setting) -> None:
    pytest.importorskip("cachetools")
    from shardkit.aio import CachedTable

    stored = setting.make_table()

    async def main() -> None:
        async with aioboto3.Session().resource("dynamodb", endpoint_url=setting.url) as resource:
            table = CachedTable(await resource.Table(stored.name), max_bytes=1_000_000)
            async with table.batch_writer() as batch:
                await batch.put_item(Item=ITEMS[0])
            key = {"pk": DAY, "sk": "A000"}
            assert [(await table.get_item(Key=key)).get("Cached") for _ in range(3)][2] == "fresh"
            found = await table.batch_get_items([key, {"pk": DAY, "sk": "A001"}])
            assert (found["Items"], found["Cached"]) == ([ITEMS[0]], ["fresh"])
            await table.put_item(Item=ITEMS[0] | {"n": Decimal(7)})
            assert (await table.get_item(Key=key))["Item"]["n"] == 7

    asyncio.run(main())
