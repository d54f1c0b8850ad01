"""``shardkit plan``: what it plans, shows, and exits with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from shardkit.capacity import Trace, TraceRow
from shardkit.cli import build_app
from shardkit.partitions import IndexWrites, estimate_table, plan_bulk_load, plan_shards, plan_trace

click_testing = pytest.importorskip("click.testing")

LOAD = ("load", "--items", "20000000", "--item-size", "1000")
SHARDS = ("shards", "--item-size", "350", "--writes-per-second", "4000")


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["plan", *args], env={"COLUMNS": "80"})


def planned(*args: str) -> Any:
    result = invoke(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def as_json(plan: Any) -> Any:
    return json.loads(json.dumps(plan.to_dict()))


def test_load_by_its_throughput() -> None:
    args = (*LOAD, "--write-units", "11000", "--steady-write-units", "200")
    plan = plan_bulk_load(20_000_000, 1000, write_units=11_000, steady_write_units=200)
    assert planned(*args) == as_json(plan)
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (0, f"{plan}\n")


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("3h", 10_800), ("90s", 90), ("1.5d", 129_600), ("7", 7)])
def test_load_by_its_time(text: str, seconds: int) -> None:
    assert planned(*LOAD, "--within", text) == as_json(plan_bulk_load(20_000_000, 1000, within=seconds))


def test_load_with_indexes() -> None:
    indexes = [
        IndexWrites("ByUser", 200),
        IndexWrites("ByStatus", 50, hottest_share=0.5),
        IndexWrites("L", 9, local=True),
    ]
    args = ("--index", "ByUser:200", "--index", "ByStatus:50:.5", "--local-index", "L:9", "--write-units", "3000")
    assert planned(*LOAD, *args) == as_json(plan_bulk_load(20_000_000, 1000, write_units=3000, indexes=indexes))


def test_shards() -> None:
    plan = plan_shards(350, 4000)
    assert planned(*SHARDS) == as_json(plan)
    result = invoke(*SHARDS)
    assert (result.exit_code, result.stdout) == (0, f"{plan}\n")
    assert result.stdout.isascii()


def test_shards_with_all_options() -> None:
    plan = plan_shards(
        350,
        4000,
        reads_per_second=10,
        queries_per_second=2,
        items_per_query=30,
        consistent=True,
        indexes=[IndexWrites("ByUser", 200)],
        partitions=16,
        headroom=0.1,
        probability=0.9,
    )
    found = planned(
        *SHARDS, "--reads-per-second", "10", "--queries-per-second", "2", "--items-per-query", "30", "--consistent",
        "--index", "ByUser:200", "--partitions", "16", "--headroom", "0.1", "--probability", "0.9",
    )  # fmt: skip
    assert found == as_json(plan)
    assert found != planned(*SHARDS)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (LOAD, "not planned: within: got None with write_units=None; give one of them"),
        (
            (*LOAD, "--within", "soon"),
            "--within: 'soon' is not a duration; give seconds, minutes, hours or days: 90s, 30m",
        ),
        ((*LOAD, "--within", "0s"), "within: must be a number > 0 (seconds), got 0.0"),
        ((*SHARDS, "--index", "ByUser"), "--index: 'ByUser' is not NAME:BYTES or NAME:BYTES:SHARE; give for example"),
        ((*SHARDS, "--index", "ByUser:9:2"), "hottest_share of index 'ByUser': must be above 0 and at most 1, got 2.0"),
        ((*SHARDS, "--local-index", "L:9:0.5"), "--local-index: 'L:9:0.5' is not NAME:BYTES; give for example"),
        (
            (*SHARDS, "--headroom", "1"),
            "headroom: must be a number >= 0 and < 1 (a share of a partition's",
        ),
    ],
)
def test_wrong_use(args: tuple[str, ...], message: str) -> None:
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


# -- a table -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    client = boto3.client("dynamodb", endpoint_url=moto_endpoint, region_name="us-east-1")
    yield client
    client.close()


def test_table(client: Any, moto_endpoint: str) -> None:
    throughput = {"ReadCapacityUnits": 5000, "WriteCapacityUnits": 2000}
    client.create_table(
        TableName="Planned",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "User")],
        KeySchema=[{"AttributeName": "Date", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "ByUser",
                "KeySchema": [{"AttributeName": "User", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
                "ProvisionedThroughput": {"ReadCapacityUnits": 10, "WriteCapacityUnits": 2000},
            }
        ],
        ProvisionedThroughput=throughput,
    )
    where = ("--region", "us-east-1", "--endpoint-url", moto_endpoint)
    estimate = estimate_table(client.describe_table(TableName="Planned")["Table"])
    assert planned("table", "Planned", *where) == as_json(estimate)
    assert (estimate.table.partitions, estimate.indexes[0].partitions) == (4, 3)
    result = invoke("table", "Planned", *where)
    assert (result.exit_code, result.stdout) == (0, f"{estimate}\n")
    client.delete_table(TableName="Planned")


@pytest.mark.usefixtures("client")
def test_a_table_that_is_not_there(moto_endpoint: str) -> None:
    result = invoke("table", "Nowhere", "--region", "us-east-1", "--endpoint-url", moto_endpoint)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "not planned: table 'Nowhere': DescribeTable failed: An error occurred (Resource" in result.stderr
    assert "check the table's name, --region" in result.stderr


def test_an_endpoint_that_is_none() -> None:
    result = invoke("table", "Orders", "--region", "us-east-1", "--endpoint-url", "localhost")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "not planned: --endpoint-url: 'localhost' or the region is invalid: Invalid endpoint" in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """As in ``shardkit plan … | head -1``."""
    command = "from shardkit.cli import main; main()"
    asked = ["plan", "shards", "--item-size", "500", "--writes-per-second", "5000"]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", command, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.fixture
def traced(tmp_path: Path) -> str:
    """Return a folder with the trace of a key that takes 1,500 write units a second, and of 40 that take little."""
    trace = Trace(tmp_path, keys="plain")
    for second in range(30):
        for number in range(40):
            trace.add(TraceRow(1404900000 + second, "PutItem", "Orders", key=f"k{number}", write_units=5.0))
        trace.add(TraceRow(1404900000 + second, "PutItem", "Orders", key="t0000", calls=1500, write_units=1500.0))
    trace.flush()
    return str(tmp_path)


FEW = ("--shards", "1,4,16", "--times", "1,1.25", "--partitions", "16")


def test_trace(traced: str, tmp_path: Path) -> None:
    plan = plan_trace(traced, shards=[1, 4, 16], times=[1, 1.25], partitions=16)
    assert planned("trace", traced, *FEW) == as_json(plan)
    result = invoke("trace", traced, *FEW)
    assert (result.exit_code, result.stdout) == (0, f"{plan}\n")
    assert 'with 20% left free: shards={"t0000": ' in result.stdout
    (file,) = tmp_path.glob("*.gz")
    options = ("--key", "t0000", "--write-units", "3000", "--random")
    more = plan_trace(
        [file], shards=[1, 4, 16], times=[1, 1.25], partitions=16, keys=["t0000"], write_units=3000, at_random=True
    )
    assert planned("trace", str(file), *FEW, *options) == as_json(more)


def test_trace_exits_with_1_if_no_number_serves(traced: str) -> None:
    result = invoke("trace", traced, "--shards", "1", "--times", "1", "--partitions", "16")
    assert result.exit_code == 1
    assert "1x needs other shards than these, or more partitions" in result.stdout


def test_trace_in_dollars_and_drawn(traced: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    prices, drawn = tmp_path / "prices.toml", tmp_path / "trace.svg"
    prices.write_text("[prices]\nread_unit_hour = 0.00013\n")
    result = invoke("trace", traced, *FEW, "--prices", str(prices), "--plot", str(drawn))
    assert result.exit_code == 0, result.output
    assert "0.00 $ a month" in result.stdout
    text = drawn.read_text(encoding="utf-8")
    assert "traffic (multiples of what was recorded)" in text
    assert "Orders, 16 partitions: " in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shards", "many"], "--shards: 'many' is not a list of numbers"),
        (["--shards", "0"], "shards: must be an integer from 1 to 1,000"),
        (["--prices", "none.toml"], "--prices: there is no file"),
        (["--table", "Other"], "table: 'Other', index None: the files have no rows of it; give other files"),
        (["--plot", "trace.txt"], "--plot: trace.txt has the ending 'txt'"),
    ],
)
def test_trace_refuses(traced: str, options: list[str], said: str) -> None:
    result = invoke("trace", traced, *options)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_trace_of_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    result = invoke("trace", str(tmp_path / "x"))
    assert result.exit_code == 2
    assert "is not a trace" in result.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "the files have no rows of it" in " ".join(invoke("trace", str(empty)).stderr.split())
