"""The items of a simulated table, and the pages that a Query evaluates."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from shardkit.dynamodb.expressions.key_condition import matches, parse_key_condition, sort_value
from shardkit.dynamodb.schema import Index, KeySchema
from shardkit.dynamodb.sizes import SizedItem, item_size
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import UnsupportedExpressionError

PAGE_BYTES = 1024 * 1024
"""The most bytes that a Query evaluates, before filter and projection (API reference)."""

SortPosition = tuple[Any, ...]


class Page(list[Mapping[str, WireValue]]):
    """The items that a Query evaluated; ``last`` is the key of the last one if there are more."""

    last: WireItem | None = None


class _Collections:
    """Items by partition key, in the order of their sort keys, then of their primary keys."""

    def __init__(self, keys: KeySchema, primary: KeySchema) -> None:
        self._keys = keys
        self.names = tuple(dict.fromkeys((*keys.names, *primary.names)))
        self._places: dict[Hashable, list[SortPosition]] = {}
        self.items: dict[tuple[Hashable, SortPosition], SizedItem] = {}

    def get(self, key: Mapping[str, WireValue]) -> SizedItem | None:
        return self.items.get((self._owner(key), self.place(key)))

    def add(self, entry: SizedItem) -> None:
        owner, place = self._owner(entry.item), self.place(entry.item)
        insort(self._places.setdefault(owner, []), place)
        self.items[owner, place] = entry

    def remove(self, entry: SizedItem) -> None:
        owner, place = self._owner(entry.item), self.place(entry.item)
        del self.items[owner, place]
        places = self._places[owner]
        del places[bisect_left(places, place)]
        if not places:
            del self._places[owner]

    def place(self, item: Mapping[str, WireValue]) -> SortPosition:
        # Within an item collection, the sort key decides the order, then the primary key.
        return tuple([sort_value(item[name]) for name in self.names[len(self._keys.partition) :]])

    def page(self, params: Mapping[str, Any]) -> Page:
        condition = parse_key_condition(params)
        owner = self._owner(condition.equals)
        places = self._places.get(owner, [])
        backwards = params.get("ScanIndexForward") is False
        start = params.get("ExclusiveStartKey")
        if start is not None:
            place = self.place(start)
            places = places[: bisect_left(places, place)] if backwards else places[bisect_right(places, place) :]
        most = params.get("Limit")
        page, size = Page(), 0
        for place in reversed(places) if backwards else places:
            item, bytes_of = self.items[owner, place]
            if any(sort_value(item[name]) != sort_value(value) for name, value in condition.equals.items()):
                continue
            if condition.range is not None and not matches(condition.range[1], item[condition.range[0]]):
                continue
            page.append(item)
            size += bytes_of
            if len(page) == most or size > PAGE_BYTES:
                page.last = {name: item[name] for name in self.names}
                break
        return page

    def _owner(self, item: Mapping[str, WireValue]) -> Hashable:
        try:
            return tuple([sort_value(item[name]) for name in self._keys.partition])
        except KeyError as error:
            raise UnsupportedExpressionError(
                f"KeyConditionExpression: must have '=' on the partition key {error}"
            ) from error


class StoredItems:
    """A table's items in wire form, and the entries of its indexes; they take about 1 KB more per item."""

    def __init__(self, keys: KeySchema, indexes: Iterable[Index]) -> None:
        self._table = _Collections(keys, keys)
        self._indexes = {index.name: (index, _Collections(index.keys, keys)) for index in indexes}

    def __len__(self) -> int:
        return len(self._table.items)

    def get(self, key: Mapping[str, WireValue]) -> Mapping[str, WireValue] | None:
        """Return the item of a primary key, or None; ``key`` may be a whole item."""
        found = self._table.get(key)
        return None if found is None else found.item

    def put(self, item: Mapping[str, WireValue]) -> None:
        self.delete(item)
        held = SizedItem(item, item_size(item))
        for collections, entry in self._entries(held):
            collections.add(entry)

    def delete(self, key: Mapping[str, WireValue]) -> None:
        held = self._table.get(key)
        if held is not None:
            for collections, entry in self._entries(held):
                collections.remove(entry)

    def page(self, params: Mapping[str, Any]) -> Page:
        name = params.get("IndexName")
        return (self._table if name is None else self._indexes[name][1]).page(params)

    def _entries(self, held: SizedItem) -> Iterator[tuple[_Collections, SizedItem]]:
        yield self._table, held
        for index, collections in self._indexes.values():
            entry = index.entry(held)
            if entry is not None:
                yield collections, entry
