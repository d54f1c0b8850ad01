"""The writes that a load holds: those that wait, interleaved over their stored partition keys, and those on their way.

Of one primary key at most one is on its way: it is never overtaken, and the second waits until it is settled.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardkit.bulk.interleave import Interleave
from shardkit.bulk.pacing import KeyPace
from shardkit.bulk.writes import Identity, Write

__all__ = ["Window"]


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

    def held(self, write: Write) -> Write | None:
        """Give the latest write that may be replaced by this one, waiting or on its way."""
        return self._held.get(write.same)

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
        flying, keys, waiting = self._flying, self._keys, self._waiting
        writes: list[Write] = []

        def free(write: Write) -> bool:
            return write.identity not in flying and keys.free(write.identity[0], now)

        while len(writes) < most and (write := waiting.take(free)) is not None:
            flying.add(write.identity)
            keys.sent(write.identity[0])
            write.sent = True
            writes.append(write)
        return writes

    def written(self, writes: Iterable[Write]) -> None:
        """Let go of writes that are done."""
        for write in writes:
            self._keys.written(write.identity[0])
            self._let_go(write)

    def failed(self, write: Write) -> None:
        """Let go of a write that is given up, sent or not."""
        self._let_go(write)

    def put_back(self, write: Write) -> bool:
        """Let a write that was sent be the next of its key again; False: a newer one waits, which takes its place."""
        self._landed(write)
        newer = self._held.get(write.same)
        if newer is not None and newer is not write:
            return False
        write.sent = False
        self._held[write.same] = write
        self._waiting.put_back(write.identity[0], write)
        return True

    def wake(self, now: float) -> None:
        """Let the keys that have rested have turns again."""
        for key in self._keys.rested(now):
            self._waiting.wake(key)

    def drain(self) -> list[Write]:
        """Take all that wait, also those of keys that rest."""
        return self._waiting.drain()

    def _let_go(self, write: Write) -> None:
        if write.sent:
            self._landed(write)
        if self._held.get(write.same) is write:
            del self._held[write.same]

    def _landed(self, write: Write) -> None:
        key = write.identity[0]
        self._flying.discard(write.identity)
        self._keys.landed(key)
        self._waiting.wake(key)
