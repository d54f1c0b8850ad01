"""Only ``tables.py`` asks of which kind a table is: elsewhere, its operations say what they mean on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parents[2] / "shardkit"
_KINDS = {"Between", "Growing", "MappedPrograms", "Moving", "Resharding", "SeriesPrograms", "ShardMap", "TimeSeries"}


def asked(tree: ast.Module) -> Iterator[ast.expr]:
    """What the code asks of which class something is; an assertion, which types need, decides nothing."""
    told = {id(node) for one in ast.walk(tree) if isinstance(one, ast.Assert) for node in ast.walk(one)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}:
            yield from () if id(node) in told else node.args[1:]
        elif isinstance(node, ast.MatchClass):
            yield node.cls
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node.left):
            yield from node.comparators


def kinds_in(asks: ast.expr) -> set[str]:
    return {one.id if isinstance(one, ast.Name) else one.attr
            for one in ast.walk(asks) if isinstance(one, ast.Name | ast.Attribute)} & _KINDS  # fmt: skip


def test_kinds_are_asked_for_in_one_file() -> None:
    found = {
        str(file.relative_to(_PACKAGE)): kinds
        for file in _PACKAGE.rglob("*.py")
        for asks in asked(ast.parse(file.read_text("utf-8")))
        if (kinds := kinds_in(asks))
    }
    assert {*found} == {"tables.py"}, found


def test_every_kind_is_there() -> None:
    defined = {
        node.name
        for file in _PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert defined >= _KINDS
