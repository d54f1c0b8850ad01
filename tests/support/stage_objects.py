"""What a stage has written to S3, read back."""

from __future__ import annotations

import gzip
import json
import sys
from importlib import import_module
from typing import Any

from shardkit import ShardedTable, Strategy
from shardkit.dynamodb.decode import from_wire_item
from shardkit.staging.manifest import Manifest, S3Folder

FOLDER = S3Folder("bucket", "orders")
TO = str(FOLDER)
DEFINITION: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}


def orders_table(resource: Any, strategy: Strategy, definition: Any = DEFINITION, **options: Any) -> ShardedTable:
    """A table that does not exist."""
    return ShardedTable(resource.Table("Orders"), strategy, key_schema=definition, **options)


def manifest_of(s3: Any, folder: S3Folder = FOLDER) -> Manifest:
    manifest = Manifest.read(s3, folder)
    assert manifest is not None
    manifest.check(s3, folder)
    return manifest


def staged_items(s3: Any, folder: S3Folder = FOLDER) -> list[dict[str, Any]]:
    """The stored items of all objects of a stage, in their order, each object compared with the manifest."""
    items = []
    for one in manifest_of(s3, folder).objects:
        body = s3.get_object(Bucket=folder.bucket, Key=one.key)["Body"].read()
        assert len(body) == one.bytes
        raw = _unpacked(one.key, body)
        assert len(raw) == one.raw_bytes
        lines = [json.loads(line) for line in raw.splitlines()]
        assert len(lines) == one.items
        assert all(line.keys() == {"Item"} for line in lines)
        items += [from_wire_item(line["Item"]) for line in lines]
    return items


def _unpacked(key: str, body: bytes) -> bytes:
    if key.endswith(".gz"):
        return gzip.decompress(body)
    if key.endswith(".zst"):
        name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        unpacked: bytes = import_module(name).decompress(body)
        return unpacked
    return body
