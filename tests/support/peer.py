"""The server's end of a connection, which does only what a test tells it, on the test's own thread."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from typing import Self


class Peer:
    """One accepted connection.

    Attributes:
        received: What the client has sent.
        waiting: Bytes that are yet to be sent, as they go over the wire.
    """

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self.received = b""
        self.waiting = b""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if tls is None else tls.wrap_bio(self._in, self._out, server_side=True)
        self._shaken = False

    @property
    def resumed(self) -> bool | None:
        return None if self._tls is None else self._tls.session_reused

    @property
    def protocol(self) -> str | None:
        return None if self._tls is None else self._tls.selected_alpn_protocol()

    def pump(self) -> None:
        """Take what has come; ``waiting`` gets what TLS answers."""
        with suppress(BlockingIOError):
            data = self._sock.recv(1 << 20)
            if self._tls is None:
                self.received += data
                return
            self._in.write(data)
        if self._tls is not None:
            with suppress(ssl.SSLWantReadError):
                if not self._shaken:
                    self._tls.do_handshake()
                    self._shaken = True
                while True:
                    self.received += self._tls.read(1 << 20)
        self.waiting += self._out.read()

    def say(self, data: bytes) -> None:
        """Put data into ``waiting``."""
        if self._tls is None:
            self.waiting += data
        elif data:
            self._tls.write(data)
            self.waiting += self._out.read()

    def flush(self, most: int | None = None) -> None:
        """Send what is waiting, or its first bytes."""
        part = self.waiting[:most]
        self.waiting = self.waiting[len(part) :]
        while part:
            with suppress(BlockingIOError):
                part = part[self._sock.send(part) :]

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


class Listener:
    """Accepts connections at ``url``; used as a context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", backlog: int = 16) -> None:
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._sock = socket.create_server((host, 0), family=family, backlog=backlog)
        self._peers: list[Peer] = []
        self.port: int = self._sock.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if tls is None else 'https'}://{shown}:{self.port}"

    def accept(self) -> Peer:
        """Return the next connection; the kernel has made it already, or does so soon."""
        self._sock.settimeout(20)
        sock, _ = self._sock.accept()
        self._peers.append(Peer(sock, self._tls))
        return self._peers[-1]

    def close(self) -> None:
        self._sock.close()
        for peer in self._peers:
            peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
