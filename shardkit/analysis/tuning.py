"""When a key gets more shards by itself, and how many: a rule over what all processes report each minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, inf
from statistics import fmean
from typing import Any, NamedTuple

from shardkit.analysis.heat_reports import Heat, Report, heat_of
from shardkit.analysis.shards import HEADROOM, shards_for
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS

MOST_KEYS = 10
"""Keys that grow in one change."""
A_DAY = 12
"""Changes."""
DAY = 86_400.0
HOT = 0.7 * PARTITION_WRITE_UNITS
"""Write units a second of a hot shard."""
_REFUSED = 0.02 * PARTITION_WRITE_UNITS
_MINUTES, _OF = 10, 15
_EPISODES, _APART = 3, 26 * 60  # minutes: a job that comes back at about the same time
_BLOCK, _RECENT, _BLOCKS = 20, 6, 72  # minutes whose highest peak is kept; two hours of them; a day
_AHEAD = 180  # minutes of a trend
_MARGIN = 1.25  # where units were refused: what was wanted is known only in part
_COLD, _COLD_AFTER = 2, 7200.0
_WATCHED = 30  # keys whose day is kept
_FRESH, _HOUR = 180.0, 3600.0
_MOVER_READ_UNITS = 100.0

_SHORT = "hot for fewer than 10 of 15 minutes so far; if it ends before (a flash crowd), a cache or a budget helps"
_LATE = "if keys are cold again after they grew (a moving hotspot), give new keys more shards, or use TimeSeries"
_ONE = "one item takes most of the key's writes, and it has one shard; use a counter, or write less often"
_INDEX = "an index is hot, which more shards of the table's keys do not change; give the index a key with more values"
_WARM = "throttled, but no key alone is too much (warm keys on one partition); wait for splits, or warm the table up"


@dataclass
class Watched:
    """What is remembered of a key: its highest peaks, one for each 20 minutes up to ``block``, and its hot minutes."""

    block: int
    peaks: list[int] = field(default_factory=lambda: [0])
    hot: list[int] = field(default_factory=list)
    episodes: list[int] = field(default_factory=list)

    def take(self, minute: int, heat: Heat | None, shards: int) -> None:
        """Let time go on to a minute, of which something may have been reported."""
        block = max(self.block, minute // _BLOCK)
        self.peaks = (self.peaks + [0] * min(block - self.block, _BLOCKS))[-_BLOCKS:]
        self.block = block
        self.hot = [each for each in self.hot if each > minute - _OF]
        if heat is not None:
            self.peaks[-1] = max(self.peaks[-1], ceil(heat.wanted))
            if (heat.wanted >= HOT * shards or heat.refused >= _REFUSED * shards) and minute not in self.hot:
                if not self.hot:
                    self.episodes = [*(each for each in self.episodes if each > minute - _APART), minute]
                self.hot.append(minute)

    def expected(self) -> float:
        """Return the units to plan for: the day's peak, or that of two hours with three hours of their trend."""
        recent = self.peaks[-_RECENT:]
        rise = 0.0
        if third := len(recent) // 3:
            # The smaller of two rises: a step has only one.
            first, middle, last = map(fmean, (recent[:third], recent[third:-third], recent[-third:]))
            rise = max(0.0, min(middle - first, last - middle)) / (third * _BLOCK)
        return max(*self.peaks, max(recent) + min(rise * _AHEAD, max(recent)))

    def asks(self, minute: int) -> bool:
        """Return whether it was hot for long, or is hot again."""
        return len(self.hot) >= _MINUTES or (len(self.episodes) >= _EPISODES and minute in self.hot)


@dataclass
class Growth:
    """A change that was decided; ``effect``: when processes followed it, ``cold``: whether a key was cold after it."""

    at: float
    before: dict[str, int]
    shards: dict[str, int]
    effect: float | None = None
    cold: bool | None = None


class Fleet(NamedTuple):
    """What was reported of a minute: by how many of the last hour's processes, and each key's heat and shards."""

    reports: int
    processes: int
    heats: Mapping[str, Heat]
    shards: Mapping[str, int]
    hot_index: bool = False


@dataclass
class Memory:
    """What is remembered from run to run; all times are the service's."""

    seen: dict[str, Sequence[float]] = field(default_factory=dict)  # by process: a counter, and since when
    keys: dict[str, Watched] = field(default_factory=dict)
    growths: list[Growth] = field(default_factory=list)

    @classmethod
    def of(cls, seen: Any = (), keys: Any = (), growths: Any = ()) -> Memory:
        """Return it from JSON."""
        watched = {key: Watched(**each) for key, each in dict(keys).items()}
        return cls(dict(seen), watched, [Growth(**each) for each in growths])

    def see(
        self, now: float, reports: Mapping[str, Report], shards: Callable[[str], int], *, steady: bool = True
    ) -> Fleet:
        """Take in the reports by process; one counts if this memory saw it change in the last 3 minutes.

        ``steady``: keys took what was wanted of them, and nothing for a change of their shards.
        """
        for name, report in reports.items():
            if self.seen.get(name, (None,))[0] != report.counter:
                self.seen[name] = report.counter, now
        self.seen = {name: each for name, each in self.seen.items() if name in reports}
        fresh = [reports[name] for name, (_, since) in self.seen.items() if now - since < _FRESH]
        processes = sum(now - since < _HOUR for _, since in self.seen.values())
        found = heat_of(fresh)
        index = any(heat.peak >= HOT for (_, name), heat in found.items() if name)
        heats = {key: heat for (key, name), heat in found.items() if not name}
        if index:  # what it refuses says nothing of the table's keys
            heats = {key: heat._replace(refused=0.0) for key, heat in heats.items()}
        fleet = Fleet(len(fresh), processes, heats, {key: shards(key) for key in heats}, index)
        self.take(now, fleet if steady else fleet._replace(heats={}))
        return fleet

    def take(self, now: float, fleet: Fleet) -> None:
        minute = int(now // 60)
        for key in fleet.heats:
            self.keys.setdefault(key, Watched(minute // _BLOCK))
        for key, watched in self.keys.items():
            watched.take(minute, fleet.heats.get(key), fleet.shards.get(key, 1))
        hottest = sorted(self.keys, key=lambda key: -max(self.keys[key].peaks))[:_WATCHED]
        self.keys = {key: self.keys[key] for key in hottest if any(self.keys[key].peaks)}
        for one in self.growths:
            if one.effect is not None and one.cold is None and now - one.effect >= _COLD_AFTER:
                peaks = {key: max(self.keys[key].peaks[-_RECENT:]) for key in one.before if key in self.keys}
                one.cold = any(peaks.get(key, 0) < HOT / 2 * before for key, before in one.before.items())
        # The last one stays, to be told from another's change.
        self.growths = [one for one in self.growths[:-1] if now - one.at < DAY] + self.growths[-1:]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The limits of growth; ``moves`` says whether items move after one, and what that takes counts."""

    partitions: int = 1
    max_shards: int = 64
    max_read_units: float | None = None
    moves: bool = True

    def decide(self, memory: Memory, now: float, fleet: Fleet) -> tuple[dict[str, int], str, float]:
        """Return the keys that are to grow with their shards, why, and the read units a second that this takes."""
        minute, heats, shards = int(now // 60), fleet.heats, fleet.shards
        if 2 * fleet.reports < max(1, fleet.processes):
            return {}, "fewer than half of the processes of the last hour have reported", 0.0
        asking = {key: each for key, each in memory.keys.items() if key in heats and each.asks(minute)}
        single = {key for key in asking if heats[key].item >= HOT}
        needed = {
            key: shards_planned(each.expected() * (_MARGIN if heats[key].refused else 1.0), self.partitions)
            for key, each in asking.items()
            if key not in single
        }
        # At least twice the shards, and a multiple, because fewer items change their place then.
        wanted = {
            key: min(-(-max(number, 2 * has) // has), self.max_shards // has) * has
            for key, number in needed.items()
            if number > (has := shards[key])
        }
        grown: dict[str, int] = {}
        taken = 0.0
        for key in sorted(wanted, key=lambda key: -heats[key].wanted)[:MOST_KEYS]:
            more = self._read_units({**grown, key: wanted[key]}, fleet)
            if wanted[key] > shards[key] and more <= (inf if self.max_read_units is None else self.max_read_units):
                grown[key], taken = wanted[key], more
        day = [one for one in memory.growths if now - one.at < DAY]
        if grown and (len(day) >= A_DAY or sum(one.cold is True for one in day) >= _COLD):
            return {}, f"paused: {len(day)} changes in a day, of at most {A_DAY}; {_LATE}", 0.0
        if grown:
            return grown, "hot in 10 of 15 minutes, or for the third time in 26 hours", taken
        if wanted:
            return {}, f"max_shards={self.max_shards}, max_read_units={self.max_read_units}: no more is allowed", 0.0
        if asking:
            return {}, _ONE if single else _INDEX if fleet.hot_index else _WARM, 0.0
        return {}, _SHORT if any(each.hot for each in memory.keys.values()) else "nothing is hot", 0.0

    def _read_units(self, grown: Mapping[str, int], fleet: Fleet) -> float:
        """Return what all queries take beyond one shard; and while items move, a read for each write, and the mover."""
        will = {**fleet.shards, **grown}
        queries = sum(0.5 * heat.queries * (will[key] - 1) for key, heat in fleet.heats.items())
        return queries + self.moves * (_MOVER_READ_UNITS + sum(fleet.heats[key].wanted for key in grown))


@lru_cache(1000)
def shards_planned(units: float, partitions: int) -> int:
    """Return the planner's number of shards; if the table has too few partitions, DynamoDB will make more."""
    units, free = ceil(units / 100) * 100, (1 - HEADROOM) * PARTITION_WRITE_UNITS
    if units <= free:
        return 1
    return shards_for(write_units=units, partitions=max(partitions, ceil(units / free) + 1)).shards or 10_000
