"""What a bulk load adds to the memory of its process: ``python -m benchmarks.memory 10_000_000 direct``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks import ways
from benchmarks.measure import ROOT, Figure, peak
from benchmarks.orders import order, order_id
from benchmarks.stub import stub
from benchmarks.writes import SHARDS
from shardkit import bulk_load
from shardkit.runtime.transports import Transport

__all__ = ["memory"]

ITEMS = (100_000, 1_000_000)
MEGABYTES = 150


def memory(*, short: bool) -> Iterator[Figure]:
    """Peak memory of loads at most 150 MB above import, however many items there are, and no more of direct loads."""
    for items in ITEMS[:1] if short else ITEMS:
        target: float = MEGABYTES
        for transport, name in (("client", "load"), ("direct", "direct load")):
            # In a process of its own: a peak is of a whole life.
            command = [sys.executable, "-m", "benchmarks.memory", str(items), transport]
            ended = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
            value = float(ended.stdout)
            yield Figure(
                bench="bulk",
                name=f"memory of a {name} of {items:,} items above import",
                value=value,
                unit="MB",
                target=target,
            )
            target = value


def measured(items: int, transport: Transport) -> float:
    """Load so many orders in this process, which has done nothing before, and give what its memory grew by, in MB."""
    first = order(order_id(0))
    with stub(forgets=True) as endpoint, ways.sharded(endpoint, SHARDS, transport=transport) as table:
        before = peak()
        report = bulk_load(table, ({**first, "OrderId": order_id(number)} for number in range(items)))
        after = peak()
    if report.written != items:
        raise RuntimeError(f"{report.written} orders were written of {items}")
    return (after - before) / 1e6


if __name__ == "__main__":
    print(measured(int(sys.argv[1]), "direct" if "direct" in sys.argv[2:] else "client"))
