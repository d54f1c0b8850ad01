"""Pages in, items out in order.

The order of a merged read is (sort key, shard, order within the shard), and descending its reverse. An item may be
handed out once no shard that goes on can still bring one before it: once it is at or before the *bound*, the earliest
of those shards' *frontiers* (how far each has been read).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from shardkit.codec import WireItem

__all__ = ["Entry", "Merge", "Place"]

Comparable: TypeAlias = str | Decimal | bytes
Place: TypeAlias = tuple[tuple[Comparable, ...], int]
"""(sort key, the shard's number in order from 0)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An item that a shard brought, and where it stands in the order."""

    place: Place
    shard: int | None
    item: WireItem


@dataclass(slots=True)
class _Shard:
    entries: deque[Entry] = field(default_factory=deque)
    frontier: Place | None = None
    ended: bool = False


class Merge:
    """Holds what the shards brought until its turn comes."""

    def __init__(self, shards: int, *, descending: bool = False) -> None:
        self._shards = [_Shard() for _ in range(shards)]
        self.going_on = shards
        self._descending = descending

    def add(self, number: int, entries: Iterable[Entry], frontier: Place | None) -> None:
        """Take a page of a shard in its order; a frontier of None says that the shard has ended."""
        shard = self._shards[number]
        shard.entries.extend(entries)
        shard.frontier = frontier
        shard.ended = frontier is None
        self.going_on -= shard.ended

    def not_after(self, place: Place, other: Place) -> bool:
        """Say whether a place comes at or before another in the reading direction."""
        return place >= other if self._descending else place <= other

    @property
    def open(self) -> list[int]:
        """The shards that have not ended."""
        return [number for number, shard in enumerate(self._shards) if not shard.ended]

    @property
    def dry(self) -> list[int]:
        """The shards that go on and hold nothing."""
        return [number for number, shard in enumerate(self._shards) if not shard.ended and not shard.entries]

    @property
    def held(self) -> list[Entry]:
        """What has been brought and not handed out, in order."""
        return self._ordered([entry for shard in self._shards for entry in shard.entries])

    @property
    def empty(self) -> bool:
        """Whether nothing is held."""
        return not any(shard.entries for shard in self._shards)

    def behind(self, place: Place) -> list[int]:
        """The shards that go on and were not read as far as a place."""
        return [n for frontier, n in self._frontiers() if frontier != place and self.not_after(frontier, place)]

    def bound(self) -> tuple[int, Place] | None:
        """Give the shard, and its frontier, that hold the others back; None: nobody does, all have ended."""
        frontiers = self._frontiers()
        if not frontiers:
            return None
        frontier, number = max(frontiers) if self._descending else min(frontiers)
        return number, frontier

    def _frontiers(self) -> list[tuple[Place, int]]:
        frontiers = []
        for number in self.open:
            frontier = self._shards[number].frontier
            assert frontier is not None, "a shard was not asked yet"
            frontiers.append((frontier, number))
        return frontiers

    def release(self, limit: int | None = None) -> list[Entry]:
        """Hand out, in order, at most ``limit`` of the items whose turn has come."""
        if any(self._shards[number].frontier is None for number in self.open):
            return []
        bound = self.bound()
        ready: list[Entry] = []
        for shard in self._shards:
            for entry in shard.entries:
                if bound is not None and not self.not_after(entry.place, bound[1]):
                    break
                ready.append(entry)
        released = self._ordered(ready)[:limit]
        for entry in released:
            self._shards[entry.place[1]].entries.popleft()
        return released

    def _ordered(self, entries: Sequence[Entry]) -> list[Entry]:
        # Each shard's run is in order already, which is what Python's sort is fastest at; it is stable both ways.
        return sorted(entries, key=_place, reverse=self._descending)


def _place(entry: Entry) -> Place:
    return entry.place
