"""Traces of tasks: their rows add up, also where a task does not flush, and its worker never ends by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable
from shardkit.capacity import Trace, read_traces
from shardkit.spark import write
from tests.support.spark import orders
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

STRATEGY = CalculatedSuffix("OrderId", shards=4)
Connect = Callable[[], "DynamoDBServiceResource"]


def traced(connect: Connect, folder: Path) -> DynamoDBServiceResource:
    resource = connect()
    CapacityMeter(trace=Trace(folder, keys="plain")).attach(resource)
    return resource


def recorded(folder: Path) -> dict[str | None, float]:
    """Add up the write units by key; None is the total."""
    units: dict[str | None, float] = {}
    for row in read_traces(folder):
        units[row.key] = units.get(row.key, 0.0) + row.write_units * row.weight
    return units


def test_tasks_that_flush(spark: Any, resource: DynamoDBServiceResource, connect: Connect, tmp_path: Path) -> None:
    name = make_table(resource, ("Date", "S"), ("OrderId", "S")).name

    def put(rows: Iterator[Any]) -> Iterator[int]:
        trace = Trace(tmp_path, keys="plain")
        table = ShardedTable(connect().Table(name), STRATEGY)
        with CapacityMeter(trace=trace).attach(table):
            yield sum(1 for row in rows if table.put_item(Item=row.asDict()))
        trace.flush()

    assert sum(orders(spark, 120).rdd.mapPartitions(put).collect()) == 120
    found = recorded(tmp_path)
    assert found == {f"2014-07-{day:02}": 4.0 for day in range(1, 31)} | {None: 120.0}
    assert {row.shard for row in read_traces(tmp_path)} == {None, 1, 2, 3, 4}


def test_a_write_whose_tasks_do_not_flush(
    spark: Any, resource: DynamoDBServiceResource, connect: Connect, tmp_path: Path
) -> None:
    """Their threads write what is left: Spark kills its workers, later."""
    name = make_table(resource, ("Date", "S"), ("OrderId", "S")).name
    write(orders(spark, 120), table=name, strategy=STRATEGY, connect=partial(traced, connect, tmp_path), tasks=3)
    deadline = time.monotonic() + 30.0
    while recorded(tmp_path).get(None) != 120.0:
        assert time.monotonic() < deadline, recorded(tmp_path)
        time.sleep(0.5)
