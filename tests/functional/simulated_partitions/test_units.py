"""The units that calls take, as the rules have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.testing import VirtualClock
from tests.support.simulated import KEY, Simulate, order, throttled


def test_a_write_costs_by_the_larger_of_before_and_after(
    orders: Any, simulate: Simulate, units: Callable[..., float]
) -> None:
    simulated = simulate(partitions=1, write_units=1000)
    assert units(orders.put_item, Item=order(1, size=5000)) == 5
    assert units(orders.put_item, Item=order(1)) == 5
    assert units(orders.put_item, Item=order(1)) == 1
    update = {"UpdateExpression": "SET Note = :x", "ExpressionAttributeValues": {":x": "x" * 3000}}
    assert units(orders.update_item, Key=KEY, **update) == 3
    assert units(orders.update_item, Key=KEY, UpdateExpression="REMOVE Note") == 3
    assert units(orders.delete_item, Key=KEY) == 1
    assert units(orders.delete_item, Key=KEY) == 1
    (hot,) = simulated.hottest_keys()
    assert (hot.key, hot.write_units, hot.throttled_write_units) == ("2014-07-09", 19, 0)
    assert simulated.hottest_partitions(1)[0].write_units == 19


def test_units_of_indexes(orders: Any, simulate: Simulate) -> None:
    simulate()
    answer = orders.put_item(Item=order(1, Customer="C1", Total=5), ReturnConsumedCapacity="INDEXES")
    assert answer["ConsumedCapacity"] == {
        "TableName": "Orders",
        "CapacityUnits": 3.0,
        "Table": {"CapacityUnits": 1.0},
        "LocalSecondaryIndexes": {"ByTotal": {"CapacityUnits": 1.0}},
        "GlobalSecondaryIndexes": {"ByCustomer": {"CapacityUnits": 1.0}},
    }


def test_who_does_not_ask_is_not_told(orders: Any, simulate: Simulate) -> None:
    simulate()
    assert "ConsumedCapacity" not in orders.put_item(Item=order(1))
    keys: Any = {"Orders": {"Keys": [KEY]}}
    assert "ConsumedCapacity" not in orders.meta.client.batch_get_item(RequestItems=keys)


def test_a_failed_condition_costs(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=1, write_units=100)
    orders.put_item(Item=order(1, size=5000))
    condition = "attribute_not_exists(OrderId)"
    error = throttled(lambda: orders.put_item(Item=order(1), ConditionExpression=condition))
    assert error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    throttled(lambda: orders.delete_item(Key={**KEY, "OrderId": "B"}, ConditionExpression="attribute_exists(OrderId)"))
    assert simulated.hottest_partitions(1)[0].write_units == 5 + 5 + 1


def test_what_the_engine_refuses_takes_nothing(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=1, write_units=10)
    for item in ({"Date": "2014-07-09"}, {"Date": 5, "OrderId": "A"}, {"Date": "", "OrderId": "A"}):
        error = throttled(partial(orders.put_item, Item=item))
        assert error.response["Error"]["Code"] == "ValidationException"
    wrong = {"UpdateExpression": "SET Amount = Amount + :x", "ExpressionAttributeValues": {":x": "text"}}
    orders.put_item(Item=order(1, Amount=1))
    throttled(lambda: orders.update_item(Key=KEY, **wrong))
    assert simulated.hottest_partitions(1)[0].write_units == 1


def test_reads(orders: Any, simulate: Simulate, units: Callable[..., float]) -> None:
    simulated = simulate(partitions=1, read_units=1000)
    orders.put_item(Item=order(1, size=9000))
    assert units(orders.get_item, Key=KEY) == 1.5
    assert units(orders.get_item, Key=KEY, ConsistentRead=True) == 3
    assert units(orders.get_item, Key=KEY, ProjectionExpression="OrderId") == 1.5
    assert units(orders.get_item, Key={**KEY, "OrderId": "none"}) == 0.5
    assert simulated.hottest_partitions(1)[0].read_units == 6.5


def test_reads_are_a_debt(orders: Any, simulate: Simulate, clock: VirtualClock) -> None:
    """What a read costs is known after it: it goes while anything is left, and those after it pay."""
    simulate(partitions=1, read_units=10, write_units=1000)
    orders.put_item(Item=order(1, size=200_000))
    clock.sleep(10.0)
    assert orders.get_item(Key=KEY)["Item"]["Note"] == "x" * 200_000
    assert throttle_reasons(throttled(lambda: orders.get_item(Key=KEY))) == {"TableReadKeyRangeThroughputExceeded"}
    clock.sleep(1.4)
    throttled(lambda: orders.get_item(Key=KEY))
    clock.sleep(0.3)
    orders.get_item(Key=KEY)


def query(**more: Any) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "#d = :d",
        "ExpressionAttributeNames": {"#d": "Date", **more.pop("names", {})},
        "ExpressionAttributeValues": {":d": "2014-07-09", **more.pop("values", {})},
        **more,
    }


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 2.5),
        ({"ConsistentRead": True}, 5),
        ({"Limit": 1}, 0.5),
        ({"Select": "COUNT"}, 2.5),
        ({"ProjectionExpression": "#o", "names": {"#o": "OrderId"}}, 2.5),
        ({"FilterExpression": "Customer = :c", "values": {":c": "C1"}}, 2.5),
        ({"FilterExpression": "Customer = :c", "values": {":c": "none"}, "Limit": 2}, 1),
    ],
)
def test_a_query_costs_what_it_evaluates(
    orders: Any, simulate: Simulate, units: Callable[..., float], more: dict[str, Any], expected: float
) -> None:
    for number in range(5):
        orders.put_item(Item=order(number, size=4000, Customer=f"C{number}"))
    simulated = simulate(partitions=1, read_units=100)
    assert units(orders.query, **query(**more)) == expected
    assert simulated.hottest_partitions(1)[0].read_units == expected


def test_queries_of_indexes_and_scans(orders: Any, simulate: Simulate, units: Callable[..., float]) -> None:
    for number in range(5):
        orders.put_item(Item=order(number, f"2014-07-0{number}", size=4000, Customer="C1", Total=number))
    simulated = simulate(partitions=4, read_units=400, indexes={"ByCustomer": {"partitions": 2, "read_units": 50}})
    of_customer = {
        "IndexName": "ByCustomer",
        "KeyConditionExpression": "Customer = :c",
        "ExpressionAttributeValues": {":c": "C1"},
    }
    assert units(orders.query, **of_customer) == 0.5
    (hot,) = simulated.hottest_keys()
    assert (hot.index, hot.key, hot.read_units) == ("ByCustomer", "C1", 0.5)
    local = query(IndexName="ByTotal")
    local["ExpressionAttributeValues"][":d"] = "2014-07-03"
    assert units(orders.query, **local) == 0.5
    assert units(orders.query, **local, Select="ALL_ATTRIBUTES") == 0.5 + 0.5
    assert units(orders.scan) == 2.5


def test_a_scan_takes_of_the_partitions_that_it_reads(orders: Any, simulate: Simulate) -> None:
    for number in range(40):
        orders.put_item(Item=order(number, f"day {number}", size=900))
    simulated = simulate(partitions=4, read_units=400)
    orders.scan()
    read = [hot.read_units for hot in simulated.hottest_partitions(4)]
    assert sum(read) == pytest.approx(5.0, abs=0.01)
    assert all(read)
