"""simulate_partitions in front of moto, on a table of orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from moto import mock_aws

from shardkit.testing import SimulatedPartitions, VirtualClock, simulate_partitions
from tests.support.simulated import SHARES, Simulate
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.fixture
def once(boto3_session: boto3.Session) -> Iterator[DynamoDBServiceResource]:
    """A resource whose client makes each call once."""
    with mock_aws():
        yield boto3_session.resource("dynamodb", config=Config(retries={"total_max_attempts": 1}))


@pytest.fixture
def orders(once: DynamoDBServiceResource) -> Any:
    return make_table(
        once,
        ("Date", "S"),
        ("OrderId", "S"),
        local_indexes=[LocalIndex("ByTotal", ("Total", "N"), "KEYS_ONLY")],
        global_indexes=[GlobalIndex("ByCustomer", ("Customer", "S"), projection="KEYS_ONLY")],
        name="Orders",
    )


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def simulate(orders: Any, clock: VirtualClock) -> Iterator[Simulate]:
    """Begins a simulation on the table's client; it ends with the test."""
    begun: list[SimulatedPartitions] = []

    def begin(**options: Any) -> SimulatedPartitions:
        simulated = simulate_partitions(orders, clock=clock, **{**SHARES, **options}).__enter__()
        begun.append(simulated)
        return simulated

    yield begin
    for simulated in begun:
        simulated.__exit__(None, None, None)


@pytest.fixture
def units(orders: Any) -> Callable[..., float]:
    """Gives the units of a call, as its answer says."""

    def of(call: Callable[..., Any], **params: Any) -> float:
        consumed = call(**params, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]
        assert consumed["TableName"] == "Orders"
        total: float = consumed["CapacityUnits"]
        return total

    return of
