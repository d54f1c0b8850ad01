"""What a load makes of partitions that refuse: all that they take, and little that they do not. In virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardkit.partitions import SimulatedTable, Simulator

ITEMS = 40_000
WHOLE = 2000
PROVISIONED = {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": WHOLE}}
ON_DEMAND = {"BillingMode": "PAY_PER_REQUEST"}
CAPPED = {**ON_DEMAND, "OnDemandThroughput": {"MaxReadRequestUnits": 1, "MaxWriteRequestUnits": WHOLE}}


def items(keys: int) -> Iterator[dict[str, str]]:
    """Give items sorted by partition key, as many of each."""
    return ({"pk": f"U{number * keys // ITEMS:06}", "sk": str(number)} for number in range(ITEMS))


@pytest.mark.parametrize("description", [PROVISIONED, CAPPED, ON_DEMAND], ids=["provisioned", "capped", "on demand"])
@pytest.mark.parametrize("keys", [ITEMS, 400])
def test_all_that_partitions_take_and_little_that_they_do_not(description: dict[str, Any], keys: int) -> None:
    """Without a rate: the first half a second, in which nothing is known, is a large part of what is refused."""
    schema = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
    described = {"TableName": "Messages", "KeySchema": schema, **description}
    table = SimulatedTable.described(described, count=4, burst_seconds=0, keeps_items=False)
    report = Simulator(table).load(items(keys))
    assert report.written == ITEMS
    taken = [sum(partition.taken["write"]) for partition in table.partitions.heat.by_range]
    whole = 4000 if description is ON_DEMAND else WHOLE
    least_seconds = max(max(taken) / 1000, ITEMS / whole) - 1  # what is kept of one is there at the beginning
    assert report.seconds <= 1.1 * least_seconds
    assert report.retried <= ITEMS / 2
    assert (report.written + report.retried) / report.requests >= 20
    assert report.throttles_by_reason["unknown"] <= report.throttles / 2
