"""What was seen of keys, against what a partition serves: how even a key's shards are, and how many it needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from shardkit.analysis.shards import shards_for
from shardkit.capacity.charge import KeyValue
from shardkit.capacity.tally import KeyOfTable, Tally
from shardkit.capacity.usage import Usage, figure
from shardkit.core.checks import check_headroom
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, partitions_taken

_SKEWED = 2.0  # times the fair share
_THROTTLED = "more than it has, because it was throttled, and what it asks for is not known"


@dataclass(frozen=True, kw_only=True)
class Skew:
    """How a key's units are spread over its shards.

    Args:
        table: the table's name.
        key: the logical key.
        shards: how many shards it has.
        by_physical_key: what each consumed, of those that were seen; units of batches are apportioned.
    """

    table: str
    key: KeyValue
    shards: int
    by_physical_key: Mapping[KeyValue, Usage]

    @property
    def hottest(self) -> KeyValue:
        """The physical key that consumed most, estimates counted; None where nothing was seen."""
        units = {key: usage.units_with_estimates for key, usage in self.by_physical_key.items()}
        return max(units, key=units.__getitem__, default=None)

    @property
    def share(self) -> float:
        """The hottest shard's share of the key's units, from 0 to 1."""
        units = [usage.units_with_estimates for usage in self.by_physical_key.values()]
        return max(units) / sum(units) if sum(units) else 0.0

    @property
    def fair_share(self) -> float:
        """The share that each shard has where all have the same."""
        return 1 / self.shards

    @property
    def times_fair(self) -> float:
        """The hottest shard's share over the fair one: 1 is even, ``shards`` is all on one."""
        return self.share * self.shards

    def __str__(self) -> str:
        """Give the hottest shard's share beside the fair one."""
        if not self.share:
            return f"{self.table} {self.key!r:.60}: nothing was seen of its {self.shards} shards"
        return (
            f"{self.table} {self.key!r:.60}: the hottest of {self.shards} shards, {self.hottest!r:.60}, took "
            f"{self.share:.1%} of its units, {self.times_fair:.2f} times the fair share of {self.fair_share:.1%}"
        )


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A key that is above what a partition serves, and how many shards it needs.

    Args:
        table: the table's name.
        key: the logical key.
        shards: how many shards it has now.
        shards_needed: how many it needs; None: no number is enough.
        reason: why so many, and what is assumed of the table's partitions.
        peak_read_units: read units in the busiest second of its hottest shard (of itself, where it has no shards),
            estimates counted.
        peak_write_units: write units in the busiest second of its hottest shard, estimates counted.
        throttles: attempts that were throttled for the sake of its partition: it asks for more than the peaks show.
        headroom: the part of a partition's throughput that is left free.
        times_fair: its hottest shard's share of its units over the fair one, as in :class:`Skew`: 1 is even. More
            shards take from the hottest only what can go to another.
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

    @property
    def skewed(self) -> bool:
        """Whether its hottest shard took twice its fair share or more, so that more shards alone may not help."""
        return self.times_fair >= _SKEWED

    @property
    def partitions(self) -> float:
        """How many partitions' throughput the hottest shard takes in its busiest second: of reads or of writes."""
        return partitions_taken(self.peak_read_units, self.peak_write_units)

    def __str__(self) -> str:
        """Give the advice with its reasons."""
        skewed = (
            f". But its shards are not even: the hottest took {self.times_fair:.2f} times its fair share of the key's "
            "units. More shards do not help where that is one item, or one value that the suffix is calculated from: "
            "see skew(), and spread by something else, or keep the item elsewhere"
            if self.skewed
            else ""
        )
        throttled = f", throttled {self.throttles:,} times (so it asks for more)" if self.throttles else ""
        known = self.shards_needed is not None
        needed = f"{self.shards_needed:,} shards instead of" if known else "no number of shards is enough, and it has"
        return (
            f"{self.table} {self.key!r:.60}: {needed} {self.shards:,}: {self.reason}. The busiest "
            f"second of its hottest shard took {figure(self.peak_read_units)} read and {figure(self.peak_write_units)} "
            f"write units{throttled}, {self.partitions:.2f} of what a partition serves ({PARTITION_READ_UNITS:,} read "
            f"or {PARTITION_WRITE_UNITS:,} write units a second), and {1 - self.headroom:.2f} leaves "
            f"{self.headroom:.0%} headroom{skewed}"
        )


def skew_of(tally: Tally, table: str, key: KeyValue) -> Skew:
    """Say how a key's units are spread over its shards."""
    seen: dict[KeyValue, Usage] = {
        physical: usage
        for (its_table, logical, physical), usage in tally.physical_keys.usages().items()
        if (its_table, logical) == (table, key)
    }
    if not seen and (usage := tally.keys.usage((table, key))).requests:
        seen = {key: usage}
    return Skew(table=table, key=key, shards=_shards(tally, table, key), by_physical_key=seen)


def advice_of(tally: Tally, headroom: float) -> list[Advice]:
    """Name the keys that are above what a partition serves, those that need most shards first."""
    check_headroom(headroom)
    hottest: dict[KeyOfTable, tuple[float, float]] = {}
    of_shards: defaultdict[KeyOfTable, list[float]] = defaultdict(list)
    for table, logical, physical in tally.physical_keys:
        peaks = tally.physical_keys.peaks((table, logical, physical))
        known = hottest.get((table, logical), peaks)
        hottest[table, logical] = max(known, peaks, key=lambda pair: partitions_taken(*pair))
        of_shards[table, logical].append(tally.physical_keys.usage((table, logical, physical)).units_with_estimates)
    advice = []
    for table, key in tally.keys:
        read, write = hottest.get((table, key)) or tally.keys.peaks((table, key))
        throttles = tally.keys.usage((table, key)).throttles
        partitions = partitions_taken(read, write)
        if partitions <= 1 - headroom and not throttles:
            continue
        shards = _shards(tally, table, key)
        # As if each shard were as hot as the hottest. Where it was throttled, it asks for more than was seen.
        needed = shards_for(read_units=read * shards, write_units=write * shards, headroom=headroom, more_than=shards)
        advice.append(
            Advice(
                table=table,
                key=key,
                shards=shards,
                shards_needed=needed.shards,
                reason=needed.reason if partitions > 1 - headroom else _THROTTLED,
                peak_read_units=read,
                peak_write_units=write,
                throttles=throttles,
                headroom=headroom,
                times_fair=_times_fair(of_shards[table, key], shards),
            )
        )
    return sorted(advice, key=lambda one: -(one.shards_needed or inf))


def _times_fair(units: Sequence[float], shards: int) -> float:
    return max(units) * shards / sum(units) if sum(units) else 1.0


def _shards(tally: Tally, table: str, key: KeyValue) -> int:
    sharding = tally.shardings.get(table)
    return 1 if sharding is None else len(sharding.strategy.shards_for(key))  # type: ignore[arg-type]
