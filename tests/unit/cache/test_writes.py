from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shardkit import CalculatedSuffix
from shardkit.cache.entries import Entry
from shardkit.cache.reads import CachedReads
from shardkit.cache.writes import changes_of, rewrites, written
from shardkit.sharding.form import WIRE_VALUES
from tests.support.cached import table_cache
from tests.support.tables import described

SHARDING = described(CalculatedSuffix("Id", shards=3), {"Shop": "S", "Id": "S"}, ["Shop", "Id"], name="Orders")
KEY: dict[str, Any] = {"Shop": {"S": "s1"}, "Id": {"S": "a"}}
STORED = SHARDING.stored(KEY, SHARDING.shard_of(KEY["Shop"], {"Id": "a"}))
NEW: dict[str, Any] = {"Name": {"S": "new"}}
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders"


def changes(operation: str, parsed: Any, named: str = "Orders", **params: Any) -> dict[bytes, Entry | None]:
    call: Any = SimpleNamespace(operation=operation, params=params, shardings={})
    items = written(call, "Orders".__eq__, {"Orders": SHARDING})
    reads = CachedReads(table_cache(), "Orders", ("Shop", "Id"), b"p:", WIRE_VALUES)
    return changes_of(call, parsed, items, reads, {"Orders": SHARDING}, named, holds=lambda _: True)


NAME = b"p:S2:s1S1:a"
ITEM = KEY | NEW
PUT: Any = {"TableName": "Orders", "Item": STORED | NEW}
BATCH: Any = {"Orders": [{"PutRequest": {"Item": STORED | NEW}}], "Others": [{"DeleteRequest": {"Key": KEY}}]}
UPDATE: Any = {"TableName": "Orders", "Key": STORED, "UpdateExpression": "SET a = b"}
FAILED: Any = {"Error": {"Code": "ConditionalCheckFailedException"}}
KNOWN, UNKNOWN = {NAME: ITEM}, {NAME: None}


@pytest.mark.parametrize(
    ("operation", "params", "parsed", "expected"),
    [
        ("PutItem", PUT, {}, KNOWN),
        ("PutItem", PUT, FAILED, UNKNOWN),
        ("PutItem", {**PUT, "TableName": ARN}, {}, UNKNOWN),  # perhaps of another account's table
        ("PutItem", {**PUT, "TableName": "Others"}, {}, {}),
        ("UpdateItem", UPDATE, {}, UNKNOWN),
        ("UpdateItem", {**UPDATE, "ReturnValues": "ALL_NEW"}, {"Attributes": STORED | NEW}, KNOWN),
        ("UpdateItem", {**UPDATE, "ReturnValues": "ALL_OLD"}, {"Attributes": STORED | NEW}, UNKNOWN),
        ("BatchWriteItem", {"RequestItems": BATCH}, {"UnprocessedItems": {}}, KNOWN),
        ("BatchWriteItem", {"RequestItems": BATCH}, {"UnprocessedItems": {"Others": BATCH["Others"]}}, UNKNOWN),
        ("TransactWriteItems", {"TransactItems": [{"Put": PUT}]}, {}, UNKNOWN),
        ("TransactWriteItems", {"TransactItems": [{"ConditionCheck": {**UPDATE}}]}, {}, {}),
        ("GetItem", {"TableName": "Orders", "Key": STORED}, {}, {}),
        ("Query", {"TableName": "Orders"}, {}, {}),
    ],
)
def test_what_is_known_of_an_item_after_a_write(operation: str, params: Any, parsed: Any, expected: Any) -> None:
    found = changes(operation, parsed, **params)
    assert {key: entry and entry.item for key, entry in found.items()} == expected


def test_a_delete_leaves_nothing() -> None:
    assert changes("DeleteItem", {}, TableName="Orders", Key=STORED) == {NAME: Entry(0.5)}


@pytest.mark.parametrize(("table", "expected"), [(ARN, KNOWN), ("Orders", UNKNOWN), (ARN + "2", {})])
def test_a_write_to_a_table_that_is_cached_by_its_arn(table: str, expected: Any) -> None:
    found = changes("PutItem", {}, named=ARN, **PUT | {"TableName": table})
    assert {key: entry and entry.item for key, entry in found.items()} == expected


@pytest.mark.parametrize(
    ("operation", "params", "expected"),
    [
        ("DeleteTable", {"TableName": ARN}, True),
        ("DeleteTable", {"TableName": "Others"}, False),
        ("ExecuteStatement", {"Statement": 'UPDATE "Orders" SET a = 1'}, True),
        ("ExecuteStatement", {"Statement": 'SELECT * FROM "Orders"'}, False),
        ("BatchExecuteStatement", {"Statements": [{"Statement": "DELETE FROM Orders"}]}, True),
        ("ExecuteTransaction", {"TransactStatements": [{"Statement": "INSERT INTO Others VALUE {}"}]}, False),
        ("PutItem", PUT, False),
        ("ListTables", {}, False),
    ],
)
def test_what_may_change_any_item(operation: str, params: Any, expected: Any) -> None:
    call: Any = SimpleNamespace(operation=operation, params=params, shardings={})
    assert rewrites(call, "Orders".__eq__) is expected
