"""``shardkit simulate``: a table's partitions under a load, by a scenario file, in virtual time.

Exit codes: 0 all was written and read · 1 in some way not all of it · 2 wrong use · 3 stopped before its end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from shardkit.bulk.sources import open_source
from shardkit.bulk.sources.sections import SectionedSource
from shardkit.cli.figures import clipped, percent
from shardkit.cli.plotting import drawing
from shardkit.cli.reading import (
    FAILED,
    LINE_SECONDS,
    LIVE_SECONDS,
    OUTPUT,
    STOPPED,
    WRONG_USE,
    BadRecords,
    JsonOption,
    ProgressOption,
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
        kept = Kept(asked.attributes, needed=asked.keys.names, number=asked.items.number)
    with refusing(told, STOPPED, "stopped before its end"):
        bad = BadRecords() if source is None else read_all(source, kept.add, told if progress else None)
    bad.show(told)
    with refusing(told, WRONG_USE, "not simulated"):
        items = _generated(asked) if source is None else kept.items()
        with WayProgress(told if progress else None) as shown:
            outcomes = [run(asked, way, items, progress=partial(shown.update, way.name)) for way in asked.ways]
    if as_json:
        ways = [outcome.to_dict() for outcome in outcomes]
        print(json.dumps({"scenario": scenario, "items": len(items), "ways": ways, **bad.to_dict()}))
    else:
        show(out(), outcomes)
    with refusing(told, WRONG_USE, "no picture"):
        draw(outcomes)
    raise typer.Exit(0 if all(outcome.complete for outcome in outcomes) and not bad.count else FAILED)


def _parsed(path: str) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
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


class WayProgress:
    """Shows how far a way is: a bar on a terminal, else a line every ten seconds; nothing without a console."""

    def __init__(self, console: Console | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._shown = clock()
        self._opened = ExitStack()
        self._bar: Progress | None = None

    def __enter__(self) -> WayProgress:  # noqa: PYI034 - typing.Self needs Python 3.11
        if self._console is not None and self._console.is_terminal:
            bar = Progress(
                BarColumn(24), TextColumn("{task.description}"), TimeRemainingColumn(),
                console=self._console, auto_refresh=False, transient=True,
            )  # fmt: skip
            self._bar = self._opened.enter_context(bar)
            self._bar.add_task("", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def update(self, way: str, share: float) -> None:
        """Take how far a way is, and show it if the last is old enough."""
        now = self._clock()
        if self._console is None or now - self._shown < (LINE_SECONDS if self._bar is None else LIVE_SECONDS):
            return
        self._shown = now
        if self._bar is None:
            self._console.print(f"{clipped(way)}: {percent(share)}", markup=False, soft_wrap=True)
        else:
            self._bar.update(self._bar.task_ids[0], completed=share, description=clipped(way), refresh=True)
