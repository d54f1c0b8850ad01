"""The strategies that the tests share: one of every kind, their functions, and the golden values."""

from __future__ import annotations

import base64
import json
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

from shardkit.core.hashing import code_point_product
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy, Unsharded, register_function

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"
DAY = "2014-07-09"


def shards_of_key(key: Any) -> int:
    return 20 if len(key) % 2 else 7


def order_of(item: Any) -> Any:
    return item["Order"]["Id"]


def length_of(value: Any) -> int:
    return len(value)


def hours_of_day(day: Any) -> list[str]:
    return ["06", "12", "18"] if len(day) % 2 else ["12"]


register_function(hours_of_day, name="test.hours_of_day")
register_function(shards_of_key, name="test.shards_of_key")
register_function(order_of, name="test.order_of")


def vectors(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((VECTORS / name).read_text("utf-8"))["vectors"]
    return rows


def python_value(form: dict[str, Any]) -> Any:
    ((letter, value),) = form.items()
    if letter == "T":
        return tuple(map(python_value, value))
    if letter == "B":
        return base64.b64decode(value)
    return Decimal(value) if letter == "N" else value


def old_formula(shards: int = 200) -> CalculatedSuffix:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CalculatedSuffix("OrderId", shards, hash=code_point_product)


STRATEGIES: list[Strategy] = [
    Unsharded(),
    RandomSuffix(1),
    RandomSuffix(200),
    RandomSuffix(12, separator="#", first=0, locate=True),
    RandomSuffix({"hot": 200, b"hot": 30, "a.5": 11}),
    RandomSuffix(shards_of_key, separator="##"),
    CalculatedSuffix("OrderId", 200),
    CalculatedSuffix(("Tenant", "OrderId"), {"hot": 9}, separator="::", first=95),
    CalculatedSuffix(order_of, shards_of_key),
    old_formula(),
    RangeSuffix("OrderId", ()),
    RangeSuffix("OrderId", ["A1", "é", "\U0001f600"], separator="#"),
    RangeSuffix("OrderId", [Decimal("-1.50"), 0, Decimal("1E+20")]),
    RangeSuffix("OrderId", {"hot": [b"\x00", b"\xff"], b"hot": [b"a.1"]}),
    RangeSuffix("OrderId", hours_of_day),
]
