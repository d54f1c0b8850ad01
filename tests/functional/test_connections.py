"""Connections, step by step: the handshakes of TCP and TLS, what a response may look like, and how they end."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    SSLError,
)
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.runtime.connections import (
    TRANSPORT_ERRORS,
    Connection,
    Connections,
    Endpoint,
    UntrustedServerError,
    host_header,
)
from shardkit.runtime.responses import Raw, UnexpectedHTTPError
from tests.support.certificates import certified
from tests.support.fakes import Clock
from tests.support.peer import Listener, Peer

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OK_READ = Raw(200, {"content-length": "2"}, b"{}")
PATIENT = 20.0

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    """Each test closes what it opens; a socket that is forgotten is a ResourceWarning, which is an error."""
    before = descriptors()
    yield
    if descriptors() > before:
        gc.collect()  # another test's may be among them
        assert descriptors() <= before


def descriptors() -> int:
    return len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as made:
        yield made


def to(listener: Listener, **options: Any) -> Connections:
    return Connections(Endpoint(listener.url, connect=PATIENT, read=PATIENT), **options)


def proceeded(connection: Connection) -> Raw | None:
    return connection.proceed(late=not connection.ready(connection.patience))


def unsent(error: Exception) -> bool:
    return bool(getattr(error, "unsent", False))


def without_response(connection: Connection) -> None:
    while True:
        assert proceeded(connection) is None


def met(listener: Listener, connections: Connections) -> tuple[Connection, Peer]:
    """Return a new connection that has sent a request, and its other end, which has got it."""
    connection = connections.take()
    connection.start(REQUEST)
    peer = listener.accept()
    while peer.received != REQUEST:
        if connection.ready(0):
            assert connection.proceed() is None
        peer.pump()
        peer.flush()
    return connection, peer


def answered(connection: Connection, peer: Peer, *parts: bytes) -> Raw | None:
    """Let the server send each of these parts; return the response that came of it."""
    raw = None
    for part in parts:
        peer.say(part)
        peer.flush()
        assert connection.ready(PATIENT)
        raw = connection.proceed()
    return raw


def in_turn(connection: Connection, peer: Peer, response: bytes, most: int | None = None) -> Raw:
    """Carry one request, with at most so many bytes of the server at a time."""
    connection.start(REQUEST)
    said = False
    while True:
        peer.pump()
        if not said and peer.received == REQUEST:
            peer.say(response)
            said = True
        peer.flush(most)
        if connection.ready(0):
            raw = connection.proceed()
            if raw is not None:
                return raw


# Connecting


def test_a_refused_connection_is_an_error() -> None:
    with Listener() as gone:
        connections = to(gone)
    with pytest.raises(EndpointConnectionError) as raised:
        proceeded(connections.take())
    assert unsent(raised.value)


@pytest.mark.parametrize("host", ["a..b", "name.invalid"])
def test_a_name_without_an_address_is_an_error(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host == "name.invalid":
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror("unknown")))
    with pytest.raises(EndpointConnectionError) as raised:
        Connections(Endpoint(f"http://{host}", PATIENT, PATIENT)).take()
    assert unsent(raised.value)


def crowded(listener: Listener) -> list[socket.socket]:
    """Fill the queue of a listening socket: from then on the kernel answers no more."""
    waiting: list[socket.socket] = []
    while True:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", listener.port))
        waiting.append(sock)
        connections = to(listener)
        connection = connections.take()
        reached = connection.ready(0.02)
        connection.close()
        if not reached:
            return waiting


fills_queues = pytest.mark.skipif(sys.platform != "linux", reason="another kernel may refuse what Linux leaves waiting")


@fills_queues
def test_a_connect_that_nobody_answers_times_out() -> None:
    clock = Clock()
    with Listener(backlog=0) as black_hole:
        waiting = crowded(black_hole)
        connection = to(black_hole, clock=clock).take()
        connection.start(REQUEST)
        assert connection.patience == PATIENT
        assert not connection.ready(0)
        assert connection.proceed() is None  # asked too early, it waits on
        clock.now = PATIENT + 1
        assert connection.patience == 0
        with pytest.raises(ConnectTimeoutError) as raised:
            proceeded(connection)
        assert unsent(raised.value)
        for sock in waiting:
            sock.close()


def addressed(monkeypatch: pytest.MonkeyPatch, *ports: int) -> list[int]:
    """Let any name have these ports of the loopback as its addresses; return when it was looked up."""
    asked: list[int] = []

    def look_up(*_: Any, **__: Any) -> list[Any]:
        asked.append(len(asked))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@fills_queues
def test_the_next_address_is_tried(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that did not answer is not tried again by the connections that follow."""
    with Listener() as gone:
        pass
    with Listener(backlog=0) as black_hole:
        waiting = crowded(black_hole)
        addressed(monkeypatch, listener.port, gone.port, black_hole.port)
        clock = Clock()
        connections = Connections(Endpoint("http://some.name", 1, PATIENT), clock=clock)
        connection = connections.take()
        connection.start(REQUEST)
        assert connection.ready(PATIENT)
        assert connection.proceed() is None  # refused
        assert not connection.connected
        clock.now = 2
        assert proceeded(connection) is None  # timed out
        assert (connection.connected, connection.patience) == (False, 1)
        peer = listener.accept()
        while peer.received != REQUEST:
            assert proceeded(connection) is None
            peer.pump()
        assert answered(connection, peer, OK) == OK_READ
        assert [address[4][1] for address in connections.addresses()] == [listener.port]
        connection.close()
        for sock in waiting:
            sock.close()


def test_a_name_is_looked_up_once_in_a_while(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    asked = addressed(monkeypatch, 1, 2, 3)
    connections = to(listener, clock=clock)
    orders = [[address[4][1] for address in connections.addresses()] for _ in range(4)]
    assert orders == [[2, 3, 1], [3, 1, 2], [1, 2, 3], [2, 3, 1]]
    clock.now = 4.9
    connections.addresses()
    assert len(asked) == 1
    clock.now = 5.0
    connections.addresses()
    assert len(asked) == 2
    for address in connections.addresses():
        connections.avoid(address)
    connections.addresses()
    assert len(asked) == 3


def test_addresses_of_the_second_kind_come_last(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(kind, socket.SOCK_STREAM, 6, "", (place, 1)) for kind, place in
             [(socket.AF_INET6, "::1"), (socket.AF_INET6, "::2"), (socket.AF_INET, "127.0.0.1")]]  # fmt: skip
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    connections = to(listener)
    assert [[address[4][0] for address in connections.addresses()] for _ in range(2)] == [
        ["::2", "::1", "127.0.0.1"],
        ["::1", "::2", "127.0.0.1"],
    ]


def has_ipv6() -> bool:
    try:
        Listener(host="::1").close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="the machine has no IPv6")
@pytest.mark.parametrize("secure", [False, True])
def test_an_address_of_ipv6(tmp_path: Path, secure: bool) -> None:
    tls = certified(tmp_path, "::1") if secure else None
    with Listener(tls, host="::1") as listener:
        connections = to(listener, verify=str(tmp_path / "ca.pem") if secure else None)
        connection, peer = met(listener, connections)
        assert answered(connection, peer, OK) == OK_READ
        connection.close()


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://dynamodb.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com"),
        ("https://localhost:8000", "localhost:8000"),
        ("http://localhost:443", "localhost:443"),
        ("http://localhost:80/", "localhost"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_the_header_host(url: str, host: str) -> None:
    assert host_header(url) == host


def test_a_timeout_may_be_missing(listener: Listener) -> None:
    """As botocore's ``Config(read_timeout=None)``."""
    connection = Connections(Endpoint(listener.url, None, None)).take()
    connection.start(REQUEST)
    assert connection.patience > 3600
    assert connection.ready(connection.patience)
    assert connection.proceed() is None
    assert connection.patience > 3600
    connection.close()


@pytest.mark.parametrize("alive", [False, True])
def test_the_options_of_a_socket(listener: Listener, alive: bool) -> None:
    connection = Connections(Endpoint(listener.url, PATIENT, PATIENT, alive)).take()
    assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert bool(connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) == alive
    connection.close()


# TLS


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return certified(tmp_path, "127.0.0.1", "localhost")


@pytest.fixture
def secure(tls: ssl.SSLContext) -> Iterator[Listener]:
    with Listener(tls) as made:
        yield made


def trusting(listener: Listener, folder: Path, **options: Any) -> Connections:
    return to(listener, verify=str(folder / "ca.pem"), **options)


def test_a_handshake_byte_by_byte(secure: Listener, tmp_path: Path) -> None:
    """And the response too, in the middle of the records of TLS. All the handshake has one time limit."""
    clock = Clock()
    connection = trusting(secure, tmp_path, clock=clock).take()
    connection.start(REQUEST)
    assert connection.ready(PATIENT)
    peer = secure.accept()
    raw, said, patiences = None, False, []
    while raw is None:
        peer.pump()
        if peer.received == REQUEST and not said:
            peer.say(OK)
            said = True
        peer.flush(1)
        if connection.ready(0):
            raw = connection.proceed()
            clock.now += 0.001
            if not connection.connected:
                patiences.append(connection.patience)
    assert raw == OK_READ
    assert len(patiences) > 500
    assert patiences == sorted(patiences, reverse=True)
    connection.close()


def test_a_handshake_that_takes_too_long_is_an_error(secure: Listener, tmp_path: Path) -> None:
    clock = Clock()
    connection = trusting(secure, tmp_path, clock=clock).take()
    connection.start(REQUEST)
    assert proceeded(connection) is None  # the client's part is sent
    clock.now = PATIENT + 1
    with pytest.raises(ConnectTimeoutError) as raised:
        proceeded(connection)
    assert unsent(raised.value)
    connection.close()


@settings(max_examples=25)
@given(later=st.booleans(), part=st.floats(0, 1, exclude_max=True), reset=st.booleans())
def test_tls_that_is_cut_is_an_error(tmp_path: Path, later: bool, part: float, reset: bool) -> None:
    """In its handshake, or later: in the tickets of the session or the record of the response."""
    with Listener(certified(tmp_path, "127.0.0.1")) as listener:
        connection = Connections(Endpoint(listener.url, PATIENT, PATIENT), verify=False).take()
        connection.start(REQUEST)
        proceeded(connection)
        peer = listener.accept()
        while not peer.waiting:
            peer.pump()
        if later:
            peer.flush()
            while peer.received != REQUEST:
                if connection.ready(0):
                    connection.proceed()
                peer.pump()
            peer.say(OK)
        peer.flush(int(part * len(peer.waiting)))
        peer.close(reset=reset)
        with pytest.raises(TRANSPORT_ERRORS) as raised:
            without_response(connection)
        assert isinstance(raised.value, ConnectionClosedError) or (not later and isinstance(raised.value, SSLError))
        assert unsent(raised.value) != later
        connection.close()


@pytest.mark.parametrize(
    ("names", "valid", "reason"),
    [
        (["127.0.0.1"], (-2, -1), "expired"),
        (["127.0.0.1"], (1, 2), "not yet valid"),
        (["127.0.0.2"], (-1, 1), "IP address mismatch"),
        (["localhost"], (-1, 1), "IP address mismatch"),
    ],
)
def test_a_wrong_certificate_is_an_error(tmp_path: Path, names: list[str], valid: tuple[int, int], reason: str) -> None:
    with Listener(certified(tmp_path, *names, valid=valid)) as listener:
        refused(listener, trusting(listener, tmp_path), reason)


def test_a_certificate_for_another_name_is_an_error(tmp_path: Path) -> None:
    with Listener(certified(tmp_path, "other.name", "127.0.0.1")) as listener:
        url = f"https://localhost:{listener.port}"
        connections = Connections(Endpoint(url, PATIENT, PATIENT), verify=str(tmp_path / "ca.pem"))
        refused(listener, connections, "Hostname mismatch")


def refused(listener: Listener, connections: Connections, reason: str) -> None:
    connection = connections.take()
    connection.start(REQUEST)
    while connection.writing:
        proceeded(connection)
    peer = listener.accept()
    while not peer.waiting:
        peer.pump()
    peer.flush()
    with pytest.raises(SSLError, match=reason) as raised:
        without_response(connection)
    assert type(raised.value) is UntrustedServerError
    assert unsent(raised.value)
    connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed(tmp_path: Path, tls: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    """By a connection that is made while the first one is still in use."""
    tls.maximum_version = version
    with Listener(tls) as listener:
        connections = trusting(listener, tmp_path)
        first, peer = met(listener, connections)
        assert answered(first, peer, OK) == OK_READ
        second, other = met(listener, connections)
        assert answered(second, other, OK) == OK_READ
        assert (peer.resumed, other.resumed) == (False, True)
        first.close()
        second.close()


def test_what_the_server_is_told(tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name, if it is one, and HTTP/1.1; ``SSLKEYLOGFILE`` gets the keys."""
    names: list[str | None] = []
    tls.sni_callback = lambda _, name, __: names.append(name)
    tls.set_alpn_protocols(["h2", "http/1.1"])
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    monkeypatch.setattr("shardkit.runtime.connections._contexts", {})  # one keeps the file of keys open
    with Listener(tls) as listener:
        addressed(monkeypatch, listener.port)
        for host in ("127.0.0.1", "localhost", "localhost."):
            endpoint = Endpoint(f"https://{host}:{listener.port}", PATIENT, PATIENT)
            connection = Connections(endpoint, verify=str(tmp_path / "ca.pem")).take()
            peer = listener.accept()
            assert in_turn(connection, peer, OK) == OK_READ
            assert peer.protocol == "http/1.1"
            connection.close()
    assert names == [None, "localhost", "localhost"]
    assert b"TRAFFIC_SECRET" in keys.read_bytes()


def test_the_settings_are_strict(secure: Listener, tmp_path: Path) -> None:
    with socket.create_connection(("127.0.0.1", secure.port)) as sock, trusting(secure, tmp_path).wrapped(sock) as tls:
        assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert tls.context.options & ssl.OP_NO_COMPRESSION
        assert not tls.context.verify_flags & ssl.VERIFY_X509_STRICT  # as the client's, also from Python 3.13 on
        assert (tls.context.check_hostname, tls.context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_the_authorities_are_read_once(secure: Listener, tmp_path: Path) -> None:
    contexts = []
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", secure.port)) as sock,
            trusting(secure, tmp_path).wrapped(sock) as t,
        ):
            contexts.append(t.context)
    assert contexts[0] is contexts[1]


def as_folder(folder: Path) -> Path:
    """Return the folder that ``openssl rehash`` would make of the certificate."""
    certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    digest = hashlib.sha1(certificate.subject.public_bytes()[2:], usedforsecurity=False).digest()
    made = folder / "authorities"
    made.mkdir()
    (folder / "ca.pem").rename(made / f"{int.from_bytes(digest[:4], 'little'):08x}.0")
    return made


@pytest.mark.parametrize("given", ["file", "folder", "home", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_authorities_are_chosen(secure: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    verify: str | None = str(tmp_path / "ca.pem")
    if given == "folder":
        verify = str(as_folder(tmp_path))
    elif given == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        verify = "~/ca.pem"
    elif given != "file":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/missing")
        monkeypatch.setenv("AWS_CA_BUNDLE", "")
        monkeypatch.setenv(given, str(tmp_path / "ca.pem"))
        verify = None
    connection, peer = met(secure, to(secure, verify=verify))
    assert answered(connection, peer, OK) == OK_READ
    connection.close()


def test_an_authority_that_botocore_does_not_know_is_not_trusted(
    secure: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "")
    refused(secure, to(secure), "unable to get local issuer certificate")


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_authorities_that_cannot_be_read_are_an_error(secure: Listener, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.pem"
    if content is not None:
        path.write_bytes(content)
    connection = to(secure, verify=str(path)).take()
    assert connection.ready(PATIENT)
    with pytest.raises(UntrustedServerError, match=r"no certificates of .* can be read from '.*other\.pem'"):
        connection.proceed()
    connection.close()


def test_no_check_is_possible_but_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shardkit.runtime.connections._contexts", {})
    with Listener(certified(tmp_path, "other.name", valid=(-2, -1))) as listener:
        for _ in range(2):
            connection, peer = met(listener, to(listener, verify=False))
            assert answered(connection, peer, OK) == OK_READ
            connection.close()
    (record,) = caplog.records
    assert (record.levelno, "verify=False" in record.getMessage()) == (logging.WARNING, True)


# Requests and responses


def test_a_long_request_leaves_as_the_server_reads(listener: Listener) -> None:
    connection = to(listener).take()
    body = os.urandom(1 << 24)
    connection.start(body)
    assert not connection.sent
    peer = listener.accept()
    assert proceeded(connection) is None
    assert (connection.sent, connection.writing) == (True, True)
    while len(peer.received) < len(body):
        if connection.ready(0):
            connection.proceed()
        peer.pump()
    assert peer.received == body
    assert not connection.writing
    connection.close()


LETTERS = "abcdefghijklmnopqrstuvwxyz"


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, Raw]:
    """Draw an HTTP response and what it says."""
    status = draw(st.sampled_from([200, 204, 400, 500]))
    body = b"" if status == 204 else draw(st.binary(max_size=200))
    given = draw(st.dictionaries(st.text(LETTERS, min_size=1, max_size=9), st.text(LETTERS + "0;= ,", max_size=9)))
    headers = {f"x-{name}": value.strip() for name, value in given.items()}
    content = body
    if status != 204 and draw(st.booleans()):
        headers["transfer-encoding"] = "chunked"
        ends = sorted({*draw(st.lists(st.integers(1, 200))), len(body)} & {*range(1, len(body) + 1)})
        parts = [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        content = b"".join(b"%X\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    elif status != 204:
        headers["content-length"] = str(len(body))
    lines = "".join(f"{draw(st.sampled_from([name, name.title()]))}:{value}\r\n" for name, value in headers.items())
    before = b"HTTP/1.1 100 Continue\r\nx-interim: 1\r\n\r\n" * draw(st.integers(0, 2))
    head = before + f"HTTP/1.1 {status} Any Reason\r\n{lines}\r\n".encode()
    return head + content, Raw(status, headers, body)


@given(response=responses(), cuts=st.lists(st.integers(1, 500), max_size=12))
def test_a_response_in_any_pieces_is_the_same(listener: Listener, response: tuple[bytes, Raw], cuts: list[int]) -> None:
    content, expected = response
    ends = sorted({cut for cut in cuts if cut < len(content)} | {len(content)})
    connection, peer = met(listener, to(listener))
    parts = [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert answered(connection, peer, *parts[:-1]) is None
    assert answered(connection, peer, parts[-1]) == expected
    assert connection.reusable
    connection.close()


@given(response=responses(), part=st.floats(0, 1, exclude_max=True))
def test_a_response_that_is_cut_is_an_error(listener: Listener, response: tuple[bytes, Raw], part: float) -> None:
    content, _ = response
    connection, peer = met(listener, to(listener))
    peer.say(content[: int(part * len(content))])
    peer.flush()
    peer.close()
    with pytest.raises(ConnectionClosedError) as raised:
        without_response(connection)
    assert not unsent(raised.value)
    connection.close()


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (OK, True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + OK[17:], False),
        (b"HTTP/1.0 200 OK\r\n" + OK[17:], False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + OK[17:], True),
        (OK + b"x", False),
        (OK + b"HTTP/1.1 500 Error\r\nContent-Length: 3\r\n\r\nabc", False),
        (OK + b"HTTP/1.1 100 Continue\r\n\r\n", False),
    ],
)
def test_a_connection_is_kept_if_the_response_allows_it(listener: Listener, content: bytes, kept: bool) -> None:
    connections = to(listener)
    connection, peer = met(listener, connections)
    raw = answered(connection, peer, content)
    assert raw is not None
    assert (raw.status, raw.headers["content-length"], raw.body) == (200, "2", b"{}")
    connections.give(connection)
    another = connections.take()
    assert (another is connection) == kept
    another.close()
    connections.close()


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA\x00B: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_what_is_no_response_is_an_error(listener: Listener, content: bytes) -> None:
    connection, peer = met(listener, to(listener))
    with pytest.raises(UnexpectedHTTPError) as raised:
        answered(connection, peer, content)
    assert not unsent(raised.value)
    connection.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_a_body_without_a_length_is_an_error(listener: Listener, head: bytes) -> None:
    """It ends where the connection ends: nobody can tell whether it is whole."""
    connection, peer = met(listener, to(listener))
    assert answered(connection, peer, head + b"{}") is None
    peer.close()
    with pytest.raises(UnexpectedHTTPError):
        proceeded(connection)
    connection.close()


@pytest.mark.parametrize(
    ("start", "more", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nx-long: ", b"a", False),
        (b"HTTP/1.1 200 OK\r\n", b"x-many: 1\r\n", False),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"x-trailer: 1\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", b"a", True),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a", True),
    ],
    ids=["header", "headers", "100", "chunks", "extension", "trailers", "length", "no length"],
)
def test_a_response_without_an_end_is_an_error(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, start: bytes, more: bytes, body: bool
) -> None:
    long = 1 << 18
    monkeypatch.setattr("shardkit.runtime.responses._LONGEST", long)
    most = long if body else 1 << 16
    connection, peer = met(listener, to(listener))
    answered(connection, peer, start or more)
    piece = more * ((1 << 14) // len(more))
    with pytest.raises(UnexpectedHTTPError, match="longer"):
        answered(connection, peer, *[piece] * (2 * most // len(piece)))
    connection.close()


def test_a_silent_server_is_an_error(listener: Listener) -> None:
    connection, _ = met(listener, to(listener))
    assert connection.patience == PATIENT
    assert not connection.ready(0)
    with pytest.raises(ReadTimeoutError) as raised:
        connection.proceed(late=True)
    assert not unsent(raised.value)
    connection.close()


# Between two requests


def closed(peer: Peer) -> None:
    peer.close()


def reset(peer: Peer) -> None:
    peer.close(reset=True)


def unasked(peer: Peer) -> None:
    peer.say(OK)
    peer.flush()


def cut_record(peer: Peer) -> None:
    peer.say(OK)
    peer.flush(7)
    peer.close()


@pytest.mark.parametrize("end", [closed, reset, unasked, cut_record])
@pytest.mark.parametrize("over_tls", [False, True])
def test_a_connection_that_ended_is_replaced(tmp_path: Path, end: Callable[[Peer], None], over_tls: bool) -> None:
    with Listener(certified(tmp_path, "127.0.0.1") if over_tls else None) as listener:
        connections = to(listener, verify=str(tmp_path / "ca.pem"))
        connection, peer = met(listener, connections)
        answered(connection, peer, OK)
        connections.give(connection)
        end(peer)
        assert connection.ready(PATIENT)
        another = connections.take()
        assert another is not connection
        assert connection.sock.fileno() == -1
        another.close()


def test_connections_that_the_server_ended_do_not_pile_up(listener: Listener) -> None:
    connections = to(listener)
    peak = [met(listener, connections) for _ in range(4)]
    for connection, peer in peak:
        assert answered(connection, peer, OK) == OK_READ
    for connection, _ in peak:
        connections.give(connection)
    for _, peer in peak[:3]:
        peer.close()
    last, peer = peak[3]
    for _ in range(3):
        assert connections.take() is last
        peer.received = b""
        assert in_turn(last, peer, OK) == OK_READ
        connections.give(last)
    assert [connection.sock.fileno() >= 0 for connection, _ in peak] == [False, False, False, True]
    connections.close()


def test_a_record_without_data_does_not_end_a_connection(secure: Listener, tmp_path: Path) -> None:
    """In TLS 1.3 the tickets of the session may come while no request is under way."""
    connection = trusting(secure, tmp_path).take()
    assert connection.proceed() is None
    peer = secure.accept()
    while not connection.connected or not peer.waiting:
        if connection.ready(0):
            connection.proceed()
        peer.pump()
        if not connection.connected:
            peer.flush()
    peer.flush()
    assert connection.ready(PATIENT)
    assert connection.idle()
    connection.close()


@pytest.mark.parametrize("end", [closed, reset])
@pytest.mark.parametrize("over_tls", [False, True])
def test_a_request_to_a_server_that_has_gone(tmp_path: Path, end: Callable[[Peer], None], over_tls: bool) -> None:
    """As long as the client has not noticed: it may have got a part."""
    with Listener(certified(tmp_path, "127.0.0.1") if over_tls else None) as listener:
        connection, peer = met(listener, to(listener, verify=str(tmp_path / "ca.pem")))
        answered(connection, peer, OK)
        end(peer)
        with pytest.raises(ConnectionClosedError) as raised:
            started(connection, bytes(1 << 24))
        assert not unsent(raised.value)
        connection.close()


def started(connection: Connection, request: bytes) -> None:
    connection.start(request)
    without_response(connection)


def test_connections_are_closed_at_any_time(listener: Listener) -> None:
    connections = to(listener)
    first, peer = met(listener, connections)
    second, other = met(listener, connections)
    answered(first, peer, OK)
    connections.give(first)
    connections.close()
    assert first.sock.fileno() == -1
    answered(second, other, OK)
    connections.give(second)
    assert second.sock.fileno() == -1
    connections.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("over_tls", [False, True])
def test_a_forked_process_has_connections_of_its_own(tmp_path: Path, over_tls: bool) -> None:
    with Listener(certified(tmp_path, "127.0.0.1") if over_tls else None) as listener:
        connections = to(listener, verify=str(tmp_path / "ca.pem"))
        connection, peer = met(listener, connections)
        answered(connection, peer, OK)
        connections.give(connection)
        child = os.fork()
        if child == 0:
            another = connections.take()
            closed = connection.sock.fileno() == -1
            another.close()
            os._exit(0 if another is not connection and closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert connections.take() is connection
        peer.received = b""
        assert in_turn(connection, peer, OK) == OK_READ
        connection.close()
