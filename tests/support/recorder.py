"""What goes over HTTP, and answers that come back in its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.awsrequest import AWSResponse

from tests.support.wire import Body, Recorder


class _Body:
    """What botocore reads of urllib3's response, and aiobotocore of aiohttp's."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content

    async def read(self) -> bytes:
        return self._content


@contextmanager
def recording(client: Any) -> Iterator[Recorder]:
    """Record what a client sends inside the `with`, in the recorder that it gives."""
    recorder = Recorder()

    def before_send(request: Any, **_: Any) -> None:
        target = request.headers["X-Amz-Target"]
        target = target.decode() if isinstance(target, bytes) else target
        recorder.requests.append((target.rpartition(".")[2], json.loads(request.body)))

    client.meta.events.register_first("before-send.dynamodb", before_send)
    try:
        yield recorder
    finally:
        client.meta.events.unregister("before-send.dynamodb", before_send)


def answered(url: str, status: int, body: Mapping[str, Any], response_of: Any = AWSResponse) -> Any:
    """Return what a ``before-send`` handler answers in the service's place."""
    headers = {"content-type": "application/x-amz-json-1.0", "x-amzn-requestid": "R" * 52}
    return response_of(url, status, headers, _Body(json.dumps(body).encode()))


@contextmanager
def answering(client: Any, operation: str, answer: Callable[[Body], Mapping[str, Any] | None]) -> Iterator[None]:
    """Answer an operation in the service's place: with the wire response that is given for the body, unless None.

    A response with ``__type`` is an error. botocore asks every handler and takes the first answer, so moto, which is
    one too, still carries the request out.
    """
    response_of = AWSResponse
    if hasattr(client, "__aenter__"):
        from aiobotocore.awsrequest import AioAWSResponse

        response_of = AioAWSResponse

    def before_send(request: Any, **_: Any) -> Any:
        response = answer(json.loads(request.body))
        if response is None:
            return None
        return answered(request.url, 400 if "__type" in response else 200, response, response_of)

    event = f"before-send.dynamodb.{operation}"
    client.meta.events.register(event, before_send)
    try:
        yield
    finally:
        client.meta.events.unregister(event, before_send)
