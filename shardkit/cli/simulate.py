"""``shardkit simulate``: a table's partitions under a load, by a scenario file, in virtual time.

Exit codes: 0 all was written and read · 1 in some way not all of it · 2 wrong use · 3 stopped before its end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shardkit.bulk.sources.opening import open_source
from shardkit.bulk.sources.sections import SectionedSource
from shardkit.cli.figures import clipped, percent
from shardkit.cli.plotting import drawing
from shardkit.cli.progress import CommandProgress
from shardkit.cli.reading import (
    FAILED,
    OUTPUT,
    STOPPED,
    WRONG_USE,
    BadRecords,
    JsonOption,
    ProgressOption,
    check_attributes,
    out,
    read_all,
    refusing,
)
from shardkit.cli.simulate_show import show
from shardkit.errors import ConfigurationError
from shardkit.partitions.scenarios.items import Items, Kept, generated
from shardkit.partitions.scenarios.outcome import Outcome
from shardkit.partitions.scenarios.reading import read_scenario
from shardkit.partitions.scenarios.running import run
from shardkit.partitions.scenarios.scenario import Scenario, Source
from shardkit.partitions.simulator import draws

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["simulate"]

_MOST_BYTES = 1_000_000


def simulate(
    scenario: Annotated[str, typer.Argument(help="A scenario: a TOML file (docs/simulate.md).")],
    plot: Annotated[
        str | None,
        typer.Option(rich_help_panel=OUTPUT, help="Draw the heat of each way's partitions: heat.svg, heat.png."),
    ] = None,
    as_json: JsonOption = False,
    progress: ProgressOption = True,
) -> None:
    """Simulate a table's partitions under a load, in virtual time. Nothing is sent.

    Exit codes: 0 all was written and read, 1 in some way not all of it, 2 wrong use, 3 stopped before its end.
    """
    told = Console(stderr=True, highlight=False)
    with refusing(told, WRONG_USE, "not begun"):
        asked = read_scenario(_parsed(scenario), scenario)
        draw = drawing(plot, _plot)
        source = None if asked.items.source is None else _opened(scenario, asked.items.source)
        if source is not None:
            check_attributes("[table]", asked.keys.names, source)
            others = sorted(asked.attributes.difference(asked.keys.names))
            check_attributes("[sharding], [table.indexes]", others, source, rare=True)
        kept = Kept(asked.attributes, needed=asked.keys.names, number=asked.items.number)
    with refusing(told, STOPPED, "stopped before its end"):
        bad = BadRecords() if source is None else read_all(source, kept.add, told if progress else None)
    bad.show(told)
    with refusing(told, WRONG_USE, "not simulated"):
        items = _generated(asked) if source is None else kept.items()
        with CommandProgress(told if progress else None, total=1.0) as shown:
            outcomes = [run(asked, way, items, progress=partial(_update, shown, way.name)) for way in asked.ways]
    if as_json:
        ways = [outcome.to_dict() for outcome in outcomes]
        print(json.dumps({"scenario": scenario, "items": len(items), "ways": ways, **bad.to_dict()}))
    else:
        show(out(), outcomes)
    with refusing(told, WRONG_USE, "no picture"):
        draw(outcomes)
    raise typer.Exit(0 if all(outcome.complete for outcome in outcomes) and not bad.count else FAILED)


def _parsed(path: str) -> dict[str, Any]:
    file = Path(path)
    if file.exists() and not (file.is_file() and file.stat().st_size <= _MOST_BYTES):
        raise ConfigurationError(f"scenario: {path} is no file of at most {_MOST_BYTES:,} bytes; give a TOML file")
    try:
        parsed: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (RecursionError, ValueError) as error:  # a ValueError for integers of thousands of digits too
        raise ConfigurationError(f"scenario: {path} is no TOML: {error}") from error
    return parsed


def _opened(scenario: str, source: Source) -> SectionedSource:
    """Open the data file; a path that is not absolute is looked for beside the scenario."""
    where = source.path if "://" in source.path else str(Path(scenario).parent / source.path)
    return open_source(where, **source.options)


def _generated(asked: Scenario) -> Items:
    return generated(
        asked.items.attributes,
        partition_key=asked.keys.partition_key,
        sort_key=next(iter(asked.keys.sort), None),
        number=asked.items.number,
        size=asked.items.size,
        draw=draws(f"items {asked.seed}"),
    )


def _plot() -> Callable[[Sequence[Outcome], str], None]:
    from shardkit.cli.simulate_plot import plot

    return plot


def _update(shown: CommandProgress, way: str, share: float) -> None:
    """Show how far a way is, if the last is old enough."""
    if shown.due:
        shown.show(share, clipped(way), f": {percent(share)}")
