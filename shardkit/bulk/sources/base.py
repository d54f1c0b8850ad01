"""What a load reads from: items, each with its place, so that a failure can be found and a load resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

__all__ = ["BadRecord", "Done", "Item", "IterableSource", "Place", "Record", "Source"]


class Place(NamedTuple):
    """Where a record stands in its source: the ``number``-th, from 0, that the ``cursor``-th cursor reads.

    Example::

        json.dumps(Place(3, 17)) == "[3, 17]"

    It is a tuple: it can be ordered, hashed and written as JSON. What it means to a reader says ``Source.where``.
    """

    cursor: int
    number: int


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read as an item: it fails in its place, and the load goes on.

    Attributes:
        text: The record as the source has it, as far as it is text.
        error: What is wrong with it, and what to do.
    """

    text: str
    error: Exception


Item: TypeAlias = Mapping[str, Any]
Record: TypeAlias = Item | BadRecord
Done: TypeAlias = Callable[[Place], bool]


@runtime_checkable
class Source(Protocol):
    """Items with their places, read by one cursor or by several in turn; what ``open_source`` gives.

    A class of one's own with these members can be given to ``bulk_load`` as its items.
    """

    @property
    def total(self) -> int | None:
        """How many items there are; None: not known."""

    @property
    def bytes_total(self) -> int | None:
        """How many bytes there are to read; None: not known."""

    @property
    def bytes_read(self) -> int:
        """How many bytes the reading has got through."""

    def identity(self) -> dict[str, Any]:
        """Give what must be the same for a load of it to be resumed, as JSON can carry it."""

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        """Read the records, mixed over the cursors, each with its place; those that are ``done`` are left out."""

    def where(self, place: Place) -> str | int:
        """Say to a reader where a record stands: ``orders.csv, line 18``."""


class IterableSource:
    """An iterable of items as a source: one cursor, one pass; a place is shown as the item's ordinal from 0.

    Example::

        IterableSource([{"Date": "2014-07-09", "OrderId": "A17"}])

    Args:
        items: The items. To resume a load of them, they must come in the same order again.

    Cost: none; nothing is read before ``read``.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = items
        self.bytes_total: int | None = None
        self.bytes_read = 0

    @property
    def total(self) -> int | None:
        """How many items there are, where the iterable knows it."""
        try:
            return len(self.items)  # type: ignore[arg-type] # an iterator has no length, which is asked here
        except TypeError:
            return None

    def identity(self) -> dict[str, Any]:
        """Say that it is an iterable; and of how many items, where it knows."""
        return {"source": "iterable", "total": self.total}

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        """Read the items in their order."""
        for number, item in enumerate(self.items):
            place = Place(0, number)
            if done is None or not done(place):
                yield place, item

    def where(self, place: Place) -> int:
        """Give the item's ordinal, from 0."""
        return place.number
