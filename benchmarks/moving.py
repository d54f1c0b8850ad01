"""``python -m benchmarks.moving``: a move on dynoxide at 1,000 write units a second, an outage, and calls by stage.

The outage stops the engine's process for 8 seconds. Calls of all stages are made in turn, so that whatever else the
machine does slows down all of them alike; beside each median is its ratio to stage ``"old"``.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config

from shardkit import CalculatedSuffix, Resharding, ShardedTable, Unsharded, migrate
from shardkit.strategies.resharding import STAGES, Stage
from tests.support import engines
from tests.support.tables import make_table

__all__ = ["latencies", "moved"]

RATE = 1000.0
OUTAGE_SECONDS = 8.0
_KEYS = 20
_STARTING_SECONDS = 3.0  # in which the burst of the first second is used


def moved(resource: Any, count: int, *, outage: Callable[[], object] = lambda: None) -> str:
    """Move a table of 1 KB items, and tell how fast it went; ``outage`` is called after five seconds."""
    orders = sharded(_filled(resource, count), "move", transport="direct")
    marks: list[tuple[float, migrate.MoveReport]] = []
    timer = threading.Timer(5.0, outage)
    timer.start()
    began = time.monotonic()
    progress = lambda report: marks.append((time.monotonic() - began, report))  # noqa: E731
    report = migrate.move(orders, write_units=RATE, read_units=None, progress=progress)
    timer.cancel()
    moving = [(at, one) for at, one in marks if not one.verified]
    steady = [(at, one) for at, one in moving if at >= _STARTING_SECONDS] or moving
    (first, before), (last, after) = steady[0], steady[-1]
    rate = (after.write_units - before.write_units) / max(last - first, 1e-9)
    pause = max(later[0] - sooner[0] for sooner, later in pairwise(marks))
    return (
        f"{report.moved / moving[-1][0]:,.0f} items/s, {rate / RATE:.1%} of the rate after its start, "
        f"{report.write_units / report.moved:.2f} units an item, longest pause {pause:.1f} s, "
        f"{'all' if report.complete else 'not all'} at their new places"
    )


def latencies(resource: Any, count: int, calls: int) -> Iterator[str]:
    """Tell the median of each call in each stage; in "move", before and after the items have moved."""
    tables: dict[str, ShardedTable] = {}
    for stage in STAGES:
        raw = _filled(resource, count)
        if stage == "new":
            migrate.move(sharded(raw, "move"), write_units=None, read_units=None)
            tables["move, all moved"] = sharded(raw, "move")
        tables[stage] = sharded(raw, stage)
    operations: dict[str, Callable[[ShardedTable, int], object]] = {
        "get": lambda orders, number: orders.get_item(Key=_key(number % count)),
        "put": lambda orders, number: orders.put_item(Item={**_key(number % count), "pad": "y"}),
        "put, new item": lambda orders, number: orders.put_item(Item={**_key(number), "sk": f"new{number}"}),
        "query of 20": lambda orders, number: orders.query(
            KeyConditionExpression=Key("pk").eq(_key(number)["pk"]), Limit=20
        ),
    }
    for name, operation in operations.items():
        taken: dict[str, list[float]] = {stage: [] for stage in tables}
        for number in range(calls):
            for place, orders in tables.items():
                began = time.perf_counter()
                operation(orders, number)
                taken[place].append(time.perf_counter() - began)
        medians = {stage: statistics.median(seconds) for stage, seconds in taken.items()}
        told = (f"{stage} {1000 * one:.1f} ms ({one / medians['old']:.1f}×)" for stage, one in medians.items())
        yield f"{name}: {', '.join(told)}"


def sharded(table: Any, stage: Stage, **options: Any) -> ShardedTable:
    return ShardedTable(
        table, Resharding(Unsharded(), CalculatedSuffix("sk", 10), stage=stage), max_concurrency=10, **options
    )


def _key(number: int) -> dict[str, Any]:
    return {"pk": f"k{number % _KEYS}", "sk": f"s{number:06}"}


def _filled(resource: Any, count: int) -> Any:
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    with table.batch_writer() as batch:
        for number in range(count):
            batch.put_item(Item={**_key(number), "pad": "x" * 930})
    return table


def main() -> None:
    endpoint = engines.engine_endpoint("dynoxide")
    session = boto3.Session(aws_access_key_id="none", aws_secret_access_key="none", region_name="us-east-1")
    resource = session.resource("dynamodb", endpoint_url=endpoint, config=Config(max_pool_connections=50))
    engine = engines.process_of("dynoxide")

    def outage() -> None:
        engine.send_signal(signal.SIGSTOP)
        time.sleep(OUTAGE_SECONDS)
        engine.send_signal(signal.SIGCONT)

    try:
        print("at 1,000 units:", moved(resource, 3000))
        print("with an outage:", moved(resource, 3000, outage=outage))
        for line in latencies(resource, 200, 150):
            print(line)
        print(f"load of the machine, at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    finally:
        resource.meta.client.close()
        engines.stop_engines()


if __name__ == "__main__":
    main()
