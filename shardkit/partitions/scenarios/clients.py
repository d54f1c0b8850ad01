"""The clients of a scenario, as machines: boto3's ``batch_writer`` and retries, and calls at a steady rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from shardkit.bulk.load_window import BATCH_ITEMS
from shardkit.core.machine import Answer, Done, Machine, Program, Response, Send, Step, Wait
from shardkit.dynamodb.service_errors import is_throttle

ATTEMPTS = 4
"""Tries of a request to DynamoDB, including the first."""
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 20.0
_QUOTA = 500
_QUOTA_OF_A_RETRY = 5
_QUOTA_OF_A_SUCCESS = 1


class Retries:
    """The retries of one boto3 client, in botocore's default mode, ``standard``.

    A throttled request is retried after a random time of at most 1, 2, 4 … seconds, unless the retries have used up a
    quota of the client, which successes refill. ``attempts`` include the first one; ``draw`` draws from [0, 1).

    Source: AWS SDKs and Tools Reference Guide, "Retry behavior"; botocore 1.44.
    """

    def __init__(self, attempts: int, draw: Callable[[], float]) -> None:
        self._attempts = attempts
        self._draw = draw
        self._quota = _QUOTA

    def call(self, send: Send) -> Program[Response]:
        attempt = 0
        while True:
            attempt += 1
            try:
                response: Response = yield send
            except Exception as error:
                if not is_throttle(error) or attempt >= self._attempts or self._quota < _QUOTA_OF_A_RETRY:
                    raise
                self._quota -= _QUOTA_OF_A_RETRY
            else:
                back = _QUOTA_OF_A_SUCCESS if attempt == 1 else _QUOTA_OF_A_RETRY
                self._quota = min(_QUOTA, self._quota + back)
                return response
            now: float = yield Wait(0.0)
            yield Wait(now + self._draw() * min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** (attempt - 1)))


def batch_writer(table: str, items: Iterable[Mapping[str, Any]], retries: Retries) -> Program[None]:
    """Write stored items as boto3's ``Table.batch_writer()`` does.

    It sends batches of 25, one after another. Unprocessed items go to the end of the buffer, and are sent with a later
    batch without waiting. A batch that stays throttled raises.

    Source: boto3 1.44, ``boto3.dynamodb.table.BatchWriter``.
    """
    buffer: list[Any] = []

    def flush() -> Program[None]:
        batch = buffer[:BATCH_ITEMS]
        del buffer[:BATCH_ITEMS]
        response = yield from retries.call(Send("BatchWriteItem", {"RequestItems": {table: batch}}))
        for left in (response.get("UnprocessedItems") or {}).values():
            buffer.extend(left)

    for item in items:
        buffer.append({"PutRequest": {"Item": item}})
        if len(buffer) >= BATCH_ITEMS:
            yield from flush()
    while buffer:
        yield from flush()


class ConcurrentClients:
    """Runs machines side by side and independently; more can be added at any time.

    ``failed`` is the number of machines that ended in an error; ``error``, the first error.
    """

    def __init__(self, *machines: Machine[Any]) -> None:
        self._ready: deque[Machine[Any]] = deque(machines)
        self._under_way = set(machines)
        self._asked: dict[Send, Machine[Any]] = {}
        self._waiting: list[tuple[float, int, Machine[Any]]] = []
        self._order = count()
        self.failed = 0
        self.error: Exception | None = None

    @property
    def ended(self) -> bool:
        return not self._under_way

    def add(self, machine: Machine[Any]) -> None:
        self._under_way.add(machine)
        self._ready.append(machine)

    def next(self, now: float) -> Step[None]:
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heappop(self._waiting)[2])
        while self._ready:
            machine = self._ready[0]
            step = self._ask(machine, now)
            if isinstance(step, Send):
                self._asked[step] = machine
                return step
            self._ready.popleft()
            if step is not None and step.until is not None:
                heappush(self._waiting, (step.until, next(self._order), machine))
        if self.ended:
            return Done(None)
        return Wait(self._waiting[0][0] if self._waiting else None)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        machine = self._asked.pop(send)
        machine.receive(send, answer, now)
        self._ready.append(machine)

    def _ask(self, machine: Machine[Any], now: float) -> Send | Wait | None:
        """Return a machine's next step; None: it has ended, perhaps earlier, with a wait left in the queue."""
        if machine not in self._under_way:
            return None
        try:
            step = machine.next(now)
        except Exception as error:  # noqa: BLE001 - a failure does not end the others
            self.failed += 1
            self.error = self.error or error
        else:
            if not isinstance(step, Done):
                return step
        self._under_way.discard(machine)
        return None


class AtARate(ConcurrentClients):
    """Starts calls at a steady rate, even if earlier ones have not ended; ends when all calls have ended.

    ``begin`` returns the machine of a call, by its number from 0; ``go_on``, whether to start it. ``begun`` is the
    number of calls started.
    """

    def __init__(
        self, per_second: float, begin: Callable[[int], Machine[Any]], go_on: Callable[[int, float], bool]
    ) -> None:
        super().__init__()
        self._per_second = per_second
        self._begin = begin
        self._go_on = go_on
        self._began: float | None = None
        self._due: float = -inf
        self.begun = 0

    @property
    def ended(self) -> bool:
        return self._due == inf and super().ended

    def next(self, now: float) -> Step[None]:
        if self._began is None:
            self._began = now
        while self._due <= now:
            if self._due > -inf:
                self.add(self._begin(self.begun))
                self.begun += 1
            due = self._began + self.begun / self._per_second
            self._due = due if self._go_on(self.begun, due) else inf
        step = super().next(now)
        if isinstance(step, Wait) and self._due < inf:
            return Wait(self._due if step.until is None else min(self._due, step.until))
        return step
