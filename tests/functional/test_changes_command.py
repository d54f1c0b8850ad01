"""``shardkit count``, ``update``, ``delete``, ``copy``, ``compare``: what they ask, do, show, and exit with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CalculatedSuffix, ShardMapAdmin, bulk_load
from shardkit.cli import build_app
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

click_testing = pytest.importorskip("click.testing")
OPEN = ("--where", "#s = :s", "--names", '{"#s": "Status"}', "--values", '{":s": "open", ":more": 1.5}')
FAST = ("--read-units", "1e6", "--segments", "3", "--no-progress")
ADD = ("update", "Orders", "SET Price = Price + :more", *OPEN)
TEN = ("--target-strategy", '{"type": "CalculatedSuffix", "by": "OrderId", "shards": 10}')


@pytest.fixture
def table(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)
    make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Copies")
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")
    states = ("open", "done")
    bulk_load(table, [{"Date": "d", "OrderId": f"A{n:02}", "Price": n, "Status": states[n % 2]} for n in range(20)])
    return table


def run(*args: str, **given: Any) -> Any:
    return click_testing.CliRunner().invoke(build_app(), [*args, *FAST], **given)


def prices(table: Any) -> list[float]:
    return sorted(float(item["Price"]) for item in table.scan()["Items"])


def test_counted_and_tried(table: Any) -> None:
    assert "20 items read, 10 found" in run("count", "Orders", *OPEN[:4], "--values", '{":s": "open"}').stdout
    shown = run(*ADD, "--dry-run")
    assert (shown.exit_code, prices(table)) == (0, list(range(20)))
    assert "would take 10 write units of the table, 0.1 s or more" in shown.stdout
    told = json.loads(run(*ADD, "--dry-run", "--json").stdout)
    assert (told["found"], told["changed"], len(told["sample"])) == (10, 0, 10)
    assert told["sample"][0][0]["Date"] == {"S": "d"}


def test_nothing_is_changed_that_nobody_confirmed(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (ADD, ("delete", "Orders"), ("copy", "Orders", "Copies")):
        refused = run(*args)
        assert refused.exit_code == 2
        assert "--yes: was not given, and nobody could be asked or agreed; it confirms: " in refused.stderr
    assert "table Orders, account 123456789012, Region us-east-1: 20 items, as DynamoDB counted" in run(*ADD).stderr
    monkeypatch.setattr("shardkit.cli.command.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    for nothing in ("n\n", ""):
        assert run("delete", "Orders", input=nothing).exit_code == 2
    assert prices(table) == list(range(20))
    assert run(*ADD, input="y\n").exit_code == 0
    assert prices(table) != list(range(20))


def test_updated_and_undone(table: Any, tmp_path: Path) -> None:
    done = run(*ADD, "--yes", "--before", str(tmp_path / "undo.jsonl"), "--journal", str(tmp_path / "journal"))
    assert (done.exit_code, "20 items read, 10 found, 10 changed" in done.stdout) == (0, True)
    assert prices(table) == sorted(n + 1.5 * (n % 2 == 0) for n in range(20))
    undo = click_testing.CliRunner().invoke(build_app(), ["load", str(tmp_path / "undo.jsonl"), "--table", "Orders"])
    assert (undo.exit_code, prices(table)) == (0, list(range(20)))
    failed = run("update", "Orders", "SET Price = Status + :x", "--values", '{":x": 1}', "--yes")
    assert failed.exit_code == 1
    assert "10 more failures" in failed.stdout


def test_copied_compared_and_deleted(table: Any) -> None:
    itself = run("copy", "Orders", "Orders", *TEN, "--yes")
    assert (itself.exit_code, "must be another table than the source" in itself.stderr) == (2, True)
    assert "20 changed" in run("copy", "Orders", "Copies", *TEN, "--yes").stdout
    equal = run("compare", "Orders", "Copies", *TEN)
    assert (equal.exit_code, "no difference" in equal.stdout) == (0, True)
    assert run("delete", "Orders", *OPEN[:4], "--values", '{":s": "open"}', "--yes").exit_code == 0
    differs = run("compare", "Orders", "Copies", *TEN)
    assert (differs.exit_code, "10 additional" in differs.stdout) == (1, True)
    assert "'OrderId': 'A00'}: additional" in differs.stdout
    sampled = json.loads(run("compare", "Orders", "Copies", *TEN, "--sample", "0.5", "--json").stdout)
    assert sampled["estimates"]["missing"].keys() == {"value", "low", "high"}


def test_a_shard_map_is_followed(table: Any, resource: DynamoDBServiceResource) -> None:
    copies = resource.Table("Copies")
    ShardMapAdmin(copies).create(CalculatedSuffix("OrderId", shards=4))
    assert run("copy", "Orders", "Copies", "--yes").exit_code == 0
    found = [item["Date"] for item in copies.scan()["Items"]]
    assert set(found) <= {"d.1", "d.2", "d.3", "d.4", "shardkit:map"}
    assert "20 found" in run("count", "Copies", "--where", "OrderId > :s", "--values", '{":s": "A"}').stdout


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("count", "Orders", "--values", "[]"), "--values: must be a JSON object"),
        (("count", "Missing"), "DescribeTable failed"),
        (("delete", "Orders", "--yes", "--write-units", "0"), "write_units: must be"),
        (("compare", "Orders", "Copies", "--sample", "5"), "sample: must be a number > 0 and <= 1"),
    ],
)
def test_wrong_use(table: Any, args: tuple[str, ...], error: str) -> None:
    refused = run(*args)
    assert (refused.exit_code, error in refused.stderr) == (2, True), refused.stderr
    assert prices(table) == list(range(20))
