"""A move of live items, and processes that share a shard map and a budget."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from shardkit import CalculatedSuffix, Resharding, ShardedTable, ShardMap, ShardMapAdmin, bulk_load, migrate
from shardkit.sharding.shard_map import MAP_LEASE_SECONDS
from shardkit.strategies import Stage
from tests.aws import neighbour
from tests.aws.check import check, holds
from tests.aws.orders import DAY, numbers, order
from tests.aws.run import Run

OLD, NEW = CalculatedSuffix("id", shards=4), CalculatedSuffix("id", shards=10)
STAGES: tuple[Stage, ...] = ("old", "guard", "switch", "move", "new")


@check(
    "Items move to other shards while processes of neighbouring stages read and write; none is lost or doubled",
    "reference/resharding", minutes=2, write_units=1_500, read_units=4_000,
)  # fmt: skip
def resharding(run: Run) -> str:
    table, expected = run.table(), list(range(100))
    bulk_load(ShardedTable(table, OLD), map(order, expected))
    for before, now in pairwise(STAGES):
        processes = [ShardedTable(table, Resharding(OLD, NEW, stage=stage)) for stage in (before, now)]
        if now == "new":
            expected += _moved(run, processes[0], expected)
            processes = processes[1:]
        for process in processes:
            process.put_item(Item=order(len(expected)))
            expected.append(len(expected))
            for reader in processes:
                found = numbers(reader.query_items(KeyConditionExpression=DAY, ConsistentRead=True))
                holds(found == expected, f"between {before} and {now}: {len(found)} of {len(expected)} items")
    stored = {str(one["day"]) for one in table.scan(ConsistentRead=True)["Items"]}
    holds(stored <= set(NEW.physical_keys("2014-07-09")), sorted(stored))
    return f"{len(expected)} items, through all stages"


def _moved(run: Run, orders: ShardedTable, expected: list[int]) -> list[int]:
    """Move and verify all items, beside reads and writes; return which items were put meanwhile."""
    new: list[int] = []
    with ThreadPoolExecutor(1) as threads:
        write_units = 500 if run.place.on_aws else None
        move = threads.submit(migrate.move, orders, write_units=write_units, read_units=None)
        while not move.done() or not new:
            number = len(expected) + len(new)
            orders.put_item(Item=order(number))
            new.append(number)
            found = numbers(orders.query_items(KeyConditionExpression=DAY, ConsistentRead=True))
            holds(found == expected + new, f"while items moved: {len(found)} of {len(expected + new)} items")
        report = move.result()
    holds(report.complete and migrate.verify(orders, read_units=None).complete, report)
    return new


RATE, WORKERS = 100.0, 2


@check(
    "Two processes under one shard map and one shared budget: no request without a lease, no second above the rate",
    "reference/shard-map", minutes=2.5, write_units=20_000, read_units=20_000,
)  # fmt: skip
def leases(run: Run) -> str:
    seconds = 90.0 if run.place.on_aws else 26.0
    table, budgets = run.table(), run.table()
    admin = ShardMapAdmin(table)
    admin.create(OLD)
    processes = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.json") for number in range(2)]
        work = neighbour.Work(run.place, table.name, budgets.name, RATE, WORKERS, seconds)
        children = [
            processes.Process(target=work.load, args=(file, number * 10**6), daemon=True)
            for number, file in enumerate(files)
        ]
        try:
            for child in children:
                child.start()
            children[0].join(seconds / 2)
            admin.start(NEW)
            for child in children:
                child.join(seconds + 120)
        finally:
            for child in filter(multiprocessing.process.BaseProcess.is_alive, children):
                child.kill()
        found = [neighbour.Found.read(file) for file in files]
    run.spending.add_elsewhere(sum(units for one in found for _, units in one.units))
    late = max(one.longest_without_map() for one in found)
    holds(late < MAP_LEASE_SECONDS, f"a request {late:.1f} s after the map was read")
    excess = neighbour.excess([sample for one in found for sample in one.units], RATE)
    # A burst of a second, and a batch of each worker.
    holds(excess <= RATE + len(files) * WORKERS * 25, f"{excess:.0f} units above {RATE:g} a second")
    orders = ShardedTable(table, ShardMap())
    stored = sorted(numbers(orders.query_items(KeyConditionExpression=DAY, ConsistentRead=True)))
    written = sorted(number for one in found for number in one.written)
    holds(stored == written, f"{len(stored)} items are stored, {len(written)} were written")
    return (
        f"{len(stored)} items; at most {late:.1f} s after the map was read; {max(excess, 0):.0f} units above the rate"
    )
