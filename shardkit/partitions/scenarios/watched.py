"""A simulated table that counts the requests that it answers and throttles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.partitions.simulated_table import SimulatedTable

UNPROCESSED = "UnprocessedItems"
"""The reason counted for a batch with unprocessed items: the service gives none."""
_TOLD_EVERY = 256  # requests


class WatchedTable(SimulatedTable):
    """A simulated table that counts requests and throttles.

    Args:
        given: the arguments of :class:`SimulatedTable`; ``options`` too.
        progress: called from time to time.

    Attributes:
        requests: requests answered.
        throttled: throttled requests, and batches with unprocessed items, by reason.
        written: items written.
        wrote: the time of the last write.
        answered: the time of the last answer that was not an error.
    """

    def __init__(self, *given: Any, progress: Callable[[], object] = lambda: None, **options: Any) -> None:
        super().__init__(*given, **options)
        self._progress = progress
        self.requests = 0
        self.throttled: Counter[str] = Counter()
        self.written = 0
        self.wrote = 0.0
        self.answered = 0.0

    def answer(self, send: Send, now: float) -> Answer:
        """Answer a request, and count it."""
        answer = super().answer(send, now)
        self.requests += 1
        if self.requests % _TOLD_EVERY == 0:
            self._progress()
        if isinstance(answer, Exception):
            self.throttled.update(throttle_reasons(answer))
            return answer
        self.answered = now
        written = _written(send, answer)
        if written:
            self.written += written
            self.wrote = now
        if answer.get("UnprocessedItems"):
            self.throttled[UNPROCESSED] += 1
        return answer


def _written(send: Send, answer: Mapping[str, Any]) -> int:
    if send.operation == "BatchWriteItem":
        sent, left = send.params["RequestItems"], answer["UnprocessedItems"]
        return sum(map(len, sent.values())) - sum(map(len, left.values()))
    return int(send.operation == "PutItem")
