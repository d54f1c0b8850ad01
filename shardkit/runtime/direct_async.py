"""The direct transport for asyncio: exchanges over connections of the running event loop."""

from __future__ import annotations

import asyncio
import socket
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any

from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from shardkit.core.machine import Answer, Send
from shardkit.runtime.connections import authorities, connect_error, name_and_port, seconds_of, tls_context
from shardkit.runtime.drivers import through_async_client
from shardkit.runtime.exchange import Exchange, Exchanges, Pause, UnusualClientError
from shardkit.runtime.responses import Raw, ResponseParser, UnexpectedHTTPError
from shardkit.runtime.transports import DirectTransport
from shardkit.sharding.layout import Sharding

_NEXT_ADDRESS_SECONDS = 0.25  # as RFC 8305 recommends
_Reached = tuple[socket.socket, float | None]
"""A connected socket, and the time on the loop's clock until which its connection must be complete."""


class AsyncDirectSender:
    """Sends requests past an async client; those that it must not, through it."""

    def __init__(self, client: Any, shardings: Mapping[str, Sharding], options: DirectTransport) -> None:
        self._through_client = through_async_client(client, shardings, careful=True)
        self._client = client
        self._options = options
        self._exchanges = Exchanges(client, shardings, options)

    async def send(self, request: Send) -> Answer:
        found = self._exchanges.of(request)
        if found is not None:
            url, exchange = found
            with suppress(UnusualClientError):
                return await _run_exchange(await _connections(self._client, url, self._options), exchange)
        return await self._through_client(request)

    def close(self) -> None:
        """Close the client's idle connections past it, of all tables on this event loop."""
        pools = _pools.get(self._client)
        pool = None if pools is None else pools.get(asyncio.get_running_loop())
        if pool is not None:
            for (_, options), connections in pool.connections.items():
                if options == self._options:
                    connections.close()


async def _run_exchange(connections: _AsyncConnections, exchange: Exchange) -> Answer:
    """Run an exchange to its end and return its answer.

    Raises:
        UnusualClientError: The call must go through the client.
    """
    given: Any = None
    while True:
        try:
            step = exchange.throw(given) if isinstance(given, BaseException) else exchange.send(given)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer
        try:
            if isinstance(step, bytes):
                given = await connections.request(step)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                given = None
            else:
                given = step()
                if isawaitable(given):
                    given = await given
        except Exception as error:  # noqa: BLE001 - the exchange decides what to do about it
            given = error


class _AsyncConnection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._parser = ResponseParser(url)
        self._answer: asyncio.Future[Raw] | None = None
        self._transport: asyncio.Transport
        self._heard = 0.0
        self.open = True

    @property
    def reusable(self) -> bool:
        return self.open and self._parser.reusable

    async def request(self, content: bytes) -> Raw:
        """Send a request and return the response; the connection is closed if that fails or is cancelled.

        Raises:
            HTTPClientError: The connection has failed, or nothing came for too long.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Raw] = loop.create_future()
        self._answer = answer
        self._parser.begin()
        self._heard = loop.time()
        self._transport.write(content)
        timer = loop.call_later(self._seconds, self._time_out, loop, answer)
        try:
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answer = None

    def _time_out(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Raw]) -> None:
        if answer.done():
            return
        left = self._heard + self._seconds - loop.time()
        if left > 0:
            loop.call_later(left, self._time_out, loop, answer)
        else:
            answer.set_exception(ReadTimeoutError(endpoint_url=self._url))

    def close(self) -> None:
        self.open = False
        self._transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.done():
            self.close()  # nothing was asked for
            return
        self._heard = asyncio.get_running_loop().time()
        try:
            raw = self._parser.feed(data)
        except UnexpectedHTTPError as error:
            answer.set_exception(error)
        else:
            if raw is not None:
                answer.set_result(raw)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._answer is not None and not self._answer.done():
            cut = self._parser.cut()
            self._answer.set_exception(cut if exc is None else ConnectionClosedError(endpoint_url=self._url, error=exc))


class _AsyncConnections:
    """The connections of an event loop to an endpoint, at most as many as the client's pool has."""

    def __init__(self, url: str, config: Any, options: DirectTransport) -> None:
        self._url = url
        self._address = name_and_port(url)
        self._secure = url.startswith("https:")
        self._trusted = authorities(verify=options.verify)
        self._config = config
        self._slots = asyncio.Semaphore(config.max_pool_connections)
        self._idle: list[_AsyncConnection] = []

    async def request(self, content: bytes) -> Raw:
        """Send a request and return the response.

        Raises:
            BotoCoreError: None could be had, as botocore classifies the reason.
        """
        async with self._slots:
            connection = self._reused() or await self._made()
            raw = await connection.request(content)
            if connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
            return raw

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _reused(self) -> _AsyncConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def _made(self) -> _AsyncConnection:
        url, (host, _) = self._url, self._address
        loop = asyncio.get_running_loop()
        try:
            tls = tls_context(self._trusted) if self._secure else None
            sock, until = await self._reached()
            async with asyncio.timeout_at(until):
                _, connection = await loop.create_connection(
                    lambda: _AsyncConnection(url, seconds_of(self._config.read_timeout)),
                    sock=sock,
                    ssl=tls,
                    server_hostname=None if tls is None else host.rstrip("."),
                )
        except (OSError, UnicodeError) as error:
            raise connect_error(error, url, EndpointConnectionError) from error
        return connection

    async def _reached(self) -> _Reached:
        """Connect to the address that accepts first; each is tried soon after the one before, or once that has failed.

        Not by ``create_connection(happy_eyeballs_delay=…)``, which uvloop does not have.
        """
        loop = asyncio.get_running_loop()
        addresses = deque(await loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM))
        failed: BaseException = OSError("the name has no address")
        trying: set[asyncio.Task[_Reached]] = set()
        try:
            while addresses or trying:
                if addresses:
                    trying.add(loop.create_task(self._reached_at(addresses.popleft())))
                soon = _NEXT_ADDRESS_SECONDS if addresses else None
                ended, _ = await asyncio.wait(trying, timeout=soon, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    trying.discard(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    failed = error
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_close)
        raise failed

    async def _reached_at(self, address: Any) -> _Reached:
        loop = asyncio.get_running_loop()
        family, kind, protocol, _, place = address
        seconds = self._config.connect_timeout
        until = None if seconds is None else loop.time() + seconds
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)  # noqa: FBT003 - its only form
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._config.tcp_keepalive:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout_at(until):
                await loop.sock_connect(sock, place)
        except BaseException:
            sock.close()
            raise
        return sock, until


def _close(task: asyncio.Task[_Reached]) -> None:
    """Close the socket of an address that another one was faster than."""
    if not task.cancelled() and task.exception() is None:
        task.result()[0].close()


class _Pool:
    """A client's connections of one event loop, closed when the loop shuts down its async generators."""

    def __init__(self) -> None:
        self.connections: dict[Any, _AsyncConnections] = {}
        self._closing = self._close_at_the_end()

    async def start(self) -> None:
        # asyncio.run ends async generators that have begun; a loop tells of its end in no other way.
        await anext(self._closing)

    async def _close_at_the_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            for connections in self.connections.values():
                connections.close()


_pools: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool]]
_pools = weakref.WeakKeyDictionary()


async def _connections(client: Any, url: str, options: DirectTransport) -> _AsyncConnections:
    """Return a client's connections to an endpoint, which all tasks and tables on this event loop share."""
    pools = _pools.setdefault(client, weakref.WeakKeyDictionary())
    loop = asyncio.get_running_loop()
    pool = pools.get(loop)
    if pool is None:
        pool = pools[loop] = _Pool()
        await pool.start()
    found = pool.connections.get((url, options))
    if found is None:
        found = pool.connections[url, options] = _AsyncConnections(url, client.meta.config, options)
    return found
