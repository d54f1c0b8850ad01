"""``shardkit heat``: how evenly candidates for a partition key spread the items of a data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import click

from shardkit.analysis.keys import Candidate
from shardkit.analysis.per_key import FEW, per_key
from shardkit.analysis.verdict import check_rate, judge
from shardkit.cli import options
from shardkit.cli.command import FAILED, Call, Command, Outcome
from shardkit.cli.heat_indexes import IndexCounts, JudgedIndex
from shardkit.cli.heat_live import heat_of_table
from shardkit.cli.judged import Judged, Spread, draw_judged, show, to_json
from shardkit.cli.live_table import LIVE, LiveOptions, check_source, live_outcome, sampling
from shardkit.cli.options import (
    COUNT,
    OUTPUT,
    calculated_suffix,
    check_attributes,
    option,
    read_all,
    text_source,
)
from shardkit.cli.pictures import drawing
from shardkit.cli.throttled import ThrottledTable
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

LOAD, SHARDS = "Load", "Shards"  # how --help groups the options


@click.command(cls=Command)
@click.argument("source", required=False)
@option("--key", multiple=True, help="A candidate: an attribute, or several as A,B. Repeat it to compare.")
@option(
    "--index-key",
    multiple=True,
    help="The partition key of a global index, as --key: judged by the items that have it.",
)
@option("--write-units", group=LOAD, type=float, help="Write units a second of the whole load.")
@option(
    "--read-units",
    group=LOAD,
    type=float,
    help="Read units a second of the whole load; both 40,000 if neither is given.",
)
@option(
    "--time",
    "times",
    group=LOAD,
    help="Attributes (A or A,B) that say when an item is written; by their values if not given.",
)
@option("--no-time", group=LOAD, is_flag=True, help="Dates in a key are not times of writing (birthdays).")
@option("--shards", type=COUNT, group=SHARDS, help="Shards to assess; as many as needed if not given.")
@option(
    "--by",
    group=SHARDS,
    help="Attributes (A or A,B) of a CalculatedSuffix: measure its shards. Reads the source twice.",
)
@options.reading
@sampling
@option("--strategy", group=LIVE, help='A sharded table\'s strategy: {"type": "RandomSuffix", "shards": 10}.')
@option("--throttled", group=LIVE, is_flag=True, help="Show the hot keys that Contributor Insights knows; no sample.")
@option("--last", group=LIVE, default="3h", help="The time that --throttled looks back: 30m, 3h.")
@option("--top", type=COUNT, group=OUTPUT, default=10, help="How many of the hottest keys.")
@option("--plot", group=OUTPUT, help="Draw the hottest keys into a file: heat.svg, heat.png.")
@options.as_json
@options.progress
def heat(
    call: Call,
    source: str | None,
    key: tuple[str, ...],
    index_key: tuple[str, ...],
    write_units: float | None,
    read_units: float | None,
    times: str | None,
    no_time: bool,
    shards: int | None,
    by: str | None,
    table: str | None,
    strategy: str | None,
    throttled: bool,
    last: str,
    top: int,
    plot: str | None,
    **reading: Any,
) -> Outcome:
    """Judge candidates for a partition key by the items of a data file, or the partition keys of a live table.

    SOURCE is a file, pipe, folder, pattern, s3://bucket/prefix, or - (standard input); nothing is sent. With --table, a
    random sample of a live table is read, within --max-units; its global indexes are judged by the same sample.

    A candidate is good if one partition can serve its hottest key, with 20% of its 1,000 write units and 3,000 read
    units a second left free.

    Exit codes: 0 every record was read, 1 some records are not items, 2 wrong use, 3 stopped before its end.
    """
    live = LiveOptions.taken(reading)
    of_table = {**live.given, "strategy": strategy, "throttled": throttled}
    check_source(source, table, {**reading, "key": key, "index_key": index_key, "shards": shards, "by": by}, of_table)
    check_rate("--write-units", write_units)
    check_rate("--read-units", read_units)
    if throttled and plot is not None:
        raise ConfigurationError("--plot: draws no report of --throttled; omit it")
    draw = drawing(plot, draw_judged)
    said = _times(times, no_time=no_time)
    if source is None:
        rates = {"write_units": write_units, "read_units": read_units}
        back = last if throttled else None
        found = heat_of_table(call, table or "", live, strategy=strategy, last=back, times=said, top=top, **rates)
        if isinstance(found, ThrottledTable):
            return Outcome(found.to_json, found.show)
        return live_outcome(found, partial(draw, [found.judged] if found.judged else []))
    candidates, indexes = _candidates(key, index_key, said, by)
    suffix = None if by is None else calculated_suffix(by, shards or 1)
    opened = text_source(call, source, **reading)
    if suffix is not None and opened.bytes_total is None:
        raise ConfigurationError("--by: reads the source twice; a pipe can be read once; give a file")
    keys = [("--key", one) for one in candidates] + [("--index-key", one.candidate) for one in indexes]
    for name, candidate in keys:
        check_attributes(name, candidate.attributes, opened, rare=True)
    if suffix is not None:
        check_attributes("--by", suffix.by_attributes or (), opened)
    items = ItemCounts(candidates, indexes, () if by is None else _names(by))
    bad = read_all(opened, items.take, call)
    bad.show(call.stderr)
    with call.refusing("no verdict"):
        judged = [items.judged(one, top, write_units, read_units, shards) for one in candidates]
        of_indexes = items.judged_indexes(write_units, read_units)
    if by is not None and judged:
        spreads = [Spread(one, candidate, by) for one, candidate in zip(judged, candidates, strict=True)]
        read_all(opened, lambda item: [*map(Spread.take, spreads, repeat(item))], call)
        judged = [replace(one, spread=spread) for one, spread in zip(judged, spreads, strict=True)]

    def told() -> dict[str, Any]:
        read = {"source": source, "format": opened.format, "items": items.count, **bad.to_dict()}
        return {**read, "keys": [*map(to_json, judged)], "indexes": [one.to_json() for one in of_indexes]}

    def shown(console: Console) -> None:
        show(console, items.count, judged)
        for one in of_indexes:
            one.show(console)

    return Outcome(told, shown, FAILED if bad.count else 0, draw=partial(draw, judged))


def _times(times: str | None, *, no_time: bool) -> list[str] | None:
    if no_time and times is not None:
        raise ConfigurationError("--time: given with --no-time; give one of them")
    return [] if no_time else None if times is None else [name.strip() for name in times.split(",")]


def _candidates(
    keys: Sequence[str], index_keys: Sequence[str], times: Sequence[str] | None, by: str | None
) -> tuple[list[Candidate], list[IndexCounts]]:
    if not keys and not index_keys:
        raise ConfigurationError("--key: required with a source; give an attribute, or several as A,B")
    candidates = [
        Candidate(names, times=times if times is None else [one for one in names if one in times])
        for names in map(_names, keys)
    ]
    indexes = [IndexCounts(None, _names(key), times, by=() if by is None else _names(by)) for key in index_keys]
    known = (*candidates, *(index.candidate for index in indexes))
    if unknown := set(times or ()).difference(*(candidate.attributes for candidate in known)):
        raise ConfigurationError(f"--time: {min(unknown)!r} is not in any --key; add it to one")
    return candidates, indexes


def _names(key: str) -> list[str]:
    return [name.strip() for name in key.split(",")]


_MOST_NAMES = 100


class ItemCounts:
    def __init__(
        self, candidates: Sequence[Candidate], indexes: Sequence[IndexCounts] = (), by: Sequence[str] = ()
    ) -> None:
        self.count = 0
        self.write_units = 0.0
        self._candidates = candidates
        self._indexes = indexes
        self._by = by
        self._names: set[str] = set()

    def take(self, item: Mapping[str, Any]) -> None:
        """Count an item; raise an error if DynamoDB cannot hold it."""
        sizes = attribute_sizes(item)
        size = sum(sizes.values())
        self.count += 1
        self.write_units += write_units_of(size)
        for index in self._indexes:
            index.take(item, sizes)
        if len(self._names) < _MOST_NAMES:
            self._names.update(item)
        for candidate in self._candidates:
            candidate.add(item, size)

    def judged(
        self, candidate: Candidate, top: int, write_units: float | None, read_units: float | None, shards: int | None
    ) -> Judged:
        if candidate.uniformity.items == 0:
            raise ConfigurationError(self._no_items("--key", candidate))
        found = candidate.uniformity.result(max(top, FEW + 1))
        verdict = judge(found, write_units=write_units, read_units=read_units)
        few = per_key(found, verdict, self._by)
        found = replace(found, hottest=found.hottest[:top])
        return Judged(found, verdict, candidate.without, shards or verdict.shards or 1, per_key=few)

    def judged_indexes(self, write_units: float | None, read_units: float | None) -> list[JudgedIndex]:
        for index in self._indexes:
            if not index.candidate.uniformity.items:
                raise ConfigurationError(self._no_items("--index-key", index.candidate))
        judged = [index.judged(self.write_units, write_units, read_units) for index in self._indexes]
        return [one for one in judged if one is not None]

    def _no_items(self, option: str, candidate: Candidate) -> str:
        name = ",".join(candidate.attributes)
        if not self.count:
            return f"{option}: {name} cannot be judged; the source has no items"
        why = ", ".join(f"{name} is {problem} in {count:,}" for (name, problem), count in candidate.without.items())
        return (
            f"{option}: {name} is not a key in any of {self.count:,} items ({why}; a key is text, a number or binary); "
            f"attributes are {', '.join(sorted(self._names))}"
        )
