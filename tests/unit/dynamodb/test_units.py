from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity import CapacityEstimator, TableUnits, item_size, storage_size
from shardkit.dynamodb.units import add_consumed, apportion, read_units, table_name, write_units
from shardkit.errors import ConfigurationError

KB = 1024
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"


def of_size(size: float) -> dict[str, Any]:
    """An item of so many bytes."""
    item = {"k": "x" * (int(size) - 1)}
    assert item_size(item) == int(size)
    return item


TABLE = CapacityEstimator({"KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}]})


class TestWorkedExamples:
    """Every example under units of the guide's page "Working with Tables in DynamoDB" (working-with-tables)."""

    def test_specifying_requirements_one_strong_read_of_4_kb(self) -> None:
        assert TABLE.get_item(of_size(4 * KB), consistent=True).table == 1
        assert TABLE.get_item(of_size(4 * KB)).table == 1 / 2

    def test_specifying_requirements_one_write_of_1_kb(self) -> None:
        assert TABLE.put_item(of_size(1 * KB)).table == 1

    def test_specifying_requirements_10_read_units_a_second(self) -> None:
        assert 10 / TABLE.get_item(of_size(4 * KB), consistent=True).table == 10
        assert 10 / TABLE.get_item(of_size(4 * KB)).table == 20
        assert 10 / TABLE.get_item(of_size(8 * KB), consistent=True).table == 5

    def test_specifying_requirements_3500_bytes_read_like_4_kb(self) -> None:
        for consistent in (True, False):
            units = TABLE.get_item(of_size(3500), consistent=consistent)
            assert units == TABLE.get_item(of_size(4 * KB), consistent=consistent)

    def test_specifying_requirements_500_bytes_are_written_like_1_kb(self) -> None:
        assert TABLE.put_item(of_size(500)) == TABLE.put_item(of_size(1 * KB)) == TableUnits(1)

    @pytest.mark.parametrize(("size", "rounded"), [(3.5, 4), (10, 12)])
    def test_item_size_calculations_get(self, size: float, rounded: int) -> None:
        assert TABLE.get_item(of_size(size * KB), consistent=True).table == rounded / 4

    def test_item_size_calculations_1_6_kb_put_or_deleted(self) -> None:
        assert TABLE.put_item(of_size(1.6 * KB)) == TABLE.delete_item(of_size(1.6 * KB)) == TableUnits(2)

    def test_item_size_calculations_a_missing_item(self) -> None:
        assert TABLE.get_item(None, consistent=True).table == 1
        assert TABLE.get_item(None).table == 0.5

    def test_item_size_calculations_a_failed_condition(self) -> None:
        assert TABLE.failed_condition(of_size(1 * KB)).table == 1
        assert TABLE.failed_condition(of_size(2 * KB)).table == 2
        assert TABLE.failed_condition(None, of_size(5 * KB)).table == 1

    def test_item_size_calculations_batch_get_rounds_each_item(self) -> None:
        items = [of_size(1.5 * KB), of_size(6.5 * KB)]
        assert TABLE.batch_get_item(items, consistent=True).table == (4 + 8) / 4

    def test_item_size_calculations_query_rounds_the_sum(self) -> None:
        assert TABLE.query([of_size(4.08 * KB)] * 10, consistent=True).table == 44 / 4
        assert TABLE.query([of_size(64)] * 1500, consistent=True).table == 96 / 4

    def test_item_size_calculations_scan_counts_what_is_evaluated(self) -> None:
        evaluated = [of_size(4.08 * KB)] * 10
        assert TABLE.scan(evaluated, consistent=True) == TABLE.query(evaluated, consistent=True)

    def test_item_size_calculations_storage_adds_100_bytes(self) -> None:
        assert storage_size(of_size(KB)) == KB + 100
        assert TABLE.put_item(of_size(KB)).table == 1

    def test_item_size_calculations_put_and_update_cost_the_larger(self) -> None:
        large, small = of_size(5 * KB), of_size(300)
        assert TABLE.put_item(small, before=large) == TABLE.put_item(large, before=small) == TableUnits(5)
        assert TABLE.update_item(large, small) == TABLE.update_item(small, large) == TableUnits(5)

    def test_item_size_calculations_delete_costs_the_deleted_item(self) -> None:
        assert TABLE.delete_item(of_size(3 * KB)).table == 3

    def test_read_operation_and_consistency_80_kb(self) -> None:
        assert TABLE.query([of_size(8 * KB)] * 10).table == 10


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


@pytest.mark.parametrize("size", [None, "512", {"k": "x"}, math.nan])
def test_a_size_that_is_no_number(size: Any) -> None:
    for units in (read_units, write_units):
        with pytest.raises(ConfigurationError, match="size: must be a number of bytes"):
            units(size)


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
    with pytest.raises(ValueError, match="weights: must be"):
        apportion(1.0, weights)
