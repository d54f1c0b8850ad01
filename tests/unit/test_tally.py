from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity.tally import Charge, Tally, Usage
from shardkit.errors import ConfigurationError

HALVES = st.integers(0, 1000).map(lambda n: n / 2)
USAGE = st.builds(Usage, HALVES, HALVES, HALVES, HALVES, st.integers(0, 9))


def test_usage_adds_figure_by_figure() -> None:
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)
    assert Usage(1, 2, 3, 4, 5).units_with_estimates == 10


def test_usage_marks_estimates() -> None:
    assert str(Usage(1.5, 2)) == "1.5 read units  2.0 write units"
    assert str(Usage(0, 2000, 0.5, 3)) == (
        "0.0 read units  2,000.0 write units  + estimated 0.5 read units  + estimated 3.0 write units"
    )


def test_totals() -> None:
    tally = Tally()
    tally.add(
        Charge(
            "BatchWriteItem",
            {"A": Usage(write_units=3, requests=1), "B": Usage(write_units=1, requests=1)},
            {("A", "by-day"): Usage(write_units=1, requests=1)},
            {("A", "x"): Usage(estimated_write_units=2), ("A", "y"): Usage(estimated_write_units=1)},
        )
    )
    tally.add(Charge("GetItem", {"A": Usage(read_units=0.5, requests=1)}, {}, {("A", "x"): Usage(read_units=0.5)}))
    tally.add(Charge("PutItem", {"A": Usage(estimated_write_units=1.0, requests=1)}))
    assert tally.total == Usage(0.5, 4, 0, 1, requests=3)
    assert tally.by_table == {"A": Usage(0.5, 3, 0, 1, 3), "B": Usage(0, 1, 0, 0, 1)}
    assert tally.by_index == {("A", "by-day"): Usage(0, 1, 0, 0, 1)}
    assert tally.by_operation["BatchWriteItem"] == Usage(write_units=4, requests=1)
    assert tally.by_operation["PutItem"] == Usage(estimated_write_units=1, requests=1)
    assert tally.by_key[("A", "x")] == Usage(read_units=0.5, estimated_write_units=2)
    assert [key for key, _ in tally.hottest(1)] == [("A", "x")]
    assert [key for key, _ in tally.hottest(9)] == [("A", "x"), ("A", "y")]
    assert tally.hottest(0) == tally.hottest(-1) == []


@given(st.lists(st.dictionaries(st.sampled_from("ABC"), USAGE)))
def test_total_is_the_sum_of_tables_and_of_operations(calls: list[dict[str, Usage]]) -> None:
    tally = Tally()
    for tables in calls:
        tally.add(Charge("Query", tables))
    for name in ("read_units", "write_units", "estimated_read_units", "estimated_write_units"):
        total = getattr(tally.total, name)
        assert total == sum(getattr(usage, name) for usage in tally.by_table.values())
        assert total == sum(getattr(usage, name) for usage in tally.by_operation.values())
    assert tally.total.requests == len(calls)


@given(st.lists(st.tuples(st.integers(0, 30), USAGE)), st.integers(1, 4))
def test_keys_are_bounded_and_none_is_lost(uses: list[tuple[int, Usage]], max_keys: int) -> None:
    tally = Tally(max_keys=max_keys)
    for key, usage in uses:
        tally.add(Charge("GetItem", keys={("T", key): usage}))
        assert len(tally.by_key) <= 2 * max_keys
    assert sum(tally.by_key.values(), tally.other_keys) == sum((usage for _, usage in uses), Usage())


def test_the_hottest_keys_stay() -> None:
    tally = Tally(max_keys=2)
    tally.add(Charge("PutItem", keys={("T", "hot"): Usage(write_units=100)}))
    for number in range(50):
        tally.add(Charge("PutItem", keys={("T", number): Usage(write_units=1)}))
    assert tally.hottest(1) == [(("T", "hot"), Usage(write_units=100))]


def test_max_keys_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="0"):
        Tally(max_keys=0)
