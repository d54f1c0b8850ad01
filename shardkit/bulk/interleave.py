"""The order of an upload: one item of every partition key, then the next of every one, until all are out.

Source: the guide, "Distribute Write Activity During Data Upload".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["Interleave"]

T = TypeVar("T")


class Interleave(Generic[T]):
    """Queues, one for each partition key, served round-robin in the order in which their keys first came.

    Example::

        order = Interleave()
        for user, message in [("U1", 1), ("U1", 2), ("U2", 1), ("U2", 2)]:
            order.add(user, (user, message))
        order.take(4)  # U1.1 U2.1 U1.2 U2.2

    Items of one partition key keep their order. Cost: O(1) for each item added and taken. Memory: what is held.
    """

    def __init__(self) -> None:
        # A queue is a ring of [item, next], kept by its last: in a window of 50,000 keys a deque each would take 30 MB.
        self._lasts: dict[Hashable, list[Any]] = {}
        self._turns: deque[Hashable] = deque()
        self._resting: set[Hashable] = set()
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def add(self, key: Hashable, item: T) -> None:
        """Put an item at the end of its partition key's queue."""
        self._lasts[key] = self._put(key, item)

    def put_back(self, key: Hashable, item: T) -> None:
        """Put an item at the front of its partition key's queue."""
        self._put(key, item)

    def _put(self, key: Hashable, item: T) -> list[Any]:
        entry: list[Any] = [item, None]
        last = self._lasts.get(key)
        if last is None:
            self._lasts[key] = entry[1] = entry
            self._turns.append(key)
        else:
            entry[1], last[1] = last[1], entry
        self._held += 1
        return entry

    def take(self, most: int, free: Callable[[T], bool] = lambda _: True) -> list[T]:
        """Take the next items whose turn it is; a key whose first item is not ``free`` rests until it is woken."""
        turns, lasts = self._turns, self._lasts
        items: list[T] = []
        while turns and len(items) < most:
            key = turns[0]
            last = lasts[key]
            first = last[1]
            if not free(first[0]):
                self._resting.add(turns.popleft())
                continue
            if first is last:
                del lasts[turns.popleft()]
            else:
                last[1] = first[1]
                turns.rotate(-1)
            first[1] = None  # no rings for the garbage collector
            items.append(first[0])
        self._held -= len(items)
        return items

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Let keys that rest have turns again, the next ones behind all others."""
        resting = self._resting
        if resting:
            for key in keys:
                if key in resting:
                    resting.remove(key)
                    self._turns.append(key)

    def remove(self, key: Hashable, item: T) -> None:
        """Take an item of this partition key out of turn; it costs a look at all that are before it."""
        last = before = self._lasts[key]
        while before[1][0] != item:
            before = before[1]
        entry = before[1]
        before[1] = entry[1]
        if entry is before:
            del self._lasts[key]
            self._resting.discard(key)
            if key in self._turns:
                self._turns.remove(key)
        elif entry is last:
            self._lasts[key] = before
        entry[1] = None
        self._held -= 1

    def drain(self) -> list[T]:
        """Take all that is held, also of keys that rest."""
        self.wake(tuple(self._resting))
        return self.take(self._held)
