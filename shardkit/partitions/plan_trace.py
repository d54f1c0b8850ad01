"""What if: how many shards a recorded load needs, and until which traffic they are enough."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from statistics import fmean
from typing import Any

from shardkit.analysis.per_key import PerKey, are_few
from shardkit.analysis.prices import Prices
from shardkit.analysis.shards import HEADROOM
from shardkit.analysis.trace_files import HashedKey, TraceRow, read_traces
from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.units import partitions_taken, rounded_up
from shardkit.errors import ConfigurationError, brief
from shardkit.partitions.partition import LIMITS, kept
from shardkit.partitions.replay import Replay, Traffic, refused, waits
from shardkit.partitions.rules import BURST_SECONDS
from shardkit.partitions.statements import counted, number, percent

FINE = 0.001
"""The most that may be throttled: this part of the write units, and of the read units."""
_EXACT = 0.95  # the least part of the hottest keys' units
_ROOM = 1 / (1 - HEADROOM)
_WARM = 0.25  # of a partition: a key that takes more may be the one that needs shards
_MONTH = 730.0  # hours


@dataclass(frozen=True, kw_only=True)
class TraceWay:
    """How a number of shards serves a recorded load; a tuple has a value for each of ``times``.

    Args:
        shards: the number of shards.
        throttled: the part of the units that is throttled, of reads or writes, whichever is more: the mean over hashes.
        interval: the lowest and highest of all hashes, and of other samples of the rows.
        fine: under how many hashes at most 0.1% is throttled.
        fine_up_to: the highest of ``times`` for which that is so under all hashes but one; None: none is.
        mean_wait: seconds that a unit waits on average, if it is tried until it is served, at the traffic as it was.
        longest_wait: the longest of these waits.
        extra_read_units: read units a second that Queries take more than they did, on average.
        dollars: what these cost in a month; None: no prices were given.
    """

    shards: int
    throttled: tuple[float, ...]
    interval: tuple[tuple[float, float], ...]
    fine: tuple[int, ...]
    fine_up_to: float | None
    mean_wait: float
    longest_wait: float
    extra_read_units: float
    dollars: float | None


@dataclass(frozen=True, kw_only=True)
class TracePlan:
    """How many shards serve a recorded load, and until which traffic.

    Args:
        table: the table's name.
        index: the index; None: the table.
        began: the first second.
        ended: the end of the last one.
        read_units: all read units, exactly.
        write_units: all write units, exactly.
        throttled_attempts: attempts that were throttled meanwhile.
        rows: how many rows were recorded.
        exact: the part of the hottest keys' units that is in exact rows.
        partitions: on how many partitions it is replayed.
        assumed: whether their number was not given.
        hashes: under how many hashes.
        times: the multiples of the traffic.
        ways: the numbers of shards, fewest first.
        decisions: the least number that is fine, for each of ``times``; None: none is, or the rows do not tell.
        unsure: the ``times`` for which the rows do not carry a decision.
        hot_items: keys of which one item takes more than a partition serves, and its part of the key.
        line: what to write, with 20% left free: ``shards={"t0000": 8}`` or ``shards=8``; None: nothing, or not known.
    """

    table: str
    index: str | None
    began: datetime
    ended: datetime
    read_units: float
    write_units: float
    throttled_attempts: int
    rows: int
    exact: float
    partitions: int
    assumed: bool
    hashes: int
    times: tuple[float, ...]
    ways: tuple[TraceWay, ...]
    decisions: tuple[int | None, ...]
    unsure: tuple[float, ...]
    hot_items: tuple[tuple[Any, float], ...]
    line: str | None

    @property
    def today(self) -> int:
        """The place in ``times`` of the traffic as it was, or else of the next more."""
        return _place(self.times, 1.0)

    @property
    def sentence(self) -> str:
        """Which number of shards is enough until which traffic."""
        found = dict(zip(self.decisions, self.times, strict=True))  # the highest multiple of each
        parts = [
            f"{counted(shards, 'shard')} {'serves' if shards == 1 else 'serve'} "
            f"{'the traffic as it was' if times == 1 else f'{number(times)} times the traffic'}"
            for shards, times in found.items()
            if shards is not None
        ]
        for times, shards in zip(self.times, self.decisions, strict=True):
            if shards is None and times not in self.unsure:
                parts.append(f"{number(times)}x needs other shards than these, or more partitions")
                break
        if self.unsure:
            parts.append(
                f"for {' and '.join(f'{number(times)}x' for times in self.unsure)} these rows carry no decision; "
                "record more rows (rows_per_second=), or for longer"
            )
        return "; ".join(parts)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.table}{'' if self.index is None else f', index {self.index}'}, "
            f"{self.began:%Y-%m-%d %H:%M:%S} to {self.ended:%Y-%m-%d %H:%M:%S} UTC: "
            f"{counted(round(self.write_units), 'write unit')}, {counted(round(self.read_units), 'read unit')}, "
            f"{counted(self.throttled_attempts, 'throttled attempt')}"
            f"{', which count as if all had been wanted' if self.throttled_attempts else ''}"
        )
        yield (
            f"{counted(self.rows, 'row')}, {percent(self.exact)} of the hottest keys' units exact; replayed on "
            f"{counted(self.partitions, 'partition')}{' (assumed)' if self.assumed else ''}"
        )
        today = self.today
        load = f"throttled, {number(self.times[today])}x"
        yield f"shards  {load:>26}  wait: mean, longest  extra read units  fine in   fine up to"
        for way in self.ways:
            low, high = way.interval[today]
            between = f" ({low:.2%} to {high:.2%})" if high > low else ""
            yield (
                f"{way.shards:>6}  {f'{way.throttled[today]:.2%}{between}':>26}  "
                f"{f'{way.mean_wait:,.3f} s, {way.longest_wait:,.1f} s':>19}  {way.extra_read_units:>14,.0f}/s  "
                f"{f'{way.fine[today]} of {self.hashes}':>8}  "
                f"{'-' if way.fine_up_to is None else f'{number(way.fine_up_to)}x':>10}"
                f"{'' if way.dollars is None else f'  {way.dollars:,.2f} $ a month'}"
            )
        yield self.sentence
        for key, share in self.hot_items:
            yield f"{brief(key, 60)}: one item takes {share:.0%} of it; shards do not help, because it stays on one"
        if self.line is not None:
            yield f"with {HEADROOM:.0%} left free: {self.line}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self) | {
            "began": self.began.isoformat(),
            "ended": self.ended.isoformat(),
            "hot_items": [{"key": str(key), "share": share} for key, share in self.hot_items],
            "sentence": self.sentence,
        }


def plan_trace(
    files: str | PathLike[str] | Iterable[str | PathLike[str] | TraceRow],
    *,
    table: str | None = None,
    index: str | None = None,
    partitions: int | None = None,
    shards: Iterable[int] = (1, 2, 4, 8, 16, 32),
    times: Iterable[float] = (1.0, 1.25, 1.5, 2.0, 3.0),
    keys: Collection[Any] | None = None,
    at_random: bool = False,
    read_units: float | None = None,
    write_units: float | None = None,
    burst: bool = True,
    prices: Prices | None = None,
    hashes: int = 50,
) -> TracePlan:
    """Replay a recorded load with other numbers of shards, and with more traffic.

    Example:
        >>> plan_trace("logs", partitions=24).line  # doctest: +SKIP
        'shards={"t0000": 8}'

    Args:
        files: trace files of all processes, or folders of them (:class:`shardkit.capacity.Trace`); or their rows.
        table: the table; needed if there are several.
        index: a global index; None: the table.
        partitions: its partitions (``shardkit plan table``); None: enough for twice the busiest second.
        shards: the numbers of shards to try, each from 1 to 1,000.
        times: the multiples of the traffic, above 0.
        keys: the logical keys that have so many shards, the others what they have; None: all have.
        at_random: whether shards are drawn (``RandomSuffix``), and not calculated.
        read_units: provisioned read units a second; None: on-demand, so that the table has no limit.
        write_units: provisioned write units a second, likewise.
        burst: whether a provisioned table may use what it did not in the 300 seconds before.
        prices: to show what the extra read units cost.
        hashes: under how many hashes; DynamoDB's is not public, and one is luck.

    Returns:
        The plan: ``print`` it, or see ``decisions``, ``line``, ``ways`` and ``sentence``.

    Raises:
        ConfigurationError: an argument is invalid, or there are no rows of the table.

    Cost:
        No request; CPU in proportion to rows, seconds, shards and hashes: docs/reference/trace.md has figures.
    """
    numbers = sorted({check_count("shards", each, "shards", most=1000) for each in shards})
    multiples = tuple(sorted({check_number("times", each, "times the traffic", above=True) for each in times}))
    if not numbers or not multiples:
        raise ConfigurationError("shards, times: must not be empty; give for example shards=[1, 8], times=[1, 2]")
    for name, units in (("read_units", read_units), ("write_units", write_units)):
        if units is not None:
            check_number(name, units, "units a second", above=True)
    if partitions is not None:
        check_count("partitions", partitions, "partitions", most=100_000)
    check_count("hashes", hashes, "hashes")
    rows = [row for row in read_traces(files) if row.index_name == index and table in {None, row.table}]
    tables = sorted({row.table for row in rows})
    if len(tables) != 1:
        found = "no rows of it; give other files, or another table or index"
        if tables:
            found = f"rows of several tables ({brief(', '.join(tables), 200)}); give one of them"
        raise ConfigurationError(f"table: {brief(table)}, index {brief(index)}: the files have {found}")
    totals = [row for row in rows if row.key is None]
    # A drawn shard is another for each write of an item.
    asked = [row._replace(item=None) for row in rows] if at_random else rows
    traffic = [Traffic(asked, kind) for kind in LIMITS]
    replayed = _Replayed(
        traffic,
        partitions or max(1, rounded_up(2 * partitions_taken(*[max(one.total) for one in traffic]))),
        multiples,
        (read_units, write_units),
        BURST_SECONDS if burst else 0.0,
        hashes,
        prices,
    )
    ways, under = zip(*[replayed.way(each, keys) for each in numbers], strict=True)
    exact = min(one.exact for one in traffic)
    decisions, unsure = [], []
    for place, each in enumerate(multiples):
        # By these rows, and by other samples of them.
        firsts = {_first(numbers, [of_way[sample][place] for of_way in under]) for sample in (0, 1)}
        if exact < _EXACT or len(firsts) > 1:
            unsure.append(each)
        decisions.append(None if each in unsure else firsts.pop())
    hot_items = {
        key: one.hot_item[1]
        for units in traffic
        for key, one in units.keys.items()
        if one.peak * one.hot_item[1] > units.limit
    }
    return TracePlan(
        table=tables[0],
        index=index,
        began=datetime.fromtimestamp(min(row.second for row in rows), UTC),
        ended=datetime.fromtimestamp(max(row.second for row in rows) + 1, UTC),
        read_units=sum(row.read_units for row in totals),
        write_units=sum(row.write_units for row in totals),
        throttled_attempts=sum(row.throttled for row in totals),
        rows=len(rows) - len(totals),
        exact=exact,
        partitions=replayed.partitions,
        assumed=partitions is None,
        hashes=hashes,
        times=multiples,
        ways=ways,
        decisions=tuple(decisions),
        unsure=tuple(unsure),
        hot_items=tuple(hot_items.items()),
        line=replayed.line(numbers, decisions[_place(multiples, _ROOM)], keys),
    )


_Shares = Sequence[Sequence[float]]  # what is throttled, for each multiple, under each hash


@dataclass(frozen=True)
class _Replayed:
    """The traffic, and on what it is replayed."""

    traffic: Sequence[Traffic]
    partitions: int
    times: tuple[float, ...]
    rates: Sequence[float | None]
    burst_seconds: float
    hashes: int
    prices: Prices | None

    def way(self, shards: int, only: Collection[Any] | None) -> tuple[TraceWay, tuple[_Shares, _Shares]]:
        """Replay a number of shards; return also what is throttled: by these rows, and by other samples of them."""
        replays = [Replay(one, self.partitions, shards, only) for one in self.traffic]
        under, means, longest = zip(*[self._shares(replays, salt) for salt in range(self.hashes)], strict=True)
        columns = others = [*zip(*under, strict=True)]
        if self.traffic[0].sampled:
            drawn = [self._shares(replays, salt, drawn=True)[0] for salt in range(self.hashes)]
            others = [*zip(*drawn, strict=True)]
        enough = [times for times, column in zip(self.times, columns, strict=True) if _is_fine(column)]
        extra = fmean(replays[0].extra)
        way = TraceWay(
            shards=shards,
            throttled=tuple(map(fmean, columns)),
            interval=tuple((min(map(min, both)), max(map(max, both))) for both in zip(columns, others, strict=True)),
            fine=tuple(sum(share <= FINE for share in column) for column in columns),
            fine_up_to=max(enough, default=None),
            mean_wait=fmean(means),
            longest_wait=max(longest),
            extra_read_units=extra,
            dollars=None if self.prices is None else extra * self.prices.read_unit_hour * _MONTH,
        )
        return way, (columns, others)

    def _shares(self, replays: Sequence[Replay], salt: int, *, drawn: bool = False) -> tuple[list[float], float, float]:
        """Return the part that is throttled, for each multiple, and the mean and longest wait, under one hash."""
        shares, mean, longest = [0.0] * len(self.times), 0.0, 0.0
        for limit, rate, replay in zip(LIMITS.values(), self.rates, replays, strict=True):
            if max(replay.total) * max(1.0, *self.times) <= min(limit, rate or limit):
                continue  # one partition serves it all
            # Twice the traffic is to partitions what the traffic is to half of them.
            by_table: list[list[float]] = [[] for _ in self.times]
            if rate is not None:
                rates = [rate / times for times in self.times]
                by_table = [refused(replay.total, each, kept(each, self.burst_seconds)) for each in rates]
            lost = [*map(sum, by_table)]
            for cells in replay.asked(salt, drawn=drawn):
                most = max(cells)
                for place, times in enumerate(self.times):
                    if most * times > limit:
                        served = cells
                        if by_table[place]:
                            rows = zip(cells, by_table[place], replay.total, strict=True)
                            served = [cell * (1 - out / (whole or 1.0)) for cell, out, whole in rows]
                        lost[place] += sum(refused(served, limit / times))
                if most > limit and not drawn:
                    waited, longer = waits(cells, limit)
                    mean, longest = mean + waited / sum(replay.total), max(longest, longer)
            shares = [max(share, units / sum(replay.total)) for share, units in zip(shares, lost, strict=True)]
        return shares, mean, longest

    def line(self, numbers: Sequence[int], wanted: int | None, keys: Collection[Any] | None) -> str | None:
        """Return what to write: shards for the hottest keys alone if that is enough, else for all."""
        if wanted is None or wanted == 1:
            return None
        if keys is not None:
            return _argument(keys, wanted)
        peaks = {
            key: one.peak / traffic.limit
            for traffic in self.traffic
            for key, one in traffic.keys.items()
            if one.peak > _WARM * traffic.limit and one.hot_item[1] <= 1 / 2
        }
        hot = sorted(peaks, key=peaks.__getitem__, reverse=True)
        few = are_few(hot, max(len(traffic.numbers) for traffic in self.traffic))
        for shards in numbers[numbers.index(wanted) :] if few else ():
            _, under = self.way(shards, frozenset(hot))
            if all(_is_fine(sample[_place(self.times, _ROOM)]) for sample in under):
                return _argument(hot, shards)
        return f"shards={wanted}"


def _is_fine(of_hashes: Sequence[float]) -> bool:
    return sum(share > FINE for share in of_hashes) <= 1


def _first(numbers: Sequence[int], shares: Iterable[Sequence[float]]) -> int | None:
    return next((count for count, of_hashes in zip(numbers, shares, strict=True) if _is_fine(of_hashes)), None)


def _argument(keys: Iterable[Any], shards: int) -> str:
    shown = (f"<the key whose hash is {key}>" if isinstance(key, HashedKey) else key for key in keys)
    return PerKey(dict.fromkeys(shown, shards)).argument


def _place(times: Sequence[float], least: float) -> int:
    return next((place for place, each in enumerate(times) if each >= least), len(times) - 1)
