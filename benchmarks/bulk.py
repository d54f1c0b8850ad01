"""``bulk_load`` beside the other ways to write many items: CPU, wall time under latency, and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import dropwhile
from textwrap import dedent

from benchmarks import ways
from benchmarks.measure import ROOT, Clock, Figure, Timing, alternate, over
from benchmarks.memory import memory
from benchmarks.stub import stub
from benchmarks.writes import (
    BOTO3,
    BY_PROCESSES,
    CORES,
    DIRECT,
    DIRECT_MORE,
    MORE_CONNECTIONS,
    OURS,
    PYDYNOX,
    PYDYNOX_ASYNC,
    PYDYNOX_MORE,
    WAYS,
    Orders,
    Ways,
    Write,
    written,
)

__all__ = ["bulk"]

LATENCY_MS = 5
MANY = 100_000
"""More than a load's window, and enough for what a process takes to start not to matter much."""

PROGRAM_ITEMS = 10_000
PROGRAM = 0.14
"""Of ``batch_writer``'s CPU, at most, where a program loads so many items and ends."""
_PROGRAM = """
    import sys, time
    from benchmarks.writes import WAYS, Orders
    endpoint, way, items = sys.argv[1:]
    orders = Orders(int(items))
    with WAYS[way](endpoint, orders) as write:
        began = time.process_time()
        write()
        print(time.process_time() - began)
"""

Judged = Mapping[str, Mapping[str, float]]
"""The ways that are compared with all after them; of some of these they are to take so much at most."""

CPU: Judged = {DIRECT: {BOTO3: 0.11, PYDYNOX: 1.0, PYDYNOX_ASYNC: 1.0}, OURS: {BOTO3: 0.45}}
WALL: Judged = {DIRECT: {BOTO3: 1 / 10}, OURS: {}}
WALL_MORE: Judged = {DIRECT_MORE: {PYDYNOX_MORE: 1 / 0.8}}
WALL_CORES: Judged = {BY_PROCESSES: {}}


def bulk(*, short: bool) -> Iterator[Figure]:
    """CPU and wall time of loads beside their peers, and bounded memory."""
    orders = Orders(5_000 if short else 20_000)
    yield from _beside("CPU", orders, WAYS, CPU, clock=time.process_time, runs=5)
    if not short:  # it means something only where nothing else runs: the client takes a core, and the stub another
        for which, beside, judged, runs in (
            (orders, WAYS, WALL, 3),
            (orders, MORE_CONNECTIONS, WALL_MORE, 5),
            (Orders(MANY), CORES, WALL_CORES, 2),
        ):
            yield from _beside(
                "wall time", which, beside, judged, clock=time.perf_counter, runs=runs, latency_ms=LATENCY_MS
            )
    yield from _programs(PROGRAM_ITEMS // 10 if short else PROGRAM_ITEMS, runs=1 if short else 7)
    yield from memory(short=short)


def _programs(items: int, *, runs: int) -> Iterator[Figure]:
    """CPU of the only load of a program, with what only a first load does; not of its imports and its client."""
    seconds: dict[str, list[float]] = {DIRECT: [], BOTO3: []}
    with stub() as endpoint:
        for _ in range(runs):
            for way, measured in seconds.items():
                given = (sys.executable, "-c", dedent(_PROGRAM), endpoint, way, str(items))
                child = subprocess.run(given, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 - our own
                measured.append(float(child.stdout))
    direct, boto3 = (Timing(tuple(measured)) for measured in seconds.values())
    value, spread = over(direct, boto3)
    name = f"{DIRECT}: CPU of a program of {items:,} items, of {BOTO3}"
    note = f"{direct.milliseconds()}, {boto3.milliseconds()}"
    yield Figure(bench="bulk", name=name, value=value, target=None if runs == 1 else PROGRAM, spread=spread, note=note)


def _beside(
    what: str,
    orders: Orders,
    beside: Ways,
    judged: Judged,
    *,
    clock: Clock,
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
    for mine, targets in judged.items():
        for other in list(dropwhile(mine.__ne__, beside))[1:]:
            title = f"{mine}: {name}, of {other}"
            target = targets.get(other)
            if other not in timings:
                yield Figure(bench="bulk", name=title, value=None, target=target, note=ways.MISSING)
                continue
            value, spread = over(timings[mine], timings[other])
            note = f"{1 / value:.1f} × as fast" if latency_ms else ""
            yield Figure(bench="bulk", name=title, value=value, target=target, spread=spread, note=note)


def _time(name: str, timing: Timing, items: int) -> Figure:
    low, high = min(timing.seconds) * 1000, max(timing.seconds) * 1000
    note = f"{timing.median / items * 1e6:,.1f} µs an item, {items / timing.median:,.0f} items a second"
    return Figure(bench="bulk", name=name, value=timing.median * 1000, unit="ms", spread=(low, high), note=note)
