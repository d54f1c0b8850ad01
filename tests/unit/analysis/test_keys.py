"""What is counted of candidates for a partition key: exact where it fits, bounded where it does not."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.analysis.keys import Candidate, Key, KeyUniformity, Uniformity
from shardkit.errors import ConfigurationError

usages = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 5000), st.integers(1, 9), st.integers(1, 4)),
    min_size=1,
    max_size=60,
)


def counted(*keys: Any, times: list[str] | None = None, max_keys: int = 100) -> Uniformity:
    """Each key once, of one write unit and half a read unit."""
    names = [f"k{place}" for place in range(len(keys[0]) if isinstance(keys[0], tuple) else 1)]
    uniformity = KeyUniformity(names, times=times, max_keys=max_keys)
    for key in keys:
        uniformity.add(key if isinstance(key, tuple) else (key,), 100, 1.0, 0.5)
    return uniformity.result()


@given(usages)
def test_as_counted_one_by_one(items: list[tuple[str, int, int, int]]) -> None:
    uniformity = KeyUniformity(["k"])
    for key, size, writes, reads in items:
        uniformity.add((key,), size, writes, reads)
    found = uniformity.result(top=2)
    by_writes: Counter[str] = Counter()
    by_reads: Counter[str] = Counter()
    for key, _, writes, reads in items:
        by_writes[key] += writes
        by_reads[key] += reads
    assert found.exact
    assert found.error == 0
    assert (found.items, found.bytes) == (len(items), sum(item[1] for item in items))
    assert (found.write_units, found.read_units) == (by_writes.total(), by_reads.total())
    assert found.distinct == len(by_writes)
    assert found.write_share == pytest.approx(max(by_writes.values()) / by_writes.total())
    assert found.read_share == pytest.approx(max(by_reads.values()) / by_reads.total())
    assert [usage.write_units for usage in found.hottest] == [units for _, units in by_writes.most_common(2)]
    hottest = found.hottest[0]
    of_hottest = [item for item in items if item[0] == hottest.key[0]]
    assert (hottest.items, hottest.bytes) == (len(of_hottest), sum(item[1] for item in of_hottest))
    shares = [units / by_writes.total() for units in by_writes.values()]
    assert found.entropy == pytest.approx(-sum(share * math.log2(share) for share in shares))
    assert 0 <= found.evenness <= 1
    assert found.effective_keys <= found.distinct + 1e-9


def test_even_keys_and_one_key() -> None:
    even = counted(*"abcdefgh")
    assert (even.entropy, even.effective_keys, even.evenness, even.distinct) == (3.0, 8.0, 1.0, 8)
    one = counted("a", "a")
    assert (one.entropy, one.effective_keys, one.evenness, one.write_share) == (0.0, 1.0, 1.0, 1.0)
    assert {counted(*["a"] * count).entropy for count in (10, 48, 89)} == {0.0}, "their logarithms are rounded"


def test_ten_keys_are_shown_unless_asked_otherwise() -> None:
    uniformity = KeyUniformity(["k"])
    for number in range(12):
        uniformity.add((f"k{number}",), 100, 1.0, 0.5)
    assert len(uniformity.result().hottest) == 10
    assert len(uniformity.result(top=3).hottest) == 3


def test_as_many_keys_as_may_be_held_are_counted_exactly() -> None:
    assert counted(*range(100), max_keys=100).exact
    beyond = counted(*range(101), max_keys=100)
    assert not beyond.exact
    assert beyond.distinct == pytest.approx(101, rel=0.2)
    # Of these two keys one is sampled, as many as may be held: it stands for two.
    assert counted("k0", "k1", max_keys=1).distinct == 2


def test_numbers_that_are_equal_are_one_key() -> None:
    found = counted(1, Decimal(1), Decimal("1.0"), Decimal("1E0"), "1", b"1")
    assert found.distinct == 3
    assert found.hottest[0].items == 4


@pytest.mark.parametrize(
    "values",
    [
        ["2014-07-09", "2014-07-10"],
        ["2014-07", "2014-12"],
        ["2014-W28", "2014-W28-3"],
        ["2014-07-09T10", "2014-07-09T10:05", "2014-07-09T10:05:59Z", "2014-07-09 10:05:59+02:00"],
        ["20140709", "20140709T1005"],
        ["2014/07/09"],
        [20140709, Decimal(20140710)],
    ],
)
def test_dates_and_times_are_known_by_their_values(values: list[Any]) -> None:
    assert counted(*values).times == ("k0",)
    assert counted(*values, "soon").times == ()
    assert counted(*values, times=[]).times == ()


@pytest.mark.parametrize(
    "value",
    [
        "2014-07-09T10:05:59.123Z",  # a thousand keys a second
        "2014-13-09",
        "2014-07-32",
        "2014",
        "201407",
        "2014-07-09.57",
        "2014-07/09",
        "order 2014-07-09",
        1373328000,
        b"2014-07-09",
        Decimal("20140709.5"),
    ],
)
def test_what_is_no_date(value: Any) -> None:
    assert counted(value).times == ()


def test_times_can_be_said() -> None:
    found = counted("mon", "mon", "tue", times=["k0"])
    assert found.times == ("k0",)
    assert found.write_share == 1.0
    with pytest.raises(ConfigurationError, match="'when'"):
        KeyUniformity(["k0"], times=["when"])


def test_of_a_time_only_its_keys_are_hot() -> None:
    keys = [("2014-07-09", "a")] * 3 + [("2014-07-09", "b")] + [("2014-07-10", "a")] * 2 + [("2014-07-10", "b")] * 2
    found = counted(*keys)
    assert found.times == ("k0",)
    assert found.write_share == (3 + 2) / 8
    assert found.read_share == (3 + 2) / 8
    assert found.hottest[0].write_units / found.write_units == 3 / 8


@pytest.mark.parametrize(("seconds", "max_keys"), [(3.0, 100_000), (3.0, 200), (0.5, 200), (0.01, 100_000)])
def test_times_with_few_items_are_counted_together(seconds: float, max_keys: int) -> None:
    """A second with one or two items says nothing of the share of a tenant in thousands of writes a second."""
    draw, start = random.Random(1), datetime(2024, 1, 1, tzinfo=UTC)
    tenants = draw.choices([f"t{number}" for number in range(50)], [1 / (1 + number) for number in range(50)], k=8000)
    uniformity = KeyUniformity(["tenant", "at"], max_keys=max_keys)
    for number, tenant in enumerate(tenants):
        at = start + timedelta(seconds=int(number * seconds))
        uniformity.add((tenant, f"{at:%Y-%m-%dT%H:%M:%S}"), 300, 1.0, 0.5)
    found = uniformity.result()
    assert found.times == ("at",)
    assert found.exact == (max_keys > 200)
    true = tenants.count("t0") / 8000
    assert found.write_share == pytest.approx(true, rel=0.001 if found.exact else 0.15)
    assert found.read_share == pytest.approx(found.write_share)


def test_few_items_of_one_key_are_enough_to_tell() -> None:
    """Each hour one other customer uploads: ten of ten items are evidence, and three of three are not."""

    def share(items: int) -> float:
        return counted(*[(f"2024-01-01T{hour:02}", f"c{hour}") for hour in range(20) for _ in range(items)]).write_share

    assert share(10) == 1.0
    assert share(3) < 0.5


def test_times_of_several_types_are_counted_together() -> None:
    assert counted((20140709, "a"), ("2014-07-09", "a"), ("2014-07-10", "b")).write_share == pytest.approx(2 / 3)


def test_nothing_counted() -> None:
    with pytest.raises(ConfigurationError, match="no item has a and b"):
        KeyUniformity(["a", "b"]).result()
    with pytest.raises(ConfigurationError, match=r"^max_keys: must be an integer >= 1"):
        KeyUniformity(["a"], max_keys=0)


# -- more keys than are held -------------------------------------------------------------------------------------------


def many(keys: list[Key], max_keys: int, names: list[str] | None = None) -> tuple[Uniformity, Counter[Key]]:
    names = names or ["k"]
    uniformity = KeyUniformity(names, max_keys=max_keys)
    exact: Counter[Key] = Counter()
    for key in keys:
        uniformity.add(key, 100, 1.0, 0.5)
        exact[key] += 1
    return uniformity.result(), exact


def entropy_of(exact: Counter[Key]) -> float:
    total = exact.total()
    return math.log2(total) - sum(count * math.log2(count) for count in exact.values()) / total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("skew", [0.7, 1.1, 3.0])
def test_beyond_max_keys_the_estimates_are_near(skew: float, seed: int) -> None:
    draw = random.Random(seed)
    keys: list[Key] = [(f"user{min(int(draw.paretovariate(skew)), 10**7)}",) for _ in range(60_000)]
    found, exact = many(keys, 1000)
    assert found.exact == (len(exact) <= 1000)
    assert found.items == 60_000
    assert found.write_units == 60_000
    assert found.read_units == 30_000
    # Six standard errors of 1.2 / √1000; of the entropy what was seen, doubled.
    assert found.distinct == pytest.approx(len(exact), rel=0.23)
    assert found.entropy == pytest.approx(entropy_of(exact), abs=0.15)
    assert found.error <= 60_000 / 1000
    for usage in found.hottest:
        assert exact[usage.key] - found.error <= usage.write_units <= exact[usage.key]
    hottest = exact.most_common(1)[0][1]
    for share in (found.write_share, found.read_share):
        assert hottest - found.error <= round(share * 60_000) <= hottest


def test_the_same_keys_give_the_same_estimates() -> None:
    keys: list[Key] = [(number,) for number in range(5000)]
    assert many(keys, 64)[0] == many(keys, 64)[0]


def test_memory_is_bounded() -> None:
    uniformity = KeyUniformity(["k"], max_keys=50)
    tracemalloc.start()
    try:
        held = []
        for number in range(10_000):
            uniformity.add((f"user{number}",), 100, 1.0, 0.5)
            if number in {1000, 9999}:
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] < held[0] + 8000  # a byte for each of the others, 8,999, would be more
    found = uniformity.result()
    assert not found.exact
    assert found.hottest[0].bytes is None
    assert found.evenness <= 1.0


def test_times_beyond_max_keys() -> None:
    draw = random.Random(1)
    keys: list[Key] = [
        (f"2014-07-{day:02}", "whale" if draw.random() < 0.3 else f"user{draw.randrange(3000)}")
        for day in range(1, 11)
        for _ in range(2000)
    ]
    found, exact = many(keys, 1000, ["day", "user"])
    assert found.times == ("day",)
    at_its_time = sum(exact[f"2014-07-{day:02}", "whale"] for day in range(1, 11)) / 20_000
    assert found.write_share == pytest.approx(at_its_time, abs=10 * found.error / 20_000)


# -- items -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "empty"),
        (b"", "empty"),
        ("x" * 2049, "too long"),
        ("é" * 1025, "too long"),
        (b"x" * 2049, "too long"),
        ("\ud800", "no UTF-8"),
        (True, "BOOL"),
        (None, "NULL"),
        ({"a": 1}, "M"),
        ([1], "L"),
        ({"a"}, "SS"),
    ],
)
def test_what_can_be_no_key_is_left_out_and_counted(value: Any, problem: str) -> None:
    candidate = Candidate(["Date", "Code"])
    assert candidate.add({"Date": "2014-07-09", "Code": value}, 100) is None
    assert candidate.add({"Date": "2014-07-09"}, 100) is None
    assert candidate.without == {("Code", problem): 1, ("Code", "missing"): 1}
    assert candidate.uniformity.items == 0


def test_keys_of_every_type() -> None:
    from boto3.dynamodb.types import Binary

    candidate = Candidate(["k"])
    values = ["é" * 1024, 0, Decimal("-1.50"), b"raw", Binary(b"raw"), bytearray(b"raw")]
    keys = [candidate.add({"k": value, "other": {}}, 100) for value in values]
    assert keys == [("é" * 1024,), (0,), (Decimal("-1.5"),), (b"raw",), (b"raw",), (b"raw",)]
    assert candidate.uniformity.result().distinct == 4


@pytest.mark.parametrize("names", [[], [""], ["a", ""], ["a", "a"]])
def test_what_is_no_candidate(names: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="is not a key"):
        Candidate(names)
