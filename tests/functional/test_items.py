"""Single items through ShardedTable: what goes over the wire, conditions, return values, shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr
from boto3.dynamodb.types import Binary

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    ShardedTable,
    ShardUnknownError,
    Unsharded,
    UnsupportedExpressionError,
)
from shardkit.errors import InvalidKeyError
from tests.support.recorder import recording
from tests.support.tables import make_table
from tests.support.wire import Recorder

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
STRATEGY = CalculatedSuffix("OrderId", 200)
SHARD = STRATEGY.shard_of("2014-07-09", KEY)
PHYSICAL = f"2014-07-09.{SHARD}"


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    orders = ShardedTable(table, STRATEGY)
    orders.put_item(Item={**KEY, "Amount": 12, "Note": "n"})
    return orders


@pytest.fixture
def wire(table: Table, orders: ShardedTable) -> Iterator[Recorder]:
    with recording(table.meta.client) as recorder:
        yield recorder


def test_each_operation_sends_one_request_with_the_physical_key(
    table: Table, orders: ShardedTable, wire: Recorder
) -> None:
    """A calculated shard costs nothing extra, and the caller's own parameters go out as they were given."""
    orders.put_item(Item={**KEY, "Amount": 1}, ReturnValues="ALL_OLD")
    orders.get_item(Key=KEY, ConsistentRead=True)
    orders.update_item(
        Key=KEY, UpdateExpression="SET Amount = :a", ExpressionAttributeValues={":a": 2}, ReturnConsumedCapacity="TOTAL"
    )
    orders.delete_item(Key=KEY)
    stored = {"Date": {"S": PHYSICAL}, "OrderId": {"S": "A17"}}
    assert wire.requests == [
        ("PutItem", {"TableName": table.name, "Item": {**stored, "Amount": {"N": "1"}}, "ReturnValues": "ALL_OLD"}),
        ("GetItem", {"TableName": table.name, "Key": stored, "ConsistentRead": True}),
        (
            "UpdateItem",
            {
                "TableName": table.name,
                "Key": stored,
                "UpdateExpression": "SET Amount = :a",
                "ExpressionAttributeValues": {":a": {"N": "2"}},
                "ReturnConsumedCapacity": "TOTAL",
            },
        ),
        ("DeleteItem", {"TableName": table.name, "Key": stored}),
    ]


def test_legacy_attribute_updates_work(orders: ShardedTable) -> None:
    """AttributeUpdates are sent with wire values, as boto3 does."""
    orders.update_item(
        Key=KEY, AttributeUpdates={"Amount": {"Value": Decimal(5), "Action": "ADD"}, "Note": {"Action": "DELETE"}}
    )
    assert orders.get_item(Key=KEY)["Item"] == {**KEY, "Amount": 17}


def test_a_shard_can_be_given_and_asked_for(table: Table) -> None:
    """Shard= says which shard, ReturnShards=True adds it to the response."""
    orders = ShardedTable(table, RandomSuffix(200))
    item = {**KEY, "Amount": Decimal(1)}
    for shard in (3, 4):
        assert orders.put_item(Item=item, Shard=shard, ReturnShards=True)["Shard"] == shard
    assert "Shard" not in orders.put_item(Item=item, Shard=3)
    assert orders.get_item(Key=KEY, Shard=3, ReturnShards=True) | {"ResponseMetadata": 0} == {
        "Item": item,
        "Shard": 3,
        "ResponseMetadata": 0,
    }
    update: dict[str, Any] = {"UpdateExpression": "SET Amount = :a", "ExpressionAttributeValues": {":a": 2}}
    assert orders.update_item(Key=KEY, Shard=3, ReturnShards=True, **update)["Shard"] == 3
    assert table.get_item(Key={"Date": "2014-07-09.3", "OrderId": "A17"})["Item"]["Amount"] == 2
    assert orders.get_item(Key=KEY, Shard=4)["Item"]["Amount"] == 1
    assert orders.delete_item(Key=KEY, Shard=3, ReturnShards=True)["Shard"] == 3
    assert [stored["Date"] for stored in table.scan()["Items"]] == ["2014-07-09.4"]


@pytest.mark.parametrize("shard", [0, 201, -1, True, "3", 3.0])
def test_a_shard_that_the_key_has_not_is_refused(orders: ShardedTable, wire: Recorder, shard: Any) -> None:
    """A shard outside of the range, or no whole number, is an error that gives the range."""
    with pytest.raises(ConfigurationError, match="1 to 200"):
        orders.get_item(Key=KEY, Shard=shard)
    assert wire.requests == []


@pytest.mark.parametrize("kind", ["S", "N"])
def test_an_unsharded_key_has_no_numbered_shard(resource: DynamoDBServiceResource, kind: Any) -> None:
    """Shard= is refused where there are no suffixes, whatever the partition key's type."""
    table = ShardedTable(make_table(resource, ("pk", kind)), Unsharded())
    key = {"pk": "x" if kind == "S" else 5}
    assert table.put_item(Item=key, ReturnShards=True)["Shard"] is None
    assert table.get_item(Key=key)["Item"] == key
    with pytest.raises(ConfigurationError, match=r"^Shard: must be None for key"):
        table.get_item(Key=key, Shard=1)


BY: dict[str, tuple[Any, dict[str, Any]]] = {
    "an attribute": ("Customer", {"Customer": "c1"}),
    "several": (("Customer", "OrderId", "Region"), {"Customer": "c1", "Region": 7}),
    "a function": (lambda item: item["Customer"] + item["OrderId"], {"Customer": "c1"}),
}


@pytest.mark.parametrize(("by", "beside"), BY.values(), ids=BY)
def test_what_the_shard_is_calculated_from_may_stand_beside_the_key(
    table: Table, by: Any, beside: dict[str, Any]
) -> None:
    """An attribute outside of the key schema is used from Key and left out of the request."""
    orders = ShardedTable(table, CalculatedSuffix(by, 50))
    shard = orders.put_item(Item={**KEY, **beside, "Amount": 1}, ReturnShards=True)["Shard"]
    key = {**KEY, **beside}
    with recording(table.meta.client) as wire:
        assert orders.get_item(Key=key)["Item"]["Amount"] == 1
        orders.update_item(Key=key, UpdateExpression="SET Amount = :a", ExpressionAttributeValues={":a": 2})
        assert orders.batch_get_items([key])["Items"] == [{**KEY, **beside, "Amount": 2}]
        orders.delete_item(Key=key)
    physical = {"Date": {"S": f"2014-07-09.{shard}"}, "OrderId": {"S": "A17"}}
    assert [body["Key"] for _, body in wire.requests if "Key" in body] == [physical] * 3
    assert wire.bodies("BatchGetItem")[0]["RequestItems"][table.name]["Keys"] == [physical]
    assert table.scan()["Items"] == []


@pytest.mark.parametrize("by", ["Customer", ("Customer", "OrderId"), lambda item: item["Customer"]])
def test_a_key_without_what_the_shard_is_calculated_from_is_refused(table: Table, by: Any) -> None:
    """The error names what is missing and where to put it; nothing is sent."""
    orders = ShardedTable(table, CalculatedSuffix(by, 50), key_schema=SCHEMA)
    calls: list[Callable[[], Any]] = [
        lambda: orders.get_item(Key=KEY),
        lambda: orders.delete_item(Key=KEY),
        lambda: orders.update_item(Key=KEY, UpdateExpression="REMOVE a"),
        lambda: orders.put_item(Item=KEY),
        lambda: orders.batch_get_items([KEY]),
        lambda: orders.physical_key(KEY),
    ]
    with recording(table.meta.client) as wire:
        for call in calls:
            with pytest.raises(ShardUnknownError, match="Customer"):
                call()
    assert wire.requests == []


@pytest.mark.parametrize(
    "update",
    [
        {"UpdateExpression": "SET Customer = :c", "ExpressionAttributeValues": {":c": "c2"}},
        {"UpdateExpression": "REMOVE #c", "ExpressionAttributeNames": {"#c": "Customer"}},
        {"AttributeUpdates": {"Customer": {"Action": "DELETE"}}},
    ],
)
def test_updating_what_the_shard_is_calculated_from_is_refused(table: Table, update: dict[str, Any]) -> None:
    """The item would be looked for in another shard, also where Shard= is given."""
    orders = ShardedTable(table, CalculatedSuffix("Customer", 50), key_schema=SCHEMA)
    with recording(table.meta.client) as wire:
        for shard in (3, None):
            with pytest.raises(UnsupportedExpressionError, match="Customer"):
                orders.update_item(Key={**KEY, "Customer": "c1"}, Shard=shard, **update)
    assert wire.requests == []


def whole(item: Any) -> str:
    return str(item["OrderId"] + "".join(map(str, item.values())))


READ_BY_A_FUNCTION: dict[str, tuple[Any, str]] = {
    "an index": (lambda item: item["Customer"], "a"),
    "get": (lambda item: item.get("Customer", "a"), "a"),
    "in": (lambda item: item["OrderId"] if "Customer" not in item else "b", "b"),
    "keys": (lambda item: item["OrderId"] if "Customer" not in item.keys() else "b", "b"),  # noqa: SIM118
    "a part of it": (lambda item: item["Customer"][0], "abc"),
}


@pytest.mark.parametrize(("by", "customer"), READ_BY_A_FUNCTION.values(), ids=READ_BY_A_FUNCTION)
def test_updating_what_a_function_reads_is_refused(table: Table, by: Any, customer: str) -> None:
    """As with names: it would be looked for in another shard. What the function does not read may be changed."""
    orders = ShardedTable(table, CalculatedSuffix(by, 50), key_schema=SCHEMA)
    key = {**KEY, "Customer": customer}
    shard = orders.put_item(Item={**key, "Amount": 1}, ReturnShards=True)["Shard"]
    for given in (shard, None):
        with recording(table.meta.client) as wire:
            with pytest.raises(UnsupportedExpressionError, match="Customer"):
                orders.update_item(Key=key, Shard=given, UpdateExpression="REMOVE Customer SET Amount = Amount")
            assert wire.requests == []
        amount: Any = {"UpdateExpression": "SET Amount = Amount + :a", "ExpressionAttributeValues": {":a": 1}}
        orders.update_item(Key=key, Shard=given, **amount)
    assert orders.get_item(Key=key)["Item"] == {**key, "Amount": 3}
    assert len(table.scan()["Items"]) == 1


UNKNOWN_READS: dict[str, tuple[Any, str]] = {
    "an attribute with a default": (lambda item: item.get("Customer", item["OrderId"]), "Customer"),
    "an attribute that may be there": (lambda item: item["OrderId"] + str("Customer" in item), "Customer"),
    "an attribute that must be there": (lambda item: item["Customer"], "Customer"),
    "all values": (whole, "the whole item"),
    "how many there are": (len, "the whole item"),
    "a copy": (lambda item: dict(item)["OrderId"], "the whole item"),
    "another copy": (lambda item: deepcopy(item)["OrderId"], "the whole item"),
    "its text": (str, "the whole item"),
    "whether it is a dict": (lambda item: item.copy()["OrderId"], "copy"),
}


@pytest.mark.parametrize(("by", "reason"), UNKNOWN_READS.values(), ids=UNKNOWN_READS)
def test_an_update_where_nobody_knows_what_the_function_reads_is_refused(table: Table, by: Any, reason: str) -> None:
    """With its whole item it may give another shard than with its key; the error says what to put into Key=."""
    orders = ShardedTable(table, CalculatedSuffix(by, 50), key_schema=SCHEMA)
    shard = orders.put_item(Item={**KEY, "Customer": "c1"}, ReturnShards=True)["Shard"]
    with recording(table.meta.client) as wire:
        for given in (shard, None):
            with pytest.raises(ShardUnknownError, match=f"^by: .*{reason}"):
                orders.update_item(Key=KEY, Shard=given, UpdateExpression="REMOVE Amount")
    assert wire.requests == []


@pytest.mark.parametrize("by", ["OrderId", ("OrderId", "Customer"), lambda item: item["OrderId"] + item["Customer"]])
def test_a_shard_that_is_not_the_calculated_one_stores_nothing(table: Table, by: Any) -> None:
    """What a put or an update stored there, no get_item would find; reads and deletes of it are for repairs."""
    orders = ShardedTable(table, CalculatedSuffix(by, 50), key_schema=SCHEMA)
    key = KEY if by == "OrderId" else {**KEY, "Customer": "c1"}
    shard = orders.put_item(Item=key, ReturnShards=True)["Shard"]
    assert shard is not None
    other = shard % 50 + 1
    with recording(table.meta.client) as wire:
        with pytest.raises(ConfigurationError, match=rf"^Shard: {other} .*shard {shard}"):
            orders.put_item(Item=key, Shard=other)
        with pytest.raises(ConfigurationError, match=rf"^Shard: {other} .*shard {shard}"):
            orders.update_item(Key=key, Shard=other, UpdateExpression="REMOVE Amount")
    assert wire.requests == []
    orders.put_item(Item=key, Shard=shard)
    orders.update_item(Key=key, Shard=shard, UpdateExpression="REMOVE Amount")
    table.put_item(Item={**key, "Date": f"2014-07-09.{other}"})
    assert orders.get_item(Key=key, Shard=other)["Item"] == key
    orders.delete_item(Key=key, Shard=other)
    assert "Item" not in orders.get_item(Key=key, Shard=other)
    assert orders.get_item(Key=key)["Item"] == key


def test_a_shard_that_cannot_be_calculated_is_the_callers(table: Table) -> None:
    """Where Key= lacks what ``by`` names, the shard that the caller gives is taken."""
    orders = ShardedTable(table, CalculatedSuffix("Customer", 50), key_schema=SCHEMA)
    shard = orders.put_item(Item={**KEY, "Customer": "c1", "Amount": 1}, ReturnShards=True)["Shard"]
    orders.update_item(Key=KEY, Shard=shard, UpdateExpression="REMOVE Amount")
    assert orders.get_item(Key={**KEY, "Customer": "c1"})["Item"] == {**KEY, "Customer": "c1"}


SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}


def test_keys_may_have_shards_of_their_own_number(table: Table) -> None:
    """A mapping or a function gives each key its number of shards; a key that the mapping has not has one."""
    for shards in ({"hot": 40}, lambda key: 40 if key == "hot" else 1):
        orders = ShardedTable(table, CalculatedSuffix("OrderId", shards))
        numbers = {
            key: {
                orders.put_item(Item={"Date": key, "OrderId": f"A{n}"}, ReturnShards=True)["Shard"] for n in range(30)
            }
            for key in ("hot", "cold")
        }
        assert numbers["cold"] == {1}
        assert len(numbers["hot"]) > 10
        assert numbers["hot"] <= set(range(1, 41))
        assert orders.get_item(Key={"Date": "cold", "OrderId": "A3"})["Item"] == {"Date": "cold", "OrderId": "A3"}


@pytest.mark.parametrize("value", [b"\x00.\xff", bytearray(b"\x00.\xff"), Binary(b"\x00.\xff")])
def test_binary_partition_keys_carry_a_suffix(resource: DynamoDBServiceResource, value: Any) -> None:
    """Type B gets the ASCII suffix behind its bytes, and comes back as boto3 shows binary."""
    table = make_table(resource, ("pk", "B"), ("sk", "N"))
    sharded = ShardedTable(table, CalculatedSuffix("sk", 9))
    shard = sharded.put_item(Item={"pk": value, "sk": 1}, ReturnShards=True)["Shard"]
    assert table.scan()["Items"] == [{"pk": Binary(b"\x00.\xff." + str(shard).encode()), "sk": 1}]
    assert sharded.get_item(Key={"pk": value, "sk": 1})["Item"] == {"pk": Binary(b"\x00.\xff"), "sk": 1}
    sharded.put_item(Item={"pk": value, "sk": 1}, ConditionExpression=Attr("pk").eq(value))
    assert sharded.scan()["Items"] == [{"pk": Binary(b"\x00.\xff"), "sk": 1}]
    sharded.delete_item(Key={"pk": value, "sk": 1})
    assert table.scan()["Items"] == []


def test_a_random_suffix_writes_each_key_once(table: Table) -> None:
    """A put draws a shard and never replaces; an update, a delete, a read and a condition need the shard."""
    orders = ShardedTable(table, RandomSuffix(200))
    shards = [orders.put_item(Item=KEY, ReturnShards=True)["Shard"] for _ in range(2)]
    assert {item["Date"] for item in table.scan()["Items"]} == {f"2014-07-09.{shard}" for shard in shards}
    calls: list[Callable[[], Any]] = [
        lambda: orders.get_item(Key=KEY),
        lambda: orders.delete_item(Key=KEY),
        lambda: orders.update_item(Key=KEY, UpdateExpression="REMOVE a"),
        lambda: orders.put_item(Item=KEY, ConditionExpression=Attr("Date").not_exists()),
        lambda: orders.put_item(Item=KEY, Expected={"Date": {"Exists": False}}),
        lambda: orders.batch_get_items([KEY]),
        lambda: orders.physical_key(KEY),
    ]
    with recording(table.meta.client) as wire:
        for call in calls:
            with pytest.raises(ShardUnknownError):
                call()
        assert wire.requests == []
    assert orders.get_item(Key=KEY, Shard=shards[0])["Item"] == KEY
    orders.update_item(Key=KEY, Shard=shards[0], UpdateExpression="SET a = :a", ExpressionAttributeValues={":a": 1})
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        orders.put_item(Item=KEY, Shard=shards[0], ConditionExpression=Attr("Date").not_exists())


def test_the_ways_out_and_back(orders: ShardedTable, table: Table) -> None:
    """Stored keys and items for one's own calls, and stored items shown as logical ones."""
    item = {**KEY, "Amount": Decimal(1), "Tags": ["x"]}
    stored = orders.physical_item(item)
    assert stored == {**item, "Date": PHYSICAL}
    assert stored["Tags"] is item["Tags"]
    assert orders.physical_key(KEY) == {"Date": PHYSICAL, "OrderId": "A17"}
    assert orders.logical_item(stored) == item
    assert orders.logical_item({"OrderId": "A17"}) == {"OrderId": "A17"}
    assert orders.logical_item({"Date": "2014-07-09"}) == {"Date": "2014-07-09"}
    table.put_item(Item=stored)
    assert orders.get_item(Key=KEY)["Item"] == item
    drawn = ShardedTable(table, RandomSuffix(4)).physical_item(item)
    assert drawn["Date"] in {f"2014-07-09.{shard}" for shard in range(1, 5)}
    with pytest.raises(InvalidKeyError, match="OrderId"):
        orders.physical_item({"Date": "2014-07-09"})
