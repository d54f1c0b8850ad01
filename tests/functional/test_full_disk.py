"""A load whose journal or dead letters cannot be written: it stops, reports, and loses nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import BulkLoadError, BulkResult, RandomSuffix, ShardedTable, ShardkitError, bulk_load, streaming_bulk
from shardkit.cli import build_app
from tests.support.disks import full_disk
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

COUNT = 600
# Every fourth item has no sort key, and fails.
ITEMS: list[dict[str, Any]] = [
    {"Date": f"2014-07-{n % 7}", "n": n, **({} if n % 4 == 0 else {"OrderId": f"A{n:03}"})} for n in range(COUNT)
]
GOOD = [item["n"] for item in ITEMS if "OrderId" in item]
FULL = {"journal": 1_500, "dead_letters": 16_000}  # the room that is left, so that this one is full first


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, RandomSuffix(4))


def stored(table: Table) -> list[int]:
    """The numbers of the items in the table; of one that is there twice, twice."""
    return sorted(int(str(item["n"])) for item in table.scan()["Items"])


@pytest.fixture(params=FULL)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A load that keeps one file alone, or both; the first is full after some batches."""
    other = {"journal": "dead_letters", "dead_letters": "journal"}[request.param]
    return {
        "room": FULL[request.param],
        "window": 100,
        "workers": 3,
        request.param: tmp_path / request.param,
        **({other: tmp_path / other} if request.param == "dead_letters" else {}),
    }


def resumed(orders: ShardedTable, table: Table, options: dict[str, Any], items: Any = ITEMS) -> None:
    """With room again, the same load goes on to its end: each good item is there once, each bad one fails once."""
    again = bulk_load(orders, items, on_error="collect", **options)
    assert stored(table) == GOOD
    assert again.items + again.resumed == COUNT
    if "dead_letters" in options:
        letters = [json.loads(line)["at"][1] for line in options["dead_letters"].read_bytes().splitlines()]
        assert sorted(letters) == [item["n"] for item in ITEMS if "OrderId" not in item]


def test_bulk_load(orders: ShardedTable, table: Table, options: dict[str, Any]) -> None:
    room = options.pop("room")
    with (
        full_disk(room),
        pytest.raises(
            BulkLoadError, match=r"the load stopped: (journal|dead_letters): '.*' cannot be written .*too large"
        ) as raised,
    ):
        bulk_load(orders, ITEMS, on_error="collect", **options)
    report = raised.value.report
    assert report is not None
    assert 0 < report.written == len(stored(table)) < len(GOOD)
    assert report.items == report.written + report.failed
    assert len(raised.value.failed) == report.failed
    cause = raised.value.__cause__
    assert isinstance(cause, ShardkitError)
    assert isinstance(cause.__cause__, OSError)
    resumed(orders, table, options)


def test_streaming_bulk(orders: ShardedTable, table: Table, options: dict[str, Any]) -> None:
    """What was in flight has its results: each item that was taken, once."""
    room = options.pop("room")
    results: list[BulkResult] = []
    read: list[int] = []

    def items() -> Any:
        for item in ITEMS:
            read.append(item["n"])
            yield item

    with full_disk(room), pytest.raises(BulkLoadError):
        results.extend(streaming_bulk(orders, items(), on_error="collect", **options))
    assert sorted(result.place for result in results) == read
    assert sorted(result.place for result in results if result.ok) == stored(table)
    resumed(orders, table, options, iter(ITEMS))


def test_before_anything_is_read(orders: ShardedTable, table: Table, tmp_path: Path) -> None:
    items = iter(ITEMS)
    with full_disk(10), pytest.raises(ShardkitError, match=r"^journal: '.*' cannot be written"):
        bulk_load(orders, items, journal=tmp_path / "journal")
    assert next(items) is ITEMS[0]
    assert stored(table) == []


def test_at_the_very_end(orders: ShardedTable, table: Table, tmp_path: Path) -> None:
    """All is written and recorded, and the journal cannot be closed: it raises, and the next load finds all done."""
    good = [item for item in ITEMS if "OrderId" in item]
    with full_disk(None) as fill, pytest.raises(BulkLoadError, match=r"journal: '.*' cannot be written") as raised:
        bulk_load(
            orders,
            good,
            journal=tmp_path / "journal",
            progress=lambda report: fill(10) if report.written == len(good) else None,
        )
    assert raised.value.report is not None
    assert raised.value.report.written == len(good)
    assert stored(table) == GOOD
    again = bulk_load(orders, good, journal=tmp_path / "journal")
    assert (again.items, again.resumed) == (0, len(good))
    assert os.listdir(tmp_path) == ["journal"]  # noqa: PTH208 - names


def test_dead_letters_that_are_gone(
    orders: ShardedTable, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut by another program, or moved: the journal's load does not send their items again, and says so."""
    options: dict[str, Any] = {
        "journal": tmp_path / "journal",
        "dead_letters": tmp_path / "dead",
        "on_error": "collect",
    }
    assert bulk_load(orders, ITEMS[:80], **options).failed == 20
    lines = options["dead_letters"].read_bytes().splitlines(keepends=True)
    options["dead_letters"].write_bytes(b"".join(lines[:7]) + lines[7][:50])
    caplog.clear()
    assert bulk_load(orders, ITEMS[:80], **options).failed_before == 20
    assert "dead' has 7 of the 20 items that failed before" in caplog.text


Invoke = Callable[..., Any]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    runner = pytest.importorskip("click.testing").CliRunner()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS), "utf-8")
    strategy = '{"type": "RandomSuffix", "shards": 4}'
    return lambda *more: runner.invoke(
        build_app(),
        ["load", "orders.jsonl", "--table", "Orders", "--strategy", strategy, "--window", "100", *more],
        env={"COLUMNS": "80"},
    )


@pytest.mark.parametrize("full", FULL)
def test_the_command(full: str, table: Table, invoke: Invoke) -> None:
    files = ("--json", "--journal", "journal", *(["--dead-letters", "dead"] if full == "dead_letters" else []))
    with full_disk(FULL[full]):
        result = invoke(*files)
    assert result.exit_code == 3, result.output
    said = result.stderr.replace("\n", " ")
    assert f"the load stopped: {full}: " in said
    assert "the same command resumes from journal" in said
    assert "Traceback" not in result.output
    report = json.loads(result.stdout)
    assert report["written"] == len(stored(table)) > 0
    assert report["items"] == report["written"] + report["failed"]
    assert invoke(*files).exit_code == 1
    assert stored(table) == GOOD


def test_the_command_does_not_say_that_all_dead_letters_were_kept(table: Table, invoke: Invoke) -> None:
    with full_disk(FULL["dead_letters"]):
        result = invoke("--dead-letters", "dead")
    assert "those that could be written are in dead" in result.stdout
    assert "all of them" not in result.stdout


def test_the_command_that_cannot_begin(table: Table, invoke: Invoke) -> None:
    with full_disk(10):
        result = invoke("--journal", "journal")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("not begun: journal: ")
    assert stored(table) == []
