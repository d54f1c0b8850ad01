"""batch_get_items: any number of keys, in order, and what the service leaves out."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from shardkit import CalculatedSuffix, ConfigurationError, RandomSuffix, ShardedTable, ShardQueryError, Unsharded
from shardkit.errors import InvalidKeyError
from tests.support.recorder import answering, recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders"


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return patient(ShardedTable(table, CalculatedSuffix("OrderId", 20)))


def patient(table: ShardedTable) -> ShardedTable:
    """Let a table's waits pass at once."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    table.runner.clock, table.runner.sleep = lambda: now[0], sleep
    return table


def key(number: int) -> dict[str, Any]:
    return {"Date": "2014-07-09", "OrderId": f"A{number:03}"}


def put(orders: ShardedTable, numbers: range) -> None:
    with orders.batch_writer() as batch:
        for number in numbers:
            batch.put_item(Item={**key(number), "Amount": number})


def test_items_come_in_the_order_of_their_keys(orders: ShardedTable, table: Table) -> None:
    """Keys given twice are read once, missing ones are left out, and the response has boto3's other parts."""
    put(orders, range(6))
    with recording(table.meta.client) as wire:
        response = orders.batch_get_items(
            (key(number) for number in (4, 2, 99, 4, 0, 5)), ConsistentRead=True, ReturnConsumedCapacity="TOTAL"
        )
    assert [item["Amount"] for item in response["Items"]] == [4, 2, 0, 5]
    assert all(item["Date"] == "2014-07-09" for item in response["Items"])
    assert response["UnprocessedKeys"] == []
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert response["ConsumedCapacity"]["TableName"] == table.name
    ((_, body),) = wire.requests
    asked = body["RequestItems"][table.name]
    assert len(asked["Keys"]) == 5
    assert asked["ConsistentRead"] is True
    assert body["ReturnConsumedCapacity"] == "TOTAL"


def test_more_than_a_hundred_keys_are_several_requests(orders: ShardedTable, table: Table) -> None:
    """The service takes 100 keys a request; the order holds over all of them."""
    put(orders, range(130))
    numbers = list(range(0, 260, 2))[::-1]
    with recording(table.meta.client) as wire:
        items = orders.batch_get_items([key(number) for number in numbers])["Items"]
    assert [item["Amount"] for item in items] == [number for number in numbers if number < 130]
    sizes = sorted(len(body["RequestItems"][table.name]["Keys"]) for _, body in wire.requests)
    assert sizes == [30, 100]


@pytest.mark.parametrize("keyed_by", ["name", "arn"])
def test_unprocessed_keys_are_asked_for_again(orders: ShardedTable, table: Table, keyed_by: str) -> None:
    """Whether the service names the table or its ARN, and only those keys."""
    put(orders, range(5))
    asked: list[int] = []

    def answer(body: dict[str, Any]) -> dict[str, Any] | None:
        ((name, request),) = body["RequestItems"].items()
        asked.append(len(request["Keys"]))
        if len(asked) > 2:
            return None
        name = name if keyed_by == "name" else ARN
        return {"Responses": {name: []}, "UnprocessedKeys": {name: {**request, "Keys": request["Keys"][:3]}}}

    with answering(table.meta.client, "BatchGetItem", answer):
        response = orders.batch_get_items([key(number) for number in range(5)])
    assert asked == [5, 3, 3]
    assert [item["Amount"] for item in response["Items"]] == [0, 1, 2]
    assert response["UnprocessedKeys"] == []


def test_what_stays_unprocessed_is_given_back_as_it_was_given(table: Table) -> None:
    """After all tries the keys come back, logical and with what their shard is calculated from."""
    orders = patient(ShardedTable(table, CalculatedSuffix("Customer", 20)))
    located = patient(ShardedTable(table, RandomSuffix(3, locate=True)))
    keys = [{**key(number), "Customer": "c"} for number in range(3)]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        (request,) = body["RequestItems"].values()
        return {"Responses": {}, "UnprocessedKeys": {ARN: request}}

    with answering(table.meta.client, "BatchGetItem", answer):
        assert orders.batch_get_items(keys)["UnprocessedKeys"] == keys
        assert located.batch_get_items([key(0), key(1)])["UnprocessedKeys"] == [key(0), key(1)]


def test_throttles_are_waited_for(orders: ShardedTable, table: Table) -> None:
    """A request that is refused for lack of throughput is sent again after growing waits."""
    put(orders, range(2))
    left = [3]

    def answer(body: dict[str, Any]) -> dict[str, Any] | None:
        left[0] -= 1
        return {"__type": "ProvisionedThroughputExceededException", "message": "slow"} if left[0] >= 0 else None

    # botocore's own retries would sleep.
    once = boto3.resource("dynamodb", region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}))
    eager = patient(ShardedTable(once.Table(table.name), CalculatedSuffix("OrderId", 20)))
    with answering(once.meta.client, "BatchGetItem", answer):
        assert len(eager.batch_get_items([key(0), key(1)])["Items"]) == 2


def test_a_failure_carries_what_the_other_requests_brought(table: Table) -> None:
    """Where some keys could be read and others not, the items are not lost; where none could, it is boto3's error."""
    orders = ShardedTable(table, CalculatedSuffix("OrderId", 20), max_concurrency=1)
    put(orders, range(120))
    keys = [key(number) for number in range(120)]

    def answer(body: dict[str, Any]) -> dict[str, Any] | None:
        (request,) = body["RequestItems"].values()
        return {"__type": "AccessDeniedException", "message": "no"} if len(request["Keys"]) in refused else None

    refused = {20}
    with answering(table.meta.client, "BatchGetItem", answer):
        with pytest.raises(ShardQueryError, match="AccessDenied") as caught:
            orders.batch_get_items(keys)
        assert [item["Amount"] for item in caught.value.partial_items] == list(range(100))
        assert caught.value.errors
        refused.add(100)
        with pytest.raises(table.meta.client.exceptions.ClientError, match="AccessDenied"):
            orders.batch_get_items(keys)


def test_a_projection_need_not_name_the_keys(orders: ShardedTable) -> None:
    """The keys are asked for, to know which item is which, and not shown unless they were asked for."""
    put(orders, range(3))
    keys = [key(2), key(0)]
    assert orders.batch_get_items(keys, ProjectionExpression="Amount")["Items"] == [{"Amount": 2}, {"Amount": 0}]
    shown = orders.batch_get_items(keys, ProjectionExpression="#d, Amount", ExpressionAttributeNames={"#d": "Date"})[
        "Items"
    ]
    assert shown == [{"Date": "2014-07-09", "Amount": 2}, {"Date": "2014-07-09", "Amount": 0}]


def test_numbers_are_keys_by_their_value(resource: DynamoDBServiceResource) -> None:
    """1, 1.0 and 10E-1 are one key, sent once, and found whatever form the service gives back."""
    table = make_table(resource, ("pk", "S"), ("sk", "N"))
    sharded = ShardedTable(table, CalculatedSuffix("sk", 9))
    ones = [Decimal("1.0"), Decimal(1), Decimal("10E-1"), Decimal("0.0")]
    sent: list[Any] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        (request,) = body["RequestItems"].values()
        sent.extend(request["Keys"])
        one, zero = (key["pk"] for key in request["Keys"])
        found = [{"pk": one, "sk": {"N": "1"}}, {"pk": zero, "sk": {"N": "0"}}]
        return {"Responses": {table.name: found}, "UnprocessedKeys": {}}

    with answering(table.meta.client, "BatchGetItem", answer):
        items = sharded.batch_get_items([{"pk": "x", "sk": one} for one in ones])["Items"]
    assert items == [{"pk": "x", "sk": 1}, {"pk": "x", "sk": 0}]
    assert len(sent) == 2


def test_what_by_tells_apart_is_not_ambiguous(table: Table) -> None:
    """Two keys that name their shards are two items, also where the primary key is the same."""
    orders = ShardedTable(table, CalculatedSuffix("Customer", 50))
    keys = [{**key(1), "Customer": customer} for customer in ("a", "b")]
    for one in keys:
        orders.put_item(Item=one)
    assert orders.batch_get_items(keys)["Items"] == keys


def test_an_unsharded_table_is_read_as_it_is(table: Table) -> None:
    """Without suffixes the keys go out as they were given."""
    orders = ShardedTable(table, Unsharded())
    table.put_item(Item=key(1))
    assert orders.batch_get_items([key(1), key(2)])["Items"] == [key(1)]


@pytest.mark.parametrize("keys", [[], iter(()), key(1), "abc", 5, None])
def test_no_keys_are_refused(orders: ShardedTable, table: Table, keys: Any) -> None:
    """An empty list is nearly always a mistake, and a single key is not a list of keys."""
    with recording(table.meta.client) as wire, pytest.raises(ConfigurationError, match=r"keys: (empty|must be a list)"):
        orders.batch_get_items(keys)
    assert wire.requests == []


@pytest.mark.parametrize("keys", [["abc"], [None], [{"Date": "x"}], [{"Date": "", "OrderId": "x"}], [{"Date": 5}]])
def test_keys_that_are_none_are_refused(orders: ShardedTable, table: Table, keys: Any) -> None:
    """One bad key is an error before anything is read."""
    with recording(table.meta.client) as wire, pytest.raises(InvalidKeyError):
        orders.batch_get_items([key(1), *keys])
    assert set(wire.operations) <= {"DescribeTable"}
