"""Arguments that cannot work: what was given, what it is not, and what to give."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from shardkit.core.checks import check_count, check_headroom, check_key, check_number
from shardkit.dynamodb.values import Binary
from shardkit.errors import ConfigurationError


def test_what_works_is_given_back() -> None:
    assert check_number("n", 0, "units") == 0
    assert check_number("n", 0.5, "units", above=True) == 0.5
    assert check_count("n", 1, "items") == check_count("n", 1, "items", most=1) == 1
    assert check_count("n", 0, "items", least=0) == 0
    assert check_headroom(0) == 0
    assert check_headroom(0.99) == 0.99
    assert [check_key(key) for key in ("a", b"a", bytearray(b"a"), Binary(b"a"))] == ["a", b"a", b"a", b"a"]
    assert [check_key(key) for key in (1, Decimal("1.5"))] == [1, Decimal("1.5")]


@pytest.mark.parametrize("given", [-1, -0.5, float("nan"), float("inf"), 10**400, "1", None, True, Decimal("sNaN")])
def test_what_is_no_number(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^rate: must be a number >= 0 \(units\), got .+$"):
        check_number("rate", given, "units")
    with pytest.raises(ConfigurationError, match=r"^rate: must be a number > 0 \(units\), got .+$"):
        check_number("rate", given, "units", above=True)


def test_a_number_that_is_to_be_above_0() -> None:
    with pytest.raises(ConfigurationError, match=r"^rate: must be a number > 0 \(units\), got 0$"):
        check_number("rate", 0, "units", above=True)


@pytest.mark.parametrize("given", [0, -1, 1.0, "1", None, True, float("inf")])
def test_what_is_no_count(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^n: must be an integer >= 1 \(items\), got .+$"):
        check_count("n", given, "items")


def test_a_count_that_is_too_high() -> None:
    with pytest.raises(ConfigurationError, match=r"^n: must be an integer from 1 to 1,000 \(items\), got 1001$"):
        check_count("n", 1001, "items", most=1000)


@pytest.mark.parametrize("given", [-0.1, 1, float("nan"), "0.2", None, True])
def test_what_is_no_headroom(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^headroom: must be a number >= 0 and < 1 .*, got .+$"):
        check_headroom(given)


@pytest.mark.parametrize("given", [1.5, True, None, {"S": "a"}, ["a"]])
def test_what_is_no_key(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^key: must be a str, bytes or a number .*, got .+$"):
        check_key(given)
