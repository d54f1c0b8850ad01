"""The command line itself."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

import shardkit
from shardkit import cli
from shardkit.cli import build_app

click_testing = pytest.importorskip("click.testing")


def invoke(*arguments: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), arguments)


def test_version() -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"shardkit {shardkit.__version__}\n")


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        ("demo", []),
        ("load", ["Spread", "Source", "Pace", "Failures and resuming", "AWS", "Output"]),
        ("plan load", ["Load", "Indexes", "Output"]),
        ("plan shards", ["Load", "Indexes", "Table", "Output"]),
        ("plan table", ["AWS", "Output"]),
        ("simulate", ["Output"]),
        ("timeseries plan", ["AWS", "Output"]),
        ("timeseries maintain", ["AWS", "Output"]),
    ],
)
def test_help_groups_the_options(command: str, groups: list[str]) -> None:
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0, result.output
    assert re.findall(r"^(\w.*):$", result.stdout, re.MULTILINE) == ["Options", *groups]
    assert len(re.findall(r"^  --", result.stdout, re.MULTILINE)) > len(groups)


def test_ctrl_c_while_modules_are_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo"])
    assert stopped.value.code == 3
    assert capsys.readouterr() == ("", "stopped before its end: interrupted\n")


def test_ctrl_c_anywhere_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("shardkit.cli.heat"), "heat_of_table", interrupted)
    result = invoke("heat", "--table", "Orders")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "stopped before its end: interrupted\n"
