"""The public modules and names are those of ``public_names.txt``: no move of a file takes one away.

A new name is a line there. A line that goes is a removal, which docs/policy.md allows only after a deprecation.
"""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

LISTED = Path(__file__).with_name("public_names.txt").read_text("utf-8").split()
POLICY = (Path(__file__).parents[2] / "docs" / "policy.md").read_text("utf-8")


def test_public_names_stay() -> None:
    named = re.findall(r"`(shardkit[\w.]*)`", POLICY.partition("the names in `__all__` of")[2].partition("\n- ")[0])
    exporters = [f"shardkit.capacity.exporters.{name}" for name in ("emf", "log", "opentelemetry", "prometheus")]
    assert [f"{module}.{name}" for module in sorted([*named, *exporters]) for name in _public(module)] == LISTED


def _public(module: str) -> list[str]:
    """Read ``__all__`` in the file, because some modules need a library that is not installed everywhere."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")
