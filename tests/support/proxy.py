"""A proxy in front of an engine that loses, delays, cuts and refuses requests by a schedule."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

import urllib3

from tests.support.wire import THROTTLE, error, listening, received, respond

Fault = Literal[
    "none", "delay", "drop", "drop after", "reset", "reset after", "cut", "500", "500 after", "503", "throttle",
    "throttle key", "throttle table", "unprocessed", "unprocessed cut", "all unprocessed", "expired", "account",
]  # fmt: skip
"""What the proxy does with a request. With ``after``, the engine gets it, but the client gets no answer.

``drop`` closes the connection normally, ``reset`` resets it, ``cut`` sends half of the answer. ``unprocessed`` and
``account`` are for BatchWriteItem only.
"""
PASSING: tuple[Fault, ...] = tuple(fault for fault in get_args(Fault) if fault not in {"expired", "account"})
"""The faults after which the same request may succeed."""
Stage = Literal["came", "carried out", "answered"]

DELAY_SECONDS = 0.02
_ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/"
# For each refusal, the error code, and the limit that its reason names.
_REFUSALS: Mapping[Fault, tuple[str, str | None]] = {
    "500": ("InternalServerError", None),
    "500 after": ("InternalServerError", None),
    "503": ("ServiceUnavailable", None),
    "throttle": (THROTTLE, None),
    "throttle key": ("ThrottlingException", "TableWriteKeyRangeThroughputExceeded"),
    "throttle table": (THROTTLE, "TableWriteProvisionedThroughputExceeded"),
    "account": ("RequestLimitExceeded", "TableWriteAccountLimitExceeded"),
    "expired": ("ExpiredTokenException", None),
}


def some_faults(rng: Random, count: int, share: float = 0.5) -> list[Fault]:
    """Return a schedule of ``count`` requests, of which a share gets a fault: each passing fault in turn."""
    faults = [fault for fault in PASSING if fault != "none"]
    return [faults[number % len(faults)] if rng.random() < share else "none" for number in range(count)]


class Proxy:
    """Passes requests on to an engine; used as a context manager.

    Args:
        upstream: The engine's URL.
        schedule: The fault of each request of the operation; requests after its end are passed on.
        watch: Called with each such request's number, from 1, at each of its stages; if it raises an OSError, the
            connection ends there.
        operation: The operation's name; the requests of others are passed on.

    Attributes:
        endpoint: The proxy's URL.
        counts: How many requests met each fault.
        writes: How many puts and deletes came in batches.
    """

    def __init__(
        self,
        upstream: str,
        schedule: Iterable[Fault] = (),
        watch: Callable[[int, Stage], object] = lambda *_: None,
        *,
        operation: str = "BatchWriteItem",
    ) -> None:
        self.counts: Counter[Fault] = Counter()
        self.writes = 0
        self._schedule = iter(schedule)
        self._watch = watch
        self._operation = operation
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._idle = threading.Condition()
        self._under_way = 0
        parts = urlsplit(upstream)
        self._pool = urllib3.HTTPConnectionPool(str(parts.hostname), parts.port, maxsize=50, retries=False)
        self._listening = listening(self._handle)

    def __enter__(self) -> Self:
        self.endpoint = self._listening.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._listening.__exit__(None, None, None)
        self._pool.close()

    def settle(self) -> None:
        """Wait until no request is in progress."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way)

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        with self._idle:
            self._under_way += 1
        try:
            self._answer(request, *received(request))
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def _answer(self, request: BaseHTTPRequestHandler, operation: str, body: bytes) -> None:
        if operation != self._operation:
            respond(request, *self._passed_on(request, body))
            return
        with self._lock:
            fault: Fault = next(self._schedule, "none")
            self.counts[fault] += 1
            number = self.counts.total()
            self.writes += sum(map(len, json.loads(body).get("RequestItems", {}).values()))
        self._watch(number, "came")
        if fault == "delay":
            self._closing.wait(DELAY_SECONDS)
        left: dict[str, Any] = {}
        if "unprocessed" in fault:
            body, left = _parted(body, keep=0.0 if fault == "all unprocessed" else 0.5)
        carried_out = fault in {"none", "delay"} or fault.endswith(("after", "cut", "unprocessed"))
        answer = self._passed_on(request, body) if carried_out and body else (200, b"{}", {})
        if carried_out:
            self._watch(number, "carried out")
        try:
            if "drop" in fault or "reset" in fault:
                if "reset" in fault:
                    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    os.close(request.connection.detach())
                request.close_connection = True
            elif fault in _REFUSALS:
                respond(request, *_refusal(fault, body))
            else:
                if left:
                    answer = 200, json.dumps({**json.loads(answer[1]), "UnprocessedItems": left}).encode(), {}
                respond(request, *answer, half=fault.endswith("cut"))
        finally:
            # Also if the sender is dead, because the request came from a process that was killed before this run.
            self._watch(number, "answered")

    def _passed_on(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        headers["Content-Length"] = str(len(body))
        response = self._pool.urlopen("POST", "/", body, headers)
        kept = {name: value for name, value in response.headers.items() if name.lower() == "x-amz-crc32"}
        return response.status, response.data, kept


def _parted(body: bytes, keep: float) -> tuple[bytes, dict[str, Any]]:
    """Return the first part of a request (``keep`` of it), and the rest, which stays unprocessed."""
    params = json.loads(body)
    ((table, requests),) = params["RequestItems"].items()
    kept = int(len(requests) * keep)
    first = json.dumps({**params, "RequestItems": {table: requests[:kept]}}).encode() if kept else b""
    return first, {table: requests[kept:]}


def _refusal(fault: Fault, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    code, reason = _REFUSALS[fault]
    status, said = error(code)
    if reason is not None:
        (table,) = json.loads(body)["RequestItems"]
        # Lower camel case in the one exception, as its model has it.
        name = "throttlingReasons" if code == "ThrottlingException" else "ThrottlingReasons"
        said[name] = [{"reason": reason, "resource": _ARN + table}]
    return status, json.dumps(said).encode(), {}
