"""ShardedTable.batch_writer: boto3's way to write many items, without its faults."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3.dynamodb.table as boto3_table
import pytest
from botocore.exceptions import ClientError

from shardkit import BulkLoadError, CalculatedSuffix, ConfigurationError, RandomSuffix, ShardedTable, ShardUnknownError
from shardkit.bulk.batch_writer import BatchWriter
from tests.support.fakes import Clock, Fault, Faults, once, timeless
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

DAY = "2014-07-09"


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    """Orders by day, through a client that tries each request once."""
    return once(resource).Table(make_table(resource, ("Date", "S"), ("OrderId", "S")).name)


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=4))


@pytest.fixture
def clock(orders: ShardedTable) -> Clock:
    return timeless(orders)


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"Date": DAY, "OrderId": f"A{number:03}", **more}


def put(orders: ShardedTable, *items: dict[str, Any]) -> None:
    with orders.batch_writer() as batch:
        for item in items:
            batch.put_item(Item=item)


def stored(table: Table) -> dict[Any, Any]:
    return {item["OrderId"]: item for item in table.scan()["Items"]}


def keys(batch: list[Any]) -> list[str]:
    """The sort keys of a request, in order."""
    return [part["OrderId"]["S"] for request in batch for body in request.values() for part in body.values()]


def names(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_boto3_s_signatures() -> None:
    """What works with boto3's writer works with this one."""
    theirs = boto3_table.BatchWriter
    assert names(ShardedTable.batch_writer) == names(boto3_table.TableResource.batch_writer)
    assert names(BatchWriter.put_item) == names(theirs.put_item)
    assert names(BatchWriter.delete_item) == names(theirs.delete_item)


def test_puts_and_deletes(orders: ShardedTable, table: Table) -> None:
    """Batches of 25, in the order of the shards' turns; a delete finds what a put wrote."""
    faults = Faults(table.meta.client)
    put(orders, *map(order, range(60)))
    assert [len(sent) for sent in faults.batches] == [25, 25, 10]
    assert len(stored(table)) == 60
    with orders.batch_writer() as batch:
        for number in range(59):
            batch.delete_item(Key=order(number))
        batch.put_item(order(0, again=True))
    assert stored(table).keys() == {"A000", "A059"}
    assert orders.get_item(Key=order(0))["Item"]["again"] is True


def test_an_empty_block(orders: ShardedTable, table: Table) -> None:
    """It sends nothing and raises nothing, as with boto3."""
    faults = Faults(table.meta.client)
    with orders.batch_writer():
        pass
    assert faults.batches == []


def test_overwrite_by_pkeys(orders: ShardedTable, table: Table) -> None:
    """Of writes that were not sent the last one stays, be it a put or a delete."""
    faults = Faults(table.meta.client)
    with orders.batch_writer(overwrite_by_pkeys=["Date", "OrderId"]) as batch:
        for turn in range(40):
            batch.put_item(Item=order(1, turn=turn))
            batch.put_item(Item=order(2))
            batch.delete_item(Key=order(2))
    assert [sorted(keys(sent)) for sent in faults.batches] == [["A001", "A002"]]
    assert stored(table).keys() == {"A001"}
    assert stored(table)["A001"]["turn"] == 39


def test_one_key_twice_without_overwrite_by_pkeys(orders: ShardedTable, table: Table) -> None:
    """boto3 ends in a ValidationException; here the last one wins."""
    put(orders, *(order(1, turn=turn) for turn in range(7)))
    assert stored(table)["A001"]["turn"] == 6


def test_a_body_that_raises_sends_nothing_more(orders: ShardedTable, table: Table) -> None:
    """The exception is the body's own, and what was not sent yet is not sent behind its back."""
    faults = Faults(table.meta.client)
    writer = orders.batch_writer()

    def body() -> None:
        with writer as batch:
            for number in range(30):
                batch.put_item(Item=order(number))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert [len(sent) for sent in faults.batches] == [25]
    with pytest.raises(ConfigurationError, match="has ended"):
        writer.put_item(Item=order(1))


def test_a_writer_that_has_ended_is_refused(orders: ShardedTable) -> None:
    """What would be put there would not be sent."""
    with orders.batch_writer() as batch:
        batch.put_item(Item=order(1))
    with pytest.raises(ConfigurationError, match="open a new one"):
        batch.delete_item(Key=order(1))


def test_failures_are_raised_at_the_end_with_their_reasons(orders: ShardedTable, table: Table) -> None:
    """All else is written, and the error says which item failed and why; it survives pickling."""
    items = [order(1, price=1.5), *map(order, range(30)), {"Date": DAY}]
    with pytest.raises(BulkLoadError, match="2 of 32 items") as raised:
        put(orders, *items)
    error = raised.value
    assert [(failure.place, type(failure.error).__name__) for failure in error.failed] == [
        (0, "InvalidValueError"),
        (31, "InvalidKeyError"),
    ]
    assert len(stored(table)) == 30
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own bytes


def test_a_delete_without_its_shard(table: Table) -> None:
    """It is not guessed."""
    orders = ShardedTable(table, RandomSuffix(4))
    put(orders, order(1))
    batch = orders.batch_writer()
    batch.delete_item(Key=order(1))
    with pytest.raises(BulkLoadError) as raised, batch:
        pass
    assert isinstance(raised.value.failed[0].error, ShardUnknownError)
    assert len(stored(table)) == 1


def test_the_caller_s_objects_are_not_changed(orders: ShardedTable) -> None:
    """Neither items nor keys, nor the list of attribute names."""
    item, key, by = order(1, deep=[{"a": {1, 2}}]), order(2), ["Date", "OrderId"]
    before = copy.deepcopy((item, key, by))
    with orders.batch_writer(by) as batch:
        batch.put_item(item)
        batch.delete_item(key)
    assert (item, key, by) == before


# The faults of other writers (boto3's above all), none of which is ours.


def test_unprocessed_items_are_not_resent_at_once_nor_for_ever(
    orders: ShardedTable, table: Table, clock: Clock
) -> None:
    """Waits come between, they grow to a second for each write that is sent, and the tries end after a minute."""
    faults = Faults(table.meta.client, ["unprocessed"] * 1000, alone=["throttle"] * 1000)
    with pytest.raises(BulkLoadError, match="nothing was written for 60 s"):
        put(orders, order(1))
    assert 10 < len(faults.batches) <= len(clock.sleeps) + 1
    assert 0 < clock.sleeps[0] <= 0.05
    assert sum(clock.sleeps[:5]) < 2
    assert max(clock.sleeps) <= 2
    assert 60 <= sum(clock.sleeps) < 63


@pytest.mark.parametrize("fault", ["500", "lost", "throttle", "500 after", "lost after"])
def test_an_error_loses_no_items(orders: ShardedTable, table: Table, clock: Clock, fault: Fault) -> None:
    """boto3 empties its buffer before the call: an error loses up to 25 items."""
    Faults(table.meta.client, [fault, "none", fault])
    put(orders, *map(order, range(60)))
    assert len(stored(table)) == 60


@pytest.mark.parametrize("fault", ["unprocessed", "unprocessed by ARN"])
def test_an_unprocessed_item_beside_a_newer_write_of_its_key(
    orders: ShardedTable, table: Table, clock: Clock, fault: Fault
) -> None:
    """They are never in one request, and the newer one wins."""
    faults = Faults(table.meta.client, [fault] * 3)
    with orders.batch_writer() as batch:
        for turn in range(3):
            for number in range(25):
                batch.put_item(Item=order(number, turn=turn))
    assert all(len(set(keys(sent))) == len(sent) <= 25 for sent in faults.batches)
    assert {item["turn"] for item in stored(table).values()} == {2}


def test_unprocessed_items_by_arn_are_not_lost(orders: ShardedTable, table: Table, clock: Clock) -> None:
    """boto3 looks them up by the table's name only."""
    Faults(table.meta.client, ["unprocessed by ARN"] * 2)
    put(orders, *map(order, range(25)))
    assert len(stored(table)) == 25


def test_one_bad_item_does_not_fail_24_good_ones(orders: ShardedTable, table: Table) -> None:
    """The service rejects the batch; the culprit is found and named."""
    with pytest.raises(BulkLoadError) as raised:
        put(orders, *map(order, range(24)), {"Date": DAY, "OrderId": "x" * 1025})
    (failure,) = raised.value.failed
    assert failure.place == 24
    assert isinstance(failure.error, ClientError)
    assert len(stored(table)) == 24


def test_one_writer_shared_by_threads(orders: ShardedTable, table: Table) -> None:
    """Nothing is lost or doubled."""
    faults = Faults(table.meta.client)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with orders.batch_writer() as batch, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: batch.put_item(Item=order(number)), range(200)))
    finally:
        sys.setswitchinterval(interval)
    sent = [key for one in faults.batches for key in keys(one)]
    assert len(sent) == len(set(sent)) == len(stored(table)) == 200


def test_no_access_ends_it(orders: ShardedTable, table: Table) -> None:
    """At once, inside the block, with all accounted for; a caller that goes on gets the same again."""
    faults = Faults(table.meta.client, ["denied"])
    batch = orders.batch_writer()
    for number in range(24):
        batch.put_item(Item=order(number))
    for number in range(24, 27):
        with pytest.raises(BulkLoadError, match="the load stopped"):
            batch.put_item(Item=order(number))
    with pytest.raises(BulkLoadError, match="the load stopped") as raised, batch:
        pass
    assert len(raised.value.failed) == 27
    assert len(faults.batches) == 1


def test_what_replaces_is_remembered_no_longer_than_it_waits(orders: ShardedTable, table: Table, clock: Clock) -> None:
    """A key that was sent and comes again is a new write, also while the first one is unprocessed."""
    Faults(table.meta.client, ["unprocessed"])
    with orders.batch_writer(overwrite_by_pkeys=["Date", "OrderId"]) as batch:
        for turn in range(2):
            for number in range(25):
                batch.put_item(Item=order(number, turn=turn))
    assert {item["turn"] for item in stored(table).values()} == {1}
    assert len(stored(table)) == 25
