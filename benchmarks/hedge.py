"""The slowest of many reads, plain and hedged, where 1% of all answers take 100 ms longer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from benchmarks import ways
from benchmarks.measure import Figure, percentile
from benchmarks.orders import TABLE, strategy_of
from benchmarks.stub import drawn_latency, stub
from shardkit.core.machine import Response, Send
from shardkit.partitions.simulator import Simulator
from shardkit.sharding.hedging import HedgeAfter, Hedges
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan

__all__ = ["hedge", "virtual"]

TARGETS_MS = {20: 35.0, 200: 50.0}
MEDIAN_MS = 5.0
MOST_REQUESTS = 1.05
WAYS: dict[str, HedgeAfter | None] = {"plain": None, "hedged after 20 ms": 0.02, 'hedged after "p95"': "p95"}
_FIRST_READS = 10
"""Not measured: they open connections, and fill the response times of which a quantile is taken."""
_SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}


def hedge(*, short: bool) -> Iterator[Figure]:
    """99% of the reads of 20 and of 200 shards, and the requests that they took: in virtual time, and over HTTP."""
    for shards in TARGETS_MS:
        yield from virtual(shards, reads=200 if short else 2000)
    yield from _over_http(20, reads=30 if short else 150)


def _connections(shards: int) -> int:
    # One for each shard, and one in ten for hedges.
    return ceil(shards / 0.9)


class _Empty:
    """Answers every Query with an empty page."""

    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, send: Send, now: float) -> Response:
        self.requests += 1
        return {"Items": [], "Count": 0, "ScannedCount": 0}


def virtual(shards: int, *, reads: int) -> Iterator[Figure]:
    """Read with shardkit's own machines, without a client."""
    plain = FanOutOptions(_connections(shards), random.Random(0).random)
    asked = {"KeyConditionExpression": ways.CONDITION}
    plan = QueryPlan.of(Sharding.described(TABLE, strategy_of(shards), _SCHEMA), asked)
    for name, after in WAYS.items():
        fan_out = replace(plain, hedge_after=after, hedges=Hedges())
        table = _Empty()
        simulator = Simulator(table, latency=lambda _, draw: drawn_latency(MEDIAN_MS / 1000, draw))
        seconds = []
        for read in range(_FIRST_READS + reads):
            if read == _FIRST_READS:
                table.requests = 0
            began = simulator.now
            simulator.run(fan_out.hedged(PageOfShards(plan, sizes=ItemSizes(), fan_out=fan_out)))
            seconds.append(simulator.now - began)
        del seconds[:_FIRST_READS]
        what = f"{shards} shards, virtual time, {name}"
        yield from _figures(what, after, seconds, table.requests, shards, TARGETS_MS[shards])


def _over_http(shards: int, *, reads: int) -> Iterator[Figure]:
    # All times are ten times as long: 20 requests take 30 ms of CPU, which would hide a latency of 5 ms.
    slower = 10
    with stub(shards=shards, items=shards, latency_ms=slower * MEDIAN_MS, tail=True) as endpoint, ExitStack() as stack:
        queries: dict[str, Callable[..., Any]] = {}
        counted: dict[str, list[None]] = {}
        seconds: dict[str, list[float]] = {}
        for name, after in WAYS.items():
            table = stack.enter_context(ways.sharded(endpoint, shards, connections=_connections(shards)))
            counted[name], seconds[name] = [], []
            view = table.with_options(hedge_after=slower * after if isinstance(after, float) else after)
            queries[name] = view.query
            for _ in range(_FIRST_READS):
                queries[name](KeyConditionExpression=ways.CONDITION)
            note = partial(_note, counted[name])
            table.meta.client.meta.events.register("before-send.dynamodb.Query", note)
        for _ in range(reads):
            for name, query in queries.items():
                began = time.perf_counter()
                query(KeyConditionExpression=ways.CONDITION)
                seconds[name].append(time.perf_counter() - began)
    for name, after in WAYS.items():
        scaled = [one / slower for one in seconds[name]]
        what = f"{shards} shards, HTTP, {name}"
        yield from _figures(what, after, scaled, len(counted[name]), shards, TARGETS_MS[shards])


def _note(counted: list[None], **_: Any) -> None:
    counted.append(None)


def _figures(
    what: str, after: HedgeAfter | None, seconds: list[float], requests: int, shards: int, target: float
) -> Iterator[Figure]:
    yield Figure(
        bench="hedge",
        name=f"{what}: 99% of the reads within",
        value=percentile(seconds, 0.99) * 1000,
        unit="ms",
        target=None if after is None else target,
        note=f"half within {percentile(seconds, 0.5) * 1000:.0f} ms; {len(seconds):,} reads",
    )
    if after is not None:
        extra = requests / (shards * len(seconds))
        yield Figure(bench="hedge", name=f"{what}: requests, of plain's", value=extra, target=MOST_REQUESTS)
