"""What if: how many shards a recorded load needs, and until which traffic they are enough."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from os import PathLike
from statistics import fmean
from typing import Any

from shardkit.analysis.per_key import PerKey, are_few
from shardkit.analysis.prices import Prices
from shardkit.analysis.shards import HEADROOM
from shardkit.analysis.trace_files import EXACT, TraceRow, read_traces
from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.units import partitions_taken, rounded_up
from shardkit.errors import ConfigurationError, brief
from shardkit.partitions.partition import LIMITS
from shardkit.partitions.replay import Keys, Replay, Traffic
from shardkit.partitions.statements import counted, number, percent

FINE = 0.001  # of the write units, and of the read units, may be throttled
HASHES = 50  # DynamoDB's is not public, and one is luck
_ENOUGH = HASHES - 1
_ROOM = 1 / (1 - HEADROOM)
_WARM = 0.25  # of a partition: a key that takes more may be the one that needs shards
_MONTH = 730.0  # hours


@dataclass(frozen=True, kw_only=True)
class TraceWay:
    """How a number of shards serves a recorded load; a tuple has a value for each of ``times``.

    Args:
        shards: the number of shards.
        throttled: the part of the units that is throttled, of reads or writes, whichever is more: the mean over hashes.
        interval: the lowest and highest of all hashes, and of another sample of the rows.
        fine: under how many of 50 hashes at most 0.1% is throttled.
        fine_again: the same, by another sample of the rows.
        mean_wait: seconds that a unit waits on average, if it is tried until it is served, at the traffic as it was.
        longest_wait: the longest of these waits.
        extra_read_units: read units a second that Queries take more than they did, on average.
        dollars: what these cost in a month; None: no prices were given.
    """

    shards: int
    throttled: tuple[float, ...]
    interval: tuple[tuple[float, float], ...]
    fine: tuple[int, ...]
    fine_again: tuple[int, ...]
    mean_wait: float
    longest_wait: float
    extra_read_units: float
    dollars: float | None


@dataclass(frozen=True, kw_only=True)
class TracePlan:
    """How many shards serve a recorded load, and until which traffic.

    Args:
        table: the table's name.
        recorded: what was recorded, and on how many partitions it is replayed, as text.
        partitions: the number of partitions.
        times: the multiples of the traffic.
        ways: the numbers of shards, fewest first.
        decisions: the least number that is fine, for each of ``times``; None: none is, or the rows do not tell.
        unsure: the ``times`` for which the rows do not carry a decision.
        hot_items: keys of which one item takes more than a partition serves, and its part of the key.
        line: what to write, with 20% left free: ``shards={"t0000": 8}`` or ``shards=8``; None: nothing, or not known.
    """

    table: str
    recorded: str
    partitions: int
    times: tuple[float, ...]
    ways: tuple[TraceWay, ...]
    decisions: tuple[int | None, ...]
    unsure: tuple[float, ...]
    hot_items: dict[str, float]
    line: str | None

    @property
    def sentence(self) -> str:
        """Which number of shards is enough until which traffic."""
        highest = dict(zip(self.decisions, self.times, strict=True))  # multiple of each
        parts = [
            f"{counted(shards, 'shard')} {'serves' if shards == 1 else 'serve'} up to {number(times)}x the traffic"
            for shards, times in highest.items()
            if shards is not None
        ]
        decided = zip(self.times, self.decisions, strict=True)
        beyond = [times for times, shards in decided if shards is None and times not in self.unsure]
        if beyond:
            parts.append(f"{number(beyond[0])}x needs other shards than these, or more partitions")
        if self.unsure:
            parts.append(
                f"for {' and '.join(f'{number(times)}x' for times in self.unsure)} these rows carry no decision; "
                "record more rows (rows_per_second=), or for longer"
            )
        return "; ".join(parts)

    def __str__(self) -> str:
        today = self.times.index(1.0)
        heads = "shards               throttled, 1x  wait: mean, longest  extra read units  fine in   fine up to"
        lines = [self.recorded, heads]
        for way in self.ways:
            low, high = way.interval[today]
            throttled = f"{way.throttled[today]:.2%}{f' ({low:.2%} to {high:.2%})' if high > low else ''}"
            enough = [times for times, fine in zip(self.times, way.fine, strict=True) if fine >= _ENOUGH]
            lines.append(
                f"{way.shards:>6}  {throttled:>26}  {f'{way.mean_wait:,.3f} s, {way.longest_wait:,.1f} s':>19}  "
                f"{way.extra_read_units:>14,.0f}/s  {f'{way.fine[today]} of {HASHES}':>8}  "
                f"{f'{number(enough[-1])}x' if enough else '-':>10}"
                f"{'' if way.dollars is None else f'  {way.dollars:,.2f} $ a month'}"
            )
        lines.append(self.sentence)
        for key, share in self.hot_items.items():
            lines.append(f"{brief(key, 60)}: one item takes {share:.0%} of it, and stays on one of however many shards")
        if self.line is not None:
            lines.append(f"with {HEADROOM:.0%} left free: {self.line}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self) | {"sentence": self.sentence}


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
    prices: Prices | None = None,
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
        times: the multiples of the traffic, above 0; also 1, and 1.25 for 20% left free.
        keys: the logical keys that have so many shards, the others what they have; None: all have.
        at_random: whether shards are drawn (``RandomSuffix``), and not calculated.
        read_units: provisioned read units a second; None: on-demand, so that the table has no limit.
        write_units: provisioned write units a second, likewise.
        prices: to show what the extra read units cost.

    Returns:
        The plan: ``print`` it, or see ``decisions``, ``line``, ``ways`` and ``sentence``.

    Raises:
        ConfigurationError: an argument is invalid, or there are no rows of the table.

    Cost:
        No request; CPU in proportion to rows, seconds and shards: docs/reference/trace.md has figures.
    """
    numbers = sorted({check_count("shards", each, "shards", most=1000) for each in shards})
    given = {check_number("times", each, "times the traffic", above=True) for each in times}
    multiples = tuple(sorted({1.0, _ROOM} | given))
    if not numbers:
        raise ConfigurationError("shards: must not be empty; give for example shards=[1, 8]")
    rates = [
        inf if units is None else check_number(name, units, "units a second", above=True)
        for name, units in (("read_units", read_units), ("write_units", write_units))
    ]
    if partitions is not None:
        check_count("partitions", partitions, "partitions", most=100_000)
    rows = [row for row in read_traces(files) if row.index_name == index and table in {None, row.table}]
    tables = sorted({row.table for row in rows})
    if len(tables) != 1:
        found = "no rows of it; give other files, or another table or index"
        if tables:
            found = f"rows of several tables ({brief(', '.join(tables), 200)}); give one of them"
        raise ConfigurationError(f"table: {brief(table)}, index {brief(index)}: the files have {found}")
    # A drawn shard is another for each write of an item.
    asked = [row._replace(item=None) for row in rows] if at_random else rows
    traffic = [Traffic(asked, kind, rate) for kind, rate in zip(LIMITS, rates, strict=True)]
    count = partitions or max(1, rounded_up(2 * partitions_taken(*[max(one.total) for one in traffic])))

    def way_of(shards: int, only: Keys) -> TraceWay:
        replays = [Replay(one, count, multiples, shards, only) for one in traffic]
        return _way(replays, shards, prices, sampled=traffic[0].sampled)

    ways = tuple(way_of(each, keys) for each in numbers)
    exact = min(one.exact for one in traffic)
    decisions, unsure = [], []
    for place, each in enumerate(multiples):
        by_rows = [way.shards for way in ways if way.fine[place] >= _ENOUGH]
        again = [way.shards for way in ways if way.fine_again[place] >= _ENOUGH]
        if exact < EXACT or by_rows[:1] != again[:1]:
            unsure.append(each)
        decisions.append(None if each in unsure else next(iter(by_rows), None))
    hot = sorted((pair for units in traffic for pair in units.hot.items()), key=lambda pair: -pair[1].peak)
    room = multiples.index(_ROOM)
    wanted, line = decisions[room], None
    if wanted is not None and wanted > 1:
        line = f"shards={wanted}" if keys is None else PerKey(dict.fromkeys(keys, wanted)).argument
        few = [*dict.fromkeys(key for key, one in hot if one.peak > _WARM and one.share <= 1 / 2)]
        alone = keys is None and are_few(few, max(len(units.hashes) for units in traffic))
        for one in (way_of(each, few) for each in numbers if alone and each >= wanted):
            if min(one.fine[room], one.fine_again[room]) >= _ENOUGH:
                line = PerKey(dict.fromkeys(few, one.shards)).argument
                break
    return TracePlan(
        table=tables[0],
        recorded=_recorded(rows, exact, f"{counted(count, 'partition')}{'' if partitions else ' (assumed)'}"),
        partitions=count,
        times=multiples,
        ways=ways,
        decisions=tuple(decisions),
        unsure=tuple(unsure),
        hot_items={str(key): one.share for key, one in hot if one.peak * one.share > 1},
        line=line,
    )


def _recorded(rows: Sequence[TraceRow], exact: float, partitions: str) -> str:
    seconds, index = [row.second for row in rows], rows[0].index_name
    began, ended = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in (min(seconds), max(seconds) + 1))
    totals = [(row.write_units, row.read_units, row.throttled) for row in rows if row.key is None]
    writes, reads, throttled = (round(sum(column)) for column in zip((0, 0, 0), *totals, strict=True))
    return (
        f"{rows[0].table}{'' if index is None else f', index {index}'}, {began} to {ended} UTC: "
        f"{counted(writes, 'write unit')}, {counted(reads, 'read unit')}, {counted(throttled, 'throttled attempt')}"
        f"{', which count as if all had been wanted' if throttled else ''}\n{counted(len(rows) - len(totals), 'row')}, "
        f"{percent(exact)} of the hottest keys' units exact; replayed on {partitions}"
    )


def _way(replays: Sequence[Replay], shards: int, prices: Prices | None, *, sampled: bool) -> TraceWay:
    under, means, longest = zip(*[_under(replays, salt) for salt in range(HASHES)], strict=True)
    columns = others = [*zip(*under, strict=True)]
    if sampled:
        others = [*zip(*[_under(replays, salt, drawn=True)[0] for salt in range(HASHES)], strict=True)]
    extra = fmean(replays[0].extra)
    return TraceWay(
        shards=shards,
        throttled=tuple(map(fmean, columns)),
        interval=tuple((min(map(min, both)), max(map(max, both))) for both in zip(columns, others, strict=True)),
        fine=tuple(sum(share <= FINE for share in of_hashes) for of_hashes in columns),
        fine_again=tuple(sum(share <= FINE for share in of_hashes) for of_hashes in others),
        mean_wait=fmean(means),
        longest_wait=max(longest),
        extra_read_units=extra,
        dollars=None if prices is None else extra * prices.read_unit_hour * _MONTH,
    )


def _under(replays: Sequence[Replay], salt: int, *, drawn: bool = False) -> tuple[list[float], float, float]:
    """Return the part that is throttled at each multiple, and the mean and longest wait, of reads and writes."""
    shares, means, longest = zip(*[replay.under(salt, drawn=drawn) for replay in replays], strict=True)
    return [*map(max, *shares)], sum(means), max(longest)
