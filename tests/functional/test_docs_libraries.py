"""docs/reference/installed-clients.md names the libraries and versions that the tests install."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_versions() -> None:
    page = (ROOT / "docs" / "reference" / "installed-clients.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| \[[^]]+\]\(https://pypi\.org/project/([\w-]+)/\) \| ([\d.]+) \|", page, re.MULTILINE)
    files = [(ROOT / ".ci" / name).read_text(encoding="utf-8") for name in ("libraries.txt", "libraries-async.txt")]
    installed = re.findall(r"^([\w-]+)(?:\[\w+\])?==(.+)$", "\n".join(files), re.MULTILINE)
    assert len(installed) > 10
    # The suite that tests a checkpointer is no library that users would shard.
    assert sorted(documented) == sorted(set(installed) - {("langgraph-checkpoint-conformance", "0.0.2")})
