"""A table's figures from a sample of its segments: the intervals contain the truth as often as they say."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.analysis.keys import KeyUniformity
from shardkit.analysis.sample import (
    LEAST_UNITS,
    PAGE_UNITS,
    Estimate,
    SegmentSample,
    extrapolated,
    keys_unseen,
    plan_sample,
    shards_total,
    units_of_all,
)
from shardkit.analysis.verdict import judge, judge_sharded
from shardkit.errors import ConfigurationError


@given(st.integers(1, 10**13), st.floats(LEAST_UNITS, 1e6))
def test_a_plan_stays_within_its_units(size: int, most_units: float) -> None:
    try:
        plan = plan_sample(size, most_units)
    except ConfigurationError:
        assert size > 3 * 10**9  # of a million segments, thirty take more
        return
    assert plan.read_units is not None
    assert plan.read_units <= most_units - PAGE_UNITS
    assert 1 <= plan.segments <= plan.total_segments <= 1_000_000
    assert plan.segments >= min(30, plan.total_segments)
    if size < 0.8 * (most_units - PAGE_UNITS) * 8192:
        assert plan.share == 1


@given(st.integers(1, 10**13))
def test_the_units_that_read_all_are_hardly_more_than_it_takes(size: int) -> None:
    units = units_of_all(size)
    assert plan_sample(size, units).share == 1
    assert units == LEAST_UNITS + 1 or plan_sample(size, units - 2).share < 1


def test_the_least_that_a_plan_asks_for_is_enough() -> None:
    size = 10**12
    with pytest.raises(ConfigurationError, match=r"read_units: must be at least 3,798 for this table, got 1,000"):
        plan_sample(size, 1000)
    assert plan_sample(size, 3798).segments == 30


@pytest.mark.parametrize("units", [0, -1, 255.9, float("nan"), "many"])
def test_too_few_units(units: float) -> None:
    with pytest.raises(ConfigurationError, match="read_units: must be a number >"):
        plan_sample(10**6, units)


@given(st.integers(1, 7 * 10**6))
def test_a_table_that_is_read_whole_takes_few_requests(size: int) -> None:
    """None takes less than half a unit."""
    plan = plan_sample(size, 1000)
    assert plan.share == 1
    assert plan.requests == plan.segments <= 30
    assert plan.read_units is not None
    assert plan.read_units >= 0.5 * plan.segments


def test_a_table_that_was_not_counted_yet() -> None:
    plan = plan_sample(0, 1000)
    assert (plan.share, plan.read_units) == (1.0, None)
    assert plan.segments * 0.5 <= 1000 - PAGE_UNITS


# -- intervals

Sizes = Callable[[random.Random], int]
"""The items of a key."""
TABLES: dict[str, Sizes] = {
    "one item a key": lambda rng: 1,
    "about ten, exponential": lambda rng: 1 + int(rng.expovariate(0.1)),
    "a long tail, lognormal": lambda rng: 1 + int(rng.lognormvariate(1.0, 1.5)),
}
KEYS, SEGMENTS, SAMPLES = 2000, 500, 100


def table(rng: random.Random, sizes: Sizes) -> list[list[int]]:
    """Give the items of each key, by segment: a hash assigns the keys."""
    segments: list[list[int]] = [[] for _ in range(SEGMENTS)]
    for _ in range(KEYS):
        rng.choice(segments).append(sizes(rng))
    return segments


def sampled(rng: random.Random, segments: list[list[int]], count: int) -> SegmentSample:
    sample = SegmentSample(len(segments))
    for keys in rng.sample(segments, count):
        sample.add({"items": sum(keys), "keys": len(keys), "large": sum(one for one in keys if one > 5)})
    return sample


def within(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


@pytest.mark.parametrize("name", TABLES)
def test_intervals_contain_the_truth(name: str) -> None:
    """In 95 of 100 samples; for 100 samples, 87 or fewer would be a chance of 1 in 500."""
    rng = random.Random(17)
    hits: Counter[str] = Counter()
    for _ in range(SAMPLES):
        segments = table(rng, TABLES[name])
        items, large = sum(map(sum, segments)), sum(one for keys in segments for one in keys if one > 5)
        sample = sampled(rng, segments, 100)
        hits["items"] += within(sample.total("items"), items)
        hits["keys"] += within(sample.total("keys"), KEYS)
        hits["share"] += within(sample.ratio("large", "items"), large / items)
    assert min(hits.values()) >= 88, hits


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_few_hotter_keys_are_missed_in_any_table(share: float) -> None:
    """As many as are said, or fewer, in 95 of 100 samples: also where one key has nearly all."""
    rng = random.Random(18)
    bound, kept = keys_unseen(share), 0
    for _ in range(400):
        # Keys by rank: which of them are read does not depend on their sizes. Hotter ones than the first that is read:
        missed = next((rank for rank in range(KEYS) if rng.random() < share), KEYS)
        kept += missed <= bound
    assert kept >= 0.92 * 400


def test_a_whole_table_is_exact() -> None:
    segments = table(random.Random(1), TABLES["a long tail, lognormal"])
    sample = sampled(random.Random(2), segments, SEGMENTS)
    items = sum(map(sum, segments))
    assert sample.total("items") == (items, items, items)
    assert sample.ratio("keys", "items") == (KEYS / items,) * 3
    assert keys_unseen(sample.share) == 0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 100))
def test_estimates_are_in_order_and_hold_what_was_read(items: list[int], more: int) -> None:
    sample = SegmentSample(len(items) + more)
    for count in items:
        sample.add({"items": count, "bytes": 10 * count})
    total = sample.total("items")
    assert sum(items) <= total.low <= total.value * (1 + 1e-9)
    assert total.value <= total.high * (1 + 1e-9)
    ratio = sample.ratio("items", "bytes")
    assert ratio.low <= ratio.value <= ratio.high
    if any(items):
        assert ratio.value == 0.1


def test_one_segment_and_none() -> None:
    """They show no differences, so there is only a lower bound."""
    sample = SegmentSample(10)
    assert sample.total("items") == (0, 0, float("inf"))
    sample.add({"items": 7})
    assert sample.total("items") == (70, 7, float("inf"))
    sample.add({})
    assert sample.total("nothing") == (0, 0, float("inf"))


# -- the shards of a logical key


@given(st.lists(st.integers(1, 60), min_size=1, max_size=7), st.integers(0, 30), st.floats(0.01, 0.99))
def test_the_shards_found_estimate_all_of_them(figures: list[int], empty: int, share: float) -> None:
    """The average over all samples that find a shard is exactly the truth, however many are empty."""
    average = seen = 0.0
    for read in product([True, False], repeat=len(figures)):
        found = [figure for figure, one in zip(figures, read, strict=True) if one]
        chance = share ** len(found) * (1 - share) ** (len(figures) - len(found))
        if found:
            total = shards_total(found, len(figures) + empty + 1, share)
            assert sum(found) <= total.low <= total.value <= total.high
            average += chance * total.value
            seen += chance
    assert average / seen == pytest.approx(sum(figures))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
@pytest.mark.parametrize("empty", [0, 10, 18])
def test_intervals_of_shards_contain_the_truth(share: float, empty: int) -> None:
    rng = random.Random(19)
    held = samples = 0
    for _ in range(300):
        figures = [1 + int(rng.expovariate(0.1)) for _ in range(20 - empty)]
        found = [figure for figure in figures if rng.random() < share]
        if found:
            samples += 1
            held += within(shards_total(found, 20, share), sum(figures))
    assert held >= 0.92 * samples


def test_shards_that_were_all_read() -> None:
    assert shards_total([5], 10, 1.0) == (5, 5, 5)
    assert shards_total([5, 6], 2, 0.3) == (11, 11, 11)


# -- the whole table's keys


def counted(*items: int, days: bool = False) -> KeyUniformity:
    counts = KeyUniformity(["Date"])
    for number, count in enumerate(items):
        for _ in range(count):
            counts.add((f"2014-07-{number + 1:02}" if days else f"key {number}",), 100, 1.0, 0.5)
    return counts


def test_a_hot_key_that_was_read_is_not_taken_for_one_of_many() -> None:
    """With the items that DynamoDB counted, its share is exact; without them, as uncertain as the total."""
    sample = SegmentSample(100)
    sample.add({"items": 900, "keys": 1})
    for _ in range(9):
        sample.add({"items": 10, "keys": 10})
    found = counted(900, *[1] * 90).result()
    whole = extrapolated(found, sample, 2000)
    assert (whole.items, whole.bytes, round(whole.write_units, 6)) == (2000, 200_000, 2000)
    assert (whole.write_share, whole.read_share) == pytest.approx((0.45, 0.45))
    assert (whole.distinct, whole.exact, whole.unseen) == (910, False, 28)
    assert found.entropy < whole.entropy < math.log2(910)
    assert extrapolated(found, sample, 10**9).effective_keys == pytest.approx(910)
    assert extrapolated(found, sample, 0).write_share == pytest.approx(900 / 9900)
    verdict = judge(whole, write_units=1000)
    assert verdict.writes is not None
    assert (verdict.good, round(verdict.writes.units, 6)) == (True, 450)
    assert verdict.reason == (
        "it has about 910 different values, and one partition can serve the hottest that was read; with 95% "
        "confidence, at most 28 others are hotter"
    )
    assert not judge(whole, write_units=2000).good


def test_a_key_of_days_takes_the_whole_load() -> None:
    sample = SegmentSample(100)
    for _ in range(10):
        sample.add({"items": 5, "keys": 1})
    assert extrapolated(counted(*[5] * 10, days=True).result(), sample, 500).write_share == 1.0


def test_all_was_read() -> None:
    sample = SegmentSample(1)
    sample.add({"items": 3, "keys": 2})
    found = counted(2, 1).result()
    assert extrapolated(found, sample, 2) is found


def test_shards_that_are_enough_and_too_few() -> None:
    """A stored key with a tenth of the data has nine siblings as hot: 5,000 write units need more than ten shards."""
    found = counted(*[10] * 10).result()
    few = judge_sharded(found, 10, write_units=5000)
    assert (few.good, few.shards, few.reason) == (False, 263, "its hottest key has 10 shards, which are too few")
    uneven = judge_sharded(found, 10, shares=(0.1, 0.1), write_units=9000)
    assert (uneven.good, uneven.shards, uneven.reason) == (
        False,
        8,
        "its hottest key has 10 shards, enough if they were even, but one stored key takes 10.0% of the write units",
    )
    enough = judge_sharded(found, 10, write_units=500)
    assert (enough.good, enough.reason) == (True, "its hottest key has 10 shards, which are enough")
    assert judge_sharded(found, 1, write_units=8500).good is False
    day = judge_sharded(found, 2, ("Date",), write_units=5000)
    assert day.writes is not None
    assert (day.good, day.writes.units) == (False, 5000)
