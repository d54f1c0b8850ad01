"""Merge the pages of shards into one ordered sequence of items.

The order of a merged read is (sort key, shard, order within the shard); a descending read has the reverse order. A
shard's *frontier* is the place up to which it has been read. The *bound* is the earliest frontier of the shards that
have not ended: no later page can bring an item at or before it, so the items up to the bound can be released.

Where the shards are ranges of the sort key (``ranges``), they need not all be read: the items of a shard come before
all items of the next one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

# Any: str, Decimal or bytes; a tuple of these, empty without a sort key. All sort keys of one read have one type.
Position: TypeAlias = "tuple[Any, int]"
"""(sort key, index of the shard)."""
Item: TypeAlias = dict[str, Any]
"""In the caller's form."""


# In both classes, two lists instead of a tuple for each item: a merged read of many items spends as much time on
# making, tracking and freeing such tuples as on the merge itself.


@dataclass(slots=True)
class Run:
    """Items of one shard in reading order, and their sort keys."""

    sort_keys: list[Any] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Rows:
    """Items in order, and the index of each item's shard."""

    numbers: list[int] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        return zip(self.numbers, self.items, strict=True)

    def __add__(self, rows: Rows) -> Rows:
        return Rows(self.numbers + rows.numbers, self.items + rows.items)

    def __iadd__(self, rows: Rows) -> Self:
        self.numbers += rows.numbers
        self.items += rows.items
        return self


def _number(place: Position) -> int:
    return place[1]


class Merge:
    """Buffers the items of all shards and releases them in order."""

    def __init__(self, shards: int, *, descending: bool = False, ranges: bool = False) -> None:
        self._descending = descending
        self._ranges = ranges
        self._runs = [Run() for _ in range(shards)]
        # While a shard is silent, nothing is released, because it may still bring the first item of all. If the shards
        # are ranges, nothing of that shard and of those after it.
        self._silent = set(range(shards))
        self._step = -1 if descending else 1
        self._first_silent = shards - 1 if descending else 0  # in reading order, of ranges; found when it is needed
        self._frontiers: dict[int, Position] = {}
        # Both are sorted: the frontiers, and the place of the first buffered item of each shard that has any. So a page
        # costs the same with 100 shards as with 10,000: it moves one place in each list, and a release looks only at
        # the shards that have items up to the bound.
        self._ends: list[Position] = []
        self._heads: list[Position] = []
        self.brought = [0] * shards
        """The number of items received from each shard."""
        self.released = [0] * shards
        """The number of items of each shard that were released."""
        self.count = 0
        """The number of items buffered."""

    def add(self, number: int, page: Run, frontier: Position | None) -> None:
        """Add a page of a shard; a frontier of None means that the shard has ended."""
        self._silent.discard(number)
        run = self._runs[number]
        if page.items and not run.items:
            insort(self._heads, (page.sort_keys[0], number))
        run.sort_keys += page.sort_keys
        run.items += page.items
        self.brought[number] += len(page.items)
        self.count += len(page.items)
        before = self._frontiers.pop(number, None)
        if before is not None:
            del self._ends[bisect_left(self._ends, before)]
        if frontier is not None:
            self._frontiers[number] = frontier
            insort(self._ends, frontier)

    @property
    def frontiers(self) -> list[Position]:
        """The frontiers of the shards that answered and have not ended, the bound first."""
        return self._ends[::-1] if self._descending else self._ends[:]

    @property
    def silent(self) -> bool:
        """Whether some shard has not answered yet."""
        return bool(self._silent)

    def goes_on(self, number: int) -> bool:
        """Return whether a shard has answered and not ended."""
        return number in self._frontiers

    def held_by(self, number: int) -> int:
        """Return how many items of a shard are buffered."""
        return len(self._runs[number].items)

    @property
    def held(self) -> Rows:
        return self._first([(number, len(run.items)) for number, run in enumerate(self._runs)])

    def not_after(self, place: Position, other: Position) -> bool:
        """Return whether ``place`` is at or before ``other`` in the reading direction."""
        return place >= other if self._descending else place <= other

    def behind(self, place: Position) -> list[int]:
        """Return the shards that have not ended and were not read as far as ``place``."""
        return [
            number
            for number, frontier in self._frontiers.items()
            if frontier != place and self.not_after(frontier, place)
        ]

    def bound(self) -> Position | None:
        """Return the earliest frontier; None if all shards have ended."""
        return self._ends[-1 if self._descending else 0] if self._ends else None

    def up_to(self, places: Sequence[Position]) -> list[int]:
        """Return, for each place, the number of buffered items at or before it."""
        held = sorted((sort_key, number) for number, run in enumerate(self._runs) for sort_key in run.sort_keys)
        if self._descending:
            return [len(held) - bisect_left(held, place) for place in places]
        return [bisect_right(held, place) for place in places]

    def release(self, limit: int | None = None) -> Rows:
        """Return, in order, the items up to the bound, at most ``limit``, and drop them from the buffer."""
        if self._silent and not self._ranges:
            return Rows()
        bound, heads = self.bound(), self._heads
        first, end = 0, len(heads)
        if bound is not None and self._descending:
            first = bisect_left(heads, bound)
        elif bound is not None:
            end = bisect_right(heads, bound)
        if self._silent:
            while self._first_silent not in self._silent:
                self._first_silent += self._step
            if self._descending:
                first = max(first, bisect_right(heads, self._first_silent, key=_number))
            else:
                end = min(end, bisect_left(heads, self._first_silent, key=_number))
        reached = slice(first, end)
        ready = heads[reached]
        del heads[reached]
        rows = self._first([(number, self._turn(number, bound)) for _, number in ready])
        if limit is not None:
            del rows.numbers[limit:], rows.items[limit:]
        taken = Counter(rows.numbers)
        for _, number in ready:
            run = self._runs[number]
            turn = taken[number]
            del run.sort_keys[:turn], run.items[:turn]
            self.released[number] += turn
            if run.items:
                insort(heads, (run.sort_keys[0], number))
        self.count -= taken.total()
        return rows

    def _turn(self, number: int, bound: Position | None) -> int:
        # Counts the items at the front of a shard's run that are up to the bound. Between equal sort keys the shard
        # decides: the bound's own shard, and those before it in reading order, are up to the bound with items of that
        # sort key; the shards after it are not. A descending run is sorted in reverse, which bisect cannot search.
        sort_keys = self._runs[number].sort_keys
        if bound is None:
            return len(sort_keys)
        sort_key, last = bound
        if not self._descending:
            cut = bisect_right if number <= last else bisect_left
            return cut(sort_keys, sort_key)
        low, high = 0, len(sort_keys)
        while low < high:
            middle = (low + high) // 2
            there = sort_keys[middle]
            if there > sort_key or (number >= last and there == sort_key):
                low = middle + 1
            else:
                high = middle
        return low

    def _first(self, counts: list[tuple[int, int]]) -> Rows:
        """Return, in order, the first items of some shards, so many of each."""
        # Sorting by sort key alone is enough: the items come shard by shard in reading order, and Python's sort is
        # stable, with ``reverse`` too. It is fast on runs that are already in order, as each shard's is.
        sort_keys: list[Any] = []
        rows = Rows()
        for number, count in sorted(counts, reverse=self._descending):
            run = self._runs[number]
            sort_keys += run.sort_keys[:count]
            rows += Rows([number] * count, run.items[:count])
        order = sorted(range(len(sort_keys)), key=sort_keys.__getitem__, reverse=self._descending)
        return Rows([rows.numbers[at] for at in order], [rows.items[at] for at in order])
