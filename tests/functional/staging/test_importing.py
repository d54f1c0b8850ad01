"""import_items: new tables by moto's ImportTable, existing ones by StartBulkPutItems as botocore's model has it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    ImportReport,
    ShardedTable,
    ShardkitError,
    StagingError,
    import_items,
    install,
)
from shardkit.dynamodb.encode import to_wire_item
from shardkit.staging.importing import POLL_SECONDS
from shardkit.staging.manifest import Manifest
from tests.support.staged import (
    FOLDER,
    IMPORT_ARN,
    LATER,
    ORDERS,
    PUT_ARN,
    TABLE_ARN,
    WHERE,
    described_import,
    described_put,
    described_table,
    has_bulk_put,
    moto_imports_end,
    put_stage,
)

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

STRATEGY = CalculatedSuffix("OrderId", shards=3)
ITEMS: list[dict[str, Any]] = [
    {"Date": f"2014-07-{day:02}", "OrderId": f"A{n}", "Total": n} for day in (1, 9) for n in range(5)
]
STORED = [
    to_wire_item({**item, "Date": STRATEGY.physical_key(item["Date"], STRATEGY.shard_of(item["Date"], item))})
    for item in ITEMS
]
INPUT = {"S3Bucket": "bucket", "S3KeyPrefix": "orders/data/"}
BULK_INPUT = {**INPUT, "InputFormat": "DYNAMODB_JSON", "InputCompressionType": "GZIP"}
ERRORS = {"S3Bucket": "bucket", "S3KeyPrefix": "orders/errors/", "OutputType": ["ERROR"]}


@pytest.fixture
def s3(resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> Any:
    return boto3_session.client("s3")


@pytest.fixture
def client(resource: DynamoDBServiceResource) -> Any:
    return resource.meta.client


@pytest.fixture
def stub(client: Any) -> Iterator[Stubber]:
    """DynamoDB as it is told to answer; requests and answers must be valid in botocore's model."""
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def no_time(_: float) -> None:
    pytest.fail("it waited")


def imported(client: Any, s3: Any, **options: Any) -> ImportReport:
    return import_items(WHERE, **{"table": "Orders", "client": client, "s3": s3, "sleep": no_time, **options})


@pytest.mark.parametrize("compression", ["NONE", "GZIP"])
def test_a_new_table(compression: Any, resource: DynamoDBServiceResource, client: Any, s3: Any) -> None:
    index = {
        "IndexName": "by-total",
        "KeySchema": [{"AttributeName": "Total", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    definition = {
        **ORDERS,
        "AttributeDefinitions": [*ORDERS["AttributeDefinitions"], {"AttributeName": "Total", "AttributeType": "N"}],
        "GlobalSecondaryIndexes": [index],
    }
    put_stage(s3, STORED, compression=compression, definition=definition)
    shown: list[ImportReport] = []
    report = imported(client, s3, sleep=moto_imports_end, progress=shown.append)
    assert report.complete
    assert (report.operation, report.status, report.found) == ("ImportTable", "COMPLETED", False)
    assert (report.staged, report.processed, report.imported, report.failed) == (10, 10, 10, 0)
    assert shown[-1] == report
    orders = ShardedTable(resource.Table("Orders"), STRATEGY)
    assert sorted(orders.scan_items(), key=ITEMS.index) == ITEMS
    described = client.describe_table(TableName="Orders")["Table"]
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert [one["IndexName"] for one in described["GlobalSecondaryIndexes"]] == ["by-total"]


@pytest.mark.parametrize("exists", [False, pytest.param(True, marks=has_bulk_put)])
def test_with_an_installed_client(exists: bool, client: Any, stub: Stubber, s3: Any) -> None:
    """It refuses these operations to others: they would write keys without suffixes."""
    put_stage(s3, STORED)
    install(client, {"Orders": STRATEGY})
    if exists:
        stub.add_response("describe_table", described_table())
        expect_listings(stub)
        stub.add_response("start_bulk_put_items", described_put())
    else:
        stub.add_client_error("describe_table", "ResourceNotFoundException")
        stub.add_response("import_table", described_import())
    assert not imported(client, s3, wait=False).ended
    stub.deactivate()  # it would be asked before
    operation: Any = client.start_bulk_put_items if exists else client.import_table
    with pytest.raises(ClientError, match="is not supported on the sharded table 'Orders'"):
        operation(TableName="Orders")


PROVISIONED = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 6}
KEY = [{"AttributeName": "Date", "KeyType": "HASH"}]
PROJECTION = {"ProjectionType": "ALL"}
INDEX = {"IndexName": "by-date", "KeySchema": KEY, "Projection": PROJECTION}


@pytest.mark.parametrize(
    ("definition", "on_demand", "asked"),
    [
        ({}, False, {"BillingMode": "PAY_PER_REQUEST"}),
        ({"BillingMode": "PAY_PER_REQUEST"}, False, {"BillingMode": "PAY_PER_REQUEST"}),
        (
            {"ProvisionedThroughput": PROVISIONED},
            False,
            {"BillingMode": "PROVISIONED", "ProvisionedThroughput": PROVISIONED},
        ),
        (
            {
                "BillingMode": "PROVISIONED",
                "ProvisionedThroughput": PROVISIONED,
                "GlobalSecondaryIndexes": [{**INDEX, "ProvisionedThroughput": PROVISIONED}],
            },
            True,
            {"BillingMode": "PAY_PER_REQUEST", "GlobalSecondaryIndexes": [INDEX]},
        ),
    ],
)
def test_a_new_tables_billing(
    definition: dict[str, Any], on_demand: bool, asked: dict[str, Any], client: Any, stub: Stubber, s3: Any
) -> None:
    put_stage(s3, STORED, compression="ZSTD", definition={**ORDERS, **definition})
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    request = {
        "ClientToken": ANY,
        "S3BucketSource": INPUT,
        "InputFormat": "DYNAMODB_JSON",
        "InputCompressionType": "ZSTD",
        "TableCreationParameters": {"TableName": "Orders", **ORDERS, **asked},
    }
    stub.add_response("import_table", described_import(), request)
    report = imported(client, s3, on_demand=on_demand, wait=False)
    assert (report.status, report.arn, report.ended) == ("IN_PROGRESS", IMPORT_ARN, False)


def test_waits_for_its_end(client: Any, stub: Stubber, s3: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "shardkit")
    put_stage(s3, STORED)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    asked = {"ImportArn": IMPORT_ARN}
    stub.add_response("describe_import", described_import(ProcessedItemCount=4, ImportedItemCount=3), asked)
    stub.add_client_error("describe_import", "ThrottlingException", http_status_code=400)
    stub.add_client_error("describe_import", "InternalServerError", http_status_code=500)
    ended = described_import(
        "COMPLETED",
        ProcessedItemCount=10,
        ImportedItemCount=10,
        EndTime=LATER + timedelta(seconds=90),
        CloudWatchLogGroupArn="arn:aws:logs:us-east-1:123456789012:log-group:/aws-dynamodb/imports:*",
    )
    stub.add_response("describe_import", ended, asked)
    slept: list[float] = []
    shown: list[ImportReport] = []
    report = imported(client, s3, sleep=slept.append, progress=shown.append)
    assert slept == [1, 2, 4, 8]
    assert [one.imported for one in shown] == [0, 3, 10]
    assert str(report) == "completed in 90 s: 10 of 10 items imported into Orders"
    assert [one.message for one in caplog.records] == [f"Orders: ImportTable {IMPORT_ARN} is started"]
    assert report.complete


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {"ImportStatus": "FAILED", "FailureCode": "S3NoSuchBucket", "FailureMessage": "gone", "ErrorCount": 0},
            r"it failed \(S3NoSuchBucket: gone\); 0 of 10 items were imported, 0 failed; delete the table, .* again=",
        ),
        ({"ImportStatus": "CANCELLED"}, r"it was cancelled; 0 of 10 items"),
        (
            {"ImportStatus": "COMPLETED", "ImportedItemCount": 9, "ErrorCount": 1, "CloudWatchLogGroupArn": "arn:log"},
            r"9 of 10 items were imported, 1 failed; see arn:log for the reasons$",
        ),
        ({"ImportStatus": "COMPLETED", "ImportedItemCount": 9}, r"9 of 10 items were imported, 0 failed$"),
        ({"ImportStatus": "COMPLETED", "ImportedItemCount": 10, "ErrorCount": 1}, r"10 of 10 .*, 1 failed$"),
    ],
)
def test_an_incomplete_import_is_an_error(
    state: dict[str, Any], said: str, client: Any, stub: Stubber, s3: Any
) -> None:
    put_stage(s3, STORED)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    stub.add_response(
        "describe_import",
        described_import(status="IN_PROGRESS")
        | {"ImportTableDescription": {"ImportArn": IMPORT_ARN, "StartTime": LATER, **state}},
    )
    with pytest.raises(StagingError, match=f"^{IMPORT_ARN}: {said}") as raised:
        imported(client, s3, sleep=lambda _: None)
    assert raised.value.report.status == state["ImportStatus"]
    assert not raised.value.report.complete
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - what was just made here
    assert (str(again), again.report) == (str(raised.value), raised.value.report)


@pytest.mark.parametrize("asked", [1, 30])
def test_a_state_that_cannot_be_read(asked: int, client: Any, stub: Stubber, s3: Any) -> None:
    """Refused access is no reason to try again, and a lost connection is for ten minutes."""
    slept: list[float] = []
    put_stage(s3, STORED)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    for _ in range(asked):
        code, status = ("AccessDeniedException", 400) if asked == 1 else ("InternalServerError", 500)
        stub.add_client_error("describe_import", code, http_status_code=status)
    with pytest.raises(StagingError, match=f"^{IMPORT_ARN}: its state cannot be read: .*; the import goes on in AWS"):
        imported(client, s3, sleep=slept.append)
    assert len(slept) == asked
    assert max(slept) == (1 if asked == 1 else POLL_SECONDS)


def test_lost_connections_that_come_back(client: Any, stub: Stubber, s3: Any) -> None:
    """It counts those in a row."""
    put_stage(s3, STORED)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    for _ in range(2):
        for _ in range(29):
            stub.add_client_error("describe_import", "InternalServerError", http_status_code=500)
        stub.add_response("describe_import", described_import())
    stub.add_response("describe_import", described_import("COMPLETED", ImportedItemCount=10))
    assert imported(client, s3, sleep=lambda _: None).complete


def expect_listings(stub: Stubber, imports: Any = (), puts: Any = ()) -> None:
    stub.add_response("list_imports", {"ImportSummaryList": list(imports)}, {"TableArn": TABLE_ARN})
    if puts is not None:
        stub.add_response("list_bulk_operations", {"BulkOperationsSummaryList": list(puts)}, {"MaxResults": 25})


def summary(**more: Any) -> dict[str, Any]:
    return {"ImportArn": IMPORT_ARN, "S3BucketSource": INPUT, "StartTime": LATER, "ImportStatus": "COMPLETED", **more}


def test_the_same_call_finds_the_import_that_made_the_table(client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    other = summary(ImportArn=f"{IMPORT_ARN}-other", S3BucketSource={**INPUT, "S3KeyPrefix": "other/data/"})
    before = summary(ImportArn=f"{IMPORT_ARN}-before", StartTime=LATER - timedelta(days=1))
    failed = summary(ImportArn=f"{IMPORT_ARN}-failed", StartTime=LATER - timedelta(minutes=1))
    token = "0123456789abcdef" * 7
    stub.add_response("list_imports", {"ImportSummaryList": [other, failed], "NextToken": token})
    stub.add_response(
        "list_imports", {"ImportSummaryList": [summary(), before]}, {"TableArn": TABLE_ARN, "NextToken": token}
    )
    stub.add_response("describe_import", described_import("COMPLETED", ImportedItemCount=10), {"ImportArn": IMPORT_ARN})
    report = imported(client, s3)
    assert report.complete
    assert report.found


def test_a_table_in_the_making_is_found_by_the_token(client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED)
    tokens = []
    client.meta.events.register(
        "provide-client-params.dynamodb.ImportTable", lambda params, **_: tokens.append(params.get("ClientToken"))
    )
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    imported(client, s3, wait=False)
    stub.add_response("describe_table", described_table(TableStatus="CREATING"))
    expect_listings(stub, puts=None)
    stub.add_response("import_table", described_import())
    imported(client, s3, wait=False)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    imported(client, s3, wait=False, again=True)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    imported(client, s3, wait=False, table="Orders2")
    s3.meta.events.register("after-call.s3.HeadObject", lambda parsed, **_: parsed.update(LastModified=LATER))
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import())
    imported(client, s3, wait=False)
    first, second, another, of_another, staged_again = tokens
    assert first == second
    assert another is None  # botocore makes one
    assert len({None, first, of_another, staged_again}) == 4


def test_other_options_with_the_same_token(client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED)
    for code in ("ImportConflictException", "IdempotentParameterMismatchException"):
        stub.add_client_error("describe_table", "ResourceNotFoundException")
        stub.add_client_error("import_table", code)
        with pytest.raises(StagingError, match=r"orders: its import into Orders was started in the last 8 hours"):
            imported(client, s3)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_client_error("import_table", "LimitExceededException")
    with pytest.raises(ClientError, match="LimitExceededException"):
        imported(client, s3)


def test_a_table_that_was_deleted_after_its_import(client: Any, stub: Stubber, s3: Any) -> None:
    """The token still finds the import of the deleted table."""
    put_stage(s3, STORED)
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    stub.add_response("import_table", described_import("COMPLETED", ImportedItemCount=10))
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    with pytest.raises(StagingError, match=r"^table: Orders does not exist, but .* has ended; .*again=True"):
        imported(client, s3)


@has_bulk_put
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, {"OutputS3Configuration": ERRORS}),
        (
            {"max_write_units": 1024, "tier": "accelerated", "errors_to": "s3://other/wrong/"},
            {
                "OutputS3Configuration": {"S3Bucket": "other", "S3KeyPrefix": "wrong/", "OutputType": ["ERROR"]},
                "MaxWriteRequestUnits": 1024,
                "PerformanceTier": "ACCELERATED",
            },
        ),
        (
            {"errors_to": "s3://other", "tier": "standard"},
            {
                "OutputS3Configuration": {"S3Bucket": "other", "OutputType": ["ERROR"]},
                "PerformanceTier": "STANDARD",
            },
        ),
    ],
)
def test_an_existing_table(options: dict[str, Any], asked: dict[str, Any], client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED, compression="GZIP")
    stub.add_response("describe_table", described_table())
    expect_listings(stub)
    request = {"ClientToken": ANY, "TableName": "Orders", "InputS3Configuration": BULK_INPUT, **asked}
    stub.add_response("start_bulk_put_items", described_put(), request)
    stub.add_response("describe_bulk_operation", described_put(processed=6), {"BulkOperationArn": PUT_ARN})
    ended = described_put("COMPLETED", 10, EndTime=LATER + timedelta(seconds=7), FailedItemCount=0)
    stub.add_response("describe_bulk_operation", ended)
    shown: list[ImportReport] = []
    report = imported(client, s3, sleep=lambda _: None, progress=shown.append, **options)
    assert [(one.processed, one.imported) for one in shown] == [(0, 0), (6, 6), (10, 10)]
    assert (report.operation, report.complete, report.seconds) == ("StartBulkPutItems", True, 7.0)


@has_bulk_put
@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            ("COMPLETED_WITH_ERRORS", 10, {"FailedItemCount": 2}),
            r"8 of 10 items were imported, 2 failed; see s3://bucket/orders/errors for the reasons",
        ),
        (("COMPLETED", 9, {}), r"9 of 10 items were imported, 0 failed"),
        (
            ("FAILED", 4, {"FailureCode": "AccessDenied", "FailureMessage": "s3", "OutputS3Configuration": ERRORS}),
            r"it failed \(AccessDenied: s3\); 4 of 10 .*orders/errors .*; add again=True \(--again\) to .*import$",
        ),
        (("CANCELLED", 4, {}), r"it was cancelled; 4 of 10 items"),
    ],
)
def test_an_incomplete_import_into_an_existing_table(
    state: tuple[str, int, dict[str, Any]], said: str, client: Any, stub: Stubber, s3: Any
) -> None:
    status, processed, more = state
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    expect_listings(stub)
    stub.add_response("start_bulk_put_items", described_put())
    stub.add_response("describe_bulk_operation", described_put("CANCELLING", processed))
    stub.add_response("describe_bulk_operation", described_put(status, processed, **more))
    with pytest.raises(StagingError, match=f"^{PUT_ARN}: {said}") as raised:
        imported(client, s3, sleep=lambda _: None)
    assert raised.value.report.status == status


def listed_put(arn: str, **more: Any) -> dict[str, Any]:
    return {"BulkOperationArn": arn, "BulkOperationStatus": "COMPLETED", "StartTime": LATER, **more}


@has_bulk_put
def test_the_same_call_finds_the_import_into_an_existing_table(client: Any, stub: Stubber, s3: Any) -> None:
    """Among those of other stages and other tables; those whose ARN has another table are not described."""
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    arns = [f"{PUT_ARN}-of-other-stage", "a" * 37, "b" * 37, PUT_ARN]
    expect_listings(stub, puts=[listed_put(f"{TABLE_ARN}-2/bulk-operation/1"), *map(listed_put, arns)])
    of_stage = described_put("COMPLETED", 10)["BulkOperationDescription"]
    of_others: tuple[dict[str, Any], ...] = (
        {"InputS3Configuration": {**of_stage["InputS3Configuration"], "S3KeyPrefix": "other/data/"}},
        {"TableDetails": [{"TableName": "Orders2"}]},
        {"TableDetails": [{"TableName": f"{TABLE_ARN}-2"}]},
        {},
    )
    for arn, other in zip(arns, of_others, strict=True):
        stub.add_response(
            "describe_bulk_operation", {"BulkOperationDescription": {**of_stage, **other}}, {"BulkOperationArn": arn}
        )
    report = imported(client, s3)
    assert report.complete
    assert report.found


@has_bulk_put
def test_imports_of_what_was_staged_there_before_are_not_found(client: Any, stub: Stubber, s3: Any) -> None:
    """Nor are any that started before them described: the newest are listed first."""
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    expect_listings(stub, puts=[listed_put(PUT_ARN, StartTime=LATER - timedelta(days=1)), listed_put(PUT_ARN)])
    stub.add_response("start_bulk_put_items", described_put())
    assert not imported(client, s3, wait=False).found


@has_bulk_put
def test_another_import(client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    stub.add_response("start_bulk_put_items", described_put())
    assert not imported(client, s3, wait=False, again=True).found


def with_type(letter: str) -> dict[str, Any]:
    date, order = ORDERS["AttributeDefinitions"]
    return described_table(AttributeDefinitions=[date, {**order, "AttributeType": letter}])


@has_bulk_put
@pytest.mark.parametrize(
    ("described", "options", "said"),
    [
        (
            with_type("N"),
            {},
            r"its primary key is Date S \+ OrderId N, but that of the staged items is Date S \+ OrderId S",
        ),
        (described_table(KeySchema=KEY), {}, r"its primary key is Date S, but"),
        (described_table(Replicas=[{"RegionName": "eu-west-1"}]), {}, r"it is a global table"),
        (described_table(TableStatus="UPDATING"), {}, r"its status is UPDATING; wait"),
        (
            described_table(),
            {"indexes": ["by-date"], "definition": {**ORDERS, "GlobalSecondaryIndexes": [INDEX]}},
            r"the staged items are sharded for its index by-date, with the key Date S; it has no such index",
        ),
        (
            described_table(
                GlobalSecondaryIndexes=[
                    {"IndexName": "by-date", "KeySchema": [{"AttributeName": "OrderId", "KeyType": "HASH"}]}
                ]
            ),
            {"indexes": ["by-date"], "definition": {**ORDERS, "GlobalSecondaryIndexes": [INDEX]}},
            r"the staged items are sharded for its index by-date, with the key Date S; it has the key OrderId S there",
        ),
    ],
)
def test_a_table_that_the_items_do_not_fit(
    described: dict[str, Any], options: dict[str, Any], said: str, client: Any, stub: Stubber, s3: Any
) -> None:
    """Nothing is started, and not even listed."""
    put_stage(s3, STORED, **options)
    stub.add_response("describe_table", described)
    expect_listings(stub, puts=None)
    with pytest.raises(ConfigurationError, match=f"^table: Orders exists, and {said}"):
        imported(client, s3)


def test_a_botocore_that_has_no_bulk_put(client: Any, stub: Stubber, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = client.meta.service_model
    known = [name for name in model.operation_names if "Bulk" not in name]
    monkeypatch.setattr(model, "operation_names", known, raising=False)
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    expect_listings(stub, puts=None)
    with pytest.raises(ConfigurationError, match=r"^table: Orders exists, .*pip install --upgrade boto3"):
        imported(client, s3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_write_units": 1023}, r"max_write_units: must be an integer >= 1,024 \(write units a second\), got 1023"),
        ({"max_write_units": 2000.0}, r"max_write_units: must be an integer"),
        ({"tier": ["fast"]}, r"tier: must be 'standard' or 'accelerated', got \['fast'\]"),
        ({"tier": "fast"}, r"tier: must be 'standard' or 'accelerated', got 'fast'"),
        ({"errors_to": "errors"}, r"errors_to: must be s3://bucket/prefix, got 'errors'"),
        (
            {"errors_to": f"{WHERE}/data/errors"},
            r"errors_to: s3://bucket/orders/data/errors is among the staged objects",
        ),
        ({"errors_to": f"{WHERE}/data"}, r"errors_to: s3://bucket/orders/data is among the staged objects"),
        ({"table": ""}, r"table: must be a table's name, got ''"),
        ({"table": None}, r"table: must be a table's name, got None"),
        ({"progress": 1}, r"progress: must be a function"),
        ({"where": "bucket/orders"}, r"where: must be s3://bucket/prefix, got 'bucket/orders'"),
    ],
)
def test_arguments_are_checked_first(options: dict[str, Any], said: str) -> None:
    """Before any request."""
    where = options.pop("where", WHERE)
    with pytest.raises(ConfigurationError, match=f"^{said}"):
        import_items(where, **{"table": "Orders", "client": object(), "s3": object(), **options})


def nothing(s3: Any, staged: Manifest) -> None:
    s3.delete_object(Bucket=FOLDER.bucket, Key=FOLDER.manifest)


def damaged(s3: Any, staged: Manifest) -> None:
    s3.put_object(Bucket=FOLDER.bucket, Key=FOLDER.manifest, Body=json.dumps(staged.to_dict())[:-5])


def another_version(s3: Any, staged: Manifest) -> None:
    s3.put_object(Bucket=FOLDER.bucket, Key=FOLDER.manifest, Body=json.dumps({**staged.to_dict(), "version": 2}))


def an_object_gone(s3: Any, staged: Manifest) -> None:
    s3.delete_object(Bucket=FOLDER.bucket, Key=staged.objects[0].key)


def an_object_more(s3: Any, staged: Manifest) -> None:
    s3.put_object(Bucket=FOLDER.bucket, Key=f"{FOLDER.data}more", Body=b"")


def no_items(s3: Any, staged: Manifest) -> None:
    for one in staged.objects:
        s3.delete_object(Bucket=FOLDER.bucket, Key=one.key)
    replace(staged, objects=(), items=0).write(s3, FOLDER)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (nothing, r"s3://bucket/orders has none, so no stage is complete there"),
        (damaged, r"s3://bucket/orders/manifest.json cannot be read by this version"),
        (another_version, r".*cannot be read by this version"),
        (an_object_gone, r".*0.json is missing"),
        (an_object_more, r".*more was added"),
        (no_items, r"s3://bucket/orders has no items"),
    ],
)
def test_an_incomplete_stage_is_refused(change: Any, said: str, client: Any, stub: Stubber, s3: Any) -> None:
    """Before DynamoDB is asked anything."""
    change(s3, put_stage(s3, STORED))
    with pytest.raises(StagingError, match=f"^manifest: {said}") as raised:
        imported(client, s3)
    assert raised.value.report is None


@pytest.mark.parametrize(
    ("limit", "said"),
    [("_MOST_OBJECTS", r"has 2 objects; DynamoDB imports at most 1"), ("_MOST_BYTES", r"0.json has \d+ bytes; ")],
)
def test_limits_of_the_service(
    limit: str, said: str, client: Any, stub: Stubber, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"shardkit.staging.importing.{limit}", 1)
    put_stage(s3, STORED)
    with pytest.raises(StagingError, match=said):
        imported(client, s3)


@pytest.mark.parametrize(
    ("definition", "options", "said"),
    [
        ({"LocalSecondaryIndexes": [INDEX]}, {}, r"table: Orders does not exist, .* no local indexes \(by-date\)"),
        ({}, {"max_write_units": 5000}, r"max_write_units: is for tables that exist"),
        ({}, {"errors_to": "s3://bucket/errors"}, r"errors_to: is for tables that exist"),
    ],
)
def test_what_a_new_table_cannot_have(
    definition: dict[str, Any], options: dict[str, Any], said: str, client: Any, stub: Stubber, s3: Any
) -> None:
    put_stage(s3, STORED, definition={**ORDERS, **definition})
    stub.add_client_error("describe_table", "ResourceNotFoundException")
    with pytest.raises(ConfigurationError, match=f"^{said}"):
        imported(client, s3, **options)


@has_bulk_put
def test_on_demand_is_for_new_tables(client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED)
    stub.add_response("describe_table", described_table())
    expect_listings(stub, puts=None)
    with pytest.raises(ConfigurationError, match=r"^on_demand: is for a new table, and Orders exists"):
        imported(client, s3, on_demand=True)


def test_access_is_refused(client: Any, stub: Stubber, s3: Any) -> None:
    put_stage(s3, STORED)
    stub.add_client_error("describe_table", "AccessDeniedException")
    with pytest.raises(ClientError, match="AccessDeniedException"):
        imported(client, s3)
    with pytest.raises(ShardkitError, match=r"^s3://nobody/orders cannot be read: "):
        import_items("s3://nobody/orders", table="Orders", client=client, s3=s3)
