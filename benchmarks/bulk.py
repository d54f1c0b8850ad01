"""``bulk_load`` beside the other ways to write many items: CPU, wall time under latency, and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import ways
from benchmarks.growth import ROOT
from benchmarks.measure import Clock, Figure, Timing, alternate, over
from benchmarks.orders import TABLE, order, order_id, strategy_of
from benchmarks.stub import stub
from shardkit import bulk_load

__all__ = ["bulk"]

SHARDS = 200
ITEMS = 5_000
LATENCY_MS = 5
MEGABYTES = 150


def bulk(*, short: bool) -> Iterator[Figure]:
    """CPU an item at most a third of ``batch_writer``'s, 8 times its rate under latency, and bounded memory."""
    yield from _beside("CPU of {items:,} items", 0.0, time.process_time, target=1 / 3, runs=3 if short else 9)
    if not short:  # it means something only where nothing else runs: the client takes a core, and the stub another
        name = f"wall time of {{items:,}} items at {LATENCY_MS} ms"
        yield from _beside(name, LATENCY_MS, time.perf_counter, target=1 / 8, runs=5)
    for items in (100_000,) if short else (100_000, 300_000):
        yield Figure(
            bench="bulk",
            name=f"memory of a load of {items:,} items above import",
            value=_memory(items),
            unit="MB",
            target=MEGABYTES,
        )


def _beside(name: str, latency_ms: float, clock: Clock, *, target: float, runs: int) -> Iterator[Figure]:
    with ExitStack() as stack:
        endpoint = stack.enter_context(stub(shards=1, items=1, latency_ms=latency_ms))
        table = stack.enter_context(ways.sharded(endpoint, SHARDS))
        # The plain table has a client of its own: shardkit's handlers are not on it.
        plain = stack.enter_context(ways.resource(endpoint)).Table(TABLE)
        items = [order(order_id(number)) for number in range(ITEMS)]
        strategy = strategy_of(SHARDS)
        stored = [{**item, "Date": strategy.physical_key(item["Date"], strategy.shard_of(item["Date"], item))}
                  for item in items]  # fmt: skip

        def batch_writer() -> None:
            with plain.batch_writer() as batch:
                for item in stored:
                    batch.put_item(Item=item)

        written: dict[str, Callable[[], Any]] = {
            "bulk_load": lambda: bulk_load(table, items),
            "boto3's batch_writer": batch_writer,
        }
        timings = alternate(written, runs=runs, clock=clock)
    name = name.format(items=ITEMS)
    for way, timing in timings.items():
        yield _time(f"{way}, {name}", timing)
    value, spread = over(timings["bulk_load"], timings["boto3's batch_writer"])
    yield Figure(
        bench="bulk",
        name=f"bulk_load: {name}, of boto3's",
        value=value,
        target=target,
        spread=spread,
        note=f"{1 / value:.1f} × as fast" if latency_ms else "",
    )


def _time(name: str, timing: Timing) -> Figure:
    low, high = min(timing.seconds) * 1000, max(timing.seconds) * 1000
    note = f"{timing.median / ITEMS * 1e6:,.1f} µs an item, {ITEMS / timing.median:,.0f} items a second"
    return Figure(bench="bulk", name=name, value=timing.median * 1000, unit="ms", spread=(low, high), note=note)


def _memory(items: int) -> float:
    with stub(shards=1, items=1) as endpoint:
        command = [sys.executable, "-m", "benchmarks.bulk", endpoint, str(items)]
        ended = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 - ourselves
    return float(ended.stdout)


def _peak() -> float:
    # Not getrusage: its figure of a process begins with that of the one that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def _load(endpoint: str, items: int) -> None:
    with ways.sharded(endpoint, SHARDS) as table:
        before = _peak()
        bulk_load(table, (order(order_id(number)) for number in range(items)))
        print(_peak() - before)


if __name__ == "__main__":
    _load(sys.argv[1], int(sys.argv[2]))
