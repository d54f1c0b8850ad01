"""``shardkit size``: the sizes of a data file's items, what they cost, and which attributes take most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import click
from rich.text import Text

from shardkit.analysis.sample import Estimate, SegmentSample
from shardkit.analysis.sizes import NEAR_BYTES, Distribution, SizeProfile
from shardkit.cli import options
from shardkit.cli.command import FAILED, Call, Command, Outcome
from shardkit.cli.live_table import (
    LiveOptions,
    LiveTable,
    Sampled,
    SampleOptions,
    check_source,
    describe,
    estimate_to_json,
    live_outcome,
    read_sample,
    sample_to_json,
    sampling,
    show_sampled,
)
from shardkit.cli.options import read_all, text_source
from shardkit.cli.screen import bar, clipped, columns, percent, say, show_table, size
from shardkit.dynamodb.sizes import ITEM_BYTES, STORAGE_OVERHEAD, attribute_sizes
from shardkit.dynamodb.units import read_units, write_units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_OVER = (1024, 4096, NEAR_BYTES, ITEM_BYTES)
_MOST_ATTRIBUTES = 20
# By their name in --json.
_UNITS: dict[str, tuple[str, Callable[[int], float]]] = {
    "write_units": ("write units", write_units),
    "read_units": ("read units", read_units),
    "consistent_read_units": ("read units, consistent", partial(read_units, consistent=True)),
}


@click.command("size", cls=Command)
@click.argument("source", required=False)
@options.reading
@sampling
@options.as_json
@options.progress
def measure(call: Call, source: str | None, table: str | None, **reading: Any) -> Outcome:
    """Measure the items of a data file or of a live table: sizes, read and write units, costliest attributes.

    SOURCE is a file, pipe, folder, pattern, s3://bucket/prefix, or - (standard input); nothing is sent. With --table, a
    random sample of a live table is read, within --max-units.

    Exit codes: 0 every record was read, 1 some records are not items, 2 wrong use, 3 stopped before its end.
    """
    live = LiveOptions.taken(reading)
    check_source(source, table, reading, live.given)
    if source is None:
        described = describe(call.dynamodb().meta.client, table or "", live.index)
        return live_outcome(size_of_sample(described, call.stderr, **live.reading(call))())
    opened = text_source(call, source, **reading)
    profile = SizeProfile()
    bad = read_all(opened, profile.add, call)
    bad.show(call.stderr)
    with call.refusing(f"nothing to measure in {source}"):
        profile.sizes()
    return Outcome(
        lambda: {"source": source, "format": opened.format, **to_json(profile), **bad.to_dict()},
        lambda console: show(console, profile),
        FAILED if bad.count else 0,
    )


def to_json(profile: SizeProfile) -> dict[str, Any]:
    return {
        "items": profile.items,
        "bytes": profile.bytes,
        "storage_bytes": profile.storage_bytes,
        "size": _figures(profile.sizes()),
        **{name: _figures(profile.units(of)) for name, (_, of) in _UNITS.items()},
        "over": [{"bytes": edge, "items": profile.over(edge)} for edge in _OVER],
        "histogram": [{"up_to": edge, "items": count} for edge, count in profile.histogram()],
        "attributes": [one._asdict() for one in profile.attributes()],
        "other_attributes_bytes": profile.other_bytes,
        "saved_by_short_names": {
            "bytes": profile.bytes_saved_by_short_names,
            **{name: profile.units_saved_by_short_names(of) for name, (_, of) in _UNITS.items()},
        },
    }


def _figures(found: Distribution) -> dict[str, float]:
    percentiles = {f"p{percent}": figure for percent, figure in found.percentiles.items()}
    return {"min": found.least, **percentiles, "max": found.most, "mean": found.mean, "total": found.total}


def show(console: Console, profile: SizeProfile, sample: SegmentSample | None = None) -> None:
    """Print the figures of all items, or of those of a sample."""
    sizes = profile.sizes()
    console.print(
        f"{'' if sample is None else 'of those that were read: '}{profile.items:,} items, {size(profile.bytes)}; "
        f"{size(profile.storage_bytes)} of storage, which adds 100 bytes an item"
    )
    grid = columns(console, "an item", "min", "50%", "90%", "99%", "max", "mean", "all items")
    for label, found in [("bytes", sizes), *((text, profile.units(of)) for text, of in _UNITS.values())]:
        figures = (found.least, *found.percentiles.values(), found.most)
        grid.add_row(label, *(f"{figure:,.10g}" for figure in figures), f"{found.mean:,.2f}", f"{found.total:,.10g}")
    show_table(console, grid)
    console.print()
    console.print(
        ", ".join(
            f"{profile.over(edge):,} ({percent(profile.over(edge) / profile.items)}) over {_edge(edge)}"
            for edge in _OVER
        )
        + ", which DynamoDB refuses"
    )
    show_table(console, _histogram(console, profile))
    show_table(console, _attributes(console, profile, sample))
    saved = profile.bytes_saved_by_short_names
    console.print()
    console.print(
        f"attribute names of at most 2 bytes would save {size(saved)} ({percent(saved / (profile.bytes or 1))}), "
        f"{profile.units_saved_by_short_names(write_units):,.10g} write units and "
        f"{profile.units_saved_by_short_names(read_units):,.10g} read units"
    )


def _edge(edge: int) -> str:
    return f"{edge:,} bytes" if edge % 1024 else f"{edge // 1024:,} KB"


def _histogram(console: Console, profile: SizeProfile) -> Table:
    counts = profile.histogram()
    most = max(count for _, count in counts)
    grid = columns(console, "size", "items", "share", "")
    for edge, count in counts:
        drawn = bar(count / most, console.encoding)
        grid.add_row(f"up to {_edge(edge)}", f"{count:,}", percent(count / profile.items), drawn)
    return grid


def _attributes(console: Console, profile: SizeProfile, sample: SegmentSample | None) -> Table:
    error = [] if sample is None else ["95% interval"]
    grid = columns(console, "attribute", "bytes", "share", *error, "its name", "items", "mean")
    attributes = profile.attributes()
    for one in attributes[:_MOST_ATTRIBUTES]:
        between = [] if sample is None else [_shares(sample.ratio(_figure_of(one.name), "bytes"))]
        grid.add_row(
            Text(clipped(one.name)),
            f"{one.bytes:,}",
            percent(one.bytes / (profile.bytes or 1)),
            *between,
            f"{one.name_bytes:,}",
            f"{one.items:,}",
            f"{one.bytes / one.items:,.1f}",
        )
    others = sum(one.bytes for one in attributes[_MOST_ATTRIBUTES:]) + profile.other_bytes
    if others:
        grid.add_row("all others", f"{others:,}", percent(others / profile.bytes))
    return grid


def _shares(share: Estimate) -> str:
    return "unknown" if math.isinf(share.high) else f"{share.low:.2%} to {min(1.0, share.high):.2%}"


# -- a live table

_FIGURES = {
    "items": "items",
    "bytes": "bytes",
    "storage_bytes": "storage",
    "write_units": "write units to write all",
    "read_units": "read units to get each",
    "keys": "partition keys",
}


def _figure_of(attribute: str) -> str:
    return f"attribute {attribute}"


def size_of_sample(table: LiveTable, stderr: Console, **how: Unpack[SampleOptions]) -> Callable[[], LiveSizes]:
    """Plan a sample and say what it will take; return the function that reads and measures it."""
    profile = SizeProfile()

    def take(item: Mapping[str, Any]) -> Mapping[str, float]:
        bytes_ = profile.add(item)
        return {
            "bytes": bytes_,
            "storage_bytes": bytes_ + STORAGE_OVERHEAD,
            "write_units": write_units(bytes_),
            "read_units": read_units(bytes_),
            **{_figure_of(name): part for name, part in attribute_sizes(item).items()},
        }

    read = read_sample(table, take, stderr, **how)
    return lambda: LiveSizes(read(), profile)


@dataclass(frozen=True)
class LiveSizes:
    """A sample, and the sizes of its items."""

    found: Sampled
    profile: SizeProfile

    def show(self, console: Console) -> None:
        show_sampled(console, self.found, _FIGURES)
        if self.profile.items:
            console.print()
            show(console, self.profile, self.found.sample)
        else:
            say(console, "no item was read: there is nothing to measure")

    def to_json(self) -> dict[str, Any]:
        measured = to_json(self.profile) if self.profile.items else {}
        sample = self.found.sample
        shares = [
            {"name": one.name, "share": estimate_to_json(sample.ratio(_figure_of(one.name), "bytes"))}
            for one in self.profile.attributes()
        ]
        return {**sample_to_json(self.found, _FIGURES), "read": measured, "attribute_shares": shares}
