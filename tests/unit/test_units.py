from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity.sizes import item_size
from shardkit.capacity.units import add_consumed, apportion, read_units, table_name, write_units

KB = 1024
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"


class TestWorkedExamples:
    """Every example that the guide's page on working with tables gives under units."""

    def test_one_strong_read_of_4_kb(self) -> None:
        assert read_units(4 * KB, consistent=True) == 1

    def test_ten_units_a_second(self) -> None:
        assert 10 / read_units(4 * KB, consistent=True) == 10
        assert 10 / read_units(4 * KB) == 20
        assert 10 / read_units(8 * KB, consistent=True) == 5

    def test_one_write_of_1_kb(self) -> None:
        assert write_units(1 * KB) == 1

    def test_500_bytes_cost_like_1_kb(self) -> None:
        assert write_units(500) == write_units(1 * KB) == 1

    def test_3500_bytes_read_like_4_kb(self) -> None:
        assert read_units(3500, consistent=True) == read_units(4 * KB, consistent=True) == 1

    @pytest.mark.parametrize(("size", "rounded"), [(3.5, 4), (10, 12)])
    def test_get(self, size: float, rounded: int) -> None:
        assert read_units(int(size * KB), consistent=True) == rounded / 4

    def test_write_of_1_6_kb(self) -> None:
        assert write_units(int(1.6 * KB)) == 2

    def test_batch_get_rounds_each_item(self) -> None:
        assert sum(read_units(int(size * KB), consistent=True) for size in (1.5, 6.5)) == 12 / 4

    def test_query_of_10_items_of_40_8_kb_rounds_the_sum(self) -> None:
        assert read_units(int(40.8 * KB), consistent=True) == 44 / 4

    def test_query_of_1500_items_of_64_bytes(self) -> None:
        assert read_units(1500 * 64, consistent=True) == 96 / 4

    def test_query_of_80_kb_eventually_consistent(self) -> None:
        assert read_units(80 * KB) == 10

    def test_missing_item(self) -> None:
        assert read_units(0, consistent=True) == 1
        assert read_units(0) == 0.5

    def test_failed_condition_costs_the_item_or_one(self) -> None:
        assert write_units(2500) == 3
        assert write_units(0) == 1

    def test_put_and_update_cost_the_larger_of_before_and_after(self) -> None:
        assert write_units(max(5 * KB, 300)) == 5

    def test_delete_costs_the_deleted_item(self) -> None:
        assert write_units(3 * KB) == 3

    def test_storage_overhead_is_no_capacity(self) -> None:
        item = {"k": {"S": "x" * (KB - 1)}}
        assert item_size(item) == KB
        assert write_units(item_size(item)) == 1


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (409_600, 400)])
def test_write_edges(size: int, units: int) -> None:
    assert write_units(size) == units
    assert write_units(size, transactional=True) == 2 * units


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (4096, 1), (4097, 2), (409_600, 100)])
def test_read_edges(size: int, units: int) -> None:
    assert read_units(size, consistent=True) == units
    assert read_units(size) == units / 2
    assert read_units(size, transactional=True) == read_units(size, consistent=True, transactional=True) == 2 * units


def test_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        read_units(-1)
    with pytest.raises(ValueError, match="-1"):
        write_units(-1)


def test_add_consumed_all_parts() -> None:
    a = {
        "TableName": "Orders",
        "CapacityUnits": 3.0,
        "WriteCapacityUnits": 3.0,
        "Table": {"CapacityUnits": 1.0, "WriteCapacityUnits": 1.0},
        "LocalSecondaryIndexes": {"L": {"CapacityUnits": 1.0}},
        "GlobalSecondaryIndexes": {"G": {"CapacityUnits": 1.0}},
    }
    b = {
        "TableName": "Orders",
        "CapacityUnits": 2.5,
        "ReadCapacityUnits": 0.5,
        "Table": {"CapacityUnits": 0.5, "ReadCapacityUnits": 0.5},
        "GlobalSecondaryIndexes": {"G": {"CapacityUnits": 1.0}, "H": {"CapacityUnits": 1.0}},
    }
    before = copy.deepcopy((a, b))
    total = add_consumed(a, b)
    assert total == {
        "TableName": "Orders",
        "CapacityUnits": 5.5,
        "ReadCapacityUnits": 0.5,
        "WriteCapacityUnits": 3.0,
        "Table": {"CapacityUnits": 1.5, "ReadCapacityUnits": 0.5, "WriteCapacityUnits": 1.0},
        "LocalSecondaryIndexes": {"L": {"CapacityUnits": 1.0}},
        "GlobalSecondaryIndexes": {"G": {"CapacityUnits": 2.0}, "H": {"CapacityUnits": 1.0}},
    }
    total["LocalSecondaryIndexes"]["L"]["CapacityUnits"] = 99
    assert (a, b) == before


def test_add_consumed_missing_and_empty() -> None:
    one = {"TableName": "T", "CapacityUnits": 1.0}
    assert add_consumed(one, {}) == add_consumed({}, one) == add_consumed(None, one) == add_consumed(one, None) == one
    assert add_consumed(None, None) == {}
    assert add_consumed(one, {"CapacityUnits": 1.0}) == {"TableName": "T", "CapacityUnits": 2.0}
    assert add_consumed(one, None) is not one


def test_add_consumed_of_different_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="per table"):
        add_consumed({"TableName": "A"}, {"TableName": "B"})
    with pytest.raises(ValueError, match="per table"):
        add_consumed({"TableName": f"{ARN}A"}, {"TableName": "B"})
    with pytest.raises(ValueError, match="per table"):
        add_consumed({"TableName": f"{ARN}A"}, {"TableName": f"{ARN.replace('east', 'west')}A"})


def test_add_consumed_takes_an_arn_and_the_plain_name_for_one_table() -> None:
    by_arn = {"TableName": f"{ARN}Orders", "CapacityUnits": 1.0}
    by_name = {"TableName": "Orders", "CapacityUnits": 2.0}
    total = {"TableName": "Orders", "CapacityUnits": 3.0}
    assert add_consumed(by_arn, by_name) == add_consumed(by_name, by_arn) == total
    assert add_consumed(by_arn, by_arn) == {"TableName": f"{ARN}Orders", "CapacityUnits": 2.0}
    assert add_consumed(by_arn, None) == by_arn
    assert by_arn["CapacityUnits"] == 1.0


@pytest.mark.parametrize("name", ["Orders", f"{ARN}Orders", f"{ARN}Orders/index/ByCustomer"])
def test_table_name(name: str) -> None:
    assert table_name(name) == "Orders"


PART = st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 100).map(lambda n: n / 2) for name in ("CapacityUnits", "ReadCapacityUnits")}
)
STRUCTURE = st.builds(
    lambda part, table, indexes: {**part, **table, **indexes},
    PART,
    st.fixed_dictionaries({}, optional={"Table": PART}),
    st.fixed_dictionaries({}, optional={"GlobalSecondaryIndexes": st.dictionaries(st.sampled_from("GHI"), PART)}),
)


@given(STRUCTURE, STRUCTURE, STRUCTURE)
def test_add_consumed_in_any_order(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    assert add_consumed(a, b) == add_consumed(b, a)
    assert add_consumed(add_consumed(a, b), c) == add_consumed(a, add_consumed(b, c))


@given(
    st.integers(0, 100_000).map(lambda n: n / 2),
    st.dictionaries(st.text(max_size=3), st.integers(0, 800).map(lambda n: n / 2), min_size=1, max_size=100),
)
def test_apportion_adds_up_exactly(units: float, weights: dict[str, float]) -> None:
    parts = apportion(units, weights)
    assert parts.keys() == weights.keys()
    assert sum(parts.values()) == units
    whole = sum(weights.values())
    for key, part in parts.items():
        fair = units * weights[key] / whole if whole else units / len(weights)
        assert part >= 0
        assert abs(part - fair) <= 1 / 1024


@given(
    st.floats(0, 1e6), st.dictionaries(st.integers(), st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=9)
)
def test_apportion_of_any_figure(units: float, weights: dict[int, float]) -> None:
    assert math.isclose(math.fsum(apportion(units, weights).values()), units)


def test_apportion_matches_what_was_estimated_right() -> None:
    assert apportion(6.5, {"a": 0.5, "b": 2.0, "c": 4.0}) == {"a": 0.5, "b": 2.0, "c": 4.0}


@pytest.mark.parametrize("weights", [{}, {"a": -1.0}])
def test_apportion_refuses(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="give"):
        apportion(1.0, weights)
