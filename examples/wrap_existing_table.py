"""Put a sharded table beside one that exists, copy its items, and work with it.

    python examples/wrap_existing_table.py --table Orders --sharded-table Orders-sharded --by OrderId --shards 10

The items of an existing table have no suffix, so a strategy that adds suffixes would not find them. This makes a new
table with the same key schema, copies the items (the suffixes are added on the way), and then puts, gets, updates,
queries and deletes through the wrapper. The existing table is only read.

Writes that reach the existing table during the copy are not seen: stop them, or write to both tables meanwhile.
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
    """Make a primary key for a table, the partition key first, and the attribute that its suffix is calculated from."""
    types = {one["AttributeName"]: one["AttributeType"] for one in table.attribute_definitions}
    keys = sorted(table.key_schema, key=lambda element: str(element["KeyType"]))  # HASH, RANGE
    key = {element["AttributeName"]: EXAMPLE[types[element["AttributeName"]]] for element in keys}
    return key if by in key else {**key, by: EXAMPLE["S"]}


def make_alike(existing: Any, name: str) -> Any:
    """Make a table with the key schema of another; indexes, streams and settings are yours to add."""
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
    """Put a sharded table beside one that exists, copy its items, and work with it."""
    table = boto3.resource("dynamodb").Table(name)
    existing = ShardedTable(table, Unsharded())
    first = next(iter(existing.scan(Limit=1)["Items"]), None)
    # Before a table is made: the strategy fits the keys, and what suffixes are calculated from is there.
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
    """Do with an item what an application does; the calls are those of boto3's Table."""
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
    """Run the example; the exit code."""
    parser = argparse.ArgumentParser(description="Copy a table into a sharded one, and work with it.")
    parser.add_argument("--table", required=True, help="the existing table")
    parser.add_argument("--sharded-table", required=True, help="the table to make")
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
