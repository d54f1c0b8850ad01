"""The command line itself."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

import shardkit
from shardkit import cli
from shardkit.cli import COMMANDS, build_app

click_testing = pytest.importorskip("click.testing")


def invoke(*arguments: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), arguments)


def test_version() -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"shardkit {shardkit.__version__}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_first_sentence_of_each_help(name: str) -> None:
    command = cli.load_command(name)
    assert (command.name, command.get_short_help_str(1000)) == (name, COMMANDS[name][1])


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        ("demo", []),
        ("load", ["Spread", "Source", "Pace", "Failures and resuming", "AWS", "Output"]),
        ("plan load", ["Load", "Indexes", "Output"]),
        ("plan shards", ["Load", "Indexes", "Table", "Output"]),
        ("plan table", ["AWS", "Output"]),
        ("simulate", ["Output"]),
        ("timeseries plan", ["Tuning", "AWS", "Output"]),
        ("timeseries maintain", ["Tuning", "AWS", "Output"]),
    ],
)
def test_help_groups_the_options(command: str, groups: list[str]) -> None:
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0, result.output
    assert re.findall(r"^(\w.*):$", result.stdout, re.MULTILINE) == ["Options", *groups]
    assert len(re.findall(r"^  --", result.stdout, re.MULTILINE)) > len(groups)


@pytest.mark.parametrize("importing", ["build_app", "load_command"])
def test_ctrl_c_while_modules_are_imported(
    importing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, importing, interrupted)
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
