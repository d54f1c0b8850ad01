"""Heavy hitters: what is promised of them, beside exact counts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.cli.flights import date_of, read_rows
from shardkit.core.heavy_hitters import HeavyHitters
from shardkit.errors import ConfigurationError

HALVES = st.integers(0, 40).map(lambda n: n / 2)
FLIGHTS = 50_000
USES = st.lists(st.tuples(st.integers(0, 12), HALVES, HALVES), max_size=120)


def filled(uses: Iterable[tuple[object, float]], capacity: int) -> tuple[HeavyHitters[object], Counter[object]]:
    sketch: HeavyHitters[object] = HeavyHitters(capacity)
    exact: Counter[object] = Counter()
    for key, units in uses:
        sketch.add(key, units)
        exact[key] += units  # type: ignore[assignment] # halves
    return sketch, exact


def check(sketch: HeavyHitters[object], exact: Counter[object], capacity: int) -> None:
    """Check the promises of the class."""
    total = sum(exact.values())
    assert sum(held.units for held in sketch.held.values()) + sketch.others.units == total
    assert len(sketch.held) <= capacity
    assert sketch.error <= total / capacity
    for key, units in exact.items():
        held = sketch.held.get(key)
        if held is None:
            assert units <= sketch.error
        else:
            assert held.units <= units <= held.units + held.before
            assert held.before <= sketch.error


@given(USES, st.integers(1, 14))
def test_bounds_and_conservation(uses: list[tuple[int, float, float]], capacity: int) -> None:
    sketch: HeavyHitters[object] = HeavyHitters(capacity)
    exact: Counter[object] = Counter()
    for key, reported, estimated in uses:
        sketch.add(key, reported, estimated)
        exact[key] += reported + estimated  # type: ignore[assignment] # halves
    check(sketch, exact, capacity)
    every = [*sketch.held.values(), sketch.others]
    assert sum(held.reported for held in every) == sum(reported for _, reported, _ in uses)
    assert sum(held.estimated for held in every) == sum(estimated for _, _, estimated in uses)
    assert sum(held.requests for held in every) == len(uses)
    if len(exact) <= capacity:
        assert {key: held.units for key, held in sketch.held.items()} == exact
        assert sketch.error == 0


def zipf(count: int, keys: int, exponent: float, seed: int) -> list[tuple[object, float]]:
    source = random.Random(seed)
    weights = [1 / rank**exponent for rank in range(1, keys + 1)]
    return [(key, source.randint(1, 20) / 2) for key in source.choices(range(keys), weights, k=count)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("exponent", "capacity"), [(0.5, 200), (1.0, 200), (1.5, 50), (1.0, 1000)])
def test_zipf(exponent: float, capacity: int, seed: int) -> None:
    """20,000 keys, of which few are held: what is hot is found, in its order, with figures that are nearly right."""
    sketch, exact = filled(zipf(20_000, 20_000, exponent, seed), capacity)
    check(sketch, exact, capacity)
    hot = [key for key, units in exact.most_common() if units > sketch.error]
    assert set(hot) <= sketch.held.keys()
    if exponent >= 1:
        ranked = sorted(sketch.held, key=lambda key: -sketch.held[key].units)
        assert ranked[:5] == [key for key, _ in exact.most_common(5)]
        assert all(sketch.held[key].units > 0.9 * exact[key] for key in ranked[:5])


@pytest.fixture(scope="module")
def flights() -> dict[str, list[str]]:
    """Real flights by date (sorted, nearly even), by carrier (few, skewed), by aeroplane (a long tail)."""
    rows = [(date_of(row), row["carrier"], row["tailnum"]) for row in islice(read_rows(), FLIGHTS)]
    return dict(zip(("date", "carrier", "tailnum"), map(list, zip(*rows, strict=True)), strict=True))


@pytest.mark.parametrize(("by", "capacity"), [("date", 20), ("carrier", 8), ("tailnum", 500)])
def test_flights(flights: dict[str, list[str]], by: str, capacity: int) -> None:
    sketch, exact = filled([(key, 1.0) for key in flights[by]], capacity)
    assert sum(exact.values()) == FLIGHTS
    assert len(exact) > capacity
    check(sketch, exact, capacity)


def test_the_hottest_stay() -> None:
    sketch, _ = filled([("hot", 100.0), *((number, 1.0) for number in range(50))], 2)
    assert sketch.held["hot"].units == 100
    assert sketch.held["hot"].before == 0


def test_what_consumes_nothing_pushes_nobody_out() -> None:
    sketch, _ = filled([("a", 1.0), ("b", 0.0), ("c", 0.0)], 2)
    assert sketch.held.keys() == {"a", "b"}
    assert sketch.others.requests == 1


def test_peaks() -> None:
    sketch: HeavyHitters[str] = HeavyHitters(1)
    for second, units in ((1, 3.0), (1, 4.0), (2, 5.0), (3, 1.0)):
        sketch.add("a", units, 0.5, second=second)
    assert sketch.held["a"].peak == 8
    sketch.add("a", 100.0, second=3)
    assert sketch.held["a"].peak == 101.5


@pytest.mark.parametrize("capacity", [0, -1, True, 1.5])
def test_the_capacity_is_checked(capacity: int) -> None:
    with pytest.raises(ConfigurationError, match="max_keys"):
        HeavyHitters(capacity)
