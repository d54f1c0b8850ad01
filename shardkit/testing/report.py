"""What a simulation says of a table: which partitions and keys were hot, and what to do where they were throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from shardkit.analysis.shards import shards_for
from shardkit.capacity.charge import KeyValue
from shardkit.capacity.scopes import Grid, plain
from shardkit.capacity.usage import figure
from shardkit.dynamodb.service_errors import Kind
from shardkit.partitions.partition import LIMITS
from shardkit.testing.partitioned import Key, PartitionedTable

__all__ = ["Hot", "complaint_of", "hottest_keys", "hottest_partitions", "text_of"]

_KINDS: tuple[Kind, ...] = ("read", "write")
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Hot:
    """What a partition, or a partition key as it is stored, took and was refused.

    Example::

        (hottest,) = simulated.hottest_keys(1)
        assert hottest.peak_write_units < 500

    Args:
        table: its table's name.
        index: the global index that it is of; None: the table.
        partition: which partition, or the key's, from 0, in the order of their ranges of the hash space.
        key: the key's value; None: it is a partition.
        read_units: read units that it took.
        write_units: write units that it took.
        throttled_read_units: read units that it was refused, of each attempt.
        throttled_write_units: write units that it was refused, of each attempt.
        peak_read_units: read units that it was asked for in its busiest second.
        peak_write_units: write units that it was asked for in its busiest second.
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
        """Units that it was asked for: what it took, and what it refused."""
        return self.read_units + self.write_units + self.throttled_read_units + self.throttled_write_units

    def __str__(self) -> str:
        """Say which one it is."""
        of = "" if self.index is None else f"index {self.index} "
        return f"{of}partition {self.partition}" + ("" if self.key is None else f", key {self.key!r:.60}")


def hottest_partitions(table: PartitionedTable) -> list[Hot]:
    """Give all partitions of a table and of its global indexes, those that were asked for most units first."""
    found = []
    for index, partitions in table.partitions.items():
        for place, heat in enumerate(partitions.heat.by_range):
            units: dict[str, float] = {}
            for kind in _KINDS:
                taken, throttled = heat.taken[kind], heat.throttled[kind]
                asked = map(sum, zip_longest(taken, throttled, fillvalue=0.0))
                units[f"{kind}_units"] = sum(taken)
                units[f"throttled_{kind}_units"] = sum(throttled)
                units[f"peak_{kind}_units"] = max(asked, default=0.0) / partitions.heat.seconds
            found.append(Hot(table=table.name, index=index, partition=place, **units))
    return sorted(found, key=lambda hot: -hot.asked)


def hottest_keys(table: PartitionedTable) -> list[Hot]:
    """Give the keys that are held apart, those that were asked for most units first."""
    figures: dict[Key, dict[str, float]] = {}
    for kind in _KINDS:
        for key, asked in table.asked[kind].held.items():
            refused = table.refused[kind].held.get(key)
            throttled = refused.units if refused else 0.0
            figures.setdefault(key, {}).update(
                {
                    f"{kind}_units": asked.units - throttled,
                    f"throttled_{kind}_units": throttled,
                    f"peak_{kind}_units": asked.peak,
                }
            )
    found = [
        Hot(table=table.name, index=index, partition=table.partitions[index].place(hashed), key=key, **units)
        for (index, key, hashed), units in figures.items()
    ]
    return sorted(found, key=lambda hot: -hot.asked)


def text_of(table: PartitionedTable) -> str:
    """Put the figures of a table's hottest partitions and keys in rows, below its throttles."""
    lines = [f"{table.name}: {_throttles(table)}"]
    hot = [one for some in (hottest_partitions(table), hottest_keys(table)) for one in some[:_SHOWN] if one.asked]
    if not hot:
        return lines[0]
    names = [f"{kind}{what}" for what in ("read units", "write units") for kind in ("", "throttled ", "peak ")]
    columns = [name for name in names if any(map(_figures(name), hot))]
    rows = [[str(one), *(figure(_figures(name)(one)) for name in columns)] for one in hot]
    return "\n".join([*lines, "", plain(Grid(["", *columns], rows))])


def complaint_of(table: PartitionedTable) -> str:
    """Say that a table was throttled, by which keys, and what to do; empty where it was not."""
    if not table.throttles:
        return ""
    return "\n".join([text_of(table), "", *_advice(table)])


def _throttles(table: PartitionedTable) -> str:
    counts = ", ".join(f"{count:,} {reason}" for reason, count in table.throttles.most_common())
    return f"throttled {table.throttles.total():,} times ({counts})" if counts else "not throttled"


def _figures(column: str) -> Callable[[Hot], float]:
    return attrgetter(column.replace(" ", "_"))


def _advice(table: PartitionedTable) -> Iterator[str]:
    whole = [reason for reason in table.throttles if "KeyRange" not in reason]
    if whole:
        yield (
            f"{' and '.join(sorted(whole))}: more was asked for than the table (or the index) has as a whole, which no "
            "shards change; ask for less, or give it more throughput."
        )
    for kind in _KINDS:
        refused = {key: held for key, held in table.refused[kind].held.items() if key in table.asked[kind].held}
        if not refused or len(whole) == len(table.throttles):
            continue
        key = max(refused, key=lambda one: refused[one].units)
        index, value, _ = key
        asked = table.asked[kind].held[key].peak
        serves = table.serves[index][kind]
        # A partition that has less than partitions can serve is filled by so much less.
        units: dict[str, Any] = {f"{kind}_units": asked * LIMITS[kind] / serves}
        partitions = len(table.partitions[index])
        needed = shards_for(**units, partitions=partitions)
        if needed.shards == 1:
            advice = (
                "That alone it would serve, but other keys are on it too: shardkit.partitions.plan_shards says how "
                f"many shards a whole key needs on {partitions:,} partitions."
            )
        elif needed.shards is None:
            advice = f"No number of shards is enough for that: {needed.reason}."
        else:
            advice = f"Spread it over {needed.shards:,} shards, as ShardedTable does: {needed.reason}."
        yield (
            f"Key {value!r:.60} of {table.name if index is None else f'{table.name} {index}'} was refused most: it was "
            f"asked for up to {figure(asked)} {kind} units a second (each attempt counted), and its partition serves "
            f"{figure(serves)}. {advice}"
        )
