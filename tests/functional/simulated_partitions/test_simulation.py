"""Where a simulation begins and ends, its indexes, and what it says."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from shardkit import ConfigurationError, UnsupportedOperationError
from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.testing import VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.support.simulated import KEY, KEY_RANGE, SHARES, Simulate, order, throttled
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource


# -- where it begins and ends


def test_the_time_is_the_machines_where_no_clock_is_given(orders: Any) -> None:
    """One unit in 100 seconds: it is owed when the next call comes, however slow the machine is."""
    with simulate_partitions(orders, partitions=1, write_units=0.01, **SHARES) as simulated:
        orders.put_item(Item=order(1))
        throttled(lambda: orders.put_item(Item=order(2)))
        assert simulated.clock() == pytest.approx(time.monotonic(), abs=60)


def test_outside_of_it_calls_go_by(orders: Any, simulate: Simulate) -> None:
    simulated = simulate_partitions(orders, partitions=1, write_units=1, clock=VirtualClock(), **SHARES)
    with pytest.raises(ConfigurationError, match="not started; enter it"):
        str(simulated)
    with simulated:
        assert str(simulated) == "Orders: not throttled"
        orders.put_item(Item=order(1))
        throttled(lambda: orders.put_item(Item=order(2)))
    for number in range(5):
        orders.put_item(Item=order(number))
    assert simulated.throttles == {KEY_RANGE: 1}


def test_other_clients_and_other_calls_go_by(orders: Any, simulate: Simulate) -> None:
    simulate(partitions=1, write_units=1)
    other = boto3.resource("dynamodb", region_name=REGION).Table("Orders")
    for number in range(5):
        other.put_item(Item=order(number))
    client = orders.meta.client
    assert client.list_tables()["TableNames"] == ["Orders"]
    assert client.describe_table(TableName="Orders")["Table"]["TableName"] == "Orders"


def test_partiql_is_refused(orders: Any, simulate: Simulate) -> None:
    simulate()
    with pytest.raises(UnsupportedOperationError, match="PartiQL"):
        orders.meta.client.execute_statement(Statement='SELECT * FROM "Orders"')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"client": 5}, "got int"),
        ({"client": "client"}, "table: must be the table's name, got None"),
        ({"table": 5}, "table: must be the table's name, got 5"),
        ({"partitions": 0}, "partitions: must be an integer >= 1 .*, got 0"),
        ({"write_units": -1}, "write_units: must be a number >= 0 .*, got -1"),
        ({"burst": -1}, "burst: must be a number >= 0 .*, got -1"),
        ({"adaptive_seconds": "soon"}, "adaptive_seconds: must be a number >= 0 .*, got 'soon'"),
        ({"indexes": {"Misspelt": {}}}, r"^indexes: got \['Misspelt'\].*\['ByCustomer'\]"),
        ({"indexes": {"ByCustomer": {"units": 5}}}, r"^indexes\['ByCustomer'\]: must be a mapping with some of"),
        ({"indexes": ["ByCustomer"]}, r"^indexes: must be options by index name.*, got \['ByCustomer'\]"),
        ({"clock": time.monotonic}, "^clock: must be a VirtualClock or RealClock, got"),
        ({"clock": False}, "clock: must be a VirtualClock or RealClock, got False"),
    ],
)
def test_arguments_that_cannot_work(orders: Any, arguments: dict[str, Any], says: str) -> None:
    client = arguments.pop("client", orders)
    if client == "client":
        client = orders.meta.client
    with pytest.raises(ConfigurationError, match=says), simulate_partitions(client, **arguments):
        pass


def test_the_same_table_twice(orders: Any, simulate: Simulate, clock: VirtualClock) -> None:
    simulate()
    with pytest.raises(ConfigurationError, match="already"), simulate_partitions(orders, clock=clock):
        pass
    with pytest.raises(ConfigurationError, match="the client is already on"), simulate_partitions(orders):
        pass


def test_one_simulation_that_is_entered_twice_goes_on(orders: Any, clock: VirtualClock) -> None:
    with simulate_partitions(orders, clock=clock) as simulated:
        with pytest.raises(ConfigurationError, match="already"), simulated:
            pass
        orders.put_item(Item=order(1))
        assert simulated.hottest_keys(1)[0].write_units == 1


def test_two_tables_in_the_machines_time(once: DynamoDBServiceResource, orders: Any) -> None:
    other = make_table(once, ("Date", "S"), name="Others")
    with simulate_partitions(orders), simulate_partitions(other) as simulated:
        other.put_item(Item={"Date": "2014-07-09"})
    assert simulated.hottest_keys(1)[0].write_units == 1


def test_a_table_that_is_not_there(orders: Any) -> None:
    with (
        pytest.raises(orders.meta.client.exceptions.ResourceNotFoundException),
        simulate_partitions(orders.meta.client, "Nowhere"),
    ):
        pass


def test_aws_itself_is_refused(orders: Any, clock: VirtualClock) -> None:
    """A client of a table that moto once was asked for: outside of mock_aws it would go to AWS."""
    simulated = simulate_partitions(orders, clock=clock)
    simulated.__enter__()
    from moto.core.models import botocore_stubber

    botocore_stubber.enabled = False
    try:
        with pytest.raises(ConfigurationError, match="does not go to AWS"):
            orders.put_item(Item=order(1))
    finally:
        botocore_stubber.enabled = True
        simulated.__exit__(None, None, None)


# -- indexes


def test_a_hot_index_throttles_the_writes(orders: Any, simulate: Simulate) -> None:
    """The guide's back-pressure: the table's partitions are cold, and one customer is hot."""
    simulated = simulate(partitions=4, write_units=4000, indexes={"ByCustomer": {"partitions": 1, "write_units": 3}})
    for number in range(3):
        orders.put_item(Item=order(number, f"day {number}", Customer="C1"))
    error = throttled(lambda: orders.put_item(Item=order(3, "day 3", Customer="C1")))
    assert throttle_reasons(error) == {"IndexWriteKeyRangeThroughputExceeded"}
    reasons: Any = error.response["ThrottlingReasons"]
    assert reasons[0]["resource"] == f"{orders.table_arn}/index/ByCustomer"
    orders.put_item(Item=order(4, "day 4"))
    hot = simulated.hottest_keys(1)[0]
    assert (hot.index, hot.key, hot.throttled_write_units) == ("ByCustomer", "C1", 1)
    with pytest.raises(AssertionError, match="Key 'C1' of Orders ByCustomer was throttled most"):
        simulated.assert_not_throttled()


def test_an_entry_that_moves_is_paid_in_both_places(orders: Any, simulate: Simulate) -> None:
    orders.put_item(Item=order(1, Customer="C1"))
    simulated = simulate(partitions=1, write_units=100)
    update = {"UpdateExpression": "SET Customer = :c", "ExpressionAttributeValues": {":c": "C2"}}
    answer = orders.update_item(Key=KEY, **update, ReturnConsumedCapacity="INDEXES")
    assert answer["ConsumedCapacity"]["GlobalSecondaryIndexes"] == {"ByCustomer": {"CapacityUnits": 2.0}}
    by_key = {hot.key: hot.write_units for hot in simulated.hottest_keys() if hot.index}
    assert by_key == {"C1": 1.0, "C2": 1.0}


# -- what it says


def test_it_prints_what_was_hot(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=4, write_units=40)
    orders.put_item(Item=order(0, "cold"))
    simulated.assert_not_throttled()
    assert str(simulated).startswith("Orders: not throttled\n")
    for number in range(15):
        simulated.load(lambda item: orders.put_item(Item=item), [order(number)], per_second=1000)
    text = str(simulated)
    assert "Orders: throttled 5 times (5 TableWriteKeyRangeThroughputExceeded)" in text
    assert re.search(r"key '2014-07-09' +10\.0 +5\.0 +15\.0", text)
    with pytest.raises(AssertionError) as caught:
        simulated.assert_not_throttled()
    said = str(caught.value)
    assert text in said
    assert (
        "up to 15.0 write units a second were requested (each attempt counted), and its partition serves 10.0" in said
    )
    assert "Spread it over 19 shards, as ShardedTable does: on 4 partitions, none gets more" in said


def test_where_shards_do_not_help_it_does_not_say_so(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=1, write_units=10, adaptive_seconds=0)
    assert simulated.load(lambda item: orders.put_item(Item=item), map(order, range(12)), per_second=1e6) == 2
    with pytest.raises(AssertionError, match="no shards change") as caught:
        simulated.assert_not_throttled()
    assert "Spread it" not in str(caught.value)


def test_a_load_at_a_rate(orders: Any, simulate: Simulate, clock: VirtualClock) -> None:
    simulated = simulate(partitions=1, write_units=10)
    refused = simulated.load(lambda item: orders.put_item(Item=item), map(order, range(200)), per_second=20)
    assert clock() == pytest.approx(199 / 20)
    # 10 a second are served, and one second's are kept.
    assert 200 - refused == pytest.approx(10 + 10 * 199 / 20, abs=1)
    assert simulated.throttles == {KEY_RANGE: refused}
    with pytest.raises(ClientError, match="ValidationException"):
        simulated.load(lambda item: orders.put_item(Item=item), [{"Date": "x"}], per_second=20)
    with pytest.raises(ConfigurationError, match="per_second"):
        simulated.load(print, [1], per_second=0)
