"""One call past the client: what is sent, what the client's handlers see of it, and when it is sent again.

An :data:`Exchange` does no I/O: it yields what is to be done, so that threads, a selector and asyncio can drive it. The
first request of each operation goes through the client. Its ``before-sign`` event shows the endpoint, the region and
the signer, which also hands out the credentials of each later request. The events ``before-call``, ``before-send``,
``needs-retry``, ``after-call`` and ``after-call-error`` are emitted as botocore emits them. So observers, budgets,
stubs, moto and botocore's retries see these calls too; handlers of other events do not.

No request that may have been carried out is sent again, unless its operation may be repeated. It may have been if a
byte of it has left and no answer came, or one with a status of 500 or more that is no throttle (a gateway's timeout).
The same applies to requests that go through the client (``careful``, in :mod:`shardkit.runtime.drivers`).
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from botocore import UNSIGNED
from botocore.auth import AUTH_TYPE_MAPS
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import NoCredentialsError
from botocore.hooks import first_non_none_response
from botocore.parsers import ResponseParserFactory
from botocore.utils import get_environ_proxies

from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.service_errors import is_throttle_code
from shardkit.dynamodb.signing import Credentials, Signer
from shardkit.runtime.connections import UntrustedServerError, host_header
from shardkit.runtime.hooks import Answered, begun, call_in
from shardkit.runtime.observers import check, lost, show_failed
from shardkit.runtime.own_call import (
    BAD_GATEWAY,
    ITEM_OPERATIONS,
    NO_SUCCESS,
    OwnCall,
    check_sum,
    known_members,
    may_repeat,
    read_json,
    refusal,
)
from shardkit.runtime.responses import Raw, UnexpectedHTTPError
from shardkit.runtime.spans import CallSpans
from shardkit.runtime.targets import is_async
from shardkit.runtime.transports import DirectTransport
from shardkit.sharding.layout import Sharding

_KEPT = 16  # pairs of headers and credentials: operations, and those that a handler changes in each call
_JSON = "application/x-amz-json-1.0"
# The others are of one request (dates, signatures, trace IDs), or a handler's of an event that is not emitted here.
_LEARNED_HEADERS = frozenset({"content-type", "user-agent", "x-amz-target"})
_SIGNERS = frozenset({"botocore.auth", "botocore.crt.auth"})  # the second is of the extra boto3[crt]
_SERVER_ERROR = 500
_log = logging.getLogger("shardkit")
T = TypeVar("T")


class Pause(NamedTuple):
    """Try again after so many seconds."""

    seconds: float


Step = bytes | Pause | Callable[[], Any]
"""What an exchange asks for: the response to an HTTP request, a wait, or a function's result (await it if need be)."""
_Steps = Generator[Step, Any, T]
Exchange = _Steps[Answer]
"""One call: gets what it asked for, or the exception that ended it, and returns the answer.

It raises UnusualClientError if the call must go through the client.
"""


class UnusualClientError(Exception):
    """The client, or its endpoint, needs what the direct transport does not do."""


@dataclass(frozen=True, slots=True)
class _Learned:
    """What a request that the client sent shows about all requests of its operation."""

    url: str
    region: str
    service: str
    headers: Mapping[str, str]
    signer: Callable[[], Any]  # weak: see _Client
    signature_version: str


def _learned_from(request: Any, signing: Mapping[str, Any], config: Any) -> _Learned:
    """Read the arguments of ``before-sign``.

    Raises:
        UnusualClientError: Such requests must go through the client.
    """
    place, context = urlsplit(request.url), request.context.get("signing", {})
    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() in _LEARNED_HEADERS
    }
    if config.proxies or get_environ_proxies(request.url).get(place.scheme):
        raise UnusualClientError("it uses a proxy")
    if config.client_cert:
        raise UnusualClientError("it has a client certificate")
    if place.scheme not in {"http", "https"} or place.path not in {"", "/"} or place.query or place.username:
        raise UnusualClientError("its endpoint is more than a host and a port")
    if headers.get("Content-Type") != _JSON:
        raise UnusualClientError(f"it sends {headers.get('Content-Type')}")
    version = signing["signature_version"]
    if version != "v4":
        raise UnusualClientError(f"its signature version is {'none' if version is UNSIGNED else version}")
    if AUTH_TYPE_MAPS[version].__module__ not in _SIGNERS:
        raise UnusualClientError(f"its requests are signed with {AUTH_TYPE_MAPS[version].__name__}")
    return _Learned(
        request.url,
        context.get("region") or signing["region_name"],
        context.get("signing_name") or signing["signing_name"],
        headers,
        weakref.ref(signing["request_signer"]),
        version,
    )


class _Template:
    """The HTTP requests that have the same headers and credentials."""

    def __init__(self, learned: _Learned, credentials: Credentials, headers: Mapping[str, str]) -> None:
        named = {"Host": host_header(learned.url), **headers}
        self._signer = Signer(credentials, region=learned.region, service=learned.service, headers=named)
        if credentials.token:
            named["X-Amz-Security-Token"] = credentials.token
        texts = [credentials.access_key, *named, *named.values()]
        if any("\r" in text or "\n" in text for text in texts):
            raise ValueError(
                "headers: must be single lines, got one with a line break; look at the credentials, and at what the "
                "client's handlers of before-call add"
            )
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
        head = self._lines[: self._lines.index(b"\r\n\r\n")].split(b"\r\n")[1:]
        # Values are bytes, as botocore's are.
        return HeadersDict((name.decode(), value) for name, value in (line.split(b": ", 1) for line in head))


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


class _AsyncResponse(_Response):
    """The same for handlers of an async client, who await the content."""

    @property
    async def content(self) -> bytes:  # type: ignore[override]
        return self.raw.body  # type: ignore[no-any-return]


@dataclass
class _Client:
    """What is known of a client, for all exchanges over it. It must not keep the client alive."""

    learned: dict[tuple[str, ...], _Learned] = field(default_factory=dict)
    templates: dict[Any, _Template] = field(default_factory=dict)
    unusual: str | None = None
    _timestamp: tuple[int, str] = (0, "")

    def learn(self, request: Any, **signing: Any) -> None:
        call = call_in(request.context)
        if isinstance(call, OwnCall) and self.unusual is None:
            try:
                learned = _learned_from(request, signing, request.context["client_config"])
            except UnusualClientError as error:
                self.give_up(str(error))
            else:
                self.learned[_kind(call.operation, call.params)] = learned

    def give_up(self, why: str) -> None:
        """Send through the client from now on."""
        with _lock:
            first, self.unusual = self.unusual is None, self.unusual or why
        if first:
            _log.warning("transport='direct': requests go through the client from now on, because %s", why)

    def template(self, learned: _Learned, credentials: Credentials, headers: Mapping[str, str]) -> _Template:
        key = learned.url, credentials, tuple(headers.items())
        template = self.templates.get(key)
        if template is None:
            while len(self.templates) >= _KEPT:
                with suppress(KeyError, RuntimeError, StopIteration):  # another thread did it
                    del self.templates[next(iter(self.templates))]
            template = self.templates[key] = _Template(learned, credentials, headers)
        return template

    def timestamp(self) -> str:
        second, known = int(time.time()), self._timestamp
        if second != known[0]:
            known = self._timestamp = second, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        return known[1]


_clients: weakref.WeakKeyDictionary[Any, _Client] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _known(client: Any) -> _Client:
    with _lock:
        known = _clients.get(client)
        if known is None:
            known = _clients[client] = _Client()
            client.meta.events.register_last("before-sign.dynamodb", known.learn, unique_id="shardkit-learn")
        return known


class Exchanges:
    """Makes the exchanges of a client's item operations."""

    def __init__(self, client: Any, shardings: Mapping[str, Sharding], options: DirectTransport) -> None:
        self.client = client
        self.shardings = shardings
        self.known = _known(client)
        self.spans = CallSpans() if options.spans else None
        self.response = _AsyncResponse if is_async(client) else _Response
        self.adaptive = (client.meta.config.retries or {}).get("mode") == "adaptive"

    def of(self, send: Send) -> tuple[str, Exchange] | None:
        """Return the URL that a request goes to, and its exchange; None: it must go through the client."""
        learned = self.known.learned.get(_kind(send.operation, send.params))
        if learned is None or self.known.unusual is not None or send.operation not in ITEM_OPERATIONS:
            return None
        return learned.url, self._exchange(send, learned)

    def _exchange(self, send: Send, learned: _Learned) -> Exchange:
        call = _DirectCall(self, learned, send)
        try:
            parsed = yield from call.steps()
            answer: Answer = send.answer(call.own.response(parsed))
        except UnexpectedHTTPError as error:
            # Not the call's parameters: the client would make another token.
            if not may_repeat(send.operation, send.params):
                return error
            self.known.give_up(f"an answer was not as expected: {error}")
            raise UnusualClientError from error
        except Exception as error:  # noqa: BLE001 - the machine decides what to do about it
            return error
        return answer


class _DirectCall:
    """One call past the client, as botocore makes one: its events, its attempts, its retries."""

    def __init__(self, exchanges: Exchanges, learned: _Learned, send: Send) -> None:
        self._exchanges = exchanges
        self._client = exchanges.client
        self._learned = learned
        self._operation = send.operation
        self._model = self._client.meta.service_model.operation_model(send.operation)
        tokens = {name: str(uuid.uuid4()) for name in self._model.idempotent_members}  # as botocore makes them
        self.own = OwnCall(
            send.operation, {**tokens, **send.params}, exchanges.shardings, paced=send.paced, once=send.once
        )
        self._check = send.check
        self._request: dict[str, Any] = {}

    def steps(self) -> _Steps[dict[str, Any]]:
        """Make the call, and return the response in botocore's form; raise what the client would."""
        spans, learned = self._exchanges.spans, self._learned
        return self._called() if spans is None else spans.around(self.own, learned.url, learned.region, self._called())

    def _called(self) -> _Steps[dict[str, Any]]:
        meta = self._client.meta
        context = {
            "client_region": meta.region_name,
            "client_config": meta.config,
            "has_streaming_input": False,
            "auth_type": None,
            **begun(self._client, self.own),
        }
        self._request = {
            "url_path": "/",
            "query_string": "",
            "method": "POST",
            "headers": dict(self._learned.headers),
            "body": b"{}",
            "url": self._learned.url,
            "context": context,
        }
        _, answered = yield partial(
            meta.events.emit_until_response,
            f"before-call.dynamodb.{self._operation}",
            model=self._model,
            params=self._request,
            request_signer=self._learned.signer(),
            context=context,
        )
        if answered is None:
            try:
                answered = yield from self._retried()
            except Exception as error:
                yield self._emit("after-call-error", exception=error, context=context)
                raise
        http, parsed = answered
        yield self._emit("after-call", http_response=http, parsed=parsed, model=self._model, context=context)
        if http.status_code >= NO_SUCCESS:
            raise self._client.exceptions.from_code(parsed.get("Error", {}).get("Code"))(parsed, self._operation)
        whole: dict[str, Any] = parsed
        return whole

    def _emit(self, event: str, **given: Any) -> Step:
        return partial(self._client.meta.events.emit, f"{event}.dynamodb.{self._operation}", **given)

    def _retried(self) -> _Steps[Answered]:
        """Make attempts until botocore's retries ask for no other; return or raise what the last one ended with."""
        attempt = 1
        while True:
            self._request["context"]["retries"] = {"attempt": attempt}
            # Not before: a budget may have held the call back for longer than the last ones were valid.
            credentials = yield from self._credentials()
            answer = error = delay = None
            try:
                answer = yield from self._attempt(credentials)
            except Exception as failure:  # noqa: BLE001 - botocore's retries decide, as they do in the client
                error = failure
            if answer is None or answer[0].status_code >= NO_SUCCESS or self._exchanges.adaptive:
                delay = yield from self._delay(attempt, answer, error)
            if delay is not None:
                yield Pause(delay)
                attempt += 1
                continue
            if error is not None:
                raise error
            assert answer is not None
            answer[1]["ResponseMetadata"]["RetryAttempts"] = attempt - 1
            return answer

    def _credentials(self) -> _Steps[Credentials]:
        """Return the client's credentials; the client renews them if they expire."""
        learned = self._learned
        auth = yield partial(
            learned.signer().get_auth_instance, learned.service, learned.region, learned.signature_version
        )
        given: Any = auth.credentials
        if given is None:
            raise NoCredentialsError
        return Credentials(given.access_key, given.secret_key, given.token)

    def _attempt(self, credentials: Credentials) -> _Steps[Answered]:
        known, url, body = self._exchanges.known, self._learned.url, self._request["body"]
        template = known.template(self._learned, credentials, self._request["headers"])
        content = template.request(body, known.timestamp())
        if self._check is not None:
            self._check()  # after the signature: the age that the service allows for it bounds what comes later
        check(self.own)
        http = first_non_none_response((yield self._emit("before-send", request=_Prepared(url, body, content))))
        if http is None:
            raw = yield content
        else:
            content = yield lambda: http.content  # a function of an async client's response
            raw = Raw(http.status_code, {name.lower(): value for name, value in http.headers.items()}, content)
        check_sum(raw.headers, raw.body)
        if raw.status < NO_SUCCESS:
            answer, _ = read_json(raw.body)
            if self.own.answered_by(answer):
                parsed = known_members(answer, self._model)
                parsed["ResponseMetadata"] = {
                    "RequestId": raw.headers.get("x-amzn-requestid", ""),
                    "HTTPStatusCode": raw.status,
                    "HTTPHeaders": raw.headers,
                }
                return self._exchanges.response(url, raw), parsed
            raw = raw._replace(status=BAD_GATEWAY, body=refusal(self._operation, raw.body))
        return self._exchanges.response(url, raw), self._parsed_error(raw)

    def _parsed_error(self, raw: Raw) -> dict[str, Any]:
        service = self._client.meta.service_model
        parser = ResponseParserFactory().create_parser(service.resolved_protocol)
        response = {
            "status_code": raw.status,
            "headers": HeadersDict(raw.headers),
            "body": raw.body,
            "context": {"operation_name": self._operation},
        }
        parsed: dict[str, Any] = parser.parse(response, self._model.output_shape)
        code = parsed.get("Error", {}).get("Code")
        shape = None if code is None else service.shape_for_error_code(code)
        if shape is not None:
            parsed.update(parser.parse(response, shape))
        return parsed

    def _delay(self, attempt: int, answer: Answered | None, error: Exception | None) -> _Steps[float | None]:
        """Ask botocore's retries, and observers, about a failed attempt."""
        if isinstance(error, UntrustedServerError):
            return None  # botocore's retries would try again
        if _may_be_done(answer, error) and not may_repeat(self._operation, self.own.params):
            show_failed(self.own, lost(error) if answer is None else answer[1])
            return None
        responses = yield self._emit(
            "needs-retry",
            response=answer,
            endpoint=None,
            operation=self._model,
            attempts=attempt,
            caught_exception=error,
            request_dict=self._request,
        )
        delay = first_non_none_response(responses)
        return None if delay is None or delay is False else float(delay)


def _may_be_done(answer: Answered | None, error: Exception | None) -> bool:
    """Return whether the service may have carried out a request that failed."""
    if answer is None:
        return not getattr(error, "unsent", False)
    status: int = answer[0].status_code
    return status >= _SERVER_ERROR and not is_throttle_code(answer[1].get("Error", {}).get("Code"))


def _kind(operation: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the endpoint depends on: the account in a table's ARN may have its own."""
    names = params.get("RequestItems") or (params.get("TableName", ""),)
    if operation.startswith("Transact"):
        names = {part.get("TableName", "") for entry in params["TransactItems"] for part in entry.values()}
    return operation, *sorted([name for name in names if ":" in name])
