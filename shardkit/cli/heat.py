"""``shardkit heat``: how evenly candidates for a partition key spread the items of a data file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import click
from click.exceptions import Exit
from rich.console import Console

from shardkit.analysis.keys import Candidate
from shardkit.analysis.verdict import check_rate, judge
from shardkit.cli import options
from shardkit.cli.judged import Judged, Spread, draw_judged, show, to_json
from shardkit.cli.options import (
    COUNT,
    FAILED,
    OUTPUT,
    WRONG_USE,
    calculated_suffix,
    check_attributes,
    option,
    out,
    read_all,
    refusing,
    text_source,
)
from shardkit.cli.screen import drawing
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError

LOAD, SHARDS = "Load", "Shards"  # how --help groups the options


@click.command(cls=options.Command)
@click.argument("source")
@option(
    "--key", multiple=True, required=True, help="A candidate: an attribute, or several as A,B. Repeat it to compare."
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
@option("--top", type=COUNT, group=OUTPUT, default=10, help="How many of the hottest keys.")
@option("--plot", group=OUTPUT, help="Draw the hottest keys into a file: heat.svg, heat.png.")
@options.as_json
@options.progress
def heat(
    source: str,
    key: tuple[str, ...],
    write_units: float | None,
    read_units: float | None,
    times: str | None,
    no_time: bool,
    shards: int | None,
    by: str | None,
    top: int,
    plot: str | None,
    as_json: bool,
    progress: bool,
    **reading: Any,
) -> None:
    """Judge candidates for a partition key by the items of a data file. Nothing is sent.

    SOURCE is a file, folder, pattern, s3://bucket/prefix, or - (standard input).

    A candidate is good if one partition can serve its hottest key, with 20% of its 1,000 write units and 3,000 read
    units a second left free.

    Exit codes: 0 every record was read, 1 some records are not items, 2 wrong use, 3 stopped before its end.
    """
    stderr = Console(stderr=True, highlight=False)
    with refusing(stderr, WRONG_USE, "not begun"):
        candidates = _candidates(key, times, no_time=no_time)
        check_rate("--write-units", write_units)
        check_rate("--read-units", read_units)
        draw = drawing(plot, draw_judged)
        suffix = None if by is None else calculated_suffix(by, shards or 1)
        if suffix is not None and source == "-":
            raise ConfigurationError("--by: reads the source twice; standard input can be read once; give a file")
        opened = text_source(source, **reading)
        for candidate in candidates:
            check_attributes("--key", candidate.attributes, opened, rare=True)
        if suffix is not None:
            check_attributes("--by", suffix.by_attributes or (), opened)
    items = ItemCounts(candidates)
    bad = read_all(opened, items.take, stderr, progress=progress)
    bad.show(stderr)
    with refusing(stderr, WRONG_USE, "no verdict"):
        judged = [items.judged(one, top, write_units, read_units, shards) for one in candidates]
    if by is not None:
        spreads = [Spread(one, candidate, by) for one, candidate in zip(judged, candidates, strict=True)]
        read_all(opened, lambda item: [*map(Spread.take, spreads, repeat(item))], stderr, progress=progress)
        judged = [replace(one, spread=spread) for one, spread in zip(judged, spreads, strict=True)]
    if as_json:
        keys = [to_json(one) for one in judged]
        print(
            json.dumps({"source": source, "format": opened.format, "items": items.count, "keys": keys, **bad.to_dict()})
        )
    else:
        show(out(), items.count, judged)
    with refusing(stderr, WRONG_USE, "no picture"):
        draw(judged)
    raise Exit(FAILED if bad.count else 0)


def _candidates(keys: Sequence[str], times: str | None, *, no_time: bool) -> list[Candidate]:
    if no_time and times is not None:
        raise ConfigurationError("--time: given with --no-time; give one of them")
    given = set() if no_time else None if times is None else {name.strip() for name in times.split(",")}
    candidates = []
    for key in keys:
        names = [name.strip() for name in key.split(",")]
        candidates.append(Candidate(names, times=given if given is None else [one for one in names if one in given]))
    if unknown := (given or set()).difference(*(candidate.attributes for candidate in candidates)):
        raise ConfigurationError(f"--time: {min(unknown)!r} is not in any --key; add it to one")
    return candidates


_MOST_NAMES = 100


class ItemCounts:
    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.count = 0
        self._candidates = candidates
        self._names: set[str] = set()

    def take(self, item: Mapping[str, Any]) -> None:
        """Count an item; raise an error if DynamoDB cannot hold it."""
        size = sum(attribute_sizes(item).values())
        writes, reads = write_units_of(size), read_units_of(size)
        self.count += 1
        if len(self._names) < _MOST_NAMES:
            self._names.update(item)
        for candidate in self._candidates:
            candidate.add(item, size, writes, reads)

    def judged(
        self, candidate: Candidate, top: int, write_units: float | None, read_units: float | None, shards: int | None
    ) -> Judged:
        if candidate.uniformity.items == 0:
            raise ConfigurationError(self._no_items(candidate))
        found = candidate.uniformity.result(top)
        verdict = judge(found, write_units=write_units, read_units=read_units)
        return Judged(found, verdict, candidate.without, shards or verdict.shards or 1)

    def _no_items(self, candidate: Candidate) -> str:
        name = ",".join(candidate.attributes)
        if not self.count:
            return f"--key: {name} cannot be judged; the source has no items"
        why = ", ".join(f"{name} is {problem} in {count:,}" for (name, problem), count in candidate.without.items())
        return (
            f"--key: {name} is not a key in any of {self.count:,} items ({why}; a key is text, a number or binary); "
            f"attributes are {', '.join(sorted(self._names))}"
        )
