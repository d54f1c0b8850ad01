"""Load Parquet files into a sharded table: the script of an AWS Glue job (Glue 5.0: Spark 3.5, Python 3.11).

Put this file into S3 as the job's script. The job's parameters:

    --additional-python-modules  shardkit[load,direct]     (or the wheel's s3:// address)
    --source       s3://bucket/orders/          Parquet, with one column per attribute
    --table        Orders
    --shards       200                          shards of a partition key
    --by           OrderId                      the attribute that suffixes are calculated from
    --write_units  40000                        of the whole job, a second
    --tasks        80                           as many as run at once: executors × their cores
    --state        s3://bucket/orders-load/     finished tasks, and the items that failed

A run that failed or was stopped is started again with the same parameters: tasks that were done are skipped. For new
data, give another --state. The job's role needs `dynamodb:BatchWriteItem`, `dynamodb:PutItem` and
`dynamodb:DescribeTable` on the table, and to read and write those prefixes of S3.

Tested by spark-submit with a stand-in of the modules awsglue, which exist in Glue only; not tried in Glue itself.
"""

from __future__ import annotations

import sys

from awsglue.context import GlueContext
from awsglue.job import Job
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext

from shardkit import CalculatedSuffix
from shardkit.spark import write

OPTIONS = ["JOB_NAME", "source", "table", "shards", "by", "write_units", "tasks", "state"]


def main() -> None:
    """Run the job; it fails if an item was not written."""
    given = getResolvedOptions(sys.argv, OPTIONS)
    context = GlueContext(SparkContext.getOrCreate())
    job = Job(context)
    job.init(given["JOB_NAME"], given)
    state = given["state"].rstrip("/")
    report = write(
        context.spark_session.read.parquet(given["source"]),
        table=given["table"],
        strategy=CalculatedSuffix(given["by"], shards=int(given["shards"])),
        write_units=float(given["write_units"]),
        tasks=int(given["tasks"]),
        checkpoint=f"{state}/checkpoint",
        dead_letters=f"{state}/failed",
    )
    print(report)
    job.commit()


if __name__ == "__main__":
    main()
