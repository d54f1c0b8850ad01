"""The async table over a client of aiobotocore and a Table of aioboto3: what is forwarded, refused and shared."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ConfigurationError, UnsupportedOperationError
from tests.support.tables import make_table
from tests.support.wire import Body, serving

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable  # noqa: E402

STRATEGY = CalculatedSuffix("OrderId", shards=4)
DAY = Key("Date").eq("2014-07-09")
ITEMS = [{"Date": "2014-07-09", "OrderId": f"A{number:03}"} for number in range(60)]
DESCRIBED: Body = {
    "TableName": "Orders",
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "OrderId")],
}
HELD = ["client", *(["table"] if find_spec("aioboto3") else [])]
Use = Callable[[ShardedTable], Awaitable[None]]


@pytest.fixture
def table(moto_endpoint: str) -> Iterator[Any]:
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    yield make_table(resource, ("Date", "S"), ("OrderId", "S"))
    resource.meta.client.close()


@asynccontextmanager
async def held_by(held: str, endpoint: str, name: str) -> AsyncIterator[ShardedTable]:
    if held == "client":
        async with get_session().create_client("dynamodb", endpoint_url=endpoint) as client:
            yield ShardedTable(client, STRATEGY, table_name=name)
        return
    import aioboto3

    async with aioboto3.Session().resource("dynamodb", endpoint_url=endpoint) as resource:
        yield ShardedTable(await resource.Table(name), STRATEGY)


def run(held: str, endpoint: str, name: str, use: Use) -> None:
    async def main() -> None:
        async with held_by(held, endpoint, name) as orders:
            await use(orders)

    asyncio.run(main())


@pytest.mark.parametrize("held", HELD)
def test_what_is_forwarded(moto_endpoint: str, table: Any, held: str) -> None:
    """Attributes are awaited, as on a Table of aioboto3, whatever the table is held by."""

    async def use(orders: ShardedTable) -> None:
        assert (orders.name, orders.table_name, orders.table.name) == (table.name, table.name, table.name)
        assert orders.get_available_subresources() == []
        await orders.wait_until_exists()
        assert await orders.table_arn == table.table_arn
        assert await orders.item_count == 0
        await orders.put_item(Item=ITEMS[0])
        assert await orders.item_count == 0
        await orders.reload()
        assert await orders.item_count == 1
        await orders.update(DeletionProtectionEnabled=True)
        await orders.load()
        assert await orders.deletion_protection_enabled is True
        await orders.update(DeletionProtectionEnabled=False)
        assert (await orders.delete())["TableDescription"]["TableName"] == table.name
        await orders.wait_until_not_exists(WaiterConfig={"Delay": 0, "MaxAttempts": 5})
        assert {"item_count", "query_items", "with_options"} <= set(dir(orders))
        assert table.name in repr(orders)

    run(held, moto_endpoint, table.name, use)


@pytest.mark.parametrize("held", HELD)
def test_what_is_refused(moto_endpoint: str, table: Any, held: str) -> None:
    async def use(orders: ShardedTable) -> None:
        for name in ("execute_statement", "import_table"):
            with pytest.raises(UnsupportedOperationError, match=name):
                getattr(orders, name)
        for name in ("no_such_method", "_private"):
            with pytest.raises(AttributeError, match=name):
                getattr(orders, name)
        with pytest.raises(ConfigurationError, match=r"^table_name: must be"):
            ShardedTable(orders.table if held == "table" else orders.meta.client, STRATEGY, table_name=5)  # type: ignore[arg-type]
        with pytest.raises(AttributeError, match="shardkit"):
            _ = orders.table.shardkit

    run(held, moto_endpoint, table.name, use)


def test_tables_that_it_cannot_wrap(table: Any) -> None:
    """A boto3 client is a sync one, and a client has many tables."""
    for wrong in (table, table.meta.client, None, "Orders"):
        with pytest.raises(ConfigurationError, match=r"^table: must be an aiobotocore client or an aioboto3 Table"):
            ShardedTable(wrong, STRATEGY, table_name="Orders")


def test_a_client_that_was_not_entered() -> None:
    async def use() -> None:
        client = get_session().create_client("dynamodb", region_name="eu-central-1")
        with pytest.raises(ConfigurationError, match=r"; enter it: async with … as client$"):
            ShardedTable(client, STRATEGY, table_name="Orders")
        async with client:
            pass

    asyncio.run(use())


@pytest.mark.parametrize("held", HELD)
def test_tasks_share_a_writer_and_a_stream(moto_endpoint: str, table: Any, held: str) -> None:
    """Every item is written once, and read by one of them."""

    async def use(orders: ShardedTable) -> None:
        async with orders.batch_writer() as batch:
            await asyncio.gather(*(batch.put_item(Item=item) for item in ITEMS))
        assert table.scan(Select="COUNT")["Count"] == len(ITEMS)
        items, read = orders.query_items(KeyConditionExpression=DAY, Limit=7), list[Any]()

        async def reads() -> None:
            async for item in items:
                read.append(item)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(reads())
        assert sorted(item["OrderId"] for item in read) == [item["OrderId"] for item in ITEMS]
        with pytest.raises(ConfigurationError, match="has ended"):
            await batch.put_item(Item=ITEMS[0])

    run(held, moto_endpoint, table.name, use)


@pytest.mark.parametrize("cancelled", [False, True])
def test_the_first_calls_of_many_tasks_ask_for_the_schema_once(*, cancelled: bool) -> None:
    """They wait for the first one's answer. If it is cancelled, the others ask for themselves."""
    came, opened = threading.Event(), threading.Event()

    def answer(operation: str, body: Body) -> tuple[int, Body]:
        if operation == "DescribeTable":
            came.set()
            assert opened.wait(60)
            return 200, {"Table": DESCRIBED}
        return 200, {}

    async def use(orders: ShardedTable) -> None:
        tasks = [asyncio.ensure_future(orders.get_item(Key=ITEMS[0])) for _ in range(30)]
        assert await asyncio.to_thread(came.wait, 60)
        if cancelled:
            tasks[0].cancel()
        opened.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [type(error) for error in failed] == [asyncio.CancelledError] * cancelled

    with serving(answer) as service:
        run("client", service.url, "Orders", use)
    assert service.operations.count("DescribeTable") == (30 if cancelled else 1)


def test_a_write_that_was_cancelled_is_sent_with_the_next_batch() -> None:
    """The task that is cancelled gives up waiting, not the items of others."""
    written: list[str] = []
    came, opened = threading.Event(), threading.Event()

    async def use(orders: ShardedTable) -> None:
        async with orders.batch_writer() as batch:
            for item in ITEMS[:24]:
                await batch.put_item(Item=item)
            task = asyncio.ensure_future(batch.put_item(Item=ITEMS[24]))
            assert await asyncio.to_thread(came.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            opened.set()
            await batch.put_item(Item=ITEMS[25])

    def answer(operation: str, body: Body) -> tuple[int, Body]:
        if operation == "DescribeTable":
            return 200, {"Table": DESCRIBED}
        came.set()
        assert opened.wait(60)
        written.extend(put["PutRequest"]["Item"]["OrderId"]["S"] for put in body["RequestItems"]["Orders"])
        return 200, {"UnprocessedItems": {}}

    with serving(answer) as service:
        run("client", service.url, "Orders", use)
    assert set(written) == {item["OrderId"] for item in ITEMS[:26]}


def test_a_stream_that_failed_to_open_is_opened_again(moto_endpoint: str, table: Any) -> None:
    """As with boto3: a DescribeTable that fails once is sent again for the next item."""

    async def use(orders: ShardedTable) -> None:
        await orders.put_item(Item=ITEMS[0])
        fresh = ShardedTable(orders.meta.client, STRATEGY, table_name=table.name)
        failing = [ConnectionError("no route")]

        def fails(**_: Any) -> None:
            if failing:
                raise failing.pop()

        orders.meta.client.meta.events.register("before-send.dynamodb.DescribeTable", fails)
        items = fresh.query_items(KeyConditionExpression=DAY)
        with pytest.raises(Exception, match="no route"):
            await anext(items)
        assert (await anext(items))["OrderId"] == "A000"
        assert items.last_evaluated_key is not None
        assert await anext(items, None) is None
        assert items.shard_errors == {}

    run("client", moto_endpoint, table.name, use)
