"""Load files into a sharded table, or export its items: a step of an EMR cluster (EMR 7 and later).

    spark-submit --deploy-mode cluster s3://bucket/emr_step.py load s3://bucket/orders/ --table Orders --shards 200
        --by OrderId --tasks 80 --write-units 40000

As a step: `aws emr add-steps --cluster-id j-… --steps Type=Spark,Name=load,Args=[…]`, with these arguments (without
`spark-submit`) separated by commas. `export` in the place of `load` writes the table's logical items as Parquet, with
the columns of --schema, or of a sample.

EMR allocates executors dynamically, so Spark does not know at the start how many tasks will run at once: give --tasks.
shardkit must be installed on all nodes, by a bootstrap action (`sudo python3.11 -m pip install shardkit[load,direct]`,
and --conf spark.pyspark.python=python3.11) or in a virtual environment that venv-pack has packed (--archives). Their
instance profile needs `dynamodb:DescribeTable`; to load, `dynamodb:BatchWriteItem` and `dynamodb:PutItem`; to export,
`dynamodb:Scan`.

Tested by spark-submit on one machine; not tried on EMR itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from shardkit import BulkLoadError, CalculatedSuffix
from shardkit.spark import read, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the step and return the exit code: 0 done, 1 items were not written."""
    parser = argparse.ArgumentParser(description="Load or export a sharded DynamoDB table.")
    parser.add_argument("action", choices=["load", "export"])
    parser.add_argument("where", help="Parquet files to load, or the folder to export to")
    parser.add_argument("--table", required=True)
    parser.add_argument("--shards", type=int, required=True, help="shards of a partition key")
    parser.add_argument("--by", required=True, help="the attribute that suffixes are calculated from")
    parser.add_argument("--tasks", type=int, required=True, help="as many as run at once")
    parser.add_argument("--write-units", type=float, help="of all tasks, a second")
    parser.add_argument("--read-units", type=float, help="of all tasks, a second")
    parser.add_argument("--last-by", help="load: of several rows of a key, the one with the largest value here wins")
    parser.add_argument("--schema", help="export: the columns as DDL, such as 'Date string, Total decimal(12,2)'")
    given = parser.parse_args(arguments)
    session = SparkSession.builder.appName(f"{given.action} {given.table}").getOrCreate()
    strategy = CalculatedSuffix(given.by, shards=given.shards)
    if given.action == "export":
        items = read(
            session,
            table=given.table,
            strategy=strategy,
            segments=given.tasks,
            schema=given.schema,
            read_units=given.read_units,
        )
        items.write.mode("overwrite").parquet(given.where)
        return 0
    try:
        report = write(
            session.read.parquet(given.where),
            table=given.table,
            strategy=strategy,
            tasks=given.tasks,
            write_units=given.write_units,
            last_by=given.last_by,
        )
    except BulkLoadError as error:
        print(f"not all was written: {error}")
        return 1
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
