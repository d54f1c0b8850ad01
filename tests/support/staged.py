"""Stages in S3 without stage_items, and DynamoDB's answers about imports of them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from botocore.session import Session
from moto.dynamodb.models.table_import import TableImport

from shardkit.staging.manifest import Compression, Manifest, S3Folder, StagedObject

has_bulk_put = pytest.mark.skipif(
    "StartBulkPutItems" not in Session().get_service_model("dynamodb").operation_names,
    reason="this botocore has no StartBulkPutItems",
)
FOLDER = S3Folder("bucket", "orders")
WHERE = str(FOLDER)
ORDERS: dict[str, Any] = {
    "KeySchema": [
        {"AttributeName": "Date", "KeyType": "HASH"},
        {"AttributeName": "OrderId", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}
TABLE_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders"
IMPORT_ARN = f"{TABLE_ARN}/import/01234567890123-a1b2c3d4"
PUT_ARN = f"{TABLE_ARN}/bulk-operation/01234567890123-a1b2c3d4"
LATER = datetime.now(UTC) + timedelta(hours=1)


def put_stage(
    s3: Any,
    items: Sequence[Mapping[str, Any]],
    *,
    objects: int = 2,
    compression: Compression = "NONE",
    definition: Mapping[str, Any] = ORDERS,
    indexes: Iterable[str] = (),
) -> Manifest:
    """Put stored items in wire form into a bucket, as a stage of the table Orders."""
    s3.create_bucket(Bucket=FOLDER.bucket)
    staged = []
    for number in range(objects):
        part = items[number::objects]
        raw = b"".join(orjson.dumps({"Item": item}) + b"\n" for item in part)
        body = gzip.compress(raw) if compression == "GZIP" else raw
        key = f"{FOLDER.data}{number}.json"
        etag = s3.put_object(Bucket=FOLDER.bucket, Key=key, Body=body)["ETag"]
        staged.append(StagedObject(key=key, items=len(part), bytes=len(body), raw_bytes=len(raw), etag=etag))
    manifest = Manifest(
        load_id="4f0c",
        table="Orders",
        definition=definition,
        strategy={"type": "Unsharded"},
        indexes={name: {} for name in indexes},
        compression=compression,
        data=FOLDER.data,
        objects=tuple(staged),
        items=len(items),
        raw_bytes=sum(one.raw_bytes for one in staged),
        write_units=len(items),
        superseded=0,
    )
    manifest.write(s3, FOLDER)
    return manifest


def moto_imports_end(_: float = 0) -> None:
    """In place of time that passes: moto imports in threads."""
    for thread in threading.enumerate():
        if isinstance(thread, TableImport):
            thread.join()


def described_table(**more: Any) -> dict[str, Any]:
    return {"Table": {"TableName": "Orders", "TableArn": TABLE_ARN, "TableStatus": "ACTIVE", **ORDERS, **more}}


def described_import(status: str = "IN_PROGRESS", **more: Any) -> dict[str, Any]:
    return {"ImportTableDescription": {"ImportArn": IMPORT_ARN, "ImportStatus": status, "StartTime": LATER, **more}}


def described_put(status: str = "IN_PROGRESS", processed: int | None = None, **more: Any) -> dict[str, Any]:
    counts = {} if processed is None else {"ProcessedItemCount": processed}
    return {
        "BulkOperationDescription": {
            "BulkOperationArn": PUT_ARN,
            "BulkOperationStatus": status,
            "StartTime": LATER,
            "TableDetails": [{"TableName": TABLE_ARN}],
            "InputS3Configuration": {"S3Bucket": "bucket", "S3KeyPrefix": FOLDER.data, "InputFormat": "DYNAMODB_JSON"},
            **counts,
            **more,
        }
    }
