"""Loads and commands over sources that are cut off: what was read is written, and the cut is an error."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.response import StreamingBody

from shardkit import BulkLoadError, BulkResult, CalculatedSuffix, ShardedTable, bulk_load, streaming_bulk
from shardkit.bulk.journal import Journal
from shardkit.bulk.sources.opening import open_source
from shardkit.cli import build_app
from shardkit.errors import ConfigurationError
from tests.support.disks import places_in
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

pytest.importorskip("smart_open")
click_testing = pytest.importorskip("click.testing")
zstd: Any = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

COUNT = 700
# Numbers that compress badly, so that the file has several blocks.
ORDERS = [{"Date": f"2014-07-{n % 7}", "OrderId": f"A{n:04}", "Note": f"{n**150:x}"} for n in range(COUNT)]
SHARDED = ("--table", "Orders", "--shards", "4", "--by", "OrderId")


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=4))


def lines(items: list[dict[str, str]]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def in_frames(raw: bytes) -> bytes:
    half = raw.index(b"\n", len(raw) // 2) + 1
    return bytes(zstd.compress(raw[:half]) + zstd.compress(raw[half:]))


METHODS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstd.compress,
    "zstd, two frames": in_frames,
    "gzip": gzip.compress,
}


@pytest.fixture(params=METHODS)
def cut(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of orders that lacks its last bytes."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "orders.jsonl.x"
    whole = METHODS[request.param](lines(ORDERS))
    path.write_bytes(whole[: len(whole) * 2 // 3])
    return path


def written(table: Table) -> list[str]:
    """The numbers of the orders stored, each with its whole note."""
    items = table.scan()["Items"]
    by_number = {order["OrderId"]: order for order in ORDERS}
    assert all(item["Note"] == by_number[str(item["OrderId"])]["Note"] for item in items)
    return sorted(str(item["OrderId"]) for item in items)


def test_bulk_load(cut: Path, table: Table, orders: ShardedTable) -> None:
    source = open_source(cut, format="jsonl")
    with pytest.raises(BulkLoadError, match=r"the source ended in an error after [\d,]+ items: .* cut off") as caught:
        bulk_load(orders, source, journal=cut.with_name("journal"))
    report = caught.value.report
    assert report is not None
    assert 0 < report.items == report.written < COUNT
    assert written(table) == [order["OrderId"] for order in ORDERS[: report.written]]
    first, *_ = cut.with_name("journal").read_bytes().splitlines()
    header = {name: value for name, value in json.loads(first[9:]).items() if name not in {"load", "shardkit_journal"}}
    journal = Journal(cut.with_name("journal"), header)
    assert (journal.ended, places_in(cut.with_name("journal"))) == (False, report.written)
    journal.close()


def test_streaming_bulk(cut: Path, table: Table, orders: ShardedTable) -> None:
    results: list[BulkResult] = []
    with pytest.raises(BulkLoadError, match="cut off"):
        results.extend(streaming_bulk(orders, open_source(cut, format="jsonl"), on_error="collect"))
    # extend() keeps what came before the error.
    assert all(result.ok for result in results)
    assert sorted(result.item["OrderId"] for result in results) == written(table) != []


def invoke(*arguments: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), [*arguments, "--format", "jsonl"], env={"COLUMNS": "80"})


def test_the_load_command(cut: Path, table: Table) -> None:
    result = invoke("load", cut.name, *SHARDED, "--json")
    assert result.exit_code == 3, result.output
    assert "cut off or damaged" in result.stderr.replace("\n", " ")
    report = json.loads(result.stdout)
    assert report["items"] == report["written"] == len(written(table)) > 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("load", *SHARDED, "--dry-run"), 2),
        (("size",), 3),
        (("heat", "--key", "Date"), 3),
    ],
)
def test_the_commands_that_only_read(command: tuple[str, ...], code: int, cut: Path, table: Table) -> None:
    result = invoke(command[0], cut.name, *command[1:])
    assert result.exit_code == code, result.output
    assert "cut off or damaged" in result.stderr.replace("\n", " ")
    assert not result.stdout
    assert table.scan()["Count"] == 0


# -- S3 ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def s3(resource: DynamoDBServiceResource) -> Iterator[Any]:
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="shardkit")
    yield client
    client.close()


@pytest.mark.parametrize("method", METHODS)
def test_an_object_that_was_stored_cut_off(method: str, s3: Any, table: Table, orders: ShardedTable) -> None:
    whole = METHODS[method](lines(ORDERS))
    s3.put_object(Bucket="shardkit", Key="orders.jsonl.x", Body=whole[: len(whole) * 2 // 3])
    source = open_source("s3://shardkit/orders.jsonl.x", format="jsonl", s3=s3)
    with pytest.raises(BulkLoadError, match="cut off") as caught:
        bulk_load(orders, source)
    assert caught.value.report is not None
    assert caught.value.report.written == len(written(table)) > 0


@contextmanager
def short_bodies(s3: Any, share: float) -> Iterator[None]:
    """A proxy of S3 that returns a part of each object as the whole."""

    def shorten(parsed: dict[str, Any], **_: Any) -> None:
        body = parsed["Body"].read()
        body = body[: int(len(body) * share)]
        parsed["ResponseMetadata"]["HTTPStatusCode"] = 200
        parsed.update(Body=StreamingBody(io.BytesIO(body), len(body)), ContentLength=len(body))

    s3.meta.events.register("after-call.s3.GetObject", shorten)
    yield
    s3.meta.events.unregister("after-call.s3.GetObject", shorten)


@pytest.mark.parametrize("method", [*METHODS, "plain"])
def test_a_body_that_is_cut_short(method: str, s3: Any, table: Table, orders: ShardedTable) -> None:
    raw = lines(ORDERS)
    s3.put_object(Bucket="shardkit", Key="orders.jsonl.x", Body=METHODS[method](raw) if method != "plain" else raw)
    source = open_source("s3://shardkit/orders.jsonl.x", format="jsonl", s3=s3)
    with short_bodies(s3, 2 / 3), pytest.raises(BulkLoadError, match=r"cut off|ends after byte") as caught:
        bulk_load(orders, source)
    assert caught.value.report is not None
    assert caught.value.report.written == len(written(table)) > 0


def test_a_parquet_body_that_is_cut_short(s3: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ORDERS), file, row_group_size=100)
    s3.put_object(Bucket="shardkit", Key="orders.parquet", Body=file.getvalue())
    source = open_source("s3://shardkit/orders.parquet", s3=s3)
    with short_bodies(s3, 2 / 3), pytest.raises(ConfigurationError, match="cannot be read as Parquet"):
        list(source.read())
