"""The async loop over a machine, with a clock and a sleep of the test's own."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from shardkit.core.machine import Answer, Program, ProgramMachine, Send, Wait
from shardkit.runtime.drivers import AsyncDriver
from tests.support.drivable import Many, Race, Streaming, WaitsBeside, WaitsForNothing, answer, two_in_a_row
from tests.support.fakes import Clock

mark: ContextVar[str] = ContextVar("mark", default="none")


async def async_answer(send: Send) -> Answer:
    await asyncio.sleep(0)
    return answer(send)


def test_as_many_run_side_by_side_as_the_machine_starts() -> None:
    """As the sync loop does."""

    async def run() -> tuple[list[str], int]:
        machine = Many(20)
        return await AsyncDriver(machine, async_answer).run(), machine.most

    answered, most = asyncio.run(run())
    assert sorted(answered, key=int) == [str(number) for number in range(20)]
    assert most == 20


def test_one_thing_after_another_with_a_wait() -> None:
    """Programs run unchanged, and waits are awaited."""
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    def program() -> Program[list[Any]]:
        first = yield Send("0", {})
        yield Wait(3.0)
        return [first, (yield Send("1", {}))]

    async def run() -> list[Any]:
        return await AsyncDriver(ProgramMachine(program()), async_answer, clock=clock, sleep=sleep).run()

    assert asyncio.run(run()) == [{"is": "0"}, {"is": "1"}]
    assert clock.sleeps == [3.0]


def test_streams() -> None:
    """A machine that streams is awaited again."""

    async def run() -> list[str]:
        streaming = AsyncDriver(Many(5, each=True), async_answer)
        seen = []
        while results := await streaming.run():
            seen += results
        await streaming.close()
        return seen

    assert sorted(asyncio.run(run())) == ["0", "1", "2", "3", "4"]


def test_context_variables_are_copied() -> None:
    """A request sees the caller's, and what it sets stays its own."""
    seen = []

    async def send(request: Send) -> Answer:
        seen.append(mark.get())
        mark.set(request.operation)
        return answer(request)

    async def run() -> str:
        mark.set("caller's")
        await AsyncDriver(Many(3), send).run()
        return mark.get()

    assert asyncio.run(run()) == "caller's"
    assert seen == ["caller's"] * 3


def test_all_tasks_are_cancelled() -> None:
    """As a program that shuts down does: what was under way is sent again should the machine be run again."""
    hanging, all_started, sent = [True], asyncio.Event(), list[str]()

    async def send(request: Send) -> Answer:
        sent.append(request.operation)
        if len(sent) == 3:
            all_started.set()
        if hanging:
            await asyncio.get_running_loop().create_future()
        return answer(request)

    async def run() -> list[str]:
        driver = AsyncDriver(Many(3), send)
        task = asyncio.ensure_future(driver.run())
        await all_started.wait()
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        hanging.clear()
        return await driver.run()

    assert sorted(asyncio.run(run())) == ["0", "1", "2"]
    assert sorted(sent) == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize("closed", [True, False])
def test_what_is_under_way_when_a_run_is_cancelled(closed: bool) -> None:
    """Closed, no request outlives the task that wanted it; run again, their answers are taken."""
    all_started, released, started = asyncio.Event(), asyncio.Event(), list[str]()
    cancelled: list[str] = []

    async def send(request: Send) -> Answer:
        started.append(request.operation)
        if len(started) == 3:
            all_started.set()
        try:
            await released.wait()
        except asyncio.CancelledError:
            cancelled.append(request.operation)
            raise
        return answer(request)

    async def run() -> None:
        driver = AsyncDriver(Many(3), send)
        task = asyncio.ensure_future(driver.run())
        await all_started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert not cancelled
        if closed:
            await driver.close()
            assert sorted(cancelled) == ["0", "1", "2"]
        else:
            released.set()
            assert sorted(await driver.run()) == ["0", "1", "2"]
            assert len(started) == 3

    asyncio.run(run())


def test_a_wait_beside_a_request() -> None:
    """The loop stays free while it waits."""

    async def run() -> list[str]:
        return await AsyncDriver(WaitsBeside(), async_answer).run()

    assert asyncio.run(run()) == ["0"]


def test_a_request_that_is_alone_needs_no_task() -> None:
    """It runs in the caller's own; cancelled, it is sent again when the machine is run again."""
    tasks, cancellations = list[Any](), [asyncio.CancelledError]

    async def send(request: Send) -> Answer:
        tasks.append(asyncio.current_task())
        if cancellations:
            raise cancellations.pop()
        return answer(request)

    async def run() -> tuple[list[Any], Any]:
        running = AsyncDriver(ProgramMachine(two_in_a_row()), send)
        with pytest.raises(asyncio.CancelledError):
            await running.run()
        return await running.run(), asyncio.current_task()

    answered, task = asyncio.run(run())
    assert answered == [{"is": "0"}, {"is": "1"}]
    assert tasks == [task] * 3


@pytest.mark.parametrize("error", [None, TimeoutError])
def test_a_machine_that_ends_waits_for_no_request(error: type[Exception] | None) -> None:
    """A deadline holds; what hangs is cancelled when the driver is closed, and sent again should it be run again."""
    hanging, sent = [True], list[str]()

    async def send(request: Send) -> Answer:
        sent.append(request.operation)
        if hanging:
            await asyncio.get_running_loop().create_future()
        return answer(request)

    async def run() -> list[str]:
        machine = Streaming(3)
        running = AsyncDriver(machine, send)
        assert await running.run() == []
        await asyncio.sleep(0)
        machine.raising = error
        if error is None:
            assert await running.run() == []
        else:
            with pytest.raises(error):
                await running.run()
        await running.close()
        assert sent == ["0", "1", "2"]
        assert len(asyncio.all_tasks()) == 1, "all others were cancelled"
        hanging.clear()
        machine.raising, machine.patient = None, True
        return await running.run()

    assert sorted(asyncio.run(run())) == ["0", "1", "2"]
    assert sorted(sent) == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_request_that_lost_a_race_runs_to_its_end(cancelled: bool) -> None:
    """Its units are consumed, and its end is where they are counted; a call that is cancelled leaves nothing behind."""
    ended = list[str]()

    async def run() -> None:
        go = asyncio.Event()

        async def send(request: Send) -> Answer:
            if request.operation == "0" or cancelled:
                await go.wait()
            ended.append(request.operation)
            return answer(request)

        driver = AsyncDriver(Race(), send)
        running = asyncio.ensure_future(driver.run())
        await asyncio.wait([running], timeout=0.01 if cancelled else None)
        running.cancel()
        await driver.close()
        go.set()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert ended == ([] if cancelled else ["1", "0"])


def test_a_machine_that_waits_for_nothing_is_an_error() -> None:
    """It must not turn for ever."""

    async def run() -> None:
        await AsyncDriver(WaitsForNothing(), async_answer).run()

    with pytest.raises(AssertionError, match="no request is in flight"):
        asyncio.run(run())


@pytest.mark.parametrize("times", [0, 1, 5])
def test_closing_waits_for_what_it_cancels(times: int) -> None:
    """However often the closing is cancelled meanwhile; the last of these errors is raised once all have ended."""
    ended: list[str] = []

    async def send(request: Send) -> Answer:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(10):  # as a connection that is closed
                await asyncio.sleep(0)
            ended.append(request.operation)
        return answer(request)

    async def run() -> None:
        driver = AsyncDriver(Streaming(3), send)
        assert await driver.run() == []
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(driver.close())
        for number in range(times):
            await asyncio.sleep(0)
            closing.cancel(f"{number}")
        if times:
            with pytest.raises(asyncio.CancelledError, match=f"{times - 1}"):
                await closing
        else:
            await closing
        assert sorted(ended) == ["0", "1", "2"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
