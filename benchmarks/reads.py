"""The merged read of 200 shards: its CPU beside other ways to the same items, and its wall time under latency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import ways
from benchmarks.measure import Figure, Timing, alternate, over
from benchmarks.orders import DAY, order, orders
from benchmarks.stub import stub

__all__ = ["latency", "reads"]

SHARDS = 200
EACH = 100
WORKERS = (1, 4, 32)
"""How many requests side by side are tried, to give each way the number at which it takes the least CPU."""
CONNECTIONS = 32
ROUNDS = 7
"""Of 200 requests over 32 connections."""
LATENCY_MS = 5.0


def reads(*, short: bool) -> Iterator[Figure]:
    """200 shards of 100 orders, merged in order: CPU at most a third of boto3's, and below other libraries'."""
    runs = 9
    expected = ways.comparable([order(name) for _, name in orders(SHARDS, SHARDS * EACH)])
    with stub(shards=SHARDS, items=SHARDS * EACH) as endpoint, ExitStack() as stack:
        tried = WORKERS[:1] if short else WORKERS

        def best(make: Callable[[int], Any]) -> tuple[int, ways.Read]:
            candidates = {str(workers): stack.enter_context(make(workers)) for workers in tried}
            timings = {} if short else alternate(candidates, runs=3)
            name = min(candidates, key=lambda name: timings[name].median) if timings else str(tried[0])
            return int(name), candidates[name]

        chosen, others, absent = {}, {}, {}
        workers: dict[str, int] = {}
        for name, make in {
            "query": lambda n: _query(endpoint, n),
            "query_items": lambda n: _query_items(endpoint, n),
            "boto3": lambda n: ways.plain(endpoint, SHARDS, workers=n),
        }.items():
            workers[name], chosen[name] = best(make)
        try:
            others["PynamoDB"] = ways.pynamodb(endpoint, SHARDS)
        except ModuleNotFoundError:
            absent["PynamoDB"] = ways.MISSING
        try:
            others["aiodynamo"] = stack.enter_context(ways.aiodynamo(endpoint, SHARDS, connections=CONNECTIONS))
        except ModuleNotFoundError:
            absent["aiodynamo"] = ways.MISSING
        every = {**chosen, **others}
        for name, read in every.items():
            items = read()
            if ways.comparable(items) != expected:
                raise RuntimeError(f"{name} read other items than the table holds")
            if name in chosen and [item["OrderId"] for item in items] != [item["OrderId"] for item in expected]:
                raise RuntimeError(f"{name} read the items in another order")
        timings = alternate(every, runs=runs, warm=True)
    for name in every:
        side = f"{workers[name]} at a time, " if name in workers else ""
        yield Figure(
            bench="reads",
            name=f"{name}, CPU of 20,000 items",
            value=timings[name].median * 1000,
            unit="ms",
            spread=_milliseconds(timings[name]),
            note=f"{side}{timings[name].median / SHARDS / EACH * 1e6:.1f} µs an item",
        )
    for name in ("query", "query_items"):
        for other, target in (("boto3", 1 / 3), ("PynamoDB", 1.0), ("aiodynamo", 1.0)):
            if other in absent:
                yield Figure(bench="reads", name=f"{name}: CPU, of {other}'s", value=None, note=absent[other])
                continue
            value, spread = over(timings[name], timings[other])
            yield Figure(
                bench="reads",
                name=f"{name}: CPU, of {other}'s",
                value=value,
                target=target,
                spread=spread,
            )


@contextmanager
def _query(endpoint: str, connections: int) -> Iterator[ways.Read]:
    with ways.sharded(endpoint, SHARDS, connections=connections) as table:

        def read() -> list[Any]:
            page = table.query(KeyConditionExpression=ways.CONDITION)
            if "LastEvaluatedKey" in page:
                raise RuntimeError(f"one page was to hold all orders of {DAY}")
            items: list[Any] = page["Items"]
            return items

        yield read


@contextmanager
def _query_items(endpoint: str, connections: int) -> Iterator[ways.Read]:
    with ways.sharded(endpoint, SHARDS, connections=connections) as table:
        yield lambda: list(table.query_items(KeyConditionExpression=ways.CONDITION))


def latency(*, short: bool) -> Iterator[Figure]:
    """Wall time of 200 shards over 32 connections at 5 ms, beside 7 rounds of it and the same read at no latency."""
    floor = ROUNDS * LATENCY_MS / 1000
    for each in (EACH, 1):
        items = SHARDS * each
        runs = 3 if short and each == EACH else 7
        with ExitStack() as stack:
            at_once = stack.enter_context(stub(shards=SHARDS, items=items))
            later = stack.enter_context(stub(shards=SHARDS, items=items, latency_ms=LATENCY_MS))
            for name, make in {"query": _query, **({} if short else {"query_items": _query_items})}.items():
                measured = {
                    "later": stack.enter_context(make(later, CONNECTIONS)),
                    "at once": stack.enter_context(make(at_once, CONNECTIONS)),
                }
                timings = alternate(measured, runs=runs, clock=time.perf_counter)
                ratios = [
                    wall / max(floor, own)
                    for wall, own in zip(timings["later"].seconds, timings["at once"].seconds, strict=True)
                ]
                yield Figure(
                    bench="latency",
                    name=f"{name} of 200 × {each}: wall at 5 ms, of max(35 ms, at none)",
                    value=statistics.median(ratios),
                    target=1.3,
                    spread=(min(ratios), max(ratios)),
                    note=f"{timings['later'].milliseconds()}; at none {timings['at once'].milliseconds()}",
                )


def _milliseconds(timing: Timing) -> tuple[float, float]:
    return min(timing.seconds) * 1000, max(timing.seconds) * 1000
