"""Replay a trace on partitions: second by second, with other numbers of shards, under one hash after the other.

The exact rows of hot keys count in their seconds. All other rows only tell how the rest of each second's exact total is
spread over the partitions: a row that stands for 100 is not a burst of 100 units.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nlargest
from math import inf
from operator import attrgetter, mul
from typing import Any

from shardkit.analysis.trace_files import TraceRow
from shardkit.core.hashing import stable_hash
from shardkit.dynamodb.service_errors import Kind
from shardkit.dynamodb.units import read_units
from shardkit.partitions.partition import LIMITS, kept
from shardkit.partitions.rules import BURST_SECONDS

_HOT = 0.02  # a key is hot if it takes more than this part of a partition, in some block
_BLOCK = 20  # seconds; rows that are not of hot keys count in their block, and in those before and after
_ODD, _OTHER, _PRIME = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 2**61 - 1

Keys = Collection[Any] | None


class HotKey:
    """What the exact rows of a key took.

    ``units`` and ``queries`` (of one shard each) are by second; ``peak`` is the part of a partition in the hottest
    block; ``item`` is the one that most rows name, ``share`` its part of the units.
    """

    def __init__(self, rows: Iterable[tuple[TraceRow, int, float]], limit: float) -> None:
        self.units, self.queries, blocks, items = (defaultdict[int, float](float) for _ in range(4))
        self.shards, named = 1, 0.0
        for row, second, taken in rows:
            self.units[second] += taken
            self.queries[second] += row.calls if row.operation == "Query" else 0
            blocks[second // _BLOCK] += taken / _BLOCK / limit
            self.shards = max(self.shards, row.shard or 1)
            if row.item is not None:
                named += taken
                # The first row of an item says nothing: each is named once.
                items[row.item] = items[row.item] + taken if row.item in items else 0.0
        self.peak = max(blocks.values())
        self.item = max(items, key=items.__getitem__, default=0)
        self.share = items[self.item] / (named or 1.0)


class Traffic:
    """The read or write units that the rows of one table or index ask for, and ``rate``, what that serves a second.

    Attributes:
        total: the exact units of each second; ``queries``: its Queries, of whole keys.
        hashes: of each key; ``hot``: what hot keys took.
        others: of each other row: key, draw of the shard, block, whether it stands for more rows than itself, units.
        shards: the most shards that a key has.
        sampled: whether some rows stand for others.
        exact: which part of the ten hottest keys' units is in exact rows.
    """

    def __init__(self, rows: Sequence[TraceRow], kind: Kind, rate: float = inf) -> None:
        self.limit, self.rate = LIMITS[kind], rate
        self.a_query = read_units(0) if kind == "read" else 0.0  # of each shard, at least
        began = min(row.second for row in rows)
        seconds = max(row.second for row in rows) - began + 1
        self.sampled = any(row.weight > 1 for row in rows)
        self.shards = max((row.shard for row in rows if row.shard), default=1)
        self.total, self.queries = [0.0] * seconds, [0.0] * seconds
        exact: defaultdict[Any, list[tuple[TraceRow, int, float]]] = defaultdict(list)
        sums: defaultdict[Any, float] = defaultdict(float)
        of_keys: list[tuple[Any, int, int, bool, float]] = []
        took = attrgetter(f"{kind}_units")
        calls, units_of = Counter[str](), Counter[str]()
        for row in rows:
            if row.key is None:
                calls[row.operation] += row.calls
                units_of[row.operation] += took(row)
        for row in rows:
            # A throttled attempt asked for the mean of what calls of its operation took.
            units = took(row) + row.throttled * units_of[row.operation] / (calls[row.operation] or 1)
            second = row.second - began
            if row.key is None:
                self.total[second] += units
                self.queries[second] += row.calls / self.shards if row.operation == "Query" else 0
            elif units:
                item = len(of_keys) if row.item is None else row.item
                of_keys.append((row.key, item, second // _BLOCK, row.weight > 1, units * row.weight))
                sums[row.key] += units * row.weight
                if row.weight == 1:
                    exact[row.key].append((row, second, units))
        self.hashes = {key: stable_hash(key) for key in sums}
        hot = {key: HotKey(ones, self.limit) for key, ones in exact.items()}
        self.hot = {key: one for key, one in hot.items() if one.peak > _HOT}
        self.others = [row for row in of_keys if row[3] or row[0] not in self.hot]
        hottest = [key for key in nlargest(10, sums, key=sums.__getitem__) if sums[key] > _HOT * self.limit * seconds]
        parts = sum(units for key in hottest for _, _, units in exact[key])
        self.exact = parts / sum(sums[key] for key in hottest) if hottest else 1.0


class Replay:
    """A trace on partitions, at multiples of its traffic, if ``only`` these keys (None: all) have so many shards."""

    def __init__(self, traffic: Traffic, partitions: int, times: Sequence[float], shards: int, only: Keys) -> None:
        self._limit, self._partitions, self._times = traffic.limit, partitions, times
        self.extra = [0.0] * len(traffic.total)  # by second: what Queries take more than they did
        hot, self._hot = self.extra.copy(), []
        for key, one in traffic.hot.items():
            count = shards if only is None or key in only else one.shards
            rows = []
            for second, units in one.units.items():
                more = traffic.a_query * one.queries[second] / one.shards * (count - one.shards)
                rows.append((second, max(0.0, units + more)))
                self.extra[second] += more
                hot[second] += rows[-1][1]
            self._hot.append((traffic.hashes[key], count, one, rows))
        if only is None:
            self.extra = [traffic.a_query * queries * (shards - traffic.shards) for queries in traffic.queries]
        self.total = [max(0.0, units + more) for units, more in zip(traffic.total, self.extra, strict=True)]
        self._rest = [max(0.0, units - part) for units, part in zip(self.total, hot, strict=True)]
        pairs: dict[tuple[int, int], int] = {}
        sums: defaultdict[tuple[int, int, bool], float] = defaultdict(float)
        for key, draw, block, stands_for_more, asked in traffic.others:
            pair = traffic.hashes[key], draw % (shards if only is None or key in only else traffic.shards)
            sums[pairs.setdefault(pair, len(pairs)), block, stands_for_more] += asked
        self._pairs, self._others = [*pairs], [(*of, units) for of, units in sums.items()]
        # Twice the traffic is to a limit what the traffic is to half of it. The table's limit comes first.
        out = [refused(self.total, traffic.rate / each, BURST_SECONDS) for each in times]
        self._out = [*map(sum, out)]
        self._let = [[1 - part / (units or 1.0) for part, units in zip(one, self.total, strict=True)] for one in out]

    def under(self, salt: int, *, drawn: bool = False) -> tuple[list[float], float, float]:
        """Return the part that is throttled at each multiple, and the mean and the longest wait at 1, under one hash.

        ``drawn``: by another sample of the rows: each that stands for others counts twice or not at all.
        """
        lost, waited, longest, whole = self._out.copy(), 0.0, 0.0, sum(self.total) or 1.0
        if max(self.total) * max(self._times) > self._limit:  # or else one partition serves it all
            for cells in self.asked(salt, drawn=drawn):
                most = max(cells)
                for place, times in enumerate(self._times):
                    if most * times > self._limit:
                        lost[place] += sum(refused(map(mul, cells, self._let[place]), self._limit / times))
                if most > self._limit and not drawn:
                    more, longer = waits(cells, self._limit)
                    waited, longest = waited + more, max(longest, longer)
        return [units / whole for units in lost], waited / whole, longest

    def asked(self, salt: int, *, drawn: bool = False) -> Iterator[list[float]]:
        """Yield what each partition is asked for in each second, under one hash."""
        parts: list[list[tuple[list[tuple[int, float]], float]]] = [[] for _ in range(self._partitions)]
        for hashed, shards, one, rows in self._hot:
            of_place: defaultdict[int, float] = defaultdict(float)
            for shard in range(shards):
                of_item = one.share if shard == one.item % shards else 0.0
                of_place[place_of(hashed, shard, salt, self._partitions)] += (1 - one.share) / shards + of_item
            for place, part in of_place.items():
                parts[place].append((rows, part))
        for of_keys, spread in zip(parts, self._spread(salt, drawn=drawn), strict=True):
            cells = [rest * spread[second // _BLOCK] for second, rest in enumerate(self._rest)]
            for rows, part in of_keys:
                for second, units in rows:
                    cells[second] += units * part
            yield cells

    def _spread(self, salt: int, *, drawn: bool) -> list[list[float]]:
        """Return which part of the other rows' units each partition gets, in each block."""
        blocks, count = -(-len(self.total) // _BLOCK), self._partitions
        sums = [[0.0] * (blocks + 2) for _ in range(count)]
        places = [sums[place_of(hashed, shard, salt, count)] for hashed, shard in self._pairs]
        for number, (pair, block, stands_for_more, units) in enumerate(self._others):
            often = 2 * place_of(number, 1, salt, 2) if drawn and stands_for_more else 1
            places[pair][block + 1] += units * often
        rows = [[sum(row[at : at + 3]) for at in range(blocks)] for row in sums]
        wholes = [sum(column) for column in zip(*rows, strict=True)]
        return [[part / whole if whole else 1 / count for part, whole in zip(row, wholes, strict=True)] for row in rows]


def place_of(hashed: int, shard: int, salt: int, partitions: int) -> int:
    """Return the partition of a key's shard, under one of many hashes."""
    return pow(hashed + shard * _ODD + salt * _OTHER, 3, _PRIME) % partitions


def refused(asked: Iterable[float], limit: float, burst_seconds: float = 0.0) -> list[float]:
    """Return how many units are refused in each second by what serves ``limit`` a second, and keeps some others."""
    lost, balance, most = [], kept(limit), kept(limit, burst_seconds)
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
