"""docs/troubleshooting.md says of every error that shardkit raises what to do."""

from __future__ import annotations

import re

import shardkit
from tests.functional.test_docs import DOCS


def test_every_error_has_a_row() -> None:
    public = [(name, getattr(shardkit, name)) for name in shardkit.__all__]
    errors = sorted(name for name, value in public if isinstance(value, type) and issubclass(value, BaseException))
    _, _, by_error = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").partition("\n## By error\n")
    assert re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", by_error, re.MULTILINE) == errors
