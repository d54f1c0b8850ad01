"""How CPU and memory grow with shards and items: each point measured in a process of its own, and drawn."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boto3.dynamodb.conditions import Key

from benchmarks import ways
from benchmarks.measure import Figure, forget_peak, peak
from benchmarks.stub import stub

__all__ = ["COLOURS", "GREY", "Point", "draw", "growth", "measured", "style"]

SHARDS = (1, 10, 100, 1000)
ITEMS = (10, 100, 1000, 10_000, 100_000, 1_000_000)
CPU_SECONDS = 0.5
"""Small reads are repeated for so long."""
ROOT = Path(__file__).resolve().parent.parent
# Grey and these four can be read on white and on black.
COLOURS = ("#3b82c4", "#d9822b", "#2f9e6e", "#b15fc9")
GREY = "#808080"


@dataclass(frozen=True)
class Point:
    """One read of ``items`` from ``shards`` with ``query_items``: CPU an item, and what it added to the memory."""

    shards: int
    items: int
    microseconds: float
    megabytes: float


def growth(*, short: bool, points: list[Point] | None = None) -> Iterator[Figure]:
    """CPU an item and peak memory, of ``query_items`` drained item by item; ``points`` takes what is measured."""
    shards, items = ((100,), (10_000,)) if short else (SHARDS, ITEMS)
    for number in shards:
        for held in items:
            point = _child(number, held)
            if points is not None:
                points.append(point)
            yield Figure(
                bench="growth",
                name=f"{_shards(number)}, {held:,} items: CPU an item",
                value=point.microseconds,
                unit="µs",
                note=f"peak memory +{point.megabytes:,.1f} MB",
            )


def _shards(number: int) -> str:
    return f"{number:,} shard{'s' * (number > 1)}"


def _child(shards: int, items: int) -> Point:
    with stub(shards=shards, items=items) as endpoint:
        done = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-m", "benchmarks.growth", endpoint, str(shards), str(items)],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        )
    return Point(**json.loads(done.stdout))


def measured(endpoint: str, shards: int, items: int) -> Point:
    """Measure a point in this process, which has read nothing before.

    The memory is what one read of all items adds to the peak of the process's resident memory, after a merged read of
    an empty day has made the threads and their connections. tracemalloc would see Python's own allocations only, and
    slow the CPU that is measured.
    """
    with ways.sharded(endpoint, shards) as table:
        list(table.query_items(KeyConditionExpression=Key("Date").eq("no such day")))
        forget_peak()
        before = peak()
        began = time.process_time()
        found = sum(1 for _ in table.query_items(KeyConditionExpression=ways.CONDITION))
        if found != items:
            raise RuntimeError(f"{found} items were read of {items}")
        after, reads = peak(), 1
        while (seconds := time.process_time() - began) < CPU_SECONDS:
            for _ in table.query_items(KeyConditionExpression=ways.CONDITION):
                pass
            reads += 1
    return Point(shards, items, seconds / reads / items * 1e6, (after - before) / 1e6)


def style() -> dict[str, Any]:
    """Give the style of every picture: text stays text, and the same points make the same picture."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "shardkit",
        "font.family": "sans-serif",
        **{f"{part}.color": GREY for part in ("text", "xtick", "ytick")},
        "axes.edgecolor": GREY,
        "axes.labelcolor": GREY,
    }


def draw(points: Sequence[Point], picture: Path) -> None:
    """Draw the points as an SVG without background, readable on light and dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with plt.rc_context(style()):
        figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
        _lines(axes[0], points, "microseconds", "CPU an item (µs)")
        _lines(axes[1], points, "megabytes", "memory added (MB)")
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


def _lines(axes: Any, points: Sequence[Point], value: str, label: str) -> None:
    for colour, shards in zip(COLOURS, SHARDS, strict=True):
        line = [(point.items, max(getattr(point, value), 0.1)) for point in points if point.shards == shards]
        if line:
            axes.plot(*zip(*line, strict=True), "o-", color=colour, label=_shards(shards))
    axes.set(xscale="log", yscale="log", xlabel="items read", ylabel=label)
    axes.grid(color=GREY, alpha=0.3)
    axes.legend(frameon=False)


if __name__ == "__main__":
    _, given, *numbers = sys.argv
    print(json.dumps(asdict(measured(given, *map(int, numbers)))))
