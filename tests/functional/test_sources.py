"""Sources where they really are: objects in S3 over HTTP, and real flights in every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
import operator
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest

from shardkit import BulkReport, CalculatedSuffix, ShardedTable, Unsharded, bulk_load
from shardkit.bulk.sources.opening import open_source
from shardkit.cli.flights import read_flights
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError
from tests.support.tables import GlobalIndex, make_table

moto_server = pytest.importorskip("moto.server", exc_type=ImportError)
pytest.importorskip("flask")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
zstd: Any = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

ROWS = 1500


@pytest.fixture(scope="module")
def flights() -> list[dict[str, Any]]:
    return list(read_flights(ROWS))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str) -> Iterator[Any]:
    """S3 over HTTP, with an empty bucket."""
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="shardkit")  # of the same name again: S3 says that it is there
    yield client
    client.close()


@pytest.fixture
def unasked() -> ShardedTable:
    """A table that is never asked for anything: what moto mocks in process, its server would lose."""
    keys = {"Date": "HASH", "Flight": "RANGE"}
    schema = {
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in keys],
    }
    return ShardedTable(
        boto3.resource("dynamodb", region_name="us-east-1").Table("Flights"), Unsharded(), key_schema=schema
    )


@pytest.fixture
def table(resource: Any) -> ShardedTable:
    return ShardedTable(make_table(resource, ("Date", "S"), ("Flight", "S")), CalculatedSuffix("Flight", shards=5))


def as_csv(items: list[dict[str, Any]]) -> bytes:
    names = list(dict.fromkeys(name for item in items for name in item))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, restval="")
    writer.writeheader()
    writer.writerows(items)
    return file.getvalue().encode()


def as_parquet(items: list[dict[str, Any]]) -> bytes:
    names = list(dict.fromkeys(name for item in items for name in item))
    numbers = {name for item in items for name, value in item.items() if isinstance(value, int | Decimal)}
    columns = {
        name: [float(item[name]) if name in numbers and name in item else item.get(name) for item in items]
        for name in names
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=100)
    return file.getvalue()


def as_json(items: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(item, default=str).encode() + b"\n" for item in items)


def as_dynamodb(items: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps({"Item": to_wire_item(item)}).encode() + b"\n" for item in items)


FORMATS: dict[str, Any] = {
    "flights.csv": as_csv,
    "flights.csv.gz": lambda items: gzip.compress(as_csv(items)),
    "flights.csv.zst": lambda items: zstd.compress(as_csv(items)),
    "flights.jsonl": as_json,
    "export.json.gz": lambda items: gzip.compress(as_dynamodb(items)),
    "flights.parquet": as_parquet,
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cursors", [1, 7])
def test_real_flights_are_the_same_in_every_format(
    name: str, cursors: int, flights: list[dict[str, Any]], tmp_path: Path, table: ShardedTable
) -> None:
    (tmp_path / name).write_bytes(FORMATS[name](flights))
    source = open_source(tmp_path / name, table=table, cursors=cursors)
    read: list[Any] = [record for _, record in source.read()]
    by_key = operator.itemgetter("Date", "Flight")
    assert sorted(read, key=by_key) == sorted(flights, key=by_key)


@pytest.mark.parametrize("name", FORMATS)
def test_s3(name: str, flights: list[dict[str, Any]], s3: Any, unasked: ShardedTable) -> None:
    s3.put_object(Bucket="shardkit", Key=f"one/{name}", Body=FORMATS[name](flights))
    source = open_source(f"s3://shardkit/one/{name}", table=unasked, cursors=5, s3=s3)
    pairs = list(source.read())
    in_order = [record for _, record in sorted(pairs, key=lambda pair: pair[0])]
    assert in_order == flights
    assert str(source.where(pairs[0][0])).startswith(f"s3://shardkit/one/{name}, ")


def test_s3_prefixes_and_patterns(s3: Any) -> None:
    for key in ("many/a.jsonl", "many/b.jsonl", "many/_SUCCESS", "many-others.jsonl"):
        s3.put_object(Bucket="shardkit", Key=key, Body=json.dumps({"key": key}).encode() + b"\n")

    def keys(where: str) -> list[str]:
        return [record["key"] for _, record in open_source(where, s3=s3).read()]  # type: ignore[index]

    assert keys("s3://shardkit/many") == keys("s3://shardkit/many/") == ["many/a.jsonl", "many/b.jsonl"]
    assert keys("s3://shardkit/many/b.jsonl") == ["many/b.jsonl"]
    assert keys("s3://shardkit/many*.jsonl") == ["many-others.jsonl", "many/a.jsonl", "many/b.jsonl"]


@contextmanager
def ranges(s3: Any) -> Iterator[list[tuple[int, int]]]:
    """The ranges that are asked for, first byte and past-last."""
    asked: list[tuple[int, int]] = []

    def look(params: Any, **_: Any) -> None:
        first, last = params["Range"].removeprefix("bytes=").split("-")
        asked.append((int(first), int(last) + 1))

    s3.meta.events.register("provide-client-params.s3.GetObject", look)
    yield asked
    s3.meta.events.unregister("provide-client-params.s3.GetObject", look)


def test_s3_is_read_in_ranges_each_once(s3: Any, flights: list[dict[str, Any]], unasked: ShardedTable) -> None:
    body = as_json(flights) * 12  # several megabytes
    s3.put_object(Bucket="shardkit", Key="ranges.jsonl", Body=body)
    with ranges(s3) as asked:
        source = open_source("s3://shardkit/ranges.jsonl", table=unasked, cursors=4, s3=s3)
        opened = len(asked)
        assert sum(1 for _ in source.read()) == ROWS * 12
    # Each of the four reads at most one block beyond its end; what is looked at is asked for apart.
    looked, taken = [[end - start for start, end in some] for some in (asked[:opened], asked[opened:])]
    assert len(body) <= sum(taken) <= len(body) + 4 * 1024 * 1024
    assert max(taken) == 1024 * 1024
    assert max(looked) == 256 * 1024


def test_s3_is_looked_at_in_few_small_ranges(s3: Any, unasked: ShardedTable) -> None:
    """A sample is read at 32 places, and each of seven cuts at two."""
    body = b"".join(b'{"Date": "%09d", "Flight": "%0400d"}\n' % (n // 100, n) for n in range(40_000))
    s3.put_object(Bucket="shardkit", Key="sampled.jsonl", Body=body)
    with ranges(s3) as asked:
        source = open_source("s3://shardkit/sampled.jsonl", table=unasked, cursors=8, s3=s3)
    assert len(source.sections) == 8
    assert len(asked) <= 2 + 32 + 2 * 7
    assert {end - start for start, end in asked} == {256 * 1024}


def test_s3_needs_smart_open(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put_object(Bucket="shardkit", Key="unread.jsonl", Body=b'{"a": 1}\n')
    monkeypatch.setitem(sys.modules, "smart_open", None)
    with pytest.raises(
        ConfigurationError, match=r'^source: S3 needs the package smart_open, .* pip install "shardkit\[load\]"'
    ):
        open_source("s3://shardkit/unread.jsonl", s3=s3)


def test_an_object_that_changes_meanwhile_ends_the_reading(s3: Any) -> None:
    s3.put_object(Bucket="shardkit", Key="changing.jsonl", Body=b'{"a": 1}\n' * 200_000)
    records = open_source("s3://shardkit/changing.jsonl", s3=s3).read()
    next(records)
    s3.put_object(Bucket="shardkit", Key="changing.jsonl", Body=b'{"a": 2}\n' * 200_000)
    with pytest.raises(OSError, match="PreconditionFailed"):
        list(records)


def test_a_load_of_a_source_says_where_what_failed_stands(tmp_path: Path, table: ShardedTable) -> None:
    path = tmp_path / "flights.csv"
    path.write_text("Date,Flight,Delay\nd,f1,1\nd,,2\nd,f3,late\nd,f4,4\n", encoding="utf-8")
    report = bulk_load(table, open_source(path, table=table, types="Delay:N"), on_error="collect")
    assert (report.items, report.written, report.failed) == (4, 2, 2)
    assert {failure.place: str(failure.error) for failure in report.failures}.keys() == {
        f"{path}, line 3",
        f"{path}, line 4",
    }
    assert {item["Flight"]: item["Delay"] for item in table.table.scan()["Items"]} == {"f1": 1, "f4": 4}


@pytest.mark.parametrize("name", ["Flight", "Tail"])
def test_keys_that_are_text_and_look_like_numbers(tmp_path: Path, resource: Any, name: str) -> None:
    """Of the table, and of an index; without the table, nothing is sent, and the error says what to write."""
    index = GlobalIndex("ByTail", ("Tail", "S"))
    made = make_table(resource, ("Date", "S"), ("Flight", "S"), global_indexes=[index])
    table = ShardedTable(made, CalculatedSuffix("Flight", shards=5))
    path, other = tmp_path / "flights.csv", "Tail" if name == "Flight" else "Flight"
    path.write_text("Date,Flight,Tail\nd,1001,7\n", encoding="utf-8")
    expected = f"{name}: the source reads it as type N, .* {table.name!r} it has type S; give .*table=table.*{name}:S"
    with pytest.raises(ConfigurationError, match=expected):
        bulk_load(table, open_source(path, types=f"{other}:S"), on_error="collect")
    for source in (open_source(path, table=table), open_source(path, types="Flight:S,Tail:S")):
        assert bulk_load(table, source).written == 1
    assert list(table.scan_items()) == [{"Date": "d", "Flight": "1001", "Tail": "7"}]


def test_a_resumed_load_reads_what_is_left(tmp_path: Path, table: ShardedTable) -> None:
    path = tmp_path / "flights.jsonl"
    path.write_bytes(b"".join(json.dumps({"Date": "d", "Flight": f"f{n:03}"}).encode() + b"\n" for n in range(60)))
    journal = tmp_path / "journal"
    source = open_source(path, table=table, cursors=4)
    first = bulk_load(table, source, journal=journal, dead_letters=tmp_path / "dead")
    assert first.written == 60
    again = bulk_load(table, open_source(path, table=table, cursors=4), journal=journal)
    assert (again.items, again.resumed) == (0, 60)


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are not UTF-8")
def test_names_that_are_not_utf_8(tmp_path: Path, table: ShardedTable) -> None:
    """Of the source, of the journal and of the dead letters; the place of what failed can be printed."""
    path, kept, dead = (tmp_path / os.fsdecode(name) for name in (b"flights-\xff.csv", b"kept-\xff", b"dead-\xff"))
    path.write_bytes(b"Date,Flight,Delay\nd,f1,1\nd,f2,late\nd,f3,3\n")

    def load() -> BulkReport:
        source = open_source(path, table=table, types="Delay:N")
        return bulk_load(table, source, journal=kept, dead_letters=dead, on_error="collect")

    first, again = load(), load()
    assert (first.written, first.failures[0].place) == (2, f"{tmp_path}/flights-\\xff.csv, line 3")
    assert (again.items, again.resumed, again.failed_before) == (0, 3, 1)
    assert json.loads(dead.read_bytes())["place"] == first.failures[0].place
    path.write_bytes(b"Date,Flight,Delay\nd,f1,1\n")
    with pytest.raises(ConfigurationError, match=r"journal: .*kept-\\udcff' is of a load .*flights-\\xff\.csv changed"):
        load()


def test_a_copy_of_the_file_is_resumed_once_it_has_its_time(tmp_path: Path, table: ShardedTable) -> None:
    """Its middle is not compared, so a copy could be another file; the error says how to set the time."""
    path, journal = tmp_path / "flights.jsonl", tmp_path / "journal"
    path.write_bytes(as_json([{"Date": "d", "Flight": f"f{n}"} for n in range(9)]))
    bulk_load(table, open_source(path), journal=journal)
    os.utime(path, ns=(0, 0))
    with pytest.raises(ConfigurationError, match="; only the time differs: to resume with a copy") as refused:
        bulk_load(table, open_source(path), journal=journal)
    given = re.search(r"os\.utime\('(.+)', ns=\((\d+),\) \* 2\)$", str(refused.value))
    assert given is not None
    os.utime(given[1], ns=(int(given[2]),) * 2)
    assert bulk_load(table, open_source(path), journal=journal).resumed == 9


def test_another_file_under_the_same_name_is_not_resumed(tmp_path: Path, table: ShardedTable) -> None:
    """It has the size and the time of the one that the journal was begun with."""
    path, journal = tmp_path / "flights.jsonl", tmp_path / "journal"
    for flight in ("f", "g"):
        path.write_bytes(
            b"".join(json.dumps({"Date": "d", "Flight": f"{flight}{n}"}).encode() + b"\n" for n in range(9))
        )
        os.utime(path, ns=(0, 0))
        if flight == "f":
            bulk_load(table, open_source(path), journal=journal)
    with pytest.raises(ConfigurationError, match=r"is of a load that began before .*flights\.jsonl changed; to load"):
        bulk_load(table, open_source(path), journal=journal)
    assert {item["Flight"][0] for item in table.scan_items()} == {"f"}
