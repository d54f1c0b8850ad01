"""A server that answers each HTTP request with scripted bytes."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Self

Part = bytes | Literal["close", "reset", "nothing", "plain"] | Callable[[], object]
"""Bytes to send; or: close or reset the connection, send nothing more, or send text beneath TLS; or: call a function
first."""

Script = Sequence[Part] | Callable[[bytes, bytes], Sequence[Part]]
"""The answer to a request; or a function that makes it from the request's head and body."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    """Return an HTTP response of DynamoDB's."""
    lines = [b"HTTP/1.1 " + status, b"x-amzn-RequestId: R1", b"x-amz-crc32: %d" % zlib.crc32(body), *headers]
    if not any(header.lower().startswith(b"transfer-encoding") for header in headers):
        lines.append(b"Content-Length: %d" % (len(body) if length is None else length))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body
    return b"\r\n".join(lines) + b"\r\n\r\n"


class RawServer:
    """Answers the n-th request with the n-th script; used as a context manager.

    Attributes:
        requests: Each request's head and body.
        connections: How many connections were made.
        closed: Released when a script has closed a connection.
        accepted: Called for each connection, on its thread, before TLS.
    """

    def __init__(self, scripts: Iterable[Script], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[bytes, bytes]] = []
        self.connections = 0
        self.closed = threading.Semaphore(0)
        self.accepted: Callable[[], object] = lambda: None
        self._scripts = iter(scripts)
        self._tls = tls
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://localhost:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self.accepted()
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._open.append(connection)
            received = b""
            while True:
                while b"\r\n\r\n" not in received:
                    received += _more(connection)
                head, _, received = received.partition(b"\r\n\r\n")
                found = _LENGTH.search(head)
                length = int(found[1]) if found else 0
                while len(received) < length:
                    received += _more(connection)
                with self._lock:
                    self.requests.append((head, received[:length]))
                    script = next(self._scripts)
                    parts = script(head, received[:length]) if callable(script) else script
                received = received[length:]
                for part in parts:
                    if part == "nothing":
                        return
                    if part == "plain":
                        with socket.socket(fileno=os.dup(connection.fileno())) as beneath:
                            beneath.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                        continue
                    if part == "reset":
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if isinstance(part, str):
                        connection.close()
                        self.closed.release()
                        return
                    if callable(part):
                        part()
                        continue
                    connection.sendall(part)
        except (OSError, StopIteration, threading.BrokenBarrierError):
            connection.close()


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError
    return data
