"""Measuring side by side, and the figures that come of it."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Figure", "Timing", "alternate", "forget_peak", "over", "peak", "percentile"]

ROOT = Path(__file__).resolve().parent.parent
"""The folder of the project."""
Clock = Callable[[], float]
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured figure beside its target: ``value`` is to be at most ``target`` (None: told, not judged).

    Args:
        bench: The bench that measured it.
        name: What was measured.
        value: The figure, in ``unit`` (``×``: a ratio, without unit); None: not measured, ``note`` says why.
        unit: Its unit.
        target: What it is to be at the most.
        spread: The lowest and the highest of all runs; None where every run gives the same.
        note: What it was made of.
    """

    bench: str
    name: str
    value: float | None
    unit: str = "×"
    target: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is met, as far as the figure is shown."""
        return self.target is None or self.value is None or round(self.value, 2) <= round(self.target, 2)


@dataclass(frozen=True)
class Timing:
    """The seconds of each run of one way, in the order of the rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The seconds of the run in the middle."""
        return statistics.median(self.seconds)

    def milliseconds(self) -> str:
        """Say the median and the spread."""
        low, high = min(self.seconds) * 1000, max(self.seconds) * 1000
        return f"{self.median * 1000:,.1f} ms ({low:,.1f} to {high:,.1f})"


def alternate(
    ways: Mapping[str, Callable[[], Any]], *, runs: int, clock: Clock = time.process_time, warm: bool = False
) -> dict[str, Timing]:
    """Run each way once a round, so that whatever else the machine does falls on all of them alike.

    Args:
        ways: What to run, by name.
        runs: How many rounds are measured.
        clock: ``time.process_time`` for the CPU of all threads, ``time.perf_counter`` for wall time; seconds.
        warm: Whether all were run before; if not, each is run once, unmeasured.

    Returns:
        The timings by name.
    """
    for way in () if warm else ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()  # what exists before the runs is not looked at again: each collection is for what a run has left
    try:
        for _ in range(runs):
            for name, way in ways.items():
                gc.collect()
                began = clock()
                way()
                seconds[name].append(clock() - began)
    finally:
        if not frozen:  # a caller that froze objects before (pytest does) keeps them frozen
            gc.unfreeze()
    return {name: Timing(tuple(measured)) for name, measured in seconds.items()}


def over(timing: Timing, other: Timing) -> tuple[float, tuple[float, float]]:
    """Give the ratio of two ways: the median of the rounds' own ratios, and the lowest and highest of them."""
    ratios = [mine / others for mine, others in zip(timing.seconds, other.seconds, strict=True)]
    return statistics.median(ratios), (min(ratios), max(ratios))


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return the time within which this share of the reads ended."""
    return sorted(seconds)[ceil(share * len(seconds)) - 1]


def forget_peak() -> None:
    """Let the peak of this process's resident memory be what is used now, where that can be done."""
    if _STATUS.exists():
        (_STATUS.parent / "clear_refs").write_text("5", encoding="ascii")  # proc(5)


def peak() -> int:
    """Give the peak of this process's resident memory, in bytes."""
    if _STATUS.exists():
        # Linux's ru_maxrss would not do: there a process starts with the peak of the one that started it.
        return int(_STATUS.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
