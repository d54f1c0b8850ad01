"""What DynamoDB refuses of an item that no request checks; tests/integration/test_limits.py asks the engines."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest

from shardkit import InvalidKeyError, InvalidValueError
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.limits import check_limits
from shardkit.dynamodb.schema import KeySchema

KEYS = (KeySchema(("p",), ("s",)), KeySchema(("x", "y"), ("z",)))


def check(**values: Any) -> None:
    item = to_wire_item({"p": "a", "s": "b", **values})
    check_limits(item, orjson.dumps(item), KEYS)


def nested(levels: int, inside: Any) -> Any:
    for level in range(levels):
        inside = [inside] if level % 2 else {"k": inside}
    return inside


@pytest.mark.parametrize(
    ("largest", "too_large", "said"),
    [
        ({"p": "é" * 1024}, {"p": "é" * 1024 + "x"}, "p: has 2,049 bytes as stored, DynamoDB allows 2,048"),
        ({"s": "x" * 1024}, {"s": "x" * 1025}, "s: has 1,025 bytes as stored, DynamoDB allows 1,024"),
        ({"x": "x" * 2048}, {"x": "x" * 2049}, "x, y: has 2,049 bytes"),
        ({"x": "x" * 1024, "y": "y" * 1024}, {"x": "x" * 1024, "y": "y" * 1025}, "x, y: has 2,049 bytes"),
        ({"z": "z" * 1024}, {"z": "z" * 1025}, "z: has 1,025 bytes"),
    ],
)
def test_sizes_of_keys(largest: dict[str, str], too_large: dict[str, str], said: str) -> None:
    check(**largest)
    with pytest.raises(InvalidKeyError, match=f"^{said}"):
        check(**too_large)


@pytest.mark.parametrize(
    ("levels", "inside"), [(32, "x"), (32, {1, 2}), (33, "x"), (32, []), (32, {}), (40, None)], ids=str
)
def test_levels(levels: int, inside: Any) -> None:
    """A value counts as one, and so does an empty list."""
    check(v=nested(31, inside))
    with pytest.raises(InvalidValueError, match=r"^attribute 'v' has more than 32 levels"):
        check(v=nested(levels, inside))


@pytest.mark.parametrize("number", ["1E-130", "9.9999999999999999999999999999999999999E+125", "-1E-130", "-0", "7"])
def test_numbers_in_range(number: str) -> None:
    check(v=[{"k": Decimal(number)}], w={Decimal(number), 1}, text="1E+999")


@pytest.mark.parametrize("number", ["1E-131", "1E+126", "-1E+126", "9.9E-131"])
def test_numbers_out_of_range(number: str) -> None:
    item: dict[str, Any]
    for item in ({"N": number}, {"NS": ["1", number]}, {"L": [{"M": {"k": {"N": number}}}]}):
        wire: Any = {"p": {"S": "a"}, "v": item}
        with pytest.raises(InvalidValueError, match=r"^attribute 'v': .* is out of range, DynamoDB stores 1E-130 to"):
            check_limits(wire, orjson.dumps(wire), KEYS)


@pytest.mark.parametrize("name", ["", "k" * 65_536, "é" * 32_768])
def test_names(name: str) -> None:
    values: dict[str, Any]
    for values in ({name: 1}, {"v": {name: 1}}, {"v": [{"k": {name: 1}}]}):
        with pytest.raises(InvalidValueError, match=r"its name has (0|65,536) bytes, DynamoDB allows 1 to 65,535$"):
            check(**values)
    longest: dict[str, Any] = {"k" * 65_535: {"é" * 32_767: ""}}
    check(**longest)
