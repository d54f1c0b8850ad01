"""What the processes do that a run starts, and what they saw."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from shardkit import BulkReport, ShardedTable, ShardMap, SharedBudget, streaming_bulk
from shardkit.sharding.shard_map import MAP
from tests.aws.orders import order
from tests.aws.run import Place

MOST_ITEMS = 50_000
"""That a process writes: its own bound, because the run's meter does not see it."""


@dataclass
class Found:
    """When the map was read, requests went to the table, and units were consumed; which items were written."""

    maps: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    units: list[tuple[float, float]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Self:
        return cls(**json.loads(file.read_text(encoding="utf-8")))

    def longest_without_map(self) -> float:
        """Return the most seconds between a request and the last read of the map before it."""
        return max(at - max(read for read in self.maps if read <= at) for at in self.requests)


def excess(samples: Iterable[tuple[float, float]], rate: float) -> float:
    """Return the most units, over all windows, by which they exceed ``rate`` times the window."""
    total = least = most = 0.0
    for at, units in sorted(samples):
        least = min(least, total - rate * at)
        total += units
        most = max(most, total - rate * at - least)
    return most


@dataclass(frozen=True)
class Work:
    place: Place
    orders: str
    budgets: str
    rate: float
    workers: int
    seconds: float

    def load(self, file: Path, first: int) -> None:
        """Load orders for some seconds, under the map and the budget, and write down what was seen."""
        resource = self.place.resource(self.place.session())
        found, begun, before = Found(), time.monotonic(), [0.0]

        def sent(request: Any, **_: Any) -> None:
            body = request.body.decode()
            if MAP in body:
                found.maps.append(time.monotonic())
            elif self.orders in body and b"DescribeTable" not in request.headers["X-Amz-Target"]:
                found.requests.append(time.monotonic())

        def progress(report: BulkReport) -> None:
            found.units.append((time.monotonic(), report.write_units - before[0]))
            before[0] = report.write_units

        def items() -> Iterator[dict[str, Any]]:
            for number in range(first, first + MOST_ITEMS):
                if time.monotonic() > begun + self.seconds:
                    return
                yield order(number)

        resource.meta.client.meta.events.register_last("before-send.dynamodb", sent)
        table = ShardedTable(resource.Table(self.orders), ShardMap())
        with SharedBudget(resource.Table(self.budgets), "Orders", self.rate) as budget:
            load = streaming_bulk(
                table, items(), write_units=budget, window=200, workers=self.workers, progress=progress
            )
            found.written += [int(result.item["n"]) for result in load if result.ok]
        file.write_text(json.dumps(asdict(found)), encoding="utf-8")
