"""How a table's items move is decided elsewhere: neither the merged Query nor ``core`` has a name for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import shardkit

ROOT = Path(shardkit.__file__).parent
FILES = sorted([*(ROOT / "sharding/query").glob("*.py"), *(ROOT / "core").glob("*.py")])
_OF_MOVES = re.compile(r"moving|moved|reshard|stub|leader|follower|lag(s|ging)?$|_places?_of_both", re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_no_name_of_moves(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    names = {str(getattr(node, kind, "")) for node in nodes for kind in ("id", "attr", "arg", "name", "module")}
    assert not {name for name in names if _OF_MOVES.search(name)}
