"""Without a package that is in an extra, a command says which extra brings it."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from shardkit.cli import main
from tests.support.forked import Run, run_each

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = {
    "demo": (["demo", "--rows", "5"], ["rich", "moto"]),
    "load": (["load", "orders.jsonl", "--table", "Orders"], ["rich"]),
    "size, Parquet": (["size", "orders.parquet"], ["pyarrow"]),
    "size, S3": (["size", "s3://orders/orders.jsonl"], ["smart_open"]),
    "heat, drawn": (["heat", "orders.jsonl", "--key", "Date", "--plot", "heat.svg"], ["matplotlib"]),
}
if sys.version_info < (3, 14):
    COMMANDS["size, zstd"] = (["size", "orders.jsonl.zst"], ["backports.zstd"])
S3 = """
from unittest.mock import patch
from shardkit.bulk.sources import files
listed = [files.S3File(None, "orders", "orders.jsonl", 9, "x")]
patch.object(files, "_in_s3", lambda *_: listed).start()
"""


def brought() -> dict[str, set[str]]:
    """What each extra brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {
        extra: {re.split(r"[^A-Za-z0-9._-]", one)[0] for one in wanted}
        for extra, wanted in project["optional-dependencies"].items()
    }
    return {extra: {name.replace("-", "_") for name in wanted} for extra, wanted in names.items()}


def test_the_extra_that_is_named_brings_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"Date": "2014-07-09"}\n', encoding="utf-8")
    (tmp_path / "orders.parquet").touch()
    (tmp_path / "orders.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    missing = [(command, package) for command, (_, needs) in COMMANDS.items() for package in needs]
    runs = [
        Run(COMMANDS[command][0], f"sys.modules[{package!r}] = None\n{S3 if 'S3' in command else ''}")
        for command, package in missing
    ]
    shared = "import click; from shardkit import ShardedTable, bulk_load"
    for (command, package), done in zip(missing, run_each(tmp_path, shared, runs), strict=True):
        assert done.returncode == 2, done
        assert "Traceback" not in done.stderr
        assert package in done.stderr
        (extra,) = re.findall(r'pip install "shardkit\[(\w+)\]"', done.stderr)
        assert package in brought()[extra]
        # What brings the command, and not that of another one.
        assert extra == {"demo": "demo", "heat, drawn": "plot"}.get(command, "load"), command


@pytest.mark.parametrize("command", [None, "demo", "load", "size", "heat", "plan", "simulate"])
@pytest.mark.parametrize("option", [None, "--help"])
def test_help_without_the_command_lines_library(
    command: str | None, option: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    with pytest.raises(SystemExit) as ended:
        main([word for word in (command, option) if word])
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert "needs the package 'click'" in told.err
    named = re.findall(r'pip install "shardkit\[(\w+)\]"', told.err)
    assert named == {None: ["demo", "load", "cli"], "demo": ["demo"], "load": ["load"]}.get(command, ["cli"])
