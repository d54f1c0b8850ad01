"""stage_items against moto's S3: what is in the objects, whatever the source, strategy and keys."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    RangeSuffix,
    ShardedTable,
    Strategy,
    Unsharded,
    bulk_load,
)
from shardkit.staging import stage_items
from tests.support.stage_objects import DEFINITION, TO, manifest_of, orders_table, staged_items

STRATEGIES: list[Strategy] = [
    Unsharded(),
    RandomSuffix(10),
    CalculatedSuffix("OrderId", shards=10),
    RangeSuffix("OrderId", ["A01", "A02"]),
]


def some(count: int = 300, days: int = 7) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{n % days:02}", "OrderId": f"A{n:04}", "n": n, "note": "äöü"} for n in range(count)]


def key(item: Any) -> tuple[Any, ...]:
    return item["Date"], item["OrderId"]


def logical(orders: ShardedTable, s3: Any) -> list[dict[str, Any]]:
    return sorted((orders.logical_item(item) for item in staged_items(s3)), key=key)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_items_are_stored_as_bulk_load_stores_them(s3: Any, resource: Any, strategy: Strategy) -> None:
    resource.create_table(TableName="Orders", **DEFINITION)
    orders = ShardedTable(resource.Table("Orders"), strategy)
    report = stage_items(some(), TO, table=orders, s3=s3)
    assert (report.items, report.failed, report.superseded, report.objects) == (300, 0, 0, 1)
    assert report.manifest == "s3://bucket/orders/manifest.json"
    assert logical(orders, s3) == sorted(some(), key=key)
    bulk_load(orders, some())
    loaded = resource.Table("Orders").scan()["Items"]
    staged = staged_items(s3)
    if isinstance(strategy, RandomSuffix):  # their draws differ
        assert len({item["Date"].partition(".")[2] for item in staged}) == 10
    else:
        assert sorted(staged, key=key) == sorted(loaded, key=key)
    manifest = manifest_of(s3)
    assert Strategy.from_dict(manifest.strategy) == strategy
    assert manifest.definition == DEFINITION
    assert manifest.write_units == 300


def test_the_order_is_mixed(s3: Any, resource: Any) -> None:
    stage_items(sorted(some(), key=key), TO, table=orders_table(resource, Unsharded()), s3=s3)
    days = [item["Date"] for item in staged_items(s3)]
    assert sum(one == other for one, other in pairwise(days)) < 2 * 300 / 7


@pytest.mark.parametrize("source", [[], iter(())])
def test_no_items(s3: Any, resource: Any, temporary: Path, source: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^source: there are no items to stage"):
        stage_items(source, TO, table=orders_table(resource, Unsharded()), s3=s3)
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    assert list(temporary.iterdir()) == []


def test_one_item(s3: Any, resource: Any, temporary: Path) -> None:
    report = stage_items(some(1), TO, table=orders_table(resource, RandomSuffix(3)), s3=s3)
    assert (report.items, report.objects) == (1, 1)
    assert list(temporary.iterdir()) == []
