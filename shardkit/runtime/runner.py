"""Runners: run programs and machines over a client, with threads or tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from shardkit.core.checks import check_side_by_side
from shardkit.core.machine import Answer, Machine, Program, ProgramMachine, Send, Wait
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.drivers import AsyncDriver, Driver, SyncDriver, through_async_client, through_client
from shardkit.runtime.hooks import rewriter_of
from shardkit.runtime.joining import joining, joining_async
from shardkit.runtime.leases import check_requests
from shardkit.runtime.targets import client_of_table
from shardkit.runtime.transports import DirectTransport, Transport, direct_options
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs
from shardkit.sharding.shard_map import places
from shardkit.strategies import Strategy, Unsharded

if TYPE_CHECKING:
    from shardkit.runtime.direct import DirectSender
    from shardkit.runtime.direct_async import AsyncDirectSender

T = TypeVar("T")
Begun = Send | Wait | Machine[Any] | None
_log = logging.getLogger("shardkit")


_rng = random.Random()  # noqa: S311 - spreads load, keeps no secret
if hasattr(os, "register_at_fork"):
    # Otherwise all workers that are forked from one process would draw the same shards.
    os.register_at_fork(after_in_child=_rng.seed)


def draw_from(rng: random.Random | None) -> Callable[[], float]:
    """Return the function that draws random suffixes and jitter."""
    if rng is None:
        rng = _rng
    if not isinstance(rng, random.Random):
        raise ConfigurationError(f"rng: must be a random.Random, got {brief(rng)}")
    return rng.random


def log_retry(operation: str, table: str, what: str, code: str, wait: float | None) -> None:
    """Log a fan-out's retry, or that it gives up."""
    if wait is None:
        _log.debug("%s on table %s, %s: %s; given up", operation, table, what, code)
    else:
        _log.debug("%s on table %s, %s: %s; retry in %.3f s", operation, table, what, code, wait)


class _Thread(threading.local):
    """How many nested fan-outs the current thread is in, each started in a request of the one before."""

    depth = 0

    def enter(self, depth: int) -> None:
        self.depth = depth


_thread = _Thread()


class _Runner:
    cancels: bool

    def __init__(
        self,
        client: Any,
        shardings: Mapping[str, Sharding],
        max_concurrency: int | None,
        transport: Transport = "client",
    ) -> None:
        self.client = client
        self.transport = transport
        self.concurrency: int = self.side_by_side(max_concurrency, "max_concurrency")
        self._connect(shardings, direct_options(transport))

    def _connect(self, shardings: Mapping[str, Sharding], options: DirectTransport | None) -> None:
        raise NotImplementedError

    def side_by_side(self, given: int | None, name: str) -> int:
        """Return the number of concurrent requests: as given, or as many as botocore pools connections."""
        if given is None:
            return int(self.client.meta.config.max_pool_connections)
        return check_side_by_side(name, given)

    def fan_out(self, draw: Callable[[], float]) -> FanOutOptions:
        return FanOutOptions(self.concurrency, draw, on_retry=log_retry, cancels=self.cancels)


class Sender(Protocol):
    """Sends a driver's requests."""

    @property
    def send(self) -> Callable[[Send], Answer]:
        """The function that sends a request and returns its answer."""

    def executor(self) -> Executor:
        """Return the threads that send."""


class ClientRunner(_Runner):
    """Runs programs and machines on the caller's thread and a pool of threads.

    ``shardings`` are those of the client's tables, by name or ARN as requests have it, for observers of the calls.
    """

    cancels = False  # a request in flight cannot be cancelled
    clock: Callable[[], float] = staticmethod(time.monotonic)
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def _connect(self, shardings: Mapping[str, Sharding], options: DirectTransport | None) -> None:
        self._direct: DirectSender | None = None
        if options is not None:
            from shardkit.runtime.direct import DirectSender  # noqa: PLC0415 - of the direct extra

            self._direct = DirectSender(self.client, shardings, options)
        self.send = joining(through_client(self.client, shardings) if self._direct is None else self._direct.send)
        # By process: after a fork, a lock that another thread held stays locked in the child.
        self._pools: dict[int, dict[int, Executor]] = {}
        self._locks: dict[int, threading.RLock] = {}

    def executor(self) -> Executor:
        """Return the pool of threads, made on first use, and again after a fork (which does not copy threads).

        A fan-out that an event handler starts in a request of another fan-out uses another pool: in the same one, it
        would wait for threads that wait for it.
        """
        process, depth = os.getpid(), _thread.depth
        # Reentrant, because garbage collected in this block may be a driver that lets its requests end on the pool.
        with self._locks.setdefault(process, threading.RLock()):
            if process not in self._pools:
                self._pools.clear()
            pools = self._pools.setdefault(process, {})
            if depth not in pools:
                pools[depth] = ThreadPoolExecutor(
                    self.concurrency, thread_name_prefix="shardkit", initializer=_thread.enter, initargs=(depth + 1,)
                )
            return pools[depth]

    def close(self) -> None:
        """End the idle threads, and close the idle connections past the client; a later call makes new ones."""
        # Not shut down: a call of another thread may be about to submit. A pool ends its threads when it is collected.
        self._pools.pop(os.getpid(), None)
        if self._direct is not None:
            self._direct.close()

    def driver(
        self,
        machine: Machine[T],
        *,
        through: Sender | None = None,
        second: ClientRunner | None = None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> SyncDriver[T]:
        """Return a driver over the runner's transport, or over another one; ``second``: of a second table's client."""
        to, given = through or self, clock_of(self.client)
        clock, sleep = given or self.clock, given.sleep if given else self.sleep
        if self._direct is not None and through is second is None:
            from shardkit.runtime.direct import DirectDriver  # noqa: PLC0415 - of the direct extra

            return DirectDriver(
                machine,
                self._direct,
                self.concurrency,
                executor=self.executor,
                clock=clock,
                sleep=sleep,
                waiting=waiting,
            )
        send = to.send
        if second is not None:
            send = lambda request: (second if request.second else to).send(request)  # noqa: E731
        return Driver(machine, send, executor=to.executor, clock=clock, sleep=sleep, waiting=waiting)

    def run(self, program: Program[T], begun: Begun = None) -> T:
        """Run a program to its result; ``begun`` is what it has already yielded."""
        try:
            step = next(program) if begun is None else begun
            # Send single requests directly: only waits and fan-outs need a driver.
            while isinstance(step, Send):
                answer = self.send(step)
                step = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        driver = self.driver(ProgramMachine(program, step))
        try:
            return driver.run()
        finally:
            driver.close()


class AsyncClientRunner(_Runner):
    """Runs programs and machines as asyncio tasks."""

    cancels = True
    clock: Callable[[], float] = staticmethod(time.monotonic)
    sleep: Callable[[float], Awaitable[None]] = staticmethod(asyncio.sleep)

    def _connect(self, shardings: Mapping[str, Sharding], options: DirectTransport | None) -> None:
        self._direct: AsyncDirectSender | None = None
        if options is not None:
            from shardkit.runtime.direct_async import AsyncDirectSender  # noqa: PLC0415 - of the direct extra

            self._direct = AsyncDirectSender(self.client, shardings, options)
        send = through_async_client(self.client, shardings) if self._direct is None else self._direct.send
        self.send = joining_async(send)

    async def close(self) -> None:
        """Close the idle connections past the client, of this event loop; a later call makes new ones."""
        if self._direct is not None:
            self._direct.close()

    def driver(self, machine: Machine[T], *, second: AsyncClientRunner | None = None) -> AsyncDriver[T]:
        """Return a driver over the client; ``second``: of a second table's client."""
        given, send = clock_of(self.client), self.send
        if second is not None:
            send = lambda request: (second if request.second else self).send(request)  # noqa: E731
        return AsyncDriver(machine, send, clock=given or self.clock, sleep=given.sleep_async if given else self.sleep)

    async def run(self, program: Program[T], begun: Begun = None) -> T:
        """Run a program to its result; ``begun`` is what it has already yielded."""
        try:
            step = next(program) if begun is None else begun
            while isinstance(step, Send):
                answer = await self.send(step)
                step = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        driver = self.driver(ProgramMachine(program, step))
        try:
            return await driver.run()
        finally:
            await driver.close()


class _OfTable(_Runner):
    def __init__(
        self, client: Any, programs: Programs, max_concurrency: int | None, transport: Transport = "client"
    ) -> None:
        super().__init__(client, programs.shardings, max_concurrency, transport)
        self.programs = programs
        if programs.leased:
            check_requests(client)

    def over(self, transport: Transport | None) -> Self:
        """Return a runner of the same table over another transport; None: the same."""
        if transport is None or transport == self.transport:
            return self
        return type(self)(self.client, self.programs, self.concurrency, transport)


class Runner(_OfTable, ClientRunner):
    """Runs the programs of one table."""


class AsyncRunner(_OfTable, AsyncClientRunner):
    """Runs the programs of one table."""


class Clock(Protocol):
    """A clock that also waits."""

    def __call__(self) -> float:
        """Return the time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait in a thread."""

    async def sleep_async(self, seconds: float) -> None:
        """Wait in a task."""


_clocks: WeakKeyDictionary[Any, tuple[Clock, int]] = WeakKeyDictionary()  # and the number of on_clock() blocks
_lock = threading.Lock()


def clock_of(client: Any) -> Clock | None:
    """Return the clock that a client is on; None: the machine's."""
    clock, _ = _clocks.get(client, (None, 0))
    return clock


@contextmanager
def on_clock(client: Any, clock: Clock) -> Iterator[None]:
    """Use a clock for shardkit's waits on a client within the block.

    Raises:
        ConfigurationError: The client is on another clock already.
    """
    with _lock:
        before, held = _clocks.get(client, (clock, 0))
        if before is not clock:
            raise ConfigurationError(
                f"clock: the client is already on {brief(before)}, got {brief(clock)}; use one clock for a client's "
                "simulations"
            )
        _clocks[client] = clock, held + 1
    try:
        yield
    finally:
        with _lock:
            _, held = _clocks.pop(client)
            if held > 1:
                _clocks[client] = clock, held - 1


def runner_of(table: Any, max_concurrency: int | None = None, transport: Transport | None = None) -> Runner:
    """Return the runner of a ShardedTable, or one for an unsharded boto3 ``Table``; over another transport, if given.

    Raises:
        ConfigurationError: ``table`` is neither, or its client has it installed as sharded.
    """
    runner = getattr(table, "runner", None)
    if isinstance(runner, Runner):
        return runner.over(transport)
    client = client_of_table(table)
    programs = Programs(table.name, Unsharded(), None, draw_from(None))
    runner = Runner(client, programs, max_concurrency, transport or "client")
    rewriter = rewriter_of(runner.client)
    if rewriter is not None and rewriter.concerns("PutItem", {"TableName": table.name}):
        # shardkit's own calls bypass the installation: the items would have no suffix.
        raise ConfigurationError(
            f"table: {table.name!r} is installed as a sharded table on its client, got a boto3 Table; give "
            "ShardedTable(table, strategy)"
        )
    return runner


def check_installed(client: Any, table: str, strategy: Strategy) -> None:
    """Refuse a strategy for a table that its client has installed with another one: neither would find all items."""
    rewriter = rewriter_of(client)
    installed = None if rewriter is None else rewriter.strategies.get(table)
    # Stages of one move, and a shard map, may be used side by side.
    if installed is not None and installed.settled and strategy.settled and places(installed) != places(strategy):
        raise ConfigurationError(
            f"strategy: table {table!r} is installed on this client with {installed!r}, got {strategy!r}, which stores "
            "items under other keys; give the same strategy, or to change it, move the items: docs/adopt.md"
        )
