"""Checks that a tag may be published: it is the version, its changes are dated, and the package says where it is from.

    python .ci/check_release.py v0.1.0 REPOSITORY

REPOSITORY: the address of the repository that publishes; `project.urls` must name it as Source.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def check(tag: str, repository: str, root: Path = ROOT) -> list[str]:
    """Say what forbids to publish this tag."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    version, source = project["version"], project.get("urls", {}).get("Source")
    wrong = []
    if tag != f"v{version}":
        wrong.append(f"tag: must be v{version}, the version in pyproject.toml, got {tag}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        wrong.append(f"CHANGELOG.md: must have the heading '## [{version}] - YYYY-MM-DD'")
    if source != repository:
        wrong.append(f"project.urls: Source must be {repository}, got {source}; see pyproject.toml")
    return wrong


if __name__ == "__main__":
    _, tag, repository = sys.argv
    found = check(tag, repository)
    print("\n".join(found) or f"{tag} may be published")
    sys.exit(bool(found))
