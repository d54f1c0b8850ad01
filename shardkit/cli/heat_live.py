"""``shardkit heat --table``: what a sample of a live table says about its partition key."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from rich.text import Text

from shardkit.analysis.keys import Candidate, Key, key_text
from shardkit.analysis.per_key import FEW, per_key
from shardkit.analysis.sample import Estimate, extrapolated, shards_total, units_of_all
from shardkit.analysis.verdict import judge, judge_sharded
from shardkit.cli.command import Call
from shardkit.cli.heat_indexes import IndexCounts, JudgedIndex
from shardkit.cli.judged import Judged, show_judged, to_json
from shardkit.cli.live_table import (
    LiveOptions,
    LiveTable,
    Sampled,
    SampleOptions,
    describe,
    estimate_to_json,
    interval,
    read_sample,
    rounded,
    sample_to_json,
    show_sampled,
)
from shardkit.cli.options import parsed_strategy, seconds_of
from shardkit.cli.screen import clipped, columns, percent, say, show_table
from shardkit.cli.throttled import ThrottledTable, read_throttled_table
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError, brief
from shardkit.migrate.marks import MARK, STUB
from shardkit.sharding.shard_map import MAP, ShardMap
from shardkit.strategies import Strategy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

_FIGURES = {"items": "items", "bytes": "bytes", "keys": "partition keys", "write_units": "write units to write all"}
_is_suffixed = re.compile(r"(.+)[.#][0-9]{1,6}", re.DOTALL).fullmatch
_MANY = 1000


@dataclass(frozen=True)
class LogicalKey:
    """A logical key: how many shards it has (in a move, of both strategies), and the figures of those that have items.

    ``share`` is the share of the stored keys that were read, ``at_least`` whether some were not read to their end.
    """

    key: Any
    shards: int
    found: Sequence[Mapping[str, float]]
    share: float
    at_least: bool

    def read(self, name: str) -> float:
        return sum(figures[name] for figures in self.found)

    @property
    def exact(self) -> bool:
        return (self.share == 1 or len(self.found) == self.shards) and not self.at_least

    @property
    def shards_read(self) -> int | None:
        """How many were read, with those that are empty; None: unknown."""
        return self.shards if self.exact else None

    @property
    def total(self) -> Estimate:
        """The items of all its shards."""
        total = shards_total([figures["items"] for figures in self.found], self.shards, self.share)
        return total._replace(high=math.inf) if self.at_least else total


class KeyCounts:
    """Counts the items of a live table by its own partition key, and, with a strategy, by its logical key."""

    def __init__(self, table: LiveTable, times: Sequence[str] | None, strategy: Strategy | None) -> None:
        kept = None if times is None else [name for name in table.keys.partition if name in times]
        self.candidate = Candidate(table.keys.partition, times=kept)
        self._logical: dict[Any, dict[Any, Counter[str]]] = {}
        self._strategy = strategy
        self._name = table.keys.partition_key
        self.write_units = 0.0
        self.indexes = [
            IndexCounts(
                index.name,
                index.keys.partition,
                times,
                also=index.keys.sort,
                projected=index.projected,
                by=table.own_keys.names,
            )
            for index in table.hot_alone
            if table.index is None
        ]
        self._whole = Candidate([self._name], times=kept)

    def take(self, item: Mapping[str, Any]) -> Mapping[str, float]:
        sizes = attribute_sizes(item)
        size = sum(sizes.values())
        writes, reads = write_units_of(size), read_units_of(size)
        read = {"bytes": size, "write_units": writes, "read_units": reads}
        if MAP in item or item.get(MARK) == STUB["S"]:
            return read
        self.write_units += writes
        for index in self.indexes:
            index.take(item, sizes)
        key = self.candidate.add(item, size)
        if self._strategy is not None and key is not None:
            logical, _ = self._strategy.split(key[0])
            self._whole.add({self._name: logical}, size)
            figures = self._logical.setdefault(logical, {}).setdefault(key[0], Counter())
            figures.update({"items": 1, "write_units": writes, "read_units": reads})
        return read

    @property
    def times(self) -> tuple[str, ...]:
        """The attributes whose logical keys say when an item is written."""
        return self._whole.uniformity.result(1).times if self._logical else ()

    def logical(self, share: float, unfinished: Collection[Key]) -> Iterator[LogicalKey]:
        """Yield the logical keys of a sharded table; items that have no suffix are only under their stored key."""
        strategy = self._strategy
        if strategy is None:
            return
        more = {strategy.split(key[0])[0] for key in unfinished}
        for key, counts in self._logical.items():
            places = strategy.physical_keys(key)
            found = [counts[place] for place in places if place in counts]
            # What is left of a segment may have any shard of any key.
            at_least = key in more or (share == 1 and bool(more) and len(found) < len(places))
            if found:
                yield LogicalKey(key, len(places), found, share, at_least)


@dataclass(frozen=True)
class LiveHeat:
    """A sample, and what it says of the partition key; ``judged`` is None if no item was read.

    ``indexes`` are the table's global indexes that can be hot by themselves, or the one that was read.
    """

    found: Sampled
    judged: Judged | None
    counts: KeyCounts
    strategy: Strategy | None
    top: int
    indexes: Sequence[JudgedIndex] = ()

    @classmethod
    def of(
        cls,
        found: Sampled,
        counts: KeyCounts,
        strategy: Strategy | None,
        top: int,
        write_units: float | None,
        read_units: float | None,
    ) -> LiveHeat:
        if not counts.candidate.uniformity.items:
            return cls(found, None, counts, strategy, top)
        read = counts.candidate.uniformity.result(max(top, FEW + 1))
        whole, few, table = extrapolated(read, found.sample, found.table.items), None, found.table
        if strategy is None:
            verdict = judge(whole, write_units=write_units, read_units=read_units)
            shards = verdict.shards or 1
            if table.index is None and table.own_keys.sort and table.key_types[table.own_key] != "N":
                few = per_key(whole, verdict, table.own_keys.sort)
        else:
            logical, _ = strategy.split(whole.hottest[0].key[0])
            shards, shares = len(strategy.shards_for(logical)), None
            keys = [*counts.logical(1.0, ())] if found.whole else []
            if keys:
                hottest = max(keys, key=lambda one: one.read("write_units"))
                shards = len(strategy.shards_for(hottest.key))
                shares = hottest.read("write_units") / whole.write_units, hottest.read("read_units") / whole.read_units
            verdict = judge_sharded(
                whole, shards, counts.times, shares=shares, write_units=write_units, read_units=read_units
            )
        doubt = (
            found.unseen,
            (
                f"a key that was not read may have up to {percent(found.unseen)} of the items; raise --max-units "
                f"({units_of_all(table.size):,} reads all of it)"
            ),
        )
        verdict = verdict.doubted(*doubt)
        without, sharded = counts.candidate.without, strategy is not None
        whole = replace(whole, hottest=whole.hottest[:top])
        judged = Judged(whole, verdict, without, shards, has_shards=sharded, at_least=found.unfinished, per_key=few)
        judged_indexes = (index.judged(counts.write_units, write_units, read_units) for index in counts.indexes)
        indexes = [replace(one, verdict=one.verdict and one.verdict.doubted(*doubt)) for one in judged_indexes if one]
        own = found.table.index
        if any(index.name == own for index in found.table.hot_alone):
            by = found.table.own_keys.names
            indexes = [JudgedIndex(own, found.table.keys.partition, by, 1.0, whole, verdict)]
        return cls(found, judged, counts, strategy, top, indexes)

    def show(self, console: Console) -> None:
        show_sampled(console, self.found, _FIGURES)
        if self.judged is None:
            say(console, "no item was read: there is nothing to judge")
            return
        show_judged(console, self.judged.found.items, self.judged)
        if self.strategy is not None:
            show_table(console, self._logical(console))
        elif self.found.table.keys.partition == (self.found.table.own_key,) and _suffixed(self.counts.candidate):
            say(console, "  these keys look like shards of fewer keys: with --strategy they are shown together")
        for one in self.indexes:
            if one.index == self.found.table.index:
                one.show_advice(console)
            else:
                one.show(console)

    def _logical(self, console: Console) -> Grid:
        whole = self.found.whole
        shards = "shards read" if whole else "shards found"
        more = () if whole else ("all, about", "95% interval")
        grid = columns(console, "  logical key", shards, "items", *more)
        for one in self._hottest():
            total = one.total
            grid.add_row(
                Text(f"  {clipped(key_text((one.key,)))}"),
                f"{one.shards if whole else len(one.found):,} of {one.shards:,}",
                f"{one.read('items'):,.0f}{'+' if one.at_least else ''}",
                *(() if whole else (f"{total.value:,.0f}", "exact") if one.exact else _about(total)),
            )
        return grid

    def _hottest(self) -> list[LogicalKey]:
        keys = self.counts.logical(self.found.sample.share, self.found.unfinished)
        return sorted(keys, key=lambda one: -one.read("items"))[: self.top]

    def to_json(self) -> dict[str, Any]:
        """Return the figures for ``--json``; keys are in wire form."""
        logical = [
            {
                "key": to_wire_item({"key": one.key})["key"],
                "shards": one.shards,
                "shards_found": len(one.found),
                "shards_read": one.shards_read,
                "items_read": one.read("items"),
                "at_least": one.at_least,
                "items": estimate_to_json(one.total),
            }
            for one in self._hottest()
        ]
        keys = [] if self.judged is None else [to_json(self.judged)]
        indexes = [one.to_json() for one in self.indexes]
        return {**sample_to_json(self.found, _FIGURES), "keys": keys, "logical_keys": logical, "indexes": indexes}


def _about(total: Estimate) -> tuple[str, str]:
    return rounded(total.value), interval(total)


def _suffixed(candidate: Candidate) -> bool:
    """Return whether some keys differ only in a number at their end; a number such as 1.5 has no suffix."""
    values = [usage.key[0] for usage in candidate.uniformity.result(_MANY).hottest]
    keys = [value.decode("latin-1") if isinstance(value, bytes) else value for value in values]
    keys = [key for key in keys if isinstance(key, str)]
    stems = [found[1] for key in keys if (found := _is_suffixed(key))]
    return len(stems) > len({*stems})


def heat_of_sample(
    table: LiveTable,
    strategy: Strategy | None,
    times: Sequence[str] | None,
    stderr: Console,
    *,
    write_units: float | None,
    read_units: float | None,
    top: int,
    **how: Unpack[SampleOptions],
) -> Callable[[], LiveHeat]:
    """Plan a sample and say what it will take; return the function that reads and judges it."""
    for name in times or ():
        if name not in table.key_types:
            raise ConfigurationError(
                f"--time: {name!r} is not a key of table {table.name} or its indexes; give one of "
                f"{', '.join(table.key_types)}"
            )
    if strategy is not None and table.keys.partition != (table.own_key,):
        raise ConfigurationError(
            f"--strategy: not supported for {table.title}, whose partition key is not the table's; omit it"
        )
    if strategy is not None and strategy.separator and table.key_types[table.own_key] == "N":
        raise ConfigurationError(
            f"--strategy: not supported for {table.title}, whose partition key is a number, which has no suffix; omit "
            "it"
        )
    counts = KeyCounts(table, times, strategy)
    read = read_sample(table, counts.take, stderr, **how)
    return lambda: LiveHeat.of(read(), counts, strategy, top, write_units, read_units)


def _looking_back(last: str, until: datetime) -> timedelta:
    try:
        back = timedelta(seconds=seconds_of("--last", last))
        _ = until - back
    except OverflowError:
        raise ConfigurationError(
            f"--last: {brief(last, 50)} is longer ago than a date can be; give less, such as 3h"
        ) from None
    return back


def heat_of_table(
    call: Call,
    name: str,
    live: LiveOptions,
    *,
    strategy: str | None,
    last: str | None,
    times: Sequence[str] | None,
    top: int,
    **rates: Any,
) -> LiveHeat | ThrottledTable:
    """Read a sample of a table, or, with ``last``, the reports of Contributor Insights."""
    spread = None if strategy is None else parsed_strategy(strategy)
    resource = call.dynamodb()
    client = resource.meta.client
    if spread == ShardMap():
        from shardkit.shard_map import ShardMapAdmin

        spread = ShardMapAdmin(resource.Table(name)).read().strategy
    if last is not None:
        until = datetime.now(UTC)
        back = _looking_back(last, until)
        cloudwatch, described = call.aws.client("cloudwatch"), describe(client, name, live.index)
        return read_throttled_table(client, cloudwatch, described, until=until, last=back, top=top, strategy=spread)
    described, how = describe(client, name, live.index), {"top": top, **rates, **live.reading(call)}
    return heat_of_sample(described, spread, times, call.stderr, **how)()
