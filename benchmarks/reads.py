"""The merged read of 200 shards: its CPU beside other ways to the same items, and its wall time under latency."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import ways
from benchmarks.measure import Figure, Timing, alternate, over
from benchmarks.orders import DAY, TABLE, order, orders, strategy_of
from benchmarks.stub import stub
from shardkit.core.machine import Done, Send
from shardkit.runtime.transports import Transport
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan

__all__ = ["latency", "reads"]

SHARDS = 200
EACH = 100
WORKERS = (1, 4, 32)
"""How many requests side by side are tried, to give each way the number at which it takes the least CPU."""
CONNECTIONS = 32
ROUNDS = 7
"""Of 200 requests over 32 connections."""
LATENCY_MS = 5.0
FULL = (8, 8 * 2900)
"""Shards, and items whose pages are nearly full."""
NUMBERS = (100, 10_000)
"""Of shards."""
MANY = 1000
"""Items of each shard."""


def reads(*, short: bool) -> Iterator[Figure]:
    """CPU of merged reads, through the client and past it: 200 × 100 orders, pages of 1 MB, and 200 × 1,000."""
    yield from _of_many_shards(short=short)
    yield from _of_full_pages()
    yield from _of_many_shards_without_requests()
    if not short:
        yield from _of_many_items()


def _of_many_shards(*, short: bool) -> Iterator[Figure]:
    """200 shards of 100 orders, merged in order, beside other libraries."""
    runs = 9
    expected = ways.comparable([order(name) for _, name in orders(SHARDS, SHARDS * EACH)])
    with stub(shards=SHARDS, items=SHARDS * EACH) as endpoint, ExitStack() as stack:
        tried = WORKERS[:1] if short else WORKERS

        def best(make: Callable[[int], Any], tried: Sequence[int]) -> tuple[int, ways.Read]:
            candidates = {str(workers): stack.enter_context(make(workers)) for workers in tried}
            timings = alternate(candidates, runs=3) if len(tried) > 1 else {}
            name = min(candidates, key=lambda name: timings[name].median) if timings else str(tried[0])
            return int(name), candidates[name]

        chosen, others, absent = {}, {}, {}
        workers: dict[str, int] = {}
        for name, make, numbers in (
            ("query", lambda n: _query(endpoint, n), tried),
            ("query_items", lambda n: _query_items(endpoint, n), tried),
            ("query, direct", lambda n: _query(endpoint, n, "direct"), (CONNECTIONS,)),
            ("query_items, direct", lambda n: _query_items(endpoint, n, "direct"), (CONNECTIONS,)),
            ("boto3", lambda n: ways.plain(endpoint, SHARDS, workers=n), tried),
        ):
            workers[name], chosen[name] = best(make, numbers)
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
        yield _cpu(f"{name}, CPU of 20,000 items", timings[name], SHARDS * EACH, side)
    for name in ("query", "query_items", "query, direct", "query_items, direct"):
        direct = name.endswith("direct")
        for other, target in (
            ("boto3", 0.15 if direct else 1 / 3),
            ("PynamoDB", 1.0),
            ("aiodynamo", 0.65 if direct else 1.0),
        ):
            if other in absent:
                yield Figure(bench="reads", name=f"{name}: CPU, of {other}'s", value=None, note=absent[other])
                continue
            yield _ratio(f"{name}: CPU, of {other}'s", timings[name], timings[other], target)


def _of_full_pages() -> Iterator[Figure]:
    """A page of 1 MB of each shard, where converting items is nearly all of the work."""
    shards, items = FULL
    with stub(shards=shards, items=items) as endpoint, ExitStack() as stack:
        ours = {
            "query": stack.enter_context(_query(endpoint, 1, shards=shards)),
            "query, direct": stack.enter_context(_query(endpoint, CONNECTIONS, "direct", shards=shards)),
        }
        try:
            other = stack.enter_context(ways.aiodynamo(endpoint, shards, connections=CONNECTIONS))
        except ModuleNotFoundError:
            yield Figure(bench="reads", name="query of 1-MB pages: CPU, of aiodynamo's", value=None, note=ways.MISSING)
            return
        timings = alternate({**ours, "aiodynamo": other}, runs=9)
    for name, timing in timings.items():
        yield _cpu(f"{name}, pages of 1 MB, CPU of {items:,} items", timing, items)
    for name, target in {"query": None, "query, direct": 0.95}.items():
        yield _ratio(f"{name}, pages of 1 MB: CPU, of aiodynamo's", timings[name], timings["aiodynamo"], target)


def _of_many_items() -> Iterator[Figure]:
    """200 shards of 1,000 orders: a page of every shard, beside a stream in pages that fit into its memory."""
    items = SHARDS * MANY
    targets: dict[Transport, tuple[int, float | None]] = {"client": (1, None), "direct": (CONNECTIONS, 1.15)}
    with stub(shards=SHARDS, items=items) as endpoint, ExitStack() as stack:
        measured: dict[str, ways.Read] = {}
        for transport, (connections, _) in targets.items():
            measured[f"query, {transport}"] = stack.enter_context(_query(endpoint, connections, transport))
            measured[f"query_items, {transport}"] = stack.enter_context(_query_items(endpoint, connections, transport))
        timings = alternate(measured, runs=5)
    for name, timing in timings.items():
        yield _cpu(f"200 × 1,000: {name}, CPU of {items:,} items", timing, items)
    for transport, (_, target) in targets.items():
        streamed, page = timings[f"query_items, {transport}"], timings[f"query, {transport}"]
        yield _ratio(f"200 × 1,000: query_items, {transport}: CPU, of query's", streamed, page, target)


def _of_many_shards_without_requests() -> Iterator[Figure]:
    """What shardkit decides for each shard of a query, without sending anything: flat by the number of shards."""
    few, many = NUMBERS
    description = {
        "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "OrderId")],
    }

    def read(shards: int, times: int) -> Callable[[], None]:
        sharding = Sharding.described(TABLE, strategy_of(shards), description)

        def read_all() -> None:
            plan = QueryPlan.of(sharding, {"KeyConditionExpression": ways.CONDITION})
            fan_out = FanOutOptions(CONNECTIONS, draw=lambda: 0.5)
            machine = PageOfShards(plan, sizes=ItemSizes(), fan_out=fan_out)
            asked: deque[Send] = deque()
            while not isinstance(step := machine.next(0.0), Done):
                if isinstance(step, Send):
                    asked.append(step)
                    continue
                answered = asked.popleft()
                machine.receive(answered, answered.answer(_one_item(answered)), 0.0)

        def repeatedly() -> None:
            for _ in range(times):
                read_all()

        return repeatedly

    timings = alternate({"few": read(few, many // few), "many": read(many, 1)}, runs=5)
    micro = {number: timings[name].median / many * 1e6 for name, number in (("few", few), ("many", many))}
    value, spread = over(timings["many"], timings["few"])
    yield Figure(
        bench="reads",
        name=f"without requests, {many:,} shards: CPU a shard, of that with {few}",
        value=value,
        target=1.15,
        spread=spread,
        note=f"{micro[many]:.1f} µs, {micro[few]:.1f} µs a shard",
    )


def _one_item(asked: Send) -> dict[str, Any]:
    (key,) = asked.params["ExpressionAttributeValues"].values()
    return {"Items": [{"Date": key, "OrderId": key}], "Count": 1, "ScannedCount": 1}


def _cpu(name: str, timing: Timing, items: int, side: str = "") -> Figure:
    note = f"{side}{timing.median / items * 1e6:.1f} µs an item"
    return Figure(
        bench="reads", name=name, value=timing.median * 1000, unit="ms", spread=_milliseconds(timing), note=note
    )


def _ratio(name: str, timing: Timing, other: Timing, target: float | None) -> Figure:
    value, spread = over(timing, other)
    return Figure(bench="reads", name=name, value=value, target=target, spread=spread)


@contextmanager
def _query(
    endpoint: str, connections: int, transport: Transport = "client", *, shards: int = SHARDS
) -> Iterator[ways.Read]:
    with ways.sharded(endpoint, shards, connections=connections, transport=transport) as table:

        def read() -> list[Any]:
            page = table.query(KeyConditionExpression=ways.CONDITION)
            if "LastEvaluatedKey" in page:
                raise RuntimeError(f"one page was to hold all orders of {DAY}")
            items: list[Any] = page["Items"]
            return items

        yield read


@contextmanager
def _query_items(endpoint: str, connections: int, transport: Transport = "client") -> Iterator[ways.Read]:
    with ways.sharded(endpoint, SHARDS, connections=connections, transport=transport) as table:
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
