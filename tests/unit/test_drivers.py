"""The two loops over a machine, with a clock and a sleep of the test's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from shardkit.drivers import AsyncDriver, Driver
from shardkit.machine import Answer, Done, Machine, Program, Send, Step, Steps, Wait
from tests.fakes import Clock

TIMEOUT = 10.0
mark: ContextVar[str] = ContextVar("mark", default="none")


class Many:
    """So many requests side by side; its result is the operations answered since the last time."""

    def __init__(self, count: int, *, each: bool = False) -> None:
        self.left = [Send(str(number), {}) for number in range(count)]
        self.answered: list[str] = []
        self.under_way = self.most = 0
        self.each = each

    def next(self, now: float) -> Step[list[str]]:
        if self.each and self.answered:
            answered, self.answered = self.answered, []
            return Done(answered)
        if self.left:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            return self.left.pop(0)
        return Wait() if self.under_way else Done(self.answered)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.under_way -= 1
        assert answer == {"is": send.operation}
        self.answered.append(send.operation)


class Inline(Executor):
    """Runs a task when it is submitted, and keeps count."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as any executor does
            future.set_exception(error)
        return future


def answer(send: Send) -> Answer:
    return {"is": send.operation}


def no_executor() -> Executor:
    raise AssertionError("no thread is needed")


def driver(machine: Machine[Any], send: Callable[[Send], Answer] = answer, **options: Any) -> Driver[Any]:
    return Driver(machine, send, **{"executor": no_executor, "concurrency": 10, **options})


def two_in_a_row() -> Program[list[Any]]:
    return [(yield Send("0", {})), (yield Send("1", {}))]


def test_a_request_that_is_alone_runs_on_the_caller_s_thread() -> None:
    """No pool is made for it, and its context is the caller's."""
    threads = []

    def send(request: Send) -> Answer:
        threads.append(threading.get_ident())
        return answer(request)

    assert driver(Steps(two_in_a_row()), send).run() == [{"is": "0"}, {"is": "1"}]
    assert driver(Many(3), send, concurrency=1).run() == ["0", "1", "2"]
    assert set(threads) == {threading.get_ident()}


@pytest.mark.parametrize("concurrency", [2, 3, 50])
def test_concurrency_is_bounded(concurrency: int) -> None:
    """As many requests side by side as were allowed, and all are answered."""
    machine, executor = Many(20), Inline()
    assert sorted(driver(machine, executor=lambda: executor, concurrency=concurrency).run(), key=int) == [
        str(number) for number in range(20)
    ]
    assert machine.most == min(concurrency, 20)
    assert executor.submitted >= 18


def test_requests_really_run_side_by_side() -> None:
    """All of a round are under way before the first one is answered; the caller's thread waits."""
    barrier, threads = threading.Barrier(4, timeout=TIMEOUT), set()

    def send(request: Send) -> Answer:
        barrier.wait()
        threads.add(threading.get_ident())
        return answer(request)

    with ThreadPoolExecutor(4) as pool:
        assert len(driver(Many(8), send, executor=lambda: pool, concurrency=4).run()) == 8
    assert threading.get_ident() not in threads


def test_context_variables_are_copied() -> None:
    """A request sees the caller's, and what it sets stays its own."""
    seen = []

    def send(request: Send) -> Answer:
        seen.append(mark.get())
        mark.set(request.operation)
        return answer(request)

    token = mark.set("caller's")
    try:
        with ThreadPoolExecutor(1) as pool:
            driver(Many(4), send, executor=lambda: pool).run()
        assert mark.get() == "caller's"
    finally:
        mark.reset(token)
    assert seen == ["caller's"] * 4


def test_a_machine_that_streams_is_run_again() -> None:
    """What is under way is kept from one run to the next."""
    machine, executor = Many(3, each=True), Inline()
    streaming = driver(machine, executor=lambda: executor, concurrency=3)
    seen = []
    while results := streaming.run():
        seen += results
    assert sorted(seen) == ["0", "1", "2"]


def test_waiting_is_sleeping_where_nothing_is_under_way() -> None:
    """For what is left of it, on the driver's own clock."""

    def program() -> Program[float]:
        yield Send("0", {})
        now: float = yield Wait(7.5)
        return now

    clock = Clock()
    clock.now = 5.0
    assert driver(Steps(program()), clock=clock, sleep=clock.sleep).run() == 7.5
    assert clock.sleeps == [2.5]


class WaitsBeside:
    """One request, and a wait beside it that is over at once."""

    def __init__(self) -> None:
        self.sent = False
        self.done: list[str] = []
        self.turns = 0

    def next(self, now: float) -> Step[list[str]]:
        if not self.sent:
            self.sent = True
            return Send("0", {})
        self.turns += 1
        return Done(self.done) if self.done else Wait(now)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.done.append(send.operation)


def test_a_wait_beside_a_request_is_no_sleep() -> None:
    """The machine is asked again when it wanted to be, or when the answer has come."""
    executor, clock = Inline(), Clock()
    machine = WaitsBeside()
    assert driver(machine, executor=lambda: executor, clock=clock, sleep=clock.sleep).run() == ["0"]
    assert executor.submitted == 1
    assert clock.sleeps == []


class WaitsForNothing:
    """A machine that is wrong."""

    def next(self, now: float) -> Step[None]:
        return Wait()

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        raise AssertionError


def test_a_machine_that_waits_for_nothing_is_an_error() -> None:
    """It must not turn for ever."""
    with pytest.raises(AssertionError, match="no request is under way"):
        driver(WaitsForNothing()).run()

    async def run() -> None:
        await AsyncDriver(WaitsForNothing(), async_answer, concurrency=1).run()

    with pytest.raises(AssertionError, match="no request is under way"):
        asyncio.run(run())


def test_a_failure_cancels_what_has_not_started() -> None:
    """What waits in the pool's queue is not sent when nobody reads its answer."""
    started, go, sent = threading.Event(), threading.Event(), []

    def send(request: Send) -> Answer:
        started.set()
        assert go.wait(TIMEOUT)
        sent.append(request.operation)
        return answer(request)

    class Submits(Many):
        def next(self, now: float) -> Step[list[str]]:
            step = super().next(now)
            return Done([]) if isinstance(step, Wait) else step

    machine = Submits(3)
    with ThreadPoolExecutor(1) as pool:
        running = driver(machine, send, executor=lambda: pool)
        assert running.run() == []
        assert started.wait(TIMEOUT)
        machine.next = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            running.run()
        go.set()
    assert sent == ["0"]


def interrupted(now: float) -> Step[list[str]]:
    raise KeyboardInterrupt


# The async loop.


async def async_answer(send: Send) -> Answer:
    await asyncio.sleep(0)
    return answer(send)


def test_async_runs_side_by_side_and_bounded() -> None:
    """As the sync loop does."""

    async def run() -> tuple[list[str], int]:
        machine = Many(20)
        return await AsyncDriver(machine, async_answer, concurrency=3).run(), machine.most

    answered, most = asyncio.run(run())
    assert sorted(answered, key=int) == [str(number) for number in range(20)]
    assert most == 3


def test_async_one_thing_after_another_with_a_wait() -> None:
    """Programs run unchanged, and waits are awaited."""
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    def program() -> Program[list[Any]]:
        first = yield Send("0", {})
        yield Wait(3.0)
        return [first, (yield Send("1", {}))]

    async def run() -> list[Any]:
        return await AsyncDriver(Steps(program()), async_answer, concurrency=2, clock=clock, sleep=sleep).run()

    assert asyncio.run(run()) == [{"is": "0"}, {"is": "1"}]
    assert clock.sleeps == [3.0]


def test_async_streams() -> None:
    """A machine that streams is awaited again."""

    async def run() -> list[str]:
        streaming = AsyncDriver(Many(5, each=True), async_answer, concurrency=2)
        seen = []
        while results := await streaming.run():
            seen += results
        streaming.close()
        return seen

    assert sorted(asyncio.run(run())) == ["0", "1", "2", "3", "4"]


def test_async_context_variables_are_copied() -> None:
    """A request sees the caller's, and what it sets stays its own."""
    seen = []

    async def send(request: Send) -> Answer:
        seen.append(mark.get())
        mark.set(request.operation)
        return answer(request)

    async def run() -> str:
        mark.set("caller's")
        await AsyncDriver(Many(3), send, concurrency=3).run()
        return mark.get()

    assert asyncio.run(run()) == "caller's"
    assert seen == ["caller's"] * 3


def test_async_cancelling_cancels_what_is_under_way() -> None:
    """No request outlives the task that wanted it."""
    all_started, started = asyncio.Event(), list[str]()
    ended: list[str] = []

    async def send(request: Send) -> Answer:
        started.append(request.operation)
        if len(started) == 3:
            all_started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append(request.operation)
            raise
        return {}

    async def run() -> list[str]:
        task = asyncio.ensure_future(AsyncDriver(Many(3), send, concurrency=3).run())
        await all_started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.sleep(0)
        return sorted(ended)

    assert asyncio.run(run()) == ["0", "1", "2"]


def test_async_a_wait_beside_a_request() -> None:
    """The loop stays free while it waits."""

    async def run() -> list[str]:
        return await AsyncDriver(WaitsBeside(), async_answer, concurrency=2).run()

    assert asyncio.run(run()) == ["0"]
