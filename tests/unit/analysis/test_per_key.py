"""Shards for the hot keys alone: when, and that what is to be written makes the strategy that is meant."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

import shardkit
from shardkit import Strategy
from shardkit.analysis.keys import KeyUniformity
from shardkit.analysis.per_key import FEW, PerKey, are_few, per_key
from shardkit.analysis.shards import shards_for
from shardkit.analysis.verdict import judge


def advised(counts: dict[Any, int], names: tuple[str, ...] = ("tenant",), **rates: float) -> PerKey | None:
    """What is advised if so many items of each key are written and read."""
    uniformity = KeyUniformity(names)
    for key, count in counts.items():
        for _ in range(count):
            uniformity.add(key if isinstance(key, tuple) else (key,), 350, 1.0, 0.5)
    found = uniformity.result(FEW + 1)
    return per_key(found, judge(found, **rates), ("sk",))


@pytest.mark.parametrize("few", [PerKey({"t0": 8}, ("sk",)), PerKey({'a"\n': 2, b"\xff": 3, "é": 4}, ("a", "b"))])
def test_the_line_and_the_option_are_the_same_strategy(few: PerKey) -> None:
    made = eval(few.line, {"CalculatedSuffix": shardkit.CalculatedSuffix})  # noqa: S307
    option, form = shlex.split(few.option)
    assert (option, Strategy.from_dict(json.loads(form))) == ("--strategy", made)
    assert {key: len(made.shards_for(key)) for key in (*few.shards, "other")} == {**few.shards, "other": 1}


def test_one_hot_tenant_of_many() -> None:
    """Just above what one partition serves with its reserve; each hot key has the number that it needs."""
    tenants = {"t0": 100} | {f"t{number}": 1 for number in range(1, 1901)}
    few = advised(tenants, write_units=16_020.0)
    assert few is not None
    assert few.better is None
    assert few.line == f'CalculatedSuffix("sk", shards={{"t0": {shards_for(write_units=801).shards}}})'
    assert advised(tenants, write_units=16_000.0) is None  # 800: it is good
    assert advised(tenants, read_units=48_040.0) == PerKey({"t0": shards_for(read_units=2402).shards}, ("sk",))
    two = advised({**tenants, "t1": 200}, write_units=21_990.0)
    assert two is not None
    assert two.shards == {"t1": shards_for(write_units=2000).shards, "t0": shards_for(write_units=1000).shards}
    on_8 = {key: shards_for(write_units=units, partitions=8).shards for key, units in (("t1", 2000), ("t0", 1000))}
    assert two.better == PerKey(on_8, ("sk",), partitions=8)


@pytest.mark.parametrize(
    ("hot", "others", "few"),
    [(1, 0, False), (1, 1, True), (5, 5, True), (5, 4, False), (10, 90, True), (11, 90, False)],
)
def test_a_few_are_at_most_ten_and_half_of_the_keys(hot: int, others: int, *, few: bool) -> None:
    counts = {f"h{number}": 1000 for number in range(hot)} | {f"c{number}": 1 for number in range(others)}
    assert (advised(counts, write_units=(1000.0 * hot + others)) is not None) is few
    assert are_few([f"h{number}" for number in range(hot)], None) is (hot <= FEW)


def test_days_and_keys_without_a_number_that_is_enough() -> None:
    """The next hot day is not known in advance; and all are sharded where one key needs more than any number."""
    days = {f"2014-07-{day:02}": 1000 if day == 9 else 1 for day in range(1, 31)}
    assert advised(days, write_units=2000.0) is None
    assert not are_few(["2014-07-09"], None)
    assert advised({"t0": 1000, "t1": 1, "t2": 1}, write_units=200_000.0) is None


def test_keys_that_are_numbers_or_have_parts_are_text() -> None:
    counts = {("a", 7): 1000, ("a", 8): 1, ("b", 7): 1}
    few = advised(counts, ("tenant", "place"), write_units=1000.0)
    assert few is not None
    assert [*few.shards] == ["a#7"]
    numbers = advised({7: 1000, 8: 1, 9: 1}, write_units=1000.0)
    assert numbers is not None
    assert [*numbers.shards] == ["7"]
