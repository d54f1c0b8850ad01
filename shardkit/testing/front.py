"""The handler that a simulation registers on a client, between its attempts and the engine.

``before-send`` is emitted once per attempt, and a handler's answer goes through botocore's own parser and retries. But
botocore calls all handlers, moto's too, whatever the first one answers. So this handler is registered first, calls the
others itself for the requests that go on to the engine, and then leaves them a request to an unused address.

A request to the engine is a copy of the client's attempt with another operation and body, and so with a wrong
signature: engines for tests do not check it, and AWS is refused.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import orjson
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.httpsession import URLLib3Session

from shardkit.dynamodb.requests import OPERATIONS, tables_of
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.observers import Call
from shardkit.runtime.runner import Clock, on_clock
from shardkit.runtime.targets import is_async
from shardkit.testing.actions import EngineRequest
from shardkit.testing.answers import EngineAnswer
from shardkit.testing.attempt import Attempt, attempt
from shardkit.testing.partitioned import PartitionedTable

_EVENT = "before-send.*.*"
_UNIQUE_ID = "shardkit-partitions"
_NOWHERE = "http://localhost/"
_REQUEST_ID_BYTES = 32  # as base32, 52 letters, as in the service's ids
AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_TARGET = "X-Amz-Target"
# As in botocore: without it, a small request waits for an acknowledgement (40 ms).
_SOCKET_OPTIONS: Any = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
# Headers that no longer fit once the body has been decoded or changed.
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding", "x-amz-crc32"})
_onward: ContextVar[bool] = ContextVar("shardkit_onward", default=False)
_fronts: WeakKeyDictionary[Any, _Front] = WeakKeyDictionary()


def in_front(client: Any, table: PartitionedTable, clock: Clock) -> AbstractContextManager[object]:
    """Put a table's partitions between a client and its engine, until the end of the ``with``.

    Raises:
        ConfigurationError: the table is simulated on this client already, or the client is on another clock.
    """
    with ExitStack() as entered:
        entered.enter_context(on_clock(client, clock))
        front = _fronts.get(client)
        if front is None:
            front = _fronts[client] = _Front(client)
        front.add(table, clock)
        entered.callback(front.remove, table)
        return entered.pop_all()


class _Front:
    def __init__(self, client: Any) -> None:
        self.tables: dict[str, PartitionedTable] = {}
        self.clock: Callable[[], float] = float
        self._http = URLLib3Session(
            max_pool_connections=client.meta.config.max_pool_connections, socket_options=_SOCKET_OPTIONS
        )
        self._lock = threading.Lock()
        self._events = client.meta.events
        self._is_async = is_async(client)

    @property
    def _handler(self) -> Callable[..., Any]:
        return self.answer_async if self._is_async else self.answer

    def add(self, table: PartitionedTable, clock: Clock) -> None:
        if table.name in self.tables:
            raise ConfigurationError(
                f"table: {table.name!r} is simulated on this client already; end that simulation first"
            )
        if not self.tables:
            self._events.register_first(_EVENT, self._handler, unique_id=_UNIQUE_ID)
        self.clock = clock
        self.tables = {**self.tables, table.name: table}

    def remove(self, table: PartitionedTable) -> None:
        self.tables = {name: known for name, known in self.tables.items() if known is not table}
        if not self.tables:
            self._events.unregister(_EVENT, self._handler, unique_id=_UNIQUE_ID)
            self._http.close()

    def answer(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        service, operation = event_name.rsplit(".", 1)
        program = self._program(request, operation)
        if program is None:
            return None
        step = self._next(program, None)
        while isinstance(step, EngineRequest):
            onward = _copy(request, step)
            with _going_on():
                response = _first(self._events.emit(f"{service}.{step.operation}", request=onward))
            if response is None:
                response = self._http.send(_outside_of_aws(onward))
            step = self._next(program, _read(response))
        return _response(request, step)

    async def answer_async(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        service, operation = event_name.rsplit(".", 1)
        program = self._program(request, operation)
        if program is None:
            return None
        step = self._next(program, None)
        while isinstance(step, EngineRequest):
            onward = _copy(request, step)
            with _going_on():
                response = _first(await self._events.emit(f"{service}.{step.operation}", request=onward))
            if response is None:
                response = await asyncio.to_thread(self._http.send, _outside_of_aws(onward))
            step = self._next(program, _read(response))
        # The response class of an async client, from the async extra.
        from aiobotocore.awsrequest import AioAWSResponse  # noqa: PLC0415

        return _response(request, step, AioAWSResponse)

    def _program(self, request: AWSPreparedRequest, operation: str) -> Attempt | None:
        if _onward.get() or operation not in OPERATIONS:
            return None
        body: Any = request.body
        if not body.startswith(b"{"):
            raise ConfigurationError(
                f"client: this botocore does not send {operation} as JSON, and a simulation reads only JSON; use an "
                "older boto3, or a newer shardkit"
            )
        params, tables = orjson.loads(body), self.tables
        if tables.keys().isdisjoint(tables_of(Call(operation, params))):
            return None
        return attempt(EngineRequest(operation, params), tables, self.clock)

    def _next(self, program: Attempt, answer: EngineAnswer | None) -> EngineRequest | EngineAnswer:
        with self._lock:
            try:
                return program.send(answer)  # type: ignore[arg-type]
            except StopIteration as stop:
                end: EngineAnswer = stop.value
                return end


@contextmanager
def _going_on() -> Iterator[None]:
    """Let requests within the ``with`` pass the simulation."""
    token = _onward.set(True)
    try:
        yield
    finally:
        _onward.reset(token)


def _copy(attempt: AWSPreparedRequest, wanted: EngineRequest) -> AWSPreparedRequest:
    body = orjson.dumps(wanted.params)
    headers: Any = HeadersDict(attempt.headers)
    target = headers[_TARGET]
    prefix, _, _ = (target.decode() if isinstance(target, bytes) else target).rpartition(".")
    headers[_TARGET] = f"{prefix}.{wanted.operation}"
    headers["Content-Length"] = str(len(body))
    return AWSPreparedRequest(attempt.method, attempt.url, headers, body, stream_output=False)


def _first(answers: list[tuple[Any, Any]]) -> Any:
    return next((response for _, response in answers if response is not None), None)


def _outside_of_aws(request: AWSPreparedRequest) -> AWSPreparedRequest:
    host = urlsplit(request.url).hostname or ""
    if host.endswith(AWS_HOSTS):
        raise ConfigurationError(
            f"client: a simulation does not go to AWS, but this client does ({host}); use moto (inside mock_aws), or "
            "the endpoint_url= of an engine for tests"
        )
    return request


def _read(response: Any) -> EngineAnswer:
    content = response.content
    try:
        body = orjson.loads(content or b"{}")
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(
            f"client: its endpoint did not answer in DynamoDB's JSON, got {brief(content, 200)}; check endpoint_url="
        ) from error
    headers = {name: value for name, value in response.headers.items() if name.lower() not in _OF_THE_BODY}
    return EngineAnswer(body, response.status_code, headers)


class _Body:
    """A body that botocore and aiobotocore can read from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content

    async def read(self) -> bytes:
        return self._content


def _response(request: AWSPreparedRequest, answer: EngineAnswer, kind: type[AWSResponse] = AWSResponse) -> AWSResponse:
    """Return an answer as a response that botocore treats as received over HTTP."""
    content = orjson.dumps(answer.body)
    raw: Any = _Body(content)
    headers: Any = {**answer.headers, "content-length": str(len(content))}
    response = kind(request.url, answer.status, headers, raw)
    request_id = base64.b32encode(secrets.token_bytes(_REQUEST_ID_BYTES)).decode().rstrip("=")
    response.headers.setdefault("x-amzn-RequestId", request_id)
    request.url = _NOWHERE
    return response
