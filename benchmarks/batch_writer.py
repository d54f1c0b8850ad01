"""boto3's ``Table.batch_writer()`` in one thread, as a machine for virtual time: what it sends, and when.

Sources: boto3 1.44 (``boto3/dynamodb/table.py``): 25 items a batch; what comes back unprocessed goes to the end of the
buffer and is sent again with the next batch, at once. botocore 1.44 (``botocore/retries/standard.py``): a throttled
request is tried four times, after waits of up to 1, 2 and 4 seconds. Then it raises, and the batch is lost: a script
ends there. This one is given the batch back and goes on, and counts how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from shardkit.bulk.writes import EncodedRequests, Write
from shardkit.faults import is_throttle
from shardkit.machine import Answer, Done, Send, Step, Wait

__all__ = ["BatchWriter"]

_BATCH = 25
_TRIES = 4
_LONGEST_SECONDS = 20.0


class BatchWriter:
    """The machine.

    Args:
        table: the table's name.
        writes: what it is given, in this order.
        draw: draws from [0, 1), for the waits.

    Attributes:
        requests: how many it sent.
        throttles: how many of them were throttled, or left items unprocessed.
        raised: how often a throttle was raised to the script.
    """

    def __init__(self, table: str, writes: Iterator[Write], draw: Callable[[], float]) -> None:
        self.requests = self.throttles = self.raised = 0
        self._table = table
        self._writes = writes
        self._draw = draw
        self._buffer: list[Write] = []
        self._batch: list[Write] = []
        self._asked = False
        self._tries = 0
        self._until = 0.0

    def next(self, now: float) -> Step[None]:
        """Send the next batch, one after another."""
        if self._asked:
            return Wait()
        if now < self._until:
            return Wait(self._until)
        if not self._batch:
            self._buffer += islice(self._writes, _BATCH - len(self._buffer))
            if not self._buffer:
                return Done(None)
            self._batch, self._buffer = self._buffer[:_BATCH], self._buffer[_BATCH:]
        self._asked = True
        self.requests += 1
        requests = EncodedRequests([write.body for write in self._batch], self._batch)
        return Send("BatchWriteItem", {"RequestItems": {self._table: requests}})

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take its answer."""
        self._asked = False
        if isinstance(answer, Exception):
            if not is_throttle(answer):
                raise answer
            self.throttles += 1
            self._tries += 1
            self._until = now + self._draw() * min(2.0 ** (self._tries - 1), _LONGEST_SECONDS)
            if self._tries == _TRIES:
                self.raised += 1
                self._tries, self._until = 0, now
            return
        batch, self._batch, self._tries = self._batch, [], 0
        left = answer["UnprocessedItems"].get(self._table)
        if left:
            self.throttles += 1
            unprocessed = {_identity(request["PutRequest"]["Item"]) for request in left}
            self._buffer += [write for write in batch if write.identity in unprocessed]


def _identity(item: dict[str, dict[str, str]]) -> tuple[str, int]:
    return item["pk"]["S"], int(item["sk"]["N"])
