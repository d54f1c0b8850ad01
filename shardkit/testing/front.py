"""The one handler that a simulation registers: what a client's attempts meet before they reach an engine.

``before-send`` comes once an attempt, and an answer that a handler gives there goes through botocore's own parser and
retries. But all handlers of it are asked, moto's too, whatever the first one answers: so this one comes first, asks the
others itself for what goes on (:class:`Engine`), and then hands them a request to nowhere.
"""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from shardkit.dynamodb.requests import OPERATIONS, tables_of
from shardkit.errors import ConfigurationError
from shardkit.runtime.observers import Call
from shardkit.runtime.runner import Clock, on_clock
from shardkit.testing.actions import Request
from shardkit.testing.answers import Answer
from shardkit.testing.attempt import Attempt, attempt
from shardkit.testing.engine import Engine, response_of
from shardkit.testing.partitioned import PartitionedTable

__all__ = ["in_front"]

_EVENT = "before-send.*.*"
_UNIQUE_ID = "shardkit-partitions"
_NOWHERE = "http://localhost/"
_REQUEST_ID_BYTES = 32  # as base32, the 52 letters that the service's have


class _Front:
    def __init__(self, client: Any) -> None:
        self.tables: dict[str, PartitionedTable] = {}
        self.clock: Callable[[], float] = float
        self._engine = Engine(client)
        self._lock = threading.Lock()
        self._events = client.meta.events
        self._is_async = hasattr(client, "__aenter__")

    @property
    def _handler(self) -> Callable[..., Any]:
        return self.answer_async if self._is_async else self.answer

    def add(self, table: PartitionedTable, clock: Clock) -> None:
        if table.name in self.tables:
            raise ConfigurationError(
                f"the partitions of {table.name!r} are simulated on this client already; leave that simulation first"
            )
        if not self.tables:
            self._events.register_first(_EVENT, self._handler, unique_id=_UNIQUE_ID)
        self.clock = clock
        self.tables = {**self.tables, table.name: table}

    def remove(self, table: PartitionedTable) -> None:
        self.tables = {name: known for name, known in self.tables.items() if known is not table}
        if not self.tables:
            self._events.unregister(_EVENT, self._handler, unique_id=_UNIQUE_ID)
            self._engine.close()

    def answer(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        service, operation = event_name.rsplit(".", 1)
        program = self._program(request, operation)
        if program is None:
            return None
        step = self._next(program, None)
        while isinstance(step, Request):
            step = self._next(program, self._engine.send(request, service, step))
        return _response(request, step)

    async def answer_async(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        service, operation = event_name.rsplit(".", 1)
        program = self._program(request, operation)
        if program is None:
            return None
        step = self._next(program, None)
        while isinstance(step, Request):
            step = self._next(program, await self._engine.send_async(request, service, step))
        # What an async client reads its answers from; of the async extra.
        from aiobotocore.awsrequest import AioAWSResponse  # noqa: PLC0415

        return _response(request, step, AioAWSResponse)

    def _program(self, request: AWSPreparedRequest, operation: str) -> Attempt | None:
        if self._engine.passing or operation not in OPERATIONS:
            return None
        body: Any = request.body
        if not body.startswith(b"{"):
            raise ConfigurationError(
                f"this botocore does not write {operation} as JSON, and a simulation reads no other form; take an "
                "older boto3, or a newer shardkit"
            )
        params, tables = orjson.loads(body), self.tables
        if tables.keys().isdisjoint(tables_of(Call(operation, params))):
            return None
        return attempt(Request(operation, params), tables, self.clock)

    def _next(self, program: Attempt, answer: Answer | None) -> Request | Answer:
        with self._lock:
            try:
                return program.send(answer)  # type: ignore[arg-type]
            except StopIteration as stop:
                end: Answer = stop.value
                return end


def _response(request: AWSPreparedRequest, answer: Answer, kind: type[AWSResponse] = AWSResponse) -> AWSResponse:
    response = response_of(request.url, answer, kind)
    request_id = base64.b32encode(secrets.token_bytes(_REQUEST_ID_BYTES)).decode().rstrip("=")
    response.headers.setdefault("x-amzn-RequestId", request_id)
    request.url = _NOWHERE
    return response


_fronts: WeakKeyDictionary[Any, _Front] = WeakKeyDictionary()


def in_front(client: Any, table: PartitionedTable, clock: Clock) -> AbstractContextManager[object]:
    """Put a table's partitions in front of what answers a client, until the end of the ``with``.

    Raises:
        ConfigurationError: they are already, or the client is on another clock.
    """
    with ExitStack() as entered:
        entered.enter_context(on_clock(client, clock))
        front = _fronts.get(client)
        if front is None:
            front = _fronts[client] = _Front(client)
        front.add(table, clock)
        entered.callback(front.remove, table)
        return entered.pop_all()
