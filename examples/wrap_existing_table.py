"""Copy an existing table into a new, sharded one, and use it.

    python examples/wrap_existing_table.py --table Orders --sharded-table Orders-sharded --by OrderId --shards 10

The items of an existing table have no suffix, so a strategy that adds suffixes would not find them. This script creates
a table with the same key schema and copies the items, which get their suffixes. Then it puts, gets, updates, queries
and deletes an item through the wrapper. The existing table is only read.

Stop all writes to the existing table until the copy has ended. Writing to both tables is not enough: the copy puts
items as it read them, so it overwrites newer writes, and brings deleted items back.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key
from botocore.exceptions import BotoCoreError, ClientError

from shardkit import CalculatedSuffix, ShardedTable, ShardkitError, Strategy, Unsharded, bulk_load

EXAMPLE: dict[str, Any] = {"S": "shardkit-example", "B": b"shardkit-example", "N": 0}
COUNT = "shardkit-example"


def example_key(table: Any, by: str) -> dict[str, Any]:
    """Return an example key: the partition key first, and the attribute that suffixes are calculated from."""
    types = {one["AttributeName"]: one["AttributeType"] for one in table.attribute_definitions}
    keys = sorted(table.key_schema, key=lambda element: str(element["KeyType"]))  # HASH, RANGE
    key = {element["AttributeName"]: EXAMPLE[types[element["AttributeName"]]] for element in keys}
    return key if by in key else {**key, by: EXAMPLE["S"]}


def make_alike(existing: Any, name: str) -> Any:
    """Create a table with the key schema of another. Add indexes, streams and settings yourself."""
    keys = {element["AttributeName"] for element in existing.key_schema}
    table = boto3.resource("dynamodb").create_table(
        TableName=name,
        KeySchema=existing.key_schema,
        AttributeDefinitions=[one for one in existing.attribute_definitions if one["AttributeName"] in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    table.wait_until_exists()
    return table


def wrap(name: str, sharded_name: str, strategy: Strategy, by: str) -> None:
    """Copy an existing table into a new, sharded one, and use it."""
    table = boto3.resource("dynamodb").Table(name)
    existing = ShardedTable(table, Unsharded())
    first = next(iter(existing.scan(Limit=1)["Items"]), None)
    # Before a table is created, check that the strategy fits the keys, and that the `by` attribute exists.
    key = example_key(table, by)
    for item in (key, first or key):
        ShardedTable(table, strategy).physical_item(item)
    orders = ShardedTable(make_alike(table, sharded_name), strategy)
    if first is None:
        print("copied: nothing, the table is empty")
    else:
        print(f"copied: {bulk_load(orders, existing.scan_items())}")
    tour(orders, key, first or key)


def tour(orders: ShardedTable, key: dict[str, Any], first: dict[str, Any]) -> None:
    """Use an item as an application does. The calls are those of boto3's Table."""
    orders.put_item(Item={**key, COUNT: 12})
    orders.update_item(
        Key=key,
        UpdateExpression="SET #c = #c + :more",
        ExpressionAttributeNames={"#c": COUNT},
        ExpressionAttributeValues={":more": 3},
    )
    got = orders.get_item(Key=key, ReturnShards=True)
    print(f"one item: {got['Item']}, on shard {got['Shard']}, stored as {orders.physical_key(key)}")
    partition_key, *others = key
    page = orders.query(KeyConditionExpression=Key(partition_key).eq(first[partition_key]), Limit=5)
    items = [[item[name] for name in others if name in item] for item in page["Items"]]
    print(f"the first of {first[partition_key]!r}, in order: {items}")
    orders.delete_item(Key=key)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example and return the exit code."""
    parser = argparse.ArgumentParser(description="Copy a table into a new, sharded one, and use it.")
    parser.add_argument("--table", required=True, help="the existing table")
    parser.add_argument("--sharded-table", required=True, help="the table to create")
    parser.add_argument("--by", required=True, help="the attribute that suffixes are calculated from")
    parser.add_argument("--shards", type=int, default=10, help="shards of a key (default: 10)")
    options = parser.parse_args(arguments)
    try:
        strategy = CalculatedSuffix(options.by, shards=options.shards)
        wrap(options.table, options.sharded_table, strategy, options.by)
    except (BotoCoreError, ClientError, ShardkitError) as error:
        print(f"not done: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
