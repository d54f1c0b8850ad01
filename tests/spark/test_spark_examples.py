"""examples/glue_job.py and examples/emr_step.py, started by spark-submit as the services do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from shardkit import CalculatedSuffix, ShardedTable
from tests.support.engines import ServerName
from tests.support.spark import order, orders, submit
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STAND_IN = Path(__file__).parent / "stand_in"
COUNT = 500


@pytest.fixture
def table(
    environment: None,
    resource: DynamoDBServiceResource,
    engine_endpoint: Callable[[ServerName], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Table:
    # The services' tasks find region, credentials and endpoint themselves. So do these, in the environment.
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", engine_endpoint("dynoxide"))
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Path:
    orders(spark, COUNT).write.parquet(str(tmp_path / "orders"))
    return tmp_path / "orders"


def run(example: str, *arguments: str) -> str:
    job = submit(EXAMPLES / example, *arguments)
    output, log = job.communicate(timeout=240)
    assert job.returncode == 0, f"{output}\n{log}"
    return output


def items(table: Table) -> list[dict[str, Any]]:
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=4))
    return sorted(sharded.scan_items(), key=lambda item: str(item["OrderId"]))


def wanted() -> list[dict[str, Any]]:
    return [order(number) for number in range(COUNT)]


def test_glue_job(table: Table, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{STAND_IN}{os.pathsep}{os.environ['PYTHONPATH']}")
    parameters = {
        "JOB_NAME": "orders",
        "JOB_RUN_ID": "jr_1",  # one of those that Glue adds
        "source": str(source),
        "table": table.name,
        "shards": "4",
        "by": "OrderId",
        "write_units": "100000",
        "tasks": "2",
        "state": f"{tmp_path}/state/",
    }
    output = run("glue_job.py", *(part for name, value in parameters.items() for part in (f"--{name}", value)))
    assert output.splitlines()[-1] == "committed orders"
    assert f"{COUNT} written" in output
    assert items(table) == wanted()
    assert len(list((tmp_path / "state" / "checkpoint").glob("part-*.json"))) == 2


def test_emr_step(table: Table, source: Path, tmp_path: Path) -> None:
    options = ["--table", table.name, "--shards", "4", "--by", "OrderId", "--tasks", "2"]
    output = run("emr_step.py", "load", str(source), *options, "--write-units", "100000", "--last-by", "Total")
    assert f"{COUNT} written" in output
    assert items(table) == wanted()
    exported = tmp_path / "exported"
    schema = "Date string, OrderId string, Total bigint"
    run("emr_step.py", "export", str(exported), *options, "--read-units", "100000", "--schema", schema)
    rows = sorted(pq.read_table(exported).to_pylist(), key=lambda row: row["OrderId"])
    assert rows == wanted()
