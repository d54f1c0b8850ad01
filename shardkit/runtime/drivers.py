"""The sync and the async loop that run a machine (:mod:`shardkit.core.machine`)."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from botocore import xform_name

from shardkit.core.machine import Answer, Done, Machine, Send, Wait
from shardkit.runtime.hooks import prepare
from shardkit.runtime.own_call import OwnCall, visible
from shardkit.sharding.layout import Sharding

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Requests whose answers are not needed; asyncio itself references tasks only weakly.
_unneeded: set[asyncio.Future[Answer]] = set()
_LONGEST_WAIT = 86_400.0  # seconds; Python's waits have an upper bound; after it, the machine is asked again


class Loop(Generic[T]):
    """The state of all loops. An answer costs O(1), however many requests are in flight."""

    def __init__(self, machine: Machine[T], clock: Callable[[], float]) -> None:
        self._machine = machine
        self._clock = clock
        # Requests that the machine has issued but that are not in flight: not sent yet, or interrupted before they were
        # answered. The loop sends them (again), because the machine expects one answer per request.
        self._unsent: deque[Send] = deque()

    def _step(self) -> Wait | Done[T]:
        while isinstance(step := self._machine.next(self._clock()), Send):
            self._unsent.append(step)
        return step

    def _alone(self, step: Wait | Done[T], under_way: int) -> Send | None:
        # A request may hang, so the loop itself may run it only if the machine waits for nothing else.
        alone = len(self._unsent) == 1 and not under_way and isinstance(step, Wait) and step.until is None
        return self._unsent[0] if alone else None

    def _answered(self, send: Send, answer: Answer) -> None:
        self._machine.receive(send, answer, self._clock())

    def _ended_with(self, send: Send | None, future: Future[Answer] | asyncio.Future[Answer]) -> None:
        if send is not None and future.cancelled():
            self._unsent.append(send)
        elif send is not None:
            self._answered(send, future.result())

    def _left(self, step: Wait, under_way: int) -> float | None:
        seconds = None if step.until is None else min(max(0.0, step.until - self._clock()), _LONGEST_WAIT)
        assert under_way or seconds is not None, "the machine waits for a response, but no request is in flight"
        return seconds


class SyncDriver(Protocol[T_co]):
    """A driver that a caller waits for."""

    def run(self) -> T_co:
        """Run the machine to its next result; a machine that streams can be run again."""

    def close(self) -> None:
        """Start nothing more; requests in flight end by themselves, or have ended."""


class Driver(Loop[T]):
    """Runs a machine with threads; a single request runs on the caller's thread.

    ``waiting`` makes a context manager that is entered for each wait, where an interruption is safe.
    """

    def __init__(
        self,
        machine: Machine[T],
        send: Callable[[Send], Answer],
        *,
        executor: Callable[[], Executor],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(machine, clock)
        self._send = send
        self._executor = executor
        self._waiting = waiting
        self._sleep = sleep
        self._under_way: dict[Future[Answer], Send] = {}
        self._ended: SimpleQueue[Future[Answer]] = SimpleQueue()

    def run(self) -> T:
        """Run the machine to its next result; a machine that streams can be run again."""
        try:
            return self._run()
        except BaseException:
            self.close()
            raise

    def _run(self) -> T:
        while True:
            step = self._step()
            send = self._alone(step, len(self._under_way))
            if send is not None:
                answer = self._send(send)
                self._unsent.popleft()
                self._answered(send, answer)
                continue
            self._submit()
            if isinstance(step, Done):
                return step.value
            self._wait(step)

    def _submit(self) -> None:
        if not self._unsent:
            return
        executor = self._executor()
        while self._unsent:
            future = executor.submit(contextvars.copy_context().run, self._send, self._unsent[0])
            self._under_way[future] = self._unsent.popleft()
            future.add_done_callback(self._ended.put)

    def _wait(self, step: Wait) -> None:
        seconds = self._left(step, len(self._under_way))
        if not self._under_way:
            with self._waiting():
                self._sleep(seconds or 0.0)
            return
        try:
            with self._waiting():
                future = self._ended.get(timeout=seconds)
            while True:
                # None: close() added the future a second time.
                self._ended_with(self._under_way.pop(future, None), future)
                future = self._ended.get_nowait()
        except Empty:
            return

    def close(self) -> None:
        """Cancel requests that have not started; those in flight end by themselves."""
        # A copy, because another thread may be running the driver.
        for future in list(self._under_way):
            if not future.cancel():
                # An interruption may have come just after this future was taken from the queue: add it again.
                future.add_done_callback(self._ended.put)


class AsyncDriver(Loop[T]):
    """Runs a machine with asyncio tasks; a single request runs in the caller's task."""

    def __init__(
        self,
        machine: Machine[T],
        send: Callable[[Send], Awaitable[Answer]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(machine, clock)
        self._send = send
        self._sleep = sleep
        self._under_way: dict[asyncio.Future[Answer], Send] = {}
        self._ended: deque[asyncio.Future[Answer]] = deque()
        self._woken: asyncio.Future[None] | None = None

    async def run(self) -> T:
        """Run the machine to its next result; a machine that streams can be run again.

        When cancelled, it leaves requests in flight: call ``run`` again to continue, or ``close``.
        """
        try:
            return await self._run()
        except Exception:
            await self.close()
            raise

    async def _run(self) -> T:
        while True:
            step = self._step()
            send = self._alone(step, len(self._under_way))
            if send is not None:
                answer = await self._send(send)
                self._unsent.popleft()
                self._answered(send, answer)
                continue
            while self._unsent:
                task = asyncio.ensure_future(self._send(self._unsent[0]))
                self._under_way[task] = self._unsent.popleft()
                task.add_done_callback(self._end)
            if isinstance(step, Done):
                self._let_go()
                return step.value
            await self._wait(step)

    def _end(self, task: asyncio.Future[Answer]) -> None:
        self._ended.append(task)
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _wait(self, step: Wait) -> None:
        seconds = self._left(step, len(self._under_way))
        if not self._under_way:
            await self._sleep(seconds or 0.0)
            return
        if not self._ended:
            self._woken = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._woken,), timeout=seconds)
        while self._ended:
            task = self._ended.popleft()
            # None: close() cancelled the task.
            self._ended_with(self._under_way.pop(task, None), task)

    def _let_go(self) -> None:
        """Let requests whose answers are not needed run to their end: they consume units, which must be counted."""
        for task in [task for task, send in self._under_way.items() if not send.needed]:
            del self._under_way[task]
            _unneeded.add(task)
            task.add_done_callback(_unneeded.discard)

    async def close(self) -> None:
        """Cancel all requests in flight, and wait until they have ended."""
        tasks = list(self._under_way)
        self._unsent.extend(self._under_way.values())
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await _wait_for(tasks)


async def _wait_for(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until all tasks have ended, even if the caller is cancelled meanwhile."""
    cancelled = None
    for task in tasks:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                # A second cancellation; an anyio scope repeats it at every await. The error itself is raised later,
                # because asyncio.timeout and anyio recognize their own.
                cancelled = error
    if cancelled is not None:
        raise cancelled


def _own_call(request: Send, shardings: Mapping[str, Sharding], *, careful: bool) -> OwnCall:
    return OwnCall(
        request.operation,
        dict(request.params),
        shardings,
        paced=request.paced,
        once=request.once,
        careful=careful,
        check=request.check,
    )


def through_client(
    client: Any, shardings: Mapping[str, Sharding], *, careful: bool = False
) -> Callable[[Send], Answer]:
    """Return a function that sends wire requests through a boto3 client, with the user's event handlers.

    ``careful``: botocore repeats no write that may have been carried out, unless that does no harm.
    """
    prepare(client)

    def send(request: Send) -> Answer:
        with _own_call(request, shardings, careful=careful) as call:
            try:
                returned = getattr(client, xform_name(request.operation))(**visible(request.params))
                answer: Answer = request.answer(call.response(returned))
            except Exception as error:  # noqa: BLE001 - the machine decides what to do about it
                return error
            return answer

    return send


def through_async_client(
    client: Any, shardings: Mapping[str, Sharding], *, careful: bool = False
) -> Callable[[Send], Awaitable[Answer]]:
    """Return a function that sends wire requests through an aiobotocore client, as :func:`through_client`."""
    prepare(client)

    async def send(request: Send) -> Answer:
        with _own_call(request, shardings, careful=careful) as call:
            try:
                returned = await getattr(client, xform_name(request.operation))(**visible(request.params))
                answer: Answer = request.answer(call.response(returned))
            except Exception as error:  # noqa: BLE001 - the machine decides what to do about it
                return error
            return answer

    return send
