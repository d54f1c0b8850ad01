"""A bulk load as a machine: items in, batches of 25 out, one result an item.

1. Items wait in a window, interleaved over their stored partition keys; batches leave it when it is full or closed.
2. Of two writes of one primary key the second waits until the first is settled: never in one batch (the service
   refuses that), never overtaken. The last write of the input wins.
3. What comes back unprocessed, and a request that a throttle, a server error or a lost connection ended, is sent again
   after a growing, jittered wait; an item is given up after ``ATTEMPTS`` tries in a row that brought its batch nothing.
   What waits for its next try keeps its place among the ``workers``: a service that is behind gets less new work.
4. A batch that the service rejects for what is in it is halved until the bad item stands alone.
5. An error that every further request would meet (no such table, no access) ends the load: nothing more is sent, and
   all that was taken and not written fails for that reason. So does a service that has not answered at all since an
   item's first try.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, inf
from typing import Any

from shardkit.backoff import ATTEMPTS, backoff_seconds
from shardkit.bulk.interleave import Interleave
from shardkit.bulk.report import BulkReport, BulkResult, ShardTally
from shardkit.codec import WireItem, WireValue, binary, sized_to_wire_item
from shardkit.errors import InvalidKeyError, InvalidValueError, ShardkitError, ShardUnknownError
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

_Key = tuple[Hashable, ...]


@dataclass(slots=True, eq=False)
class _Write:
    """A put or a delete on its way.

    ``tries`` counts the tries in a row that brought its batch nothing; ``since`` is the time of its first try.
    """

    source: Mapping[str, Any]
    place: int
    shard: int | None
    request: dict[str, Any]
    identity: _Key
    units: int
    same: _Key | None = None
    tries: int = 0
    since: float | None = None


class Load:
    """The machine; ``put``, ``delete`` and ``close`` feed it, each of its results is a list of BulkResult.

    Memory: the window, ``workers`` batches under way and as many that wait for their next try, and what failed.
    """

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
        self._replaceable: dict[_Key, _Write] = {}
        self._busy: set[_Key] = set()
        self._halves: deque[list[_Write]] = deque()
        self._retries: list[tuple[float, list[_Write]]] = []
        self._asked: dict[Send, list[_Write]] = {}
        self._results: list[BulkResult] = []
        self._failures: list[BulkResult] = []
        self._taken = self._replaced = self._written = self._retried = self._requests = self._throttles = 0
        self._write_units = 0.0
        self._shard_items: dict[int | None, int] = {}
        self._shard_units: dict[int | None, float] = {}
        self._first: float | None = None
        self._last = 0.0
        self._answered = -inf
        self._closed = False
        self.fatal: Exception | None = None
        self.broken: Exception | None = None

    @property
    def wants(self) -> bool:
        """Whether there is room for another item."""
        return not self._closed and len(self._waiting) + len(self._results) < self._window

    @property
    def ended(self) -> bool:
        """Whether every item has its result."""
        return self._closed and not (
            len(self._waiting) or self._halves or self._retries or self._asked or self._results
        )

    def put(self, item: Mapping[str, Any]) -> None:
        """Take an item to write; what is wrong with it is its result."""
        self._take(item, "PutRequest", "Item")

    def delete(self, key: Mapping[str, Any]) -> None:
        """Take a key to delete."""
        self._take(key, "DeleteRequest", "Key")

    def close(self, broken: Exception | None = None) -> None:
        """Take no more; ``broken`` is the error that the source ended in, if it did."""
        self._closed = True
        self.broken = broken

    def _take(self, source: Mapping[str, Any], request: str, part: str) -> None:
        place = self._taken
        self._taken += 1
        if self.fatal is not None:
            self._settle(BulkResult(source, place, None, ok=False, error=self.fatal))
            return
        try:
            write = self._prepared(source, place, request, part)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the others
            self._settle(BulkResult(source, place, None, ok=False, error=error))
            return
        if write.same is not None:
            self._replace(write, write.same)
        self._waiting.add(write.identity[0], write)

    def _prepared(self, source: Mapping[str, Any], place: int, request: str, part: str) -> _Write:
        sharding = self._sharding
        wire, size = sized_to_wire_item(source)
        for name, value in wire.items():
            _refuse_empty_sets(name, value)
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
        size += sharding.suffix_bytes(shard)
        if size > ITEM_BYTES:
            raise InvalidKeyError(
                f"the item is of {size:,} bytes, DynamoDB takes {ITEM_BYTES:,} (400 KB); make it smaller"
            )
        units = max(1, ceil(size / 1024)) if part == "Item" else 1
        same = None if self._replace_by is None else tuple(_comparable(wire.get(name)) for name in self._replace_by)
        return _Write(source, place, shard, {request: {part: stored}}, self._identity(stored), units, same)

    def _replace(self, write: _Write, same: _Key) -> None:
        earlier = self._replaceable.get(same)
        if earlier is not None:
            self._waiting.remove(earlier.identity[0], earlier)
            self._replaced += 1
        self._replaceable[same] = write

    def next(self, now: float) -> Step[list[BulkResult]]:
        """Hand out results, send, ask for more items (an empty result), or wait."""
        if self._results:
            results, self._results = self._results, []
            return Done(results)
        free = len(self._asked) < self._workers
        if free and self.fatal is None and (writes := self._batch(now)):
            return self._send(writes, now)
        if free and self.wants:
            return Done([])
        if self._asked or self._retries:
            return Wait(self._retries[0][0] if free and self._retries else None)
        return Done([])

    def _batch(self, now: float) -> list[_Write]:
        if self._halves:
            return self._halves.popleft()
        if self._retries and self._retries[0][0] <= now:
            return self._retries.pop(0)[1]
        writes: list[_Write] = []
        resting = sum(len(batch) for _, batch in self._retries) // BATCH_ITEMS
        if self.wants or len(self._asked) + resting >= self._workers:
            return writes
        while len(writes) < BATCH_ITEMS:
            write = self._waiting.take(lambda one: one.identity not in self._busy)
            if write is None:
                break
            self._busy.add(write.identity)
            if write.same is not None:
                del self._replaceable[write.same]
            writes.append(write)
        return writes

    def _send(self, writes: list[_Write], now: float) -> Send:
        if self._first is None:
            self._first = self._last = now
        self._requests += 1
        for write in writes:
            if write.since is None:
                write.since = now
            else:
                self._retried += 1
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
        self._answered = now
        # Keyed by the table's name or its ARN: one table was written, so all that is there is its.
        unprocessed = {
            self._identity(part)
            for requests in answer.get("UnprocessedItems", {}).values()
            for request in requests
            for body in request.values()
            for part in body.values()
        }
        left = [write for write in writes if write.identity in unprocessed]
        if len(left) < len(unprocessed):
            left = writes  # it names what was not sent: all is sent again, which harms no put and no delete
        resent = {write.identity for write in left}
        done = [write for write in writes if write.identity not in resent]
        self._tally(done, sum(one.get("CapacityUnits", 0.0) for one in answer.get("ConsumedCapacity", ())))
        for write in done:
            self._settle(BulkResult(write.source, write.place, write.shard, ok=True), write)
        if left:
            self._throttles += 1
            if done:
                for write in left:
                    write.tries = 0
            self._again(
                left,
                ShardkitError(
                    f"the service left the item unprocessed {ATTEMPTS} times in a row: it is short of write units for "
                    "this key or table; raise them, spread the key over more shards, or load again later"
                ),
                now,
            )

    def _failed(self, writes: list[_Write], error: Exception, now: float) -> None:
        throttle = is_throttle(error)
        self._throttles += throttle
        lost = is_transient(error) and not throttle
        if not lost:
            self._answered = now
        last_try = any(write.tries + 1 >= ATTEMPTS for write in writes)
        silent = lost and last_try and all(self._answered < (write.since or 0.0) for write in writes)
        unwritable = isinstance(error, InvalidValueError)  # a value that JSON cannot write: of one item among them
        if (is_fatal(error) and not unwritable) or silent:
            self._give_up(writes, error)
        elif throttle or lost:
            self._again(writes, error, now)
        elif len(writes) == 1:
            self._fail(writes, error)
        elif self.fatal is not None:
            self._give_up(writes, self.fatal)
        else:
            middle = len(writes) // 2
            self._halves += (writes[:middle], writes[middle:])

    def _again(self, writes: list[_Write], error: Exception, now: float) -> None:
        if self.fatal is not None:
            self._give_up(writes, error)
            return
        for write in writes:
            write.tries += 1
        self._fail([write for write in writes if write.tries >= ATTEMPTS], error)
        if left := [write for write in writes if write.tries < ATTEMPTS]:
            at = now + backoff_seconds(max(write.tries for write in left), self._draw())
            insort(self._retries, (at, left), key=lambda retry: retry[0])

    def _give_up(self, writes: list[_Write], error: Exception) -> None:
        self.fatal = self.fatal or error
        self._closed = True
        resting = [*self._halves, *(batch for _, batch in self._retries)]
        self._halves.clear()
        self._retries.clear()
        self._fail([*writes, *(write for batch in resting for write in batch), *self._waiting.drain()], error)

    def _fail(self, writes: list[_Write], error: Exception) -> None:
        for write in writes:
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
            shard = write.shard
            self._shard_items[shard] = self._shard_items.get(shard, 0) + 1
            self._shard_units[shard] = self._shard_units.get(shard, 0.0) + reported * write.units / weight

    def _identity(self, stored: WireItem) -> _Key:
        return tuple(_comparable(stored[name]) for name in self._sharding.keys.names)

    @property
    def report(self) -> BulkReport:
        """The load so far."""
        shards = sorted(self._shard_items, key=lambda shard: -1 if shard is None else shard)
        return BulkReport(
            items=self._taken - self._replaced,
            written=self._written,
            failed=len(self._failures),
            retried=self._retried,
            requests=self._requests,
            throttles=self._throttles,
            write_units=self._write_units,
            seconds=0.0 if self._first is None else self._last - self._first,
            per_shard={shard: ShardTally(self._shard_items[shard], self._shard_units[shard]) for shard in shards},
            failures=tuple(self._failures),
        )


def _comparable(value: WireValue | None) -> Hashable:
    """Give what two key values that DynamoDB takes for the same have in common: 1 and 1.0 are one key."""
    if value is None:
        return None
    content: Any
    ((letter, content),) = value.items()
    if letter == "S":
        return str(content)
    if letter == "N":
        return Decimal(content)
    return binary(content) if letter == "B" else repr(value)


def _refuse_empty_sets(name: str, value: WireValue) -> None:
    """Refuse what boto3 lets pass and the service does not: it would take other items' batches down with it."""
    ((letter, content),) = value.items()
    if letter in {"SS", "NS", "BS"} and not content:
        raise InvalidValueError(f"attribute {name!r} has an empty set, which DynamoDB refuses; leave it out")
    if letter == "L":
        for member in content:
            _refuse_empty_sets(name, member)
    elif letter == "M":
        for member in content.values():
            _refuse_empty_sets(name, member)
