"""Requests past the client: shardkit signs them, and sends them over its own connections.

The first request of each operation goes through the client. Its ``before-sign`` event shows the endpoint, the region,
the headers and the signer, which also hands out the credentials of each later request. The events ``before-call``,
``before-send``, ``needs-retry``, ``after-call`` and ``after-call-error`` are emitted as botocore emits them. So
observers, budgets, stubs, moto and botocore's retries see these calls too; handlers of other events do not.

No request is sent again after a byte of it may have left, unless its operation may be repeated.
"""

from __future__ import annotations

import contextvars
import heapq
import logging
import selectors
import socket
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import ChecksumError
from botocore.hooks import first_non_none_response
from botocore.parsers import ResponseParserFactory
from botocore.utils import get_environ_proxies

from shardkit.core.machine import Answer, Done, Machine, Send, Wait
from shardkit.dynamodb.signing import Credentials, Signer
from shardkit.runtime.connections import (
    TRANSPORT_ERRORS,
    Connection,
    Connections,
    Endpoint,
    Raw,
    UnexpectedHTTPError,
    UntrustedServerError,
)
from shardkit.runtime.drivers import Loop, transport
from shardkit.runtime.hooks import begun, call_in
from shardkit.runtime.own_call import (
    BAD_GATEWAY,
    ITEM_OPERATIONS,
    NO_SUCCESS,
    OwnCall,
    known_members,
    read_json,
    refusal,
)
from shardkit.sharding.layout import Sharding

T = TypeVar("T")

_KEPT = 16  # pairs of headers and credentials: operations, and those that a handler changes in each call
_OF_ONE_REQUEST = frozenset({"amz-sdk-invocation-id", "amz-sdk-request", "authorization", "content-length",
                             "x-amz-date", "x-amz-security-token"})  # fmt: skip
_REPEATABLE = frozenset({"BatchGetItem", "BatchWriteItem", "GetItem", "Query", "Scan", "TransactGetItems"})
_WAKES = 4096
_JSON = "application/x-amz-json-1.0"
_log = logging.getLogger("shardkit")


class Pause(NamedTuple):
    """Try again after so many seconds."""

    seconds: float


Exchange = Generator["bytes | Pause", "Raw | Exception | None", Answer]
"""One call: yields each attempt's HTTP request, and gets its response or the exception that ended it."""


class UnusualClientError(Exception):
    """The client needs what the direct transport does not do."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a request that the client sent shows about all requests of its operation."""

    url: str
    region: str
    service: str
    headers: Mapping[str, str]
    signer: Callable[[], Any]  # weak: see _Client
    signature_version: str

    def credentials(self) -> Credentials:
        """Return the client's credentials; the client renews them if they expire."""
        auth = self.signer().get_auth_instance(self.service, self.region, self.signature_version)
        if type(auth) is not SigV4Auth or auth.credentials is None:
            raise UnusualClientError(f"its requests are signed with {type(auth).__name__}")
        given: Any = auth.credentials
        return Credentials(given.access_key, given.secret_key, given.token)


def learned_from(request: Any, signing: Mapping[str, Any], config: Any) -> Learned:
    """Read the arguments of ``before-sign``.

    Raises:
        UnusualClientError: The direct transport cannot send such requests.
    """
    place, context = urlsplit(request.url), request.context.get("signing", {})
    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in _OF_ONE_REQUEST
    }
    if config.proxies or (not config.proxies and get_environ_proxies(request.url).get(place.scheme)):
        raise UnusualClientError("it uses a proxy")
    if config.client_cert:
        raise UnusualClientError("it has a client certificate")
    if place.scheme not in {"http", "https"} or place.path not in {"", "/"} or place.query or place.username:
        raise UnusualClientError(f"its endpoint is {place.scheme}://{place.hostname}{place.path}")
    if headers.get("Content-Type") != _JSON:
        raise UnusualClientError(f"it sends {headers.get('Content-Type')}")
    version = signing["signature_version"]
    if version != "v4":
        raise UnusualClientError(f"its signature version is {version}")
    return Learned(
        request.url,
        context.get("region") or signing["region_name"],
        context.get("signing_name") or signing["signing_name"],
        headers,
        weakref.ref(signing["request_signer"]),
        version,
    )


class _Template:
    """The HTTP requests that have the same headers and credentials."""

    def __init__(self, learned: Learned, credentials: Credentials, host: str, headers: Mapping[str, str]) -> None:
        named = {"Host": host, **headers}
        if any("\r" in text or "\n" in text for pair in named.items() for text in pair):
            raise ValueError("headers: must be single lines, got one with a line break")
        self._signer = Signer(credentials, region=learned.region, service=learned.service, headers=named)
        if credentials.token:
            named["X-Amz-Security-Token"] = credentials.token
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._head = f"POST / HTTP/1.1\r\nAccept-Encoding: identity\r\n{lines}X-Amz-Date: ".encode()

    def request(self, body: bytes, timestamp: str) -> bytes:
        date, authorization = self._signer.sign(body, timestamp)
        return b"%b%b\r\nAuthorization: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            self._head,
            date.encode(),
            authorization.encode(),
            len(body),
            body,
        )


class _Prepared(AWSPreparedRequest):
    """The request for handlers of ``before-send``; they may not change it, and most do not read its headers."""

    def __init__(self, url: str, body: bytes, lines: bytes) -> None:
        self.method, self.url, self.body, self.stream_output, self._lines = "POST", url, body, False, lines

    @cached_property
    def headers(self) -> HeadersDict:  # type: ignore[override]
        head = self._lines[: self._lines.index(b"\r\n\r\n")].decode("latin-1").split("\r\n")[1:]
        return HeadersDict(line.split(": ", 1) for line in head)


class _Response(AWSResponse):
    """The response for handlers of ``after-call``; most do not read its headers."""

    def __init__(self, url: str, raw: Raw) -> None:
        self.url, self.status_code, self.raw = url, raw.status, raw

    @cached_property
    def headers(self) -> HeadersDict:  # type: ignore[override]
        return HeadersDict(self.raw.headers)

    @property
    def content(self) -> bytes:
        return self.raw.body  # type: ignore[no-any-return]


@dataclass
class _Client:
    """What is known of a client, shared by all transports over it. It must not keep the client alive."""

    learned: dict[tuple[str, ...], Learned] = field(default_factory=dict)
    templates: dict[Any, _Template] = field(default_factory=dict)
    unusual: str | None = None
    _connections: dict[str, Connections] = field(default_factory=dict)

    def learn(self, request: Any, **signing: Any) -> None:
        call = call_in(request.context)
        if isinstance(call, OwnCall) and self.unusual is None:
            try:
                learned = learned_from(request, signing, request.context["client_config"])
                learned.credentials()
            except UnusualClientError as error:
                self.give_up(str(error))
            else:
                self.learned[_kind(call.operation, call.params)] = learned

    def give_up(self, why: str) -> None:
        if self.unusual is None:
            self.unusual = why
            _log.warning("transport='direct': requests go through the client, because %s", why)

    def connections(self, url: str, config: Any) -> Connections:
        found = self._connections.get(url)
        if found is None:
            endpoint = Endpoint(url, config.connect_timeout, config.read_timeout, bool(config.tcp_keepalive))
            found = self._connections.setdefault(url, Connections(endpoint))
        return found

    def close(self) -> None:
        for connections in self._connections.values():
            connections.close()


_clients: weakref.WeakKeyDictionary[Any, _Client] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _known(client: Any) -> _Client:
    with _lock:
        known = _clients.get(client)
        if known is None:
            known = _clients[client] = _Client()
            client.meta.events.register_last("before-sign.dynamodb", known.learn, unique_id="shardkit-learn")
            weakref.finalize(client, known.close)
        return known


class DirectTransport:
    """Sends the requests of a client's item operations; other requests go through the client."""

    def __init__(self, client: Any, shardings: Mapping[str, Sharding]) -> None:
        self._client = client
        self._shardings = shardings
        self._through_client = transport(client, shardings)
        self._known = _known(client)
        self._timestamp = (0, "")
        self._adaptive = (client.meta.config.retries or {}).get("mode") == "adaptive"

    def exchange(self, send: Send) -> tuple[Connections, Exchange] | None:
        """Return a call and where its requests go; None: it must go through the client."""
        learned = self._known.learned.get(_kind(send.operation, send.params))
        if learned is None or self._known.unusual is not None or send.operation not in ITEM_OPERATIONS:
            return None
        connections = self._known.connections(learned.url, self._client.meta.config)
        return connections, self._exchange(send, learned, connections)

    def send(self, send: Send) -> Answer:
        """Send a request and return its answer."""
        found = self.exchange(send)
        if found is None:
            return self._through_client(send)
        connections, exchange = found
        return _ended(connections, exchange, None)

    def through_client(self, send: Send) -> Answer:
        return self._through_client(send)

    def _exchange(self, send: Send, learned: Learned, connections: Connections) -> Exchange:
        call = OwnCall(send.operation, dict(send.params), self._shardings, paced=send.paced)
        try:
            parsed = yield from self._attempts(call, learned, connections)
            answer: Answer = send.answer(call.response(parsed))
        except Exception as error:  # noqa: BLE001 - the machine decides what to do about it
            return error
        return answer

    def _attempts(
        self, call: OwnCall, learned: Learned, connections: Connections
    ) -> Generator[bytes | Pause, Raw | Exception | None, dict[str, Any]]:
        events, meta, operation = self._client.meta.events, self._client.meta, call.operation
        model = meta.service_model.operation_model(operation)
        context = {
            "client_region": meta.region_name,
            "client_config": meta.config,
            "has_streaming_input": False,
            "auth_type": None,
            **begun(self._client, call),
        }
        request: dict[str, Any] = {
            "url_path": "/",
            "query_string": "",
            "method": "POST",
            "headers": dict(learned.headers),
            "body": b"{}",
            "url": learned.url,
            "context": context,
        }
        _, answered = events.emit_until_response(
            f"before-call.dynamodb.{operation}",
            model=model,
            params=request,
            request_signer=learned.signer(),
            context=context,
        )
        if answered is not None:
            http, parsed = answered
        else:
            try:
                http, parsed = yield from self._retried(call, model, request, learned, connections)
            except Exception as error:
                events.emit(f"after-call-error.dynamodb.{operation}", exception=error, context=context)
                raise
        events.emit(f"after-call.dynamodb.{operation}", http_response=http, parsed=parsed, model=model, context=context)
        if http.status_code >= NO_SUCCESS:
            code = parsed.get("Error", {}).get("Code")
            raise self._client.exceptions.from_code(code)(parsed, operation)
        whole: dict[str, Any] = parsed
        return whole

    def _retried(
        self, call: OwnCall, model: Any, request: dict[str, Any], learned: Learned, connections: Connections
    ) -> Generator[bytes | Pause, Raw | Exception | None, tuple[AWSResponse, dict[str, Any]]]:
        attempts = 1
        while True:
            request["context"]["retries"] = {"attempt": attempts}
            answer, error = yield from self._attempt(call, model, request, learned, connections)
            failed = error is not None or answer[0].status_code >= NO_SUCCESS
            delay = None
            if failed or self._adaptive:
                delay = self._delay(call, model, request, attempts, answer, error)
            if delay is None:
                break
            yield Pause(delay)
            attempts += 1
        if error is not None:
            raise error
        http, parsed = answer
        parsed["ResponseMetadata"]["RetryAttempts"] = attempts - 1
        return http, parsed

    def _attempt(
        self, call: OwnCall, model: Any, request: dict[str, Any], learned: Learned, connections: Connections
    ) -> Generator[bytes | Pause, Raw | Exception | None, tuple[Any, Exception | None]]:
        content = self._http(learned, connections.host, request)
        prepared = _Prepared(learned.url, request["body"], content)
        responses = self._client.meta.events.emit(f"before-send.dynamodb.{call.operation}", request=prepared)
        http = first_non_none_response(responses)
        if http is not None:
            raw: Raw | Exception | None = Raw(
                http.status_code, {name.lower(): value for name, value in http.headers.items()}, http.content
            )
        else:
            raw = yield content
        assert raw is not None
        if isinstance(raw, UnexpectedHTTPError):
            self._known.give_up(f"an answer was not as expected ({raw})")
        if isinstance(raw, Exception):
            return None, raw
        crc = raw.headers.get("x-amz-crc32")
        if crc is not None and int(crc) != zlib.crc32(raw.body):
            actual = str(zlib.crc32(raw.body))
            return None, ChecksumError(checksum_type="crc32", expected_checksum=crc, actual_checksum=actual)
        if raw.status >= NO_SUCCESS:
            parsed = self._error(call, model, raw)
        else:
            body, _ = read_json(raw.body)
            if call.answered_by(body):
                parsed = known_members(body, model)
                parsed["ResponseMetadata"] = {
                    "RequestId": raw.headers.get("x-amzn-requestid", ""),
                    "HTTPStatusCode": raw.status,
                    "HTTPHeaders": raw.headers,
                }
            else:
                raw = raw._replace(status=BAD_GATEWAY, body=refusal(call.operation, raw.body))
                parsed = self._error(call, model, raw)
        return (_Response(learned.url, raw), parsed), None

    def _error(self, call: OwnCall, model: Any, raw: Raw) -> dict[str, Any]:
        service = self._client.meta.service_model
        parser = ResponseParserFactory().create_parser(service.resolved_protocol)
        response = {
            "status_code": raw.status,
            "headers": HeadersDict(raw.headers),
            "body": raw.body,
            "context": {"operation_name": call.operation},
        }
        parsed: dict[str, Any] = parser.parse(response, model.output_shape)
        code = parsed.get("Error", {}).get("Code")
        shape = None if code is None else service.shape_for_error_code(code)
        if shape is not None:
            parsed.update(parser.parse(response, shape))
        return parsed

    def _delay(
        self, call: OwnCall, model: Any, request: dict[str, Any], attempts: int, answer: Any, error: Exception | None
    ) -> float | None:
        """Ask botocore's retries, and observers, about a failed attempt."""
        if isinstance(error, UntrustedServerError):
            return None  # botocore's retries would try again
        if error is not None and not may_repeat(call.operation, call.params) and not _unsent(error):
            return None
        responses = self._client.meta.events.emit(
            f"needs-retry.dynamodb.{call.operation}",
            response=answer,
            endpoint=None,
            operation=model,
            attempts=attempts,
            caught_exception=error,
            request_dict=request,
        )
        delay = first_non_none_response(responses)
        return None if delay is None or delay is False else float(delay)

    def _http(self, learned: Learned, host: str, request: dict[str, Any]) -> bytes:
        credentials, headers = learned.credentials(), request["headers"]
        templates = self._known.templates
        key = host, credentials, tuple(headers.items())
        template = templates.get(key)
        if template is None:
            while len(templates) >= _KEPT:
                with suppress(KeyError, RuntimeError, StopIteration):  # another thread did it
                    del templates[next(iter(templates))]
            template = templates[key] = _Template(learned, credentials, host, headers)
        second = int(time.time())
        known, timestamp = self._timestamp
        if second != known:
            timestamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
            self._timestamp = second, timestamp
        return template.request(request["body"], timestamp)


def may_repeat(operation: str, params: Mapping[str, Any]) -> bool:
    """Return whether a request does the same if it is sent twice."""
    if operation in {"DeleteItem", "PutItem"}:
        return not {"ConditionExpression", "Expected"} & params.keys() and params.get("ReturnValues", "NONE") == "NONE"
    return operation in _REPEATABLE or (operation == "TransactWriteItems" and "ClientRequestToken" in params)


def _unsent(error: Exception) -> bool:
    return bool(getattr(error, "unsent", False))


def _kind(operation: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the endpoint depends on: the account in a table's ARN may have its own."""
    names = params.get("RequestItems") or (params.get("TableName", ""),)
    if operation.startswith("Transact"):
        names = {part.get("TableName", "") for entry in params["TransactItems"] for part in entry.values()}
    return operation, *sorted(name for name in names if ":" in name)


def _begin(connections: Connections, content: bytes) -> Connection:
    """Start a request on a connection; a connection that the server had closed before is replaced."""
    connection = connections.take()
    try:
        connection.start(content)
    except TRANSPORT_ERRORS:
        connection.close()
        raise
    return connection


def _ended(connections: Connections, exchange: Exchange, given: Raw | Exception | None) -> Answer:
    """Run an exchange to its end and return its answer."""
    while True:
        try:
            step = exchange.send(given)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            given = None
            continue
        try:
            connection = _begin(connections, step)
        except Exception as error:  # noqa: BLE001 - the exchange decides what to do about it
            given = error
        else:
            given = _received(connections, connection)


def _received(connections: Connections, connection: Connection) -> Raw | Exception:
    try:
        while True:
            raw = connection.proceed(late=not connection.ready(connection.patience))
            if raw is not None:
                connections.give(connection)
                return raw
    except TRANSPORT_ERRORS as error:
        connection.close()
        return error
    except BaseException:
        connection.close()
        raise


@dataclass(eq=False, slots=True)
class _Flight:
    send: Send
    connections: Connections
    exchange: Exchange
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    connection: Connection | None = None
    until: float = 0.0

    def end(self) -> None:
        """Run the exchange to its end, away from its driver."""
        given = None if self.connection is None else _received(self.connections, self.connection)
        self.context.run(_ended, self.connections, self.exchange, given)


class DirectDriver(Loop[T]):
    """Runs a machine on the caller's thread, with as many connections as requests may be in flight.

    Requests that must go through the client have threads of ``executor``. ``waiting`` makes a context manager that is
    entered for each wait, where an interruption is safe.
    """

    def __init__(
        self,
        machine: Machine[T],
        through: DirectTransport,
        most: int,
        *,
        executor: Callable[[], Executor],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(machine, clock)
        self._through = through
        self._most = most
        self._sleep = sleep
        self._waiting = waiting
        self._selector = selectors.DefaultSelector()
        self._flying: set[_Flight] = set()
        self._paused: list[tuple[float, int, _Flight]] = []
        self._idle: dict[Connections, list[Connection]] = {}
        self._executor = executor
        self._lent: dict[Future[Answer], Send] = {}
        self._ended: SimpleQueue[Future[Answer]] = SimpleQueue()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)  # noqa: FBT003 - its only form
        self._selector.register(self._woken, selectors.EVENT_READ)

    @property
    def _under_way(self) -> int:
        return len(self._flying) + len(self._paused) + len(self._lent)

    def run(self) -> T:
        """Run the machine to its next result; a machine that streams can be run again."""
        try:
            return self._run()
        except Exception:
            self.close()
            raise

    def _run(self) -> T:
        while True:
            step = self._step()
            answered = self._start(step)
            if isinstance(step, Done):
                # A machine that streams may be left alone from here on.
                self._let_go([flight for flight in self._flying if not flight.send.needed])
                if not self._under_way:
                    self._give_back()
                return step.value
            if not answered:
                self._wait(step)

    def _start(self, step: Wait | Done[T]) -> bool:
        """Start what the machine has issued; return whether a request was answered at once."""
        answered = False
        while self._unsent and self._under_way < self._most:
            send = self._unsent[0]
            found = self._through.exchange(send)
            if found is None and self._alone(step, self._under_way) is not None:
                answer = self._through.through_client(send)
                self._unsent.popleft()
                self._answered(send, answer)
                answered = True
            elif found is None:
                future = self._executor().submit(contextvars.copy_context().run, self._through.through_client, send)
                self._lent[future] = self._unsent.popleft()
                future.add_done_callback(self._wake)
            else:
                self._unsent.popleft()
                answered |= self._resume(_Flight(send, *found), None)
        return answered

    def _resume(self, flight: _Flight, given: Raw | Exception | None) -> bool:
        """Pass an exchange what it waits for; return whether it has ended."""
        while True:
            try:
                step = flight.context.run(flight.exchange.send, given)
            except StopIteration as stop:
                self._answered(flight.send, stop.value)
                return True
            if isinstance(step, Pause):
                flight.connection = None
                heapq.heappush(self._paused, (time.monotonic() + step.seconds, id(flight), flight))
                return False
            try:
                connection = self._begun(flight.connections, step)
            except Exception as error:  # noqa: BLE001 - the exchange decides what to do about it
                given = error
                continue
            flight.connection = connection
            self._watch(flight)
            self._flying.add(flight)
            return False

    def _begun(self, connections: Connections, content: bytes) -> Connection:
        idle = self._idle.setdefault(connections, [])
        while idle:
            connection = idle.pop()
            if connection.idle():
                try:
                    connection.start(content)
                except TRANSPORT_ERRORS:
                    self._drop(connection)
                    raise
                return connection
            self._drop(connection)
        connection = _begin(connections, content)
        self._selector.register(connection.sock, selectors.EVENT_READ, (connection, None))
        return connection

    def _watch(self, flight: _Flight) -> None:
        connection = flight.connection
        assert connection is not None
        flight.until = time.monotonic() + connection.patience
        events = selectors.EVENT_WRITE if connection.writing else selectors.EVENT_READ
        key = self._selector.get_key(connection.sock)
        if key.events != events or key.data[1] is not flight:
            self._selector.modify(connection.sock, events, (connection, flight))

    def _wait(self, step: Wait) -> None:
        seconds = self._left(step, self._under_way)
        if not self._under_way:
            with self._waiting():
                self._sleep(seconds or 0.0)
            return
        now = time.monotonic()
        ends = [flight.until - now for flight in self._flying]
        if self._paused:
            ends.append(self._paused[0][0] - now)
        if seconds is not None:
            ends.append(seconds)
        with self._waiting():
            ready = self._selector.select(max(0.0, min(ends)) if ends else None)
        for key, _ in ready:
            if key.data is None:
                self._take_back()
                continue
            connection, flight = key.data
            if flight is None or flight not in self._flying:
                self._idle_ended(connection)
            else:
                self._proceed(flight)
        self._late()

    def _wake(self, future: Future[Answer]) -> None:
        self._ended.put(future)
        with suppress(OSError):  # the driver is gone
            self._waker.send(b"1")

    def _take_back(self) -> None:
        """Take the answers that came through the client."""
        self._woken.recv(_WAKES)
        with suppress(Empty):
            while True:
                future = self._ended.get_nowait()
                send = self._lent.pop(future, None)
                if send is not None and future.cancelled():
                    self._unsent.append(send)
                elif send is not None:
                    self._answered(send, future.result())

    def _proceed(self, flight: _Flight, *, late: bool = False) -> None:
        connection = flight.connection
        assert connection is not None
        raw: Raw | Exception | None
        connecting = not connection.connected
        if connecting:
            self._selector.unregister(connection.sock)  # which this step may replace
        try:
            raw = connection.proceed(late=late)
        except TRANSPORT_ERRORS as error:
            raw = error
        if connecting and not isinstance(raw, Exception):
            self._selector.register(connection.sock, selectors.EVENT_READ, (connection, flight))
        if raw is None:
            self._watch(flight)
            return
        self._flying.discard(flight)
        if isinstance(raw, Exception) or not connection.reusable:
            self._drop(connection)
        else:
            self._idle[flight.connections].append(connection)
        self._resume(flight, raw)

    def _late(self) -> None:
        now = time.monotonic()
        for flight in [flight for flight in self._flying if flight.until <= now]:
            if flight in self._flying:
                self._proceed(flight, late=True)
        while self._paused and self._paused[0][0] <= now:
            self._resume(heapq.heappop(self._paused)[2], None)

    def _idle_ended(self, connection: Connection) -> None:
        """Forget a connection on which something came that no request asked for, which is its end as a rule."""
        if connection.idle():  # a record of TLS that carries no byte
            return
        for idle in self._idle.values():
            if connection in idle:
                idle.remove(connection)
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.close()

    def close(self) -> None:
        """Let requests in flight end by themselves, on a thread: they consume units, which must be counted."""
        for future in list(self._lent):
            future.cancel()
        self._let_go([*self._flying, *(flight for _, _, flight in self._paused)])
        self._paused.clear()
        self._give_back()

    def _let_go(self, flights: Iterable[_Flight]) -> None:
        for flight in flights:
            self._flying.discard(flight)
            if flight.connection is not None:
                self._selector.unregister(flight.connection.sock)
            self._executor().submit(flight.end)

    def __del__(self) -> None:
        for flight in self._flying:
            assert flight.connection is not None
            flight.connection.close()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _give_back(self) -> None:
        for connections, idle in self._idle.items():
            for connection in idle:
                self._selector.unregister(connection.sock)
                connections.give(connection)
        self._idle.clear()
