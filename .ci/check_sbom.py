"""Checks that a release's SBOM (CycloneDX) is of this version, and lists what it depends on.

python .ci/check_sbom.py FILE
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def check(bom: dict[str, Any]) -> list[str]:
    """Say what is wrong with a list of the wheel's components."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[^\w.-]", dependency)[0] for dependency in project["dependencies"]}
    of = bom["metadata"]["component"]
    listed = {component["name"]: component for component in bom["components"]}
    wrong = [f"not listed: {name}" for name in sorted(needed - listed.keys())]
    wrong += [f"listed, but not of the wheel: {name}" for name in sorted({"pip", "setuptools"} & listed.keys())]
    wrong += [
        f"no version or package URL: {name}" for name, one in listed.items() if not {"version", "purl"} <= one.keys()
    ]
    if (of["name"], of["version"]) != (project["name"], project["version"]):
        wrong.append(f"it is of {of['name']} {of['version']}, not of {project['name']} {project['version']}")
    return wrong


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = check(given)
    print("\n".join(found) or "the SBOM lists " + ", ".join(sorted(one["name"] for one in given["components"])))
    sys.exit(bool(found))
