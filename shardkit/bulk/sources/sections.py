"""Read the sections of a source in turn, so that sorted records arrive mixed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from shardkit.bulk.sources.base import Done, Place, Record
from shardkit.bulk.sources.lines import Skip

CURSORS = 64
"""Cursors of a source whose records are clustered by key: 64 keys in flight, if each cursor reads another key."""


class Section(Protocol):
    """A part of a source, read by one cursor from start to end."""

    @property
    def bytes_read(self) -> int: ...

    def records(self, skip: Skip | None = None) -> Iterator[tuple[int, Record]]:
        """Read its records with their numbers from 0; skipped records are counted."""

    def where(self, number: int) -> str: ...


class SectionedSource:
    """A source of sections, of which so many as there are ``cursors`` are read in turn."""

    def __init__(
        self,
        sections: Sequence[Section],
        *,
        format: str,  # noqa: A002 - what the option is called
        cursors: int,
        identity: Mapping[str, Any],
        attributes: Callable[[], Iterable[str]],
        types: Mapping[str, str] | None = None,
        total: int | None = None,
        bytes_total: int | None = None,
        divide: Callable[[int, Sequence[str]], Sequence[Section]] | None = None,
    ) -> None:
        self.sections = sections
        self._divide = divide
        self.format = format
        self.cursors: int = min(cursors, len(sections))
        self.types: dict[str, str] = dict(types or {})
        self.total = total
        self.bytes_total = bytes_total
        self._identity = dict(identity)
        self._attributes = attributes

    @property
    def bytes_read(self) -> int:
        return sum(section.bytes_read for section in self.sections)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of the records: the columns, or those of a sample; empty if there are no records."""
        return tuple(dict.fromkeys(self._attributes()))

    def identity(self) -> dict[str, Any]:
        return {**self._identity, "format": self.format, "types": self.types, "cursors": self.cursors}

    def divided(self, count: int, keys: Sequence[str]) -> Sequence[Section]:
        """Divide it anew, into about ``count`` sections between primary keys; in the order of the source."""
        return self.sections if self._divide is None else self._divide(count, keys)

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        """Read one record of each open section in turn; when a section ends, the next one is opened."""
        waiting = iter(enumerate(self.sections))
        with ExitStack() as opened:
            running: deque[tuple[int, Iterator[tuple[int, Record]]]] = deque()

            def start(count: int) -> None:
                for cursor, section in islice(waiting, count):
                    records = section.records(_skip(done, cursor))
                    opened.enter_context(closing(records))  # type: ignore[type-var] # generators, all of them
                    running.append((cursor, records))

            start(self.cursors)
            while running:
                cursor, records = running[0]
                pair = next(records, None)
                if pair is None:
                    running.popleft()
                    start(1)
                    continue
                running.rotate(-1)
                yield Place(cursor, pair[0]), pair[1]

    def where(self, place: Place) -> str:
        return self.sections[place.cursor].where(place.number)


def _skip(done: Done | None, cursor: int) -> Skip | None:
    if done is None:
        return None
    return lambda number: done(Place(cursor, number))


def is_clustered(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether records some hundred apart share their key far more often than any two records.

    Only then does a window hold few of the keys, and reading at several positions helps. ``pairs`` are the keys of two
    such records, at several positions spread over the source.
    """
    if len(pairs) < 2:  # noqa: PLR2004 - nothing to compare
        return False
    near = sum(first == second for first, second in pairs) / len(pairs)
    keys = [first for first, _ in pairs]
    others = [keys.count(key) - 1 for key in keys]
    far = sum(others) / (len(keys) * (len(keys) - 1))
    return bool(near > far + 0.25)
