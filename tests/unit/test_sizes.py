from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity.sizes import item_size


def value(wire: dict[str, Any]) -> int:
    return item_size({"": wire})


@pytest.mark.parametrize(
    ("number", "size"),
    [
        ("0", 1), ("-0", 1), ("0.00", 1), ("0E+5", 1), ("1", 2), ("100", 2), ("123", 3), ("-5", 3), ("1.5", 3),
        ("0.001", 2), ("9" * 38, 20), ("-" + "9" * 38, 21), ("1E+100", 2), ("1E-100", 2), ("0100", 2), ("1.50", 3),
        ("101", 3), ("10.5", 3), ("100.5", 4), ("0.015", 2), ("12E-5", 2), ("12E+29", 2), ("-0.5", 3), ("+7", 2),
        ("12.345", 4), ("10.01", 3), ("1.01", 3),
    ],
)  # fmt: skip
def test_number(number: str, size: int) -> None:
    assert value({"N": number}) == size


def test_number_is_exact_in_any_decimal_context() -> None:
    with localcontext() as context:
        context.prec = 2
        context.traps = dict.fromkeys(context.traps, False)
        assert value({"N": "9" * 38}) == 20
        with pytest.raises(ValueError, match="twelve"):
            value({"N": "twelve"})


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_number_integers(number: int) -> None:
    digits = len(str(abs(number)).rstrip("0"))
    assert value({"N": str(number)}) == (1 if number == 0 else 1 + (digits + 1) // 2 + (number < 0))


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-80, 80))
def test_number_sign_and_form_do_not_matter(digits: int, exponent: int) -> None:
    number = Decimal(f"{digits}E{exponent}")
    plain, scientific = format(number, "f"), format(number, "e")
    assert value({"N": plain}) == value({"N": scientific})


@pytest.mark.parametrize(
    ("wire", "size"),
    [
        ({"S": ""}, 0), ({"S": "abc"}, 3), ({"S": "é"}, 2), ({"S": "日本"}, 6), ({"S": "😀"}, 4), ({"S": "\ud800"}, 3),
        ({"B": b"\x00\xff"}, 2), ({"B": bytearray(3)}, 3), ({"B": Binary(b"1234")}, 4), ({"B": memoryview(b"12")}, 2),
        ({"B": ""}, 0), ({"B": "eA=="}, 1), ({"B": "eHh4"}, 3), ({"BS": ["eA==", b"yz"]}, 3),
        ({"BOOL": True}, 1), ({"BOOL": False}, 1), ({"NULL": True}, 1),
        ({"L": [{"M": {"a": {"NS": ["1" + "0" * 125, "-0.5"]}}}, {"N": "1" + "0" * 38}]}, 17),
        ({"SS": ["ab", "c"]}, 3), ({"NS": ["1", "123"]}, 5), ({"BS": [b"a", Binary(b"bc")]}, 3),
        ({"L": []}, 3), ({"L": [{"S": "ab"}, {"BOOL": True}]}, 3 + 3 + 2),
        ({"M": {}}, 3), ({"M": {"ké": {"N": "12"}}}, 3 + 1 + 3 + 2),
        ({"L": [{"L": []}]}, 3 + 1 + 3), ({"M": {"a": {"M": {"b": {"S": "x"}}}}}, 3 + 1 + 1 + (3 + 1 + 1 + 1)),
    ],
)  # fmt: skip
def test_value(wire: dict[str, Any], size: int) -> None:
    assert value(wire) == size


def test_item() -> None:
    assert item_size({}) == 0
    assert item_size({"Date": {"S": "2014-07-09"}, "Total": {"N": "12"}}) == 4 + 10 + 5 + 2
    assert item_size({"日": {"BOOL": True}}) == 3 + 1


@pytest.mark.parametrize(
    "wire",
    ["x", {}, {"S": "x", "N": "1"}, {"X": 1}, {"S": 1}, {"N": "NaN"}, {"N": "Infinity"}, {"N": ""}, {"N": None},
     {"B": "no base64"}, {"B": 5}, {"N": "1" * 39}, {"N": "1E+127"}],
)  # fmt: skip
def test_refused(wire: Any) -> None:
    with pytest.raises(ValueError, match="got"):
        value(wire)
