"""simulate_partitions in front of moto: what is refused, what is carried out, and what answers say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from shardkit import ConfigurationError, UnsupportedOperationError
from shardkit.faults import throttle_reasons
from shardkit.partitions.model import hash_of
from shardkit.testing import SimulatedPartitions, VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource

KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
SHARES: dict[str, Any] = {"adaptive_seconds": None, "burst": 0}
"""Of the old days: each partition has its share of the throughput, and keeps one second of it."""


@pytest.fixture
def once() -> Iterator[DynamoDBServiceResource]:
    """A resource whose client makes each call once."""
    with mock_aws():
        yield boto3.resource("dynamodb", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))


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


Simulate = Callable[..., SimulatedPartitions]


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


def order(number: int, date: str = "2014-07-09", size: int = 0, **more: Any) -> dict[str, Any]:
    return {"Date": date, "OrderId": f"A{number:03}", **({"Note": "x" * size} if size else {}), **more}


def stored(table: Any) -> set[str]:
    return {str(item["OrderId"]) for item in table.scan(ConsistentRead=True)["Items"]}


def throttled(call: Callable[[], object]) -> Any:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value


# -- single items


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


# -- units, as the rules have them


@pytest.fixture
def units(orders: Any) -> Callable[..., float]:
    """Gives the units of a call, as its answer says."""

    def of(call: Callable[..., Any], **params: Any) -> float:
        consumed = call(**params, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]
        assert consumed["TableName"] == "Orders"
        total: float = consumed["CapacityUnits"]
        return total

    return of


KEY = {"Date": "2014-07-09", "OrderId": "A001"}


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


# -- batches


def put_requests(*items: dict[str, Any]) -> Any:
    return {"Orders": [{"PutRequest": {"Item": item}} for item in items]}


def test_of_a_batch_only_what_is_hot_comes_back(orders: Any, simulate: Simulate) -> None:
    """Partitions that have throughput take theirs; the request that reaches the engine is cut down."""
    simulated = simulate(partitions=4, write_units=20)
    hot, cold = days_apart(simulated)
    items = [order(number, hot) for number in range(8)] + [order(number, cold) for number in range(8, 12)]
    answer = orders.meta.client.batch_write_item(RequestItems=put_requests(*items), ReturnConsumedCapacity="TOTAL")
    left = [entry["PutRequest"]["Item"]["OrderId"] for entry in answer["UnprocessedItems"]["Orders"]]
    assert left == ["A005", "A006", "A007"]
    assert answer["ConsumedCapacity"] == [{"TableName": "Orders", "CapacityUnits": 9.0}]
    assert stored(orders) == {f"A{number:03}" for number in (0, 1, 2, 3, 4, 8, 9, 10, 11)}
    assert simulated.throttles == {KEY_RANGE: 3}
    # None of these can be taken: the whole is refused.
    error = throttled(lambda: orders.meta.client.batch_write_item(RequestItems=put_requests(*items[:3])))
    assert throttle_reasons(error) == {KEY_RANGE}
    simulated.clock.sleep(1.0)
    answer = orders.meta.client.batch_write_item(RequestItems=put_requests(*items[5:8]))
    assert answer["UnprocessedItems"] == {}


def days_apart(simulated: SimulatedPartitions) -> tuple[str, str]:
    """Two days that are on different partitions."""
    places = {day: simulated.partitions.place(hash_of({"S": day})) for day in (f"day {n}" for n in range(20))}
    return "day 0", next(day for day, place in places.items() if place != places["day 0"])


def test_the_units_of_a_batch_know_what_was_there(orders: Any, simulate: Simulate) -> None:
    orders.put_item(Item=order(1, size=5000))
    orders.put_item(Item=order(2, size=3000))
    simulate()
    requests = put_requests(order(1), order(3))
    requests["Orders"].append({"DeleteRequest": {"Key": {**KEY, "OrderId": "A002"}}})
    answer = orders.meta.client.batch_write_item(RequestItems=requests, ReturnConsumedCapacity="TOTAL")
    assert answer["ConsumedCapacity"][0]["CapacityUnits"] == 5 + 1 + 3


def test_a_batch_that_the_engine_refuses(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=1, write_units=100)
    error = throttled(lambda: orders.meta.client.batch_write_item(RequestItems=put_requests(order(1), order(1))))
    assert error.response["Error"]["Code"] == "ValidationException"
    assert simulated.hottest_partitions(1)[0].write_units == 0


def test_batches_of_keys(orders: Any, simulate: Simulate) -> None:
    for number in range(4):
        orders.put_item(Item=order(number, size=9000))
    simulate(partitions=1, read_units=3)
    keys = [{**KEY, "OrderId": f"A{number:03}"} for number in range(4)]
    request: Any = {"Orders": {"Keys": keys, "ConsistentRead": True, "ProjectionExpression": "OrderId"}}
    get = orders.meta.client.batch_get_item
    answer = get(RequestItems=request, ReturnConsumedCapacity="TOTAL")
    # Each goes while anything is left; only then it is known that each costs 3.
    assert len(answer["Responses"]["Orders"]) == 3
    assert answer["UnprocessedKeys"] == {"Orders": {**request["Orders"], "Keys": keys[3:]}}
    assert answer["ConsumedCapacity"] == [{"TableName": "Orders", "CapacityUnits": 9.0}]
    throttled(lambda: get(RequestItems=request))


def test_other_tables_of_a_batch_go_by(once: DynamoDBServiceResource, orders: Any, simulate: Simulate) -> None:
    other = make_table(once, name="Other")
    simulate(partitions=1, write_units=1)
    requests = put_requests(order(1), order(2))
    requests["Other"] = [{"PutRequest": {"Item": {"pk": str(number)}}} for number in range(5)]
    answer = orders.meta.client.batch_write_item(RequestItems=requests, ReturnConsumedCapacity="TOTAL")
    assert {table: len(left) for table, left in answer["UnprocessedItems"].items()} == {"Orders": 1}
    assert other.scan()["Count"] == 5
    assert sorted(one["TableName"] for one in answer["ConsumedCapacity"]) == ["Orders", "Other"]


def test_two_tables_on_one_client(once: DynamoDBServiceResource, orders: Any, clock: VirtualClock) -> None:
    other = make_table(once, name="Other")
    with (
        simulate_partitions(orders, partitions=1, write_units=2, clock=clock, **SHARES) as one,
        simulate_partitions(other, partitions=1, write_units=3, clock=clock, **SHARES) as two,
    ):
        requests = put_requests(*(order(number) for number in range(5)))
        requests["Other"] = [{"PutRequest": {"Item": {"pk": str(number)}}} for number in range(5)]
        answer = orders.meta.client.batch_write_item(RequestItems=requests)
        assert {table: len(left) for table, left in answer["UnprocessedItems"].items()} == {"Orders": 3, "Other": 2}
    assert (one.throttles, two.throttles) == ({KEY_RANGE: 3}, {KEY_RANGE: 2})


def test_handlers_of_before_send_see_what_goes_on(orders: Any, simulate: Simulate) -> None:
    """All of them are asked, whatever the first one answers, which ours is: an event that is in no documentation."""
    seen: list[tuple[str, str, int]] = []

    def see(request: Any, event_name: str, **_: Any) -> None:
        host = urlsplit(request.url).hostname or ""
        seen.append((event_name.rpartition(".")[2], host, request.body.count(b"PutRequest")))

    for event in ("before-send", "before-send.dynamodb.BatchWriteItem"):
        orders.meta.client.meta.events.register_first(event, see, unique_id=event)
    simulate(partitions=1, write_units=2)
    orders.meta.client.batch_write_item(RequestItems=put_requests(*map(order, range(5))))
    aws = f"dynamodb.{REGION}.amazonaws.com"
    write, nowhere = ("BatchWriteItem", aws, 2), ("BatchWriteItem", "localhost", 5)
    assert seen[1:] == [("BatchGetItem", aws, 0), write, write, nowhere, nowhere]


# -- transactions


def test_a_transaction_is_cancelled_as_a_whole(orders: Any, simulate: Simulate) -> None:
    simulated = simulate(partitions=4, write_units=16)
    write = orders.meta.client.transact_write_items
    one, other = days_apart(simulated)
    puts: list[Any] = [{"Put": {"TableName": "Orders", "Item": order(n, day)}} for n, day in enumerate((one, other))]
    answer = write(TransactItems=puts, ReturnConsumedCapacity="TOTAL")
    assert answer["ConsumedCapacity"] == [{"TableName": "Orders", "CapacityUnits": 4.0}]
    hot: list[Any] = [{"Put": {"TableName": "Orders", "Item": order(9, one, size=1500)}}]
    error = throttled(lambda: write(TransactItems=[*puts[1:], *hot]))
    assert type(error).__name__ == "TransactionCanceledException"
    reasons: Any = error.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ProvisionedThroughputExceeded"]
    assert "[None, ProvisionedThroughputExceeded]" in error.response["Error"]["Message"]
    # Nothing of it was taken.
    assert sum(hot.write_units for hot in simulated.hottest_partitions(4)) == 4
    assert stored(orders) == {"A000", "A001"}


def test_a_transaction_on_demand(orders: Any, simulate: Simulate) -> None:
    simulate(partitions=1)
    orders.put_item(Item=order(0, size=400_000))
    orders.put_item(Item=order(1, size=400_000))
    put: Any = {"Put": {"TableName": "Orders", "Item": order(2, size=200_000)}}
    error = throttled(lambda: orders.meta.client.transact_write_items(TransactItems=[put]))
    assert error.response["CancellationReasons"][0]["Code"] == "ThrottlingError"


def test_the_parts_of_a_transaction(orders: Any, simulate: Simulate) -> None:
    orders.put_item(Item=order(1, size=5000))
    orders.put_item(Item=order(2, size=2500))
    simulated = simulate(partitions=1, write_units=100)
    key = {"TableName": "Orders", "Key": KEY}
    update = {"UpdateExpression": "SET Note = :x", "ExpressionAttributeValues": {":x": "x" * 9000}}
    items: Any = [
        {"Update": {**key, **update}},
        {"ConditionCheck": {**key, "Key": {**KEY, "OrderId": "A002"}, "ConditionExpression": "attribute_exists(Note)"}},
        {"Delete": {**key, "Key": {**KEY, "OrderId": "none"}}},
    ]
    answer = orders.meta.client.transact_write_items(TransactItems=items, ReturnConsumedCapacity="TOTAL")
    assert answer["ConsumedCapacity"][0]["CapacityUnits"] == 2 * (9 + 3 + 1)
    assert simulated.hottest_partitions(1)[0].write_units == 26


def test_a_transaction_of_reads(orders: Any, simulate: Simulate) -> None:
    orders.put_item(Item=order(1, size=5000))
    simulate(partitions=1, read_units=100)
    gets: Any = [
        {"Get": {"TableName": "Orders", "Key": KEY, "ProjectionExpression": "OrderId"}},
        {"Get": {"TableName": "Orders", "Key": KEY}},
        {"Get": {"TableName": "Orders", "Key": {**KEY, "OrderId": "none"}}},
    ]
    answer = orders.meta.client.transact_get_items(TransactItems=gets, ReturnConsumedCapacity="TOTAL")
    assert answer["ConsumedCapacity"][0]["CapacityUnits"] == 4 + 4 + 2
    assert answer["Responses"][1]["Item"]["OrderId"] == "A001"


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
    with pytest.raises(AssertionError, match="Key 'C1' of Orders ByCustomer was refused most"):
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
    assert "asked for up to 15.0 write units a second (each attempt counted), and its partition serves 10.0" in said
    assert "Spread it over 2 shards or more" in said


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


# -- where it begins and ends


def test_the_time_is_the_machines_where_no_clock_is_given(orders: Any) -> None:
    """One unit in 100 seconds: it is owed when the next call comes, however slow the machine is."""
    with simulate_partitions(orders, partitions=1, write_units=0.01, **SHARES) as simulated:
        orders.put_item(Item=order(1))
        throttled(lambda: orders.put_item(Item=order(2)))
        assert simulated.clock() == pytest.approx(time.monotonic(), abs=60)


def test_outside_of_it_calls_go_by(orders: Any, simulate: Simulate) -> None:
    simulated = simulate_partitions(orders, partitions=1, write_units=1, clock=VirtualClock(), **SHARES)
    with pytest.raises(ConfigurationError, match="has not begun"):
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
        ({"client": "client"}, "table= is the table's name, got None"),
        ({"table": 5}, "table= is the table's name, got 5"),
        ({"partitions": 0}, "partitions=0"),
        ({"write_units": -1}, "write_units=-1"),
        ({"burst": -1}, "burst=-1"),
        ({"adaptive_seconds": "soon"}, "adaptive_seconds='soon'"),
        ({"indexes": {"Misspelt": {}}}, r"names \['Misspelt'\].*\['ByCustomer'\]"),
        ({"indexes": {"ByCustomer": {"units": 5}}}, "has the options of an index"),
        ({"indexes": ["ByCustomer"]}, r"options of each index by its name, got \['ByCustomer'\]"),
        ({"clock": time.monotonic}, "is no clock; give VirtualClock"),
        ({"clock": False}, "clock=False is no clock"),
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
    with pytest.raises(ConfigurationError, match="on a clock already"), simulate_partitions(orders):
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
