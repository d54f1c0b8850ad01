"""The hashes: golden values, the same in every process, what they refuse, and how evenly they spread."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.hashing import code_point_product, key_draw, stable_hash
from shardkit.dynamodb.values import Binary
from shardkit.errors import InvalidKeyError
from shardkit.strategies import CalculatedSuffix
from tests.support.strategies import DAY, ROOT, length_of, old_formula, python_value, vectors

HUGE = pytest.param(10**6000, id="huge")  # Python refuses to print it


@pytest.mark.parametrize("row", vectors("stable_hash.json"), ids=lambda row: json.dumps(row["value"])[:40])
def test_golden_hashes(row: dict[str, Any]) -> None:
    value = python_value(row["value"])
    number = stable_hash(value)
    assert (str(number), number % 10, number % 200) == (row["hash"], row["mod10"], row["mod200"])
    if isinstance(value, bytes):
        assert stable_hash(Binary(value)) == stable_hash(bytearray(value)) == number
    if isinstance(value, Decimal) and value == int(value):
        assert stable_hash(int(value)) == number


@given(number=st.decimals(allow_nan=False, allow_infinity=False, places=4), zeros=st.integers(0, 40))
def test_equal_numbers_hash_alike(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    longer = Decimal((sign, digits + (0,) * zeros, exponent - zeros))
    assert longer == number
    if abs(number.adjusted()) < 1000:
        assert stable_hash(longer) == stable_hash(number)


def test_hashes_are_the_same_in_every_process() -> None:
    script = (
        "from shardkit.core.hashing import stable_hash as h\n"
        "from shardkit.strategies import CalculatedSuffix as C, RandomSuffix as R\n"
        "print([h(v) for v in ('A17', b'A17', 17, ('a', 1))], C('a', 200).shard_of('k', {'a': 'A17'}),"
        " R({'b': 2, 'a': 3, 'c': 4}).to_dict())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(answers) == 1
    assert str(stable_hash("A17")) in answers.pop()


def test_code_point_product() -> None:
    assert code_point_product("A17") == 65 * 49 * 55
    assert code_point_product("é") == 233
    assert code_point_product("") == 1
    for wrong in (5, b"A17", None):
        with pytest.raises(InvalidKeyError, match="must be a str, got"):
            code_point_product(wrong)


REFUSED: list[Any] = [
    True,
    1.5,
    None,
    {"a"},
    ["a"],
    {"a": 1},
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    "\ud800",
]
REFUSED += [Decimal("1E+1000"), Decimal("1E-1000"), HUGE, object()]


@pytest.mark.parametrize("value", REFUSED)
@pytest.mark.parametrize("function", [stable_hash, length_of])
def test_values_without_a_hash_are_refused(value: Any, function: Any) -> None:
    for by in ("a", ("a", "a"), lambda item: item["a"]):
        with pytest.raises(InvalidKeyError, match="use text, bytes, an int or a Decimal"):
            CalculatedSuffix(by, 2, hash=function).shard_of("k", {"a": value})
    for wrong in (value, (value,), ("a", value)):
        with pytest.raises(InvalidKeyError):
            stable_hash(wrong)


def test_sequential_orders_are_even_over_200_shards() -> None:
    strategy = CalculatedSuffix("OrderId", 200)
    counts = Counter(strategy.shard_of(DAY, {"OrderId": f"order-{number:06}"}) for number in range(20_000))
    assert set(counts) == set(range(1, 201))
    # 100 expected: standard deviation 10; chi squared of 199 degrees of freedom is below 270 in 99.9% of draws.
    assert 60 <= min(counts.values()) <= max(counts.values()) <= 145
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 270


def test_the_formula_of_the_guide_is_as_weak_as_its_warning_says() -> None:
    strategy, draw = old_formula(), random.Random(1)
    ids = [str(uuid.UUID(int=draw.getrandbits(128), version=4)) for _ in range(20_000)]
    assert {strategy.shard_of(DAY, {"OrderId": one}) for one in ids} == {1}
    numbers = [f"{draw.randrange(10**8):08}" for _ in range(20_000)]
    on_first = sum(strategy.shard_of(DAY, {"OrderId": one}) == 1 for one in numbers)
    assert 0.61 < on_first / len(numbers) < 0.67


def test_draws_of_keys_are_fixed_by_load_and_key() -> None:
    draws = {key_draw(load, key) for load in ("a", "b") for key in ((DAY,), (DAY, "A17"), (DAY, Decimal(17)))}
    assert len(draws) == 6
    assert all(0 <= draw < 1 for draw in draws)
    # Equal keys have equal draws, whatever their numbers look like; in every version: stored items depend on it.
    assert key_draw("a", (DAY, Decimal("17.0"))) == key_draw("a", (DAY, 17))
    assert key_draw("load", (DAY, "A17")) == 0.8665120487563179


def test_draws_of_keys_are_even() -> None:
    counts = Counter(int(key_draw("load", (DAY, str(number))) * 10) for number in range(5000))
    assert min(counts.values()) > 400
