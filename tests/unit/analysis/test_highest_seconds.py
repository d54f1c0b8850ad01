"""The highest second of the hottest key: over processes and shards, of writes, by rows that are exact."""

from __future__ import annotations

from typing import Any

from shardkit.analysis.trace_files import TraceRow, highest_seconds

ROW = TraceRow(0, "PutItem", "clicks", None, "c1", 1, 1, 0.0, 1.0)


def row(second: int, key: Any, units: float, **other: Any) -> TraceRow:
    return ROW._replace(**{"second": second, "key": key, "write_units": units, "calls": int(units)} | other)


def test_seconds_are_added_up_over_processes_shards_and_operations() -> None:
    rows = [
        *(row(7, "c1", 300, shard=shard) for shard in (1, 2, 3)),
        row(7, "c1", 50, operation="BatchWriteItem"),
        *(row(8, f"c{number}", 400) for number in (1, 2, 3)),
        row(9, "c9", 1000, table="Orders"),
    ]
    assert highest_seconds(rows) == {"clicks": ("c1", 950), "Orders": ("c9", 1000)}


def test_what_is_not_a_write_to_a_key_of_the_table_does_not_count() -> None:
    rows = [
        row(7, None, 5000),
        row(7, "c1", 5000, index_name="by-url"),
        row(7, "c1", 0, operation="Query", read_units=5000.0, throttled=5000),
    ]
    assert highest_seconds(rows) == {}
    assert highest_seconds([*rows, row(7, "c1", 10)]) == {"clicks": ("c1", 10)}


def test_throttled_attempts_ask_for_more_up_to_three_times() -> None:
    assert highest_seconds([row(7, "c1", 1000, throttled=500)]) == {"clicks": ("c1", 1500)}
    assert highest_seconds([row(7, "c1", 1000, throttled=9000)]) == {"clicks": ("c1", 3000)}
    # Their row may be another one: attempts that were all refused.
    refused = row(7, "c1", 0, throttled=500)
    assert highest_seconds([row(7, "c1", 1000), refused]) == {"clicks": ("c1", 1500)}


def test_a_hot_key_that_is_known_by_samples_is_not_known() -> None:
    exact = [row(second, "c1", 900) for second in range(10)]
    sampled = [row(second, "c2", 20, weight=50.0) for second in range(10)]
    assert highest_seconds(exact) == {"clicks": ("c1", 900)}
    assert highest_seconds([*exact, *sampled]) == {}
    # Rows that stand for others are no burst, and cold keys need no shards.
    cold = [row(0, f"c{number}", 1, weight=100.0) for number in range(9)]
    assert highest_seconds([*exact, *cold]) == {"clicks": ("c1", 900)}
    assert highest_seconds([row(second, f"c{second}", 1, weight=15.0) for second in range(9)]) == {
        "clicks": ("c0", 0.0)
    }
