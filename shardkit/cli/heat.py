"""``shardkit heat``: how evenly candidates for a partition key spread the items of a data file, and which is good.

Exit codes: 0 every record was read · 1 some records are no items · 2 wrong use · 3 stopped before its end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Annotated, Any

import typer
from rich.console import Console

from shardkit.analysis.keys import Candidate
from shardkit.analysis.verdict import check_rate, judge
from shardkit.bulk.one_shard import MANY_ITEMS, one_shard_advice
from shardkit.cli.figures import clipped
from shardkit.cli.heat_show import Judged, Spread, key_text, show, to_json
from shardkit.cli.plotting import drawing
from shardkit.cli.reading import (
    FAILED,
    OUTPUT,
    STOPPED,
    WRONG_USE,
    AbsentOption,
    ColumnsOption,
    DelimiterOption,
    EmptyStringsOption,
    FormatOption,
    JsonOption,
    ProgressOption,
    SourceArgument,
    TypesOption,
    calculated_suffix,
    check_attributes,
    out,
    read_all,
    refusing,
    text_source,
)
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError

__all__ = ["heat"]

LOAD, SHARDS = "Load", "Shards"  # how --help groups the options
_MOST_NAMES = 100


def heat(
    source: SourceArgument,
    key: Annotated[list[str], typer.Option(help="A candidate: an attribute, or several as A,B. Repeat it to compare.")],
    write_units: Annotated[
        float | None, typer.Option(rich_help_panel=LOAD, help="Write units a second of the whole load.")
    ] = None,
    read_units: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=LOAD, help="Read units a second of the whole load; both 40,000 if neither is given."
        ),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(
            "--time",
            rich_help_panel=LOAD,
            help="Attributes (A or A,B) that say when an item is written; by their values if not given.",
        ),
    ] = None,
    no_time: Annotated[
        bool,
        typer.Option("--no-time", rich_help_panel=LOAD, help="Dates in a key are not those of writing (birthdays)."),
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option(rich_help_panel=SHARDS, min=1, help="Shards to look at; as many as are needed if not given."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SHARDS,
            help="Attributes (A or A,B) of a CalculatedSuffix: measure its shards. Reads the source twice.",
        ),
    ] = None,
    format: FormatOption = None,  # noqa: A002
    types: TypesOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    absent: AbsentOption = None,
    empty_strings: EmptyStringsOption = False,
    top: Annotated[int, typer.Option(rich_help_panel=OUTPUT, min=1, help="How many of the hottest keys.")] = 10,
    plot: Annotated[
        str | None, typer.Option(rich_help_panel=OUTPUT, help="Draw the hottest keys into a file: heat.svg, heat.png.")
    ] = None,
    as_json: JsonOption = False,
    progress: ProgressOption = True,
) -> None:
    """Judge candidates for a partition key by the items of a data file. Nothing is sent.

    A candidate is good if one partition can serve its hottest key, with 20% of its 1,000 write units and 3,000 read
    units a second left free.

    Exit codes: 0 every record was read, 1 some records are no items, 2 wrong use, 3 stopped before its end.
    """
    told = Console(stderr=True, highlight=False)
    with refusing(told, WRONG_USE, "not begun"):
        candidates = _candidates(key, times, no_time=no_time)
        check_rate("--write-units", write_units)
        check_rate("--read-units", read_units)
        draw = drawing(plot, _plot)
        if by is not None:
            calculated_suffix(by, shards or 1)
            if source == "-":
                raise ConfigurationError("--by reads the source twice, standard input can be read once: give a file")
        opened = text_source(
            source,
            format=format,
            types=types,
            columns=columns,
            delimiter=delimiter,
            absent=absent,
            empty_strings=empty_strings,
        )
        for candidate in candidates:
            check_attributes("--key", candidate.attributes, opened, rare=True)
        if by is not None:
            check_attributes("--by", calculated_suffix(by, shards or 1).by_attributes or (), opened)
    items = Items(candidates)
    with refusing(told, STOPPED, "stopped before its end"):
        bad = read_all(opened, items.take, told if progress else None)
    bad.show(told)
    with refusing(told, WRONG_USE, "no verdict"):
        judged = [items.judged(one, top, write_units, read_units, shards) for one in candidates]
    if by is not None:
        spreads = [Spreading(one, candidate, by) for one, candidate in zip(judged, candidates, strict=True)]
        with refusing(told, STOPPED, "stopped before its end"):
            read_all(opened, lambda item: [*map(Spreading.take, spreads, repeat(item))], told if progress else None)
        judged = [replace(spread.judged, spread=spread.result()) for spread in spreads]
    if as_json:
        keys = [to_json(one) for one in judged]
        print(
            json.dumps({"source": source, "format": opened.format, "items": items.count, "keys": keys, **bad.to_dict()})
        )
    else:
        show(out(), items.count, judged)
    with refusing(told, WRONG_USE, "no picture"):
        draw(judged)
    raise typer.Exit(FAILED if bad.count else 0)


class Items:
    """The items of a source, handed to every candidate."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.count = 0
        self._candidates = candidates
        self._names: set[str] = set()

    def take(self, item: Mapping[str, Any]) -> None:
        """Count an item; one that DynamoDB cannot hold is refused."""
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
        """Give the verdict on a candidate."""
        if candidate.uniformity.items == 0:
            raise ConfigurationError(self._nowhere(candidate))
        found = candidate.uniformity.result(top)
        verdict = judge(found, write_units=write_units, read_units=read_units)
        return Judged(found, verdict, candidate.without, shards or verdict.shards or 1)

    def _nowhere(self, candidate: Candidate) -> str:
        name = ",".join(candidate.attributes)
        if not self.count:
            return f"there are no items to look for {name} in"
        why = ", ".join(f"{name} is {problem} in {count:,}" for (name, problem), count in candidate.without.items())
        return (
            f"--key {name}: none of {self.count:,} items has it as a key ({why}; a key is text, a number or binary); "
            f"attributes are {', '.join(sorted(self._names))}"
        )


class Spreading:
    """How a CalculatedSuffix spreads the items of a candidate's hottest key."""

    def __init__(self, judged: Judged, candidate: Candidate, by: str) -> None:
        self.judged = judged
        self._key = judged.found.hottest[0].key
        self._candidate = candidate
        self._strategy = calculated_suffix(by, judged.shards)
        self._items = 0
        self._units: Counter[int | None] = Counter()
        self._without = 0

    def take(self, item: Mapping[str, Any]) -> None:
        """Count an item if it is of the key."""
        if self._candidate.key(item) != self._key:
            return
        try:
            shard = self._strategy.shard_of("any", item)  # it is the same for every key
        except (InvalidKeyError, ShardUnknownError):
            self._without += 1
            return
        self._items += 1
        self._units[shard] += int(write_units_of(sum(attribute_sizes(item).values())))

    def result(self) -> Spread:
        """Give the hottest shard's share."""
        total = self._units.total()
        share = max(self._units.values()) / total if total else 1.0
        return Spread(self._strategy, len(self._units), share, self._without, tuple(self._advice()))

    def _advice(self) -> Iterator[str]:
        shards = self.judged.shards
        if len(self._units) == 1 < shards and self._items >= MANY_ITEMS:
            (shard,) = self._units
            yield one_shard_advice(self._strategy, clipped(key_text(self._key)), self._items, shard, shards=shards)


def _candidates(keys: Sequence[str], times: str | None, *, no_time: bool) -> list[Candidate]:
    if no_time and times is not None:
        raise ConfigurationError("give --time or --no-time, not both")
    given = set() if no_time else None if times is None else {name.strip() for name in times.split(",")}
    candidates = []
    for key in keys:
        names = [name.strip() for name in key.split(",")]
        candidates.append(Candidate(names, times=given if given is None else [one for one in names if one in given]))
    if unknown := (given or set()).difference(*(candidate.attributes for candidate in candidates)):
        raise ConfigurationError(f"--time names {min(unknown)!r}, which is in no --key; give it in one")
    return candidates


def _plot() -> Callable[[Sequence[Judged], str], None]:
    from shardkit.cli.heat_plot import plot

    return plot
