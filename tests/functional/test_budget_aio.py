"""Budgets on async clients: a call that waits leaves the event loop to the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityBudget, CapacityBudgetError
from tests.support.fakes import Clock
from tests.support.wire import Service, serving

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable  # noqa: E402

Use = Callable[[Any, CapacityBudget, Clock], Awaitable[None]]


pytest_plugins = ["pytester"]


def run(use: Use, **options: Any) -> Service:
    """Use an async client and a budget; time passes when a task sleeps, and a sleep on the thread is a fault."""

    def blocks(seconds: float) -> None:
        raise AssertionError("it sleeps on the event loop's thread")

    async def main(service: Service) -> None:
        clock = Clock()

        async def sleep(seconds: float) -> None:
            until = clock.now + seconds
            clock.sleeps.append(seconds)
            await asyncio.sleep(0)
            clock.now = max(clock.now, until)

        budget = CapacityBudget(**{"burst": 0, "clock": clock, "sleep": blocks, "async_sleep": sleep, **options})
        async with get_session().create_client("dynamodb", endpoint_url=service.url) as client:
            await use(client, budget, clock)

    def answer(operation: str, body: Any) -> tuple[int, Any]:
        found: dict[str, Any] = {"Items": [], "Count": 0, "ScannedCount": 0} if operation == "Query" else {}
        return 200, {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": 1.0}, **found}

    with serving(answer) as service:
        asyncio.run(main(service))
    return service


async def put(client: Any, key: str = "a", **more: Any) -> Any:
    return await client.put_item(TableName="T", Item={"pk": {"S": key}, "sk": {"S": "1"}}, **more)


def test_calls_wait_for_their_turn() -> None:
    async def use(client: Any, budget: CapacityBudget, clock: Clock) -> None:
        with budget.attach(client):
            seen = [await put(client) for _ in range(5)]
        assert clock.sleeps == [0.5] * 4
        assert all("ConsumedCapacity" not in response for response in seen)
        await put(client)
        assert len(clock.sleeps) == 4

    assert len(run(use, write_units=2).requests) == 6


def test_tasks_go_in_the_order_in_which_they_came() -> None:
    went: list[int] = []

    def sent(request: Any, **_: Any) -> None:
        went.append(int(json.loads(request.body)["Item"]["pk"]["S"]))

    async def use(client: Any, budget: CapacityBudget, clock: Clock) -> None:
        client.meta.events.register("before-send.dynamodb", sent)
        with budget.attach(client):
            await asyncio.gather(*(put(client, str(number)) for number in range(10)))
        assert clock.now >= 9 / 10 - 1e-6

    assert len(run(use, write_units=10).requests) == 10
    assert went == list(range(10))


def test_others_run_while_a_call_waits() -> None:
    async def use(client: Any, budget: CapacityBudget, clock: Clock) -> None:
        ran: list[float] = []

        async def other() -> None:
            ran.append(clock.now)

        with budget.attach(client):
            await put(client)
            await asyncio.gather(put(client), other())
        assert ran == [0.0]
        assert clock.now == 1.0

    run(use, write_units=1)


def test_a_budget_that_raises_sends_nothing() -> None:
    async def use(client: Any, budget: CapacityBudget, clock: Clock) -> None:
        with budget.attach(client):
            await put(client)
            with pytest.raises(CapacityBudgetError, match="PutItem was not sent"):
                await put(client)

    assert len(run(use, write_units=1, mode="raise").requests) == 1


def test_a_task_that_is_cancelled_while_it_waits_makes_room() -> None:
    async def use(client: Any, budget: CapacityBudget, clock: Clock) -> None:
        started, never = asyncio.Event(), asyncio.Event()

        async def hangs(seconds: float) -> None:
            started.set()
            await never.wait()

        stuck = CapacityBudget(write_units=1, burst=0, clock=clock, async_sleep=hangs)
        with budget.attach(client), stuck.attach(client):
            await put(client)
            clock.now += 0.5
            # The first budget lets it go, and is given back its unit; in the second one it waits.
            task = asyncio.ensure_future(put(client))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            clock.now += 0.5
            await put(client)

    assert len(run(use, write_units=10).requests) == 2


def test_a_fan_out_is_held_request_by_request() -> None:
    async def use(client: Any, budget: CapacityBudget, clock: Clock) -> None:
        schema = {"KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"},
                                {"AttributeName": "OrderId", "KeyType": "RANGE"}],
                  "AttributeDefinitions": [{"AttributeName": "Date", "AttributeType": "S"},
                                           {"AttributeName": "OrderId", "AttributeType": "S"}]}  # fmt: skip
        orders = ShardedTable(client, CalculatedSuffix("OrderId", shards=5), table_name="T", key_schema=schema)
        with budget.attach(client, key="2014-07-09", key_schema={"T": "Date"}):
            found = await orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"))
            assert found["Items"] == []
            assert clock.now >= 4 * 0.5
            waited = len(clock.sleeps)
            await orders.query(KeyConditionExpression=Key("Date").eq("2014-07-10"))
            assert len(clock.sleeps) == waited

    assert len(run(use, read_units=1).requests) == 10


def test_the_fixture_sees_async_clients(pytester: pytest.Pytester) -> None:
    with serving(
        lambda operation, body: (200, {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": 2.0}})
    ) as service:
        pytester.makepyfile(
            f"""
import asyncio
from aiobotocore.session import get_session

def test_it(capacity_budget):
    async def main():
        async with get_session().create_client("dynamodb", endpoint_url={service.url!r}) as client:
            await client.get_item(TableName="T", Key={{"pk": {{"S": "a"}}}})
    with capacity_budget(read_units=2):
        asyncio.run(main())
    with capacity_budget(read_units=1):
        asyncio.run(main())
"""
        )
        result = pytester.runpytest_inprocess("-p", "shardkit.testing")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*2.0 read units were consumed, where capacity_budget(read_units=1)*"])
