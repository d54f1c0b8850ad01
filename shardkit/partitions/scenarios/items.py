"""The items of a scenario, stored as columns of keys and sizes, so that millions fit into memory; their shards."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardkit.core.hashing import stable_hash
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import write_units
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, InvalidKeyError
from shardkit.partitions.scenarios.scenario import ItemsSettings, Order
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Unsharded

Key = tuple[tuple[str, Any], ...]  # a hashable form of the partition key's wire values: type and content of each
FILLER = "~"
"""The attribute that fills an item up to its size. Its name takes one byte, so it can fill any rest."""

_SORT_DIGITS = 9


@dataclass(frozen=True)
class ScenarioItems:
    """Items that are rebuilt from columns of stored attributes (None: the item does not have it) and their sizes."""

    columns: Mapping[str, Sequence[Any]]
    sizes: Sequence[int]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def types(self) -> dict[str, str]:
        first = {name: next((value for value in of if value is not None), "") for name, of in self.columns.items()}
        return {name: next(iter(value)) for name, value in to_wire_item(first).items()}

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return an item: its stored attributes, and a filler for the rest of its bytes."""
        item = self.attributes(number)
        if left := self.sizes[number] - item_size(item):
            item[FILLER] = "x" * (left - len(FILLER))
        return item

    def attributes(self, number: int) -> dict[str, Any]:
        return {name: value for name, column in self.columns.items() if (value := column[number]) is not None}

    def order(self, order: Order, name: str, draw: Callable[[], float]) -> Sequence[int]:
        """Return the items' numbers as given, sorted by an attribute, or shuffled."""
        numbers = range(len(self))
        if order == "sorted":
            return array("L", sorted(numbers, key=self.columns[name].__getitem__))
        if order == "random":
            return array("L", sorted(numbers, key=[draw() for _ in numbers].__getitem__))
        return numbers


def generated(wanted: ItemsSettings, keys: KeySchema, draw: Callable[[], float]) -> ScenarioItems:
    """Generate items by the distributions of their attributes; ``draw`` draws from [0, 1).

    Without a number, the partition key's distribution sets it. A sort key without a distribution numbers the items.
    """
    columns: dict[str, Sequence[Any]] = {}
    number, attributes = wanted.number, wanted.attributes
    for name in sorted(attributes, key=lambda name: name != keys.partition_key):
        places = array("L", attributes[name].places(number, draw))
        number = len(places)
        columns[name] = _Picked(attributes[name].values, places)
    number = number or 0
    for name in keys.sort:
        columns.setdefault(name, _Counted(number))
    longest = {name: max(one.values, key=len) for name, one in attributes.items()}
    taken = item_size({**dict.fromkeys(columns, "0" * _SORT_DIGITS), **longest})
    least, most = wanted.size
    if taken + len(FILLER) > least:
        raise ConfigurationError(
            f"size: must be at least {taken + len(FILLER):,} bytes for the attributes {', '.join(columns)} with their "
            f"names, got {least:,}"
        )
    return ScenarioItems(columns, array("L", (least + int(draw() * (most - least + 1)) for _ in range(number))))


class Kept:
    """Stores some attributes of real items, and their sizes, of at most the first ``number`` items.

    Memory: 8 bytes per attribute and item, and each different text once.
    """

    def __init__(self, names: Iterable[str], *, needed: Iterable[str] = (), number: int | None = None) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in sorted(names)}
        self._needed = tuple(needed)
        self._sizes = array("L")
        self._texts: dict[str, str] = {}
        self._number = number

    def add(self, item: Mapping[str, Any]) -> None:
        if self._number is not None and len(self._sizes) >= self._number:
            return
        for name in self._needed:
            if item.get(name) is None:
                raise InvalidKeyError(f"the item has no {name!r}, a key of the table; it has {', '.join(item):.200}")
        size = item_size(item)
        for name, column in self._columns.items():
            value = item.get(name)
            column.append(self._texts.setdefault(value, value) if isinstance(value, str) else value)
        self._sizes.append(size)

    def items(self) -> ScenarioItems:
        if not self._sizes:
            raise ConfigurationError("source: has no items to simulate")
        for name, column in self._columns.items():
            if all(value is None for value in column):
                raise ConfigurationError(
                    f"none of {len(self._sizes):,} items has the attribute {name!r}; choose one that they have"
                )
        return ScenarioItems(self._columns, self._sizes)


@dataclass(frozen=True)
class _Picked(Sequence[Any]):
    """The value of each item, by its place in ``values``."""

    values: Sequence[str]
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        return self.values[self.places[number]]


@dataclass(frozen=True)
class _Counted(Sequence[Any]):
    """The number of each item, with leading zeros."""

    items: int

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, number: Any) -> Any:
        return f"{number:0{_SORT_DIGITS}}"


class SpreadItems:
    """The items, spread over the shards of a way's strategy; an item always gets the same shard."""

    def __init__(self, items: ScenarioItems, sharding: Sharding, seed: int) -> None:
        self.items = items
        self.sharding = sharding
        self._seed = seed

    def draw(self, number: int) -> float:
        """Return the random number in [0, 1) that chooses an item's suffix."""
        return stable_hash((self._seed, number)) / 2**64

    def __getitem__(self, number: int) -> WireItem:
        return self._stored(number, self.items[number])[0]

    def key(self, number: int) -> WireItem:
        stored, _ = self._stored(number, self.items.attributes(number))
        return {name: stored[name] for name in self.sharding.keys.names}

    def key_units(self) -> Counter[Key]:
        """Return the write units of each partition key of the table when every item is written once."""
        units: Counter[Key] = Counter()
        for number, size in enumerate(self.items.sizes):
            stored, shard = self._stored(number, self.items.attributes(number))
            logical, _ = self.sharding.logical(stored[self.sharding.partition_key])
            suffix = self.sharding.suffix_bytes(logical, shard)
            units[_key(stored, self.sharding.keys.partition)] += int(write_units(size + suffix))
        return units

    def _stored(self, number: int, item: Mapping[str, Any]) -> tuple[WireItem, int | None]:
        wire = to_wire_item(item)
        sharding = self.sharding
        logical = sharding.key_of(wire)[sharding.partition_key]
        shard = sharding.shard_of(logical, item)
        if shard is None and not isinstance(sharding.strategy, Unsharded):
            shard = sharding.drawn(logical, self.draw(number))
        return sharding.stored(wire, shard), shard


def _key(item: Mapping[str, WireValue], names: tuple[str, ...]) -> Key:
    return tuple(entry for name in names for entry in item[name].items())


def key_text(key: Key) -> str:
    return "#".join(str(from_wire({letter: content})) for letter, content in key)
