"""The order of an upload: one item of each partition key in turn.

Source: the guide, "Distribute Write Activity During Data Upload".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Interleave(Generic[T]):
    """One queue per partition key, served round-robin in the order in which the keys first came.

    Example:
        order = Interleave()
        for user, message in [("U1", 1), ("U1", 2), ("U2", 1), ("U2", 2)]:
            order.add(user, (user, message))
        order.take(4)  # U1.1 U2.1 U1.2 U2.2

    Items of one partition key keep their order. Cost: O(1) per item. Memory: the items that are queued.
    """

    def __init__(self) -> None:
        # A queue of one item is the item itself: in a window of 50,000 keys, a deque each would take 30 MB.
        self._queues: dict[Hashable, Any] = {}
        self._turns: deque[Hashable] = deque()
        self._resting: set[Hashable] = set()
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def add(self, key: Hashable, item: T, *, first: bool = False) -> None:
        """Add an item at the end of its partition key's queue; with ``first``, at the front."""
        self._held += 1
        queues = self._queues
        if key not in queues:
            queues[key] = item
            self._turns.append(key)
            return
        queue = queues[key]
        if type(queue) is not deque:
            queue = queues[key] = deque((queue,))
        if first:
            queue.appendleft(item)
        else:
            queue.append(item)

    def take(self, most: int, free: Callable[[T], bool] = lambda _: True) -> list[T]:
        """Take up to ``most`` items in turn; a key whose first item is not ``free`` is skipped until ``wake``."""
        turns, queues = self._turns, self._queues
        items: list[T] = []
        left = most
        while left and turns:
            key = turns.popleft()
            queue = queues[key]
            more = type(queue) is deque
            item = queue[0] if more else queue
            if not free(item):
                self._resting.add(key)
                continue
            items.append(item)
            left -= 1
            if more:
                queue.popleft()
            if more and queue:
                turns.append(key)
            else:
                del queues[key]
        self._held -= len(items)
        return items

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Give skipped keys turns again, after all other keys."""
        resting = self._resting
        if resting:
            for key in keys:
                if key in resting:
                    resting.remove(key)
                    self._turns.append(key)

    def remove(self, key: Hashable, item: T) -> None:
        """Remove an item out of turn; costs a scan of the items before it."""
        queue = self._queues[key]
        if type(queue) is deque and len(queue) > 1:
            queue.remove(item)
        else:
            del self._queues[key]
            self._resting.discard(key)
            if key in self._turns:
                self._turns.remove(key)
        self._held -= 1

    def drain(self) -> list[T]:
        """Take all items, of skipped keys too."""
        self.wake(tuple(self._resting))
        return self.take(self._held)
