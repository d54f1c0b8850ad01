"""Batch writes and bulk loads: every face and strategy stores what a plain boto3 Table stores."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import BulkLoadError, CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy, Unsharded
from shardkit.errors import ShardkitError
from tests.functional.contract.faces import Face, FaceTable, needs
from tests.support.moving import every_stage, stored_in
from tests.support.tables import make_table

DATES = ("2014-07-09", "2014-07-10")
ITEMS: list[dict[str, Any]] = [
    {"Date": date, "OrderId": f"A{number:03}", "Amount": Decimal(number % 5)} for date in DATES for number in range(23)
]
KEYS = [{"Date": item["Date"], "OrderId": item["OrderId"]} for item in ITEMS]
STRATEGIES: dict[str, Strategy] = {
    "calculated": CalculatedSuffix("OrderId", 4),
    "ranges": RangeSuffix("OrderId", ["A006", "A01", "A015"]),
    "random": RandomSuffix(4),
    "located": RandomSuffix(4, locate=True),
    "unsharded": Unsharded(),
    **every_stage(Unsharded(), CalculatedSuffix("OrderId", 4)),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


@pytest.fixture
def stored(face: Face) -> Any:
    return make_table(face.resource, ("Date", "S"), ("OrderId", "S"))


def items_of(table: FaceTable) -> list[dict[str, Any]]:
    return [item for date in DATES for item in table.query(KeyConditionExpression=Key("Date").eq(date))["Items"]]


@every_strategy
def test_batches_write_every_item_once(face: Face, stored: Any, strategy: Strategy) -> None:
    table = face.sharded(stored, strategy, rng=random.Random(3))
    table.write(puts=ITEMS)
    assert items_of(table) == ITEMS
    assert stored_in(stored) == len(ITEMS)


@pytest.mark.parametrize("name", ["calculated", "unsharded"])
def test_batches_replace_and_delete(face: Face, stored: Any, name: str) -> None:
    """The last write of a key counts."""
    table = face.sharded(stored, STRATEGIES[name])
    table.write(puts=ITEMS)
    changed = [{**item, "Amount": Decimal(9)} for item in ITEMS[:30]]
    table.write(puts=changed)
    table.write(deletes=KEYS[30:])
    assert items_of(table) == changed


@every_strategy
def test_a_bulk_load_writes_every_item_once(face: Face, stored: Any, strategy: Strategy) -> None:
    needs(face, "loads")
    table = face.sharded(stored, strategy, rng=random.Random(3))
    report = table.bulk_load(ITEMS)
    assert (report.items, report.written, report.failed) == (len(ITEMS), len(ITEMS), 0)
    assert items_of(table) == ITEMS
    assert stored_in(stored) == len(ITEMS)


@every_strategy
def test_bad_items_do_not_stop_good_ones(face: Face, stored: Any, strategy: Strategy) -> None:
    """The items that cannot be written come back with their reasons; all others are written."""
    needs(face, "loads")
    table = face.sharded(stored, strategy)
    bad: list[dict[str, Any]] = [{"Date": "2014-07-09"}, {**ITEMS[0], "Amount": 1.5}, {"OrderId": "A1", "Date": 5}]
    with pytest.raises(BulkLoadError) as caught:
        table.bulk_load([*bad, *ITEMS])
    assert [result.item for result in caught.value.failed] == bad
    assert all(isinstance(result.error, ShardkitError) for result in caught.value.failed)
    report = table.bulk_load([*bad, *ITEMS], on_error="collect")
    assert (report.written, report.failed) == (len(ITEMS), len(bad))
    assert stored.scan(Select="COUNT")["Count"] >= len(ITEMS)


def test_a_source_that_breaks_loses_nothing_taken(face: Face, stored: Any) -> None:
    """What was taken before the source failed is written, and the error is raised from the source's."""
    needs(face, "loads")

    def source() -> Any:
        for number in range(30):
            yield {"Date": "2014-07-09", "OrderId": f"B{number:03}"}
        raise OSError("the disk is gone")

    table = face.sharded(stored, CalculatedSuffix("OrderId", shards=5))
    with pytest.raises(BulkLoadError, match="the disk is gone") as caught:
        table.bulk_load(source())
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.report is not None
    assert caught.value.report.written == 30
