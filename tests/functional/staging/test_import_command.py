"""``shardkit import``: what it starts, shows, and exits with."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from shardkit import ImportReport
from shardkit.cli import build_app
from shardkit.dynamodb.encode import to_wire_item
from tests.support.fakes import Clock, client_error
from tests.support.staged import PUT_ARN, WHERE, moto_imports_end, put_stage

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

click_testing = pytest.importorskip("click.testing")
command: Any = importlib.import_module("shardkit.cli.import_table")

ITEMS = [to_wire_item({"Date": "2014-07-09", "OrderId": f"A{number}"}) for number in range(5)]


@pytest.fixture
def s3(resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> Any:
    return boto3_session.client("s3")


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["import", WHERE, *args], env={"COLUMNS": "80"})


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Sets what takes the place of the command's sleep."""

    def replace(sleep: Any) -> None:
        monkeypatch.setattr(command, "import_items", partial(command.import_items, sleep=sleep))

    return replace


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_imports(form: tuple[str, ...], s3: Any, resource: DynamoDBServiceResource, waiting: Any) -> None:
    put_stage(s3, ITEMS)
    waiting(moto_imports_end)
    result = invoke("--table", "Orders", *form)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("ImportTable started: arn:aws:dynamodb:us-east-1:123456789012:table/Orders/import/")
    if form:
        told = json.loads(result.stdout)
        assert (told["exit_code"], told["imported"], told["status"]) == (0, 5, "COMPLETED")
    else:
        assert result.stdout == "completed: 5 of 5 items imported into Orders\n"
    assert len(resource.Table("Orders").scan()["Items"]) == 5


def test_items_that_fail(s3: Any, resource: DynamoDBServiceResource, waiting: Any) -> None:
    put_stage(s3, [*ITEMS, to_wire_item({"Date": "2014-07-09"})])
    waiting(moto_imports_end)
    result = invoke("--table", "Orders", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["imported"] == 5
    assert "5 of 6 items were imported, 1 failed" in result.stderr


@pytest.mark.parametrize(
    ("operation", "cancel"),
    [
        ("ImportTable", ""),
        ("StartBulkPutItems", "to cancel it: aws dynamodb cancel-bulk-operation --bulk-operation-arn {}\n"),
    ],
)
def test_ctrl_c_while_it_waits(operation: str, cancel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that the import goes on, and how to wait for it again."""
    begun = ImportReport(table="Orders", operation=operation, arn=PUT_ARN, status="IN_PROGRESS", staged=5, found=True)

    def import_items(*_: Any, progress: Any, **__: Any) -> Any:
        progress(begun)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_items", import_items)
    result = invoke("--table", "Orders", "--no-progress")
    assert result.exit_code == 3
    assert result.stdout == "in progress: 0 of 5 items imported into Orders\n"
    goes_on = f"stopped waiting: {PUT_ARN} goes on in AWS, and the same command waits for it again"
    assert result.stderr == f"{operation} was started before: {PUT_ARN}\n{goes_on}\n{cancel.format(PUT_ARN)}"


def test_no_wait(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put_stage(s3, ITEMS)
    monkeypatch.setattr("moto.dynamodb.models.table_import.TableImport.start", lambda _: None)
    result = invoke("--table", "Orders", "--no-wait")
    assert (result.exit_code, result.stdout) == (0, "in progress: 0 of 5 items imported into Orders\n")
    assert result.stderr.endswith("the import goes on in AWS: the same command without --no-wait waits for it\n")


def test_ctrl_c_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_items(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_items", import_items)
    result = invoke("--table", "Orders")
    assert result.exit_code == 3
    assert result.stderr == "interrupted: if the import was started, the same command finds it\n"


def test_a_state_that_cannot_be_read(s3: Any, waiting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put_stage(s3, ITEMS)
    waiting(moto_imports_end)

    def denied(self: Any, arn: str) -> Any:
        raise client_error("AccessDeniedException", operation="DescribeImport")

    monkeypatch.setattr("shardkit.staging.operations.NewTable.describe", denied)
    monkeypatch.setattr("moto.dynamodb.models.table_import.TableImport.start", lambda _: None)
    result = invoke("--table", "Orders")
    assert result.exit_code == 3
    assert "its state cannot be read: An error occurred (AccessDeniedException)" in result.stderr


def test_wrong_use(s3: Any) -> None:
    result = invoke("--table", "Orders")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("not begun: s3://bucket/orders cannot be read: ")
    put_stage(s3, ITEMS)
    result = invoke("--table", "Orders", "--max-write-units", "2000")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("not begun: max_write_units: is for tables that exist")
    assert invoke("--table", "Orders", "--max-write-units", "1000").exit_code == 2


def test_progress() -> None:
    """A line each time that its state was read; the rate is that of what this command has seen."""
    file, clock = StringIO(), Clock()
    report = ImportReport(table="Orders", operation="ImportTable", arn="arn:1", status="IN_PROGRESS", staged=5000)
    with command.ImportProgress(Console(file=file, width=120), progress=True, clock=clock) as shown:
        shown.update(replace(report, processed=1000))
        clock.now += 20
        shown.update(replace(report, processed=3000, failed=2))
        shown.update(replace(report, processed=5000, status="COMPLETED"))
    assert file.getvalue().splitlines() == [
        "ImportTable started: arn:1",
        "1,000 of 5,000 items, 0.0 s",
        "3,000 of 5,000 items, 100 items/s, 2 failed, 20.0 s",
    ]
