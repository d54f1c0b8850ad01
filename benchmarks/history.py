"""Judged figures, kept by date: one line of ``history.jsonl`` for each measurement, so that a slide is seen."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure

__all__ = ["HISTORY", "failures", "keep", "slides"]

HISTORY = Path(__file__).with_name("history.jsonl")
_LAST = 5
_SLIDE = 1.25
"""Ratios of the same code differ by up to a quarter between machines and days."""
_SMALL = 0.05
"""Of the target: a figure far below its target may double, and nobody minds."""


def keep(figures: Iterable[Figure], machine: str, file: Path) -> None:
    """Add a line with the figures that have a target."""
    judged = {_name(figure): round(figure.value, 3) for figure in _judged(figures)}
    if not judged:
        return
    line = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine, "figures": judged}
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def slides(figures: Iterable[Figure], file: Path) -> Iterator[str]:
    """Name each figure that is worse than the median of the last times it was kept: by a quarter, and visibly."""
    for figure, before in _with_kept(figures, file):
        usual = statistics.median(before) if before else figure.value
        if figure.value > max(_SLIDE * usual, usual + _SMALL * figure.target):
            yield f"{_name(figure)}: {figure.value:.2f}, before {usual:.2f} (median of {len(before)})"


def failures(figures: Iterable[Figure], file: Path) -> Iterator[str]:
    """Name each figure of a short run that is more than twice its target, and than it usually is.

    A target that is missed on every machine would otherwise fail one short run in many, by chance.
    """
    for figure, before in _with_kept(figures, file):
        usual = statistics.median(before) if before else figure.target
        if figure.value > 2 * max(figure.target, usual):
            yield f"{_name(figure)}: {figure.value:.2f}, target {figure.target:.2f}, usually {usual:.2f}"


def _with_kept(figures: Iterable[Figure], file: Path) -> Iterator[tuple[Any, list[float]]]:
    kept: dict[str, list[float]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        told: dict[str, Any] = json.loads(line)
        for name, value in told["figures"].items():
            kept.setdefault(name, []).append(value)
    for figure in _judged(figures):
        yield figure, kept.get(_name(figure), [])[-_LAST:]


def _name(figure: Figure) -> str:
    return f"{figure.bench}: {figure.name}"


def _judged(figures: Iterable[Figure]) -> Iterator[Any]:
    return (figure for figure in figures if figure.target is not None and figure.value is not None)
