"""The writes that a load holds: those that wait, interleaved over their stored partition keys, and those on their way.

Of one primary key at most one is on its way: it is never overtaken, and the second waits until it is settled.
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

__all__ = ["BATCH_ITEMS", "Batch", "Departures", "Window"]

BATCH_ITEMS = 25
"""Puts and deletes in one BatchWriteItem (API reference)."""

_GATHER_SECONDS = 0.02


class Window:
    """Knows which writes may go next; ``len`` is how many wait.

    Args:
        keys: Which keys rest, and how many items of each may be on their way.
    """

    def __init__(self, keys: KeyPace) -> None:
        self._keys = keys
        self._waiting: Interleave[Write] = Interleave()
        self._flying: set[Identity] = set()
        self._held: dict[Identity, Write] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, write: Write) -> Write | None:
        """Let a write wait as ``add`` does; or give the one that it may replace, waiting or on its way."""
        earlier = self._held.setdefault(write.same, write)
        if earlier is not write:
            return earlier
        self._waiting.add(write.identity[0], write)
        return None

    def add(self, write: Write) -> None:
        """Let a write wait, behind the others of its partition key."""
        self._held[write.same] = write
        self._waiting.add(write.identity[0], write)

    def replace(self, earlier: Write, write: Write) -> Write:
        """Let a write take the place of one that waits; give the one of both that stands for what is not written."""
        if earlier.identity == write.identity:
            earlier.exchange(write)
            return write
        self._waiting.remove(earlier.identity[0], earlier)
        self.add(write)
        return earlier

    def take(self, most: int, now: float) -> list[Write]:
        """Take the next writes that may go."""
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
        """Let go of writes that are done."""
        self._keys.written(self._landed(writes))
        self._forget(writes)

    def failed(self, writes: Sequence[Write]) -> None:
        """Let go of writes that are given up, sent or not."""
        self._landed([write for write in writes if write.sent])
        self._forget(writes)

    def put_back(self, write: Write) -> bool:
        """Let a write that was sent be the next of its key again; False: a newer one waits, which takes its place."""
        self._landed((write,))
        newer = self._held.get(write.same)
        if newer is not None and newer is not write:
            return False
        write.sent = False
        self._held[write.same] = write
        self._waiting.put_back(write.identity[0], write)
        return True

    def wake(self, now: float) -> None:
        """Let the keys that have rested have turns again."""
        self._waiting.wake(self._keys.rested(now))

    def drain(self) -> list[Write]:
        """Take all that wait, also those of keys that rest."""
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
            if held.get(write.same) is write:
                del held[write.same]


@dataclass(slots=True, eq=False)
class Batch:
    """Writes on their way.

    ``tries``: how often that brought nothing, ``since``: when it first did. ``units``: those of its items' sizes,
    ``expected``: what it is expected to take. ``alone``: its one write is sent as a request of its own.
    """

    writes: list[Write]
    tries: int = 0
    since: float | None = None
    units: int = 0
    expected: float = 0.0
    alone: bool = False


class Departures:
    """What is ready to go.

    A batch that is not full waits for ``_GATHER_SECONDS`` after the last one, where other writes rest: throttled keys
    wake one by one, and would go one by one.

    Args:
        window: Where new batches come from.
        workers: Batches in flight, or waiting for their next try, at the most.
    """

    def __init__(self, window: Window, workers: int) -> None:
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
        """Let a write go by itself, before all others."""
        self._alone.append(Batch([write], alone=True))

    def halves(self, batch: Batch) -> None:
        """Let a batch go again as two."""
        middle = len(batch.writes) // 2
        for writes in (batch.writes[:middle], batch.writes[middle:]):
            self._halves.append(Batch(writes, batch.tries, batch.since))

    def again(self, batch: Batch, at: float) -> None:
        """Let a batch go again at a time; until then it keeps its place among the workers."""
        insort(self._retries, (at, batch), key=lambda retry: retry[0])

    def next(self, now: float, *, under_way: int, new: bool) -> Batch | None:
        """Give the next batch, if one is ready; ``new``: also one out of the window."""
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
        # What is gathered has its place already: halves of another batch may have taken the last one since.
        if not new or not (writes or under_way + len(self._retries) < self._workers):
            return None
        writes += window.take(BATCH_ITEMS - len(writes), now)
        if not writes or (len(writes) < BATCH_ITEMS and len(window) and now < self._gathers_until):
            return None
        self._gathered = []
        return Batch(writes)

    @property
    def alarm(self) -> float:
        """When the next one is ready, of those that wait for a time."""
        gathered = self._gathers_until if self._gathered else inf
        return min(gathered, self._retries[0][0] if self._retries else inf)

    def drain(self) -> list[Write]:
        """Take all that was to go."""
        batches = [*self._alone, *self._halves, *(batch for _, batch in self._retries)]
        writes = [*self._gathered, *(write for batch in batches for write in batch.writes)]
        self._alone.clear()
        self._halves.clear()
        self._retries.clear()
        self._gathered = []
        return writes
