"""The writes that a load holds: those that wait, interleaved over their stored partition keys, and those on their way.

Of one primary key at most one is on its way: it is never overtaken, and the second waits until it is settled.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from shardkit.bulk.pacing import KeyPace
from shardkit.bulk.writes import Identity, Write
from shardkit.core.interleave import Interleave

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
