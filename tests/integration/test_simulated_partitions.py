"""Simulated partitions in front of real engines, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from shardkit.testing import VirtualClock, simulate_partitions
from tests.conftest import REGION
from tests.support import engines
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

LONGEST_WAIT = 2.0
"""Seconds that a load may be at rest in all: a throttled key waits for a second at the most."""
SHARES: dict[str, Any] = {"adaptive_seconds": None, "burst": 0}


def orders(resource: DynamoDBServiceResource) -> Any:
    return make_table(
        resource,
        ("Date", "S"),
        ("OrderId", "S"),
        local_indexes=[LocalIndex("ByTotal", ("Total", "N"), "KEYS_ONLY")],
        global_indexes=[GlobalIndex("ByCustomer", ("Customer", "S"), projection="KEYS_ONLY")],
    )


def order(number: int, size: int = 0, **more: Any) -> dict[str, Any]:
    return {"Date": "2014-07-09", "OrderId": f"A{number:03}", "Note": "x" * size, **more}


def key(number: int) -> dict[str, Any]:
    return {"Date": "2014-07-09", "OrderId": f"A{number:03}"}


def calls_of(table: Any) -> Iterator[Any]:
    """What each of many calls consumed, as its answer says."""
    client, name = table.meta.client, table.name
    asked = {"ReturnConsumedCapacity": "INDEXES"}
    values = {":x": "x" * 3000, ":c": "C2"}
    update = {"UpdateExpression": "SET Note = :x, Customer = :c", "ExpressionAttributeValues": values}
    query: dict[str, Any] = {
        "KeyConditionExpression": "#d = :d",
        "ExpressionAttributeNames": {"#d": "Date"},
        "ExpressionAttributeValues": {":d": "2014-07-09"},
    }
    filtered: dict[str, Any] = {
        **query,
        "FilterExpression": "Customer = :o",
        "ExpressionAttributeValues": {":d": "2014-07-09", ":o": "C1"},
    }
    for number in range(5):
        yield table.put_item(Item=order(number, 900 * number, Customer="C1", Total=number), **asked)
    yield table.put_item(Item=order(1, 5000, Customer="C1", Total=7), **asked)
    yield table.put_item(Item=order(1), **asked)
    yield table.update_item(Key=key(2), **update, **asked)
    yield table.update_item(Key=key(7), **update, **asked)
    yield table.delete_item(Key=key(3), **asked)
    puts = [{"PutRequest": {"Item": order(number, 2000, Customer="C3")}} for number in (2, 3, 8)]
    yield client.batch_write_item(RequestItems={name: [*puts, {"DeleteRequest": {"Key": key(4)}}]}, **asked)
    for consistent in (False, True):
        yield table.get_item(Key=key(2), ConsistentRead=consistent, **asked)
        yield table.get_item(Key=key(2), ProjectionExpression="OrderId", ConsistentRead=consistent, **asked)
        yield table.query(**query, ConsistentRead=consistent, **asked)
        yield table.query(**filtered, ConsistentRead=consistent, **asked)
        yield table.query(**query, Limit=2, ScanIndexForward=False, ConsistentRead=consistent, **asked)
        yield client.batch_get_item(
            RequestItems={name: {"Keys": [key(number) for number in range(9)], "ConsistentRead": consistent}}, **asked
        )
    writes = [
        {"Put": {"TableName": name, "Item": order(9, 3000, Customer="C4", Total=1)}},
        {"Update": {"TableName": name, "Key": key(2), **update}},
        {"Delete": {"TableName": name, "Key": key(8)}},
        {"ConditionCheck": {"TableName": name, "Key": key(1), "ConditionExpression": "attribute_exists(OrderId)"}},
    ]
    yield client.transact_write_items(TransactItems=writes, **asked)
    gets = [{"Get": {"TableName": name, "Key": key(number)}} for number in (2, 9, 77)]
    yield client.transact_get_items(TransactItems=gets, **asked)
    yield table.query(**query, Select="COUNT", **asked)
    yield table.scan(ProjectionExpression="OrderId", **asked)
    yield table.query(
        IndexName="ByCustomer",
        KeyConditionExpression="Customer = :c",
        ExpressionAttributeValues={":c": "C3"},
        **asked,
    )


def units_of(answer: Any) -> Any:
    """The units of an answer, without what engines add to the rules' parts (reads and writes apart) or leave out."""
    consumed = answer["ConsumedCapacity"]
    (one,) = consumed if isinstance(consumed, list) else [consumed]
    parts = {
        kind: {name: part["CapacityUnits"] for name, part in one.get(kind, {}).items() if part["CapacityUnits"]}
        for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
    }
    return one["CapacityUnits"], one.get("Table", {}).get("CapacityUnits", 0.0), parts


@pytest.mark.integration
def test_the_units_are_those_that_dynoxide_counts(engine_endpoint: Callable[[engines.EngineName], str]) -> None:
    """The same calls on two tables: one with simulated partitions in front, whose units are ours, and one without."""
    resource = boto3.resource("dynamodb", region_name=REGION, endpoint_url=engine_endpoint("dynoxide"))
    plain, simulated = orders(resource), orders(resource)
    with simulate_partitions(simulated, clock=VirtualClock()):
        ours = list(map(units_of, calls_of(simulated)))
    theirs = list(map(units_of, calls_of(plain)))
    resource.meta.client.close()
    assert ours == theirs


def test_throttles_batches_and_loads(engine_resource: DynamoDBServiceResource) -> None:
    client = boto3.client(
        "dynamodb",
        region_name=REGION,
        endpoint_url=engine_resource.meta.client.meta.endpoint_url,
        config=Config(retries={"total_max_attempts": 1}),
    )
    table = orders(engine_resource)
    wire = [{"PutRequest": {"Item": {name: {"S": text} for name, text in key(number).items()}}} for number in range(9)]
    with simulate_partitions(client, table.name, partitions=1, write_units=4, clock=VirtualClock(), **SHARES):
        answer = client.batch_write_item(RequestItems={table.name: wire})  # type: ignore[dict-item]
        assert answer["UnprocessedItems"] == {table.name: wire[4:]}
        with pytest.raises(ClientError, match="ProvisionedThroughputExceededException"):
            client.batch_write_item(RequestItems=answer["UnprocessedItems"])
    assert table.scan()["Count"] == 4
    client.close()
    clock = VirtualClock()
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=6))
    with simulate_partitions(sharded, partitions=3, write_units=60, clock=clock, **SHARES) as simulated:
        report = bulk_load(sharded, map(order, range(500)))
    assert report.written == 500
    assert sum(hot.write_units for hot in simulated.hottest_partitions()) == report.write_units == 500
    least = (max(hot.write_units for hot in simulated.hottest_partitions()) - 20) / 20
    assert least - 0.2 <= clock() <= least + LONGEST_WAIT
