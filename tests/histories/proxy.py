"""Between the processes and the engine: requests are delayed, lost, repeated, late; and what went is written down."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import urllib3

from tests.histories.records import Recorder
from tests.support.wire import received, respond

READS = frozenset({"BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan", "TransactGetItems"})
FAULTS: Mapping[str, Mapping[str, float]] = {
    # How many of 1000 requests. What a client repeats or loses is its own operation, so writes of clients are not sent
    # twice: that would be another operation. A mover's may be.
    "client": {"delay": 400, "long delay": 15, "lose": 8, "lose answer": 12, "late": 12, "repeat read": 30},
    "mover": {"delay": 300, "long delay": 20, "lose": 8, "lose answer": 12, "late": 12, "repeat": 100},
}
_SECONDS = {"delay": 0.15, "long delay": 0.9, "late": 0.9, "repeat": 0.6, "repeat read": 0.6}


class Proxy:
    """Passes requests on to an engine. The access key of each tells which process sent it: its kind and number.

    As the service does, it refuses what was signed more than ``age_seconds`` ago.
    """

    def __init__(self, upstream: str, log: Path, seed: int, age_seconds: float) -> None:
        parts = urlsplit(upstream)
        self._pool = urllib3.HTTPConnectionPool(str(parts.hostname), parts.port, maxsize=100, retries=False)
        self._log = Recorder(log, "proxy")
        self._rng = Random(f"{seed} proxy")
        self._age = int(age_seconds * 1e9)
        self._lock = threading.Lock()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        came = time.monotonic_ns()
        operation, body = received(request)
        if len(body) < int(request.headers["Content-Length"]):
            return  # its process was killed in between
        process = request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        kind = "mover" if process.startswith("mover") else "client"
        with self._lock:
            fault = self._drawn(kind, operation)
            seconds = self._rng.random() * _SECONDS.get(fault, 0.0)
        signed = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        # By the clock of the records.
        moment = came - int((time.time() - signed.timestamp()) * 1e9)
        note = {"p": process, "op": operation, "came": came, "signed": moment, "fault": fault}
        gone = fault in {"lose", "late"}
        if gone:
            _cut(request)
        if "delay" in fault or fault == "late":
            time.sleep(seconds)
        if fault == "lose":
            self._log.write(note)
            return
        answer = self._passed_on(request, body, note)
        if gone:
            return
        if fault == "lose answer" or answer is None:
            _cut(request)
        else:
            respond(request, *answer)
        if "repeat" in fault:
            time.sleep(seconds)
            self._passed_on(request, body, {**note, "fault": "repeated"})

    def _drawn(self, kind: str, operation: str) -> str:
        at = self._rng.random() * 1000
        for fault, share in FAULTS[kind].items():
            at -= share
            if at < 0:
                return "none" if fault == "repeat read" and operation not in READS else fault
        return "none"

    def _passed_on(
        self, request: BaseHTTPRequestHandler, body: bytes, note: dict[str, Any]
    ) -> tuple[int, bytes, dict[str, str]] | None:
        note["sent"] = time.monotonic_ns()
        if note["sent"] - note["signed"] >= self._age:
            self._log.write({**note, "fault": "too old"})
            return None
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        # DynamoDB Local keeps the tables of each access key apart.
        headers["Authorization"] = headers["Authorization"].replace(f"Credential={note['p']}/", "Credential=testing/")
        response = self._pool.urlopen("POST", "/", body, headers)
        note |= {"answered": time.monotonic_ns(), "status": response.status}
        if note["op"] == "GetItem" and b"shardkit:map" in body and response.status == 200:
            item = json.loads(response.data).get("Item")
            if item is not None:
                told = json.loads(item["shardkit:map"]["S"])
                note["map"] = [told["generation"], told["stage"]]
        self._log.write(note)
        kept = {name: value for name, value in response.headers.items() if name.lower() == "x-amz-crc32"}
        return response.status, response.data, kept


def _cut(request: BaseHTTPRequestHandler) -> None:
    """End a connection without an answer."""
    request.connection.shutdown(socket.SHUT_RDWR)
    request.close_connection = True
