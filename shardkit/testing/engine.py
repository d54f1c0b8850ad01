"""What answers a client behind a simulation: handlers that come after it (moto's), or its endpoint over HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import orjson
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.httpsession import URLLib3Session

from shardkit.errors import ConfigurationError
from shardkit.testing.actions import Request
from shardkit.testing.answers import Answer

__all__ = ["Engine", "response_of"]

_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_TARGET = "X-Amz-Target"
# As of botocore's own: without it, a small request waits for an acknowledgement (40 ms).
_SOCKET_OPTIONS: Any = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
# What was true of the body before it was read, or changed.
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding", "x-amz-crc32"})
_onward: ContextVar[bool] = ContextVar("shardkit_onward", default=False)


class Engine:
    """Sends requests on behalf of one client, past the simulation that asks for it.

    They are copies of the attempt that the client makes, with another operation and body, under its signature: engines
    for tests do not check that, and AWS is refused.
    """

    def __init__(self, client: Any) -> None:
        self._events = client.meta.events
        self._http = URLLib3Session(
            max_pool_connections=client.meta.config.max_pool_connections, socket_options=_SOCKET_OPTIONS
        )

    @property
    def passing(self) -> bool:
        """Whether the request under way in this context is one of these."""
        return _onward.get()

    def send(self, attempt: AWSPreparedRequest, service: str, wanted: Request) -> Answer:
        """Send a request in place of a client's attempt, and read its answer."""
        request = _copy(attempt, wanted)
        token = _onward.set(True)
        try:
            answers = self._events.emit(f"{service}.{wanted.operation}", request=request)
        finally:
            _onward.reset(token)
        response = _first(answers)
        if response is None:
            response = self._http.send(_outside_of_aws(request))
        return _read(response)

    async def send_async(self, attempt: AWSPreparedRequest, service: str, wanted: Request) -> Answer:
        """Send one in place of an async client's attempt; HTTP in a thread."""
        request = _copy(attempt, wanted)
        token = _onward.set(True)
        try:
            answers = await self._events.emit(f"{service}.{wanted.operation}", request=request)
        finally:
            _onward.reset(token)
        response = _first(answers)
        if response is None:
            response = await asyncio.to_thread(self._http.send, _outside_of_aws(request))
        return _read(response)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()


def _copy(attempt: AWSPreparedRequest, wanted: Request) -> AWSPreparedRequest:
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
    if host.endswith(_AWS):
        raise ConfigurationError(
            f"a simulation does not go to AWS, and this client does ({host}); give it one of moto (inside mock_aws), "
            "or with the endpoint_url= of an engine for tests"
        )
    return request


def _read(response: Any) -> Answer:
    content = response.content
    try:
        body = orjson.loads(content or b"{}")
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(
            f"what answers this client does not speak DynamoDB's JSON, got {content!r:.200}; look at its endpoint_url="
        ) from error
    headers = {name: value for name, value in response.headers.items() if name.lower() not in _OF_THE_BODY}
    return Answer(body, response.status_code, headers)


class _Body:
    """A body that botocore and aiobotocore can read from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content

    async def read(self) -> bytes:
        return self._content


def response_of(url: str, answer: Answer, kind: type[AWSResponse] = AWSResponse) -> AWSResponse:
    """Make of an answer what botocore takes for one that came over HTTP."""
    content = orjson.dumps(answer.body)
    raw: Any = _Body(content)
    headers: Any = {**answer.headers, "content-length": str(len(content))}
    return kind(url, answer.status, headers, raw)
