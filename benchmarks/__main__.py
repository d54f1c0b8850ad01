"""``python -m benchmarks``: everything, or the benches that are named."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
from click.exceptions import BadParameter, Exit
from rich.console import Console

from benchmarks import history, report, simulate
from benchmarks.bulk import bulk
from benchmarks.cache import cache
from benchmarks.direct import direct
from benchmarks.growth import draw as draw_growth
from benchmarks.growth import growth
from benchmarks.heat_maps import draw_runs
from benchmarks.hedge import hedge
from benchmarks.imports import imports
from benchmarks.install import install
from benchmarks.measure import Figure
from benchmarks.meter import meter
from benchmarks.pictures import DOCS
from benchmarks.reads import latency, reads
from benchmarks.service import service
from benchmarks.single import single
from benchmarks.spark import draw as draw_tasks
from benchmarks.spark import spark
from benchmarks.staging import draw as draw_orders
from benchmarks.staging import staging
from benchmarks.units import Case, figures, units
from benchmarks.window import window
from benchmarks.workers import workers
from tests.support import engines

__all__ = ["MEASURES", "Bench", "main"]

PAGE = DOCS / "reference" / "figures.md"


class Bench(StrEnum):
    """The benches, in the order in which they run."""

    reads = "reads"
    latency = "latency"
    hedge = "hedge"
    service = "service"
    single = "single"
    direct = "direct"
    install = "install"
    meter = "meter"
    cache = "cache"
    bulk = "bulk"
    window = "window"
    workers = "workers"
    units = "units"
    growth = "growth"
    simulate = "simulate"
    staging = "staging"
    spark = "spark"
    imports = "imports"


_TITLES = {
    Bench.reads: "A merged read: CPU",
    Bench.latency: "A merged read under latency: wall time",
    Bench.hedge: "Hedged reads",
    Bench.service: "A service: threads and asyncio",
    Bench.single: "Single items: CPU",
    Bench.direct: "Past the client: CPU",
    Bench.install: "An installed client: CPU",
    Bench.meter: "A metered call: CPU",
    Bench.cache: "Popular items from memory",
    Bench.bulk: "Bulk loads",
    Bench.window: "Bulk loads: the window",
    Bench.workers: "Bulk loads: the workers",
    Bench.units: "Read units",
    Bench.growth: "Growth",
    Bench.simulate: "Simulated loads",
    Bench.staging: "Staged imports",
    Bench.spark: "Spark",
    Bench.imports: "Importing: CPU",
}
MEASURES = {
    Bench.reads: reads,
    Bench.latency: latency,
    Bench.hedge: hedge,
    Bench.service: service,
    Bench.single: single,
    Bench.direct: direct,
    Bench.install: install,
    Bench.meter: meter,
    Bench.cache: cache,
    Bench.bulk: bulk,
    Bench.window: window,
    Bench.workers: workers,
    Bench.imports: imports,
}
DRAWN: dict[Bench, tuple[Callable[..., Iterable[Figure]], Callable[[Sequence[Any]], None]]] = {
    Bench.growth: (growth, draw_growth),
    Bench.staging: (staging, draw_orders),
    Bench.spark: (spark, draw_tasks),
}
"""Benches whose points are drawn."""


@dataclass
class _Measured:
    figures: list[Figure] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    points: dict[Bench, list[Any]] = field(default_factory=dict)
    runs: list[simulate.Run] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def take(self, bench: Bench, *, short: bool) -> report.Section:
        """Run a bench and give its table."""
        if bench is Bench.units:
            self.cases += units(short=short)
            measured = list(figures(self.cases))
            section = report.section_of_units(_TITLES[bench], self.cases, measured)
        elif bench is Bench.simulate:
            self.runs += simulate.runs(short=short)
            measured = list(simulate.figures(self.runs, short=short))
            section = simulate.section(_TITLES[bench], self.runs)
        else:
            if bench in DRAWN:
                measured = list(DRAWN[bench][0](short=short, points=self.points.setdefault(bench, [])))
            else:
                measured = list(MEASURES[bench](short=short))
            section = report.section_of(_TITLES[bench], measured)
        self.figures += measured
        if bench is Bench.service:  # in an environment of its own
            self.texts[bench.value] = f"{section.markdown()}\n\n{report.machine()}"
        elif bench not in {Bench.growth, Bench.simulate}:  # whose figures are drawn, or have a page of their own
            self.texts |= {"machine": report.machine(), bench.value: section.markdown()}
        return section

    def write_docs(self) -> None:
        """Put tables and plots into their pages."""
        report.write_docs(PAGE, self.texts)
        for bench, points in self.points.items():
            DRAWN[bench][1](points)
        if self.runs:
            table = simulate.section(_TITLES[Bench.simulate], self.runs).markdown()
            report.write_docs(PAGE, {"simulate": f"{table}\n\n{report.machine()}"})
            draw_runs(self.runs)


@click.command()
@click.argument("benches", nargs=-1, type=click.Choice([*Bench]))
@click.option("--short", is_flag=True, help="Fewer runs; ends with 1 where a figure is twice as bad as its target.")
@click.option("--json", type=click.Path(path_type=Path), help="Write every figure to this file.")
@click.option("--write-docs", is_flag=True, help="Put the tables and plots into docs/, and keep the figures.")
def main(benches: tuple[Bench, ...], *, short: bool, json: Path | None, write_docs: bool) -> None:
    """Measure what shardkit costs, beside the best that one can do without it. BENCHES: only these; all if none."""
    if short and write_docs:
        raise BadParameter("--write-docs needs the whole measurement: leave --short out")
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(report.machine(), highlight=False)
    measured = _Measured()
    for bench in benches or list(Bench):
        began = time.monotonic()
        try:
            section = measured.take(bench, short=short)
        except engines.EngineUnavailableError as error:
            if os.environ.get("SHARDKIT_REQUIRE_ENGINES"):
                raise
            console.print(f"[bold]{_TITLES[bench]}: not measured.[/] {error}")
            continue
        report.show(console, section)
        console.print(f"[dim]{time.monotonic() - began:.0f} s[/]\n")
    judged = [figure for figure in measured.figures if figure.target is not None and figure.value is not None]
    console.print(f"{sum(figure.met for figure in judged)} of {len(judged)} targets met.")
    for slide in history.slides(judged, history.HISTORY):
        console.print(f"[bold]worse than before:[/] {slide}")
    if json is not None:
        report.write_json(json, measured.figures, measured.cases, measured.points.get(Bench.growth, []))
    if write_docs:
        measured.write_docs()
        history.keep(judged, report.machine(), history.HISTORY)
    failed = list(history.failures(judged, history.HISTORY)) if short else []
    for failure in failed:
        console.print(f"[bold red]twice its target, and twice what is usual:[/] {failure}")
    if failed:
        raise Exit(1)


if __name__ == "__main__":
    main()
