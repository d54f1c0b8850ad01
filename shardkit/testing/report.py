"""Report which partitions and keys of a simulated table were hot, and what to do about throttles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from shardkit.analysis.shards import shards_for
from shardkit.capacity.charge import KeyValue
from shardkit.capacity.scopes import plain
from shardkit.capacity.usage import figure
from shardkit.errors import brief
from shardkit.partitions.partition import LIMITS
from shardkit.testing.partitioned import Key, PartitionedTable

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Hot:
    """The units that a partition, or a stored partition key, took and was throttled for.

    Example:
        (hottest,) = simulated.hottest_keys(1)
        assert hottest.peak_write_units < 500

    Args:
        table: the name of the table.
        index: the global index; None: the table.
        partition: the number of the partition (or of the key's), from 0, in the order of the ranges of the hash space.
        key: the value of the key; None: this is a partition.
        read_units: read units that it took.
        write_units: write units that it took.
        throttled_read_units: read units of its throttled attempts.
        throttled_write_units: write units of its throttled attempts.
        peak_read_units: read units requested in its busiest second.
        peak_write_units: write units requested in its busiest second.
    """

    table: str
    index: str | None
    partition: int
    key: KeyValue = None
    read_units: float = 0.0
    write_units: float = 0.0
    throttled_read_units: float = 0.0
    throttled_write_units: float = 0.0
    peak_read_units: float = 0.0
    peak_write_units: float = 0.0

    @property
    def asked(self) -> float:
        """Units requested: those taken, and those throttled."""
        return self.read_units + self.write_units + self.throttled_read_units + self.throttled_write_units

    def __str__(self) -> str:
        of = "" if self.index is None else f"index {self.index} "
        return f"{of}partition {self.partition}" + ("" if self.key is None else f", key {brief(self.key, 60)}")


def hottest_partitions(table: PartitionedTable) -> list[Hot]:
    """Return all partitions of a table and its global indexes, the most requested first."""
    found = []
    for index, partitions in table.partitions.items():
        for place, heat in enumerate(partitions.heat.by_range):
            units: dict[str, float] = {}
            for kind in LIMITS:
                taken, throttled = heat.taken[kind], heat.throttled[kind]
                asked = map(sum, zip_longest(taken, throttled, fillvalue=0.0))
                units[f"{kind}_units"] = sum(taken)
                units[f"throttled_{kind}_units"] = sum(throttled)
                units[f"peak_{kind}_units"] = max(asked, default=0.0) / partitions.heat.seconds
            found.append(Hot(table=table.name, index=index, partition=place, **units))
    return sorted(found, key=lambda hot: -hot.asked)


def hottest_keys(table: PartitionedTable) -> list[Hot]:
    """Return the keys that are counted separately, the most requested first."""
    figures: dict[Key, dict[str, float]] = {}
    for kind in LIMITS:
        for key, asked in table.asked[kind].held.items():
            refused = table.refused[kind].held.get(key)
            throttled = refused.units if refused else 0.0
            units = figures.setdefault(key, {})
            units[f"{kind}_units"] = asked.units - throttled
            units[f"throttled_{kind}_units"] = throttled
            units[f"peak_{kind}_units"] = asked.peak
    found = [
        Hot(table=table.name, index=index, partition=table.partitions[index].place(hashed), key=key, **taken)
        for (index, key, hashed), taken in figures.items()
    ]
    return sorted(found, key=lambda hot: -hot.asked)


def text_of(table: PartitionedTable) -> str:
    counts = ", ".join(f"{count:,} {reason}" for reason, count in table.throttles.most_common())
    throttled = f"throttled {table.throttles.total():,} times ({counts})" if counts else "not throttled"
    lines = [f"{table.name}: {throttled}"]
    hot = [one for some in (hottest_partitions(table), hottest_keys(table)) for one in some[:_SHOWN] if one.asked]
    if not hot:
        return lines[0]
    names = [f"{kind}{what}" for what in ("read units", "write units") for kind in ("", "throttled ", "peak ")]
    figures = {name: attrgetter(name.replace(" ", "_")) for name in names}
    columns = [name for name in names if any(map(figures[name], hot))]
    rows = [[str(one), *(figure(figures[name](one)) for name in columns)] for one in hot]
    return "\n".join([*lines, "", plain([["", *columns], *rows])])


def complaint_of(table: PartitionedTable) -> str:
    """Return which keys of a table were throttled and what to do, or an empty text without throttles."""
    if not table.throttles:
        return ""
    return "\n".join([text_of(table), "", *_advice(table)])


def _advice(table: PartitionedTable) -> Iterator[str]:
    whole = [reason for reason in table.throttles if "KeyRange" not in reason]
    if whole:
        yield (
            f"{' and '.join(sorted(whole))}: requests exceed the throughput of the whole table (or index), which no "
            "shards change; send fewer requests, or give it more throughput."
        )
    for kind in LIMITS:
        refused = {key: held for key, held in table.refused[kind].held.items() if key in table.asked[kind].held}
        if not refused or len(whole) == len(table.throttles):
            continue
        key = max(refused, key=lambda one: refused[one].units)
        index, value, _ = key
        asked = table.asked[kind].held[key].peak
        serves = table.partitions[index].serves[kind]
        partitions = len(table.partitions[index])
        # A partition with less than the usual limit is full at a proportionally lower rate.
        units: dict[str, Any] = {f"{kind}_units": asked * LIMITS[kind] / serves}
        needed = shards_for(**units, partitions=partitions)
        if needed.shards == 1:
            advice = (
                "It would serve this key alone, but it has other keys too: shardkit.partitions.plan_shards calculates "
                f"how many shards a whole key needs on {partitions:,} partitions."
            )
        elif needed.shards is None:
            advice = f"No number of shards is enough for that: {needed.reason}."
        else:
            advice = f"Spread it over {needed.shards:,} shards, as ShardedTable does: {needed.reason}."
        where = table.name if index is None else f"{table.name} {index}"
        yield (
            f"Key {brief(value, 60)} of {where} was throttled most: up to {figure(asked)} {kind} units a second were "
            f"requested (each attempt counted), and its partition serves {figure(serves)}. {advice}"
        )
