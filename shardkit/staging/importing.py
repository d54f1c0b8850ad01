"""import_items: lets DynamoDB write what is staged, and waits for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import boto3
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.core.checks import check_count, check_progress
from shardkit.dynamodb.service_errors import code_of, is_transient
from shardkit.errors import ConfigurationError, StagingError, brief
from shardkit.runtime.own_call import OwnCall
from shardkit.staging.manifest import Manifest, S3Folder
from shardkit.staging.operations import Ask, Description, ExistingTable, ImportReport, NewTable, Stage

LEAST_WRITE_UNITS = 1024
"""The least ``MaxWriteRequestUnits`` of StartBulkPutItems."""
POLL_SECONDS = 20.0
"""How often the state of an import is read, after the first half minute: as often as botocore's waiters do."""
_FIRST_POLL_SECONDS = 1.0
_MOST_UNANSWERED = 30
_MOST_OBJECTS, _MOST_BYTES = 50_000, 5_000_000_000
_log = logging.getLogger("shardkit")


def import_items(
    where: str,
    *,
    table: str,
    client: Any = None,
    s3: Any = None,
    max_write_units: int | None = None,
    tier: Literal["standard", "accelerated"] | None = None,
    errors_to: str | None = None,
    on_demand: bool = False,
    again: bool = False,
    wait: bool = True,
    progress: Callable[[ImportReport], object] | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> ImportReport:
    """Let DynamoDB write what :func:`stage_items` has staged, and wait for its end.

    Example:
        report = import_items("s3://bucket/orders", table="Orders")
        report.imported

    ImportTable makes a table that does not exist, with the key schema and the global indexes of the manifest.
    StartBulkPutItems writes into one that exists, and replaces items of the same primary key. Before either is asked,
    the manifest is compared with the objects, and with the table.

    The import runs in AWS, and goes on if this call is interrupted. The same call finds it and waits for it. After its
    end, the same call returns its report, and starts nothing.

    Args:
        where: ``s3://bucket/prefix``, as it was staged.
        table: The table's name; it may be another than the manifest's.
        client: A boto3 client for DynamoDB; None makes one.
        s3: A boto3 client for S3; None makes one.
        max_write_units: Of an existing table, write units per second that it may consume, at least 1,024; None: no
            limit.
        tier: Of an existing table, the performance tier: ``"standard"`` (as None) or ``"accelerated"``.
        errors_to: Of an existing table, ``s3://bucket/prefix`` for the items that fail; None: ``errors/`` in ``where``.
        on_demand: Make the new table on-demand, whatever the manifest says.
        again: Start another import, even if there was one of this stage.
        wait: Whether to wait for its end.
        progress: Called with the report so far: after the start, then at least every 20 seconds.
        sleep: Waits for so many seconds; for tests.

    Returns:
        The report at the end; with ``wait=False``, after the start.

    Raises:
        StagingError: There is no manifest, or the objects are not those of the manifest. If ``report`` is set, the
            import was started, and failed, lacks items, or could not be waited for.
        ConfigurationError: An argument is invalid, or does not fit the table or the stage; nothing was started.

    Cost: AWS bills ImportTable by uncompressed bytes, and StartBulkPutItems by the bytes that it puts. Requests:
        GetObject, HeadObject, one ListObjectsV2 per 1,000 objects, DescribeTable, a listing of earlier imports, the
        start; then one every 20 seconds.
    IAM: the policy ``Importer`` in docs/reference/iam.md; the import reads S3 and writes its log with the caller's
    permissions.
    Source: API reference, ImportTable and StartBulkPutItems.
    """
    folder = S3Folder.of(where, "where")
    check_progress(progress)
    if not isinstance(table, str) or not table:
        raise ConfigurationError(f"table: must be a table's name, got {brief(table)}")
    if max_write_units is not None:
        check_count("max_write_units", max_write_units, "write units a second", least=LEAST_WRITE_UNITS)
    if tier not in (None, "standard", "accelerated"):
        raise ConfigurationError(f"tier: must be 'standard' or 'accelerated', got {brief(tier)}")
    errors = None if errors_to is None else S3Folder.of(errors_to, "errors_to")
    if errors is not None and errors.bucket == folder.bucket and f"{errors.prefix}/".startswith(folder.data):
        raise ConfigurationError(
            f"errors_to: {errors} is among the staged objects, in {folder.data}; give another prefix"
        )
    given = {"max_write_units": max_write_units, "tier": tier, "errors_to": errors}
    options = {name: value for name, value in given.items() if value is not None}
    client = client or boto3.client("dynamodb")
    stage = _read(s3 or boto3.client("s3"), folder, table)
    operation, report = _begun(client, stage, options, on_demand=on_demand, again=again)
    _log.info("%s: %s %s is %s", table, report.operation, report.arn, "found" if report.found else "started")
    if progress is not None:
        progress(report)
    seconds, unanswered = _FIRST_POLL_SECONDS, 0
    while wait and not report.ended:
        sleep(seconds)
        seconds = min(2 * seconds, POLL_SECONDS)
        try:
            report = operation.report(operation.describe(report.arn), found=report.found)
        except (BotoCoreError, ClientError) as error:
            unanswered += 1
            if is_transient(error) and unanswered < _MOST_UNANSWERED:
                continue
            raise StagingError(
                f"{report.arn}: its state cannot be read: {error}; the import goes on in AWS: the same call waits for "
                "it again",
                report,
            ) from error
        unanswered = 0
        if progress is not None:
            progress(report)
    if report.ended and not report.complete:
        raise _incomplete(report)
    return report


def _read(s3: Any, folder: S3Folder, table: str) -> Stage:
    manifest = Manifest.read(s3, folder)
    if manifest is None:
        raise StagingError(
            f"manifest: {folder} has none, so no stage is complete there; stage again: it goes on where it stopped"
        )
    manifest.check(s3, folder)
    largest = max(manifest.objects, key=lambda one: one.bytes, default=None)
    if largest is None:
        raise StagingError(f"manifest: {folder} has no items; there is nothing to import")
    if len(manifest.objects) > _MOST_OBJECTS:
        raise StagingError(
            f"manifest: {folder} has {len(manifest.objects):,} objects; DynamoDB imports at most {_MOST_OBJECTS:,}: "
            "stage in several parts"
        )
    if largest.bytes > _MOST_BYTES:
        raise StagingError(
            f"manifest: {largest.key} has {largest.bytes:,} bytes; DynamoDB imports objects of at most "
            f"{_MOST_BYTES:,}: stage in smaller objects"
        )
    with folder.reached("read"):
        since = s3.head_object(Bucket=folder.bucket, Key=folder.manifest)["LastModified"]
    return Stage(manifest, folder, table, since)


def _begun(
    client: Any, stage: Stage, options: Mapping[str, Any], *, on_demand: bool, again: bool
) -> tuple[NewTable | ExistingTable, ImportReport]:
    """Find the import of a stage, or start it."""
    ask = _asking(client)
    described = _described(ask, stage.table)
    new = NewTable(ask, stage, on_demand)
    if described is not None and not again and (state := new.find(described["TableArn"])) is not None:
        return new, new.report(state, found=True)
    # ListImports may leave out what is in progress; then the token finds the import that is making the table.
    if described is None or described["TableStatus"] == "CREATING":
        new.check(options)
        report = new.report(new.start(again=again))
        if report.ended and _described(ask, stage.table) is None:
            raise StagingError(
                f"table: {stage.table} does not exist, but {report.arn}, its import of this stage, has ended; if you "
                "deleted the table since, add again=True (--again) to import it again"
            )
        return new, report
    if ExistingTable.operation not in client.meta.service_model.operation_names:
        raise ConfigurationError(
            f"table: {stage.table} exists, and this version of botocore has no {ExistingTable.operation}, which writes "
            "into existing tables; pip install --upgrade boto3, or import into a new table"
        )
    existing = ExistingTable(ask, stage, options)
    existing.check(described, on_demand=on_demand)
    state = None if again else existing.find()
    return existing, existing.report(state or existing.start(again=again), found=state is not None)


def _asking(client: Any) -> Ask:
    def ask(operation: str, **params: Any) -> Any:
        # Announced as shardkit's own call: an installed client would refuse it on a table that it shards.
        with OwnCall(operation, params):
            return getattr(client, xform_name(operation))(**params)

    return ask


def _described(ask: Ask, table: str) -> Description | None:
    try:
        description: Description = ask("DescribeTable", TableName=table)["Table"]
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            return None
        raise
    return description


def _incomplete(report: ImportReport) -> StagingError:
    counts = f"{report.imported:,} of {report.staged:,} items were imported, {report.failed:,} failed"
    errors = f"; see {report.errors_in} for the reasons" if report.errors_in else ""
    if report.status.startswith("COMPLETED"):
        return StagingError(f"{report.arn}: {counts}{errors}", report)
    ended = "failed" if report.status == "FAILED" else "was cancelled"
    reason = f" ({report.reason})" if report.reason else ""
    first = "delete the table, if it is there, and " if report.operation == "ImportTable" else ""
    return StagingError(
        f"{report.arn}: it {ended}{reason}; {counts}{errors}; {first}add again=True (--again) to start another import",
        report,
    )
