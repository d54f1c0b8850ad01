"""Bulk loads on real engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import BulkLoadError, CalculatedSuffix, ShardedTable, bulk_load
from tests.support.fakes import Fault, Faults, once, timeless
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

DAYS = [f"2014-07-{day:02}" for day in range(1, 6)]
FAULTS: list[Fault] = [
    "none",
    "throttle",
    "unprocessed",
    "500 after",
    "lost",
    "unprocessed by ARN",
    "lost after",
    "500",
]


@pytest.fixture
def resource_once(engine_resource: DynamoDBServiceResource) -> Iterator[DynamoDBServiceResource]:
    resource = once(engine_resource)
    yield resource
    resource.meta.client.close()


@pytest.fixture
def table(resource_once: DynamoDBServiceResource) -> Iterator[Table]:
    """Orders by day and number, with an index by customer."""
    by_customer = GlobalIndex("by-customer", ("Customer", "S"), projection="KEYS_ONLY")
    table = make_table(resource_once, ("Date", "S"), ("OrderId", "N"), global_indexes=[by_customer])
    yield table
    table.delete()


def some(count: int) -> list[dict[str, Any]]:
    """Orders, sorted by day, of 0.1 to 2.6 KB."""
    return [
        {"Date": day, "OrderId": number, "Customer": f"C{number % 7}", "note": "x" * (number % 6 * 500), "b": b"\x00b"}
        for day in DAYS
        for number in range(count // len(DAYS))
    ]


def stored(table: Table) -> list[tuple[Any, ...]]:
    """What the table holds, without the suffixes."""
    items: list[Any] = []
    page = table.scan(ConsistentRead=True)
    items += page["Items"]
    while "LastEvaluatedKey" in page:
        page = table.scan(ConsistentRead=True, ExclusiveStartKey=page["LastEvaluatedKey"])
        items += page["Items"]
    return sorted((item["Date"].rsplit(".", 1)[0], item["OrderId"], item["Customer"], item["note"]) for item in items)


def given(items: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((item["Date"], item["OrderId"], item["Customer"], item["note"]) for item in items)


def test_the_table_equals_the_source_and_the_units_what_was_reported(table: Table) -> None:
    """2,000 items over 20 shards; the report's write units are the sum of the engine's own, indexes included."""
    reported: list[float] = []
    lock = threading.Lock()

    def count(parsed: dict[str, Any], **_: Any) -> None:
        with lock:
            reported.extend(consumed["CapacityUnits"] for consumed in parsed["ConsumedCapacity"])

    table.meta.client.meta.events.register("after-call.dynamodb.BatchWriteItem", count)
    source = some(2000)
    report = bulk_load(ShardedTable(table, CalculatedSuffix("OrderId", shards=20)), source)
    assert stored(table) == given(source)
    assert (report.items, report.written, report.failed, report.requests) == (2000, 2000, 0, 80)
    assert len(reported) == 80
    assert report.write_units == pytest.approx(sum(reported))
    assert report.write_units >= 2 * 2000
    assert report.per_shard.keys() == set(range(1, 21))
    assert sum(tally.items for tally in report.per_shard.values()) == 2000
    assert sum(tally.write_units for tally in report.per_shard.values()) == pytest.approx(report.write_units)


@pytest.mark.parametrize("workers", [1, 4])
def test_conservation(table: Table, workers: int) -> None:
    """With faults of every kind and duplicate keys: the last write of each key is what the table holds."""
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=3))
    timeless(orders)
    Faults(table.meta.client, islice(cycle(FAULTS), 40))
    last = [{**item, "note": "second"} for item in some(100)]
    report = bulk_load(orders, [*some(300), *last], workers=workers)
    assert (report.items, report.written, report.duplicates) == (400, 300, 100)
    assert report.retried > 0
    assert report.throttles > 0
    kept = {(item["Date"], item["OrderId"]): item for item in [*some(300), *last]}
    assert stored(table) == given(list(kept.values()))


def test_an_item_that_only_the_service_refuses(table: Table) -> None:
    """It is found, alone, and all others are written."""
    source = some(50)
    source[33]["Customer"] = 5
    with pytest.raises(BulkLoadError) as raised:
        bulk_load(ShardedTable(table, CalculatedSuffix("OrderId", shards=3)), source)
    (failure,) = raised.value.failed
    assert failure.item == source[33]
    del source[33]
    assert stored(table) == given(source)


def test_batch_writer(table: Table) -> None:
    """Puts and deletes, in batches, each key by its last write."""
    source = some(120)
    with ShardedTable(table, CalculatedSuffix("OrderId", shards=3)).batch_writer() as batch:
        for item in source:
            batch.put_item(Item=item)
        for item in source[:60]:
            batch.delete_item(Key={"Date": item["Date"], "OrderId": item["OrderId"]})
        batch.put_item(Item=source[0])
    assert stored(table) == given([source[0], *source[60:]])
