from __future__ import annotations

import sys
from bisect import bisect
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.popular import PopularValues
from shardkit.errors import ConfigurationError

ITEMS = 5_000
HELD = 50


def popular(most: int) -> PopularValues[int, int]:
    """Values that are their own sizes."""
    return PopularValues(most, lambda _, size: size)


@given(st.lists(st.tuples(st.sampled_from(["get", "put", "replace", "delete"]), st.integers(0, 9), st.integers(1, 12))))
def test_it_never_holds_more_than_it_may(steps: list[tuple[str, int, int]]) -> None:
    """And it returns the last value of a key, or none."""
    values, last = popular(20), dict[int, int]()
    for step, key, size in steps:
        if step == "get":
            assert values.get(key) in {None, last.get(key)}
        elif step == "delete":
            values.delete(key)
            assert key not in values
        elif step == "replace":
            held = key in values
            values.replace(key, size)
            last[key] = size
            assert held or key not in values
        else:
            last[key] = size
            if values.put(key, size):
                assert values.get(key) == size
        assert values.size <= 20


def test_a_value_that_is_not_taken_leaves_no_older_one() -> None:
    values = popular(20)
    values.put(1, 5)
    assert not values.put(1, 21)
    assert values.get(1) is None


def reads(exponent: float, number: int, seed: int) -> list[int]:
    weights = list(accumulate(1 / rank**exponent for rank in range(1, ITEMS + 1)))
    random = Random(seed)
    order = random.sample(range(ITEMS), ITEMS)
    return [order[bisect(weights, random.random() * weights[-1])] for _ in range(number)]


def hit_ratio(values: PopularValues[int, int], keys: list[int]) -> float:
    hits = 0
    for key in keys:
        if values.get(key) is not None:
            hits += 1
        else:
            values.put(key, 1)
    return hits / len(keys)


@pytest.mark.parametrize("exponent", [1.0, 1.2])
def test_of_a_static_law_nearly_the_best_hit_ratio(exponent: float) -> None:
    weights = [1 / rank**exponent for rank in range(1, ITEMS + 1)]
    best = sum(weights[:HELD]) / sum(weights)
    values, keys = popular(HELD), reads(exponent, 40_000, 1)
    hit_ratio(values, keys[:20_000])
    assert hit_ratio(values, keys[20_000:]) >= 0.95 * best


def test_a_scan_of_cold_keys_does_not_push_the_famous_out() -> None:
    values = popular(HELD)
    hit_ratio(values, reads(1.2, 20_000, 1))
    famous = [key for key in range(ITEMS) if key in values]
    hit_ratio(values, list(range(ITEMS, 2 * ITEMS)))
    kept = [key for key in famous if key in values]
    assert len(kept) >= 0.7 * len(famous)


def test_new_favourites_overtake_the_old_ones() -> None:
    values = popular(HELD)
    before = hit_ratio(values, reads(1.2, 30_000, 1)[10_000:])
    hit_ratio(values, reads(1.2, 10_000, 2))
    assert hit_ratio(values, reads(1.2, 20_000, 2)[10_000:]) > 0.9 * before


def test_without_cachetools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cachetools", None)
    with pytest.raises(ConfigurationError, match=r"cachetools: the package is not installed; run pip install "):
        popular(10)
