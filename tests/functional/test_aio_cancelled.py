"""Async calls that are cancelled: when they return, no task of theirs is alive, and nothing is half counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Literal

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityBudget, CapacityMeter, ShardQueryError
from tests.support.fakes import Clock
from tests.support.wire import Body, Service, serving

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")
anyio = pytest.importorskip("anyio")

from aiobotocore.config import AioConfig  # noqa: E402 - only where it is installed
from aiobotocore.session import get_session  # noqa: E402

from shardkit.aio import ShardedTable, bulk_load, streaming_bulk  # noqa: E402

SHARDS = 8
DAY: dict[str, Any] = {"KeyConditionExpression": Key("Date").eq("2014-07-09")}
SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}
ITEMS = [{"Date": "2014-07-09", "OrderId": f"A{number:03}"} for number in range(101)]
Use = Callable[[ShardedTable], Awaitable[Any]]


class Gate:
    """Holds requests until it is opened; ``wait`` until as many have come."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self._came = threading.Semaphore(0)

    def hold(self) -> None:
        self._came.release()
        assert self.opened.wait(60)

    async def wait(self, number: int) -> None:
        for _ in range(number):
            assert await asyncio.to_thread(self._came.acquire, timeout=60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def run(use: Use, answer: Callable[[str, Body], Any], transport: Literal["client", "direct"] = "client") -> Service:
    """Use a table of eight shards; at the end, no task is left."""

    async def main(service: Service) -> None:
        config = AioConfig(retries={"total_max_attempts": 1}, max_pool_connections=SHARDS)
        async with get_session().create_client("dynamodb", endpoint_url=service.url, config=config) as client:
            await use(table_of(client, transport))
        assert alone()

    with serving(answer) as service:
        asyncio.run(main(service))
    return service


def table_of(client: Any, transport: Literal["client", "direct"]) -> ShardedTable:
    strategy = CalculatedSuffix("OrderId", SHARDS)
    return ShardedTable(client, strategy, table_name="Orders", key_schema=SCHEMA, transport=transport)


def alone() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


def empty(operation: str, body: Body) -> tuple[int, Body]:
    consumed: Any = {"TableName": "Orders", "CapacityUnits": 1.0}
    if operation.startswith("Batch"):
        return 200, {"UnprocessedItems": {}, "UnprocessedKeys": {}, "Responses": {}, "ConsumedCapacity": [consumed]}
    return 200, {"Items": [], "Count": 0, "ScannedCount": 0, "ConsumedCapacity": consumed}


async def stream(orders: ShardedTable) -> None:
    async for _ in orders.query_items(**DAY):
        pass


async def scan(orders: ShardedTable) -> None:
    async with orders.scan_items(segments=SHARDS) as found:
        await anext(found, None)


async def write(orders: ShardedTable) -> None:
    async with orders.batch_writer() as batch:
        for item in ITEMS:
            await batch.put_item(Item=item)


CALLS: dict[str, tuple[Use, int]] = {
    "query": (lambda orders: orders.query(**DAY), SHARDS),
    "query_items": (stream, SHARDS),
    "scan_items": (scan, SHARDS),
    "batch_get_items": (lambda orders: orders.batch_get_items(ITEMS), 2),
    "batch_writer": (write, 1),
    "get_item": (lambda orders: orders.get_item(Key=ITEMS[0]), 1),
}


async def by_task(call: Callable[[], Awaitable[Any]], began: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(call())
    await began()
    task.cancel()
    # A second one, while the first is carried out.
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alone()


async def by_timeout(call: Callable[[], Awaitable[Any]], began: Callable[[], Awaitable[None]]) -> None:
    async def calls() -> None:
        async with asyncio.timeout(None) as timeout:
            beginning = asyncio.ensure_future(began())
            beginning.add_done_callback(lambda _: timeout.reschedule(asyncio.get_running_loop().time()))
            await call()

    with pytest.raises(TimeoutError):
        await calls()
    assert alone()


async def by_task_group(call: Callable[[], Awaitable[Any]], began: Callable[[], Awaitable[None]]) -> None:
    async def fails() -> None:
        await began()
        raise ZeroDivisionError

    async def calls() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await call()

    with pytest.raises(ExceptionGroup) as caught:
        await calls()
    assert caught.group_contains(ZeroDivisionError)
    assert alone()


async def by_anyio_scope(call: Callable[[], Awaitable[Any]], began: Callable[[], Awaitable[None]]) -> None:
    with anyio.CancelScope() as scope:
        beginning = asyncio.ensure_future(began())
        beginning.add_done_callback(lambda _: scope.cancel())
        await call()
    assert scope.cancelled_caught
    assert alone()


async def by_anyio_group(call: Callable[[], Awaitable[Any]], began: Callable[[], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await began()
        group.cancel_scope.cancel()
    assert alone()


WAYS = [by_task, by_timeout, by_task_group, by_anyio_scope, by_anyio_group]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
def test_no_task_is_left(gate: Gate, name: str, way: Any) -> None:
    """However the call is cancelled; the client and the table can be used again."""
    call, requests = CALLS[name]

    def held(operation: str, body: Body) -> tuple[int, Body]:
        gate.hold()
        return empty(operation, body)

    async def use(orders: ShardedTable) -> None:
        await way(lambda: call(orders), lambda: gate.wait(requests))
        gate.opened.set()
        assert (await orders.query(**DAY))["Items"] == []

    run(use, held)


def echoed(operation: str, body: Body) -> tuple[int, Body]:
    """An item, or one of each shard, that tells which request it answers."""
    if operation == "GetItem":
        return 200, {"Item": {**body["Key"], "Note": body["Key"]["OrderId"]}}
    (day,) = [value["S"] for value in body["ExpressionAttributeValues"].values()]
    return 200, {"Items": [{"Date": {"S": day}, "OrderId": {"S": day}}], "Count": 1, "ScannedCount": 1}


async def answers_are_right(orders: ShardedTable, day: str) -> None:
    key = {"Date": day, "OrderId": day}
    assert (await orders.get_item(Key=key))["Item"] == {**key, "Note": day}
    found = (await orders.query(KeyConditionExpression=Key("Date").eq(day)))["Items"]
    assert sorted(item["OrderId"] for item in found) == [f"{day}.{shard}" for shard in range(1, SHARDS + 1)]


@pytest.mark.parametrize("transport", ["client", "direct"])
def test_no_answer_goes_to_another_call(transport: Literal["client", "direct"]) -> None:
    """A call is cancelled after any number of turns of the loop; the next one has its own answers."""

    async def use(orders: ShardedTable) -> None:
        await answers_are_right(orders, "first")
        cancelled = 0
        for turns in range(0, 120, 2):
            task = asyncio.ensure_future(answers_are_right(orders, f"cancelled{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            cancelled += isinstance(ended, asyncio.CancelledError)
            assert alone()
            await answers_are_right(orders, f"then{turns}")
        assert cancelled

    run(use, echoed, transport)


def test_past_the_client_each_loop_has_its_own_connections() -> None:
    """One table, in one `asyncio.run` after the other: the client itself belongs to the first one's loop."""
    tables: list[ShardedTable] = []

    async def first(service: Service) -> None:
        config = AioConfig(retries={"total_max_attempts": 1})
        async with get_session().create_client("dynamodb", endpoint_url=service.url, config=config) as client:
            tables.append(table_of(client, "direct"))
            await answers_are_right(tables[0], "first")

    with serving(echoed) as service:
        asyncio.run(first(service))
        for day in ("second", "third"):
            asyncio.run(answers_are_right(tables[0], day))


@pytest.mark.parametrize("closing", ["async with", "close"])
def test_a_stream_that_reads_ahead_is_closed(gate: Gate, closing: str) -> None:
    """The requests for the next pages are cancelled, and have ended when the block does."""
    first: set[str] = set()

    def answer(operation: str, body: Body) -> tuple[int, Body]:
        key = body["ExpressionAttributeValues"][next(iter(body["ExpressionAttributeValues"]))]["S"]
        if key in first:
            gate.hold()
        first.add(key)
        item = {"Date": {"S": key}, "OrderId": {"S": "A1"}}
        return 200, {"Items": [item], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": item}

    async def use(orders: ShardedTable) -> None:
        items = orders.query_items(**DAY, Shard=1)
        if closing == "async with":
            async with items:
                assert await anext(items)
        else:
            assert await anext(items)
            await items.close()
        assert alone()
        assert await anext(items, None) is None

    run(use, answer)


def test_a_failed_shard_cancels_its_siblings(gate: Gate) -> None:
    """The error comes at once, whatever hangs, with what has come; with "partial", the others are waited for."""
    answered = threading.Event()

    def answer(operation: str, body: Body) -> tuple[int, Body]:
        if "2014-07-09.1" in str(body):
            item = {"Date": {"S": "2014-07-09.1"}, "OrderId": {"S": "A1"}}
            return 200, {"Items": [item], "Count": 1, "ScannedCount": 1}
        if "2014-07-09.2" in str(body):
            assert answered.wait(60)
            return 400, {"__type": "AccessDeniedException", "message": "no"}
        gate.hold()
        return empty(operation, body)

    async def use(orders: ShardedTable) -> None:
        orders.meta.client.meta.events.register("after-call.dynamodb.Query", lambda **_: answered.set())
        with pytest.raises(ShardQueryError, match="AccessDenied") as caught:
            await orders.query(**DAY)
        assert alone()
        assert set(caught.value.errors) == {2}
        assert [item["OrderId"] for item in caught.value.partial_items] == ["A1"]
        gate.opened.set()
        page = await orders.with_options(on_shard_error="partial").query(**DAY)
        assert (page["Count"], set(page["ShardErrors"])) == (1, {2})

    run(use, answer)


def test_a_budget_gets_back_what_was_not_sent_and_a_meter_counts_what_was_answered(gate: Gate) -> None:
    """Of eight requests, one goes, and seven wait in the budget when the call is cancelled."""

    async def use(orders: ShardedTable) -> None:
        clock, waiting, counted = Clock(), asyncio.Semaphore(0), asyncio.Event()
        orders.meta.client.meta.events.register("after-call.dynamodb.Query", lambda **_: counted.set())

        async def sleep(seconds: float) -> None:
            waiting.release()
            await asyncio.get_running_loop().create_future()

        budget, meter = CapacityBudget(read_units=1, burst=0, clock=clock, async_sleep=sleep), CapacityMeter()

        async def began() -> None:
            for _ in range(SHARDS - 1):
                await waiting.acquire()
            await gate.wait(1)
            gate.opened.set()
            await counted.wait()

        with budget.attach(orders), meter.attach(orders):
            await by_task(lambda: orders.query(**DAY), began)
            assert (meter.read_units, meter.requests) == (1.0, 1)
            # What was sent is owed for a second; the seven that were not are not.
            clock.now += 1.0
            await orders.get_item(Key=ITEMS[0])
            assert meter.requests == 2

    def held(operation: str, body: Body) -> tuple[int, Body]:
        gate.hold()
        return empty(operation, body)

    assert len(run(use, held).calls) == 2


@pytest.mark.parametrize("way", [by_task, by_anyio_scope, by_anyio_group])
def test_a_load_that_is_cancelled_twice(gate: Gate, way: Any) -> None:
    """It does not wait for the batches in flight; nor do they outlive it."""

    def held(operation: str, body: Body) -> tuple[int, Body]:
        gate.hold()
        return empty(operation, body)

    async def use(orders: ShardedTable) -> None:
        await way(lambda: bulk_load(orders, ITEMS, workers=4), lambda: gate.wait(4))

    assert len(run(use, held).calls) == 4


def test_a_streamed_load_that_is_not_read_to_its_end(gate: Gate) -> None:
    """Nothing more is sent, and the batches in flight have ended when the block does."""
    answered = threading.Event()

    def answer(operation: str, body: Body) -> tuple[int, Body]:
        if answered.is_set():
            gate.hold()
        answered.set()
        return empty(operation, body)

    async def use(orders: ShardedTable) -> None:
        async with aclosing(streaming_bulk(orders, ITEMS, workers=2)) as results:
            async for result in results:
                assert result.ok
                break
        assert alone()

    assert len(run(use, answer).calls) <= 3


def test_a_streamed_load(gate: Gate) -> None:
    """One result per item, and an error at the end for those that failed."""
    gate.opened.set()

    async def use(orders: ShardedTable) -> None:
        results = [result async for result in streaming_bulk(orders, [*ITEMS, {"Date": "x"}], on_error="collect")]
        assert sorted(result.place for result in results) == list(range(102))
        assert [result.place for result in results if not result.ok] == [101]

    run(use, empty)
