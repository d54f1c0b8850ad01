"""What a load makes of partitions that refuse: all that they take, and little that they do not. In virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardkit.partitions import Partitions, SimulatedTable, Simulator

SCHEMA = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
ITEMS = 30_000
UNKNOWING = 17_000  # ten batches at a time for half a second
WHOLE = 2000
PROVISIONED = {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": WHOLE}}
ON_DEMAND = {"BillingMode": "PAY_PER_REQUEST"}
CAPPED = {**ON_DEMAND, "OnDemandThroughput": {"MaxReadRequestUnits": 1, "MaxWriteRequestUnits": WHOLE}}


def items(keys: int) -> Iterator[dict[str, str]]:
    """Return items sorted by partition key, equally many for each."""
    return ({"pk": f"U{number * keys // ITEMS:06}", "sk": str(number)} for number in range(ITEMS))


@pytest.mark.parametrize("description", [PROVISIONED, CAPPED, ON_DEMAND], ids=["provisioned", "capped", "on demand"])
@pytest.mark.parametrize("keys", [ITEMS, 400])
def test_all_that_partitions_take_and_little_that_they_do_not(description: dict[str, Any], keys: int) -> None:
    """Without a rate, once it is known how much they take."""
    described = {"TableName": "Messages", "KeySchema": SCHEMA, **description}
    table = SimulatedTable.described(described, count=4, burst_seconds=0, keeps_items=False)
    report = Simulator(table).load(items(keys))
    assert report.written == ITEMS
    taken = [sum(partition.taken["write"]) for partition in table.partitions.heat.by_range]
    whole = 4000 if description is ON_DEMAND else WHOLE
    least_seconds = max(max(taken) / 1000, ITEMS / whole) - 1  # what is kept of one is there at the beginning
    assert report.seconds <= 1.1 * least_seconds
    assert report.retried <= 0.2 * ITEMS + UNKNOWING
    assert (report.written + report.retried) / report.requests >= 20
    assert len(report.throttles_by_reason) > 1  # not only the unknown


def test_no_partition_waits_for_full_ones() -> None:
    """Sorted items fill the window with keys of full partitions, and what the others take is not held back by them."""
    partitions = Partitions(read_units=0, write_units=11_000, count=11, burst_seconds=0)
    table = SimulatedTable({"TableName": "Messages", "KeySchema": SCHEMA}, partitions, keeps_items=False)
    simulator = Simulator(table)
    loading = simulator.loading(items(ITEMS // 15), window=5000)
    simulator.run(loading)
    assert loading.read is not None
    assert loading.read.written >= 0.97 * 11_000 * (loading.read.seconds + 1)
