"""What a new user got wrong in the first hour: each message says what was wrong and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from moto import mock_aws

from shardkit import (
    CalculatedSuffix,
    CapacityMeter,
    ConfigurationError,
    RandomSuffix,
    RangeSuffix,
    Resharding,
    ShardedTable,
    Unsharded,
    bulk_load,
    migrate,
)
from shardkit.errors import ShardkitError, ShardUnknownError
from shardkit.runtime.iterators import AsyncQueryItems, AsyncScanItems

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = Key("Date").eq("2014-07-09")
ITEM = {"Date": "2014-07-09", "OrderId": "A17"}


@pytest.fixture
def orders() -> Iterator[ShardedTable]:
    with mock_aws():
        dynamodb = boto3.resource("dynamodb", region_name="eu-west-1")
        table = dynamodb.create_table(
            TableName="Orders",
            KeySchema=[{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "OrderId")],
            BillingMode="PAY_PER_REQUEST",
        )
        yield ShardedTable(table, CalculatedSuffix("OrderId", shards=8))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda it: it.get_item(Key="acme"), "Key: must be a mapping of attribute names"),
        (lambda it: it.put_item(Item="acme"), "Item: must be a mapping of attribute names"),
        (
            lambda it: it.get_item(Key={"Date": {"S": "a"}, "OrderId": {"S": "b"}}),
            "got type M ({'S': 'a'}); this key attribute of table 'Orders' must be a string; this is the wire form: ",
        ),
        (lambda it: it.put_item(Item={"Date": 5, "OrderId": "b"}), "got type N (5)"),
        (lambda it: it.query(KeyConditionExpression=DAY & Key("OrderId").eq({"S": "b"})), "got {'S': 'b'}; give text"),
        (
            lambda it: it.put_item(Item={"Date": "a", "OrderId": datetime.now(UTC)}),
            "no type for datetime (give its",
        ),
        (lambda it: it.query_items(KeyConditionExpression=DAY, maxitems=3), "maxitems (did you mean max_items?): not"),
        (lambda it: it.scan_items(segment=3), "segment (did you mean segments?)"),  # not Segment, which it refuses
        (lambda it: it.query(DAY), "without a keyword; give keywords only: query(KeyConditionExpression=…)"),
        (lambda it: it.query_items(DAY), "give keywords only: query_items(KeyConditionExpression=…)"),
        (lambda it: it.scan(DAY), "give keywords only: scan(FilterExpression=…)"),
        (lambda it: bulk_load(it, [{"Date": "a"}]), "see error.failed"),
        (lambda it: it.query(KeyConditionExpression=DAY, ExclusiveStartKey=cursor(it)), "number of shards has changed"),
        *(
            (lambda _, shards=shards: RandomSuffix(shards), f"got {shards!r}; give a number, a mapping of key")
            for shards in (0, "8", 8.0, ["acme"])
        ),
        (lambda it: it.get_item(Key=ITEM, Shard="1"), "Shard: must be an integer from 1 to 8 for key"),
        (lambda it: it.query(KeyConditionExpression=DAY, Shard="1"), "got '1'; give, for example, Shard=1"),
        (
            lambda it: ShardedTable(it.table, cast("Any", CalculatedSuffix)),
            'got the class CalculatedSuffix; call it: CalculatedSuffix(by="OrderId", shards=8)',
        ),
        (
            lambda it: ShardedTable(cast("Any", it.strategy), cast("Any", it.table)),
            "table: got CalculatedSuffix(by='OrderId', shards=8), a strategy; swap the two: table first, then strategy",
        ),
        (
            lambda _: Resharding(Unsharded(), cast("Any", RandomSuffix), stage="guard"),
            "RangeSuffix(…) or Unsharded(), got the class RandomSuffix; call it: RandomSuffix(shards=8)",
        ),
        *(
            (lambda _, by=by: CalculatedSuffix(by, shards=4), f"{said}; give an attribute's name, a tuple of names, or")
            for by, said in (
                (lambda: 1, "is not made for that (too many positional arguments)"),
                (lambda key, item: item[key], "is not made for that (missing a required argument: 'item')"),
            )
        ),
        (
            lambda it: cast("Any", migrate.plan)(it, RandomSuffix(4)),
            "plan: got RandomSuffix(shards=4) without a keyword; give keywords only: plan(write_units=…, read_units=…",
        ),
        (lambda it: cast("Any", bulk_load)(table=it), "items: missing in bulk_load; give items=…"),
        (lambda _: RandomSuffix({1001: 15}), "shards: {1001: 15} has an invalid key: key: must be text or binary"),
    ],
)
def test_messages(orders: ShardedTable, call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(ShardkitError) as caught:
        call(orders)
    assert said in str(caught.value)


def test_ranges_of_a_table_without_a_sort_key(orders: ShardedTable) -> None:
    """The advice is not another strategy."""
    schema = {"KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}]}
    with pytest.raises(
        ConfigurationError, match=r"it has none.* use Unsharded\(\), .* ShardedCounter or a CachedTable$"
    ):
        ShardedTable(orders.table, RangeSuffix("Id", ["m"]), key_schema=schema)


def cursor(orders: ShardedTable) -> Any:
    """A cursor of the same table with more shards, at a shard that it has no more."""
    more = ShardedTable(orders.table, CalculatedSuffix("OrderId", shards=1000))
    for number in range(9):
        more.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number}"})
    return more.query(KeyConditionExpression=DAY, Limit=3)["LastEvaluatedKey"]


@pytest.mark.parametrize("kind", [AsyncQueryItems, AsyncScanItems])
def test_a_plain_for_over_an_async_iterator_says_async_for(kind: Any) -> None:
    with pytest.raises(TypeError, match="use async for"):
        iter(kind.__new__(kind))


def test_the_table_of_a_meter_shows_the_estimates_of_a_batch(orders: ShardedTable) -> None:
    """Where the total is exact, the keys' shares of it are marked as estimates, and not shown as 0."""
    meter = CapacityMeter()
    with meter.attach(orders), orders.batch_writer() as batch:
        for number in range(100):
            batch.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number}"})
    shown = str(meter)  # moto reports one unit for each batch
    assert ["key", "Orders", "'2014-07-09'", "100", "0.0", "~4.0"] in [line.split() for line in shown.splitlines()]
    assert "~ estimated; of a batch, requests are items" in shown


@pytest.mark.parametrize("before", [5, 12])
def test_a_scan_with_shards_shows_that_their_number_was_changed(orders: ShardedTable, before: int) -> None:
    """The check that strategies.md names; it finds nothing in a table whose number of shards is the old one."""
    old = ShardedTable(orders.table, CalculatedSuffix("OrderId", shards=before))
    for number in range(40):
        old.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number}"})

    def misplaced(table: ShardedTable, strategy: CalculatedSuffix) -> int:
        found = table.scan_items(ReturnShards=True)
        return sum(shard != strategy.shard_of(item["Date"], item) for item, shard in found)

    assert misplaced(old, CalculatedSuffix("OrderId", shards=before)) == 0
    assert misplaced(orders, CalculatedSuffix("OrderId", shards=8)) > 0


@pytest.mark.parametrize(
    "call", [lambda it: it.get_item(Key={"Id": "a"}), lambda it: it.batch_get_items([{"Id": "a"}])]
)
@pytest.mark.usefixtures("orders")
def test_random_shards_without_a_sort_key(call: Callable[[ShardedTable], object]) -> None:
    """Not told to use CalculatedSuffix, which such a table refuses."""
    table = boto3.resource("dynamodb", region_name="eu-west-1").create_table(
        TableName="Events",
        KeySchema=[{"AttributeName": "Id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(ShardUnknownError, match=r"without a sort key, .*: use Unsharded\(\)"):
        call(ShardedTable(table, RandomSuffix(4)))
