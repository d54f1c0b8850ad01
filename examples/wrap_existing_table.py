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
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, ShardedTable, ShardkitError, Unsharded, bulk_load


def make_alike(existing: ShardedTable, name: str) -> Any:
    """Make a table with the key schema of another; indexes, streams and settings are yours to add."""
    keys = {element["AttributeName"] for element in existing.table.key_schema}
    table = boto3.resource("dynamodb").create_table(
        TableName=name,
        KeySchema=existing.table.key_schema,
        AttributeDefinitions=[one for one in existing.table.attribute_definitions if one["AttributeName"] in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    table.wait_until_exists()
    return table


def tour(orders: ShardedTable, partition_key: str, sort_key: str, logical_key: str) -> None:
    """Do with one logical key what an application does; the calls are those of boto3's Table."""
    key = {partition_key: logical_key, sort_key: "shardkit-example"}
    orders.put_item(Item={**key, "Total": 12})
    orders.update_item(
        Key=key,
        UpdateExpression="SET #t = #t + :more",
        ExpressionAttributeNames={"#t": "Total"},
        ExpressionAttributeValues={":more": 3},
    )
    got = orders.get_item(Key=key, ReturnShards=True)
    print(f"one item: {got['Item']}, on shard {got['Shard']}, stored as {orders.physical_key(key)}")
    page = orders.query(KeyConditionExpression=Key(partition_key).eq(logical_key), Limit=5)
    print(f"the first of {logical_key}, in order: {[item[sort_key] for item in page['Items']]}")
    orders.delete_item(Key=key)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the exit code."""
    parser = argparse.ArgumentParser(description="Copy a table into a sharded one, and work with it.")
    parser.add_argument("--table", required=True, help="the existing table; its sort key must be a string")
    parser.add_argument("--sharded-table", required=True, help="the table to make")
    parser.add_argument("--by", required=True, help="the attribute that suffixes are calculated from")
    parser.add_argument("--shards", type=int, default=10, help="shards of a key (default: 10)")
    options = parser.parse_args(arguments)

    resource = boto3.resource("dynamodb")
    existing = ShardedTable(resource.Table(options.table), Unsharded())
    try:
        strategy = CalculatedSuffix(options.by, shards=options.shards)
        orders = ShardedTable(make_alike(existing, options.sharded_table), strategy)
        report = bulk_load(orders, existing.scan_items())
        print(f"copied: {report}")
        partition_key, sort_key = (element["AttributeName"] for element in existing.table.key_schema)
        first = existing.scan(Limit=1)["Items"][0]
        tour(orders, partition_key, sort_key, first[partition_key])
    except (ClientError, ShardkitError) as error:
        print(f"not done: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
