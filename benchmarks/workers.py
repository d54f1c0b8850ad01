"""How many workers a load through the client needs: its CPU and its wall time by the service's latency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from benchmarks import ways
from benchmarks.measure import Figure, alternate, over
from benchmarks.stub import stub
from benchmarks.writes import SHARDS, Orders
from shardkit import bulk_load

__all__ = ["workers"]

WORKERS = (10, 2, 1)
LATENCIES_MS = (0.0, 5.0, 20.0, 50.0)
ITEMS = 2_000


def workers(*, short: bool) -> Iterator[Figure]:
    """CPU and wall time of loads with fewer workers, as ratios to the default of ten; told, not judged."""
    items = 500 if short else ITEMS
    orders = Orders(items)
    for latency in LATENCIES_MS[:1] if short else LATENCIES_MS:
        with stub(latency_ms=latency) as endpoint, ways.sharded(endpoint, SHARDS) as table:
            loads = {str(count): partial(bulk_load, table, orders.logical, workers=count) for count in WORKERS}
            for what, clock in (("CPU", time.process_time), ("wall time", time.perf_counter)):
                timings = alternate(loads, runs=3 if short else 5, clock=clock)
                most = timings[str(WORKERS[0])]
                for count in WORKERS[1:]:
                    value, spread = over(timings[str(count)], most)
                    took, beside = (one.median / items * 1e6 for one in (timings[str(count)], most))
                    yield Figure(
                        bench="workers",
                        name=f"{what} at {latency:g} ms: {count} of {WORKERS[0]} workers",
                        value=value,
                        spread=spread,
                        note=f"{took:,.1f} µs an item, beside {beside:,.1f}",
                    )
