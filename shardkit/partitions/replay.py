"""Replay a trace on partitions: second by second, with other numbers of shards, under one hash after the other.

The exact rows of hot keys count in their seconds. All other rows only tell how the rest of each second's exact total is
spread over the partitions: a row that stands for 100 is not a burst of 100 units.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import shake_128
from itertools import repeat
from operator import attrgetter
from typing import Any

from shardkit.analysis.trace_files import TraceRow
from shardkit.core.hashing import stable_hash
from shardkit.dynamodb.service_errors import Kind
from shardkit.dynamodb.units import read_units
from shardkit.partitions.partition import LIMITS, kept

_HOT = 0.02  # a key is hot if it takes more than this part of a partition, in some block
_BLOCK = 20  # seconds; rows that are not of hot keys count in their block, and in those before and after
_EMPTY_READ = read_units(0)  # what a Query takes of a shard at least
_STEP = 0x9E3779B97F4A7C15  # of SplitMix64
# How often a row is drawn if as many are drawn as there are (Poisson, mean 1), by a random byte.
_DRAWN = tuple(sum(byte >= limit for limit in (94, 188, 236, 251, 255)) for byte in range(256))

BySecond = defaultdict[int, float]


class KeyTraffic:
    """What the exact rows of a key took, by second; ``queries`` are requests to one shard each."""

    def __init__(self) -> None:
        self.units: BySecond = defaultdict(float)
        self.queries: BySecond = defaultdict(float)
        self.shards = 1
        self._items: BySecond = defaultdict(float)
        self._squares = 0.0  # of the units of each row that names an item

    def add(self, row: TraceRow, second: int, units: float) -> None:
        """Add an exact row."""
        self.units[second] += units
        self.queries[second] += row.calls if row.operation == "Query" else 0
        self.shards = max(self.shards, row.shard or 1)
        if row.item is not None:
            self._items[row.item] += units
            self._squares += units**2

    @property
    def peak(self) -> float:
        """The units of the block where the key takes most, a second."""
        blocks: BySecond = defaultdict(float)
        for second, units in self.units.items():
            blocks[second // _BLOCK] += units / _BLOCK
        return max(blocks.values())

    @property
    def hot_item(self) -> tuple[int, float]:
        """The item that most rows name, and its share: the root of the probability that two rows name the same."""
        item = max(self._items, key=self._items.__getitem__, default=0)
        pairs = sum(self._items.values()) ** 2 - self._squares
        same = sum(units**2 for units in self._items.values()) - self._squares
        return item, (max(0.0, same) / pairs) ** 0.5 if pairs > 0 else 0.0


class Traffic:
    """The read or write units that the rows of one table or index ask for.

    Attributes:
        total: the exact units of each second; ``queries``: its Queries, of whole keys.
        keys: the hot keys; ``numbers``: all keys, with a number each; ``hashes``: of each number.
        others: of each other row: key, draw of the shard, block, whether it stands for more rows than itself, units.
        shards: the most shards that a key has.
        sampled: whether some rows stand for others.
        exact: which part of the ten hottest keys' units is in exact rows.
    """

    def __init__(self, rows: Sequence[TraceRow], kind: Kind) -> None:
        self.kind, self.limit = kind, LIMITS[kind]
        began = min(row.second for row in rows)
        seconds = max(row.second for row in rows) - began + 1
        self.sampled = any(row.weight > 1 for row in rows)
        self.shards = max((row.shard for row in rows if row.shard), default=1)
        self.total, self.queries = [0.0] * seconds, [0.0] * seconds
        keys: defaultdict[Any, KeyTraffic] = defaultdict(KeyTraffic)
        sums: defaultdict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])  # units, and those of exact rows
        of_keys: list[tuple[Any, int, int, bool, float]] = []
        for row, units in _asked(rows, kind):
            second = row.second - began
            if row.key is None:
                self.total[second] += units
                self.queries[second] += row.calls / self.shards if row.operation == "Query" else 0
            elif units:
                item = len(of_keys) if row.item is None else row.item
                of_keys.append((row.key, item, second // _BLOCK, row.weight > 1, units * row.weight))
                sums[row.key][0] += units * row.weight
                if row.weight == 1:
                    sums[row.key][1] += units
                    keys[row.key].add(row, second, units)
        self.keys = {key: one for key, one in keys.items() if one.peak > _HOT * self.limit}
        hottest = sorted(sums.values(), reverse=True)[:10]
        hottest = [both for both in hottest if both[0] > _HOT * self.limit * seconds] or [[1.0, 1.0]]
        self.exact = sum(exact for _, exact in hottest) / sum(whole for whole, _ in hottest)
        self.numbers: dict[Any, int] = {key: number for number, key in enumerate(sums)}
        self.others = [row for row in of_keys if row[3] or row[0] not in self.keys]
        self.hashes = [stable_hash(key) for key in self.numbers]


def _asked(rows: Sequence[TraceRow], kind: Kind) -> Iterator[tuple[TraceRow, float]]:
    """Yield rows with their units; a throttled attempt asked for the mean of what calls of its operation took."""
    took = attrgetter(f"{kind}_units")
    calls: Counter[str] = Counter()
    units: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row.key is None:
            calls[row.operation] += row.calls
            units[row.operation] += took(row)
    for row in rows:
        yield row, took(row) + row.throttled * units[row.operation] / (calls[row.operation] or 1)


class Replay:
    """A trace on partitions, if ``only`` these keys (None: all) have so many shards.

    ``extra``: what Queries take more than they did, by second.
    """

    def __init__(self, traffic: Traffic, partitions: int, shards: int, only: Collection[Any] | None = None) -> None:
        self._traffic, self._partitions = traffic, partitions
        read = _EMPTY_READ if traffic.kind == "read" else 0.0
        self.extra = [0.0] * len(traffic.total)
        hot, self._hot = self.extra.copy(), []
        for key, one in traffic.keys.items():
            count = shards if only is None or key in only else one.shards
            units = one.units.copy()
            for second in units:
                more = read * one.queries[second] / one.shards * (count - one.shards)
                units[second] = max(0.0, units[second] + more)
                self.extra[second] += more
                hot[second] += units[second]
            self._hot.append((traffic.numbers[key], count, one.hot_item, [*units.items()]))
        if only is None:
            self.extra = [read * queries * (shards - traffic.shards) for queries in traffic.queries]
        self.total = [max(0.0, units + more) for units, more in zip(traffic.total, self.extra, strict=True)]
        self._rest = [max(0.0, units - part) for units, part in zip(self.total, hot, strict=True)]
        pairs: dict[tuple[int, int], int] = {}
        sums: defaultdict[tuple[int, int, bool], float] = defaultdict(float)
        for key, draw, block, stands_for_more, asked in traffic.others:
            pair = traffic.numbers[key], draw % (shards if only is None or key in only else traffic.shards)
            sums[pairs.setdefault(pair, len(pairs)), block, stands_for_more] += asked
        self._pairs, self._others = [*pairs], [(*of, units) for of, units in sums.items()]

    def asked(self, salt: int, *, drawn: bool = False) -> Iterator[list[float]]:
        """Yield what each partition is asked for in each second, under one hash.

        ``drawn``: by another sample of the rows, in which one that stands for others is as often as chance has it.
        """
        bases = [base_of(hashed, salt) for hashed in self._traffic.hashes]
        parts: list[list[tuple[list[tuple[int, float]], float]]] = [[] for _ in range(self._partitions)]
        for number, shards, (item, share), rows in self._hot:
            of_place: BySecond = defaultdict(float)
            for shard in range(shards):
                of_item = share if shard == item % shards else 0.0
                of_place[place_of(bases[number], shard, self._partitions)] += (1 - share) / shards + of_item
            for place, part in of_place.items():
                parts[place].append((rows, part))
        for of_keys, spread in zip(parts, self._spread(bases, salt, drawn=drawn), strict=True):
            shares = (share for share in spread for _ in range(_BLOCK))
            cells = [rest * share for rest, share in zip(self._rest, shares, strict=False)]
            for rows, part in of_keys:
                for second, units in rows:
                    cells[second] += units * part
            yield cells

    def _spread(self, bases: Sequence[int], salt: int, *, drawn: bool) -> list[list[float]]:
        """Return which part of the other rows' units each partition gets, in each block."""
        blocks, count = -(-len(self.total) // _BLOCK), self._partitions
        places = [place_of(bases[number], shard, count) * blocks for number, shard in self._pairs]
        sums = [0.0] * (blocks * count)
        random = shake_128(f"shardkit drawn {salt}".encode()).digest(max(1, len(self._others))) if drawn else b""
        times: Iterable[int] = map(_DRAWN.__getitem__, random) if drawn else repeat(1)
        for (pair, block, stands_for_more, units), often in zip(self._others, times, strict=False):
            sums[places[pair] + block] += units * often if stands_for_more else units
        rows = []
        for place in range(count):
            row = [0.0, *sums[place * blocks : (place + 1) * blocks], 0.0]
            rows.append([sum(row[at : at + 3]) for at in range(blocks)])
        wholes = [sum(column) for column in zip(*rows, strict=True)]
        return [[part / whole if whole else 1 / count for part, whole in zip(row, wholes, strict=True)] for row in rows]


def _mixed(number: int) -> int:
    """Mix the bits of a number (SplitMix64)."""
    number &= 2**64 - 1
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return number ^ (number >> 31)


def base_of(hashed: int, salt: int) -> int:
    """Return the hash of a key under one of many hashes."""
    return _mixed(hashed + salt * _STEP)


def place_of(base: int, shard: int, partitions: int) -> int:
    """Return the partition of a key's shard."""
    return _mixed(base + shard * _STEP) * partitions >> 64


def refused(asked: Iterable[float], limit: float, most: float = 0.0) -> list[float]:
    """Return how many units are refused in each second by what serves ``limit`` a second, and keeps ``most`` others."""
    lost, balance = [], kept(limit)
    most = max(most, balance)
    for units in asked:
        balance = min(most, balance + limit - units)
        lost.append(max(0.0, -balance))
        balance = max(0.0, balance)
    return lost


def waits(asked: Iterable[float], limit: float) -> tuple[float, float]:
    """Return how long units wait if they are tried until they are served: unit-seconds, and the longest in seconds."""
    waited = longest = 0.0
    left = most = -kept(limit)
    for units in asked:
        left = max(most, left + units - limit)
        if left > 0:
            waited, longest = waited + left, max(longest, left / limit)
    return waited, longest
