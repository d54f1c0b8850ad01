"""Planned bulk loads: the guide's 20 million items, in 30 minutes or 3 hours, and what always holds."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.errors import ConfigurationError
from shardkit.partitions import IndexLoad, IndexWrites, initial_partitions, plan_bulk_load

ITEMS, SIZE = 20_000_000, 1000

# -- Best Practices for Tables, "Consider Workload Uniformity When Adjusting Provisioned Throughput" -------------------


def test_20_million_items_of_1_kb_are_20_gb_and_20_million_write_units() -> None:
    plan = plan_bulk_load(ITEMS, SIZE, write_units=11_000)
    assert plan.total_write_units == 20_000_000
    # The guide leaves out the 100 bytes that storage adds to an item.
    assert plan.size - 100 * ITEMS == 20 * 1000**3


def test_11000_write_units_load_it_in_30_minutes_and_make_11_partitions_of_1000() -> None:
    plan = plan_bulk_load(ITEMS, SIZE, write_units=11_000, steady_write_units=200)
    assert round(plan.seconds / 60) == 30
    assert (plan.partitions, plan.partition_write_units) == (11, 1000)
    assert plan.partitions_when_loaded == 11
    # "each of the 11 partitions will have around 20 write capacity units"
    assert plan.steady_partition_write_units is not None
    assert round(plan.steady_partition_write_units, -1) == 20


def test_within_30_minutes_exactly_it_is_a_little_more_than_the_guide_says() -> None:
    plan = plan_bulk_load(ITEMS, SIZE, within=timedelta(minutes=30))
    assert (plan.write_units, plan.partitions) == (11_112, 12)
    assert 1799 < plan.seconds <= 1800


def test_over_3_hours_it_takes_2_partitions() -> None:
    plan = plan_bulk_load(ITEMS, SIZE, within=3 * 3600)
    assert plan.write_units == 1852  # which the guide rounds to 1900
    assert plan.partitions == plan_bulk_load(ITEMS, SIZE, write_units=1900).partitions == 2
    assert plan.partition_write_units == 926
    # With 100 bytes more an item the data are more than two partitions hold.
    assert plan.partitions_when_loaded == 4
    later = plan_bulk_load(ITEMS, SIZE, within=3 * 3600, steady_write_units=200)
    assert later.steady_partition_write_units == 50


def test_the_slower_load_makes_no_more_partitions_than_are_needed_anyway() -> None:
    slower = plan_bulk_load(ITEMS, SIZE, within=1800, steady_write_units=200).slower
    assert slower is not None
    assert (slower.write_units, slower.partitions, slower.partitions_when_loaded, slower.slower) == (3000, 3, 3, None)
    assert slower.warnings == ()
    busy = plan_bulk_load(ITEMS, SIZE, write_units=11_000, steady_write_units=5500).slower
    assert busy is not None
    assert busy.partitions == 6


def test_why() -> None:
    plan = plan_bulk_load(ITEMS, SIZE, write_units=11_000, steady_write_units=200)
    kinds = [(one.kind, one.page) for one in plan.reasoning]
    assert ("rule", "Best Practices for Tables, Initial Allocation of Partitions") in kinds
    assert all((kind == "rule") == (page is not None) for kind, page in kinds)
    assert [kind for kind, _ in kinds].count("model") == 1
    (left,) = plan.warnings
    assert left.text.startswith("the load leaves 11 partitions, but 3 would do")


def test_text() -> None:
    plan = plan_bulk_load(ITEMS, SIZE, write_units=11_000, steady_write_units=200)
    assert str(plan).partition("\n\n")[0].splitlines() == [
        "Load of 20,000,000 items of 1,000 bytes",
        "  consumes 20,000,000 write units, 1 an item",
        "  set 11,000 write units a second: it takes 0:30:18 (h:mm:ss)",
        "  that makes 11 partitions of 1,000 write units a second",
        "  stores 22 GB, when all is loaded on 11 partitions",
        "  afterwards, at 200 write units a second: 18.18 a partition",
        "  or slower:",
        "    set 3,000 write units a second: it takes 1:51:07 (h:mm:ss)",
        "    that makes 3 partitions of 1,000 write units a second",
        "    afterwards: 66.67 write units a second a partition",
    ]


# -- indexes -----------------------------------------------------------------------------------------------------------


def test_a_local_index_takes_units_of_the_table_and_a_global_one_has_its_own() -> None:
    plan = plan_bulk_load(
        1000,
        1500,
        write_units=600,
        indexes=[
            IndexWrites("Local", 100, local=True),
            IndexWrites("Global", 3000),
            IndexWrites("Sparse", 100, share=0.5),
        ],
    )
    assert (plan.item_write_units, plan.seconds) == (3, 5)
    assert plan.indexes == (IndexLoad("Global", 3000, 600, 1), IndexLoad("Sparse", 500, 100, 1))
    assert "with local indexes" in plan.reasoning[0].text
    assert any(one.text.endswith("a partition key value takes at most 1,666 items") for one in plan.reasoning)
    assert "set 600 write units a second for index Global: 1 partition, 3,000 write units in all" in str(plan)


def test_an_index_with_a_hot_key_holds_the_load_up() -> None:
    hot = IndexWrites("ByStatus", 100, hottest_share=0.5)
    warnings = plan_bulk_load(1000, SIZE, write_units=3000, indexes=[hot]).warnings
    assert any(one.text.startswith("the hottest key of index ByStatus takes 50% of its writes") for one in warnings)
    warnings = plan_bulk_load(1000, SIZE, write_units=2000, indexes=[hot]).warnings
    assert not any("ByStatus" in one.text for one in warnings)


def test_more_than_a_table_gets_is_said() -> None:
    plan = plan_bulk_load(10**9, 1000, write_units=40_001)
    assert any("exceed a table's default quota (40,000): ask AWS" in one.text for one in plan.warnings)
    assert not any("AWS" in one.text for one in plan_bulk_load(10**9, 1000, write_units=40_000).warnings)


# -- what always holds -------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**10), st.integers(1, 409_600), st.integers(1, 10**7), st.none() | st.integers(0, 10**5))
def test_a_load_within_a_time_takes_no_longer_at_the_least_rate(
    items: int, item_size: int, within: int, steady: int | None
) -> None:
    plan = plan_bulk_load(items, item_size, within=within, steady_write_units=steady)
    units = items * math.ceil(item_size / 1024)
    assert plan.total_write_units == units
    assert plan.write_units == math.ceil(units / within)
    assert plan.seconds <= within * (1 + 1e-9)
    assert plan.partitions == initial_partitions(read_units=0, write_units=plan.write_units)
    assert plan.partitions_when_loaded >= plan.partitions
    if plan.slower is not None:
        assert plan.slower.partitions < plan.partitions
        assert plan.slower.seconds > plan.seconds
    assert json.loads(json.dumps(plan.to_dict()))["write_units"] == plan.write_units
    assert str(plan)


def test_a_load_that_may_take_centuries() -> None:
    plan = plan_bulk_load(1, 100, within=1e10)
    assert (plan.write_units, plan.seconds, plan.partitions) == (1, 1, 1)
    assert "it takes 277,777,777,777:46:40 (h:mm:ss)" in str(plan_bulk_load(10**15, 1, write_units=1))


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_", [{}, {"within": 60, "write_units": 100}])
def test_one_of_time_and_rate_is_given(given_: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^within: .* give one of them$"):
        plan_bulk_load(1, 1, **given_)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"items": 0}, "items: must be an integer >= 1 (items), got 0"),
        ({"items": 1.5}, "items: must be an integer >= 1 (items), got 1.5"),
        ({"item_size": 409_601}, "item_size: must be an integer from 1 to 409,600 (bytes), got 409601"),
        ({"write_units": 0}, "write_units: must be a number > 0 (write units a second), got 0"),
        ({"steady_write_units": -1}, "steady_write_units: must be a number >= 0"),
    ],
)
def test_what_is_no_figure_is_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        plan_bulk_load(**{"items": 1, "item_size": 1, "write_units": 1, **given_})
    assert message in str(raised.value)


@pytest.mark.parametrize("within", [0, -1, timedelta(0), math.nan, True])
def test_what_is_no_time_is_refused(within: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"must be a number > 0 \(seconds\), got"):
        plan_bulk_load(1, 1, within=within)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"entry_size": 0}, "entry_size of index 'X': must be an integer from 1 to 409,600 (bytes), got 0"),
        ({"share": 0}, "share of index 'X': must be above 0 and at most 1, got 0"),
        ({"hottest_share": 1.1}, "hottest_share of index 'X': must be above 0 and at most 1, got 1.1"),
        ({"local": True, "hottest_share": 0.5}, "must be None, because the index is local"),
        ({"partitions": 0}, "partitions of index 'X': must be an integer >= 1 (partitions), got 0"),
    ],
)
def test_what_is_no_index_is_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        IndexWrites(**{"name": "X", "entry_size": 100, **given_})
    assert message in str(raised.value)


def test_an_entry_that_moves_is_written_twice() -> None:
    assert IndexWrites("X", 1025, moves=True, share=0.5).write_units() == 2
    assert IndexWrites("X", 1024).write_units(suffix_bytes=1) == 2
