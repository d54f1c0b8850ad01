"""When a key gets more shards by itself, and how many: what processes report each minute, and a rule over it."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import orjson

from shardkit.analysis.shards import HEADROOM, shards_for
from shardkit.analysis.trace_files import MOST_ASKED
from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS

SECONDS = 60
MOST_KEYS, _MOST_BYTES = 10, 1950  # of a report, and keys of a growth; with the item's key, below 2 write units
_TEXT, _UNITS = "shardkit:heat", "shardkit:units"
_FORM = 1
_PACKED = struct.Struct(f"<{SECONDS}e")  # half floats: to 1 in 2,000, and whole numbers up to 2,048 exactly
_MOST = 65_504.0  # the largest half float
A_DAY = 12  # changes
DAY = 86_400.0
HOT, _REFUSED = 0.7 * PARTITION_WRITE_UNITS, 0.02 * PARTITION_WRITE_UNITS  # a second, of a hot shard
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


def heat_name(table: str) -> str:
    """Return the partition key of a table's reports."""
    return f"shardkit:heat:{table}"


def key_text(key: object) -> str:
    """Return a logical key as reports name it: ``S:2014-07-09``, ``B:`` with base64, or ``?:`` for an index's."""
    return f"S:{key}" if isinstance(key, str) else f"B:{binary_text(key)}" if isinstance(key, bytes) else f"?:{key}"


def key_of(text: str) -> str | bytes:
    return binary_bytes(text[2:]) if text.startswith("B:") else text[2:]


class KeyReport(NamedTuple):
    """A key in one process and minute: write units in each second, and those of throttled attempts.

    ``item`` is the hash of its hottest item, and ``share`` that item's part of the writes that were looked at.
    """

    key: str
    index_name: str | None
    refused: float
    queries: int
    item: int
    share: float
    units: tuple[float, ...]


class Report(NamedTuple):
    """What a process reports: how often it did so, and its hottest keys, the hottest first."""

    counter: int
    keys: tuple[KeyReport, ...] = ()

    def to_attributes(self) -> dict[str, Any]:
        """Return the attributes of the report's item: as many of the keys as fit."""
        keys = self.keys[:MOST_KEYS]
        while True:
            text = orjson.dumps({"form": _FORM, "counter": self.counter, "keys": [one[:-1] for one in keys]}).decode()
            packed = b"".join(_PACKED.pack(*(min(each, _MOST) for each in one.units)) for one in keys)
            if item_size(item := {_TEXT: text, _UNITS: packed}) <= _MOST_BYTES:
                return item
            keys = keys[:-1]

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Report | None:
        """Read a report; None: the item is something else, or a newer shardkit wrote it."""
        given = orjson.loads(item.get(_TEXT, "{}"))
        if given.get("form") != _FORM:
            return None
        units = _PACKED.iter_unpack(bytes(item[_UNITS]))
        return cls(given["counter"], tuple(KeyReport._make((*one, next(units))) for one in given["keys"]))


class Heat(NamedTuple):
    """What all processes wrote to a key in a minute: in its busiest second, in a mean one, and to its hottest item."""

    peak: float = 0.0
    refused: float = 0.0
    queries: float = 0.0
    item: float = 0.0

    @classmethod
    def of(cls, parts: list[KeyReport]) -> Heat:
        seconds = [sum(second) for second in zip(*(one.units for one in parts), strict=True)]
        items: defaultdict[int, float] = defaultdict(float)
        for one in parts:
            items[one.item] += one.share * sum(one.units)
        refused, queries = sum(one.refused for one in parts) / SECONDS, sum(one.queries for one in parts) / SECONDS
        return cls(max(seconds), refused, queries, max(seconds) * max(items.values()) / (sum(seconds) or 1.0))

    @property
    def wanted(self) -> float:
        return min(self.peak + self.refused, MOST_ASKED * self.peak + 1)


def heat_of(reports: Iterable[Report]) -> dict[tuple[str, str | None], Heat]:
    """Add up the reports of all processes, by key and index: their seconds are the service's, so peaks add up."""
    found: defaultdict[tuple[str, str | None], list[KeyReport]] = defaultdict(list)
    for report in reports:
        for one in report.keys:
            found[one.key, one.index_name].append(one)
    return {place: Heat.of(parts) for place, parts in found.items()}


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
            thirds = recent[:third], recent[third:-third], recent[-third:]
            first, middle, last = (sum(peaks) / len(peaks) for peaks in thirds)
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
        grown: dict[str, int] = {}
        wanted: dict[str, int] = {}
        for key, each in asking.items():
            heat, has = heats[key], shards[key]
            number = shards_planned(each.expected() * (_MARGIN if heat.refused else 1.0), self.partitions)
            if number > has and heat.item < HOT:
                # At least twice the shards, and a multiple, because fewer items change their place then.
                wanted[key] = min(-(-max(number, 2 * has) // has), self.max_shards // has) * has
        taken = 0.0
        able = [key for key, number in wanted.items() if number > shards[key]]
        for key in sorted(able, key=lambda key: -heats[key].wanted)[:MOST_KEYS]:
            more = self._read_units({**grown, key: wanted[key]}, fleet)
            if self.max_read_units is None or more <= self.max_read_units:
                grown[key], taken = wanted[key], more
        day = [growth for growth in memory.growths if now - growth.at < DAY]
        if grown and (len(day) >= A_DAY or sum(growth.cold is True for growth in day) >= _COLD):
            return {}, f"paused: {len(day)} changes in a day, of at most {A_DAY}; {_LATE}", 0.0
        if grown:
            return grown, "hot in 10 of 15 minutes, or for the third time in 26 hours", taken
        if wanted:
            return {}, f"max_shards={self.max_shards}, max_read_units={self.max_read_units}: no more is allowed", 0.0
        if asking:
            one = any(heats[key].item >= HOT for key in asking)
            return {}, _ONE if one else _INDEX if fleet.hot_index else _WARM, 0.0
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
    return shards_for(write_units=units, partitions=max(partitions, ceil(units / free) + 1)).shards or 10_000
