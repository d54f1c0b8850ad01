"""examples/other-languages: each program calculates the hashes and suffixes of tests/vectors."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.strategies import vectors

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "other-languages"
COMMANDS = {"node": ["shardkit_key.mjs"], "java": ["ShardkitKey.java"], "go": ["run", "shardkit_key.go"]}

CODE_POINTS = {"function": "code_point_product"}
"""Only for data of before shardkit: the programs leave it out."""


def text(value: dict[str, Any]) -> str:
    ((letter, content),) = value.items()
    if letter == "T":
        return ",".join(["T", *map(text, content)])
    return f"{letter}:{content if letter == 'B' else base64.b64encode(content.encode()).decode()}"


def hashes() -> list[tuple[str, str]]:
    return [(f"hash {text(row['value'])}", row["hash"]) for row in vectors("stable_hash.json")]


def of_key(key: dict[str, str], given: Any, otherwise: Any) -> Any:
    """What a strategy says of a key: a count or boundaries, for all keys or for some."""
    if not isinstance(given, list) or not given or not isinstance(given[0], list):
        return given
    return next((one for name, one in given if name == key), otherwise)


def suffixes() -> list[tuple[str, str]]:
    asked = []
    for row in vectors("suffix.json"):
        strategy, key = row["strategy"], row["key"]
        if strategy["type"] == "Unsharded" or strategy.get("hash") == CODE_POINTS:
            continue
        by, separator = strategy["by"], strategy.get("separator", ".")
        values = [row["item"][name] for name in ([by] if isinstance(by, str) else by)]
        value = text(values[0] if isinstance(by, str) else {"T": values})
        ((letter, physical),) = row["physical"].items()
        suffix = base64.b64decode(physical) if letter == "B" else physical.encode()
        start = base64.b64decode(key["B"]) if letter == "B" else key["S"].encode()
        if strategy["type"] == "RangeSuffix":
            bounds = [one if isinstance(one, dict) else {"S": one} for one in of_key(key, strategy["boundaries"], [])]
            asked_for = ["ranges", value, separator, *map(text, bounds)]
        else:
            shards = of_key(key, strategy["shards"], 1)
            asked_for = ["calculated", value, separator, str(strategy.get("first", 1)), str(shards)]
        asked.append((" ".join(asked_for), suffix.removeprefix(start).decode()))
    return asked


@pytest.mark.parametrize("language", COMMANDS)
def test_they_agree_with_the_vectors(language: str) -> None:
    program = shutil.which(language)
    if program is None and language != "go" and os.environ.get("SHARDKIT_REQUIRE_ENGINES"):
        pytest.fail(f"{language} is not on the PATH")
    if program is None:
        pytest.skip(f"{language} is not on the PATH")
    asked = hashes() + suffixes()
    assert len(asked) == 68 + 23
    ran = subprocess.run(
        [program, *COMMANDS[language]],
        cwd=PROGRAMS,
        input="\n".join(line for line, _ in asked),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [*zip((line for line, _ in asked), ran.stdout.split("\n")[:-1], strict=True)] == asked
