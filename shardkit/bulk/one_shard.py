"""Partition keys of which a calculated suffix puts all items on one shard, so that they are not spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardkit.sharding.layout import Sharding
from shardkit.strategies import CalculatedSuffix, Strategy

__all__ = ["MANY_ITEMS", "MOST_KEYS", "OneShard", "one_shard_advice"]

MANY_ITEMS = 100
"""Items of a key from which on it is worth a word that they are all on one shard."""

MOST_KEYS = 256
"""Keys that are held when others make room; there are at most twice as many."""


class OneShard:
    """Counts the items of partition keys, and notes whether they have more than one shard.

    When there are too many keys, those with most items stay, and of equal ones those that came first: so keys that come
    in turn are counted to the end, and a key that becomes hot late is not missed.

    Memory: at most 512 keys.
    """

    def __init__(self, sharding: Sharding) -> None:
        self._sharding = sharding
        self._calculated = isinstance(sharding.strategy, CalculatedSuffix)
        # By logical key: the only shard so far, or None; and the items.
        self._keys: dict[Any, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, stored: Any, shard: int | None) -> None:
        """Count an item by its partition key as it is stored."""
        if not self._calculated:
            return
        key = stored[: -self._sharding.suffix_bytes(shard)]
        held = self._keys.get(key)
        if held is not None:
            held[1] += 1
            if held[0] != shard:
                held[0] = None
            return
        self._keys[key] = [shard, 1]
        if len(self._keys) > 2 * MOST_KEYS:
            most = sorted(self._keys.items(), key=lambda entry: entry[1][1], reverse=True)
            self._keys = dict(most[:MOST_KEYS])

    def advice(self) -> Iterator[str]:
        """Say which keys have many items and one shard, although there are more shards."""
        strategy = self._sharding.strategy
        found = [
            (items, key, shard)
            for key, (shard, items) in self._keys.items()
            if shard is not None and items >= MANY_ITEMS and len(strategy.shards_for(key)) > 1
        ]
        if found:
            items, key, shard = max(found, key=lambda entry: entry[0])
            count = len(strategy.shards_for(key))
            yield one_shard_advice(strategy, repr(key), items, shard, shards=count, more=len(found) - 1)


def one_shard_advice(strategy: Strategy, key: str, items: int, shard: int | None, *, shards: int, more: int = 0) -> str:
    """Say of a key that its items are not spread, and what to do."""
    others = f"; so it is with {more:,} more partition key{'s' if more > 1 else ''}" if more else ""
    return (
        f"{key:.60} has {items:,} items, all on shard {shard} of its {shards:,}: {strategy!r} gives the same for all "
        f"of them, and does not spread them{others}; calculate the shard from an attribute that differs from item to "
        "item (the sort key), or use RandomSuffix"
    )
