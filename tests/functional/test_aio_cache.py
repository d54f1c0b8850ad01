"""The async CachedTable: one request for many tasks, cancelled readers, and a Redis server with its asyncio client."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ConfigurationError, Unsharded, install
from shardkit.cache import CachedTable as SyncCachedTable
from shardkit.cache import CacheOptions, MemoryStore, RedisStore
from tests.support.engines import ServerName
from tests.support.fakes import Clock
from tests.support.recorder import recording
from tests.support.tables import make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")
pytest.importorskip("cachetools")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import CachedTable, ShardedTable, TimeSeries  # noqa: E402

BOOK: Any = {"Shop": "s1", "Id": 1}
PAGE: Any = {"KeyConditionExpression": Key("Shop").eq("s1")}
Use = Callable[[CachedTable, Clock], Awaitable[None]]


@pytest.fixture
def name(moto_endpoint: str) -> Iterator[str]:
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    yield make_table(resource, ("Shop", "S"), ("Id", "N")).name
    resource.meta.client.close()


@asynccontextmanager
async def table_of(endpoint: str, name: str) -> AsyncIterator[ShardedTable]:
    async with get_session().create_client("dynamodb", endpoint_url=endpoint) as client:
        yield ShardedTable(client, CalculatedSuffix("Id", shards=3), table_name=name)


def run(endpoint: str, name: str, use: Use, **options: Any) -> None:
    async def main() -> None:
        clock = Clock()
        async with table_of(endpoint, name) as table:
            await use(CachedTable(table, store=MemoryStore(1_000_000, clock=clock), **options), clock)

    asyncio.run(main())


def test_reads_and_writes(moto_endpoint: str, name: str) -> None:
    async def use(products: CachedTable, clock: Clock) -> None:
        await products.put_item(Item=BOOK | {"Name": "old"})
        clock.now = 3.0
        assert "Cached" not in await products.get_item(Key=BOOK)
        with recording(products.meta.client) as sent:
            assert (await products.get_item(Key=BOOK))["Cached"] == "fresh"
            assert (await products.batch_get_items([BOOK]))["Cached"] == ["fresh"]
            assert ["Cached" in await products.query(**PAGE) for _ in range(2)] == [False, True]
            async with products.batch_writer() as batch:
                await batch.put_item(Item=BOOK | {"Name": "new"})
            answer = await products.get_item(Key=BOOK)
            assert (answer["Item"]["Name"], answer["Cached"]) == ("new", "fresh")
            assert (await products.query(**PAGE))["Items"][0]["Name"] == "new"
            await products.clear()
            assert "Cached" not in await products.get_item(Key=BOOK)
        assert sent.operations == ["Query"] * 3 + ["BatchWriteItem"] + ["Query"] * 3 + ["GetItem"]
        assert [item["Id"] async for item in products.query_items(**PAGE)] == [1]
        with pytest.raises(ConfigurationError, match=r"use shardkit\.aio\.CachedTable"):
            SyncCachedTable(products.table, max_bytes=1_000_000)

    run(moto_endpoint, name, use, query_ttl=60.0)


def test_many_tasks_that_miss_are_one_request(moto_endpoint: str, name: str) -> None:
    async def use(products: CachedTable, _: Clock) -> None:
        with recording(products.meta.client) as sent:
            await products.get_item(Key={"Shop": "s2", "Id": 1})
            sent.clear()
            await asyncio.gather(*(products.get_item(Key=BOOK) for _ in range(100)))
        assert sent.operations == ["GetItem"]

    run(moto_endpoint, name, use)


def test_a_cancelled_reader_does_not_cancel_those_who_wait(moto_endpoint: str, name: str) -> None:
    async def use(products: CachedTable, _: Clock) -> None:
        await products.put_item(Item=BOOK)
        await products.get_item(Key={"Shop": "s2", "Id": 1})
        first = asyncio.ensure_future(products.get_item(Key=BOOK))
        others = [asyncio.ensure_future(products.get_item(Key=BOOK)) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        assert [answer["Item"] for answer in await asyncio.gather(*others)] == [BOOK] * 5
        with suppress(asyncio.CancelledError):
            await first

    run(moto_endpoint, name, use)


def test_an_old_copy_while_it_is_read_again(moto_endpoint: str, name: str) -> None:
    async def use(products: CachedTable, clock: Clock) -> None:
        await products.get_item(Key=BOOK)
        clock.now = 6.0
        with recording(products.meta.client) as sent:
            assert (await products.get_item(Key=BOOK))["Cached"] == "stale"
            await asyncio.gather(*products._runner._tasks)  # noqa: SLF001 - the background
            assert (await products.get_item(Key=BOOK))["Cached"] == "fresh"
        assert sent.operations == ["GetItem"]

    run(moto_endpoint, name, use, stale_while_revalidate=60.0)


def test_a_time_series(moto_endpoint: str) -> None:
    async def main() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            june = datetime(2026, 6, 1, tzinfo=UTC)
            schema = {
                "KeySchema": [{"AttributeName": "Shop", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "Shop", "AttributeType": "S"}],
            }
            series = TimeSeries(
                client, f"clicks-{uuid.uuid4().hex[:8]}", at="Time", period="month", missing="create", schema=schema,
                clock=lambda: june,
            )  # fmt: skip
            products = CachedTable(series, max_bytes=1_000_000)
            for item in ({"Shop": "s1", "Time": f"2026-0{month}-01T00:00:00Z"} for month in (5, 6)):
                await products.put_item(Item=item)
                answers: Any = [await products.get_item(Key={"Shop": "s1"}) for _ in range(2)]
                assert [answer["Item"] for answer in answers] == [item] * 2
                assert [answer.get("Cached") for answer in answers] == [None, "fresh"]

    asyncio.run(main())


def test_an_installed_client(moto_endpoint: str, name: str) -> None:
    async def main() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            caches = {name: CacheOptions(max_bytes=1_000_000)}
            key: Any = {"Shop": {"S": "s1"}, "Id": {"N": "1"}}
            with install(client, {name: Unsharded()}, cache=caches), recording(client) as sent:
                await client.put_item(TableName=name, Item=key)
                await client.get_item(TableName=name, Key=key)
                answer: Any = await client.get_item(TableName=name, Key=key)
                batch = await client.batch_get_item(RequestItems={name: {"Keys": [key]}})
                assert (answer["Item"], answer["Cached"]) == (key, "fresh")
                assert batch["Responses"] == {name: [key]}
            assert sent.operations == ["DescribeTable", "PutItem", "GetItem"]

    asyncio.run(main())


@pytest.mark.integration
def test_a_redis_server(moto_endpoint: str, name: str, engine_endpoint: Callable[[ServerName], str]) -> None:
    redis = pytest.importorskip("redis.asyncio")

    async def main() -> None:
        client = redis.Redis.from_url(engine_endpoint("redis"))
        await client.flushdb()
        async with table_of(moto_endpoint, name) as table, table_of(moto_endpoint, name) as another:
            one, other = (CachedTable(table, store=RedisStore(client, admit_after=1)) for table in (table, another))
            await one.put_item(Item=BOOK | {"Name": "old"})
            for process in (one, other, one):
                await process.get_item(Key=BOOK)
            assert (await other.get_item(Key=BOOK))["Cached"] == "fresh"
            await one.put_item(Item=BOOK | {"Name": "new"})
            # The server hears of it while the next reads go on; this process sees it in any case.
            assert (await one.get_item(Key=BOOK))["Item"]["Name"] == "new"
            await asyncio.gather(*one._runner._tasks)  # noqa: SLF001 - the background
            assert (await other.get_item(Key=BOOK))["Item"]["Name"] == "new"
            await one.clear()
            assert await client.keys("*") == []
        await client.aclose()

    asyncio.run(main())


def test_a_redis_server_that_does_not_answer(moto_endpoint: str, name: str) -> None:
    redis = pytest.importorskip("redis.asyncio")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = redis.Redis(port=silent.getsockname()[1])
            async with table_of(moto_endpoint, name) as table:
                products = CachedTable(table, store=RedisStore(client, timeout=0.02))
                await products.put_item(Item=BOOK)
                assert [(await products.get_item(Key=BOOK))["Item"] for _ in range(3)] == [BOOK] * 3
            await client.aclose()

    asyncio.run(main())


def test_a_read_that_began_before_a_write_is_not_joined_after_it(moto_endpoint: str, name: str) -> None:
    """Also if the store has not heard of the write yet, and nothing lets other tasks go on."""
    redis = pytest.importorskip("redis.asyncio")

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = redis.Redis(port=silent.getsockname()[1])
            async with table_of(moto_endpoint, name) as table:
                products = CachedTable(table, store=RedisStore(client, timeout=0.02, clock=Clock()))
                await products.put_item(Item=BOOK | {"Name": "old"})
                await products.get_item(Key=BOOK)  # from here on the store is not asked
                read, written = asyncio.Event(), asyncio.Event()

                async def hold(**_: Any) -> None:
                    read.set()
                    await written.wait()

                products.meta.client.meta.events.register("after-call.dynamodb.GetItem", hold)
                slow = asyncio.ensure_future(products.get_item(Key=BOOK))
                await read.wait()
                await products.put_item(Item=BOOK | {"Name": "new"})
                asyncio.get_running_loop().call_later(0.05, written.set)
                assert (await products.get_item(Key=BOOK))["Item"]["Name"] == "new"
                await slow
            await client.aclose()

    asyncio.run(main())


@pytest.mark.integration
def test_a_write_before_the_tables_key_is_known(
    moto_endpoint: str, name: str, engine_endpoint: Callable[[ServerName], str]
) -> None:
    """For example the first thing that a process does, through the client."""
    redis = pytest.importorskip("redis.asyncio")

    async def main() -> None:
        client = redis.Redis.from_url(engine_endpoint("redis"))
        await client.flushdb()
        key: Any = {"Shop": {"S": "s1"}, "Id": {"N": "1"}}
        sessions = [get_session().create_client("dynamodb", endpoint_url=moto_endpoint) for _ in range(2)]
        async with sessions[0] as first, sessions[1] as second:
            one, other = (
                CachedTable(ShardedTable(each, Unsharded(), table_name=name), store=RedisStore(client, admit_after=1))
                for each in (first, second)
            )
            await one.get_item(Key=BOOK)
            assert (await one.get_item(Key=BOOK))["Cached"] == "fresh"
            await second.put_item(TableName=name, Item=key)
            assert "Item" in await other.get_item(Key=BOOK)
        await client.aclose()

    asyncio.run(main())


def test_a_write_that_was_cancelled_may_have_been_made(moto_endpoint: str, name: str) -> None:
    """What it may have changed is read again."""

    async def use(products: CachedTable, _: Clock) -> None:
        await products.put_item(Item=BOOK | {"Name": "old"})
        await products.get_item(Key=BOOK)
        sent = asyncio.Event()
        products.meta.client.meta.events.register_last("before-send.dynamodb.PutItem", lambda **_: sent.set())
        writing = asyncio.ensure_future(products.put_item(Item=BOOK | {"Name": "new"}))
        await sent.wait()
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        assert "Cached" not in await products.get_item(Key=BOOK)

    run(moto_endpoint, name, use)


def test_close_waits_for_what_is_read_again(moto_endpoint: str, name: str) -> None:
    """No task outlives a closed cache, and a later read is served."""

    async def use(products: CachedTable, clock: Clock) -> None:
        await products.put_item(Item=BOOK)
        await products.get_item(Key=BOOK)
        clock.now += 61
        async with products:
            assert (await products.get_item(Key=BOOK))["Cached"] == "stale"
            assert len(asyncio.all_tasks()) > 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (await products.get_item(Key=BOOK))["Cached"] == "fresh"
        await products.close()

    run(moto_endpoint, name, use, stale_while_revalidate=60.0)
