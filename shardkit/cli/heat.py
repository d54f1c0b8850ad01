"""``shardkit heat``: how evenly candidates for a partition key spread the items of a data file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from shardkit.analysis.keys import Candidate, Key, KeyUsage, Uniformity
from shardkit.analysis.shards import HEADROOM
from shardkit.analysis.verdict import KeyHeat, Verdict, check_rate, judge
from shardkit.bulk.one_shard import MANY_ITEMS, one_shard_advice
from shardkit.cli import options
from shardkit.cli.options import (
    FAILED,
    OUTPUT,
    WRONG_USE,
    calculated_suffix,
    check_attributes,
    out,
    read_all,
    refusing,
    text_source,
)
from shardkit.cli.pictures import BLUE, GREY, ORANGE, drawing, picture
from shardkit.cli.screen import bar, clipped, columns, percent, say, show_table, size
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError

LOAD, SHARDS = "Load", "Shards"  # how --help groups the options


def heat(
    source: options.SourceArgument,
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
        typer.Option("--no-time", rich_help_panel=LOAD, help="Dates in a key are not times of writing (birthdays)."),
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option(rich_help_panel=SHARDS, min=1, help="Shards to assess; as many as needed if not given."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=SHARDS,
            help="Attributes (A or A,B) of a CalculatedSuffix: measure its shards. Reads the source twice.",
        ),
    ] = None,
    format: options.FormatOption = None,  # noqa: A002
    types: options.TypesOption = None,
    columns: options.ColumnsOption = None,
    delimiter: options.DelimiterOption = None,
    absent: options.AbsentOption = None,
    empty_strings: options.EmptyStringsOption = False,
    top: Annotated[int, typer.Option(rich_help_panel=OUTPUT, min=1, help="How many of the hottest keys.")] = 10,
    plot: Annotated[
        str | None, typer.Option(rich_help_panel=OUTPUT, help="Draw the hottest keys into a file: heat.svg, heat.png.")
    ] = None,
    as_json: options.JsonOption = False,
    progress: options.ProgressOption = True,
) -> None:
    """Judge candidates for a partition key by the items of a data file. Nothing is sent.

    A candidate is good if one partition can serve its hottest key, with 20% of its 1,000 write units and 3,000 read
    units a second left free.

    Exit codes: 0 every record was read, 1 some records are not items, 2 wrong use, 3 stopped before its end.
    """
    stderr = Console(stderr=True, highlight=False)
    with refusing(stderr, WRONG_USE, "not begun"):
        candidates = _candidates(key, times, no_time=no_time)
        check_rate("--write-units", write_units)
        check_rate("--read-units", read_units)
        draw = drawing(plot, _draw)
        suffix = None if by is None else calculated_suffix(by, shards or 1)
        if suffix is not None and source == "-":
            raise ConfigurationError("--by: reads the source twice; standard input can be read once; give a file")
        opened = text_source(source, format, types, columns, delimiter, absent, empty_strings=empty_strings)
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
    raise typer.Exit(FAILED if bad.count else 0)


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


@dataclass(frozen=True)
class Judged:
    found: Uniformity
    verdict: Verdict
    without: Mapping[tuple[str, str], int]
    shards: int
    spread: Spread | None = None

    @property
    def title(self) -> str:
        rates = " and ".join(f"{heat.rate:,.10g} {units}" for units, heat in self.heats)
        name = ",".join(self.found.attributes)
        return f"{name}: {'good' if self.verdict.good else 'bad'} at {rates} a second"

    @property
    def heats(self) -> list[tuple[str, KeyHeat]]:
        """The loads that the candidate was judged by, with the names of their units."""
        both = (("write units", self.verdict.writes), ("read units", self.verdict.reads))
        return [(units, heat) for units, heat in both if heat is not None]


class Spread:
    """Counts how a CalculatedSuffix spreads the items of a candidate's hottest key.

    Attributes:
        units: the write units of each of its shards that has items.
        without: items of the key without the attributes that the shard is calculated from.
    """

    def __init__(self, judged: Judged, candidate: Candidate, by: str) -> None:
        self.strategy = calculated_suffix(by, judged.shards)
        self.units: Counter[int | None] = Counter()
        self.without = 0
        self._key = judged.found.hottest[0].key
        self._candidate = candidate
        self._shards = judged.shards
        self._items = 0

    def take(self, item: Mapping[str, Any]) -> None:
        if self._candidate.key(item) != self._key:
            return
        try:
            shard = self.strategy.shard_of("any", item)  # a CalculatedSuffix ignores the key
        except (InvalidKeyError, ShardUnknownError):
            self.without += 1
            return
        self._items += 1
        self.units[shard] += int(write_units_of(sum(attribute_sizes(item).values())))

    @property
    def share(self) -> float:
        """The hottest shard's share of the key's write units."""
        return max(self.units.values()) / self.units.total() if self.units else 1.0

    @property
    def advice(self) -> list[str]:
        if len(self.units) != 1 or self._shards == 1 or self._items < MANY_ITEMS:
            return []
        (shard,) = self.units
        key = clipped(key_text(self._key))
        return [one_shard_advice(self.strategy, key, self._items, shard, shards=self._shards)]


def key_text(key: Key) -> str:
    """Return a key as text; the parts of a composite one with a # between them."""
    return "#".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)


def show(console: Console, items: int, judged: Sequence[Judged]) -> None:
    line = partial(say, console)
    line(f"{items:,} items")
    for one in judged:
        found, verdict = one.found, one.verdict
        console.print()
        line(one.title, "bold green" if verdict.good else "bold red")
        line(f"  {verdict.reason}")
        for (name, problem), count in one.without.items():
            line(f"  {count:,} items ({percent(count / items)}) are left out: {name} is {problem}")
        about = "" if found.exact else "about "
        line(
            f"  {about}{found.distinct:,} distinct values, as many as {found.effective_keys:,.1f} equally hot ones "
            f"(entropy {found.entropy:.2f} bits, {percent(found.evenness)} of what is possible)"
        )
        hottest = "the hottest key at any one time" if found.times else "the hottest key"
        for units, heat in one.heats:
            line(
                f"  {hottest} takes {heat.units:,.0f} {units} a second ({percent(heat.share)}); "
                f"one partition serves {heat.limit:,}"
            )
        for text in _shards(one):
            line(f"  {text}")
        show_table(console, _hottest(console, found))
        if not found.exact:
            line(f"  a key's figures may be too low by up to {found.error:,.10g} write units: there are too many keys")


def _shards(one: Judged) -> list[str]:
    needs, reason = one.verdict.shards, one.verdict.needed.reason
    if one.shards == 1:
        return [f"no number of shards is enough: {reason}"] if needs is None else []
    if one.shards == needs:
        needed = "needed"
    else:
        needed = f"asked for, {'no number is enough' if needs is None else f'{needs:,} needed'}"
    suffix, least = f"RandomSuffix({one.shards}) or CalculatedSuffix", read_units_of(0) * one.shards
    about = f"each takes about {_units(one, 1 / one.shards)} a second; a Query takes {least:,.10g} read units at least"
    texts = [f"{one.shards:,} shards ({needed}), by {suffix}: {about}", reason]
    if one.spread is not None:
        spread, key = one.spread, clipped(key_text(one.found.hottest[0].key))
        over = any(heat.units * spread.share > heat.limit for _, heat in one.heats)
        much = ", too much for a partition" if over else ""
        lack = f"; {spread.without:,} items of the key lack it" if spread.without else ""
        texts.append(
            f"{spread.strategy!r} puts {key} on {len(spread.units):,} of them, the hottest with "
            f"{percent(spread.share)} of it, {_units(one, spread.share)} a second{much}{lack}"
        )
        texts += [f"advice: {advice}" for advice in spread.advice]
    return texts


def _units(one: Judged, share: float) -> str:
    return " and ".join(f"{heat.units * share:,.0f} {units}" for units, heat in one.heats)


def _hottest(console: Console, found: Uniformity) -> Any:
    grid = columns(console, "  hottest", "items", "share", "bytes", "write units", "share", "")
    most = found.hottest[0].write_units
    for usage in found.hottest:
        share = usage.write_units / found.write_units
        grid.add_row(
            Text(f"  {clipped(key_text(usage.key))}"),
            f"{usage.items:,}",
            percent(usage.items / found.items),
            "-" if usage.bytes is None else size(usage.bytes),
            f"{usage.write_units:,.10g}",
            percent(share),
            bar(usage.write_units / most, console.encoding),
        )
    return grid


def to_json(one: Judged) -> dict[str, Any]:
    """Return a candidate for ``--json``; keys are in wire form."""
    found, verdict, spread = one.found, one.verdict, one.spread
    return {
        "attributes": list(found.attributes),
        "good": verdict.good,
        "reason": verdict.reason,
        "times": list(found.times),
        "items": found.items,
        "left_out": [
            {"attribute": name, "problem": problem, "items": count} for (name, problem), count in one.without.items()
        ],
        "bytes": found.bytes,
        "write_units": found.write_units,
        "read_units": found.read_units,
        "distinct": found.distinct,
        "exact": found.exact,
        "error": found.error,
        "entropy": found.entropy,
        "effective_keys": found.effective_keys,
        "evenness": found.evenness,
        "hottest": [_usage(found.attributes, usage) for usage in found.hottest],
        "writes": _heat(verdict.writes, one.shards),
        "reads": _heat(verdict.reads, one.shards),
        "shards_needed": verdict.shards,
        "shards_reason": verdict.needed.reason,
        "shards": one.shards,
        "calculated": None
        if spread is None
        else {
            "strategy": spread.strategy.to_dict(),
            "shards_used": len(spread.units),
            "hottest_share": spread.share,
            "items_without": spread.without,
            "advice": spread.advice,
        },
    }


def _usage(attributes: Sequence[str], usage: KeyUsage) -> dict[str, Any]:
    return {**usage._asdict(), "key": to_wire_item(dict(zip(attributes, usage.key, strict=True)))}


def _heat(heat: KeyHeat | None, shards: int) -> dict[str, float] | None:
    if heat is None:
        return None
    return {
        "rate": heat.rate,
        "hottest_share": heat.share,
        "hottest": heat.units,
        "limit": heat.limit,
        "a_shard": heat.units / shards,
    }


_BAR, _PANEL = 0.24, 1.1  # inches
_LONGEST = 32


def _draw(judged: Sequence[Judged], path: str) -> None:
    """Draw a panel for each candidate: units a second of its hottest keys, and what a partition serves."""
    heights = [_PANEL + _BAR * len(_bars(one)) for one in judged]
    with picture(path, sum(heights)) as figure:
        panels = figure.subplots(len(judged), squeeze=False, height_ratios=heights)
        for panel, one in zip(panels[:, 0], judged, strict=True):
            _draw_panel(panel, one)


def _bars(one: Judged) -> list[tuple[str, float]]:
    """Return the units a second of the hottest keys: of writes if the load has any."""
    found, (units, heat) = one.found, one.heats[0]
    if found.times:
        return [("hottest key at any one time", heat.units)]
    whole = found.write_units if units == "write units" else found.read_units
    used = [(one.write_units if units == "write units" else one.read_units) or 0.0 for one in found.hottest]
    labels = [clipped(key_text(usage.key), _LONGEST) for usage in found.hottest]
    return [(label, heat.rate * part / whole) for label, part in zip(labels, used, strict=True)]


def _draw_panel(panel: Any, one: Judged) -> None:
    units, heat = one.heats[0]
    bars = _bars(one)
    places = range(len(bars))
    values = [value for _, value in bars]
    most = heat.limit * (1 - HEADROOM)  # as the verdict
    panel.barh(places, values, height=0.7, color=[ORANGE if value > most else BLUE for value in values])
    panel.set_yticks(places, [label for label, _ in bars])
    panel.set_ylim(max(len(bars), 2) - 0.4, -0.6)
    panel.axvline(heat.limit, color=GREY, linewidth=1.2, linestyle="--")
    panel.annotate(
        f"a partition: {heat.limit:,}", (heat.limit, 1), (3, 2), xycoords=("data", "axes fraction"),
        textcoords="offset points", fontsize=8,
    )  # fmt: skip
    panel.set_xlim(0, 1.15 * max(heat.limit, *values))
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.set_xlabel(f"{units} a second")
    panel.set_title(f"{one.title}\n{one.verdict.reason}", pad=14)
