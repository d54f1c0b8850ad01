"""How even a key's shards are, and how many shards it needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any

from shardkit.analysis.hot_index import index_advice, index_argument, index_line
from shardkit.analysis.per_key import SUFFIXED, PerKey, are_few
from shardkit.analysis.shards import shards_for
from shardkit.capacity.charge import KeyOfTable, KeyValue
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import Usage, figure
from shardkit.core.checks import check_headroom
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, partitions_taken
from shardkit.errors import brief
from shardkit.sharding.layout import Sharding
from shardkit.sharding.shard_map import MAP, can_grow
from shardkit.strategies import CalculatedSuffix, RandomSuffix, Strategy, Unsharded

_SKEWED = 2.0  # times the fair share
_THROTTLED = "more than it has, because it was throttled, and what it asks for is not known"


@dataclass(frozen=True, kw_only=True)
class Skew:
    """How a key's units are spread over its shards.

    Args:
        table: the table's name.
        key: the logical key.
        shards: how many shards it has.
        by_physical_key: what each shard that was used consumed; the units of batches are apportioned.
    """

    table: str
    key: KeyValue
    shards: int
    by_physical_key: Mapping[KeyValue, Usage]

    @property
    def hottest(self) -> KeyValue:
        """The physical key that consumed most, estimates included; None if none was used."""
        units = {key: usage.units_with_estimates for key, usage in self.by_physical_key.items()}
        return max(units, key=units.__getitem__, default=None)

    @property
    def share(self) -> float:
        """The hottest shard's share of the key's units, from 0 to 1."""
        units = [usage.units_with_estimates for usage in self.by_physical_key.values()]
        return max(units) / sum(units) if sum(units) else 0.0

    @property
    def fair_share(self) -> float:
        """Each shard's share if all had the same."""
        return 1 / self.shards

    @property
    def times_fair(self) -> float:
        """The hottest shard's share divided by the fair one: 1 is even, ``shards`` means that all is on one shard."""
        return self.share * self.shards

    def __str__(self) -> str:
        if not self.share:
            return f"{self.table} {brief(self.key, 60)}: nothing was seen of its {self.shards} shards"
        return (
            f"{self.table} {brief(self.key, 60)}: the hottest of {self.shards} shards, {brief(self.hottest, 60)}, took "
            f"{self.share:.1%} of its units, {self.times_fair:.2f} times the fair share of {self.fair_share:.1%}"
        )


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A key that needs more throughput than a partition serves, and how many shards it needs.

    Args:
        table: the table's name.
        key: the logical key. Of an index, a tuple if it has several attributes, None if it is unknown.
        shards: how many shards it has now.
        shards_needed: how many it needs; None: no number is enough.
        reason: why so many, and what is assumed of the table's partitions.
        peak_read_units: read units in the busiest second of its hottest shard (or of the key, if it has no shards),
            estimates included.
        peak_write_units: the same of write units.
        throttles: attempts that were throttled because its partition was too hot: it needs more than the peaks show.
        headroom: the part of a partition's throughput that is left free.
        times_fair: its hottest shard's share divided by the fair share, as in :class:`Skew`: 1 is even. More shards
            relieve the hottest only of items that can go to another.
        index: the global index whose key it is; None: it is the table's.
        partition: the attributes of the index's partition key, as far as they are known.
        by: the attributes of the table's primary key, likewise.
        strategy: the strategy that shards the index now; None: it is not sharded.
        growing: whether the key can grow alone, because its table has a shard map: ``line`` does it, which is
            ``ShardMapAdmin(table).grow(key, shards=shards_needed)``.
        per_key: if only a few of the table's keys are hot, the shards for these keys alone; None: all keys should have
            shards, or it is the key of an index.
    """

    table: str
    key: KeyValue
    shards: int
    shards_needed: int | None
    reason: str
    peak_read_units: float
    peak_write_units: float
    throttles: int
    headroom: float
    times_fair: float = 1.0
    index: str | None = None
    partition: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    strategy: Strategy | None = None
    growing: bool = False
    per_key: PerKey | None = None

    @property
    def line(self) -> str | None:
        """What to write; None if all keys of the table should have ``shards_needed``, or no number is enough.

        For an index, the argument ``indexes={…}``. For a table with a shard map, the call that grows the key:
        ``ShardMapAdmin(table).grow(key, shards=shards_needed)``. For another table of which a few keys are hot, the
        strategy with ``shards={…}`` for them all; if the table is sharded, this argument alone.
        """
        if self.shards_needed is not None and self.growing:
            return f"ShardMapAdmin(table).grow({self.key!r}, shards={self.shards_needed})"
        if self.per_key is not None:
            return self.per_key.argument if self.per_key.sharded else self.per_key.line
        if self.index is None or self.shards_needed is None:
            return None
        if self.strategy is None:
            return index_line(self.index, self.partition, self.by, self.shards_needed)
        if not isinstance(self.strategy, RandomSuffix | CalculatedSuffix) or not isinstance(self.strategy.shards, int):
            return None
        return index_argument(self.index, repr(replace(self.strategy, shards=self.shards_needed)))

    @property
    def skewed(self) -> bool:
        """Whether its hottest shard took at least twice its fair share, so that more shards alone may not help."""
        return self.times_fair >= _SKEWED

    @property
    def partitions(self) -> float:
        """How many partitions the hottest shard needs in its busiest second: for reads or for writes, the more."""
        return partitions_taken(self.peak_read_units, self.peak_write_units)

    def __str__(self) -> str:
        skewed = (
            f". But its shards are not even: the hottest took {self.times_fair:.2f} times its fair share of the key's "
            "units. More shards do not help where that is one item, or one value that the suffix is calculated from: "
            f"see {'skew()' if self.index is None else 'by_index_key'}, and spread by something else, or keep the item "
            "elsewhere"
            if self.skewed
            else ""
        )
        throttled = f", throttled {self.throttles:,} times (so it asks for more)" if self.throttles else ""
        known = self.shards_needed is not None
        needed = f"{self.shards_needed:,} shards instead of" if known else "no number of shards is enough, and it has"
        place = self.table if self.index is None else f"{self.table}, index {self.index}"
        name = ", a key that the requests do not name" if self.key is None else f" {brief(self.key, 60)}"
        return (
            f"{place}{name}: {needed} {self.shards:,}: {self.reason}.{self._alone()} The busiest "
            f"second of its hottest shard took {figure(self.peak_read_units)} read and {figure(self.peak_write_units)} "
            f"write units{throttled}, {self.partitions:.2f} of what a partition serves ({PARTITION_READ_UNITS:,} read "
            f"or {PARTITION_WRITE_UNITS:,} write units a second), and {1 - self.headroom:.2f} leaves "
            f"{self.headroom:.0%} headroom{skewed}{self._of_index()}"
        )

    def _alone(self) -> str:
        if self.per_key is None or self.growing:
            return ""
        moved = (
            "The items of these keys must move: shardkit reshard, docs/adopt.md"
            if self.per_key.sharded
            else f"But {SUFFIXED}"
        )
        return (
            f" Write {self.line}, for hot keys alone: the others keep their number of shards, and cheap Queries. "
            f"{moved}. Give all keys as many shards only if many will be hot, or you cannot list them."
        )

    def _of_index(self) -> str:
        if self.index is None:
            return f". To grow the key: {self.line}" if self.growing and self.line else ""
        if self.shards_needed is None:
            what = "write fewer items with one key"
        elif self.strategy is None:
            what = index_advice(self.index, self.partition, self.by, self.shards_needed)
        else:
            what = f"write {self.line or 'a strategy with more shards'}: see docs/sharded-indexes.md"
        return f". A hot index throttles the writes of its table: {what}"


def skew_of(tally: Tally, table: str, key: KeyValue) -> Skew:
    """Return how a key's units are spread over its shards."""
    seen = _by_shard(tally).get((table, key), {})
    if not seen and (usage := tally.keys.usage((table, key))).requests:
        seen = {key: usage}
    return Skew(table=table, key=key, shards=shards_of(tally, table, key), by_physical_key=seen)


def advice_of(tally: Tally, headroom: float) -> list[Advice]:
    """Return the keys that need more throughput than a partition serves, those that need most shards first."""
    check_headroom(headroom)
    advice = [*_with_per_key(tally, [*_of_keys(tally, headroom)]), *_of_index_keys(tally, headroom)]
    return sorted(advice, key=_by_shards)


def _by_shards(one: Advice) -> float:
    return -(one.shards_needed or inf)


def _of_keys(tally: Tally, headroom: float) -> Iterator[Advice]:
    by_shard = _by_shard(tally)
    for table, key in tally.keys:
        seen = by_shard.get((table, key), {})
        peaks = [tally.physical_keys.peaks((table, key, physical)) for physical in seen]
        hottest = max(peaks or [tally.keys.peaks((table, key))], key=lambda pair: partitions_taken(*pair))
        shards, throttles = shards_of(tally, table, key), tally.keys.usage((table, key)).throttles
        found = _advice(table, key, shards, hottest, throttles, headroom)
        if found is not None:
            skew = Skew(table=table, key=key, shards=shards, by_physical_key=seen)
            yield replace(found, times_fair=skew.times_fair or 1.0, growing=_can_grow(tally, table))


def _with_per_key(tally: Tally, advice: list[Advice]) -> Iterator[Advice]:
    """Yield the advice with what to write for each table of which a few keys are hot."""
    seen = Counter(table for table, key in tally.keys if key not in _MAPS)
    for table, group in groupby(sorted(advice, key=_table), _table):
        ones = sorted(group, key=_by_shards)
        needed = {one.key: one.shards_needed for one in ones}
        few = _per_key(tally, table, needed) if are_few(needed, seen[table]) else None
        yield from (replace(one, per_key=few) for one in ones)


_table = attrgetter("table")
_MAPS = frozenset({MAP, MAP.encode()})  # keys of looks for a shard map


def _per_key(tally: Tally, table: str, needed: Mapping[KeyValue, int | None]) -> PerKey | None:
    hot = {key: shards for key, shards in needed.items() if isinstance(key, str | bytes) and shards is not None}
    if len(hot) < len(needed):
        return None
    sharding = tally.shardings.get(table)
    known = sharding or tally.described.get(table)
    if sharding is None or isinstance(sharding.strategy, Unsharded):
        if known is None:
            return PerKey(hot)
        # Of a table without a sort key, a key is one item, which is in one partition.
        return PerKey(hot, known.keys.sort) if known.keys.sort else None
    if not can_grow(sharding.strategy):
        return None
    shards: Any = sharding.strategy.shards
    counts = dict(shards) if isinstance(shards, Mapping) else {None: shards}
    return PerKey({**counts, **hot}, sharded=True)


def _of_index_keys(tally: Tally, headroom: float) -> Iterator[Advice]:
    by_logical: defaultdict[tuple[str, str, KeyValue, int], dict[KeyValue, Usage]] = defaultdict(dict)
    for (table, index, stored), usage in tally.index_keys.usages().items():
        by_logical[table, index, *logical_index_key(tally.described.get(table), index, stored)][stored] = usage
    for (table, index, key, shards), seen in by_logical.items():
        peaks = [tally.index_keys.peaks((table, index, stored)) for stored in seen]
        hottest = max(peaks, key=lambda pair: partitions_taken(*pair))
        found = _advice(table, key, shards, hottest, sum(usage.throttles for usage in seen.values()), headroom)
        if found is not None:
            known = tally.described.get(table)
            schema = None if known is None else known.indexes.get(index)
            sharded = None if known is None else known.sharded.get(index)
            yield replace(
                found,
                times_fair=Skew(table=table, key=key, shards=shards, by_physical_key=seen).times_fair or 1.0,
                index=index,
                partition=() if schema is None else schema.partition,
                by=() if known is None else known.keys.names,
                strategy=None if sharded is None else sharded.strategy,
            )


def _advice(
    table: str, key: KeyValue, shards: int, hottest: tuple[float, float], throttles: int, headroom: float
) -> Advice | None:
    """Return the advice for a key whose hottest shard had these peaks of read and write units; None: it needs none."""
    read, write = hottest
    partitions = partitions_taken(read, write)
    if partitions <= 1 - headroom and not throttles:
        return None
    # As if each shard were as hot as the hottest. A key that was throttled needs more than was seen.
    needed = shards_for(read_units=read * shards, write_units=write * shards, headroom=headroom, more_than=shards)
    return Advice(
        table=table,
        key=key,
        shards=shards,
        shards_needed=needed.shards,
        reason=needed.reason if partitions > 1 - headroom else _THROTTLED,
        peak_read_units=read,
        peak_write_units=write,
        throttles=throttles,
        headroom=headroom,
    )


def _by_shard(tally: Tally) -> dict[KeyOfTable, dict[KeyValue, Usage]]:
    """Return the usage of each physical key that is held, by its logical key."""
    found: dict[KeyOfTable, dict[KeyValue, Usage]] = {}
    for (table, logical, physical), usage in tally.physical_keys.usages().items():
        found.setdefault((table, logical), {})[physical] = usage
    return found


def _can_grow(tally: Tally, table: str) -> bool:
    """Return whether the shard map of a table can give one key more shards."""
    sharding = tally.shardings.get(table)
    return sharding is not None and sharding.has_map and can_grow(sharding.strategy)


def shards_of(tally: Tally, table: str, key: KeyValue) -> int:
    """Return how many shards a logical key has; 1 if its table is not sharded."""
    sharding = tally.shardings.get(table)
    return 1 if sharding is None else len(sharding.strategy.shards_for(key))  # type: ignore[arg-type]


def logical_index_key(known: Sharding | None, index: str, stored: KeyValue) -> tuple[KeyValue, int]:
    """Return the logical key of a stored key of a table's index, and how many shards it has; 1 if it is not sharded."""
    sharded = None if known is None else known.sharded.get(index)
    if sharded is None or stored is None:
        return stored, 1
    key: Any = stored
    strategy = sharded.strategy
    if strategy.attribute is not None:
        pairs = zip(sharded.keys.partition, key, strict=True)
        parts = tuple(value for name, value in pairs if name != strategy.attribute)
        return parts[0] if len(parts) == 1 else parts, len(strategy.shards_for("any"))
    logical, _ = strategy.split(key)
    return logical, len(strategy.shards_for(logical))
