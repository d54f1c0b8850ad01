"""A job for spark-submit: writes orders into a table of an engine, and prints what became of them as JSON.

Arguments: the engine's URL, the table, the number of orders, and the number of tasks.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from pyspark.sql import SparkSession

from shardkit import RandomSuffix
from shardkit.spark import write
from tests.support.spark import connect_to, orders

if __name__ == "__main__":
    url, table, count, tasks = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    report = write(
        orders(session, int(count)),
        table=table,
        strategy=RandomSuffix(5),
        tasks=int(tasks),
        load_id="orders",
        connect=partial(connect_to, url),
    )
    sys.stdout.write(json.dumps({"items": report.items, "written": report.written, "failed": report.failed}))
