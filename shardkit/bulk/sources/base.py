"""Sources of a load: items with their places, which locate failures and let a load be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable


class Place(NamedTuple):
    """The position of a record in its source: the ``number``-th, from 0, that the ``cursor``-th cursor reads.

    A tuple: it can be ordered, hashed and written as JSON.
    """

    cursor: int
    number: int


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read as an item: it fails, and the load continues."""

    text: str
    error: Exception


Item: TypeAlias = Mapping[str, Any]
Record: TypeAlias = Item | BadRecord
Done: TypeAlias = Callable[[Place], bool]


@runtime_checkable
class Source(Protocol):
    """Items with their places, read by one cursor or by several in turn; ``open_source`` returns one.

    You can pass your own class with these members to ``bulk_load`` as its items.
    """

    @property
    def total(self) -> int | None:
        """The number of items; None if unknown."""

    @property
    def bytes_total(self) -> int | None:
        """The number of bytes to read; None if unknown."""

    @property
    def bytes_read(self) -> int:
        """The number of bytes read so far."""

    def identity(self) -> dict[str, Any]:
        """Return what must be the same when a load of it is resumed, as JSON."""

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        """Read the records that are not ``done``, mixed over the cursors, each with its place."""

    def where(self, place: Place) -> str | int:
        """Return a record's position as a reader understands it: ``orders.csv, line 18``."""


class IterableSource:
    """An iterable of items as a source; to resume a load of them, they must come in the same order again."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = items
        self.bytes_total: int | None = None
        self.bytes_read = 0

    @property
    def total(self) -> int | None:
        try:
            return len(self.items)  # type: ignore[arg-type] # an iterator has no length
        except TypeError:
            return None

    def identity(self) -> dict[str, Any]:
        return {"source": "iterable", "total": self.total}

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        for number, item in enumerate(self.items):
            place = Place(0, number)
            if done is None or not done(place):
                yield place, item

    def where(self, place: Place) -> int:
        return place.number
