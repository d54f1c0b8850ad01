"""Exports and imports, which go through a bucket of the volunteer's (--bucket)."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import Any

from shardkit import ShardedTable, import_items, stage_items
from shardkit.streams import RecordReader
from tests.aws.check import NotVerified, check, holds
from tests.aws.orders import BY_ID, DAY, numbers, order
from tests.aws.run import Run

ITEMS = 1_000


def _place(run: Run) -> str:
    """A new prefix in the bucket, journaled."""
    if not run.bucket:
        raise NotVerified("no --bucket was given")
    where = f"s3://{run.bucket}/{run.journal.new_name()}"
    run.journal.write(where)
    return where


@check(
    "Lines of a full and of an incremental export have logical keys", "streams",
    minutes=45, also="export", write_units=100, read_units=10, export_gb=0.02, pitr_gb=0.01, s3_requests=100,
)  # fmt: skip
def exports(run: Run) -> str:
    where = _place(run)
    table = run.table()
    enabled = {"PointInTimeRecoveryEnabled": True}
    run.client.update_continuous_backups(TableName=table.name, PointInTimeRecoverySpecification=enabled)
    orders = ShardedTable(table, BY_ID)
    begun = datetime.now(UTC)
    for number in range(20):
        orders.put_item(Item=order(number))
    orders.delete_item(Key={name: order(3)[name] for name in ("day", "id")})
    run.sleep(16 * 60)  # the least time that an incremental export may cover is 15 minutes
    period = {"ExportFromTime": begun, "ExportToTime": datetime.now(UTC), "ExportViewType": "NEW_AND_OLD_IMAGES"}
    full = _lines(run, table, f"{where}/full")
    changes = _lines(
        run, table, f"{where}/changes", ExportType="INCREMENTAL_EXPORT", IncrementalExportSpecification=period
    )
    reader = RecordReader(table.name, BY_ID, key_schema={"KeySchema": table.key_schema})
    found = sorted(str(one.key["id"]) for one in reader.records(full))
    holds(found == sorted(order(number)["id"] for number in range(20) if number != 3), found)
    days = {one.key["day"] for one in reader.records(changes)}
    holds(days == {"2014-07-09"} and len(changes) >= 19, f"{len(changes)} changes of {sorted(map(str, days))}")
    return f"{len(full)} lines of a full export, {len(changes)} of an incremental one"


def _lines(run: Run, table: Any, where: str, **more: Any) -> list[Any]:
    bucket, _, prefix = where.removeprefix("s3://").partition("/")
    request = {"TableArn": table.table_arn, "S3Bucket": bucket, "S3Prefix": prefix, "ExportFormat": "DYNAMODB_JSON"}
    arn = run.client.export_table_to_point_in_time(**request, **more)["ExportDescription"]["ExportArn"]

    def status() -> str:
        found: str = run.client.describe_export(ExportArn=arn)["ExportDescription"]["ExportStatus"]
        return "" if found == "IN_PROGRESS" else found

    holds((seen := run.until(status, 3600, every=20)) == "COMPLETED", f"the export is {seen or 'not done in an hour'}")
    objects = run.session.resource("s3", region_name=run.place.region).Bucket(bucket).objects.filter(Prefix=prefix)
    data = [gzip.decompress(one.get()["Body"].read()) for one in objects if "/data/" in one.key]
    return [json.loads(line) for content in data for line in content.splitlines()]


def _imported(run: Run, table: Any, **options: Any) -> ShardedTable:
    where = _place(run)
    s3 = run.session.client("s3", region_name=run.place.region)
    stage_items(map(order, range(ITEMS)), where, table=table, s3=s3)
    report = import_items(where, table=table.name, client=run.client, s3=s3, **options)
    holds(report.complete and report.imported == ITEMS, report)
    orders = ShardedTable(run.resource.Table(table.name), BY_ID)
    found = numbers(orders.query_items(KeyConditionExpression=DAY, ConsistentRead=True))
    holds(found == list(range(ITEMS)), f"{len(found)} of {ITEMS} items")
    return orders


@check("Staged items are imported into a new table (ImportTable)", "reference/staging",
       minutes=12, also="import", read_units=500, import_gb=0.01, s3_requests=30)  # fmt: skip
def import_table(run: Run) -> str:
    new = ShardedTable(run.resource.Table(run.journal.new_name()), BY_ID, key_schema=run.request())
    _imported(run, new, on_demand=True)
    return f"{ITEMS:,} items"


@check("Staged items are imported into an existing table (StartBulkPutItems)", "reference/staging",
       minutes=12, also="import", write_units=2_000, read_units=500, import_gb=0.01, s3_requests=30)  # fmt: skip
def bulk_put(run: Run) -> str:
    # No public price of this operation was found: it is counted as writes and as an import.
    _imported(run, ShardedTable(run.table(), BY_ID), max_write_units=1024)
    return f"{ITEMS:,} items"
