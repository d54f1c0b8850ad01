"""Test that an access pattern, at a rate, is not throttled. One design passes, one does not.

pip install 'shardkit[testing]'
pytest examples/test_hot_day.py                       over moto
pytest examples/test_hot_day.py --runxfail            shows how a hot key's test fails, and its message
pytest examples/test_hot_day.py --dynamodb-endpoint=http://localhost:8000       on DynamoDB Local

shardkit installs the fixtures dynamodb_table and simulated_partitions. Time is virtual: half a minute of load takes
only as long as its calls do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from shardkit.testing import DynamoDBTableFixture, SimulatedPartitionsFixture

PER_SECOND = 4
SECONDS = 30
TABLE: dict[str, Any] = {"partitions": 8, "write_units": 8000, "read_units": 8000}


def all_scans() -> Iterator[dict[str, Any]]:
    """Yield what a scanner writes: four pictures of 300 KB per second, all under the day's key."""
    for number in range(SECONDS * PER_SECOND):
        yield {"Date": "2014-07-09", "ScanId": f"{number:05}", "Picture": b"x" * 300_000}


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="one partition serves 1,000 write units a second")
def test_all_scans_of_a_day_under_one_key(
    dynamodb_table: DynamoDBTableFixture, simulated_partitions: SimulatedPartitionsFixture
) -> None:
    """All scans, 1,172 write units per second, go to one partition."""
    scans = dynamodb_table("Date", "ScanId")
    simulated = simulated_partitions(scans, **TABLE)
    simulated.load(lambda scan: scans.put_item(Item=scan), all_scans(), per_second=PER_SECOND)
    simulated.assert_not_throttled()


@pytest.fixture
def scans(dynamodb_table: DynamoDBTableFixture) -> ShardedTable:
    """Return a table with 50 shards per day."""
    return ShardedTable(dynamodb_table("Date", "ScanId"), CalculatedSuffix("ScanId", shards=50))


def test_spread_over_shards(scans: ShardedTable, simulated_partitions: SimulatedPartitionsFixture) -> None:
    """The same scans, over 50 shards, which a hash assigns to the partitions."""
    simulated = simulated_partitions(scans, **TABLE)
    simulated.load(lambda scan: scans.put_item(Item=scan), all_scans(), per_second=PER_SECOND)
    simulated.assert_not_throttled()


def test_a_nightly_load_is_done_in_time(scans: ShardedTable, simulated_partitions: SimulatedPartitionsFixture) -> None:
    """A load adapts its pace to throttles, so this test checks the time that it takes."""
    simulated = simulated_partitions(scans, **TABLE)
    report = bulk_load(scans, islice(all_scans(), 100))
    assert report.written == 100  # noqa: PLR2004 - as many as were given
    assert report.seconds < SECONDS / 2
    # A merged read returns all items in order.
    ids = [scan["ScanId"] for scan in scans.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09"))]
    assert ids == sorted(ids)
    assert len(ids) == report.written
    assert simulated.hottest_partitions(1)[0].write_units < report.write_units / 2
