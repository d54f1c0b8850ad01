"""Record a hot day, ask how many shards it needs, shard the table, and record the day again.

    pip install 'shardkit[demo]'
    python examples/what_if.py

Nothing is sent to AWS: moto holds the table, shardkit simulates its partitions, and time is virtual. The flights of
9 January 2013 come within six seconds, each with a picture of 100 KB, among flights of other days.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable
from shardkit.capacity import Trace
from shardkit.cli.flights import fresh_table, read_flights
from shardkit.partitions import TracePlan, plan_trace
from shardkit.testing import VirtualClock, simulate_partitions

DAY = "2013-01-09"
PARTITIONS = 8
PER_SECOND = 18


def flights() -> Iterator[dict[str, Any]]:
    """Yield the flights of the day; after every eighth, one of another day."""
    others = iter([flight for flight in read_flights() if flight["Date"] != DAY][::8])
    for number, flight in enumerate(islice(read_flights(date=DAY), 90)):
        for one in chain([flight], [next(others)] if number % 8 == 0 else []):
            yield {**one, "Picture": b"x" * 100_000}


def record(table: Any, folder: Path) -> int:
    """Write the flights with a meter that records them; return how many were refused."""
    clock = VirtualClock()
    trace = Trace(folder, keys="plain")  # days are no personal data
    refused = 0
    with (
        simulate_partitions(table, partitions=PARTITIONS, write_units=20_000, read_units=1_000, clock=clock),
        CapacityMeter(trace=trace, clock=clock).attach(table),
    ):
        for flight in clock.pace(flights(), per_second=PER_SECOND):
            try:
                table.put_item(Item=flight)
            except ClientError:  # in production, botocore would try again
                refused += 1
    trace.flush()
    return refused


def main() -> tuple[TracePlan, TracePlan]:
    """Run the example; return what was planned before and after."""
    config = Config(retries={"total_max_attempts": 1})
    with tempfile.TemporaryDirectory() as folder, mock_aws():
        resource = boto3.resource("dynamodb", region_name="us-east-1", config=config)
        with fresh_table(resource, "Flights") as table:
            print(f"unsharded: {record(table, Path(folder) / 'before')} of the writes were refused\n")
        before = plan_trace(Path(folder) / "before", partitions=PARTITIONS)
        print(f"{before}\n")
        # Its line is for all keys: days are times, so the next hot one is not known in advance.
        shards = before.decisions[1] or 1
        with fresh_table(resource, "Flights") as table:
            sharded = ShardedTable(table, CalculatedSuffix("Flight", shards=shards))
            print(f"{before.line}: {record(sharded, Path(folder) / 'after')} of the writes were refused\n")
        after = plan_trace(Path(folder) / "after", partitions=PARTITIONS)
        print(after)
        return before, after


if __name__ == "__main__":
    main()
