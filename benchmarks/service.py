"""A service that answers many requests at once, each with a merged read: threads beside asyncio, and both direct."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from botocore.config import Config

from benchmarks import ways
from benchmarks.measure import Figure, Timing, over, percentile
from benchmarks.orders import TABLE, strategy_of
from benchmarks.stub import stub
from shardkit.runtime.transports import Transport

__all__ = ["Workload", "measure", "service"]

LATENCY_MS = 5.0
CONNECTIONS = 64
"""Of each client: far more than one process can keep busy at this latency."""
MISSING = "not installed: pip install '.[async]' matplotlib rich click, in an environment of its own"


@dataclass(frozen=True)
class Workload:
    """Queries of one page, and how many of them run at once."""

    shards: int
    at_once: int
    queries: int

    def check(self, page: Mapping[str, Any]) -> None:
        """Raise if a page is not complete."""
        if page["Count"] != self.shards:
            raise RuntimeError(f"page: must have {self.shards} orders, got {page['Count']}")


@dataclass(frozen=True)
class Service:
    """What a load took: each query's seconds, all seconds, and the CPU of the process."""

    each: list[float]
    wall: float
    cpu: float


def service(*, short: bool) -> Iterator[Figure]:
    """100 queries of 20 shards at once, and one query of 200 shards after another, each request with 5 ms latency."""
    rounds = 1 if short else 5
    yield from measure(Workload(20, at_once=100, queries=200), rounds=rounds)
    yield from measure(Workload(200, at_once=1, queries=5 if short else 10), rounds=rounds)


def measure(load: Workload, *, rounds: int = 1) -> Iterator[Figure]:
    """Run a load with threads and with asyncio, through the client and past it, in turns."""
    kinds: dict[str, Callable[[str, Workload], Service]] = {
        "threads": threads,
        "threads, direct": partial(threads, transport="direct"),
    }
    if find_spec("aiobotocore") is not None:
        kinds |= {"asyncio": tasks, "asyncio, direct": partial(tasks, transport="direct")}
    took: dict[str, list[Service]] = {name: [] for name in kinds}
    with stub(shards=load.shards, items=load.shards, latency_ms=LATENCY_MS) as endpoint:
        for _ in range(rounds):
            for name, run in kinds.items():
                took[name].append(run(endpoint, load))
    at_once = f"{load.shards} shards, " + (f"{load.at_once} at once" if load.at_once > 1 else "one after another")
    for name, services in took.items():
        figure = partial(_figure, services, f"{at_once}, {name}")
        yield figure("queries a second", "", lambda one: len(one.each) / one.wall)
        yield figure("half of them within", "ms", lambda one: percentile(one.each, 0.5) * 1000)
        yield figure("99% of them within", "ms", lambda one: percentile(one.each, 0.99) * 1000)
        yield figure("CPU of a query", "ms", lambda one: one.cpu / len(one.each) * 1000)
    for name in list(kinds)[1:]:
        value, spread = over(*(Timing(tuple(one.cpu for one in took[kind])) for kind in (name, "threads")))
        yield Figure(bench="service", name=f"{at_once}, {name}: CPU, of threads'", value=value, spread=spread)
    if "asyncio" not in took:
        yield Figure(bench="service", name=f"{at_once}, asyncio", value=None, note=MISSING)


def _figure(services: list[Service], of: str, what: str, unit: str, read: Callable[[Service], float]) -> Figure:
    values = [read(one) for one in services]
    return Figure(
        bench="service",
        name=f"{of}: {what}",
        value=statistics.median(values),
        unit=unit,
        spread=(min(values), max(values)),
        note=f"{len(values)} runs of {len(services[0].each)} queries",
    )


def threads(endpoint: str, load: Workload, transport: Transport = "client") -> Service:
    """Run a load with as many threads as queries at once, on one table."""
    with (
        ways.sharded(endpoint, load.shards, connections=CONNECTIONS, transport=transport) as table,
        ThreadPoolExecutor(load.at_once) as pool,
    ):

        def query(_: int) -> float:
            began = time.perf_counter()
            load.check(table.query(KeyConditionExpression=ways.CONDITION))
            return time.perf_counter() - began

        for _ in pool.map(query, range(load.at_once)):  # opens connections and starts threads
            pass
        wall, cpu = time.perf_counter(), time.process_time()
        each = list(pool.map(query, range(load.queries)))
        return Service(each, time.perf_counter() - wall, time.process_time() - cpu)


def tasks(endpoint: str, load: Workload, transport: Transport = "client") -> Service:
    """Run a load with as many tasks as queries at once, on one table."""
    from aiobotocore.session import get_session

    from shardkit.aio import ShardedTable

    async def main() -> Service:
        config = Config(max_pool_connections=CONNECTIONS, retries={"mode": "standard"})
        options: dict[str, Any] = {**ways.FAKE, "region_name": "us-east-1", "endpoint_url": endpoint, "config": config}
        async with get_session().create_client("dynamodb", **options) as client:
            table = ShardedTable(client, strategy_of(load.shards), table_name=TABLE, transport=transport)

            async def query() -> float:
                began = time.perf_counter()
                load.check(await table.query(KeyConditionExpression=ways.CONDITION))
                return time.perf_counter() - began

            async def worker(left: Iterator[int]) -> list[float]:
                return [await query() for _ in left]

            await query()  # reads the key schema
            await asyncio.gather(*(query() for _ in range(load.at_once)))
            wall, cpu = time.perf_counter(), time.process_time()
            left = iter(range(load.queries))
            each = await asyncio.gather(*(worker(left) for _ in range(load.at_once)))
            taken = time.perf_counter() - wall, time.process_time() - cpu
            return Service([seconds for one in each for seconds in one], *taken)

    return asyncio.run(main())
