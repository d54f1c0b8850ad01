"""The cache over engines that report what reads consume: what a hit saves is what a miss cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, bulk_load
from shardkit.cache import CachedTable
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource


def test_what_is_saved_is_what_was_consumed(engine_resource: DynamoDBServiceResource) -> None:
    table = ShardedTable(make_table(engine_resource, ("Shop", "S"), ("Id", "N")), CalculatedSuffix("Id", shards=3))
    items: list[Any] = [{"Shop": "s1", "Id": number, "Text": "x" * 3000 * number} for number in range(5)]
    bulk_load(table, items)
    products = CachedTable(table, max_bytes=1_000_000, query_ttl=60.0)  # after the writes: its reads are not consistent
    keys: list[Any] = [{"Shop": "s1", "Id": number} for number in range(6)]
    meter = CapacityMeter()
    with meter.attach(table):
        for key in keys:
            read = [products.get_item(Key=key) for _ in range(2)]
            assert read[0].get("Item") == read[1].get("Item")
        assert meter.cache.saved_read_units == meter.read_units
        assert products.batch_get_items(keys)["Items"] == items
        assert meter.cache.saved_read_units == 2 * meter.read_units
        assert meter.cache_by_key[table.name, "s1"].hits == 12
        page: Any = {"KeyConditionExpression": Key("Shop").eq("s1")}
        assert products.query(**page)["Items"] == products.query(**page)["Items"] == items


def test_a_transaction_is_seen(engine_resource: DynamoDBServiceResource) -> None:
    table = ShardedTable(make_table(engine_resource, ("Shop", "S"), ("Id", "N")), CalculatedSuffix("Id", shards=3))
    products: Any = CachedTable(table, max_bytes=1_000_000)
    key = {"Shop": "s1", "Id": 1}
    for price in (1, 2):
        products.transact_write_items(TransactItems=[{"Put": {"Item": key | {"Price": price}}}])
        assert products.get_item(Key=key)["Item"]["Price"] == price
        assert products.get_item(Key=key)["Cached"] == "fresh"
