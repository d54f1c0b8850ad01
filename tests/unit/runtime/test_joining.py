"""Callers that join another's request: a first caller that hangs, or that is closed, holds up nobody for long."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from shardkit.core.machine import Answer, Send
from shardkit.runtime.joining import joining, joining_async

if TYPE_CHECKING:
    import pytest

ASKED = Send("DescribeTable", {"TableName": "T"}, joins=True)
MOST = "shardkit.runtime.joining._MOST_SECONDS"


async def turns() -> None:
    """Let all tasks go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_the_next_caller_is_first_after_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: SimpleQueue[Future[Answer]] = SimpleQueue()
    waiting: SimpleQueue[None] = SimpleQueue()

    class Joined(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            waiting.put(None)
            return super().result(timeout)

    def send(_: Send) -> Answer:
        answer: Future[Answer] = Future()
        sent.put(answer)
        return answer.result(10)

    monkeypatch.setattr("shardkit.runtime.joining.Future", Joined)
    monkeypatch.setattr(MOST, 0)
    joined = joining(send)
    with ThreadPoolExecutor(4) as pool:
        hangs = pool.submit(joined, ASKED)
        first = sent.get(timeout=5)
        gives_up = pool.submit(joined, ASKED)
        sent.get(timeout=5).set_result({"from": 2})
        assert gives_up.result(5) == {"from": 2}
        waiting.get(timeout=5)
        monkeypatch.setattr(MOST, 10)
        third = pool.submit(joined, ASKED)
        leading = sent.get(timeout=5)
        first.set_result({"from": 1})
        assert hangs.result(5) == {"from": 1}
        fourth = pool.submit(joined, ASKED)
        waiting.get(timeout=5)  # for the third, which the end of the first one did not forget
        leading.set_result({"from": 3})
        assert third.result(5) == fourth.result(5) == {"from": 3}


def test_the_next_task_is_first_after_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[asyncio.Future[Answer]] = []

    async def send(_: Send) -> Answer:
        sent.append(asyncio.get_running_loop().create_future())
        return await sent[-1]

    async def run() -> None:
        joined = joining_async(send)

        async def ask() -> Answer:
            return await joined(ASKED)

        hangs = asyncio.create_task(ask())
        await turns()
        monkeypatch.setattr(MOST, 0)
        gives_up = asyncio.create_task(ask())
        await turns()
        sent[1].set_result({"from": 2})
        assert await gives_up == {"from": 2}
        monkeypatch.setattr(MOST, 10)
        third = asyncio.create_task(ask())
        await turns()
        assert len(sent) == 3
        sent[0].set_result({"from": 1})
        assert await hangs == {"from": 1}
        fourth = asyncio.create_task(ask())
        await turns()
        assert len(sent) == 3  # the end of the first one did not forget the third
        sent[2].set_result({"from": 3})
        assert await third == await fourth == {"from": 3}

    asyncio.run(run())


def test_a_first_caller_that_is_closed_in_another_context() -> None:
    """As the garbage collector does it: those that wait for it go on."""
    sent: list[asyncio.Future[Answer]] = []

    async def send(_: Send) -> Answer:
        sent.append(asyncio.get_running_loop().create_future())
        return await sent[-1]

    async def run() -> None:
        joined = joining_async(send)
        first: Any = joined(ASKED)
        copy_context().run(first.send, None)

        async def ask() -> Answer:
            return await joined(ASKED)

        second = asyncio.create_task(ask())
        await asyncio.sleep(0)
        with suppress(ValueError):
            first.close()
        await turns()
        assert len(sent) == 2
        sent[1].set_result({"from": 2})
        assert await second == {"from": 2}

    asyncio.run(run())
