"""A merged read from asyncio, cancelled at any await, it alone or all there is: nothing hangs, nothing is lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Send
from shardkit.runtime.drivers import AsyncDriver
from shardkit.sharding.query.plan import QueryPlan
from tests.support.machines import stream_machine
from tests.support.model import ModelTable
from tests.support.tables import many

TIMEOUT = 10.0


@pytest.mark.long_search
@settings(max_examples=2 * settings().max_examples)
@given(
    shards=st.sampled_from([1, 2, 5]),
    items=st.integers(0, 60),
    page=st.sampled_from([1, 4, 1000]),
    concurrency=st.sampled_from([1, 3, 50]),
    max_items=st.sampled_from([None, 5, 40]),
    turns=st.integers(0, 30),
    everything=st.booleans(),
    again=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_read_that_is_cancelled(
    *,
    shards: int,
    items: int,
    page: int,
    concurrency: int,
    max_items: int | None,
    turns: int,
    everything: bool,
    again: bool,
    seed: int,
) -> None:
    rng = random.Random(seed)
    table = ModelTable(many(shards), page=page)
    for number in range(items):
        table.put({"pk": "k", "sk": number}, rng.randint(1, shards))
    plan = QueryPlan.of(table.sharding, {"KeyConditionExpression": Key("pk").eq("k")})
    found: list[int] = []

    async def send(request: Send) -> Answer:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        answered: Any = table.answer(request)
        return request.answer(answered)  # type: ignore[no-any-return]

    async def read(driver: AsyncDriver[Any]) -> None:
        while rows := await driver.run():
            found.extend(int(item["sk"]) for item in rows.items)

    async def run() -> None:
        driver = AsyncDriver(stream_machine(plan, concurrency=concurrency, max_items=max_items), send)
        task = asyncio.ensure_future(read(driver))
        for _ in range(turns):
            await asyncio.sleep(0)
        for one in asyncio.all_tasks() - {asyncio.current_task()} if everything else {task}:
            one.cancel()
        await asyncio.wait([task], timeout=TIMEOUT)
        assert task.done()
        if task.cancelled() and again:
            await asyncio.wait_for(read(driver), TIMEOUT)
        await driver.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        whole = list(range(items))[:max_items]
        assert found == (whole if again or not task.cancelled() else whole[: len(found)])

    asyncio.run(run())
