"""The writes that a load holds: those that wait, interleaved over their stored partition keys, and those in flight.

At most one write of a primary key is in flight. It is never overtaken: the second waits until the first is settled.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from shardkit.bulk.pacing import KeyPace
from shardkit.bulk.writes import Identity, Write
from shardkit.core.interleave import Interleave

BATCH_ITEMS = 25
"""Puts and deletes in one BatchWriteItem (API reference)."""

_GATHER_SECONDS = 0.02


class LoadWindow:
    """The writes that wait; ``len`` counts them."""

    def __init__(self, keys: KeyPace) -> None:
        self._keys = keys
        self._waiting: Interleave[Write] = Interleave()
        self._flying: set[Identity] = set()
        self._held: dict[Identity, Write] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, write: Write) -> Write | None:
        """Add a write; or return the write that it may replace, which waits or is in flight."""
        earlier = self._held.setdefault(write.same, write)
        if earlier is not write:
            return earlier
        self._waiting.add(write.identity[0], write)
        return None

    def add(self, write: Write) -> None:
        self._held[write.same] = write
        self._waiting.add(write.identity[0], write)

    def replace(self, earlier: Write, write: Write) -> Write:
        """Put a write in the place of one that waits; return the write that now stands for the superseded item."""
        if earlier.identity == write.identity:
            earlier.exchange(write)
            return write
        self._waiting.remove(earlier.identity[0], earlier)
        self.add(write)
        return earlier

    def take(self, most: int, now: float) -> list[Write]:
        flying, keys = self._flying, self._keys

        def goes(write: Write) -> bool:
            identity = write.identity
            if identity in flying or not keys.goes(identity[0], now):
                return False
            flying.add(identity)
            write.sent = True
            return True

        return self._waiting.take(most, goes)

    def written(self, writes: Sequence[Write]) -> None:
        self._keys.written(self._landed(writes))
        self._forget(writes)

    def failed(self, writes: Sequence[Write]) -> None:
        self._landed([write for write in writes if write.sent])
        self._forget(writes)

    def put_back(self, writes: Sequence[Write]) -> list[Write]:
        """Put sent writes back at the front of their keys; return those that newer writes, which wait, replace."""
        self._landed(writes)
        replaced = []
        for write in reversed(writes):
            newer = self._held.setdefault(write.same, write)
            if newer is not write:
                replaced.append(write)
                continue
            write.sent = False
            self._waiting.add(write.identity[0], write, first=True)
        return replaced

    def wake(self, now: float) -> None:
        self._waiting.wake(self._keys.rested(now))

    def drain(self) -> list[Write]:
        return self._waiting.drain()

    def _landed(self, writes: Sequence[Write]) -> list[Hashable]:
        identities = [write.identity for write in writes]
        keys = [identity[0] for identity in identities]
        self._flying.difference_update(identities)
        self._keys.landed(keys)
        self._waiting.wake(keys)
        return keys

    def _forget(self, writes: Iterable[Write]) -> None:
        held = self._held
        for write in writes:
            newer = held.pop(write.same, write)
            if newer is not write:
                held[write.same] = newer


@dataclass(slots=True, eq=False)
class Batch:
    """Writes that are sent together; if ``alone``, the only one is sent by PutItem or DeleteItem.

    ``tries`` and ``since``: how often it got no answer, and when first. ``units`` are write units by its items' sizes,
    ``expected`` those that it is expected to consume.
    """

    writes: list[Write]
    tries: int = 0
    since: float | None = None
    units: int = 0
    expected: float = 0.0
    alone: bool = False


class Departures:
    """The batches to send next.

    While other writes rest, a batch that is not full waits for ``_GATHER_SECONDS`` after the last one: throttled keys
    wake one by one, and would otherwise be sent one by one.
    """

    def __init__(self, window: LoadWindow, workers: int) -> None:
        self._window = window
        self._workers = workers
        self._alone: deque[Batch] = deque()
        self._halves: deque[Batch] = deque()
        self._retries: list[tuple[float, Batch]] = []
        self._gathered: list[Write] = []
        self._gathers_until = -inf

    def __len__(self) -> int:
        return len(self._alone) + len(self._halves) + len(self._retries) + bool(self._gathered)

    def alone(self, write: Write) -> None:
        self._alone.append(Batch([write], alone=True))

    def halves(self, batch: Batch) -> None:
        middle = len(batch.writes) // 2
        for writes in (batch.writes[:middle], batch.writes[middle:]):
            self._halves.append(Batch(writes, batch.tries, batch.since))

    def again(self, batch: Batch, at: float) -> None:
        """Send a batch again at the given time; until then it counts as one of the workers."""
        insort(self._retries, (at, batch), key=lambda retry: retry[0])

    def next(self, now: float, *, under_way: int, new: bool) -> Batch | None:
        """Return the next batch, if one is ready; with ``new``, also from the window."""
        batch = self._next(now, under_way, new=new)
        if batch is not None:
            self._gathers_until = now + _GATHER_SECONDS
        return batch

    def _next(self, now: float, under_way: int, *, new: bool) -> Batch | None:
        if self._alone:
            return self._alone.popleft()
        if self._halves:
            return self._halves.popleft()
        if self._retries and self._retries[0][0] <= now:
            return self._retries.pop(0)[1]
        window, writes = self._window, self._gathered
        # Gathered writes already count as a worker: halves of another batch may have taken the last place since.
        if not new or not (writes or under_way + len(self._retries) < self._workers):
            return None
        writes += window.take(BATCH_ITEMS - len(writes), now)
        if not writes or (len(writes) < BATCH_ITEMS and len(window) and now < self._gathers_until):
            return None
        self._gathered = []
        return Batch(writes)

    @property
    def alarm(self) -> float:
        """When the next batch that waits for a time is ready."""
        gathered = self._gathers_until if self._gathered else inf
        return min(gathered, self._retries[0][0] if self._retries else inf)

    def drain(self) -> list[Write]:
        batches = [*self._alone, *self._halves, *(batch for _, batch in self._retries)]
        writes = [*self._gathered, *(write for batch in batches for write in batch.writes)]
        self._alone.clear()
        self._halves.clear()
        self._retries.clear()
        self._gathered = []
        return writes
