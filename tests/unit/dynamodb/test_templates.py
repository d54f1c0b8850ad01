"""Which items have a template of their put; what it writes is in ``bulk/test_writes.py``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from shardkit import CalculatedSuffix
from shardkit.bulk import writes
from shardkit.dynamodb import templates
from shardkit.dynamodb.templates import Templates
from tests.support.fakes import sharding


def test_a_usual_item_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(item: Any) -> Any:
        raise AssertionError(item)

    monkeypatch.setattr(writes, "to_wire_item", refuse)
    usual = {"pk": "U1", "sk": "x", "a": 7, "b": Decimal("1.50"), "c": True, "d": None}
    puts = writes.Writes(sharding(CalculatedSuffix("sk", 20)), lambda *_: 0.5)
    assert puts.put(usual, 0).body.startswith(b'{"PutRequest":{"Item":{"pk":{"S":"U1.')
    with pytest.raises(AssertionError):
        puts.put({**usual, "c": ["no template has a list"]}, 0)


def test_a_shape_beyond_the_last_that_is_kept_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_SHAPES", 2)
    kept = Templates({"pk": (str,)})
    shapes: list[dict[str, Any]] = [{"pk": "A"}, {"pk": "A", "a": 1}, {"pk": "A", "a": "x"}]
    for _ in range(2):
        assert [kept.of(shape) is not None for shape in shapes] == [True, True, False]
