"""Keep-alive connections to one endpoint, which never block."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.httpsession import get_cert_path

_READ = 256 * 1024
_FIRST_FINAL_STATUS = 200
_PORTS = {"http": 80, "https": 443}


class Raw(NamedTuple):
    """An HTTP response; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class UnexpectedHTTPError(HTTPClientError):
    """The server answered with something else than one complete HTTP/1.1 response."""

    fmt = "Not an HTTP/1.1 response from endpoint URL {endpoint_url}: {error}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where connections go. ``connect`` and ``read``: timeouts in seconds; ``read`` is for each wait for bytes."""

    url: str
    connect: float
    read: float
    alive: bool = False


class Connection:
    """One connection, which carries one request at a time.

    ``patience``: seconds to wait for the next byte. ``sent``: whether a byte of the request may have left. ``writing``:
    whether it waits to write instead of to read.
    """

    def __init__(self, sock: socket.socket, endpoint: Endpoint) -> None:
        sock.setblocking(False)  # noqa: FBT003 - its only form
        self.sock = sock
        self.sent = self.writing = False
        self.patience = endpoint.read
        self._url = endpoint.url
        self._unsent = memoryview(b"")
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._complete = False
        self._status = 0
        self.reusable = True
        self._parser = httptools.HttpResponseParser(self)

    def start(self, request: bytes) -> None:
        """Begin to send a request.

        Raises:
            ConnectionClosedError: The server has closed the connection; ``sent`` tells whether it got a byte.
        """
        self._unsent, self.sent = memoryview(request), False
        self._headers, self._body, self._complete = {}, [], False
        self._write()

    def proceed(self) -> Raw | None:
        """Write and read what can be written and read now; return the response when it is complete.

        Raises:
            HTTPClientError: The connection has failed.
        """
        if self._unsent:
            self._write()
            if self._unsent:
                return None
        while True:
            try:
                data = self.sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                self.writing = False
                return None
            except ssl.SSLWantWriteError:
                self.writing = True
                return None
            except OSError as error:
                raise self._closed(error) from error
            if not data:
                raise self._closed(EOFError("the server closed the connection"))
            self._feed(data)
            if self._complete:
                return self._response()
            if len(data) < _READ and not isinstance(self.sock, ssl.SSLSocket):
                return None

    def _write(self) -> None:
        try:
            while self._unsent:
                # Before the call, because a failed one may have sent a part.
                self.sent = True
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.writing = True
            return
        except ssl.SSLWantReadError:
            self.writing = False
            return
        except OSError as error:
            raise self._closed(error) from error
        self.writing = False

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # What follows a complete response belongs to no request.
            self.reusable = False
            if not self._complete:
                raise UnexpectedHTTPError(endpoint_url=self._url, error=error) from error

    def _response(self) -> Raw:
        if self._status < _FIRST_FINAL_STATUS:
            raise UnexpectedHTTPError(endpoint_url=self._url, error=f"status {self._status}")
        return Raw(self._status, self._headers, self._body[0] if len(self._body) == 1 else b"".join(self._body))

    def on_message_begin(self) -> None:
        if self._complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        # The parser knows both only until the callback returns.
        if not self._complete:
            self._status = self._parser.get_status_code()
            self.reusable = self.reusable and self._parser.should_keep_alive()
        self._complete = True

    def idle(self) -> bool:
        """Return whether the connection is open and nothing has come that no request asked for."""
        try:
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def ready(self, seconds: float) -> bool:
        """Wait until the connection can proceed; return whether it can."""
        if isinstance(self.sock, ssl.SSLSocket) and not self.writing and self.sock.pending():
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT if self.writing else select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def timed_out(self) -> ReadTimeoutError:
        return ReadTimeoutError(endpoint_url=self._url)

    def close(self) -> None:
        with suppress(OSError):
            self.sock.close()

    def _closed(self, error: Exception) -> ConnectionClosedError:
        return ConnectionClosedError(endpoint_url=self._url, error=error)


class Connections:
    """The open connections to an endpoint that carry no request. Safe for threads; empty after a fork.

    ``host``: the value of the header ``Host``.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        parts = urlsplit(endpoint.url)
        name, standard = parts.hostname or "", _PORTS[parts.scheme]
        self._address = name, parts.port or standard
        shown = f"[{name}]" if ":" in name else name
        self.host = shown if self._address[1] == standard else f"{shown}:{parts.port}"
        self._tls = _context() if parts.scheme == "https" else None
        self._session: ssl.SSLSession | None = None
        self._process = os.getpid()
        self._idle: deque[Connection] = deque()

    def take(self) -> Connection:
        """Return an open connection.

        Raises:
            HTTPClientError: None is open, and none can be made.
        """
        for connection in self._reused():
            if connection.idle():
                return connection
            connection.close()
        return self._made()

    def give(self, connection: Connection) -> None:
        """Take a connection back after a complete response."""
        if isinstance(connection.sock, ssl.SSLSocket):
            self._session = connection.sock.session
        if connection.reusable and self._process == os.getpid():
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connection in self._reused():
            connection.close()

    def _reused(self) -> Iterator[Connection]:
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), deque()
        while True:
            try:
                yield self._idle.pop()  # the last one given: the least likely to be closed
            except IndexError:
                return

    def _made(self) -> Connection:
        url = self.endpoint.url
        try:
            sock = socket.create_connection(self._address, self.endpoint.connect)
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=url, error=error) from error
        except OSError as error:
            raise EndpointConnectionError(endpoint_url=url, error=error) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.endpoint.alive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._tls is not None:
            try:
                sock = self._tls.wrap_socket(sock, server_hostname=self._address[0], session=self._session)
            except TimeoutError as error:
                sock.close()
                raise ConnectTimeoutError(endpoint_url=url, error=error) from error
            except ssl.SSLError as error:
                sock.close()
                raise SSLError(endpoint_url=url, error=error) from error
            except OSError as error:
                sock.close()
                raise EndpointConnectionError(endpoint_url=url, error=error) from error
        return Connection(sock, self.endpoint)


def _context() -> ssl.SSLContext:
    """Return the settings of TLS, with the authorities that botocore trusts."""
    bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or get_cert_path(verify=True)
    context = ssl.create_default_context(cafile=bundle)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
