"""What a meter counts of the keys of global indexes is what engines report of the indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, Unsharded, bulk_load
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

STATUSES = ("open", "paid", "sent")


@pytest.mark.parametrize("sharded", [False, True])
def test_the_units_of_the_keys_are_those_of_the_index(
    engine_resource: DynamoDBServiceResource, *, sharded: bool
) -> None:
    """Known from the description of a plain Table, and of a sharded one: by puts, updates, a load, a read."""
    plain: Any = make_table(
        engine_resource, ("pk", "S"), ("sk", "N"), global_indexes=[GlobalIndex("by-status", ("status", "S"))]
    )
    table: Any = ShardedTable(plain, CalculatedSuffix("sk", shards=3)) if sharded else plain
    meter = CapacityMeter()
    with meter.attach(table):
        items = [{"pk": "a", "sk": number, "status": STATUSES[number % 3], "pad": "x" * 3000} for number in range(60)]
        bulk_load(table, items[:30])
        with table.batch_writer() as batch:
            for item in items[30:]:
                batch.put_item(Item=item)
        table.put_item(Item={"pk": "a", "sk": 100, "status": "open"})
        table.put_item(Item={"pk": "a", "sk": 101})
        table.update_item(
            Key={"pk": "a", "sk": 100},
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": "paid"},
        )
        found = table.query(IndexName="by-status", KeyConditionExpression=Key("status").eq("open"))
    assert found["Count"] == 20
    units = {key: usage for (_, _, key), usage in meter.by_index_key.items()}
    index = meter.by_index[plain.name, "by-status"]
    assert units.keys() == set(STATUSES)
    assert sum(one.write_units + one.estimated_write_units for one in units.values()) == index.write_units
    assert units["open"].read_units == index.read_units > 0
    assert units["open"].requests == 22


def test_the_keys_of_a_sharded_index(engine_resource: DynamoDBServiceResource) -> None:
    """Counted as they are stored; the advice is on the logical one."""
    plain: Any = make_table(
        engine_resource, ("pk", "S"), ("sk", "N"), global_indexes=[GlobalIndex("by-status", ("StatusShard", "S"))]
    )
    strategy = CalculatedSuffix("sk", shards=3, source="status")
    table: Any = ShardedTable(plain, Unsharded(), indexes={"by-status": strategy})
    meter = CapacityMeter(clock=lambda: 0.0)
    with meter.attach(table):
        bulk_load(table, [{"pk": "a", "sk": number, "status": "open", "pad": "x" * 100_000} for number in range(40)])
        table.update_item(
            Key={"pk": "a", "sk": 0},
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": "paid"},
        )
        assert table.query(IndexName="by-status", KeyConditionExpression=Key("status").eq("open"))["Count"] > 0
    by_key = meter.by_index_key
    assert {key for _, _, key in by_key} == {"open.1", "open.2", "open.3", "paid.1"}
    written = sum(usage.write_units + usage.estimated_write_units for usage in by_key.values())
    assert written == pytest.approx(meter.by_index[plain.name, "by-status"].write_units)
    (advice,) = (one for one in meter.advise(headroom=0.2) if one.index is not None)
    assert (advice.key, advice.shards, advice.strategy) == ("open", 3, strategy)
