"""What DescribeTable says of throughput, as pacing and estimates read it."""

from __future__ import annotations

from typing import Any

import pytest

from shardkit.bulk.pacing import WriteRate
from shardkit.dynamodb.schema import throughput_of

PROVISIONED = {"ProvisionedThroughput": {"ReadCapacityUnits": 5000, "WriteCapacityUnits": 2000}}
NONE_PROVISIONED = {"ProvisionedThroughput": {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}}
WARM = {"WarmThroughput": {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4000, "Status": "ACTIVE"}}


def maximum(read: int, write: int) -> dict[str, Any]:
    return {"OnDemandThroughput": {"MaxReadRequestUnits": read, "MaxWriteRequestUnits": write}}


def test_all_that_is_said() -> None:
    found = throughput_of({**PROVISIONED, **WARM, **maximum(600, 500)})
    assert found == ((5000, 2000), (12_000, 4000), (600, 500))


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"ProvisionedThroughput": None, "WarmThroughput": {}, "OnDemandThroughput": None},
        {**NONE_PROVISIONED, **maximum(-1, -1)},
    ],
)
def test_what_is_not_said(described: dict[str, Any]) -> None:
    assert throughput_of(described) == ((None, None), (None, None), (None, None))


@pytest.mark.parametrize(
    ("described", "units"),
    [
        ({**PROVISIONED, **WARM, **maximum(600, 500)}, 2000),
        ({**NONE_PROVISIONED, **WARM, **maximum(-1, 500)}, 500),
        ({**NONE_PROVISIONED, **WARM, **maximum(-1, 9000)}, 4000),
        ({**NONE_PROVISIONED, **WARM, **maximum(600, -1)}, 4000),
        (maximum(600, 500), 500),
        (NONE_PROVISIONED, None),
    ],
)
def test_write_units_that_a_share_is_of(described: dict[str, Any], units: float | None) -> None:
    rate = WriteRate.of("100%", described)
    assert (rate.units, rate.worth, rate.error is None) == (units, {}, units is not None)
