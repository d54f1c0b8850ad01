"""CONTRIBUTING.md says where each decision is: each name of its table exists there."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

_TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
_TABLE = _TEXT.partition("### Where it is decided")[2].partition("\n## ")[0]
_ROWS = re.findall(r"^\| (.+) \| (.+) \|$", _TABLE, re.MULTILINE)[2:]


@pytest.mark.parametrize(("decision", "where"), _ROWS, ids=[decision for decision, _ in _ROWS])
def test_each_decision_is_where_contributing_says(decision: str, where: str) -> None:
    module = None
    for place in re.findall(r"`([^`]+)`", where):
        file, colon, name = place.rpartition(":")  # a name without a file is in the last one
        if colon:
            module = import_module(f"shardkit.{file.removesuffix('.py').replace('/', '.')}")
        assert module is not None, f"{decision}: {place} names no file"
        reduce(getattr, name.split("."), module)


def test_the_table_is_read() -> None:
    assert len(_ROWS) > 30
