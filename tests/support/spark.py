"""How tests run Spark: small, and with tasks that reach an engine of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

CONFIGURATION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def connect_to(url: str) -> DynamoDBServiceResource:
    return boto3.resource(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )


def order(number: int) -> dict[str, Any]:
    return {"Date": f"2014-07-{number % 30 + 1:02}", "OrderId": f"A{number:06}", "Total": number * 7 % 1000}


def orders(session: Any, count: int) -> Any:
    """The frame of the first orders, computed by its tasks."""
    from pyspark.sql import functions as f

    number = f.col("id")
    return session.range(0, count, 1, 4).select(
        f.format_string("2014-07-%02d", number % 30 + 1).alias("Date"),
        f.format_string("A%06d", number).alias("OrderId"),
        (number * 7 % 1000).alias("Total"),
    )


def submit(job: Path, *arguments: str, master: str = "local[2]", **configuration: str) -> subprocess.Popen[str]:
    """Start spark-submit, in the environment of the fixture ``environment``."""
    settings = {**CONFIGURATION, **{name.replace("_", "."): value for name, value in configuration.items()}}
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    program = Path(sys.executable).parent / "spark-submit"
    return subprocess.Popen(
        [program, "--master", master, *options, job, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def descendants(process: int) -> dict[int, str]:
    """The command line of each process that a process has started, and those have started."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    found = {process: ""}
    for pid, parent, command in rows:  # a parent is listed before its children, unless numbers have wrapped around
        if int(parent) in found:
            found[int(pid)] = command
    return found
