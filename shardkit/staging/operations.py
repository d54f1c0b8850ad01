"""DynamoDB's two operations that write a stage's objects: ImportTable makes a table, StartBulkPutItems writes into one.

Both run in AWS. Here is what each is asked, how an earlier one of the same stage is found, and what each reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from botocore.exceptions import ClientError

from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, StagingError
from shardkit.staging.manifest import Manifest, S3Folder

Description = Mapping[str, Any]
Ask = Callable[..., Any]
"""Sends a request: an operation's API name, and its parameters as keywords."""

# Of a manifest's definition, what ImportTable makes a table with, beside its billing.
_TABLE_PARAMETERS = ("AttributeDefinitions", "KeySchema", "ProvisionedThroughput", "GlobalSecondaryIndexes")
_OTHER_PARAMETERS = frozenset(
    {"IdempotentParameterMismatchException", "IdempotentParameterMismatch", "ImportConflictException"}
)
_MOST_LISTED = 25


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """The state of an import, as DynamoDB last described it.

    Attributes:
        table: The table's name.
        operation: ``ImportTable``, which made the table, or ``StartBulkPutItems``, for a table that existed.
        arn: By which DynamoDB knows the import.
        status: ``IN_PROGRESS``, ``COMPLETED``, ``COMPLETED_WITH_ERRORS``, ``CANCELLING``, ``CANCELLED`` or ``FAILED``.
        staged: Items of the manifest.
        processed: Items that DynamoDB has read.
        imported: Items that it has written.
        failed: Items or objects that it could not write; their reasons are in ``errors_in``.
        errors_in: A CloudWatch log group, or a prefix in S3.
        reason: Why all of it failed, or was cancelled.
        seconds: From its start to its end; None before that.
        found: Whether an earlier call had started it.
    """

    table: str
    operation: str
    arn: str
    status: str
    staged: int
    processed: int = 0
    imported: int = 0
    failed: int = 0
    errors_in: str | None = None
    reason: str | None = None
    seconds: float | None = None
    found: bool = False

    @property
    def ended(self) -> bool:
        return self.status not in {"IN_PROGRESS", "CANCELLING"}

    @property
    def complete(self) -> bool:
        """Whether it has ended, and wrote every item of the stage."""
        return self.status == "COMPLETED" and self.imported == self.staged and not self.failed

    def __str__(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        taken = "" if self.seconds is None else f" in {self.seconds:,.0f} s"
        state = self.status.lower().replace("_", " ")
        return f"{state}{taken}: {self.imported:,} of {self.staged:,} items imported into {self.table}{failed}"


@dataclass(frozen=True)
class Stage:
    """A complete stage, the table that it goes to, and when its manifest was written."""

    manifest: Manifest
    folder: S3Folder
    table: str
    since: datetime

    @property
    def source(self) -> dict[str, str]:
        return {"S3Bucket": self.folder.bucket, "S3KeyPrefix": self.folder.data}

    def is_read_by(self, source: Description, started: datetime) -> bool:
        """Return whether an import is of this stage: of its objects, and not of what was there before them."""
        return started >= self.since and {name: source.get(name) for name in self.source} == self.source

    def start(self, ask: Ask, operation: str, *, again: bool, **params: Any) -> Any:
        # A repeated request with the same token starts nothing, for eight hours. Without one, botocore makes a new one.
        # A stage that was made again is another one, as where imports are listed.
        token = str(uuid5(NAMESPACE_URL, f"{self.folder}#{self.manifest.load_id}#{self.since}#{self.table}"))
        try:
            return ask(operation, **({} if again else {"ClientToken": token}), **params)
        except ClientError as error:
            if code_of(error) in _OTHER_PARAMETERS:
                raise StagingError(
                    f"{self.folder}: its import into {self.table} was started in the last 8 hours with other options "
                    f"({error}); give the same ones to wait for it, or add again=True (--again) to start another one"
                ) from error
            raise


def _pages(ask: Ask, operation: str, member: str, **params: Any) -> Iterator[Description]:
    more: Any = {}
    while True:
        page = ask(operation, **params, **more)
        yield from page.get(member) or ()
        if not page.get("NextToken"):
            return
        more = {"NextToken": page["NextToken"]}


@dataclass(frozen=True)
class NewTable:
    """ImportTable, which makes the table."""

    operation: ClassVar = "ImportTable"
    ask: Ask
    stage: Stage
    on_demand: bool

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse the options of ExistingTable, and what ImportTable cannot make."""
        table = self.stage.table
        if options:
            raise ConfigurationError(
                f"{next(iter(options))}: is for tables that exist; ImportTable makes {table}, at a speed that "
                "DynamoDB chooses, and logs its errors to CloudWatch; leave it out"
            )
        if local := self.stage.manifest.definition.get("LocalSecondaryIndexes"):
            raise ConfigurationError(
                f"table: {table} does not exist, and ImportTable makes no local indexes "
                f"({', '.join(index['IndexName'] for index in local)}); make the table yourself, then import into it"
            )

    def find(self, table_arn: str) -> Description | None:
        """Return the newest import of this stage that made the table."""
        listed = [
            one
            for one in _pages(self.ask, "ListImports", "ImportSummaryList", TableArn=table_arn)
            if self.stage.is_read_by(one["S3BucketSource"], one["StartTime"])
        ]
        return self.describe(max(listed, key=lambda one: one["StartTime"])["ImportArn"]) if listed else None

    def start(self, *, again: bool) -> Description:
        manifest = self.stage.manifest
        answer = self.stage.start(
            self.ask,
            self.operation,
            again=again,
            S3BucketSource=self.stage.source,
            InputFormat="DYNAMODB_JSON",
            InputCompressionType=manifest.compression,
            TableCreationParameters={"TableName": self.stage.table, **self._definition(manifest.definition)},
        )
        description: Description = answer["ImportTableDescription"]
        return description

    def _definition(self, given: Description) -> dict[str, Any]:
        known = {name: given[name] for name in _TABLE_PARAMETERS if given.get(name)}
        default = "PROVISIONED" if "ProvisionedThroughput" in known else "PAY_PER_REQUEST"
        known["BillingMode"] = "PAY_PER_REQUEST" if self.on_demand else given.get("BillingMode", default)
        if known["BillingMode"] == "PAY_PER_REQUEST":
            known.pop("ProvisionedThroughput", None)
            if indexes := known.get("GlobalSecondaryIndexes"):
                known["GlobalSecondaryIndexes"] = [
                    {name: index[name] for name in index if name != "ProvisionedThroughput"} for index in indexes
                ]
        return known

    def describe(self, arn: str) -> Description:
        description: Description = self.ask("DescribeImport", ImportArn=arn)["ImportTableDescription"]
        return description

    def report(self, state: Description, *, found: bool = False) -> ImportReport:
        return ImportReport(
            operation=self.operation,
            arn=state["ImportArn"],
            status=state["ImportStatus"],
            processed=state.get("ProcessedItemCount") or 0,
            imported=state.get("ImportedItemCount") or 0,
            failed=state.get("ErrorCount") or 0,
            errors_in=state.get("CloudWatchLogGroupArn"),
            found=found,
            **_common(self.stage, state),
        )


@dataclass(frozen=True)
class ExistingTable:
    """StartBulkPutItems, which writes into a table that exists."""

    operation: ClassVar = "StartBulkPutItems"
    ask: Ask
    stage: Stage
    options: Mapping[str, Any]

    @property
    def errors(self) -> S3Folder:
        """Where it reports items that fail."""
        errors: S3Folder = self.options.get("errors_to") or S3Folder.of(f"{self.stage.folder}/errors", "where")
        return errors

    def check(self, described: Description, *, on_demand: bool) -> None:
        """Refuse a table that the items do not fit, or that StartBulkPutItems cannot write into."""
        table = self.stage.table
        if on_demand:
            raise ConfigurationError(f"on_demand: is for a new table, and {table} exists; leave it out")
        for problem in _misfits(self.stage.manifest, described):
            raise ConfigurationError(f"table: {table} exists, and {problem}")

    def find(self) -> Description | None:
        """Return the newest import of this stage into the table."""
        # The newest come first. Those of other tables are left out where their ARN says so: they may be out of reach.
        for one in _pages(self.ask, "ListBulkOperations", "BulkOperationsSummaryList", MaxResults=_MOST_LISTED):
            if one["StartTime"] < self.stage.since:
                break
            arn = one["BulkOperationArn"]
            if ":table/" in arn and f":table/{self.stage.table}/" not in arn:
                continue
            state = self.describe(arn)
            tables = [table["TableName"].rpartition("/")[2] for table in state["TableDetails"]]
            if tables == [self.stage.table] and self.stage.is_read_by(
                state["InputS3Configuration"], state["StartTime"]
            ):
                return state
        return None

    def start(self, *, again: bool) -> Description:
        units, tier = self.options.get("max_write_units"), self.options.get("tier")
        prefix = {"S3KeyPrefix": f"{self.errors.prefix}/"} if self.errors.prefix else {}
        answer = self.stage.start(
            self.ask,
            self.operation,
            again=again,
            TableName=self.stage.table,
            InputS3Configuration={
                **self.stage.source,
                "InputFormat": "DYNAMODB_JSON",
                "InputCompressionType": self.stage.manifest.compression,
            },
            OutputS3Configuration={"S3Bucket": self.errors.bucket, **prefix, "OutputType": ["ERROR"]},
            **({} if units is None else {"MaxWriteRequestUnits": units}),
            **({} if tier is None else {"PerformanceTier": tier.upper()}),
        )
        description: Description = answer["BulkOperationDescription"]
        return description

    def describe(self, arn: str) -> Description:
        answer = self.ask("DescribeBulkOperation", BulkOperationArn=arn)
        description: Description = answer["BulkOperationDescription"]
        return description

    def report(self, state: Description, *, found: bool = False) -> ImportReport:
        processed, failed = state.get("ProcessedItemCount") or 0, state.get("FailedItemCount") or 0
        output = state.get("OutputS3Configuration") or {}
        errors = (
            S3Folder(output["S3Bucket"], output.get("S3KeyPrefix", "").strip("/"))
            if "S3Bucket" in output
            else self.errors
        )
        return ImportReport(
            operation=self.operation,
            arn=state["BulkOperationArn"],
            status=state["BulkOperationStatus"],
            processed=processed,
            imported=processed - failed,
            failed=failed,
            errors_in=str(errors),
            found=found,
            **_common(self.stage, state),
        )


def _common(stage: Stage, state: Description) -> dict[str, Any]:
    ended = state.get("EndTime")
    reasons = [state[name] for name in ("FailureCode", "FailureMessage") if state.get(name)]
    return {
        "table": stage.table,
        "staged": stage.manifest.items,
        "reason": ": ".join(reasons) or None,
        "seconds": None if ended is None else (ended - state["StartTime"]).total_seconds(),
    }


def _misfits(manifest: Manifest, described: Description) -> Iterator[str]:
    if described["TableStatus"] != "ACTIVE":
        yield f"its status is {described['TableStatus']}; wait until it is ACTIVE"
    if described.get("Replicas"):
        yield "it is a global table, which StartBulkPutItems does not write into; use bulk_load, or a new table"
    ours, theirs = _keys(manifest.definition), _keys(described)
    if ours[None] != theirs[None]:
        yield f"its primary key is {theirs[None]}, but that of the staged items is {ours[None]}; stage for this table"
    for name in manifest.indexes:
        if ours.get(name) != theirs.get(name):
            has = f"the key {theirs[name]} there" if name in theirs else "no such index"
            yield (
                f"the staged items are sharded for its index {name}, with the key {ours.get(name)}; it has {has}: "
                "stage for this table, or make the index first"
            )


def _keys(described: Description) -> dict[str | None, str]:
    """Return the key of the table (None) and of each index: ``Date S + OrderId S``."""
    types = {one["AttributeName"]: one["AttributeType"] for one in described["AttributeDefinitions"]}
    indexes = (*(described.get("GlobalSecondaryIndexes") or ()), *(described.get("LocalSecondaryIndexes") or ()))
    schemas = {None: described, **{index["IndexName"]: index for index in indexes}}

    def told(elements: Any) -> str:
        keys = KeySchema.of(elements, "the table")
        parts = [", ".join(f"{name} {types.get(name)}" for name in part) for part in (keys.partition, keys.sort)]
        return " + ".join(filter(None, parts))

    return {name: told(one["KeySchema"]) for name, one in schemas.items()}
