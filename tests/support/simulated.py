"""Orders, and what tests of simulated partitions check of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.testing import SimulatedPartitions

KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
SHARES: dict[str, Any] = {"adaptive_seconds": None, "burst": 0}
"""Without adaptive capacity and burst: each partition has its share, and keeps one second of it."""
KEY = {"Date": "2014-07-09", "OrderId": "A001"}

Simulate = Callable[..., SimulatedPartitions]
"""Starts a simulation of a test's table."""


def order(number: int, date: str = "2014-07-09", size: int = 0, **more: Any) -> dict[str, Any]:
    return {"Date": date, "OrderId": f"A{number:03}", **({"Note": "x" * size} if size else {}), **more}


def stored(table: Any) -> set[str]:
    return {str(item["OrderId"]) for item in table.scan(ConsistentRead=True)["Items"]}


def throttled(call: Callable[[], object]) -> Any:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value
