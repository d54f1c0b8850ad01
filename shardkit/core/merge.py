"""Merge the pages of shards into one ordered sequence of items.

The order of a merged read is (sort key, shard, order within the shard); a descending read has the reverse order. A
shard's *frontier* is the place up to which it has been read. The *bound* is the earliest frontier of the shards that
have not ended: no later page can bring an item at or before it, so the items up to the bound can be released.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, TypeAlias

# Any: str, Decimal or bytes; a tuple of these, empty without a sort key. All sort keys of one read have one type.
Place: TypeAlias = "tuple[Any, int]"
"""(sort key, index of the shard)."""
Entry: TypeAlias = "tuple[Any, int, dict[str, Any]]"
"""(sort key, index of the shard, item in the caller's form)."""

_sort_key = itemgetter(0)


class Merge:
    """Buffers the items of all shards and releases them in order."""

    def __init__(self, shards: int, *, descending: bool = False) -> None:
        self._descending = descending
        self._runs: list[list[Entry]] = [[] for _ in range(shards)]
        self._silent = set(range(shards))
        self._frontiers: dict[int, Place] = {}
        # The bound is computed only when it may have moved: with 200 shards, its minimum over all frontiers per page
        # would be quadratic. A page moves a shard's own frontier, and only forward. So the bound moves only when the
        # page is of the shard that sets it (every other shard was already read beyond it), or when a silent shard
        # answers for the first time. While a shard is silent, nothing is released, because it may still bring the
        # first item of all. ``_handed_out`` says that everything up to the current bound has been released.
        self._bound: Place | None = None
        self._moved = True
        self._handed_out = False
        self.brought = [0] * shards
        """The number of items received from each shard."""
        self.count = 0
        """The number of items buffered."""

    def add(self, number: int, entries: Sequence[Entry], frontier: Place | None) -> None:
        """Add a page of a shard, in reading order; a frontier of None means that the shard has ended."""
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
    def frontiers(self) -> list[tuple[int, Place]]:
        """The shards that answered and have not ended, with their frontiers, the bound first."""
        return sorted(self._frontiers.items(), key=itemgetter(1), reverse=self._descending)

    @property
    def silent(self) -> bool:
        """Whether some shard has not answered yet."""
        return bool(self._silent)

    def goes_on(self, number: int) -> bool:
        """Return whether a shard has answered and not ended."""
        return number in self._frontiers

    def held_by(self, number: int) -> int:
        """Return how many items of a shard are buffered."""
        return len(self._runs[number])

    @property
    def held(self) -> list[Entry]:
        return self._ordered([entry for run in self._in_order(self._runs) for entry in run])

    def not_after(self, place: Place, other: Place) -> bool:
        """Return whether ``place`` is at or before ``other`` in the reading direction."""
        return place >= other if self._descending else place <= other

    def behind(self, place: Place) -> list[int]:
        """Return the shards that have not ended and were not read as far as ``place``."""
        return [
            number
            for number, frontier in self._frontiers.items()
            if frontier != place and self.not_after(frontier, place)
        ]

    def bound(self) -> Place | None:
        """Return the earliest frontier; None if all shards have ended."""
        if self._moved:
            places = self._frontiers.values()
            self._bound = (max(places) if self._descending else min(places)) if places else None
            self._moved = self._handed_out = False
        return self._bound

    def up_to(self, places: Sequence[Place]) -> list[int]:
        """Return, for each place, the number of buffered items at or before it."""
        held = sorted((entry[0], entry[1]) for run in self._runs for entry in run)
        if self._descending:
            return [len(held) - bisect_left(held, place) for place in places]
        return [bisect_right(held, place) for place in places]

    def release(self, limit: int | None = None) -> list[Entry]:
        """Return, in order, the items up to the bound, at most ``limit``, and drop them from the buffer."""
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
        # Counts the items at the front of a shard's run that are up to the bound. Between equal sort keys the shard
        # decides: the bound's own shard, and those before it in reading order, are up to the bound with items of that
        # sort key; the shards after it are not. A descending run is sorted in reverse, which bisect cannot search.
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
        # Sorting by sort key alone is enough: the entries come shard by shard in reading order, and Python's sort is
        # stable, with ``reverse`` too. It is fast on runs that are already in order, as each shard's is.
        entries.sort(key=_sort_key, reverse=self._descending)
        return entries
