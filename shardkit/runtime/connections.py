"""Keep-alive connections to one endpoint. Nothing here blocks, but `Connection.ready` and the look-up of the name."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.httpsession import get_cert_path

from shardkit.runtime.responses import Raw, ResponseParser

TRANSPORT_ERRORS = (HTTPClientError, NoConnectionError)
"""What a connection raises. The attribute ``unsent`` of such an error tells that no byte of the request has left."""

_READ = 256 * 1024
_PORTS = {"http": 80, "https": 443}
_DAY = 86_400.0
_UNDER_WAY = {0, errno.EINPROGRESS, errno.EWOULDBLOCK}

# The DNS records of AWS's endpoints are short-lived (AWS asks Java's users to keep them for 5 seconds), and another
# look-up often gives other addresses. botocore looks the name up for each connection.
_KEPT = 5.0

_log = logging.getLogger("shardkit")
_contexts: dict[str | None, ssl.SSLContext] = {}
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class UntrustedServerError(SSLError):
    """The certificate is not for this name, not valid now, or not from a known authority; or none is known."""

    fmt = (
        "SSL validation failed for {endpoint_url} {error}; the direct transport does not see the client's verify=: if "
        "the server has a certificate of your own authority, give transport=DirectTransport(verify=…) or AWS_CA_BUNDLE"
    )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where connections go.

    ``connect`` and ``read``: timeouts in seconds; None: none. ``connect`` is for the handshakes of TCP and TLS with one
    address, ``read`` for each wait for bytes. ``alive``: whether the kernel probes idle connections.
    """

    url: str
    connect: float | None
    read: float | None
    alive: bool = False


class Connection:
    """One connection, which carries one request at a time. It connects, writes and reads as `proceed` is called.

    Attributes:
        sock: The socket to wait for. Until ``connected``, each `proceed` may replace it.
        writing: Whether to wait until the socket can be written to; else, until it can be read from.
        connected: Whether the handshakes of TCP and TLS are over.
        sent: Whether a byte of the request may have left.
    """

    sock: socket.socket

    def __init__(self, connections: Connections) -> None:
        """Begin to connect.

        Raises:
            TRANSPORT_ERRORS: The name has no address, or none can be tried.
        """
        self.connected = self.sent = False
        self.writing = True
        self._connections = connections
        self._endpoint = connections.endpoint
        self._new_session = False
        self._unsent = memoryview(b"")
        self._until = 0.0
        self._parser = ResponseParser(self._endpoint.url)
        self._connecting = self._connect()
        next(self._connecting)

    @property
    def reusable(self) -> bool:
        """Whether it can carry another request after a complete response."""
        return self._parser.reusable

    @property
    def patience(self) -> float:
        """How many seconds to wait, at most, before `proceed` is called with ``late``."""
        if self.connected:
            return seconds_of(self._endpoint.read)
        return max(0.0, self._until - self._connections.clock())

    def start(self, request: bytes) -> None:
        """Begin to send a request, as soon as the connection is made.

        Raises:
            TRANSPORT_ERRORS: The connection has failed.
        """
        self._unsent, self.sent = memoryview(request), False
        self._parser.begin()
        if self.connected:
            self._write()

    def proceed(self, *, late: bool = False) -> Raw | None:
        """Do what can be done now; return the response when it is complete.

        ``late``: whether the socket was not ready for as long as ``patience`` said.

        Raises:
            TRANSPORT_ERRORS: The connection has failed.
        """
        if not self.connected:
            with suppress(StopIteration):
                self._connecting.send(late)
            if not self.connected:
                return None
        elif late:
            raise self._error(ReadTimeoutError, TimeoutError("the server is silent"))
        if self._unsent:
            self._write()
            if self._unsent:
                return None
        return self._read()

    def _read(self) -> Raw | None:
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
                raise self._failed(error) from error
            if not data:
                raise self._parser.cut()
            raw = self._parser.feed(data)
            if raw is not None:
                if self._new_session:
                    self._keep_session()
                return raw
            if len(data) < _READ and not isinstance(self.sock, ssl.SSLSocket):
                return None

    def _connect(self) -> Generator[None, bool, None]:
        """Make the connection; each wait is a ``yield``, which gives whether it was too long."""
        yield from self._reach()
        if self._connections.secure:
            yield from self._shake_hands()
        self.connected = True

    def _reach(self) -> Generator[None, bool, None]:
        """Connect to the first address that accepts."""
        failed: Exception = OSError("the name has no address")
        try:
            addresses = self._connections.addresses()
        except (OSError, UnicodeError) as error:
            raise self._failed(error, EndpointConnectionError) from error
        for address in addresses:
            try:
                yield from self._reach_at(address)
            except OSError as error:
                self._connections.avoid(address)
                failed = error
            else:
                return
        raise self._failed(failed, EndpointConnectionError) from failed

    def _reach_at(self, address: _Address) -> Generator[None, bool, None]:
        family, kind, protocol, _, place = address
        self.sock = sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)  # noqa: FBT003 - its only form
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._endpoint.alive:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self.writing = True
            self._until = self._connections.clock() + seconds_of(self._endpoint.connect)
            code = sock.connect_ex(place)
            if code not in _UNDER_WAY:
                raise OSError(code, os.strerror(code))  # noqa: TRY301 - as the socket's other calls raise
            while not _reached(sock, late=(yield)):
                pass
        except BaseException:
            sock.close()
            raise

    def _shake_hands(self) -> Generator[None, bool, None]:
        try:
            self.sock = sock = self._connections.wrapped(self.sock)
            while not self._shaken(sock):
                _check_time(late=(yield))
        except (OSError, ValueError) as error:
            raise self._failed(error) from error
        self._new_session = True

    def _shaken(self, sock: ssl.SSLSocket) -> bool:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self.writing = False
            return False
        except ssl.SSLWantWriteError:
            self.writing = True
            return False
        return True

    def _keep_session(self) -> None:
        # In TLS 1.3 the server sends what resumes a session after the handshake: with the first response at the latest.
        assert isinstance(self.sock, ssl.SSLSocket)
        self._connections.session = self.sock.session
        self._new_session = False

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
            raise self._failed(error) from error
        self.writing = False

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
        return _ready(self.sock, writing=self.writing, seconds=seconds)

    def close(self) -> None:
        with suppress(OSError):
            self.sock.close()

    def _failed(self, error: Exception, otherwise: type[BotoCoreError] = ConnectionClosedError) -> BotoCoreError:
        """Return botocore's exception for an error of the socket."""
        if not self.connected:
            return connect_error(error, self._endpoint.url, otherwise)
        ended = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        return self._error(SSLError if isinstance(error, ssl.SSLError) and not ended else otherwise, error)

    def _error(self, kind: type[BotoCoreError], error: Exception) -> BotoCoreError:
        made = kind(endpoint_url=self._endpoint.url, error=error)
        made.unsent = not self.sent  # type: ignore[attr-defined]
        return made


class Connections:
    """The open connections to an endpoint that carry no request. Safe for threads; empty after a fork.

    Args:
        endpoint: Where they go.
        verify: Which authorities may sign the server's certificate, as in :class:`DirectTransport`.
        clock: A monotonic clock, in seconds.

    Attributes:
        secure: Whether they use TLS.
        session: What the next connection of TLS resumes, which saves a round trip or the certificates.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        verify: str | os.PathLike[str] | Literal[False] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        self._name, self._port = name_and_port(endpoint.url)
        self.secure = endpoint.url.startswith("https:")
        self.session: ssl.SSLSession | None = None
        self._authorities = authorities(verify=verify)
        self._found: list[_Address] = []
        self._found_at = 0.0
        self._turn = 0
        self._process = os.getpid()
        self._idle: deque[Connection] = deque()
        self._closed = False

    def take(self) -> Connection:
        """Return an open connection, or a new one, which is yet to be made.

        Raises:
            TRANSPORT_ERRORS: None is open, and the name has no address.
        """
        for connection in self._reused():
            if connection.idle():
                return connection
            connection.close()
        return Connection(self)

    def give(self, connection: Connection) -> None:
        """Take a connection back after a complete response."""
        if connection.reusable and self._process == os.getpid():
            self._idle.append(connection)
            self._drop_oldest_if_ended()
            if self._closed:  # asked after the append: another thread may close meanwhile
                self.close()
        else:
            connection.close()

    def _drop_oldest_if_ended(self) -> None:
        # The one given last is taken first, so after a peak the others would stay, ended by the server, for ever.
        if len(self._idle) > 1:
            with suppress(IndexError):  # another thread took it
                oldest = self._idle.popleft()
                if oldest.idle():
                    self._idle.appendleft(oldest)
                else:
                    oldest.close()

    def close(self) -> None:
        """Close the open connections, and those that are given back later."""
        self._closed = True
        for connection in self._reused():
            connection.close()

    def addresses(self) -> list[_Address]:
        """Return where to connect, in the order to try. Blocks where the name is looked up, every few seconds."""
        now = self.clock()
        if not self._found or now - self._found_at >= _KEPT:
            self._found = [*socket.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)]
            self._found_at = now
        # In turn among the best kind of addresses: each connection has another, as if it had looked the name up itself.
        best = [address for address in self._found if address[0] == self._found[0][0]]
        self._turn = (self._turn + 1) % len(best)
        others = [address for address in self._found if address not in best]
        return best[self._turn :] + best[: self._turn] + others

    def avoid(self, address: _Address) -> None:
        """Do not return an address until the name is looked up again, which is now if it was the last one."""
        self._found = [other for other in self._found if other != address]

    def wrapped(self, sock: socket.socket) -> ssl.SSLSocket:
        """Put TLS over a connected socket, before its handshake."""
        return tls_context(self._authorities).wrap_socket(
            sock, server_hostname=self._name.rstrip("."), session=self.session, do_handshake_on_connect=False
        )

    def _reused(self) -> Iterator[Connection]:
        if self._process != os.getpid():
            inherited, self._idle, self._process = self._idle, deque(), os.getpid()
            for connection in inherited:
                connection.close()  # this process's copy: the parent's goes on
        while True:
            try:
                yield self._idle.pop()  # the last one given: the least likely to be closed
            except IndexError:
                return


def name_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def host_header(url: str) -> str:
    name, port = name_and_port(url)
    shown = f"[{name}]" if ":" in name else name
    return shown if port == _PORTS[urlsplit(url).scheme] else f"{shown}:{port}"


def connect_error(error: Exception, url: str, otherwise: type[BotoCoreError]) -> BotoCoreError:
    """Return botocore's exception for a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        kind: type[BotoCoreError] = UntrustedServerError
    elif isinstance(error, ssl.SSLError):
        kind = SSLError
    elif isinstance(error, TimeoutError):
        kind = ConnectTimeoutError
    else:
        kind = otherwise
    made = kind(endpoint_url=url, error=error)
    made.unsent = True  # type: ignore[attr-defined]
    return made


def seconds_of(timeout: float | None) -> float:
    return _DAY if timeout is None else timeout


def _reached(sock: socket.socket, *, late: bool) -> bool:
    """Return whether a socket is connected; raise what its connecting ended with."""
    _check_time(late=late)
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    try:
        sock.getpeername()
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
        return False
    return True


def _check_time(*, late: bool) -> None:
    if late:
        raise TimeoutError("the server did not answer in time")


def authorities(*, verify: str | os.PathLike[str] | Literal[False] | None) -> str | None:
    """Return the file or folder of trusted certificates; None: none is checked.

    ``ca_bundle`` in the user's profile counts in botocore too. It cannot be read here: a client shows no session.
    """
    if verify is False:
        return None
    if verify is None:
        verify = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or _botocores()
    return str(Path(verify).expanduser())


def _botocores() -> str:
    return get_cert_path(verify=True) or ""


def tls_context(trusted: str | None) -> ssl.SSLContext:
    """Return the settings of TLS: one object, because a session of TLS can only be resumed with the same one."""
    return _contexts.get(trusted) or _contexts.setdefault(trusted, _loaded(trusted))


def _loaded(trusted: str | None) -> ssl.SSLContext:
    # Reads SSLKEYLOGFILE, switches compression off, and checks names and certificates.
    path = Path(trusted or _botocores())
    file, folder = (None, str(path)) if path.is_dir() else (str(path), None)
    try:
        context = ssl.create_default_context(cafile=file, capath=folder)
    except OSError as error:
        text = f"no certificates of authorities can be read from {str(path)!r} ({error})"
        raise ssl.SSLCertVerificationError(error.errno, text) from error
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    # Python 3.13 checks the form of certificates more strictly; the client does not. Both must trust the same servers.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if trusted is None:
        _log.warning("verify=False: the direct transport does not check the certificates of servers")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


if sys.platform == "win32":

    def _ready(sock: socket.socket, *, writing: bool, seconds: float) -> bool:
        # The third list tells of failed connects. The limit of 512 sockets is for their number.
        read, write = ([], [sock]) if writing else ([sock], [])
        return any(select.select(read, write, write, seconds))

else:

    def _ready(sock: socket.socket, *, writing: bool, seconds: float) -> bool:
        # Not select.select, which cannot wait for a file descriptor above 1023.
        poll = select.poll()
        poll.register(sock, select.POLLOUT if writing else select.POLLIN)
        return bool(poll.poll(seconds * 1000))
