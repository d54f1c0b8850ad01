"""What a load says of throttles: what would help, and counts that agree. In virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardkit.bulk.report import BulkReport
from shardkit.partitions import SimulatedTable, Simulator

SCHEMA = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
COUNT = 4000
MORE = 12_000


def loaded(
    units: int,
    index: int,
    by: Callable[[int], dict[str, str]],
    *,
    window: int,
    count: int = COUNT,
    keys: int | None = None,
) -> BulkReport:
    """Load items of so many partition keys into a table with an index."""
    by_g: dict[str, Any] = {
        "IndexName": "ByG",
        "KeySchema": [{"AttributeName": "gk", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
        "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": index},
    }
    provisioned = {"ReadCapacityUnits": 1, "WriteCapacityUnits": units}
    table = SimulatedTable.described(
        {
            "TableName": "Messages",
            "KeySchema": SCHEMA,
            "ProvisionedThroughput": provisioned,
            "GlobalSecondaryIndexes": [by_g],
        },
        burst_seconds=0,
        keeps_items=False,
    )
    items = ({"pk": f"U{number % (keys or count):06}", "sk": str(number), **by(number)} for number in range(count))
    return Simulator(table).load(items, window=window)


def test_a_hot_key_of_an_index_is_not_one_of_the_table() -> None:
    """More shards of the table's keys do not help where all items are one key of an index: it is the index's."""
    report = loaded(2000, 2000, lambda _: {"gk": "NEW"}, window=5000)
    assert report.throttles_by_reason["IndexWriteKeyRangeThroughputExceeded"] > 100
    assert not any("'U" in advice for advice in report.advice), report.advice
    assert (
        "single partition keys of index ByG were throttled, 'NEW' most, because too many items share them: give it "
        "shards (indexes=, see docs/sharded-indexes.md; the advise() of a CapacityMeter says how many), or load at a "
        "lower rate (write_units=)"
    ) in report.advice


@pytest.mark.parametrize(("keys", "share"), [(400, 0.5), (30_000, 0.2)])
def test_throttles_are_worth_a_word_without_a_reason(keys: int, share: float) -> None:
    """No single write was refused, so that none was ever heard."""
    report = loaded(
        12_000,
        12_000,
        lambda n: {"gk": "HOT" if n % 10 < 10 * share else f"G{n}"},
        window=10_000,
        count=MORE,
        keys=keys,
    )
    assert report.throttles > 300
    assert report.advice


@pytest.mark.parametrize("index", [2, 20])
def test_every_throttle_has_a_reason(index: int) -> None:
    """Also a batch that a single write was sent for, which was refused like it."""
    report = loaded(2000, index, lambda n: {"gk": f"G{n}"} if n % 20 == 0 else {}, window=5000)
    assert sum(report.throttles_by_reason.values()) >= report.throttles > 0


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_hot_key_of_the_table_is_named_without_a_reason_too(share: float) -> None:
    """Most of what was refused is of one key."""
    report = loaded(10_000, 10_000, lambda n: {"pk": "HOT"} if n % 10 < 10 * share else {}, window=5000, count=MORE)
    assert next(iter(report.hot_keys)) == "HOT"
    assert report.throttles > 20
    assert any("'HOT'" in advice for advice in report.advice), report.advice
