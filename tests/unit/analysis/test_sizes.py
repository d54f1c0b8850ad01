"""The sizes of items, against counting them one by one."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.analysis.sizes import SHORT_NAME, SizeProfile
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import ITEM_BYTES, attribute_sizes, item_size
from shardkit.dynamodb.units import read_units, write_units
from shardkit.errors import ConfigurationError, InvalidKeyError, InvalidValueError

NAMES = ("id", "é", "Date", "OrderId", "日付")
values = st.one_of(
    st.text(string.printable + "é日", max_size=40),
    st.integers(-(10**9), 10**9),
    st.decimals(-1000, 1000, places=2),
    st.booleans(),
    st.none(),
    st.binary(max_size=9),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(NAMES), st.text(max_size=5), max_size=3),
    st.just("x" * 1500),
    st.sets(st.integers(0, 99), min_size=1, max_size=3),
)
items = st.dictionaries(st.sampled_from(NAMES), values, min_size=1)


def profile_of(*given_items: dict[str, Any]) -> SizeProfile:
    profile = SizeProfile()
    for item in given_items:
        profile.add(item)
    return profile


@given(items)
def test_attribute_sizes_are_those_of_items_of_one_attribute(item: dict[str, Any]) -> None:
    sizes = attribute_sizes(item)
    assert sizes == {name: item_size(to_wire_item({name: value})) for name, value in item.items()}
    assert sum(sizes.values()) == item_size(to_wire_item(item))


def test_attribute_sizes_of_a_subclass_and_of_what_no_item_can_hold() -> None:
    class Text(str):
        __slots__ = ()

    assert attribute_sizes({"Date": Text("2014-07-09")}) == {"Date": 14}
    with pytest.raises(InvalidValueError, match="'Total'"):
        attribute_sizes({"Date": "2014-07-09", "Total": 1.5})
    wrong: Any = "Date"
    with pytest.raises(InvalidKeyError, match="mapping"):
        attribute_sizes(wrong)


def test_percentiles_of_many_items() -> None:
    profile = profile_of(*({"a": "x" * (number - 1)} for number in range(1, 1001)))
    wanted = {1: 10, 10: 100, 50: 500, 99: 990, 100: 1000}
    assert profile.sizes(tuple(wanted)).percentiles == wanted


@given(st.lists(items, min_size=1, max_size=30))
def test_as_counted_one_by_one(many: list[dict[str, Any]]) -> None:
    profile = profile_of(*many)
    sizes = sorted(item_size(to_wire_item(item)) for item in many)
    assert (profile.items, profile.bytes) == (len(many), sum(sizes))
    assert profile.storage_bytes == sum(sizes) + 100 * len(many)
    found = profile.sizes((1, 50, 99, 100))
    assert (found.least, found.most, found.total, found.mean) == (
        sizes[0], sizes[-1], sum(sizes), sum(sizes) / len(sizes),
    )  # fmt: skip
    assert found.percentiles == {p: sizes[max(0, math.ceil(len(sizes) * p / 100) - 1)] for p in (1, 50, 99, 100)}
    of: Callable[[int], float]
    for of in (write_units, read_units):
        units = [of(size) for size in sizes]
        assert profile.units(of).total == sum(units)
        assert profile.units(of).percentiles[50] == units[math.ceil(len(sizes) / 2) - 1]
    assert profile.over(1024) == sum(size > 1024 for size in sizes)
    edges = [0, *(edge for edge, _ in profile.histogram())]
    assert profile.histogram() == [(high, sum(low < size <= high for size in sizes)) for low, high in pairwise(edges)]
    assert sum(count for _, count in profile.histogram()) == len(many)
    assert len(edges) <= 21


@given(st.lists(items, min_size=1, max_size=20))
def test_attributes_and_short_names(many: list[dict[str, Any]]) -> None:
    profile = profile_of(*many)
    attributes = profile.attributes()
    assert sum(one.bytes for one in attributes) == profile.bytes
    assert [one.bytes for one in attributes] == sorted((one.bytes for one in attributes), reverse=True)
    for one in attributes:
        having = [item for item in many if one.name in item]
        assert one.items == len(having)
        assert one.name_bytes == len(having) * len(one.name.encode())
        assert one.bytes == sum(item_size(to_wire_item({one.name: item[one.name]})) for item in having)
    cut = [sum(max(0, len(name.encode()) - SHORT_NAME) for name in item) for item in many]
    sizes = [item_size(to_wire_item(item)) for item in many]
    assert profile.bytes_saved_by_short_names == sum(cut)
    assert profile.units_saved_by_short_names(write_units) == sum(
        write_units(size) - write_units(size - saved) for size, saved in zip(sizes, cut, strict=True)
    )


def test_short_names_can_save_a_write_unit() -> None:
    item = {"OrderId": "x" * 1018}
    assert item_size(item) == 1025
    assert profile_of(item).units_saved_by_short_names(write_units) == 1.0


@pytest.mark.parametrize(
    ("sizes", "edges"),
    [
        ([100], [100]),
        ([0], [0]),
        ([0, 5], [1, 2, 4, 8]),
        ([100, 109], [100, 101, 102, 103, 104, 105, 106, 107, 108, 109]),
        ([10, 1000], [16, 32, 64, 128, 256, 512, 1024]),
    ],
)
def test_the_steps_of_the_histogram(sizes: list[int], edges: list[int]) -> None:
    profile = profile_of(*({"k": "x" * (size - 1)} if size else {} for size in sizes))
    assert [edge for edge, _ in profile.histogram()] == edges


def test_what_is_refused_is_not_counted() -> None:
    profile = profile_of({"Date": "2014-07-09"})
    with pytest.raises(InvalidValueError):
        profile.add({"Date": "2014-07-09", "Total": Decimal("NaN")})
    assert (profile.items, profile.bytes, [one.items for one in profile.attributes()]) == (1, 14, [1])


def test_items_that_are_too_large_are_counted_by_the_kilobyte() -> None:
    large = ITEM_BYTES + 1
    profile = profile_of({"k": "x" * (ITEM_BYTES - 1)}, {"k": "x" * (large - 1)}, {"k": "x" * large})
    assert profile.over(ITEM_BYTES) == 2
    assert profile.sizes().most == ITEM_BYTES + 1024
    assert [*profile.sizes().percentiles] == [*profile.units(float).percentiles] == [50, 90, 99]
    assert profile.bytes == 3 * ITEM_BYTES + 3


def test_many_names_are_added_up() -> None:
    profile = profile_of(*({f"a{number}": "x"} for number in range(10_010)))
    assert len(profile.attributes()) == 10_000
    assert profile.other_bytes == 10 * len("a10000x")


def test_nothing_counted() -> None:
    for ask in (SizeProfile().sizes, SizeProfile().histogram, lambda: SizeProfile().units(write_units)):
        with pytest.raises(ConfigurationError, match="no item"):
            ask()
