from __future__ import annotations

from decimal import Decimal, localcontext
from types import MappingProxyType
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity import item_size, storage_size
from shardkit.errors import InvalidKeyError, InvalidValueError


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
        with pytest.raises(InvalidValueError, match="twelve"):
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


def test_storage_adds_100_bytes() -> None:
    assert storage_size({"Date": {"S": "2014-07-09"}, "Total": {"N": "12"}}) == 121
    assert storage_size({"Date": "2014-07-09", "Total": 12}) == 121


@pytest.mark.parametrize(
    ("python", "size"),
    [
        ("", 0), ("é", 2), ("😀", 4), (0, 1), (100, 2), (-5, 3), (Decimal("1.50"), 3), (Decimal("1E+100"), 2),
        (Decimal("-0"), 1), (10**37, 2), (True, 1), (None, 1), (b"\x00\xff", 2), (bytearray(3), 3),
        (Binary(b"1234"), 4),
        ({"ab", "c"}, 3), ({1, Decimal("1.5")}, 5), (frozenset({b"a", Binary(b"bc")}), 3), (set(), 0),
        ([], 3), (["ab", True], 3 + 3 + 2), (("ab", True), 3 + 3 + 2), ({}, 3), ({"ké": 12}, 3 + 1 + 3 + 2),
        ({"S": "x"}, 3 + 1 + 1 + 1), ([[]], 3 + 1 + 3),
        (MappingProxyType({"a": {"b": "x"}}), 3 + 1 + 1 + (3 + 1 + 1 + 1)),
    ],
)  # fmt: skip
def test_python_value(python: Any, size: int) -> None:
    """Beside a key, without which an item cannot be, the value is one of Python, even if it looks like a wire value."""
    assert item_size({"日": "k", "v": python}) == 3 + 1 + 1 + size
    assert item_size({"v": python, "日": "k"}) == 3 + 1 + 1 + size


@pytest.mark.parametrize(
    "wire",
    [{}, {"S": "x", "N": "1"}, {"X": 1}, {"S": 1}, {"N": "NaN"}, {"N": "Infinity"}, {"N": ""}, {"N": None},
     {"B": "no base64"}, {"B": 5}, {"N": "1" * 39}, {"N": "1E+127"}],
)  # fmt: skip
def test_refused(wire: Any) -> None:
    with pytest.raises(InvalidValueError, match="got"):
        value(wire)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-100, 60))
def test_a_number_has_one_size_however_it_is_written(digits: int, power: int) -> None:
    number = Decimal(f"{digits}E{power}")
    written = (f"{digits}E{power}", f"{number:E}", str(number))
    assert {value({"N": text}) for text in written} == {value({"N": format(number, "f")})}


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("abc", "'abc' is not a number"),
        ("", "'' is not a number"),
        ("NaN", "'NaN' is not a number"),
        ("1" * 39, "more than 38 digits, or one beyond 1E-130 to 9.99…E.125"),
        ("1E+127", "more than 38 digits, or one beyond 1E-130 to 9.99…E.125"),
    ],
)
def test_what_is_wrong_with_a_number_is_said(number: str, reason: str) -> None:
    for wire in ({"N": number}, {"NS": [number]}, {"L": [{"N": number}]}):
        with pytest.raises(InvalidValueError, match=reason):
            value(wire)


@pytest.mark.parametrize("python", [1.5, object(), {1, "x"}, 10**38, Decimal("1E+127"), Decimal("NaN"), [{"a": 0.5}]])
def test_python_value_refused(python: Any) -> None:
    with pytest.raises(InvalidValueError, match="'v': got "):
        item_size({"k": "x", "v": python})


@pytest.mark.parametrize("item", [None, "x", [("k", "x")], {1: "x"}])
def test_no_item(item: Any) -> None:
    with pytest.raises(InvalidKeyError):
        item_size(item)
