"""A pass whose requests other processes send."""

from __future__ import annotations

import pytest

from shardkit import ConfigurationError, ShardedTable, bulk_load
from shardkit.passes import update


def test_updated_by_two_processes(orders: ShardedTable) -> None:
    bulk_load(orders, [{"Date": "d", "OrderId": number, "n": number} for number in range(20)])
    one = {":one": 1}
    with pytest.raises(ConfigurationError, match="processes: must be"):
        update(orders, "SET n = n + :one", ExpressionAttributeValues=one, processes=0)
    report = update(
        orders, "SET n = n + :one", ExpressionAttributeValues=one, processes=2, segments=2, write_units=None
    )
    assert (report.changed, report.failed) == (20, 0)
    assert sorted(item["n"] for item in orders.scan_items()) == list(range(1, 21))
