"""What goes over the wire, request by request: units as the engine reports them, and rounds of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import urllib3
from botocore.awsrequest import AWSResponse

__all__ = ["Sent", "Wire"]


_PATIENCE = 20
"""How many times as long the first round waits for the requests that it expects."""


@dataclass(frozen=True)
class Sent:
    """A Query that was answered: the physical key it asked, the read units it took, and in which round it was sent."""

    key: str
    units: float
    round: int


class Wire:
    """Carries a client's requests in botocore's place (``before-send``), so that every one of them is seen.

    With ``quiet`` every answer is held back until no request has come for so many seconds: what a client sends until
    then needs none of the answers that are held, and that is a round. Any client can be measured so, whatever is inside
    it, as long as it may have all requests of a round under way at once. A machine that is too busy to send a request
    within ``quiet`` makes a round look like two; nothing makes two look like one. Of the first round it is known how
    many requests will probably come (one a connection): until then the wait is longer.
    """

    def __init__(self, *, connections: int = 1, quiet: float | None = None) -> None:
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False)
        self._first = connections
        self._quiet = quiet
        self._changed = threading.Condition()
        self._round = 1
        self._touched = 0.0
        self.sent: list[Sent] = []

    @property
    def units(self) -> float:
        """Read units of all requests."""
        return sum(sent.units for sent in self.sent)

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return max((sent.round for sent in self.sent), default=0)

    @property
    def refills(self) -> int:
        """How many requests asked a shard that had been asked before."""
        return len(self.sent) - len({sent.key for sent in self.sent})

    @contextmanager
    def carrying(self, client: Any) -> Iterator[Wire]:
        """Carry what a client sends inside the ``with``; what was seen before is forgotten."""
        self.sent, self._round = [], 1
        client.meta.events.register("before-send.dynamodb.Query", self._carry)
        try:
            yield self
        finally:
            client.meta.events.unregister("before-send.dynamodb.Query", self._carry)

    def close(self) -> None:
        """Close its connections."""
        self._pool.clear()

    def _carry(self, request: Any, **_: Any) -> AWSResponse:
        with self._changed:
            self._touched = time.monotonic()
            number = self._round
        # As it would have gone out: urllib3 says itself how long the body is.
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        answer = self._pool.request(request.method, request.url, body=request.body, headers=headers)
        told = orjson.loads(answer.data).get("ConsumedCapacity")
        if told is None:
            raise RuntimeError("a Query went out without ReturnConsumedCapacity: its units cannot be counted")
        # The condition is '=' on the partition key: the one value that has the day in it.
        values = orjson.loads(request.body)["ExpressionAttributeValues"].values()
        key = max((value["S"] for value in values), key=lambda text: "-" in text)
        with self._changed:
            self.sent.append(Sent(key, told["CapacityUnits"], number))
            if self._quiet is not None:
                self._hold(number, self._quiet)
        raw: Any = _Raw(answer.data)
        headers_back: Any = dict(answer.headers)
        return AWSResponse(request.url, answer.status, headers_back, raw)

    def _hold(self, number: int, quiet: float) -> None:
        self._touched = time.monotonic()
        while self._round == number:
            patience = _PATIENCE if len(self.sent) < self._first else 1
            left = self._touched + quiet * patience - time.monotonic()
            if left > 0:
                self._changed.wait(left)
            else:
                self._round += 1
                self._changed.notify_all()


class _Raw:
    """The part of urllib3's response that botocore reads."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._body
