"""``bulk_load`` beside the other ways to write many items: CPU, wall time under latency, and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import ways
from benchmarks.measure import Clock, Figure, Timing, alternate, over
from benchmarks.memory import memory
from benchmarks.stub import stub
from benchmarks.writes import BOTO3, BY_PROCESSES, CORES, OURS, WAYS, Orders, Ways, Write, written

__all__ = ["bulk"]

LATENCY_MS = 5
MANY = 100_000
"""More than a load's window, and enough for what a process takes to start not to matter much."""


def bulk(*, short: bool) -> Iterator[Figure]:
    """CPU an item at most a third of ``batch_writer``'s, 8 times its rate under latency, and bounded memory."""
    orders = Orders(5_000)
    yield from _beside("CPU", orders, WAYS, clock=time.process_time, target=1 / 3, runs=5 if short else 9)
    if not short:  # it means something only where nothing else runs: the client takes a core, and the stub another
        wall = partial(_beside, "wall time", clock=time.perf_counter, latency_ms=LATENCY_MS)
        yield from wall(orders, WAYS, target=1 / 8, runs=5)
        yield from wall(Orders(MANY), CORES, judged=BY_PROCESSES, runs=2)
    yield from memory(short=short)


def _beside(
    what: str,
    orders: Orders,
    beside: Ways,
    *,
    judged: str = OURS,
    clock: Clock,
    target: float | None = None,
    runs: int,
    latency_ms: float = 0.0,
) -> Iterator[Figure]:
    items = len(orders.logical)
    name = f"{what} of {items:,} items" + (f" at {latency_ms} ms" if latency_ms else "")
    writes: dict[str, Write] = {}
    with ExitStack() as stack:
        for way, made in beside.items():
            endpoint = stack.enter_context(stub(latency_ms=latency_ms))
            try:
                write = stack.enter_context(made(endpoint, orders))
            except ModuleNotFoundError:
                continue
            write()
            if not written(endpoint, orders):
                raise RuntimeError(f"{way} wrote other items than it was given")
            writes[way] = write
        timings = alternate(writes, runs=runs, clock=clock, warm=True)
    for way, timing in timings.items():
        yield _time(f"{way}, {name}", timing, items)
    for way in beside:
        if way == judged:
            continue
        title = f"{judged}: {name}, of {way}"
        aim = target if way == BOTO3 else None
        if way not in timings:
            yield Figure(bench="bulk", name=title, value=None, target=aim, note=ways.MISSING)
            continue
        value, spread = over(timings[judged], timings[way])
        note = f"{1 / value:.1f} × as fast" if latency_ms else ""
        yield Figure(bench="bulk", name=title, value=value, target=aim, spread=spread, note=note)


def _time(name: str, timing: Timing, items: int) -> Figure:
    low, high = min(timing.seconds) * 1000, max(timing.seconds) * 1000
    note = f"{timing.median / items * 1e6:,.1f} µs an item, {items / timing.median:,.0f} items a second"
    return Figure(bench="bulk", name=name, value=timing.median * 1000, unit="ms", spread=(low, high), note=note)
