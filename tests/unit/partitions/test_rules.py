"""Estimated partitions: every number of the guide's pages, and what always holds."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.errors import ConfigurationError
from shardkit.partitions import (
    PARTITION_BYTES,
    TablePartitions,
    initial_partitions,
    partitions_by_older_rule,
    partitions_for_size,
)

GB = 1000**3
RATES = st.integers(0, 10**9)
created = TablePartitions.created


def each(table: TablePartitions) -> list[tuple[int, float, float]]:
    return [(one.partitions, one.read_units, one.write_units) for one in table.throughput]


# -- Best Practices for Tables, "Initial Allocation of Partitions" -----------------------------------------------------


@pytest.mark.parametrize(
    ("read_units", "write_units", "needed", "partitions"),
    [(1000, 500, "0.83", 1), (1000, 1000, "1.33", 2), (5000, 2000, "3.67", 4), (0, 0, "0", 1), (0, 1000, "1", 1)],
)
def test_initial_partitions(read_units: int, write_units: int, needed: str, partitions: int) -> None:
    assert initial_partitions(read_units=read_units, write_units=write_units) == partitions
    table = created(read_units=read_units, write_units=write_units)
    assert table.partitions == partitions
    assert f"= {needed}, rounded up: {partitions}" in table.reasoning[0].text
    assert table.reasoning[0].kind == "rule"
    assert table.reasoning[0].page == "Best Practices for Tables, Initial Allocation of Partitions"


def test_two_partitions_each_of_500_and_500() -> None:
    assert each(created(read_units=1000, write_units=1000)) == [(2, 500, 500)]


def test_four_partitions_each_of_1250_and_500() -> None:
    assert each(created(read_units=5000, write_units=2000)) == [(4, 1250, 500)]


# -- the same page, "Increased Provisioned Throughput Settings" --------------------------------------------------------


def test_more_throughput_doubles_the_partitions() -> None:
    table = created(read_units=5000, write_units=2000).set_throughput(read_units=8000)
    assert each(table) == [(8, 1000, 250)]
    assert table.reasoning[-1].text.endswith("more than 4 partitions serve: doubled to 8")


def test_throughput_that_is_served_changes_no_partition() -> None:
    table = created(read_units=5000, write_units=2000)
    assert each(table.set_throughput(write_units=2300)) == [(4, 1250, 575)]


# -- the same page, "Increased Storage Requirements" and "Throughput Capacity Per Partition" ---------------------------


def test_a_full_partition_is_split() -> None:
    table = created(read_units=5000, write_units=2000).set_throughput(read_units=8000)
    assert table.partitions * PARTITION_BYTES == 80 * GB
    split = table.split()
    assert (split.partitions, split.partitions * PARTITION_BYTES) == (9, 90 * GB)


def test_a_split_divides_the_throughput_of_the_parent() -> None:
    assert each(created(read_units=5000, write_units=2000).split()) == [(3, 1250, 500), (2, 625, 250)]


def test_the_fullest_are_split_first() -> None:
    table = created(read_units=0, write_units=2000).split().split()
    assert each(table) == [(4, 0, 500)]
    assert each(table.split(4)) == [(8, 0, 250)]


def test_throughput_after_an_uneven_split_is_doubled_for_the_largest_part() -> None:
    table = created(read_units=0, write_units=2000).split()  # 1/2, 1/4, 1/4
    assert each(table.set_throughput(write_units=2001)) == [(2, 0, 500.25), (4, 0, 250.125)]


def test_data_that_grow_evenly_split_what_would_be_too_full() -> None:
    table = created(read_units=0, write_units=2000)
    assert table.grown_to(20 * GB) is table
    assert each(table.grown_to(20 * GB + 1)) == [(4, 0, 500)]
    grown = table.split().grown_to(30 * GB)
    assert each(grown) == [(4, 0, 500)]
    assert [one.kind for one in grown.reasoning] == ["rule", "rule", "model"]


# -- the same page, "Consider Workload Uniformity When Adjusting Provisioned Throughput" -------------------------------


def test_less_throughput_removes_no_partition() -> None:
    table = created(read_units=0, write_units=11_000).set_throughput(write_units=200)
    assert table.partitions == 11
    # "each of the 11 partitions will have around 20 write capacity units"
    assert round(table.throughput[0].write_units, -1) == 20
    assert "less throughput removes none" in table.reasoning[-1].text


# -- the same page, "Test Your Application At Scale" -------------------------------------------------------------------


def test_a_high_setting_that_is_lowered_makes_partitions_as_of_a_table_that_has_grown() -> None:
    grown = created(read_units=0, write_units=8000).grown_to(640 * GB)
    small = created(read_units=0, write_units=64_000).set_throughput(write_units=8000)
    assert each(small) == each(grown) == [(64, 0, 125)]


# -- the same page, "Use Burst Capacity Sparingly" ---------------------------------------------------------------------


def test_a_partition_keeps_300_seconds_for_a_burst() -> None:
    (one,) = created(read_units=1000, write_units=400).throughput
    assert (one.burst_read_units, one.burst_write_units) == (300_000, 120_000)


# -- Guidelines for Working with Tables (older edition), "Understand Partition Behavior" -------------------------------


def test_the_older_rule_takes_the_larger_of_size_and_throughput() -> None:
    partitions = partitions_by_older_rule(size=500 * GB, read_units=100_000, write_units=0)
    assert partitions == 50
    assert 100_000 / partitions == 2000
    assert partitions_by_older_rule(size=5 * GB, read_units=1000, write_units=1000) == 2
    assert partitions_by_older_rule(size=0, read_units=1000, write_units=500) == 1


# -- what always holds -------------------------------------------------------------------------------------------------


@given(RATES, RATES)
def test_a_partition_of_a_new_table_is_within_its_limits(read_units: int, write_units: int) -> None:
    partitions = initial_partitions(read_units=read_units, write_units=write_units)
    needed = Fraction(read_units, 3000) + Fraction(write_units, 1000)
    assert partitions == max(1, math.ceil(needed))


CHANGES = st.one_of(
    st.tuples(st.just("set"), RATES, RATES),
    st.tuples(st.just("split"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("grow"), st.integers(0, 10**15), st.just(0)),
)


@given(RATES, RATES, st.lists(CHANGES, max_size=8))
def test_partitions_only_become_more_and_share_all_of_the_throughput(
    read_units: int, write_units: int, changes: list[tuple[str, int, int]]
) -> None:
    table = created(read_units=read_units, write_units=write_units)
    for what, one, other in changes:
        before = table
        if what == "set":
            table = table.set_throughput(read_units=one, write_units=other)
            largest = max(table.shares)
            assert largest * (Fraction(one, 3000) + Fraction(other, 1000)) <= 1 + Fraction(1, 10**6)
        elif what == "split":
            count = min(one, table.partitions)
            table = table.split(count)
            assert table.partitions == before.partitions + count
        else:
            table = table.grown_to(one)
            assert max(table.shares) * one <= PARTITION_BYTES * (1 + Fraction(1, 10**6))
        assert table.partitions >= before.partitions
        assert sum(share * count for share, count in table.shares.items()) == 1
    assert json.loads(json.dumps(table.to_dict()))["partitions"] == table.partitions


def test_a_float_that_is_nearly_whole_takes_no_partition_more() -> None:
    assert initial_partitions(read_units=0.1 * 3 * 10_000, write_units=0) == 1  # 3000.0000000000005
    assert partitions_for_size(0.1 * 3 * 10**11) == 3


def test_text() -> None:
    assert str(created(read_units=5000, write_units=2000).split()).splitlines() == [
        "5 partitions",
        "  3 with 1,250 read units and 500 write units a second each",
        "  2 with 625 read units and 250 write units a second each",
        "",
        "Why",
        (
            "  rule   partitions for the throughput: 5,000 read units / 3,000 + 2,000 write units / 1,000 = 3.67, "
            "rounded up: 4 (Best Practices for Tables, Initial Allocation of Partitions)"
        ),
        (
            "  rule   a partition holds about 10 GB, and 1 of 4 are full: 5 partitions, which hold 50 GB; a split "
            "divides the parent's throughput (Best Practices for Tables, Increased Storage Requirements)"
        ),
    ]


@pytest.mark.parametrize("rate", [-1, math.inf, math.nan, True, "5", None])
def test_what_is_no_rate_is_refused(rate: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"read_units: must be a number >= 0 \(read units a second\), got"):
        initial_partitions(read_units=rate, write_units=0)
    with pytest.raises(ConfigurationError, match=r"^write_units: must be a number"):
        created(read_units=0, write_units=0).set_throughput(write_units=rate if rate is not None else -1)
    with pytest.raises(ConfigurationError, match=r"^size: must be a number"):
        partitions_for_size(rate)


@pytest.mark.parametrize("count", [0, 3, True, 1.0])
def test_only_partitions_that_are_there_can_be_split(count: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"count: must be an integer from 1 to 2 \(partitions to split\), got"):
        created(read_units=0, write_units=2000).split(count)
