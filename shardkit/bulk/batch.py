"""A bulk load as a machine: items in, batches of 25 out, one result an item.

1. Items wait in a window, interleaved over their stored partition keys; batches leave it when it is full or closed.
2. Of two writes of one primary key the second waits until the first is settled: never in one batch (the service
   refuses that), never overtaken. The last write of the input wins.
3. What comes back unprocessed, and a request that a throttle, a server error or a lost connection ended, is sent again
   after a growing, jittered wait; an item is given up after ``ATTEMPTS`` tries.
4. A batch that the service rejects for what is in it is halved until the bad item stands alone.
5. An error that every further request would meet (no such table, no access) ends the load: nothing more is sent, and
   all that was taken and not written fails for that reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from shardkit.backoff import ATTEMPTS, backoff_seconds
from shardkit.bulk.interleave import Interleave
from shardkit.bulk.report import BulkReport, BulkResult, ShardTally
from shardkit.capacity.sizes import item_size
from shardkit.codec import WireItem, to_wire_item
from shardkit.cursor import made_for
from shardkit.errors import InvalidKeyError, ShardUnknownError
from shardkit.faults import is_fatal, is_throttle, is_transient
from shardkit.machine import Answer, Done, Send, Step, Wait
from shardkit.operations.items import drawn_shard
from shardkit.sharding import Sharding
from shardkit.suffix import Unsharded

__all__ = ["BATCH_ITEMS", "WINDOW", "Load"]

BATCH_ITEMS = 25
"""Puts and deletes in one BatchWriteItem (API reference)."""
WINDOW = 50_000
"""Items that wait to be interleaved."""
ITEM_BYTES = 409_600
"""An item's names and values at the most (API reference: 400 KB)."""


@dataclass(slots=True, eq=False)
class _Write:
    """A put or a delete on its way."""

    source: Mapping[str, Any]
    place: int
    shard: int | None
    request: dict[str, Any]
    identity: str
    units: int
    tries: int = 0


class Load:
    """The machine; ``put``, ``delete`` and ``close`` feed it, each of its results is a list of BulkResult."""

    def __init__(
        self,
        sharding: Sharding,
        *,
        workers: int,
        draw: Callable[[], float],
        window: int = WINDOW,
        replace_by: tuple[str, ...] | None = None,
    ) -> None:
        self._sharding = sharding
        self._workers = workers
        self._draw = draw
        self._window = window
        self._replace_by = replace_by
        self._waiting: Interleave[_Write] = Interleave()
        self._replaceable: dict[str, _Write] = {}
        self._dropped: set[_Write] = set()
        self._busy: set[str] = set()
        self._batches: deque[list[_Write]] = deque()
        self._retries: deque[tuple[float, list[_Write]]] = deque()
        self._asked: dict[Send, list[_Write]] = {}
        self._results: list[BulkResult] = []
        self._failures: list[BulkResult] = []
        self._taken = self._written = self._retried = self._requests = self._throttles = 0
        self._write_units = 0.0
        self._per_shard: dict[int | None, ShardTally] = {}
        self._first: float | None = None
        self._last = 0.0
        self._closed = False
        self.fatal: Exception | None = None

    @property
    def wants(self) -> bool:
        """Whether there is room for another item."""
        return not self._closed and len(self._waiting) < self._window

    @property
    def ended(self) -> bool:
        """Whether every item has its result."""
        return self._closed and not (
            len(self._waiting) or self._batches or self._retries or self._asked or self._results
        )

    def put(self, item: Mapping[str, Any]) -> None:
        """Take an item to write; what is wrong with it is its result."""
        self._take(item, "PutRequest", "Item")

    def delete(self, key: Mapping[str, Any]) -> None:
        """Take a key to delete."""
        self._take(key, "DeleteRequest", "Key")

    def close(self) -> None:
        """Take no more."""
        self._closed = True

    def _take(self, source: Mapping[str, Any], request: str, part: str) -> None:
        place = self._taken
        self._taken += 1
        try:
            write = self._prepared(source, place, request, part)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the others
            self._settle(BulkResult(source, place, None, ok=False, error=error))
            return
        if self._replace_by is not None:
            self._replace(write, source)
        partition = next(iter(write.request[request][part][self._sharding.partition_key].values()))
        self._waiting.add(bytes(partition) if isinstance(partition, bytearray) else partition, write)

    def _prepared(self, source: Mapping[str, Any], place: int, request: str, part: str) -> _Write:
        sharding = self._sharding
        wire = to_wire_item(source)
        key = sharding.key_of(wire, kind=part.lower())
        shard = sharding.shard_of(key[sharding.partition_key], source)
        if shard is None and not isinstance(sharding.strategy, Unsharded):
            if part == "Key":
                raise ShardUnknownError(
                    f"the shard of {dict(source)!r:.200} cannot be known from its key with {sharding.strategy!r}; "
                    "use delete_item() with Shard= or locate=True"
                )
            shard = drawn_shard(sharding, wire, self._draw())
        stored = sharding.stored(wire if part == "Item" else key, shard)
        size = item_size(stored)
        if size > ITEM_BYTES:
            raise InvalidKeyError(f"the item is of {size:,} bytes, DynamoDB takes {ITEM_BYTES:,} (400 KB); make it smaller")
        identity = made_for({name: stored[name] for name in sharding.keys.names})
        units = max(1, ceil(size / 1024)) if part == "Item" else 1
        return _Write(source, place, shard, {request: {part: stored}}, identity, units)

    def _replace(self, write: _Write, source: Mapping[str, Any]) -> None:
        names = self._replace_by or ()
        wire: WireItem = to_wire_item({name: source[name] for name in names if name in source})
        same = made_for(wire)
        earlier = self._replaceable.get(same)
        if earlier is not None:
            self._dropped.add(earlier)
        self._replaceable[same] = write

    def next(self, now: float) -> Step[list[BulkResult]]:
        """Hand out results, send, ask for more items (an empty result), or wait."""
        self._last = now
        if self._results:
            results, self._results = self._results, []
            return Done(results)
        if self.fatal is None and len(self._asked) < self._workers and (writes := self._batch(now)):
            return self._send(writes, now)
        if self.wants and len(self._asked) < self._workers:
            return Done([])
        if self._asked or self._retries:
            return Wait(min((at for at, _ in self._retries), default=None) if len(self._asked) < self._workers else None)
        return Done([])

    def _batch(self, now: float) -> list[_Write] | None:
        if self._batches:
            return self._batches.popleft()
        if self._retries and self._retries[0][0] <= now:
            return self._retries.popleft()[1]
        if self.wants:
            return None
        writes: list[_Write] = []
        while len(writes) < BATCH_ITEMS:
            write = self._waiting.take(lambda one: one.identity not in self._busy)
            if write is None:
                break
            if write in self._dropped:
                self._dropped.discard(write)
                continue
            self._busy.add(write.identity)
            writes.append(write)
        return writes

    def _send(self, writes: list[_Write], now: float) -> Send:
        self._first = now if self._first is None else self._first
        self._requests += 1
        for write in writes:
            self._retried += write.tries > 0
            write.tries += 1
        send = Send(
            "BatchWriteItem",
            {
                "RequestItems": {self._sharding.table: [write.request for write in writes]},
                "ReturnConsumedCapacity": "INDEXES",
            },
        )
        self._asked[send] = writes
        return send

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take a batch's answer."""
        self._last = now
        writes = self._asked.pop(send)
        if isinstance(answer, Exception):
            self._failed(writes, answer, now)
            return
        # Keyed by the table's name or its ARN: one table was written, so all that is there is its.
        left = {
            self._identity(request) for requests in answer.get("UnprocessedItems", {}).values() for request in requests
        }
        done = [write for write in writes if write.identity not in left]
        self._tally(done, sum(one.get("CapacityUnits", 0.0) for one in answer.get("ConsumedCapacity", ())))
        for write in done:
            self._settle(BulkResult(write.source, write.place, write.shard, ok=True), write)
        if left:
            self._throttles += 1
            unprocessed = RuntimeError(
                f"the service left the item unprocessed {ATTEMPTS} times: it is short of write units for this key or table"
            )
            self._again([write for write in writes if write.identity in left], unprocessed, now)

    def _failed(self, writes: list[_Write], error: Exception, now: float) -> None:
        self._throttles += is_throttle(error)
        if is_transient(error):
            self._again(writes, error, now)
        elif is_fatal(error):
            self._give_up(writes, error)
        elif len(writes) == 1:
            self._fail(writes[0], error)
        else:
            middle = len(writes) // 2
            self._batches += (writes[:middle], writes[middle:])

    def _again(self, writes: list[_Write], error: Exception, now: float) -> None:
        if self.fatal is not None:
            self._give_up(writes, self.fatal)
            return
        left = []
        for write in writes:
            if write.tries < ATTEMPTS:
                left.append(write)
            else:
                self._fail(write, error)
        if left:
            at = now + backoff_seconds(max(write.tries for write in left), self._draw())
            self._retries = deque(sorted([*self._retries, (at, left)], key=lambda retry: retry[0]))

    def _give_up(self, writes: list[_Write], error: Exception) -> None:
        self.fatal = self.fatal or error
        self._closed = True
        rest = [write for batch in self._batches for write in batch]
        rest += [write for _, batch in self._retries for write in batch]
        self._batches.clear()
        self._retries.clear()
        for write in [*writes, *rest, *self._waiting.drain()]:
            self._fail(write, error)

    def _fail(self, write: _Write, error: Exception) -> None:
        self._settle(BulkResult(write.source, write.place, write.shard, ok=False, error=error), write)

    def _settle(self, result: BulkResult, write: _Write | None = None) -> None:
        if write is not None:
            self._busy.discard(write.identity)
        if result.ok:
            self._written += 1
        else:
            self._failures.append(result)
        self._results.append(result)

    def _tally(self, done: list[_Write], reported: float) -> None:
        self._write_units += reported
        weight = sum(write.units for write in done)
        for write in done:
            tally = self._per_shard.get(write.shard, ShardTally())
            share = reported * write.units / weight
            self._per_shard[write.shard] = ShardTally(tally.items + 1, tally.write_units + share)

    def _identity(self, request: Mapping[str, Any]) -> str:
        ((_, body),) = request.items()
        ((_, item),) = body.items()
        return made_for({name: item[name] for name in self._sharding.keys.names})

    @property
    def report(self) -> BulkReport:
        """The load so far."""
        return BulkReport(
            items=self._taken,
            written=self._written,
            failed=len(self._failures),
            retried=self._retried,
            requests=self._requests,
            throttles=self._throttles,
            write_units=self._write_units,
            seconds=0.0 if self._first is None else self._last - self._first,
            per_shard=dict(sorted(self._per_shard.items(), key=lambda pair: (pair[0] is not None, pair[0] or 0))),
            failures=tuple(self._failures),
        )
