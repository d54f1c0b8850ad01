"""What ``shardkit heat`` says of a candidate for a partition key: as lines, as JSON, and as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from shardkit.analysis.keys import Candidate, Key, KeyUsage, Uniformity, key_text
from shardkit.analysis.per_key import NOT_COUNTED, SUFFIXED, PerKey
from shardkit.analysis.shards import HEADROOM, better_for
from shardkit.analysis.verdict import KeyHeat, Verdict
from shardkit.bulk.one_shard import MANY_ITEMS, one_shard_advice
from shardkit.cli.heat_indexes import WORDS
from shardkit.cli.options import calculated_suffix
from shardkit.cli.pictures import BLUE, GREY, ORANGE, picture
from shardkit.cli.screen import bar, clipped, columns, percent, say, show_table, size, tell
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import attribute_sizes
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.units import write_units as write_units_of
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Judged:
    """A candidate, and the verdict on it.

    ``shards`` are those to assess: needed, asked for, or (``has_shards``) those that a sharded table has. Keys in
    ``at_least`` have more than was read. ``per_key`` is what to write if only a few keys are hot.
    """

    found: Uniformity
    verdict: Verdict
    without: Mapping[tuple[str, str], int]
    shards: int
    spread: Spread | None = None
    has_shards: bool = False
    at_least: frozenset[Key] = frozenset()
    per_key: PerKey | None = None

    @property
    def title(self) -> str:
        rates = " and ".join(f"{heat.rate:,.10g} {units}" for units, heat in self.heats)
        name = ",".join(self.found.attributes)
        return f"{name}: {WORDS[self.verdict.good][0]} at {rates} a second"

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


def show(console: Console, items: int, judged: Sequence[Judged]) -> None:
    say(console, f"{items:,} items")
    for one in judged:
        show_judged(console, items, one)


_TO_PASTE = ("write: ", "or as an option: ")
_CLOSE = 0.9  # of what makes a key hot


def show_judged(console: Console, items: int, one: Judged) -> None:
    line = partial(tell, console)
    found, verdict = one.found, one.verdict
    console.print()
    line(one.title, WORDS[verdict.good][1])
    line(f"  {verdict.reason}")
    for text in per_key_lines(one):
        # What is to be pasted stays whole.
        (say if text.startswith(_TO_PASTE) else tell)(console, f"  {text}")
    for (name, problem), count in one.without.items():
        line(f"  {count:,} items ({percent(count / items)}) are left out: {name} is {problem}")
    about = "" if found.exact else "about "
    line(
        f"  {about}{found.distinct:,} distinct values, as many as {found.effective_keys:,.1f} equally hot ones "
        f"(entropy {found.entropy:.2f} bits, {percent(found.evenness)} of what is possible)"
    )
    hottest = "the hottest key at any one time" if found.times else "the hottest key"
    for units, heat in one.heats:
        used, most = heat.units / heat.limit, 1 - HEADROOM
        free = f", and {HEADROOM:.0%} of it is to stay free" if _CLOSE * most < used <= 1 else ""
        if free and used <= most:
            free += f": close to the limit, because a key is hot that needs more than {heat.limit * most:,.0f}"
        line(
            f"  {hottest} takes {heat.units:,.0f} {units} a second ({percent(heat.share)}); "
            f"one partition serves {heat.limit:,}{free}"
        )
    for text in _shards(one):
        line(f"  {text}")
    show_table(console, _hottest(console, one))
    if found.error:
        line(f"  a key's figures may be too low by up to {found.error:,.10g} write units: there are too many keys")


def per_key_lines(one: Judged) -> list[str]:
    """Return what to write if only a few keys are hot; nothing otherwise."""
    found, few = one.found, one.per_key
    if few is None:
        return []
    hot = len(few.shards)
    are = "value is hot: give shards to it" if hot == 1 else "values are hot: give shards to them"
    about = "" if found.exact else "about "
    others = f"the others ({about}{found.distinct - hot:,}) keep one shard, and cheap Queries; {NOT_COUNTED}"
    texts = [f"only {hot:,} {are} alone; {others}", SUFFIXED]
    if few.better is not None and few.better.partitions is not None:
        with_less = f"with {one.verdict.needed.fits[0].partitions:,} (enough for twice its load):"
        texts += [f"{_with(few.better.partitions)}:", *_written(few.better), with_less]
    texts += _written(few)
    return [*texts, *([] if few.by else ["add --by NAME, the table's sort key, to have it filled in"])]


def _written(few: PerKey) -> list[str]:
    line, option = _TO_PASTE
    return [line + few.line, *([option + few.option] if few.by else [])]


def _with(partitions: int) -> str:
    had = f"{partitions * PARTITION_WRITE_UNITS:,} write units a second, or as much warm throughput"
    return f"with {partitions:,} partitions (a table that once had {had})"


def _shards(one: Judged) -> list[str]:
    needs, reason = one.verdict.shards, one.verdict.needed.reason
    if one.verdict.good is None:
        return []
    if one.shards == 1:
        return [f"no number of shards is enough: {reason}"] if needs is None else []
    if one.shards == needs:
        needed = "needed"
    else:
        word = "as it has" if one.has_shards else "asked for"
        needed = f"{word}, {'no number is enough' if needs is None else f'{needs:,} needed'}"
    suffix, least = f"RandomSuffix({one.shards}) or CalculatedSuffix", read_units_of(0) * one.shards
    about = f"each takes about {_units(one, 1 / one.shards)} a second; a Query takes {least:,.10g} read units at least"
    instead = "" if one.per_key is None else "for all keys, only if many will be hot or you cannot list them: "
    texts = [f"{instead}{one.shards:,} shards ({needed}), by {suffix}: {about}", reason]
    if one.per_key is None and one.found.distinct > 1 and not one.found.times:
        texts[-1] += f"; as for the other keys, {NOT_COUNTED}"
    better = better_for(one.verdict.needed) if one.shards == needs else None
    if better is not None:
        texts.insert(0, f"{instead}{better.shards:,} shards are enough {_with(better.fits[0].partitions)}")
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


_FIGURES = 66  # columns of a terminal


def _hottest(console: Console, one: Judged) -> Any:
    found = one.found
    grid = columns(console, "  hottest", "items", "share", "bytes", "write units", "share", "")
    most = found.hottest[0].write_units
    # What a narrow terminal leaves for the keys and the bars, beside the figures.
    keys = [clipped(key_text(usage.key), min(60, max(12, console.width - _FIGURES - 6))) for usage in found.hottest]
    room = min(30, console.width - _FIGURES - max(map(cell_len, keys)))
    for key, usage in zip(keys, found.hottest, strict=True):
        share = usage.write_units / found.write_units
        more = "+" if usage.key in one.at_least else ""
        grid.add_row(
            Text(f"  {key}"),
            f"{usage.items:,}{more}",
            percent(usage.items / found.items),
            "-" if usage.bytes is None else f"{size(usage.bytes)}{more}",
            f"{usage.write_units:,.10g}{more}",
            percent(share),
            bar(usage.write_units / most, console.encoding, width=room) if room > 0 else "",
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
        "unseen": found.unseen,
        "entropy": found.entropy,
        "effective_keys": found.effective_keys,
        "evenness": found.evenness,
        "hottest": [_usage(one, usage) for usage in found.hottest],
        "writes": _heat(verdict.writes, one.shards),
        "reads": _heat(verdict.reads, one.shards),
        "shards_needed": verdict.shards,
        "shards_reason": verdict.reason if verdict.good is None else verdict.needed.reason,
        "shards": one.shards,
        "per_key": None if one.per_key is None else _per_key(one.per_key),
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


def _per_key(few: PerKey) -> dict[str, Any]:
    better = few.better and {**_per_key(few.better), "partitions": few.better.partitions}
    return {"line": few.line, "strategy": few.form, **({"better": better} if few.partitions is None else {})}


def _usage(one: Judged, usage: KeyUsage) -> dict[str, Any]:
    key = to_wire_item(dict(zip(one.found.attributes, usage.key, strict=True)))
    return {**usage._asdict(), "key": key, "at_least": usage.key in one.at_least}


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


def draw_judged(judged: Sequence[Judged], path: str) -> None:
    """Draw a panel for each candidate: units a second of its hottest keys, and what a partition serves."""
    if not judged:
        raise ConfigurationError("--plot: there are no keys to draw; omit it")
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
    if max(values) < 2 * heat.limit:  # else it is at the left edge, and says nothing
        panel.axvline(most, color=GREY, linewidth=0.8, linestyle=":")
        panel.annotate(
            f"with {HEADROOM:.0%} free: {most:,.0f}", (most, 1), (-3, 2), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=8, horizontalalignment="right",
        )  # fmt: skip
    panel.annotate(
        f"a partition: {heat.limit:,}", (heat.limit, 1), (3, 2), xycoords=("data", "axes fraction"),
        textcoords="offset points", fontsize=8,
    )  # fmt: skip
    panel.set_xlim(0, 1.15 * max(heat.limit, *values))
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.set_xlabel(f"{units} a second")
    panel.set_title(f"{one.title}\n{one.verdict.reason}", pad=14)
