"""What is stored outlives a release: today's code reads and writes the files that are kept, byte for byte.

docs/reference/stored-data.md lists the formats. Those of hashes, suffixes, cursors and strategies are tested beside
their code.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import pytest

from shardkit import BulkResult, RandomSuffix, ShardedTable
from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.journal import Journal
from shardkit.bulk.load import LoadOptions, SourceLoad
from shardkit.bulk.sources.base import BadRecord, Place
from shardkit.bulk.sources.files import LocalFile, Pipe, S3File
from shardkit.bulk.sources.opening import open_source
from shardkit.bulk.writes import DeadLetter
from shardkit.core.machine import Done, Send, Wait
from shardkit.staging.manifest import Manifest, S3Folder, StagedObject
from tests.support.disks import places_in
from tests.support.fakes import Clock, Service, client_error, sharding, some
from tests.support.strategies import VECTORS, vectors

FOLDER = S3Folder("bucket", "orders")
MANIFEST = Manifest(
    load_id="4f0c",
    table="Orders",
    definition={
        "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
        "AttributeDefinitions": [
            {"AttributeName": "Date", "AttributeType": "S"},
            {"AttributeName": "OrderId", "AttributeType": "N"},
            {"AttributeName": "ByStatus", "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by-status",
                "KeySchema": [{"AttributeName": "ByStatus", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        "BillingMode": "PAY_PER_REQUEST",
    },
    strategy=RandomSuffix(200).to_dict(),
    indexes={"by-status": RandomSuffix(10, source="Status").to_dict()},
    compression="GZIP",
    data=FOLDER.data,
    objects=(
        StagedObject(key="orders/data/4f0c-00000.json.gz", items=3, bytes=200, raw_bytes=900, etag='"9b2c"'),
        StagedObject(key="orders/data/4f0c-00001.json.gz", items=2, bytes=150, raw_bytes=600, etag='"7d41"'),
    ),
    items=5,
    raw_bytes=1500,
    write_units=5,
    superseded=1,
    failed=2,
)
HEADER = {
    "table": "Orders",
    "keys": {"Date": "S", "OrderId": "N"},
    "strategy": RandomSuffix(200).to_dict(),
    "source": {"source": "iterable", "total": 1_000_000},
}
LOAD = uuid.UUID(int=0x4F0C)
RECORDS: list[tuple[list[Place], bool]] = [
    ([Place(0, number) for number in (0, 1, 2, 4)], False),
    ([Place(3, 7)], False),
    ([Place(0, 3), Place(0, 9)], True),
    ([Place(0, 5), Place(0, 6)], False),
]
DONE = {place for places, _ in RECORDS for place in places}


def begun(path: Path) -> Journal:
    with patch("uuid.uuid4", return_value=LOAD):
        journal = Journal(path, HEADER, clock=Clock())
    for places, failed in RECORDS:
        journal.record(places, failed=failed)
    return journal


def test_a_journal_is_written_as_ever(tmp_path: Path) -> None:
    """As a kill leaves it, as it is rewritten when it is opened again, and when its load has ended."""
    path = tmp_path / "orders.journal"
    journal = begun(path)
    assert path.read_bytes() == (VECTORS / "killed.journal").read_bytes()
    journal.close()
    assert path.read_bytes() == (VECTORS / "resumed.journal").read_bytes()
    journal = Journal(path, HEADER)
    journal.close(ended=True)
    assert path.read_bytes() == (VECTORS / "ended.journal").read_bytes()


@pytest.mark.parametrize("name", ["killed", "resumed", "ended"])
def test_a_journal_is_read_as_ever(name: str, tmp_path: Path) -> None:
    """Its load goes on under the same id (random suffixes hang on it), with the same places done."""
    path = tmp_path / "orders.journal"
    shutil.copyfile(VECTORS / f"{name}.journal", path)
    journal = Journal(path, HEADER)
    assert {Place(cursor, number) for cursor in range(5) for number in range(12)} & DONE == {
        Place(cursor, number) for cursor in range(5) for number in range(12) if journal.done(Place(cursor, number))
    }
    assert (journal.load, places_in(path), journal.failed, journal.ended) == (LOAD.hex, 9, 2, name == "ended")
    journal.close()
    assert path.read_bytes() == (VECTORS / f"{'ended' if name == 'ended' else 'resumed'}.journal").read_bytes()


def test_a_load_goes_on_as_ever(tmp_path: Path) -> None:
    """One of an iterable: its journal's header, and the shards that are drawn for its items, are what they were."""
    path = tmp_path / "load.journal"
    shutil.copyfile(VECTORS / "load_killed.journal", path)
    table, service = sharding(RandomSuffix(10)), Service()
    options = LoadOptions(journal=path)
    with SourceLoad(table, some(30), options, workers=1, draw=lambda: 0.5) as source_load:
        load = source_load.machine
        records, now = source_load.records(), 0.0
        while not load.ended:
            if load.wants:
                source_load.fill(records)
            step = load.next(now)
            if isinstance(step, Send):
                load.receive(step, service.answer(step, now), now)
            elif isinstance(step, Done):
                source_load.keep()
            else:
                assert isinstance(step, Wait)
                assert step.until is not None
                now = step.until
    assert load.report.resumed == 20
    header, *lines = path.read_bytes().splitlines()
    assert header == (VECTORS / "load_killed.journal").read_bytes().splitlines()[0]
    assert [line[9:] for line in lines] == [b'{"cursor":0,"ranges":[[0,30]]}', b'{"ended":true}']
    # By the first six bytes of SHA-256 of load:cursor:number.
    shards = [table.logical({"S": pk})[1] for pk, _ in sorted(service.items, key=lambda key: str(key[1]))]
    assert shards == [7, 9, 4, 10, 7, 9, 4, 7, 3, 2]


ITEM: dict[str, Any] = {
    "Date": "2014-07-09",
    "OrderId": Decimal("-1.50"),
    "photo": b"\x00\xff",
    "note": 'é"\\\n\x01',
    "gift": True,
    "none": None,
    "list": [1, "x", {"a": b""}],
    "map": {"b": Decimal("1E+100")},
    "tags": {"a"},
    "numbers": {7},
    "photos": {b"\x01"},
}


def letters_of(path: Path) -> None:
    letters = DeadLetters(path, load=LOAD.hex, where=lambda place: f"orders.csv, line {place.number + 1}")
    refused = client_error("ValidationException", "too bad")
    for number, (item, shard, error) in enumerate(
        [
            (ITEM, 57, refused),
            ({"Date": "2014-07-09", "OrderId": 2}, None, refused),
            (BadRecord("2014-07-09;A17\udcff", ValueError("two columns")), None, ValueError("two columns")),
            ({"Date": 1.5}, None, TypeError("a float")),
        ]
    ):
        letters.add([(Place(1, number), BulkResult(item, number, shard, ok=False, error=error))])
    letters.close()


def test_dead_letters_are_written_as_ever(tmp_path: Path) -> None:
    """Items as DynamoDB JSON, with and without a shard, and what only stands there as text."""
    letters_of(tmp_path / "dead.jsonl")
    assert (tmp_path / "dead.jsonl").read_bytes() == (VECTORS / "dead_letters.jsonl").read_bytes()


def test_dead_letters_are_read_as_ever(tmp_path: Path) -> None:
    """They are loaded again as they are, and stay when the load goes on that left them."""
    path = tmp_path / "dead.jsonl"
    shutil.copyfile(VECTORS / "dead_letters.jsonl", path)
    first, second, *bad = [record for _, record in open_source(str(path), format="dynamodb").read()]
    assert isinstance(first, DeadLetter)
    assert (dict(first), first.shard) == (ITEM, 57)
    assert second == {"Date": "2014-07-09", "OrderId": 2}
    assert not isinstance(second, DeadLetter)
    assert [type(record) for record in bad] == [BadRecord, BadRecord]
    letters = DeadLetters(path, load=LOAD.hex, where=str, done=lambda place: place.number != 1)
    letters.close()
    lines = (VECTORS / "dead_letters.jsonl").read_bytes().splitlines(keepends=True)
    assert path.read_bytes().splitlines(keepends=True) == [lines[0], *lines[2:]]


@pytest.fixture(scope="module")
def orders() -> ShardedTable:
    """A table that is never asked for anything."""
    keys = {"Date": "HASH", "OrderId": "RANGE"}
    schema: Any = {
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in keys],
    }
    table = boto3.resource("dynamodb", region_name="us-east-1").Table("Orders")
    return ShardedTable(table, RandomSuffix(3), key_schema=schema)


@pytest.mark.parametrize("row", vectors("sources.json"), ids=lambda row: row["name"])
def test_the_places_of_a_file_are_as_ever(row: dict[str, Any], orders: ShardedTable, tmp_path: Path) -> None:
    """A journal names records by their places, in a source that it knows again."""
    parquet = row["name"].endswith(".parquet")
    if parquet:
        pytest.importorskip("pyarrow")
    path = tmp_path / row["name"]
    path.write_bytes(base64.b64decode(row["content"]) if parquet else row["content"].encode())
    os.utime(path, ns=(0, 1404864000_123456789))
    source = open_source(path, table=orders, cursors=3, types="Note:S" if path.suffix == ".csv" else None)
    identity = source.identity()
    (file,) = identity["files"]
    assert file.pop("name") == str(path.resolve())
    assert {**identity, "files": [{"name": row["name"], **file}]} == row["identity"]
    records = [(place, record) for place, record in source.read() if isinstance(record, Mapping)]
    assert [[place.cursor, place.number, record["OrderId"]] for place, record in records] == row["places"]


def test_sources_are_known_again_as_ever(tmp_path: Path) -> None:
    """A large file by its ends, standard input by its start, an object in S3 by its ETag."""
    content = b"".join(b"%06d\n" % number for number in range(200_000))
    (tmp_path / "large").write_bytes(content)
    ends = content[:65536] + content[-65536:]
    assert LocalFile(str(tmp_path / "large")).identity()["content"] == hashlib.sha256(ends).hexdigest()[:32]
    assert Pipe(stream=io.BytesIO(content)).identity() == {
        "name": "-",
        "content": hashlib.sha256(content[: 1 << 20]).hexdigest()[:32],
    }
    assert S3File(None, "orders", "2014/orders.csv", 9, '"5a87"').identity() == {
        "name": "s3://orders/2014/orders.csv",
        "size": 9,
        "etag": '"5a87"',
    }


class OneObject:
    """An S3 with one object."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def put_object(self, *, Body: bytes, **_: str) -> None:
        self.body = Body

    def get_object(self, **_: str) -> dict[str, Any]:
        return {"Body": io.BytesIO(self.body)}


def test_manifests_are_written_and_read_as_ever() -> None:
    golden = (VECTORS / "manifest.json").read_bytes()
    assert Manifest.read(OneObject(golden), FOLDER) == MANIFEST
    s3 = OneObject(b"")
    MANIFEST.write(s3, FOLDER)
    assert s3.body == golden
