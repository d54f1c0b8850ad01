"""The order of an upload: one item of every partition key, then the next of every one, until all are out.

Source: the guide, "Distribute Write Activity During Data Upload".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Interleave"]

T = TypeVar("T")


class Interleave(Generic[T]):
    """Queues, one for each partition key, served round-robin in the order in which their keys first came.

    Example::

        order = Interleave()
        for user, message in [("U1", 1), ("U1", 2), ("U2", 1), ("U2", 2)]:
            order.add(user, (user, message))
        [order.take() for _ in range(4)]  # U1.1 U2.1 U1.2 U2.2

    Items of one partition key keep their order. Memory: what is held.
    """

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[T]] = {}
        self._turns: deque[Hashable] = deque()
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def add(self, key: Hashable, item: T) -> None:
        """Put an item at the end of its partition key's queue."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            self._turns.append(key)
        queue.append(item)
        self._held += 1

    def take(self, free: Callable[[T], bool] = lambda _: True) -> T | None:
        """Take the next item whose turn it is; a key whose first item is not ``free`` loses its turn."""
        for _ in range(len(self._turns)):
            key = self._turns.popleft()
            queue = self._queues[key]
            if not free(queue[0]):
                self._turns.append(key)
                continue
            item = queue.popleft()
            self._held -= 1
            if queue:
                self._turns.append(key)
            else:
                del self._queues[key]
            return item
        return None

    def remove(self, key: Hashable, item: T) -> None:
        """Take an item of this partition key out of turn."""
        queue = self._queues[key]
        queue.remove(item)
        self._held -= 1
        if not queue:
            del self._queues[key]
            self._turns.remove(key)

    def drain(self) -> list[T]:
        """Take all that is held."""
        items: list[T] = []
        while (item := self.take()) is not None:
            items.append(item)
        return items
