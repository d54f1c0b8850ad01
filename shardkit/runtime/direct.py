"""The direct transport for threads: exchanges over non-blocking connections, driven by the caller's thread."""

from __future__ import annotations

import contextvars
import heapq
import math
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from inspect import GEN_CREATED, getgeneratorstate
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from botocore.exceptions import ConnectionClosedError

from shardkit.core.machine import Answer, Done, Machine, Send, Wait
from shardkit.runtime.connections import TRANSPORT_ERRORS, Connection, Connections, Endpoint
from shardkit.runtime.drivers import Loop, through_client
from shardkit.runtime.exchange import Exchange, Exchanges, Pause, UnusualClientError
from shardkit.runtime.responses import Raw
from shardkit.runtime.transports import DirectTransport
from shardkit.sharding.layout import Sharding

T = TypeVar("T")

_WAKES = 4096
_INTERRUPTED = ConnectionClosedError(endpoint_url="DynamoDB", error="interrupted")

_pools: weakref.WeakKeyDictionary[Any, dict[Any, Connections]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _connections(client: Any, url: str, options: DirectTransport) -> Connections:
    """Return a client's connections to an endpoint, which all its threads and tables share."""
    pool = _pools.get(client)
    found = None if pool is None else pool.get((url, options))
    if found is not None:
        return found
    with _lock:
        if client not in _pools:
            _pools[client] = {}
            weakref.finalize(client, _close, _pools[client])
        config = client.meta.config
        endpoint = Endpoint(url, config.connect_timeout, config.read_timeout, bool(config.tcp_keepalive))
        return _pools[client].setdefault((url, options), Connections(endpoint, verify=options.verify))


def _close(pool: dict[Any, Connections]) -> None:
    for connections in pool.values():
        connections.close()


class DirectSender:
    """Sends requests past a client, one at a time on each calling thread; those that it must not, through it."""

    def __init__(self, client: Any, shardings: Mapping[str, Sharding], options: DirectTransport) -> None:
        self.through_client = through_client(client, shardings, careful=True)
        self._client = client
        self._options = options
        self._exchanges = Exchanges(client, shardings, options)

    def exchange(self, send: Send) -> tuple[Connections, Exchange] | None:
        """Return where a request goes, and its exchange; None: it must go through the client."""
        found = self._exchanges.of(send)
        return None if found is None else (_connections(self._client, found[0], self._options), found[1])

    def send(self, request: Send) -> Answer:
        found = self.exchange(request)
        if found is not None:
            with suppress(UnusualClientError):
                return _run_exchange(*found, None)
        return self.through_client(request)

    def close(self) -> None:
        """Close the client's idle connections past it, of all tables; the next request makes new ones."""
        with _lock:
            pool = _pools.get(self._client, {})
            ended = {key: pool.pop(key) for key in [*pool] if key[1] == self._options}
        _close(ended)


def _advanced(exchange: Exchange, given: Any) -> bytes | Pause:
    """Pass an exchange what it waits for, and return the next step that takes time.

    Raises:
        StopIteration: The exchange has ended; the value is the answer.
        UnusualClientError: The call must go through the client.
    """
    while True:
        step = exchange.throw(given) if isinstance(given, BaseException) else exchange.send(given)
        if isinstance(step, bytes | Pause):
            return step
        try:
            given = step()
        except Exception as error:  # noqa: BLE001 - the exchange decides what to do about it
            given = error


def _begin(connections: Connections, content: bytes) -> Connection:
    """Start a request on an open connection, or on a new one."""
    connection = connections.take()
    try:
        connection.start(content)
    except TRANSPORT_ERRORS:
        connection.close()
        raise
    return connection


def _run_exchange(connections: Connections, exchange: Exchange, given: Any) -> Answer:
    """Run an exchange to its end and return its answer.

    Raises:
        UnusualClientError: The call must go through the client.
    """
    while True:
        try:
            step = _advanced(exchange, given)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            given = None
            continue
        try:
            connection = _begin(connections, step)
        except Exception as error:  # noqa: BLE001 - the exchange decides what to do about it
            given = error
        else:
            given = _received(connections, connection)


def _received(connections: Connections, connection: Connection) -> Raw | Exception:
    try:
        while True:
            raw = connection.proceed(late=not connection.ready(connection.patience))
            if raw is not None:
                connections.give(connection)
                return raw
    except TRANSPORT_ERRORS as error:
        connection.close()
        return error
    except BaseException:
        connection.close()
        raise


@dataclass(eq=False, slots=True)
class _Flight:
    """A request under way: on a connection, or in a pause before the next attempt."""

    send: Send
    connections: Connections
    exchange: Exchange
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    connection: Connection | None = None  # which no other request uses
    came: Raw | Exception | None = None
    until: float = 0.0

    def end(self) -> None:
        """Run the exchange to its end, away from its driver; one that has not begun stays undone."""
        if getgeneratorstate(self.exchange) == GEN_CREATED:
            return
        given = self.came if self.connection is None else _received(self.connections, self.connection)
        with suppress(UnusualClientError):
            self.context.run(_run_exchange, self.connections, self.exchange, given)


class DirectDriver(Loop[T]):
    """Runs a machine on the caller's thread, with as many connections as requests may be in flight.

    Requests that must go through the client have threads of ``executor``. ``waiting`` makes a context manager that is
    entered for each wait, where an interruption is safe: `run` goes on after it. After one elsewhere, only `close` is.
    """

    _process: int | None = None  # none if the constructor was interrupted

    def __init__(
        self,
        machine: Machine[T],
        sender: DirectSender,
        most: int,
        *,
        executor: Callable[[], Executor],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(machine, clock)
        self._sender = sender
        self._most = most
        self._executor = executor
        self._sleep = sleep
        self._waiting = waiting
        self._flights: set[_Flight] = set()
        self._carried: dict[Connection, _Flight] = {}  # what each connection in use carries
        self._writing: set[Connection] = set()  # the connections that wait for room to write
        self._pauses: list[tuple[float, int, _Flight]] = []
        # No connection times out before; it is looked at again only then, so an answer costs O(1).
        self._earliest_timeout = math.inf
        self._idle: dict[Connections, list[Connection]] = {}
        self._lent: dict[Future[Answer], Send] = {}
        self._ended: SimpleQueue[Future[Answer]] = SimpleQueue()
        self._open()

    def _open(self) -> None:
        self._running = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)  # noqa: FBT003 - its only form
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._process = os.getpid()

    @property
    def _under_way(self) -> int:
        return len(self._flights) + len(self._lent)

    def run(self) -> T:
        """Run the machine to its next result; a machine that streams can be run again."""
        self._leave_parent()
        with self._running:
            try:
                return self._run()
            except Exception:
                self._close()
                raise

    def _run(self) -> T:
        while True:
            step = self._step()
            changed = self._start(step)
            if isinstance(step, Done):
                # A machine that streams may be left alone from here on.
                self._let_go([flight for flight in self._flights if not flight.send.needed])
                if not self._under_way:
                    self._give_back()
                return step.value
            if not changed:
                self._wait(step)

    def _start(self, step: Wait | Done[T]) -> bool:
        """Start what the machine has issued; return whether it must be asked again at once."""
        changed = False
        while self._unsent and self._under_way < self._most:
            send = self._unsent[0]
            found = self._sender.exchange(send)
            if found is not None:
                flight = _Flight(send, *found)
                self._flights.add(flight)
                self._unsent.popleft()
                changed |= self._resume(flight)
            elif self._alone(step, self._under_way) is not None:
                answer = self._sender.through_client(send)
                self._unsent.popleft()
                self._answered(send, answer)
                changed = True
            else:
                future = self._executor().submit(contextvars.copy_context().run, self._sender.through_client, send)
                self._lent[future] = self._unsent.popleft()
                future.add_done_callback(self._wake)
        return changed

    def _resume(self, flight: _Flight) -> bool:
        """Pass an exchange what it waits for; return whether it is no longer under way."""
        try:
            while True:
                given, flight.came = flight.came, None
                step = flight.context.run(_advanced, flight.exchange, given)
                if isinstance(step, Pause):
                    heapq.heappush(self._pauses, (time.monotonic() + step.seconds, id(flight), flight))
                    return False
                try:
                    flight.connection = self._begin(flight.connections, step)
                except TRANSPORT_ERRORS as error:
                    flight.came = error
                    continue
                self._watch(flight)
                return False
        except StopIteration as stop:
            self._flights.discard(flight)
            self._answered(flight.send, stop.value)
        except UnusualClientError:
            self._return(flight)
        except BaseException:  # an interruption
            self._return(flight)
            raise
        return True

    def _return(self, flight: _Flight) -> None:
        self._flights.discard(flight)
        if flight.connection is not None:  # the request is sent again, so its first answer must not be read
            self._drop(flight.connection)
            flight.connection = None
        self._unsent.appendleft(flight.send)

    def _begin(self, connections: Connections, content: bytes) -> Connection:
        idle = self._idle.setdefault(connections, [])
        while idle:
            connection = idle.pop()
            if not connection.idle():
                self._drop(connection)
                continue
            try:
                connection.start(content)
            except TRANSPORT_ERRORS:
                self._drop(connection)
                raise
            return connection
        connection = _begin(connections, content)
        self._selector.register(connection.sock, selectors.EVENT_READ, connection)
        return connection

    def _watch(self, flight: _Flight) -> None:
        connection = flight.connection
        assert connection is not None
        flight.until = time.monotonic() + connection.patience
        self._earliest_timeout = min(self._earliest_timeout, flight.until)
        self._carried[connection] = flight
        if connection.writing:
            self._selector.modify(connection.sock, selectors.EVENT_WRITE, connection)
            self._writing.add(connection)
        elif connection in self._writing:
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
            self._writing.remove(connection)

    def _wait(self, step: Wait) -> None:
        seconds = self._left(step, self._under_way)
        if not self._under_way:
            with self._waiting():
                self._sleep(seconds or 0.0)
            return
        until = min(self._earliest_timeout, self._pauses[0][0] if self._pauses else math.inf)
        if until < math.inf:
            left = max(0.0, until - time.monotonic())
            seconds = left if seconds is None else min(left, seconds)
        with self._waiting():
            ready = self._selector.select(seconds)
        for key, _ in ready:
            connection = key.data
            if connection is None:
                self._take_back()
            elif (flight := self._carried.get(connection)) is not None:
                self._proceed(flight, connection)
            else:
                self._idle_ended(connection)
        self._wake_late()

    def _wake(self, future: Future[Answer]) -> None:
        self._ended.put(future)
        with suppress(OSError):  # the driver is gone
            self._waker.send(b"1")

    def _take_back(self) -> None:
        """Take the answers that came through the client."""
        self._woken.recv(_WAKES)
        with suppress(Empty):
            while True:
                future = self._ended.get_nowait()
                self._ended_with(self._lent.pop(future, None), future)

    def _proceed(self, flight: _Flight, connection: Connection, *, late: bool = False) -> None:
        raw: Raw | Exception | None
        connecting = not connection.connected
        if connecting:
            self._selector.unregister(connection.sock)  # which this step may replace
        # What the flight has come to if an interruption is next.
        flight.connection, flight.came = None, _INTERRUPTED
        try:
            self._carried.pop(connection, None)
            raw = connection.proceed(late=late)
        except TRANSPORT_ERRORS as error:
            raw = error
        except BaseException:  # an interruption
            self._drop(connection)
            self._return(flight)
            raise
        if connecting and not isinstance(raw, Exception):
            self._selector.register(connection.sock, selectors.EVENT_READ, connection)
            self._writing.discard(connection)
        if raw is None:
            flight.connection, flight.came = connection, None
            self._watch(flight)
            return
        flight.came = raw
        if isinstance(raw, Exception) or not connection.reusable:
            self._drop(connection)
        else:
            self._idle[flight.connections].append(connection)
        self._resume(flight)

    def _wake_late(self) -> None:
        """Resume the flights whose connections time out, and those whose pause ends."""
        now = time.monotonic()
        if self._earliest_timeout <= now:
            waiting = [(flight, flight.connection) for flight in self._flights if flight.connection is not None]
            self._earliest_timeout = min(
                (flight.until for flight, _ in waiting if flight.until > now), default=math.inf
            )
            for flight, connection in waiting:
                if flight.until <= now:
                    # A handler, or a budget's wait, may have kept this thread from an answer that came in time.
                    self._proceed(flight, connection, late=not connection.ready(0.0))
        while self._pauses and self._pauses[0][0] <= now:
            flight = heapq.heappop(self._pauses)[2]
            if flight in self._flights:  # not let go
                self._resume(flight)

    def _idle_ended(self, connection: Connection) -> None:
        """Forget a connection on which something came that no request asked for, which is its end as a rule."""
        if connection.idle():  # a record of TLS that carries no byte
            return
        for idle in self._idle.values():
            if connection in idle:
                idle.remove(connection)
        self._drop(connection)

    def close(self) -> None:
        """Let requests in flight end by themselves, on threads: they consume units, which must be counted.

        Does nothing while another thread runs the machine.
        """
        self._leave_parent()
        if self._running.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._running.release()

    def _close(self) -> None:
        for future in list(self._lent):
            future.cancel()
        self._let_go(list(self._flights))
        self._pauses.clear()
        self._give_back()

    def _let_go(self, flights: Iterable[_Flight]) -> None:
        for flight in flights:
            self._flights.discard(flight)
            if flight.connection is not None:
                self._forget(flight.connection)
            self._executor().submit(flight.end)

    def _give_back(self) -> None:
        for connections, idle in self._idle.items():
            while idle:
                connection = idle.pop()
                self._forget(connection)
                connections.give(connection)
        self._idle.clear()

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        self._carried.pop(connection, None)
        self._writing.discard(connection)
        with suppress(KeyError, ValueError):  # interrupted between two steps, it may not be there
            self._selector.unregister(connection.sock)

    def _leave_parent(self) -> None:
        """In a process that was forked, leave everything under way to the parent."""
        if self._process == os.getpid():
            return
        # Nothing may be unregistered, written or read: the kernel's side of selector and connections is shared.
        self._shut()
        used = [flight.connection for flight in self._flights if flight.connection is not None]
        for connection in chain(used, *self._idle.values()):
            connection.close()
        self._unsent.extend(flight.send for flight in self._flights)
        self._unsent.extend(self._lent.values())
        self._flights.clear()
        self._carried.clear()
        self._writing.clear()
        self._idle.clear()
        self._lent.clear()
        self._pauses.clear()
        self._ended = SimpleQueue()
        self._earliest_timeout = math.inf
        self._open()

    def _shut(self) -> None:
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def __del__(self) -> None:
        if self._process is None:
            return
        with suppress(RuntimeError):  # the interpreter ends
            self.close()
        self._shut()
