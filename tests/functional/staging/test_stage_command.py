"""``shardkit stage``: what it writes, shows, and exits with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, Strategy
from shardkit.cli import build_app
from tests.support.disks import full_disk
from tests.support.stage_objects import DEFINITION, TO, manifest_of, staged_items

click_testing = pytest.importorskip("click.testing")

COUNT = 600
ITEMS: list[dict[str, Any]] = [{"Date": f"2014-07-{n % 7}", "OrderId": f"A{n:03}", "n": n} for n in range(COUNT)]
SHARDED = ("--table", "Orders", "--shards", "4", "--by", "OrderId")
DEFINED = (*SHARDED, "--definition", "definition.json")

Invoke = Callable[..., Any]


@pytest.fixture
def invoke(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)
    write(ITEMS)
    Path("definition.json").write_text(json.dumps(DEFINITION), "utf-8")
    runner = click_testing.CliRunner()
    return lambda *given, stdin=None: runner.invoke(build_app(), ["stage", *given], stdin, env={"COLUMNS": "80"})


def write(items: list[dict[str, Any]], name: str = "orders.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")


def test_stages_files(invoke: Invoke, s3: Any) -> None:
    result = invoke("orders.jsonl", "--to", TO, *DEFINED)
    assert result.exit_code == 0, result.output
    assert "600 items in 1 object (0 failed, 0 superseded): s3://bucket/orders/manifest.json" in result.stdout
    assert "600 write units" in result.stdout
    assert sorted(int(item["n"]) for item in staged_items(s3)) == list(range(COUNT))
    assert Strategy.from_dict(manifest_of(s3).strategy) == CalculatedSuffix("OrderId", shards=4)
    again = invoke("orders.jsonl", "--to", TO, *DEFINED, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["items"] == COUNT


def test_the_table_says_its_keys(invoke: Invoke, resource: Any, s3: Any) -> None:
    resource.create_table(TableName="Orders", **DEFINITION)
    strategy = json.dumps(RandomSuffix(3).to_dict())
    result = invoke("orders.jsonl", "--to", TO, "--table", "Orders", "--strategy", strategy, "--compression", "zstd")
    assert result.exit_code == 0, result.output
    assert manifest_of(s3).definition == DEFINITION
    assert len(staged_items(s3)) == COUNT


def test_a_dry_run(invoke: Invoke, s3: Any, temporary: Path) -> None:
    result = invoke("orders.jsonl", "--to", TO, *DEFINED, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "600 items would be staged in 1 object, 0 would fail" in result.stdout
    assert "600 write units of the table; temporary files: 1" in result.stdout  # 65 KB of slots, and the items
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    assert list(temporary.iterdir()) == []


def test_items_that_cannot_be_staged(invoke: Invoke, s3: Any, temporary: Path) -> None:
    write([*ITEMS, {"Date": "2014-07-09"}, {"Date": "2014-07-09", "OrderId": "A1", "Text": "x" * 410_000}])
    result = invoke("orders.jsonl", "--to", TO, *DEFINED, "--json")
    assert result.exit_code == 1
    assert "2 of 602 items cannot be staged, so nothing was: orders.jsonl, line 601: OrderId: missing" in result.stderr
    assert "line 602: the item has 410,0" in result.stderr
    assert json.loads(result.stdout)["failed"] == 2
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    assert list(temporary.iterdir()) == []
    result = invoke("orders.jsonl", "--to", TO, *DEFINED, "--skip-failures")
    assert result.exit_code == 1
    assert "600 items in 1 object (2 failed" in result.stdout
    assert len(staged_items(s3)) == COUNT
    assert manifest_of(s3).failed == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("orders.jsonl", "--to", "bucket", *DEFINED), "to: must be s3://bucket/prefix"),
        (("orders.jsonl", "--to", TO, *SHARDED), "table 'Orders': DescribeTable failed"),
        (("orders.jsonl", "--to", TO, *SHARDED, "--definition", "no.json"), "--definition: no.json cannot be read"),
        (("orders.jsonl", "--to", TO, *SHARDED, "--definition", "orders.jsonl"), "orders.jsonl cannot be read as JSON"),
        (("orders.jsonl", "--to", "s3://nobody/orders", *DEFINED), "s3://nobody/orders cannot be read: .*NoSuchBucket"),
        (("orders.jsonl", "--to", TO, *DEFINED, "--strategy", "{}"), "--strategy: is not supported together"),
        (("none.jsonl", "--to", TO, *DEFINED), "source: there is no file"),
        (("empty.jsonl", "--to", TO, *DEFINED), "source: there are no items to stage"),
    ],
)
def test_wrong_use(invoke: Invoke, given: tuple[str, ...], said: str) -> None:
    Path("empty.jsonl").touch()
    result = invoke(*given)
    assert result.exit_code == 2, result.output
    assert any(line.startswith("not begun: ") for line in result.stderr.splitlines())
    assert re.search(said, result.stderr.replace("\n", " "))


def test_another_stage_is_there(invoke: Invoke, s3: Any) -> None:
    assert invoke("orders.jsonl", "--to", TO, *DEFINED).exit_code == 0
    before = manifest_of(s3)
    write(ITEMS[1:])
    result = invoke("orders.jsonl", "--to", TO, *DEFINED)
    assert result.exit_code == 2
    assert "not begun: to: s3://bucket/orders holds another stage" in result.stderr
    assert manifest_of(s3) == before


def test_a_full_disk(invoke: Invoke, s3: Any) -> None:
    with full_disk(40_000):
        result = invoke("orders.jsonl", "--to", TO, *DEFINED)
    assert result.exit_code == 3, result.output
    said = result.stderr.replace("\n", " ")
    assert "stopped before its end: work_dir: " in said
    assert "make room on its disk" in said
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    assert invoke("orders.jsonl", "--to", TO, *DEFINED).exit_code == 0
    assert len(staged_items(s3)) == COUNT


@pytest.mark.parametrize("source", ["orders.jsonl", "-"])
def test_ctrl_c(invoke: Invoke, s3: Any, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shardkit.staging.shuffle.read_slots", interrupted)
        given = Path("orders.jsonl").read_text(encoding="utf-8")
        result = invoke(source, "--format", "jsonl", "--to", TO, *DEFINED, stdin=given)
    assert result.exit_code == 3, result.output
    again = "the same command goes on" if source != "-" else "the same command starts anew; delete what it uploaded"
    assert f"stopped before its end: {again}" in result.stderr.replace("\n", " ")
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")


def test_standard_input(invoke: Invoke, s3: Any) -> None:
    given = Path("orders.jsonl").read_text(encoding="utf-8")
    result = invoke("-", "--format", "jsonl", "--to", TO, *DEFINED, stdin=given)
    assert result.exit_code == 0, result.output
    assert len(staged_items(s3)) == COUNT
