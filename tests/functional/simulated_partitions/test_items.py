"""Calls of single items: what is refused, and who sees it."""

from __future__ import annotations

import re
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws

from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.testing import VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.support.simulated import KEY_RANGE, SHARES, Simulate, order, stored, throttled
from tests.support.tables import make_table


def test_a_throttle_is_the_services_own(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=1, write_units=10)
    for number in range(10):
        orders.put_item(Item=order(number))
    error = throttled(lambda: orders.put_item(Item=order(10)))
    assert type(error).__name__ == "ProvisionedThroughputExceededException"
    assert error.response["Error"]["Code"] == "ProvisionedThroughputExceededException"
    assert error.response["Error"]["Message"].startswith("The level of configured provisioned throughput for the table")
    arn = orders.table_arn
    assert error.response["ThrottlingReasons"] == [{"reason": KEY_RANGE, "resource": arn}]
    metadata = error.response["ResponseMetadata"]
    assert metadata["HTTPStatusCode"] == 400
    assert re.fullmatch("[A-Z2-7]{52}", metadata["RequestId"])
    assert simulated.throttles == {KEY_RANGE: 1}
    # What was refused is not there; what goes later is.
    simulated.clock.sleep(0.1)
    orders.put_item(Item=order(11))
    assert throttle_reasons(throttled(lambda: orders.put_item(Item=order(12)))) == {KEY_RANGE}


def test_what_is_refused_never_reaches_the_engine(orders: Any, simulate: Simulate) -> None:
    with simulate_partitions(orders, partitions=1, write_units=1, clock=VirtualClock(), **SHARES):
        orders.put_item(Item=order(1))
        throttled(lambda: orders.put_item(Item=order(2)))
    assert stored(orders) == {"A001"}


def test_each_request_is_carried_out_once(orders: Any, simulate: Simulate) -> None:
    """All handlers of before-send are asked, whatever the first one answers: moto must not be asked twice."""
    simulate()
    key = {"Date": "2014-07-09", "OrderId": "A1"}
    for _ in range(3):
        orders.update_item(Key=key, UpdateExpression="ADD Number1 :one", ExpressionAttributeValues={":one": 1})
    assert orders.get_item(Key=key)["Item"]["Number1"] == 3


def test_on_demand(orders: Any, simulate: Simulate) -> None:
    simulate(partitions=1)
    orders.put_item(Item=order(0, size=400_000))
    orders.put_item(Item=order(1, size=400_000))
    orders.put_item(Item=order(2, size=200_000))
    error = throttled(lambda: orders.put_item(Item=order(3, size=100_000)))
    assert error.response["Error"]["Code"] == "ThrottlingException"
    assert throttle_reasons(error) == {KEY_RANGE}


def test_the_tables_total(orders: Any, simulate: Simulate) -> None:
    """With adaptive capacity a partition may use what others leave, but nobody more than there is."""
    simulate(partitions=4, write_units=10, adaptive_seconds=0)
    for number in range(10):
        orders.put_item(Item=order(number))
    error = throttled(lambda: orders.put_item(Item=order(10)))
    assert throttle_reasons(error) == {"TableWriteProvisionedThroughputExceeded"}


def test_botocores_own_retries_meet_it(clock: VirtualClock) -> None:
    """An attempt that is throttled is made again by botocore, with all that belongs to it, and then gets through."""
    with mock_aws():
        client = boto3.client(
            "dynamodb", region_name=REGION, config=Config(retries={"total_max_attempts": 3, "mode": "standard"})
        )
        table = make_table(boto3.resource("dynamodb", region_name=REGION), name="Orders")
        attempts: list[Any] = []

        def passes(request: Any, **_: Any) -> None:
            attempts.append(request)
            if len(attempts) == 3:
                clock.sleep(1.0)

        client.meta.events.register("request-created.dynamodb.PutItem", passes)
        with simulate_partitions(client, table.name, partitions=1, write_units=1, clock=clock, **SHARES) as simulated:
            client.put_item(TableName=table.name, Item={"pk": {"S": "a"}})
            del attempts[:]
            answer = client.put_item(TableName=table.name, Item={"pk": {"S": "b"}})
        assert answer["ResponseMetadata"]["RetryAttempts"] == 2
        assert len(attempts) == 3
        assert simulated.throttles == {KEY_RANGE: 2}
        assert table.scan()["Count"] == 2
