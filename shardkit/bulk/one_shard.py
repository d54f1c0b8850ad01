"""Find partition keys whose items a strategy puts all on one shard, and keys that it names and no item has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shardkit.bulk.writes import Write
from shardkit.core.checks import did_you_mean
from shardkit.errors import brief
from shardkit.sharding.layout import Sharding
from shardkit.strategies import CalculatedSuffix, RangeSuffix, Strategy

MANY_ITEMS = 100
"""From so many items of a key on one shard, a load advises."""

MOST_KEYS = 256
"""Keys that are kept when the table of counts is full, at twice as many."""


class OneShard:
    """Counts the items of each partition key, and whether they are on more than one shard.

    When there are too many keys, those with most items are kept, and of equal ones those that came first. So keys that
    come in turn are counted to the end, and a key that becomes hot late is found.

    Memory: at most 512 keys, and 256 stored ones.
    """

    def __init__(self, sharding: Sharding) -> None:
        self._sharding = sharding
        self._calculated = isinstance(sharding.strategy, CalculatedSuffix | RangeSuffix)
        shards = getattr(sharding.strategy, "shards", None)
        self._named = {key for key in shards if key is not None} if isinstance(shards, Mapping) else set()
        self._stored: Counter[Any] = Counter()
        # By logical key: the only shard so far, or None; and the items.
        self._keys: dict[Any, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._keys) + len(self._stored)

    def add(self, writes: Iterable[Write]) -> None:
        if self._calculated or self._named:
            self._stored.update([write.identity[0] for write in writes])
            if len(self._stored) > MOST_KEYS:
                self._sum()

    def _sum(self) -> None:
        """Add the items of stored keys to those of their logical keys."""
        strategy, keys = self._sharding.strategy, self._keys
        separator, ranges = strategy.separator, strategy.ordered_by is not None
        for stored, items in self._stored.items():
            if ranges:
                key, shard = strategy.split(stored)
            else:
                key, _, shard = stored.rpartition(separator if isinstance(stored, str) else separator.encode())
            self._named.discard(key)
            held = keys.get(key)
            if held is not None:
                held[1] += items
                if held[0] != shard:
                    held[0] = None
                continue
            keys[key] = [shard, items]
            if len(keys) > 2 * MOST_KEYS:
                most = sorted(keys.items(), key=lambda entry: entry[1][1], reverse=True)
                keys = self._keys = dict(most[:MOST_KEYS])
        self._stored.clear()

    def advice(self) -> Iterator[str]:
        """Yield advice if keys have many items on one shard, although they have more shards."""
        self._sum()
        strategy = self._sharding.strategy
        found = [
            (items, key, int(shard))
            for key, (shard, items) in self._keys.items()
            if shard is not None and items >= MANY_ITEMS and len(strategy.shards_for(key)) > 1
        ]
        if found:
            items, key, shard = max(found, key=lambda entry: entry[0])
            count = len(strategy.shards_for(key))
            yield one_shard_advice(strategy, repr(key), items, shard, shards=count, more=len(found) - 1)

    def missing(self) -> Iterator[str]:
        """Yield advice if ``shards`` names keys that no item has had, as where one is misspelt."""
        self._sum()
        if self._named:
            key, more = min(self._named, key=repr), len(self._named) - 1
            near = (
                did_you_mean(key, (one for one in self._keys if isinstance(one, str))) if isinstance(key, str) else ""
            )
            others = f"; the same holds for {more:,} more" if more else ""
            yield f"no item has the key {brief(key, 60)}, which shards names{near}{others}"


def one_shard_advice(strategy: Strategy, key: str, items: int, shard: int | None, *, shards: int, more: int = 0) -> str:
    others = f"; the same holds for {more:,} more partition key{'s' if more > 1 else ''}" if more else ""
    if strategy.ordered_by is not None:
        return (
            f"{key:.60} has {items:,} items, all in range {shard} of its {shards:,} ({strategy!r}){others}; if "
            f"{strategy.ordered_by} only grows, all new items have the last range: use CalculatedSuffix; otherwise cut "
            "the ranges with RangeSuffix.from_sample"
        )
    return (
        f"{key:.60} has {items:,} items, all on shard {shard} of its {shards:,}: {strategy!r} gives the same shard for "
        f"all of them{others}; calculate the shard from an attribute that differs between items (the sort key), or use "
        "RandomSuffix"
    )
