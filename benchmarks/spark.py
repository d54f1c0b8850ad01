"""What order costs a job of Spark: its tasks as load machines in virtual time, each over the rows that Spark gives it.

Every task is a bulk load's own machine with a window over its own rows; together they write to one table. Windows,
keys and Spark's partitions of the source are all a fiftieth of what a job has, so that a run takes seconds: the window
is 1,000 rows for the default 50,000, a day has 10,000 orders for 500,000, and a partition of the source is 10,000
rows for 500,000 (128 MB of 256 bytes).

Rows reach the tasks in three ways:

- mixed, as ``shardkit.spark.write`` does: the task by a hash of the primary key, the order by another one;
- ``repartition(n)``: Spark deals out the rows of each partition of the source, which it first sorts by a hash of the
  row (``spark.sql.execution.sortBeforeRepartition``), so all tasks have rows of the same partition of the source at a
  time. Executors that fetch from one another in random order mix more than that;
- by partition key: the task by a hash of the partition key, in the order of the source.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from random import Random
from shutil import which
from typing import Any

from benchmarks.measure import ROOT, Figure
from benchmarks.sorted_orders import SEED, WRITE_UNITS, SortedOrders, ceiling, key, mixed, partitions
from shardkit.core.hashing import stable_hash
from shardkit.partitions import SimulatedTable, Simulator

__all__ = ["WAYS", "Tasks", "draw", "effective_keys", "rows_of", "simulated", "spark"]

DAYS = SortedOrders(50, 10_000, 10)
SHORT = SortedOrders(5, 10_000, 10)
KEPT_SECONDS = 1
"""What partitions begin with, of the units that they serve in a second."""
ROWS, SHORT_ROWS = 1_000_000, 50_000
CPU = 1.2
WINDOW = 1_000
SOURCE_PARTITION = 10_000
TASKS = (1, 2, 4, 8, 16, 32)
COUNTED, COUNTED_TASKS = SortedOrders(100, 2_000, 1), 8
"""The source in which keys are counted."""

MIXED, REPARTITIONED, BY_KEY = WAYS = ("mixed", "repartition(n)", "by partition key")
DESCRIPTION = {
    "TableName": "Orders",
    "KeySchema": [
        {"AttributeName": "Key", "KeyType": "HASH"},
        {"AttributeName": "OrderId", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Key", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}


@dataclass(frozen=True)
class Tasks:
    """The share of the partitions' throughput that so many tasks use, in %, and the items that they sent again."""

    way: str
    tasks: int
    percent: float
    again: float


def rows_of(way: str, rows: SortedOrders, tasks: int) -> list[Sequence[int]]:
    """Return the places of each task's rows, in the order in which it has them."""
    dealt: list[list[int]] = [[] for _ in range(tasks)]
    draw = Random(SEED)
    if way == MIXED:
        for place in mixed(rows.items):
            dealt[draw.randrange(tasks)].append(place)
    elif way == REPARTITIONED:
        for start in range(0, rows.items, SOURCE_PARTITION):
            shuffled = list(range(start, min(start + SOURCE_PARTITION, rows.items)))
            draw.shuffle(shuffled)
            for number, place in enumerate(shuffled):
                dealt[number % tasks].append(place)
    else:
        for number in range(rows.keys):
            mine = dealt[stable_hash(key(number)) % tasks]
            mine += range(number * rows.orders, (number + 1) * rows.orders)
    return list(dealt)


def effective_keys(way: str, rows: SortedOrders, tasks: int) -> float:
    """Return with how many keys in equal parts the windows of all tasks together are as mixed as they are."""
    dealt = rows_of(way, rows, tasks)
    found = []
    for start in range(0, rows.items // tasks, WINDOW):
        keys = Counter(place // rows.orders for task in dealt for place in task[start : start + WINDOW])
        found.append(keys.total() ** 2 / sum(count**2 for count in keys.values()))
    return sum(found) / len(found)


def simulated(way: str, rows: SortedOrders, tasks: int) -> Tasks:
    """Run the tasks side by side in virtual time, until the last of them has ended."""
    simulator = Simulator(SimulatedTable(DESCRIPTION, partitions(), keeps_items=False), seed=SEED)
    dealt = rows_of(way, rows, tasks)
    loads = [simulator.loading(map(rows.write, places), window=WINDOW) for places in dealt]
    reports = simulator.run_all(loads)
    written = sum(report.written for report in reports)
    if written != rows.items:
        raise RuntimeError(f"{way}: {written:,} rows were written of {rows.items:,}")
    seconds = simulator.now + KEPT_SECONDS
    again = sum(report.retried for report in reports) / written
    return Tasks(way, tasks, 100 * written / (WRITE_UNITS * seconds), again)


def spark(*, short: bool, points: list[Tasks] | None = None) -> Iterator[Figure]:
    """The share of 20 partitions' throughput that Spark's tasks use; ``points`` takes the shares."""
    figure = partial(Figure, bench="spark")
    for way in WAYS:
        yield figure(
            name=f"{way}, {COUNTED_TASKS} tasks: effective keys in the windows, of {COUNTED.keys}",
            value=effective_keys(way, COUNTED, COUNTED_TASKS),
            unit="",
        )
    yield from _cpu(SHORT_ROWS if short else ROWS)
    rows, numbers = (SHORT, TASKS[:4:3]) if short else (DAYS, TASKS)
    most = ceiling(rows.partitions())
    for way in WAYS:
        for tasks in numbers:
            point = simulated(way, rows, tasks)
            if points is not None:
                points.append(point)
            yield figure(
                name=f"{way}, {tasks} task{'s' * (tasks > 1)}: throughput used",
                value=point.percent,
                unit="%",
                note=f"any order: at most {most:.1%}; {point.again:.1%} of the rows were sent again",
            )


def _cpu(rows: int) -> Iterator[Figure]:
    """CPU of the Python processes of a write, of ``bulk_load``'s: at most 1.2."""
    name = "spark.write on local[2]: CPU of Python{}, of bulk_load's"
    if find_spec("pyspark") is None or which("java") is None:
        yield Figure(bench="spark", name=name.format(""), value=None, target=CPU, note="needs pyspark and java")
        return
    # In a process of its own: it starts a JVM.
    command = [sys.executable, "-m", "benchmarks.spark_job", str(rows)]
    ended = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
    for job in map(json.loads, ended.stdout.splitlines()):
        yield Figure(
            bench="spark",
            name=name.format(", direct" * (job["transport"] == "direct")),
            value=job["python"] / job["load"],
            target=CPU,
            note=(
                f"PySpark {job['spark']}, {job['items']:,} rows: {job['python']:.1f} µs an item, bulk_load "
                f"{job['load']:.1f} µs; the JVM {job['jvm']:.1f} µs"
            ),
        )


def draw(points: Sequence[Tasks]) -> None:
    """Draw the shares into the documentation."""
    from benchmarks.pictures import draw_both
    from shardkit.cli.pictures import BLUE, GREEN, GREY

    def drawn(figure: Any) -> None:
        axes = figure.subplots()
        for way, colour in zip(WAYS, (GREEN, GREY, BLUE), strict=True):
            line = [(point.tasks, point.percent) for point in points if point.way == way]
            axes.plot(*zip(*line, strict=True), "o-", color=colour, label=way)
        axes.set(xscale="log", xlabel="tasks", ylabel="% of the partitions' throughput", ylim=(0, 105), xticks=TASKS)
        axes.set_xticklabels(map(str, TASKS))
        axes.minorticks_off()
        axes.grid(visible=True)
        most = 100 * ceiling(DAYS.partitions())
        axes.axhline(most, color=GREY, linestyle="--", linewidth=1)
        axes.annotate(f"any order: at most {most:.0f}%", (1, most), (0, 5), textcoords="offset points")
        axes.legend(loc="lower right")
        least = min(point.percent for point in points if point.way == MIXED)
        title = f"Mixed rows use {least:.0f}% or more of 20 partitions, with any number of tasks"
        figure.suptitle(title, x=0.01, ha="left")

    draw_both("spark-tasks", 3.6, drawn)
