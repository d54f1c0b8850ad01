"""A write on a cluster of two executors, of which one is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import RandomSuffix, ShardedTable
from shardkit.spark import write
from tests.support.engines import ServerName
from tests.support.spark import descendants, order, orders, submit
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

ORDERS = 60_000
STRATEGY = RandomSuffix(5)
JOB = Path(__file__).parent / "jobs" / "write_orders.py"
SECONDS = 240.0


def stored(table: Any) -> int:
    """What is stored now: dynoxide counts at once, not every six hours."""
    count: int = table.meta.client.describe_table(TableName=table.name)["Table"]["ItemCount"]
    return count


def shown(table: Any) -> list[tuple[dict[str, Any], int]]:
    """The logical items and their shards, in the order of their numbers."""
    rows = ShardedTable(table, STRATEGY, transport="direct").scan_items(ReturnShards=True)
    return sorted(rows, key=lambda row: str(row[0]["OrderId"]))


@pytest.mark.usefixtures("environment")
def test_an_executor_is_killed(
    spark: Any,
    connect: Callable[[], DynamoDBServiceResource],
    resource: DynamoDBServiceResource,
    engine_endpoint: Callable[[ServerName], str],
) -> None:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    job = submit(JOB, engine_endpoint("dynoxide"), table.name, str(ORDERS), "8", master="local-cluster[2,1,1024]")
    try:
        deadline = time.monotonic() + SECONDS
        while (written := stored(table)) < ORDERS // 3:
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline, f"{written} written"
            time.sleep(0.1)
        executors = [pid for pid, command in descendants(job.pid).items() if "CoarseGrainedExecutorBackend" in command]
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        output, log = job.communicate(timeout=SECONDS)
    finally:
        job.kill()
    assert job.returncode == 0, log
    assert written < ORDERS
    assert "Lost executor" in log
    assert json.loads(output.splitlines()[-1]) == {"items": ORDERS, "written": ORDERS, "failed": 0}
    # By place, random suffixes of repeated tasks would be drawn anew: thousands of copies under other shards.
    first = shown(table)
    assert [item for item, _ in first] == [order(number) for number in range(ORDERS)]
    assert {shard for _, shard in first} == set(range(1, 6))
    report = write(
        orders(spark, ORDERS), table=table.name, strategy=STRATEGY, tasks=2, load_id="orders", connect=connect
    )
    assert (report.written, report.failed) == (ORDERS, 0)
    assert shown(table) == first
