"""What the benches ``staging`` and ``spark`` simulate: orders of items, and the partitions that they can use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.sorted_orders import PARTITIONS, SortedOrders, ceiling, mixed, partition_of
from benchmarks.spark import BY_KEY, MIXED, REPARTITIONED, SOURCE_PARTITION, WAYS, effective_keys, rows_of
from benchmarks.spark import simulated as tasks_of
from benchmarks.spark_job import cpu_of_processes
from benchmarks.stage_job import lines
from benchmarks.staging import simulated
from shardkit import CalculatedSuffix

ORDERS = SortedOrders(4, 6, 3)


def test_an_order_is_stored_where_the_strategy_says() -> None:
    strategy = CalculatedSuffix("OrderId", shards=3)
    written = [ORDERS.write(place) for place in range(ORDERS.items)]
    for write in written:
        stored, sort = write.identity
        key = str(stored).partition(".")[0]
        assert stored == strategy.physical_key(key, strategy.shard_of(key, {"OrderId": sort}))
        assert json.loads(write.body) == {"PutRequest": {"Item": {"Key": {"S": stored}, "OrderId": {"S": sort}}}}
    assert [partition_of(str(write.identity[0])) for write in written] == list(ORDERS.partitions())


def test_the_source_of_a_stage_is_in_the_order_of_its_keys_and_has_the_simulated_orders() -> None:
    items = [json.loads(line) for line in lines(ORDERS)]
    places = [(item["Key"], item["OrderId"]) for item in items]
    assert places == sorted(set(places))
    strategy = CalculatedSuffix("OrderId", shards=3)
    stored = [strategy.physical_key(key, strategy.shard_of(key, {"OrderId": sort})) for key, sort in places]
    assert stored == [ORDERS.write(place).identity[0] for place in range(ORDERS.items)]
    assert len({item["Trace"] for item in items}) == len(items)


ONE_BY_ONE = bytes(place for place in range(PARTITIONS) for _ in range(100))
EVENLY = bytes(range(PARTITIONS)) * 100


@pytest.mark.parametrize(
    ("objects", "at_once", "look_ahead", "share"),
    [
        ([ONE_BY_ONE], 1, 1, 1 / PARTITIONS),
        ([ONE_BY_ONE], 1, 2000, 1),
        ([bytes([place]) * 100 for place in range(PARTITIONS)], 1, 1, 1 / PARTITIONS),
        ([bytes([place]) * 100 for place in range(PARTITIONS)], PARTITIONS, 10, 1),
        ([EVENLY], 1, PARTITIONS, 1),
        ([bytes(10), bytes(30)], 2, 100, 1 / PARTITIONS),
    ],
)
def test_a_reader_writes_what_it_holds_to_all_partitions_at_once(
    objects: list[bytes], at_once: int, look_ahead: int, share: float
) -> None:
    assert simulated(objects, at_once, look_ahead=look_ahead) == pytest.approx(share)


def test_the_busiest_partition_is_the_ceiling() -> None:
    items = bytes([1] * 10 + [2] * 30)
    assert ceiling(items) == 40 / PARTITIONS / 30
    assert simulated([items], 1, look_ahead=40) == pytest.approx(ceiling(items))


ROWS = SortedOrders(3, SOURCE_PARTITION // 2, 1)


@pytest.mark.parametrize("way", WAYS)
def test_each_row_is_in_one_task(way: str) -> None:
    dealt = rows_of(way, ROWS, 4)
    assert sorted(place for task in dealt for place in task) == list(range(ROWS.items))


def test_tasks_have_rows_in_the_order_of_spark() -> None:
    repartitioned = rows_of(REPARTITIONED, ROWS, 4)
    for task in repartitioned:  # of one partition of the source after the other, in no order within it
        assert [place // SOURCE_PARTITION for place in task] == sorted(place // SOURCE_PARTITION for place in task)
        assert any(later < place for place, later in pairwise(task))
    by_key = rows_of(BY_KEY, ROWS, 2)
    assert all(task == sorted(task) for task in by_key)
    keys = [{place // ROWS.orders for place in task} for task in by_key]
    assert keys[0] | keys[1] == {0, 1, 2}
    assert not keys[0] & keys[1]


def test_effective_keys_are_those_in_the_windows() -> None:
    rows = SortedOrders(20, 1000, 1)
    assert effective_keys(MIXED, rows, 2) == pytest.approx(20, abs=0.5)
    assert effective_keys(BY_KEY, rows, 1) == 1


def test_mixed_tasks_use_more_of_the_table() -> None:
    rows = SortedOrders(4, 4000, 5)
    mixed_, by_key = (tasks_of(way, rows, 1) for way in (MIXED, BY_KEY))
    assert by_key.percent < mixed_.percent < 100 * ceiling(rows.partitions())
    assert sorted(mixed(9)) == list(range(9)) != mixed(9)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_cpu_of_processes_has_those_below_and_what_they_waited_for() -> None:
    burn = "sum(range(8_000_000))"
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{burn}']); print(flush=True); input()"
    before = cpu_of_processes(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", below], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        after = cpu_of_processes(os.getpid())
        apart = cpu_of_processes(os.getpid(), without=[process.pid])
        process.communicate("\n")
    spent = sum(after.values()) - sum(before.values())
    assert 0.05 < spent < 5
    assert sum(apart.values()) < sum(after.values()) - 0.05
    assert sum(cpu_of_processes(os.getpid()).values()) < sum(after.values())
