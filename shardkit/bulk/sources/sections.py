"""Sections of a source, read in turn: so that what is sorted arrives mixed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from shardkit.bulk.sources.base import Done, Place, Record
from shardkit.bulk.sources.lines import Skip

__all__ = ["CURSORS", "Section", "SectionedSource", "is_clustered"]

CURSORS = 64
"""Cursors of a source whose records are clustered: an effective 64 keys in flight, where each is in another."""


class Section(Protocol):
    """A part of a source that one cursor reads from its beginning to its end."""

    @property
    def bytes_read(self) -> int:
        """How many of its bytes are read."""

    def records(self, skip: Skip | None = None) -> Iterator[tuple[int, Record]]:
        """Read its records with their numbers from 0; those to skip are left out and counted."""

    def where(self, number: int) -> str:
        """Say where its n-th record stands."""


class SectionedSource:
    """A source of sections, of which so many as there are cursors are open at a time.

    Attributes:
        format: ``csv``, ``tsv``, ``jsonl``, ``dynamodb``, ``parquet`` or ``frame``.
        cursors: How many sections are read in turn.
        sections: The sections, in the order of the source.
        types: A type a column, where cells have none of themselves (CSV, TSV).
        total: How many items there are; None: not known.
        bytes_total: How many bytes there are to read; None: not known.
    """

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
    ) -> None:
        self.sections = sections
        self.format = format
        self.cursors = min(cursors, len(sections))
        self.types = dict(types or {})
        self.total = total
        self.bytes_total = bytes_total
        self._identity = dict(identity)
        self._attributes = attributes

    @property
    def bytes_read(self) -> int:
        """How many bytes the cursors have got through."""
        return sum(section.bytes_read for section in self.sections)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the records have: the columns, or what a sample has; none where it has no records."""
        return tuple(dict.fromkeys(self._attributes()))

    def identity(self) -> dict[str, Any]:
        """Give the files, how they are read, and where each cursor begins."""
        return {**self._identity, "format": self.format, "types": self.types, "cursors": self.cursors}

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        """Read a record of each section in turn; a section that ends makes room for the next."""
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
        """Say in which file a record stands, and where in it."""
        return self.sections[place.cursor].where(place.number)


def _skip(done: Done | None, cursor: int) -> Skip | None:
    if done is None:
        return None
    return lambda number: done(Place(cursor, number))


def is_clustered(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Whether records that stand some hundred apart have the same key far oftener than any two records.

    Only then does a window hold few keys of many, and reading at several places helps.

    Args:
        pairs: The keys of two such records, at several places spread over the source.
    """
    if len(pairs) < 2:  # noqa: PLR2004 - nothing to compare
        return False
    near = sum(first == second for first, second in pairs) / len(pairs)
    keys = [first for first, _ in pairs]
    others = [keys.count(key) - 1 for key in keys]
    far = sum(others) / (len(keys) * (len(keys) - 1))
    return bool(near > far + 0.25)
