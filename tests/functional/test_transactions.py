"""Transactions of a ShardedTable: what goes over HTTP, and what the caller sees."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr
from botocore.exceptions import ClientError, ParamValidationError

from shardkit import (
    CalculatedSuffix,
    CapacityBudget,
    CapacityMeter,
    ConfigurationError,
    RandomSuffix,
    ShardedTable,
    UnsupportedParameterError,
)
from shardkit.table_types import TransactGetItem, TransactWriteItem, UpdatePart
from tests.support.fakes import ARN, Clock
from tests.support.recorder import answering, recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
OTHER = {"Date": "2014-07-09", "OrderId": "A18"}


@pytest.fixture
def plain(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Id", "S"))


@pytest.fixture
def orders(resource: DynamoDBServiceResource) -> ShardedTable:
    orders = ShardedTable(make_table(resource, ("Date", "S"), ("OrderId", "S")), CalculatedSuffix("OrderId", 5))
    orders.put_item(Item={**KEY, "Sum": 12})
    return orders


def items_of(orders: ShardedTable) -> list[dict[str, Any]]:
    return sorted(orders.scan_items(), key=lambda item: (str(item["OrderId"]), str(item["Date"])))


def test_parts_on_this_table_and_on_another(orders: ShardedTable, plain: Table) -> None:
    """One request; the caller's objects stay as they are, conditions may be boto3's on both tables."""
    put = {"Item": {**OTHER, "Sum": 5}, "ConditionExpression": Attr("Date").not_exists()}
    of_plain = {"TableName": plain.name, "Item": {"Id": "2014-07-09.1", "n": 1}}
    parts: list[Any] = [
        {"Put": put},
        {"Delete": {"TableName": orders.name, "Key": KEY, "ConditionExpression": Attr("Date").eq("2014-07-09")}},
        {"Put": {**of_plain, "ConditionExpression": Attr("Id").not_exists()}},
    ]
    given = copy.copy(parts), copy.copy(put), copy.copy(of_plain)
    with recording(orders.meta.client) as wire:
        orders.transact_write_items(TransactItems=parts)
    assert (parts, put, of_plain) == given
    assert wire.operations == ["TransactWriteItems"]
    (body,) = wire.bodies("TransactWriteItems")
    keys = [part.get("Item", part.get("Key")) for entry in body["TransactItems"] for part in entry.values()]
    assert keys[0]["Date"] == {"S": orders.physical_key(OTHER)["Date"]}
    assert keys[2] == {"Id": {"S": "2014-07-09.1"}, "n": {"N": "1"}}
    assert body["ClientRequestToken"]  # botocore's
    assert items_of(orders) == [{**OTHER, "Sum": 5}]
    gets: list[TransactGetItem] = [{"Get": {"Key": KEY}}, {"Get": {"Key": OTHER}}]
    gets.append({"Get": {"TableName": plain.name, "Key": {"Id": "2014-07-09.1"}}})
    responses = orders.transact_get_items(TransactItems=gets)["Responses"]
    assert responses == [{}, {"Item": {**OTHER, "Sum": 5}}, {"Item": {"Id": "2014-07-09.1", "n": 1}}]


def test_a_cancelled_transaction(orders: ShardedTable, plain: Table) -> None:
    """The client's own exception, with logical keys in its reasons."""
    parts: list[Any] = [
        {"Put": {"TableName": plain.name, "Item": {"Id": "x"}}},
        {"Update": {
            "Key": KEY,
            "UpdateExpression": "SET Paid = :t",
            "ConditionExpression": Attr("Sum").gt(20),
            "ExpressionAttributeValues": {":t": 1},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }},
    ]  # fmt: skip
    error = orders.meta.client.exceptions.TransactionCanceledException
    with pytest.raises(error) as raised:
        orders.transact_write_items(TransactItems=parts)
    none, failed = raised.value.response["CancellationReasons"]
    assert none["Code"] == "None"
    assert failed["Code"] == "ConditionalCheckFailed"
    assert failed["Item"] == {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "A17"}, "Sum": {"N": "12"}}
    assert plain.scan()["Items"] == []


def test_a_binary_key_in_an_error(resource: DynamoDBServiceResource) -> None:
    """As boto3 shows it: bytes, like every binary value."""
    table = ShardedTable(make_table(resource, ("pk", "B"), ("sk", "N")), CalculatedSuffix("sk", 5))
    item = {"pk": b"k", "sk": 1, "other": b"x"}
    table.put_item(Item=item)
    put: Any = {
        "Item": item,
        "ConditionExpression": Attr("pk").not_exists(),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    with pytest.raises(ClientError) as alone:
        table.put_item(**put)
    with pytest.raises(ClientError) as together:
        table.transact_write_items(TransactItems=[{"Put": put}])
    reasons: Any = together.value.response["CancellationReasons"]
    response: Any = alone.value.response
    assert response["Item"] == reasons[0]["Item"] == {"pk": {"B": b"k"}, "sk": {"N": "1"}, "other": {"B": b"x"}}


def test_what_the_service_refuses(orders: ShardedTable) -> None:
    """Two parts with one item, and more than 100, with the service's own error."""
    twice: list[TransactWriteItem] = [{"Put": {"Item": KEY}}, {"Delete": {"Key": KEY}}]
    many: list[TransactWriteItem] = [{"Put": {"Item": {**KEY, "OrderId": f"B{number}"}}} for number in range(101)]
    for parts, says in ((twice, "multiple operations on one item"), (many, "less than or equal to 100")):
        with pytest.raises(ClientError, match=says):
            orders.transact_write_items(TransactItems=parts)
    assert items_of(orders) == [{**KEY, "Sum": 12}]


def test_what_is_refused_before(orders: ShardedTable) -> None:
    """By shardkit, or by botocore as for a plain table; the key schema is not even read."""
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (UnsupportedParameterError, "ClientRequestToken", {"TransactItems": [], "ClientRequestTokn": "x"}),
        (UnsupportedParameterError, "must be a list", {"TransactItems": {"Put": {"Item": KEY}}}),
        (UnsupportedParameterError, "Items .did you mean Item", {"TransactItems": [{"Put": {"Items": KEY}}]}),
        (ParamValidationError, "min length", {"TransactItems": []}),
        (ParamValidationError, 'Update: "UpdateExpression"', {"TransactItems": [{"Update": {"Key": KEY}}]}),
    ]
    with recording(orders.meta.client) as wire:
        for error, says, params in refused:
            with pytest.raises(error, match=says):
                orders.transact_write_items(**params)
    assert wire.requests == []


def test_this_table_by_its_arn(orders: ShardedTable) -> None:
    """It may be this table, whose part must not be written without a suffix."""
    with pytest.raises(ConfigurationError, match=r"^TableName: 'arn:.* may be this sharded table"):
        orders.transact_write_items(TransactItems=[{"Put": {"TableName": ARN + orders.name, "Item": KEY}}])


def test_a_random_table(orders: ShardedTable) -> None:
    """Puts draw their shards from the token; everything else searches, or has its shard."""
    drawn = ShardedTable(orders.table, RandomSuffix(5))
    puts: list[TransactWriteItem] = [{"Put": {"Item": {**KEY, "OrderId": f"B{number}"}}} for number in range(20)]
    with recording(orders.meta.client) as wire:
        for token in ("one", "one", "two"):
            drawn.transact_write_items(TransactItems=puts, ClientRequestToken=token)
    one, again, two = (body["TransactItems"] for body in wire.bodies("TransactWriteItems"))
    assert one == again != two
    located = ShardedTable(orders.table, RandomSuffix(5, locate=True))
    update: UpdatePart = {"Key": KEY, "UpdateExpression": "SET Paid = :t", "ExpressionAttributeValues": {":t": 1}}
    located.transact_write_items(TransactItems=[{"Update": update}, {"Put": {"Item": OTHER}}])
    found = located.transact_get_items(TransactItems=[{"Get": {"Key": OTHER}}, {"Get": {"Key": KEY}}])["Responses"]
    assert found == [{"Item": OTHER}, {"Item": {**KEY, "Sum": 12, "Paid": 1}}]
    shard = located.get_item(Key=OTHER, ReturnShards=True)["Shard"]
    drawn.transact_write_items(TransactItems=[{"Delete": {"Key": OTHER, "Shard": shard}}])
    assert "Item" not in located.get_item(Key=OTHER)


def test_a_meter_and_a_budget_count_logical_keys(orders: ShardedTable, plain: Table) -> None:
    """Of both tables what the service reported, and of the sharded one by its logical key."""
    units = {"CapacityUnits": 4.0, "WriteCapacityUnits": 4.0}
    reported = {"ConsumedCapacity": [{"TableName": name, **units} for name in (orders.name, plain.name)]}
    parts: list[Any] = [
        {"Put": {"Item": KEY}},
        {"Put": {"Item": OTHER}},
        {"Put": {"TableName": plain.name, "Item": {"Id": "x", "text": "x" * 1100}}},
    ]
    clock = Clock()
    budget = CapacityBudget(write_units=1, burst=0, clock=clock, sleep=clock.sleep)
    meter = CapacityMeter()
    with (
        meter.attach(orders.meta.client, key_schema={plain.name: "Id"}),
        budget.attach(orders, key="2014-07-09"),
        answering(orders.meta.client, "TransactWriteItems", lambda _: reported),
    ):
        response = orders.transact_write_items(TransactItems=parts)
        assert clock.now == 0.0
        orders.transact_write_items(TransactItems=parts)
        assert clock.now == 4.0  # what the first one took of the key
    assert "ConsumedCapacity" not in response
    assert {table: usage.write_units for table, usage in meter.by_table.items()} == {orders.name: 8.0, plain.name: 8.0}
    by_key = {key: usage.write_units + usage.estimated_write_units for key, usage in meter.by_key.items()}
    assert by_key == {(orders.name, "2014-07-09"): 8.0, (plain.name, "x"): 8.0}
    stored = {orders.physical_key(key)["Date"] for key in (KEY, OTHER)}
    assert {key for _, key in meter.by_physical_key} == stored


def test_a_handlers_own_transaction_is_not_taken_for_ours(orders: ShardedTable, plain: Table) -> None:
    """A handler that runs before shardkit's makes a transaction on the same table."""
    client = orders.meta.client
    inner: list[Any] = [{"Put": {"TableName": orders.name, "Item": {**OTHER, "Date": "raw"}}}]

    def before(**_: Any) -> None:
        client.meta.events.unregister("provide-client-params.dynamodb.TransactWriteItems", before)
        client.transact_write_items(TransactItems=inner)

    client.meta.events.register("provide-client-params.dynamodb.TransactWriteItems", before)
    orders.transact_write_items(TransactItems=[{"Put": {"Item": OTHER}}])
    assert items_of(orders) == [{**KEY, "Sum": 12}, OTHER, {**OTHER, "Date": "raw"}]
