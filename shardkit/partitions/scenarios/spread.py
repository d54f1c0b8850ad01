"""A scenario's items as one of its ways stores them: with suffixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from shardkit.core.hashing import stable_hash
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.units import write_units
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.partitions.scenarios.items import Items
from shardkit.sharding.items import drawn_shard
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Unsharded

Key = tuple[tuple[str, Any], ...]  # a hashable form of the partition key's wire values: type and content of each


class SpreadItems:
    """The items, spread over the shards of a way's strategy; an item always gets the same shard."""

    def __init__(self, items: Items, sharding: Sharding, seed: int) -> None:
        self.items = items
        self.sharding = sharding
        self._seed = seed

    def draw(self, number: int) -> float:
        """Return the random number in [0, 1) that chooses an item's suffix."""
        return stable_hash((self._seed, number)) / 2**64

    def __getitem__(self, number: int) -> WireItem:
        """Return an item as stored, in wire form."""
        return self._stored(number, self.items[number])[0]

    def key(self, number: int) -> WireItem:
        """Return an item's primary key as stored, in wire form."""
        stored, _ = self._stored(number, self.items.attributes(number))
        return {name: stored[name] for name in self.sharding.keys.names}

    def key_units(self) -> Counter[Key]:
        """Return the write units of each partition key of the table when every item is written once."""
        units: Counter[Key] = Counter()
        for number, size in enumerate(self.items.sizes):
            stored, shard = self._stored(number, self.items.attributes(number))
            suffix = self.sharding.suffix_bytes(shard)
            units[_key(stored, self.sharding.keys.partition)] += int(write_units(size + suffix))
        return units

    def _stored(self, number: int, item: Mapping[str, Any]) -> tuple[WireItem, int | None]:
        wire = to_wire_item(item)
        sharding = self.sharding
        logical = sharding.key_of(wire)[sharding.partition_key]
        shard = sharding.shard_of(logical, item)
        if shard is None and not isinstance(sharding.strategy, Unsharded):
            shard = drawn_shard(sharding, wire, self.draw(number))
        return sharding.stored(wire, shard), shard


def _key(item: Mapping[str, WireValue], names: tuple[str, ...]) -> Key:
    return tuple(entry for name in names for entry in item[name].items())


def key_text(key: Key) -> str:
    """Return a partition key as text."""
    return "#".join(str(from_wire({letter: content})) for letter, content in key)
