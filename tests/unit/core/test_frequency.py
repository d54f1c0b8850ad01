from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.frequency import MOST, FrequencySketch


@given(st.lists(st.integers(0, 300), max_size=1000), st.lists(st.integers(1, 2000), max_size=3))
def test_counts_are_never_too_low(keys: list[int], fits: list[int]) -> None:
    """As long as they do not halve, however often there is more room."""
    sketch, seen = FrequencySketch(), Counter[int]()
    for place, key in enumerate(keys):
        if fits and place % 100 == 50:
            sketch.fit(fits[place % len(fits)])
        seen[key] += 1
        assert sketch.add(key) >= min(seen[key], MOST)
    assert all(sketch.count(key) >= min(count, MOST) for key, count in seen.items())


def test_counts_are_nearly_right_for_as_many_keys_as_fit() -> None:
    sketch = FrequencySketch()
    sketch.fit(1000)
    for key in range(5000):
        for _ in range(2):
            sketch.add(key)
    wrong = sum(sketch.count(key) != 2 for key in range(5000))
    assert wrong < 500
    assert sum(sketch.count(key) > 0 for key in range(5000, 6000)) < 500


def test_counts_halve() -> None:
    sketch = FrequencySketch()
    for _ in range(20):
        sketch.add("famous")
    assert sketch.count("famous") == MOST
    periods = 0
    while sketch.count("famous") > 1:
        sketch.add("new")
        periods += 1
    assert 3 * 3000 < periods < 4 * 6400
