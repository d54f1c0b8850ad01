"""shardkit.install() on what async code holds: clients of aiobotocore, its sessions, and aioboto3's resources."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from shardkit import (
    CalculatedSuffix,
    CapacityMeter,
    ConfigurationError,
    InvalidKeyError,
    Resharding,
    Unsharded,
    UnsupportedOperationError,
    install,
    install_everywhere,
)
from shardkit.cache import CacheOptions
from shardkit.runtime.runner import on_clock
from shardkit.testing import VirtualClock
from tests.support.tables import make_table
from tests.support.wire import Body, serving

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable  # noqa: E402

STRATEGY = CalculatedSuffix("sk", shards=3)
DAY = {"S": "day"}
IDS = ("a", "b", "c", "d")


def key(sort: str = "a") -> dict[str, Any]:
    return {"pk": DAY, "sk": {"S": sort}}


def stored(sort: str = "a") -> str:
    return str(STRATEGY.physical_key("day", STRATEGY.shard_of("day", {"sk": sort})))


def a_query(table: str, **more: Any) -> dict[str, Any]:
    values = {":day": DAY}
    return {"TableName": table, "KeyConditionExpression": "pk = :day", "ExpressionAttributeValues": values, **more}


@pytest.fixture
def table(moto_endpoint: str) -> Any:
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    yield make_table(resource, ("pk", "S"), ("sk", "S"))
    resource.meta.client.close()


def over(endpoint: str, session: Any = None) -> Any:
    return (session or get_session()).create_client("dynamodb", endpoint_url=endpoint)


def test_a_client_until_it_is_uninstalled(moto_endpoint: str, table: Any) -> None:
    """Queries side by side, pages, a meter that counts once, errors that are ClientErrors; then nothing of it."""

    async def main() -> None:
        async with over(moto_endpoint) as client, over(moto_endpoint) as other:
            meter = CapacityMeter()
            with install(client, {table.name: STRATEGY}), meter.attach(client):
                with pytest.raises(ConfigurationError, match="installed already"):
                    install(client, {table.name: STRATEGY})
                await asyncio.gather(*(client.put_item(TableName=table.name, Item=key(sort)) for sort in IDS))
                assert meter.requests == len(IDS) + 1  # one looks for a shard map, for all of them
                pages = await asyncio.gather(*(client.query(**a_query(table.name)) for _ in range(20)))
                assert [page["Items"] for page in pages] == [[key(sort) for sort in IDS]] * 20
                assert meter.requests == len(IDS) + 1 + 20 * 3
                assert (await client.get_item(TableName=table.name, Key=key()))["Item"] == key()
                paginator = client.get_paginator("query")
                read = [
                    item
                    async for page in paginator.paginate(**a_query(table.name), PaginationConfig={"PageSize": 3})
                    for item in page["Items"]
                ]
                assert read == [key(sort) for sort in IDS]
                with pytest.raises(InvalidKeyError) as caught:
                    await client.put_item(TableName=table.name, Item={"pk": DAY})
                assert isinstance(caught.value, ClientError)
                with pytest.raises(UnsupportedOperationError):
                    await client.execute_statement(Statement=f'SELECT * FROM "{table.name}"')  # noqa: S608
            assert (await client.query(**a_query(table.name)))["Items"] == []
            assert (await other.query(**a_query(table.name)))["Items"] == []

    asyncio.run(main())
    assert {item["pk"] for item in table.scan()["Items"]} == {stored(sort) for sort in IDS}


def test_a_sharded_table_with_another_strategy_than_is_installed_is_refused(moto_endpoint: str, table: Any) -> None:
    async def main() -> None:
        async with over(moto_endpoint) as client:
            with install(client, {table.name: STRATEGY}):
                ShardedTable(client, STRATEGY, table_name=table.name)
                with pytest.raises(ConfigurationError, match="is installed on this client"):
                    ShardedTable(client, CalculatedSuffix("sk", shards=7), table_name=table.name)

    asyncio.run(main())


@pytest.mark.parametrize("everywhere", [False, True])
def test_sessions(moto_endpoint: str, table: Any, everywhere: bool) -> None:
    async def main() -> None:
        session = get_session()
        tables = {table.name: STRATEGY}
        with install_everywhere(tables) if everywhere else install(session, tables):
            async with over(moto_endpoint, get_session() if everywhere else session) as client:
                await client.put_item(TableName=table.name, Item=key())
                with pytest.raises(ConfigurationError, match="installed already"):
                    install(client, tables)
        async with over(moto_endpoint, session) as client:
            assert (await client.query(**a_query(table.name)))["Items"] == []

    asyncio.run(main())
    assert table.scan()["Items"] == [{"pk": stored(), "sk": "a"}]


def test_a_cancelled_query_leaves_no_task() -> None:
    """Nor does one that times out: what it asked is over when the caller goes on."""
    schema = {
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    }
    asked: list[str] = []

    async def main(url: str) -> None:
        arrived = asyncio.Event()
        async with over(url) as client:
            install(client, {"T": STRATEGY}, key_schemas={"T": schema})

            async def hang(**_: Any) -> None:
                asked.append("Query")
                arrived.set()
                await asyncio.Event().wait()

            client.meta.events.register("before-send.dynamodb.Query", hang)
            query = asyncio.create_task(client.query(**a_query("T")))
            await arrived.wait()
            query.cancel()
            with pytest.raises(asyncio.CancelledError):
                await query
            assert asyncio.all_tasks() == {asyncio.current_task()}

    def answer(_: str, __: Body) -> tuple[int, Any]:
        return 200, {"Items": [], "Count": 0, "ScannedCount": 0}

    with serving(answer) as service:
        asyncio.run(main(service.url))
    assert asked
    assert service.requests == []


@pytest.mark.parametrize("cached", [False, True])
def test_an_installed_client_is_collected(moto_endpoint: str, table: Any, cached: bool) -> None:
    async def main() -> Any:
        async with over(moto_endpoint) as client:
            cache = {table.name: CacheOptions(max_bytes=100_000)} if cached else None
            install(client, {table.name: STRATEGY}, cache=cache)
            await client.query(**a_query(table.name))
            return weakref.ref(client)

    gone = asyncio.run(main())
    gc.collect()
    assert gone() is None


def test_a_resource_of_aioboto3(moto_endpoint: str, table: Any) -> None:
    aioboto3 = pytest.importorskip(
        "aioboto3",
        reason="aioboto3 pins an older aiobotocore than the async extra asks for: it needs an environment of its own",
    )

    async def main() -> None:
        session = aioboto3.Session()
        async with session.resource("dynamodb", endpoint_url=moto_endpoint) as resource:
            with install(resource, {table.name: STRATEGY}):
                orders = await resource.Table(table.name)
                await orders.put_item(Item={"pk": "day", "sk": "a"})
                assert (await orders.get_item(Key={"pk": "day", "sk": "a"}))["Item"] == {"pk": "day", "sk": "a"}
                async with orders.batch_writer() as batch:
                    await batch.put_item(Item={"pk": "day", "sk": "b"})
        with install(session, {table.name: STRATEGY}):
            async with session.client("dynamodb", endpoint_url=moto_endpoint) as client:
                assert (await client.query(**a_query(table.name)))["Items"] == [key("a"), key("b")]

    asyncio.run(main())
    assert {item["pk"] for item in table.scan()["Items"]} == {stored("a"), stored("b")}


@pytest.mark.parametrize("how", ["cached", "moving"])
def test_what_is_left_unprocessed(how: str) -> None:
    """Binary values come back as bytes: base64 text would be encoded again when it is sent again."""
    raw = b"\x00\xff"
    item = {"pk": {"B": raw}, "sk": {"B": raw}, "m": {"M": {"B": {"BS": [raw]}}}}
    keys: Any = {"T": {"Keys": [{name: item[name] for name in ("pk", "sk")}]}}
    puts: Any = {"T": [{"PutRequest": {"Item": item}}]}
    schema = {
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "B"} for name in ("pk", "sk")],
    }
    strategy = STRATEGY if how == "cached" else Resharding(Unsharded(), STRATEGY, stage="move")
    cache = {"T": CacheOptions(max_bytes=1_000_000)} if how == "cached" else None

    def answer(operation: str, body: Body) -> tuple[int, Any]:
        if operation == "BatchGetItem":
            return 200, {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}
        return 200, {"UnprocessedItems": body["RequestItems"]}

    async def main() -> None:
        async with over(service.url) as client:
            with (
                install(client, {"T": strategy}, key_schemas={"T": schema}, cache=cache),
                on_clock(client, VirtualClock()),
            ):
                assert (await client.batch_get_item(RequestItems=keys))["UnprocessedKeys"] == keys
                assert (await client.batch_write_item(RequestItems=puts))["UnprocessedItems"] == puts

    with serving(answer) as service:
        asyncio.run(main())
