"""How CPU and memory grow with shards and items: each point measured in a process of its own, and drawn."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from boto3.dynamodb.conditions import Key

from benchmarks import ways
from benchmarks.measure import ROOT, Figure, forget_peak, peak
from benchmarks.stub import stub

__all__ = ["Point", "draw", "growth", "measured"]

SHARDS = (1, 10, 100, 1000)
ITEMS = (10, 100, 1000, 10_000, 100_000, 1_000_000)
CPU_SECONDS = 0.5
"""Small reads are repeated for so long."""
_MANY = 1000


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


def draw(points: Sequence[Point]) -> None:
    """Draw the points into the documentation."""
    from benchmarks.pictures import draw_both  # not in the processes that measure

    many = [point.microseconds for point in points if point.items >= _MANY * point.shards]
    most = max(point.megabytes for point in points)
    titles = (
        f"{min(many):,.0f} to {max(many):,.0f} µs an item, from {_MANY:,} items a shard on",
        f"at most {most:,.0f} MB",
    )

    def drawn(figure: Any) -> None:
        cpu, memory = figure.subplots(1, 2)
        _lines(cpu, points, "microseconds", "CPU of an item (µs)", titles[0])
        _lines(memory, points, "megabytes", "memory added (MB)", titles[1])
        figure.suptitle("query_items: the cost of an item levels off, and memory stops growing", x=0.01, ha="left")

    draw_both("growth", 4, drawn, width=10)


def _lines(axes: Any, points: Sequence[Point], value: str, label: str, title: str) -> None:
    from shardkit.cli.pictures import COLOURS

    for colour, shards in zip(COLOURS, SHARDS, strict=True):
        line = [(point.items, max(getattr(point, value), 0.1)) for point in points if point.shards == shards]
        if line:
            axes.plot(*zip(*line, strict=True), "o-", color=colour, label=_shards(shards))
    axes.set(xscale="log", yscale="log", xlabel="items read", ylabel=label, title=title)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.grid(visible=True)
    axes.legend()


if __name__ == "__main__":
    _, given, *numbers = sys.argv
    print(json.dumps(asdict(measured(given, *map(int, numbers)))))
