"""How large a load's window must be: the load's own machine in virtual time, over partitions that are a model.

The source is the guide's bad case: messages sorted by user, each user with 100 to 200 of 1 KB. The window is what mixes
them. Whatever its size, the users that it holds do not fall on the partitions evenly, and it fills with those of the
busiest partition until the others have too little to do: the larger it is, the less that costs.
"""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

from benchmarks.measure import Figure
from shardkit import stable_hash
from shardkit.bulk.batch import Load
from shardkit.capacity import item_size
from shardkit.machine import Answer, Send
from tests.fakes import sharding, throttled
from tests.machines import Timed

__all__ = ["PARTITION_UNITS", "Partitions", "Used", "item_bytes", "load", "messages", "window"]

WINDOWS = (1_000, 10_000, 25_000, 50_000, 100_000, 200_000)
PARTITIONS = 11
"""The guide's example: 20 million items of 1 KB in 30 minutes want 11,000 write units a second."""
PARTITION_UNITS = 1_000
KEPT_SECONDS = 0.1
"""Of what a partition does not use: less than the messages of one user, more than a batch."""
MESSAGES = (100, 200)
"""Of a user, from and to."""
ITEM_BYTES = 1024
ITEMS = 1_000_000
"""Of a load. A larger one loses a little more: a large window fills slowly (50,000 lose 1.2% of two million)."""
WORKERS = 10
LATENCY_SECONDS = (0.005, 0.010)
SEED = 1

_BODY = "x" * (ITEM_BYTES - item_size({"pk": {"S": "U" + 9 * "0"}, "sk": {"S": 6 * "0"}, "body": {"S": ""}}))


class Partitions:
    """Partitions that own ranges of the keys' hashes and take 1,000 write units a second each: no burst, no splits."""

    def __init__(self, count: int) -> None:
        self._left = [0.0] * count
        self._then = [0.0] * count

    def answer(self, send: Send, now: float) -> Answer:
        """Answer a BatchWriteItem or a PutItem of items of at most 1 KB, as the service does."""
        if send.operation == "PutItem":
            taken = self._takes(send.params["Item"], now)
            return {"ConsumedCapacity": {"CapacityUnits": 1.0}} if taken else throttled("KeyRangeThroughput")
        ((table, requests),) = send.params["RequestItems"].items()
        left = [request for request in requests if not self._takes(request["PutRequest"]["Item"], now)]
        if len(left) == len(requests):
            return throttled("KeyRangeThroughput")
        return {
            "UnprocessedItems": {table: left} if left else {},
            "ConsumedCapacity": [{"TableName": table, "CapacityUnits": float(len(requests) - len(left))}],
        }

    def _takes(self, item: dict[str, Any], now: float) -> bool:
        at = stable_hash(item["pk"]["S"]) * len(self._left) >> 64
        flown = (now - self._then[at]) * PARTITION_UNITS
        self._left[at] = min(KEPT_SECONDS * PARTITION_UNITS, self._left[at] + flown)
        self._then[at] = now
        if self._left[at] < 1.0:
            return False
        self._left[at] -= 1.0
        return True


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a load made of the table: its share of the write units that there were, and how often it was throttled."""

    share: float
    throttles: int
    requests: int


def messages(draw: Random) -> Iterator[dict[str, Any]]:
    """Give messages of 1 KB, sorted by user, without end."""
    for user in count():
        for number in range(draw.randint(*MESSAGES)):
            yield {"pk": f"U{user:09}", "sk": f"{number:06}", "body": _BODY}


def load(window: int, items: int) -> Used:
    """Load so many messages through a window, and give what was used of the table until the last of them was read.

    What is written after that, while the window empties, counts in a small load only.
    """
    draw = Random(SEED)
    source = islice(messages(Random(SEED)), items)  # the same for every window
    partitions = Partitions(PARTITIONS)

    def answer(send: Send) -> tuple[float, Answer]:
        return draw.uniform(*LATENCY_SECONDS), partitions.answer(send, timed.now)

    timed = Timed(answer, sent=deque(maxlen=0))
    machine = Load(sharding(), workers=WORKERS, draw=draw.random, window=window)
    seconds, report = 0.0, machine.report
    while not machine.ended:
        while machine.wants:
            item = next(source, None)
            if item is None:
                seconds, report = timed.now, machine.report
                machine.close()
            else:
                machine.put(item)
        timed.run(machine)
    if machine.report.written != items:
        raise RuntimeError(f"{machine.report.written} messages were written of {items}")
    return Used(
        share=report.written / (seconds * PARTITIONS * PARTITION_UNITS),
        throttles=report.throttles,
        requests=report.requests,
    )


def item_bytes(items: int = 10_000) -> float:
    """Give the bytes of memory that a message takes while it waits in the window."""
    machine = Load(sharding(), workers=WORKERS, draw=Random(SEED).random, window=items)
    tracemalloc.start()
    for item in islice(messages(Random(SEED)), items):
        machine.put(item)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / items


def window(*, short: bool) -> Iterator[Figure]:
    """The share of the provisioned write units that a load uses, by its window."""
    each = item_bytes()
    for size in WINDOWS[1:3] if short else WINDOWS:
        used = load(size, ITEMS // 10 if short else ITEMS)
        yield Figure(
            bench="window",
            name=f"window of {size:,} items",
            value=used.share * 100,
            unit="%",
            note=f"{size * each / 1e6:,.0f} MB; {used.throttles:,} of {used.requests:,} requests were throttled",
        )
