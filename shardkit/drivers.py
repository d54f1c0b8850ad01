"""The sync and the async loop over a machine. They carry; they decide nothing (:mod:`shardkit.machine`)."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, Generic, TypeVar

from botocore import xform_name

from shardkit.events import own_call, visible
from shardkit.machine import Answer, Done, Machine, Send, Wait
from shardkit.sharding import Sharding

__all__ = ["AsyncDriver", "Driver", "async_transport", "transport"]

T = TypeVar("T")


class Driver(Generic[T]):
    """Runs a machine with threads; a request that is alone runs on the caller's own thread."""

    def __init__(
        self,
        machine: Machine[T],
        send: Callable[[Send], Answer],
        *,
        executor: Callable[[], Executor],
        concurrency: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._machine = machine
        self._send = send
        self._executor = executor
        self._concurrency = concurrency
        self._clock = clock
        self._sleep = sleep
        self._under_way: dict[Future[Answer], Send] = {}
        self._unanswered: list[Send] = []

    def run(self) -> T:
        """Carry on until the machine is done; a machine that streams can be run again."""
        try:
            return self._run()
        except BaseException:
            self.close()
            raise

    def _run(self) -> T:
        while True:
            step, sends = self._start()
            if len(sends) == 1 and not self._under_way and isinstance(step, Wait) and step.until is None:
                # Should Ctrl-C end it, it is sent again when the machine is run again.
                self._unanswered = sends
                answer = self._send(sends[0])
                self._unanswered = []
                self._machine.receive(sends[0], answer, self._clock())
                continue
            for send in sends:
                context = contextvars.copy_context()
                self._under_way[self._executor().submit(context.run, self._send, send)] = send
            if isinstance(step, Done):
                return step.value
            self._wait(step)

    def _start(self) -> tuple[Wait | Done[T], list[Send]]:
        sends, self._unanswered = self._unanswered, []
        while len(self._under_way) + len(sends) < self._concurrency:
            step = self._machine.next(self._clock())
            if not isinstance(step, Send):
                return step, sends
            sends.append(step)
        return Wait(), sends

    def _wait(self, step: Wait) -> None:
        seconds = None if step.until is None else max(0.0, step.until - self._clock())
        if not self._under_way:
            assert seconds is not None, "a machine waits for a response, and no request is under way"
            self._sleep(seconds)
            return
        done, _ = wait(self._under_way, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            self._machine.receive(self._under_way.pop(future), future.result(), self._clock())

    def close(self) -> None:
        """Start nothing more; what is under way is left to end by itself."""
        for future in self._under_way:
            future.cancel()


class AsyncDriver(Generic[T]):
    """Runs a machine with asyncio tasks."""

    def __init__(
        self,
        machine: Machine[T],
        send: Callable[[Send], Awaitable[Answer]],
        *,
        concurrency: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._machine = machine
        self._send = send
        self._concurrency = concurrency
        self._clock = clock
        self._sleep = sleep
        self._under_way: dict[asyncio.Future[Answer], Send] = {}

    async def run(self) -> T:
        """Carry on until the machine is done; a machine that streams can be run again."""
        try:
            while True:
                step = self._start()
                if isinstance(step, Done):
                    return step.value
                await self._wait(step)
        except BaseException:
            self.close()
            raise

    def _start(self) -> Wait | Done[T]:
        while len(self._under_way) < self._concurrency:
            step = self._machine.next(self._clock())
            if not isinstance(step, Send):
                return step
            self._under_way[asyncio.ensure_future(self._send(step))] = step
        return Wait()

    async def _wait(self, step: Wait) -> None:
        seconds = None if step.until is None else max(0.0, step.until - self._clock())
        if not self._under_way:
            assert seconds is not None, "a machine waits for a response, and no request is under way"
            await self._sleep(seconds)
            return
        done, _ = await asyncio.wait(self._under_way, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            self._machine.receive(self._under_way.pop(future), future.result(), self._clock())

    def close(self) -> None:
        """Start nothing more and cancel what is under way."""
        for future in self._under_way:
            future.cancel()


def transport(client: Any, sharding: Callable[[], Sharding | None]) -> Callable[[Send], Answer]:
    """Send requests in wire form through a boto3 client, the user's event handlers included."""

    def send(request: Send) -> Answer:
        with own_call(request.operation, request.params, sharding()) as call:
            try:
                return call.response(getattr(client, xform_name(request.operation))(**visible(request.params)))
            except Exception as error:  # noqa: BLE001 - the machine decides what to do about it
                return error

    return send


def async_transport(client: Any, sharding: Callable[[], Sharding | None]) -> Callable[[Send], Awaitable[Answer]]:
    """Send requests in wire form through an aiobotocore client."""

    async def send(request: Send) -> Answer:
        with own_call(request.operation, request.params, sharding()) as call:
            try:
                return call.response(await getattr(client, xform_name(request.operation))(**visible(request.params)))
            except Exception as error:  # noqa: BLE001 - the machine decides what to do about it
                return error

    return send
