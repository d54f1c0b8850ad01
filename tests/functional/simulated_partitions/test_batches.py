"""Batches and transactions: what of them is refused, and what that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.partitions.model import hash_of
from shardkit.testing import SimulatedPartitions, VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.support.simulated import KEY, KEY_RANGE, SHARES, Simulate, order, stored, throttled
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource


# -- batches


def put_requests(*items: dict[str, Any]) -> Any:
    return {"Orders": [{"PutRequest": {"Item": item}} for item in items]}


def days_apart(simulated: SimulatedPartitions) -> tuple[str, str]:
    """Two days that are on different partitions."""
    places = {day: simulated.partitions.place(hash_of({"S": day})) for day in (f"day {n}" for n in range(20))}
    return "day 0", next(day for day, place in places.items() if place != places["day 0"])


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
