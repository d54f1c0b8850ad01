"""Read the popular products of a catalogue from memory.

    python examples/popular_items.py --table ProductCatalog

The script creates the table (on-demand), and loads products into it. Then customers look at products by Zipf's law: a
few products get most of the views. `CachedTable` reads those from memory, and the meter shows what that saves. A price
that changes is seen at once. The table is deleted at the end.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from shardkit import CapacityMeter, ShardkitError, bulk_load
from shardkit.cache import CachedTable


def create(name: str) -> Any:
    """Create the table of products."""
    table = boto3.resource("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "Id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    table.wait_until_exists()
    return table


def views(products: int, number: int) -> list[str]:
    """Draw the products that customers look at: the product of rank r in proportion to 1 / r."""
    weights = list(accumulate(1 / rank for rank in range(1, products + 1)))
    names = [f"p{number:06}" for number in range(products)]
    return random.Random(1).choices(names, cum_weights=weights, k=number)


def read(table: Any, asked: Sequence[str]) -> None:
    """Let customers look at products, and change the price of the most popular one meanwhile."""
    # Memory for a tenth of the products: about 600 bytes each.
    memory = max(100_000, len(set(asked)) // 10 * 600)
    products = CachedTable(table, max_bytes=memory, ttl=30, stale_if_throttled=300)
    meter = CapacityMeter()
    with meter.attach(table):
        for place, product in enumerate(asked):
            if place == len(asked) // 2:
                change_price(products, "p000000", 99)
            products.get_item(Key={"Id": product})
    print(meter)
    used = meter.cache
    print(f"{used.hit_ratio:.0%} of {len(asked):,} views from memory, {used.saved_read_units:,.1f} read units saved")
    (_, key), usage = max(meter.cache_by_key.items(), key=lambda entry: entry[1].hits)
    print(f"most of them of {key}: {usage.hits:,} views, {usage.misses:,} requests")


def change_price(products: CachedTable, product: str, price: int) -> None:
    """Change a price: the next reader of this program sees it."""
    products.update_item(
        Key={"Id": product},
        UpdateExpression="SET Price = :price",
        ExpressionAttributeValues={":price": price},
        ReturnValues="ALL_NEW",
    )
    if products.get_item(Key={"Id": product})["Item"]["Price"] != price:
        raise RuntimeError(f"the price of {product} is an old one")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example and return the exit code."""
    parser = argparse.ArgumentParser(description="Read the popular products of a catalogue from memory.")
    parser.add_argument("--table", required=True, help="the table to create, and to delete at the end")
    parser.add_argument("--products", type=int, default=2000, help="products (default: 2000)")
    parser.add_argument("--views", type=int, default=10_000, help="views of products (default: 10000)")
    options = parser.parse_args(arguments)
    try:
        table = create(options.table)
        try:
            bulk_load(table, ({"Id": f"p{number:06}", "Price": number % 90 + 10} for number in range(options.products)))
            read(table, views(options.products, options.views))
        finally:
            table.delete()
    except (BotoCoreError, ClientError, ShardkitError) as error:
        print(f"not done: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
