"""Pages in, items out in order.

The order of a merged read is (sort key, shard, order within the shard), and descending its reverse. An item may be
handed out once no shard that goes on can still bring one before it: once it is at or before the *bound*, the earliest
of those shards' *frontiers* (how far each has been read).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, TypeAlias

__all__ = ["Entry", "Merge", "Place"]

# Any: what one table's sort keys are (str, Decimal or bytes; a tuple of them; an empty one without a sort key).
Place: TypeAlias = "tuple[Any, int]"
"""(sort key, the shard's number in order from 0)."""
Entry: TypeAlias = "tuple[Any, int, dict[str, Any]]"
"""(sort key, the shard's number, item in Python values): an item that a shard brought, and where it stands."""

_sort_key = itemgetter(0)


class Merge:
    """Holds what the shards brought until its turn comes."""

    def __init__(self, shards: int, *, descending: bool = False) -> None:
        self._descending = descending
        self._runs: list[list[Entry]] = [[] for _ in range(shards)]
        self._silent = set(range(shards))
        self._frontiers: dict[int, Place] = {}
        # Only a page of the shard that is the bound moves it: every other shard was read beyond it.
        self._bound: Place | None = None
        self._moved = True
        self._handed_out = False
        self.brought = [0] * shards
        """How many items each shard has brought."""
        self.count = 0
        """How many items are held."""

    def add(self, number: int, entries: Sequence[Entry], frontier: Place | None) -> None:
        """Take a page of a shard in its order; a frontier of None says that the shard has ended."""
        if number in self._silent or self._bound is None or self._bound[1] == number:
            self._silent.discard(number)
            self._moved = True
        self._runs[number] += entries
        self.brought[number] += len(entries)
        self.count += len(entries)
        if frontier is None:
            self._frontiers.pop(number, None)
        else:
            self._frontiers[number] = frontier

    @property
    def going_on(self) -> int:
        """How many shards have not ended."""
        return len(self._silent) + len(self._frontiers)

    @property
    def frontiers(self) -> list[tuple[int, Place]]:
        """The shards that go on, with how far each was read; first the one that holds the others back."""
        return sorted(self._frontiers.items(), key=itemgetter(1), reverse=self._descending)

    @property
    def silent(self) -> bool:
        """Whether a shard has not brought anything yet, not even its end."""
        return bool(self._silent)

    def goes_on(self, number: int) -> bool:
        """Say whether a shard that was asked has not ended."""
        return number in self._frontiers

    def held_by(self, number: int) -> int:
        """Say how many items of a shard are held."""
        return len(self._runs[number])

    @property
    def held(self) -> list[Entry]:
        """What has been brought and not handed out, in order."""
        return self._ordered([entry for run in self._in_order(self._runs) for entry in run])

    def not_after(self, place: Place, other: Place) -> bool:
        """Say whether a place comes at or before another in the reading direction."""
        return place >= other if self._descending else place <= other

    def behind(self, place: Place) -> list[int]:
        """The shards that go on and were not read as far as a place."""
        return [
            number
            for number, frontier in self._frontiers.items()
            if frontier != place and self.not_after(frontier, place)
        ]

    def bound(self) -> Place | None:
        """Give the frontier that holds the others back; None: nobody does, all have ended."""
        if self._moved:
            places = self._frontiers.values()
            self._bound = (max(places) if self._descending else min(places)) if places else None
            self._moved = self._handed_out = False
        return self._bound

    def up_to(self, places: Sequence[Place]) -> list[int]:
        """Count, for each place, the items held at or before it."""
        held = sorted((entry[0], entry[1]) for run in self._runs for entry in run)
        if self._descending:
            return [len(held) - bisect_left(held, place) for place in places]
        return [bisect_right(held, place) for place in places]

    def release(self, limit: int | None = None) -> list[Entry]:
        """Hand out, in order, at most ``limit`` of the items whose turn has come."""
        bound = self.bound()
        if self._silent or self._handed_out:
            return []
        turns = [self._turn(number, bound) for number in range(len(self._runs))]
        ready = self._ordered(
            [entry for run, turn in self._in_order([*zip(self._runs, turns, strict=True)]) for entry in run[:turn]]
        )
        self._handed_out = limit is None or len(ready) <= limit
        if limit is not None and not self._handed_out:
            del ready[limit:]
            of_shard = Counter(entry[1] for entry in ready)
            turns = [of_shard[number] for number in range(len(self._runs))]
        for run, turn in zip(self._runs, turns, strict=True):
            del run[:turn]
        self.count -= len(ready)
        return ready

    def _turn(self, number: int, bound: Place | None) -> int:
        """Count the items at the front of a shard's run whose turn has come."""
        run = self._runs[number]
        if bound is None or not run:
            return len(run)
        sort_key, last = bound
        if not self._descending:
            cut = bisect_right if number <= last else bisect_left
            return cut(run, sort_key, key=_sort_key)
        low, high = 0, len(run)
        while low < high:
            middle = (low + high) // 2
            there = run[middle][0]
            if there > sort_key or (number >= last and there == sort_key):
                low = middle + 1
            else:
                high = middle
        return low

    def _in_order(self, runs: list[Any]) -> list[Any]:
        return runs[::-1] if self._descending else runs

    def _ordered(self, entries: list[Entry]) -> list[Entry]:
        # By sort key alone: the entries stand shard by shard in reading order, and Python's sort is stable both ways.
        # Each shard's run is in order already, which is what that sort is fastest at.
        entries.sort(key=_sort_key, reverse=self._descending)
        return entries
