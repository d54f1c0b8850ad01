"""The command line itself."""

from __future__ import annotations

import pytest

import shardkit
from shardkit.cli import build_app

click_testing = pytest.importorskip("click.testing")


def test_version() -> None:
    result = click_testing.CliRunner().invoke(build_app(), ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"shardkit {shardkit.__version__}\n")
