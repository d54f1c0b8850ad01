"""A load under a shared budget, to be run in a process that a test kills."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

from shardkit import BulkReport, SharedBudget, bulk_load
from tests.support.fakes import connected


def share(endpoint: str, orders: str, budgets: str, rate: float, file: Path) -> None:
    """Load without end; write down when units were consumed (the clock is that of all processes)."""
    resource = connected(endpoint)
    before = [0.0]

    with file.open("a", encoding="utf-8", buffering=1) as lines:

        def written(report: BulkReport) -> None:
            lines.write(f"{time.monotonic()} {report.write_units - before[0]}\n")
            before[0] = report.write_units

        budget = SharedBudget(resource.Table(budgets), "Orders", rate)
        items = ({"pk": f"{file.stem}-{number}"} for number in count())
        bulk_load(resource.Table(orders), items, write_units=budget, window=1000, workers=2, progress=written)


def consumed(folder: Path) -> list[tuple[float, float]]:
    """Return when units were consumed, and how many, by all processes together."""
    lines = [line.split() for file in folder.glob("*.units") for line in file.read_text("utf-8").splitlines()]
    return sorted((float(line[0]), float(line[1])) for line in lines if len(line) == 2)
