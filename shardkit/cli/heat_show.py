"""What ``shardkit heat`` shows of each candidate: the verdict, the hottest keys, and what shards would make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from shardkit.analysis.keys import Key, KeyUsage, Uniformity
from shardkit.analysis.verdict import KeyHeat, Verdict
from shardkit.cli.figures import bar, clipped, columns, percent, show_table, size
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.units import read_units
from shardkit.strategies import CalculatedSuffix

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Judged", "Spread", "key_text", "show", "to_json"]


@dataclass(frozen=True)
class Spread:
    """How a CalculatedSuffix spreads the items of the hottest key.

    Attributes:
        strategy: the suffix.
        used: how many of its shards have items.
        share: the hottest shard's share of the key's write units.
        without: items of the key that lack what the shard is calculated from.
        advice: what would spread them better.
    """

    strategy: CalculatedSuffix
    used: int
    share: float
    without: int
    advice: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """A candidate: what was found, the verdict, and the number of shards that is looked at."""

    found: Uniformity
    verdict: Verdict
    without: Mapping[tuple[str, str], int]
    shards: int
    spread: Spread | None = None

    @property
    def name(self) -> str:
        """The candidate as it was given."""
        return ",".join(self.found.attributes)

    @property
    def title(self) -> str:
        """The verdict, and the load that it is for."""
        rates = " and ".join(f"{heat.rate:,.10g} {units}" for units, heat in self.heats)
        return f"{self.name}: {'good' if self.verdict.good else 'bad'} at {rates} a second"

    @property
    def heats(self) -> list[tuple[str, KeyHeat]]:
        """The loads that it was judged by, with the name of their units."""
        both = (("write units", self.verdict.writes), ("read units", self.verdict.reads))
        return [(units, heat) for units, heat in both if heat is not None]


def key_text(key: Key) -> str:
    """Write a key as it would be stored as text: parts of a composite one with a # between."""
    return "#".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)


def show(console: Console, items: int, judged: Sequence[Judged]) -> None:
    """Print what was found of each candidate."""

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

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
        hottest = "the hottest of a time" if found.times else "the hottest"
        for units, heat in one.heats:
            line(
                f"  {hottest} takes {heat.units:,.0f} {units} a second ({percent(heat.share)}), "
                f"a partition serves {heat.limit:,}"
            )
        for text in _shards(one):
            line(f"  {text}")
        show_table(console, _hottest(console, found))
        if not found.exact:
            line(f"  figures of a key may be too low by up to {found.error:,.10g} write units: there are too many keys")


def _shards(one: Judged) -> list[str]:
    needs, reason = one.verdict.shards, one.verdict.needed.reason
    if one.shards == 1:
        return [f"no number of shards is enough: {reason}"] if needs is None else []
    if one.shards == needs:
        needed = "needed"
    else:
        needed = f"asked for, {'no number is enough' if needs is None else f'{needs:,} needed'}"
    suffix, least = f"RandomSuffix({one.shards}) or CalculatedSuffix", read_units(0) * one.shards
    about = f"each takes about {_units(one, 1 / one.shards)} a second; a Query takes {least:,.10g} read units at least"
    texts = [f"{one.shards:,} shards ({needed}), by {suffix}: {about}", reason]
    if one.spread is not None:
        spread, key = one.spread, clipped(key_text(one.found.hottest[0].key))
        over = any(heat.units * spread.share > heat.limit for _, heat in one.heats)
        lack = f"; {spread.without:,} items of the key lack it" if spread.without else ""
        texts.append(
            f"{spread.strategy!r} puts {key} on {spread.used:,} of them, the hottest with {percent(spread.share)} "
            f"of it, {_units(one, spread.share)} a second{', too much for a partition' if over else ''}{lack}"
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
    """Give a candidate for machines; keys are in wire form."""
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
            "shards_used": spread.used,
            "hottest_share": spread.share,
            "items_without": spread.without,
            "advice": list(spread.advice),
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
