"""Spark Connect: a session without a sparkContext, in its own process, because a process has one kind of session."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from shardkit import RandomSuffix, ShardedTable
from tests.support.engines import ServerName
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

pytestmark = pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs pyspark[connect]")

SCRIPT = """
import sys
from functools import partial
from pyspark.sql import SparkSession
from shardkit import ConfigurationError, RandomSuffix
from shardkit.spark import read, write
from tests.support.spark import CONFIGURATION, connect_to

builder = SparkSession.builder.remote("local[2]")
for name, value in CONFIGURATION.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
to = {"table": sys.argv[2], "strategy": RandomSuffix(5), "connect": partial(connect_to, sys.argv[1])}
orders = session.range(0, 600).selectExpr("concat('D', id % 3) AS Date", "id % 300 AS OrderId", "id AS Version")
try:
    write(orders, **to)
except ConfigurationError as error:
    print(error)
for _ in range(2):
    print(write(orders, last_by="Version", tasks=3, write_units=30_000, load_id="monday", **to).items)
print(read(session, segments=2, **to).count())
session.stop()
"""


def test_frames_without_a_context(
    environment: None,
    engine_endpoint: Callable[[ServerName], str],
    resource: DynamoDBServiceResource,
) -> None:
    table = make_table(resource, ("Date", "S"), ("OrderId", "N"))
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, engine_endpoint("dynoxide"), table.name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    refused, *counts = ran.stdout.splitlines()
    assert refused.startswith("tasks: must be given, because this session has no sparkContext")
    assert counts == ["600", "600", "300"]
    assert all(item["Version"] >= 300 for item in ShardedTable(table, RandomSuffix(5)).scan_items())
