"""``shardkit heat --table``: what a sample of a live table says about its partition key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from rich.text import Text

from shardkit.analysis.keys import Candidate
from shardkit.analysis.sample import SegmentSample, extrapolated
from shardkit.analysis.verdict import judge, judge_sharded
from shardkit.cli.judged import Judged, key_text, show_judged, to_json
from shardkit.cli.live_table import (
    LiveOptions,
    LiveTable,
    Reading,
    Sampled,
    describe,
    estimate_to_json,
    interval,
    read_sample,
    rounded,
    sample_to_json,
    show_sampled,
)
from shardkit.cli.options import WRONG_USE, parsed_strategy, refusing, seconds_of
from shardkit.cli.screen import clipped, columns, say, show_table
from shardkit.cli.throttled import Throttled, read_throttled
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError
from shardkit.strategies import Strategy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

_FIGURES = {"items": "items", "bytes": "bytes", "keys": "partition keys", "write_units": "write units to write all"}
_is_suffixed = re.compile(r"(.+)[.#][0-9]{1,6}", re.DOTALL).fullmatch
_MANY = 1000


@dataclass
class LogicalKey:
    """The shards of a logical key that were read: the items of each."""

    items: dict[int | None, int] = field(default_factory=dict)

    def total(self, shards: int) -> SegmentSample:
        """Return its shards as a sample: each has its own hash, so those that were read are a random choice."""
        sample = SegmentSample(shards)
        for count in self.items.values():
            sample.add({"items": count})
        return sample


class KeyCounts:
    """Counts the items of a live table by its own partition key, and, with a strategy, by its logical key."""

    def __init__(self, table: LiveTable, times: Sequence[str] | None, strategy: Strategy | None) -> None:
        self.candidate = Candidate(table.keys.partition, times=times)
        self.logical: dict[Any, LogicalKey] = {}
        self._strategy = strategy
        self._name = table.keys.partition_key
        self._whole = Candidate([self._name], times=times)

    def take(self, item: Mapping[str, Any]) -> Mapping[str, float]:
        size = sum(attribute_sizes(item).values())
        writes, reads = write_units_of(size), read_units_of(size)
        key = self.candidate.add(item, size, writes, reads)
        if self._strategy is not None and key is not None:
            logical, shard = self._strategy.split(key[0])
            self._whole.add({self._name: logical}, size, writes, reads)
            counts = self.logical.setdefault(logical, LogicalKey()).items
            counts[shard] = counts.get(shard, 0) + 1
        return {"bytes": size, "write_units": writes, "read_units": reads}

    @property
    def times(self) -> tuple[str, ...]:
        """The attributes whose logical keys say when an item is written."""
        return self._whole.uniformity.result(1).times if self.logical else ()


@dataclass(frozen=True)
class LiveHeat:
    """A sample, and what it says of the partition key; ``judged`` is None if no item was read."""

    found: Sampled
    judged: Judged | None
    counts: KeyCounts
    strategy: Strategy | None
    top: int

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
        whole = extrapolated(counts.candidate.uniformity.result(top), found.sample, found.table.items)
        if strategy is None:
            verdict = judge(whole, write_units=write_units, read_units=read_units)
            shards = verdict.shards or 1
        else:
            logical, _ = strategy.split(whole.hottest[0].key[0])
            shards = len(strategy.shards_for(logical))
            verdict = judge_sharded(whole, shards, counts.times, write_units=write_units, read_units=read_units)
        without, sharded = counts.candidate.without, strategy is not None
        judged = Judged(whole, verdict, without, shards, has_shards=sharded, at_least=found.unfinished)
        return cls(found, judged, counts, strategy, top)

    @property
    def problem(self) -> str | None:
        """Why it stopped early; None: it did not."""
        return self.found.problem

    def show(self, console: Console) -> None:
        show_sampled(console, self.found, _FIGURES)
        if self.judged is None:
            say(console, "no item was read: there is nothing to judge")
            return
        show_judged(console, self.judged.found.items, self.judged)
        if self.strategy is not None:
            show_table(console, self._logical(console, self.strategy))
        elif _suffixed(self.counts.candidate):
            say(console, "  these keys look like shards of fewer keys: with --strategy they are shown together")

    def _logical(self, console: Console, strategy: Strategy) -> Grid:
        grid = columns(console, "  logical key", "shards read", "items", "all, about", "95% interval")
        for key, counts in self._hottest():
            shards = len(strategy.shards_for(key))
            total = counts.total(shards).total("items")
            exact = len(counts.items) == shards
            grid.add_row(
                Text(f"  {clipped(key_text((key,)))}"),
                f"{len(counts.items):,} of {shards:,}",
                f"{sum(counts.items.values()):,}",
                f"{total.value:,.0f}" if exact else rounded(total.value),
                "exact" if exact else interval(total),
            )
        return grid

    def _hottest(self) -> list[tuple[Any, LogicalKey]]:
        return sorted(self.counts.logical.items(), key=lambda one: -sum(one[1].items.values()))[: self.top]

    def to_json(self) -> dict[str, Any]:
        """Return the figures for ``--json``; keys are in wire form."""
        strategy = self.strategy
        logical = [
            {
                "key": to_wire_item({"key": key})["key"],
                "shards": len(strategy.shards_for(key)),
                "shards_read": len(counts.items),
                "items_read": sum(counts.items.values()),
                "items": estimate_to_json(counts.total(len(strategy.shards_for(key))).total("items")),
            }
            for key, counts in self._hottest()
            if strategy is not None
        ]
        keys = [] if self.judged is None else [to_json(self.judged)]
        return {**sample_to_json(self.found, _FIGURES), "keys": keys, "logical_keys": logical}


def _suffixed(candidate: Candidate) -> bool:
    """Return whether some keys differ only in a number at their end."""
    keys = [key_text(usage.key) for usage in candidate.uniformity.result(_MANY).hottest]
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
    **how: Unpack[Reading],
) -> Callable[[], LiveHeat]:
    """Plan a sample and say what it will take; return the function that reads and judges it."""
    if strategy is not None and table.keys.partition != (table.own_key,):
        raise ConfigurationError(
            f"--strategy: not supported for {table.title}, whose partition key is not the table's; omit it"
        )
    counts = KeyCounts(table, times, strategy)
    read = read_sample(table, counts.take, stderr, **how)
    return lambda: LiveHeat.of(read(), counts, strategy, top, write_units, read_units)


def heat_of_table(
    name: str,
    live: LiveOptions,
    stderr: Console,
    *,
    strategy: str | None,
    last: str | None,
    times: Sequence[str] | None,
    write_units: float | None,
    read_units: float | None,
    top: int,
    progress: bool,
) -> LiveHeat | Throttled:
    """Read a sample of a table, or, with ``last``, the reports of Contributor Insights; exit if that cannot begin."""
    with live.client(stderr) as client:
        with refusing(stderr, WRONG_USE, "not begun"):
            spread = None if strategy is None else parsed_strategy(strategy)
            if last is not None:
                back = timedelta(seconds=seconds_of("--last", last))
                cloudwatch = live.cloudwatch()
                return read_throttled(
                    client, cloudwatch, name, live.index, until=datetime.now(UTC), last=back, top=top, strategy=spread
                )
            read = heat_of_sample(
                describe(client, name, live.index),
                spread,
                times,
                stderr,
                write_units=write_units,
                read_units=read_units,
                top=top,
                **live.reading(progress=progress),
            )
        return read()
