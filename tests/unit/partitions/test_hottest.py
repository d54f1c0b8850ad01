"""Keys hashed onto partitions: the exact probability, beside enumeration, a closed form and a simulation."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import stable_hash
from shardkit.analysis.shards import probability_bound, probability_within
from shardkit.errors import ConfigurationError


@pytest.mark.parametrize(
    ("keys", "partitions"), [(1, 1), (1, 4), (2, 2), (4, 2), (5, 3), (7, 3), (6, 4), (8, 3), (3, 7), (2, 9)]
)
def test_agrees_with_every_way_that_keys_can_fall(keys: int, partitions: int) -> None:
    fullest = Counter(max(Counter(places).values()) for places in itertools.product(range(partitions), repeat=keys))
    for most in range(keys + 2):
        exact = sum(count for full, count in fullest.items() if full <= most) / partitions**keys
        assert probability_within(keys, partitions, most) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("keys", [2, 5, 23, 60])
def test_one_key_a_partition_is_the_birthday_problem(keys: int) -> None:
    distinct = math.prod((365 - taken) / 365 for taken in range(keys))
    assert probability_within(keys, 365, 1) == pytest.approx(distinct, abs=1e-12)


@pytest.mark.parametrize(("keys", "partitions", "most"), [(200, 11, 26), (45, 16, 9), (190, 8, 34), (20, 32, 3)])
def test_agrees_with_a_simulation(keys: int, partitions: int, most: int) -> None:
    rounds, draw = 4000, random.Random(11)
    within = sum(max(Counter(draw.choices(range(partitions), k=keys)).values()) <= most for _ in range(rounds))
    expected = probability_within(keys, partitions, most)
    assert 0.05 < expected < 0.999
    # Four standard deviations of the simulation; the seed is fixed.
    assert within / rounds == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / rounds))


def test_agrees_with_suffixes_of_real_days_under_a_real_hash() -> None:
    days, shards, partitions, most = 1500, 45, 16, 7
    within = sum(
        max(Counter(stable_hash(f"day{day}.{shard}") % partitions for shard in range(1, shards + 1)).values()) <= most
        for day in range(days)
    )
    expected = probability_within(shards, partitions, most)
    assert within / days == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / days))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 60))
def test_is_a_probability_between_its_bounds(keys: int, partitions: int, most: int) -> None:
    found = probability_within(keys, partitions, most)
    assert 0 <= found <= 1
    assert found <= probability_bound(keys, partitions, most) + 1e-9
    assert found <= probability_within(keys, partitions, most + 1) + 1e-9
    assert found >= probability_within(keys + 1, partitions, most) - 1e-9
    # Bonferroni: what one partition fails with, as often as there are partitions.
    one = probability_bound(keys, partitions, most) ** (1 / partitions)
    assert found >= 1 - partitions * (1 - one) - 1e-9


def test_stays_exact_for_thousands_of_keys() -> None:
    # Two bins: a binomial, summed with whole numbers.
    keys, most = 2000, 1050
    exact = sum(math.comb(keys, count) for count in range(keys - most, most + 1)) / 2**keys
    assert probability_within(keys, 2, most) == pytest.approx(exact, abs=1e-10)
    assert probability_bound(keys, 2, most) >= exact - 1e-12


def test_edges() -> None:
    assert probability_within(5, 2, 2) == 0
    assert probability_within(5, 2, 5) == 1
    assert probability_within(5, 1, 4) == 0
    assert probability_bound(5, 1, 4) == 0
    assert probability_bound(5, 1, 5) == 1


@pytest.mark.parametrize(("keys", "partitions", "most"), [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_what_is_no_number_is_refused(keys: int, partitions: int, most: int) -> None:
    for function in (probability_within, probability_bound):
        with pytest.raises(ConfigurationError, match="keys, partitions, most: must be integers"):
            function(keys, partitions, most)
