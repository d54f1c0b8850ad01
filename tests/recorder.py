"""What goes over HTTP, and answers that come back in its place."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.awsrequest import AWSResponse

__all__ = ["Recorder", "Service", "answering", "recording", "serving"]

Body = dict[str, Any]


class Recorder:
    """Keeps (operation, body) of every request that a client sends, in the order in which they go out."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Body]] = []

    @property
    def operations(self) -> list[str]:
        """The names of the operations."""
        return [operation for operation, _ in self.requests]

    def bodies(self, operation: str) -> list[Body]:
        """The bodies of one operation's requests."""
        return [body for name, body in self.requests if name == operation]

    def clear(self) -> None:
        """Forget what was recorded."""
        self.requests.clear()

    def _before_send(self, request: Any, **_: Any) -> None:
        target = request.headers["X-Amz-Target"]
        target = target.decode() if isinstance(target, bytes) else target
        self.requests.append((target.rpartition(".")[2], json.loads(request.body)))


@contextmanager
def recording(client: Any) -> Iterator[Recorder]:
    """Record what a client sends inside the `with`, in the recorder that it gives."""
    recorder = Recorder()
    client.meta.events.register_first("before-send.dynamodb", recorder._before_send)  # noqa: SLF001
    try:
        yield recorder
    finally:
        client.meta.events.unregister("before-send.dynamodb", recorder._before_send)  # noqa: SLF001


class _Raw:
    """The part of urllib3's response that botocore reads."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._body


@contextmanager
def answering(client: Any, operation: str, answer: Callable[[Body], Mapping[str, Any] | None]) -> Iterator[None]:
    """Answer an operation in the service's place: with the wire response that is given for the body, unless None.

    A response with ``__type`` is an error. botocore asks every handler and takes the first answer, so moto, which is
    one too, still carries the request out.
    """

    def before_send(request: Any, **_: Any) -> AWSResponse | None:
        response = answer(json.loads(request.body))
        if response is None:
            return None
        headers: Any = {"content-type": "application/x-amz-json-1.0", "x-amzn-requestid": "R" * 52}
        raw: Any = _Raw(json.dumps(response).encode())
        return AWSResponse(request.url, 400 if "__type" in response else 200, headers, raw)

    event = f"before-send.dynamodb.{operation}"
    client.meta.events.register(event, before_send)
    try:
        yield
    finally:
        client.meta.events.unregister(event, before_send)


class Service:
    """An HTTP service that speaks DynamoDB's protocol: ``answer`` gives status and body for an operation's body.

    An answer of None closes the connection. ``requests`` holds what came in.
    """

    def __init__(self, answer: Callable[[str, Body], tuple[int, Any] | None]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Body]] = []
        self.url = ""

    @property
    def operations(self) -> list[str]:
        """The names of the operations."""
        return [operation for operation, _ in self.requests]


@contextmanager
def serving(answer: Callable[[str, Body], tuple[int, Any] | None]) -> Iterator[Service]:
    """Answer over real HTTP inside the `with`, whatever the client is; bytes go out as they are, all else as JSON."""
    service = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body go out apart: without this, each answer waits for an acknowledgement (40 ms).
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            service.requests.append((operation, body))
            answered = service.answer(operation, body)
            if answered is None:
                self.close_connection = True
                return
            status, given = answered
            content = given if isinstance(given, bytes) else json.dumps(given).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
