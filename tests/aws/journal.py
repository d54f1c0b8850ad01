"""The names of a run: written down before anything is made, and removed at its end or later."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tests.aws.spending import UNITS_PER_SECOND

if TYPE_CHECKING:
    import boto3

    from tests.aws.run import Run

PREFIX = "shardkit-check"
MOST_SECONDS = 900.0
"""That tables may take to be deleted: one with an index that is being made takes some minutes."""


class Journal:
    """A file with a line for each table of a run, and for each place in S3."""

    def __init__(self, folder: Path, ident: str) -> None:
        self.ident = ident
        self.path = folder / f"{PREFIX}-{ident}.journal"

    @property
    def prefix(self) -> str:
        return f"{PREFIX}-{self.ident}-"

    def new_name(self) -> str:
        return f"{self.prefix}{uuid.uuid4().hex[:8]}"

    def write(self, name: str) -> None:
        if not name.removeprefix("s3://").rpartition("/")[2].startswith(self.prefix):
            raise ValueError(f"{name}: a run makes only what is named after it; take the name from new_name()")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())

    def names(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").split() if self.path.exists() else []

    def attach(self, session: boto3.Session) -> None:
        """Journal, tag and limit the tables that clients of the session make, just before they ask for them."""

        def table(params: dict[str, Any], **_: Any) -> None:
            self.write(params["TableName"])
            params.setdefault("Tags", [{"Key": PREFIX, "Value": self.ident}])
            if params.get("BillingMode") == "PAY_PER_REQUEST":
                most = int(UNITS_PER_SECOND)
                params.setdefault("OnDemandThroughput", {"MaxReadRequestUnits": most, "MaxWriteRequestUnits": most})
                if not params["OnDemandThroughput"]:  # a table that is only looked at
                    del params["OnDemandThroughput"]

        def imported(params: dict[str, Any], **_: Any) -> None:
            self.write(params["TableCreationParameters"]["TableName"])

        session.events.register("provide-client-params.dynamodb.CreateTable", table)
        session.events.register("provide-client-params.dynamodb.ImportTable", imported)


def clean(run: Run) -> list[str]:
    """Remove all that a run has made, and wait until it is gone; return what is left."""
    end = run.clock() + MOST_SECONDS
    while (left := delete_tables(run)) and run.clock() < end:
        run.sleep(3.0)
    for name in run.journal.names():
        if name.startswith("s3://"):
            bucket, _, prefix = name.removeprefix("s3://").partition("/")
            objects = run.session.resource("s3", region_name=run.place.region).Bucket(bucket).objects
            objects.filter(Prefix=f"{prefix}/").delete()
            left += [f"s3://{bucket}/{one.key}" for one in objects.filter(Prefix=f"{prefix}/").limit(1)]
    if not left:
        run.journal.path.unlink(missing_ok=True)
    return left


def delete_tables(run: Run) -> list[str]:
    """Begin to delete all tables of a run; return those that are still there."""
    found = _tables(run)
    for name in found:
        # One that is just being made or changed cannot be deleted yet. What cannot be deleted at all is left, and said.
        with suppress(ClientError):
            run.client.delete_table(TableName=name)
    return found


def _tables(run: Run) -> list[str]:
    """The run's tables that exist: by their names, also without the journal, and by the journal."""
    pages = run.client.get_paginator("list_tables").paginate()
    found = [name for page in pages for name in page["TableNames"] if name.startswith(run.journal.prefix)]
    for name in run.journal.names():
        if name not in found and not name.startswith("s3://"):
            with suppress(run.client.exceptions.ResourceNotFoundException):
                found.append(run.client.describe_table(TableName=name)["Table"]["TableName"])
    return found
