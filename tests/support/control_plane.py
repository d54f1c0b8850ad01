# ruff: noqa: N802 - methods have the names of operations
"""The tables of an account, as DynamoDB's control plane keeps them: slow, limited, and in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from shardkit.core.machine import Answer, Machine, Program, ProgramMachine, Response, Send, Wait
from tests.support.fakes import client_error

EXPORT_SECONDS = 3600
_HOUR = timedelta(hours=1)


@dataclass
class _Table:
    description: dict[str, Any]
    ready: datetime
    backups: bool = False
    written: datetime | None = None
    """When an item was last written to it."""


@dataclass
class Account:
    """Answers control plane requests as strictly as the service; ``now`` moves on when a program waits."""

    now: datetime
    tables: dict[str, _Table] = field(default_factory=dict)
    exports: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """The operations that change something, with their tables."""
    lost: list[str] = field(default_factory=list)
    """Tables that were deleted without a complete export."""
    change_seconds: float = 30
    failing_exports: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """Operations that are refused, with the error code."""
    _running: deque[dict[str, Any]] = field(default_factory=deque)

    def answer(self, send: Send) -> Answer:
        self._pass()
        if send.operation in self.refused:
            return client_error(self.refused[send.operation], "refused")
        try:
            answer: Answer = getattr(self, send.operation)(**send.params)
        except ClientError as error:
            return error
        if not send.operation.startswith(("Describe", "List")):
            name = send.params.get("TableName") or send.params["TableArn"].rpartition("/")[2]
            self.requests.append((send.operation, str(name)))
        return answer

    def write(self, table: str) -> None:
        """Write an item, which needs an active table."""
        self._pass()
        self._table(table).written = self.now

    def _pass(self) -> None:
        for name, table in [*self.tables.items()]:
            if self.now < table.ready:
                continue
            if table.description["TableStatus"] == "DELETING":
                del self.tables[name]
            else:
                table.description["TableStatus"] = "ACTIVE"
        while self._running and self.now >= self._running[0]["ends"]:
            self.failing_exports -= 1
            self._running.popleft()["ExportStatus"] = "FAILED" if self.failing_exports >= 0 else "COMPLETED"

    def _backed(self, name: str) -> _Table:
        """Return a table for an operation of backups and exports, which have an error of their own."""
        if name not in self.tables or self.tables[name].description["TableStatus"] == "DELETING":
            raise client_error("TableNotFoundException", f"Table not found: {name}")
        return self._table(name)

    def _table(self, name: str, *, active: bool = False) -> _Table:
        table = self.tables.get(name)
        if table is None:
            raise client_error("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        if active and table.description["TableStatus"] != "ACTIVE":
            raise client_error("ResourceInUseException", f"Table is being changed: {name}")
        return table

    def _changing(self, table: _Table, status: str) -> None:
        table.description["TableStatus"] = status
        table.ready = self.now + timedelta(seconds=self.change_seconds)

    def ListTables(self, ExclusiveStartTableName: str = "") -> Response:
        after = sorted(name for name in self.tables if name > ExclusiveStartTableName)
        more = {"LastEvaluatedTableName": after[6]} if len(after) > 7 else {}
        return {"TableNames": after[:7], **more}

    def CreateTable(self, TableName: str, BillingMode: str, **given: Any) -> Response:
        if TableName in self.tables:
            raise client_error("ResourceInUseException", f"Table already exists: {TableName}")
        described = {
            **deepcopy(given),
            "TableName": TableName,
            "TableArn": f"arn:aws:dynamodb:us-east-1:123456789012:table/{TableName}",
            "TableId": f"{TableName} of {self.now.isoformat()}",
            "TableSizeBytes": 2**30,
            "ItemCount": 1_000_000,
            "BillingModeSummary": {"BillingMode": BillingMode},
            "TableClassSummary": {"TableClass": given.get("TableClass", "STANDARD")},
        }
        table = self.tables[TableName] = _Table(described, self.now)
        self._changing(table, "CREATING")
        return {"TableDescription": described}

    def DescribeTable(self, TableName: str) -> Response:
        return {"Table": self._table(TableName).description}

    def UpdateTable(self, TableName: str, **given: Any) -> Response:
        table = self._table(TableName, active=True)
        described = table.description
        if "TableClass" in given:
            assert len(given) == 1, "a table class is changed alone"
            described["TableClassSummary"] = {"TableClass": given["TableClass"]}
        mode = given.get("BillingMode")
        if mode is not None:
            described["BillingModeSummary"] = {"BillingMode": mode}
        on_demand = described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert not (on_demand and "ProvisionedThroughput" in given)
        indexes = {index["IndexName"]: index for index in described.get("GlobalSecondaryIndexes", ())}
        updates = [update["Update"] for update in given.get("GlobalSecondaryIndexUpdates", ())]
        for one, change in [(described, given), *((indexes[update["IndexName"]], update) for update in updates)]:
            if "ProvisionedThroughput" in change:
                self._provision(one, change["ProvisionedThroughput"])
            if "OnDemandThroughput" in change:
                one["OnDemandThroughput"] = change["OnDemandThroughput"]
        if on_demand:
            for one in (described, *indexes.values()):
                one.pop("ProvisionedThroughput", None)
        self._changing(table, "UPDATING")
        return {"TableDescription": described}

    def _provision(self, one: dict[str, Any], units: Mapping[str, int]) -> None:
        before = one.get("ProvisionedThroughput", {})
        if all(before.get(name) == value for name, value in units.items()):
            raise client_error("ValidationException", "The provisioned throughput for the table will not change.")
        decreases = any(before.get(name, 0) > value for name, value in units.items())
        last = before.get("LastDecreaseDateTime")
        today = before.get("NumberOfDecreasesToday", 0) if last and last.date() == self.now.date() else 0
        if decreases and (today >= 27 or (today >= 4 and last is not None and self.now - last < _HOUR)):
            raise client_error("LimitExceededException", "Number of decreases in a day")
        more = {"NumberOfDecreasesToday": today + 1, "LastDecreaseDateTime": self.now} if decreases else {}
        one["ProvisionedThroughput"] = {**before, **units, **more}

    def DescribeContinuousBackups(self, TableName: str) -> Response:
        status = "ENABLED" if self._backed(TableName).backups else "DISABLED"
        return {
            "ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": status}}
        }

    def UpdateContinuousBackups(self, TableName: str, **_: Any) -> Response:
        table = self._backed(TableName)
        if table.description["TableStatus"] != "ACTIVE":
            raise client_error("ContinuousBackupsUnavailableException", "not active")
        table.backups = True
        return {}

    def ListExports(self, TableArn: str, NextToken: str = "0") -> Response:
        found = [export["ExportArn"] for export in self.exports if export["TableArn"] == TableArn]
        at = int(NextToken)
        more = {"NextToken": str(at + 1)} if len(found) > at + 1 else {}
        return {"ExportSummaries": [{"ExportArn": arn} for arn in found[at : at + 1]], **more}

    def DescribeExport(self, ExportArn: str) -> Response:
        (export,) = (export for export in self.exports if export["ExportArn"] == ExportArn)
        return {"ExportDescription": export}

    def ExportTableToPointInTime(self, TableArn: str, ClientToken: str, **given: Any) -> Response:
        table = self._backed(TableArn.rpartition("/")[2])
        if not table.backups:
            raise client_error("PointInTimeRecoveryUnavailableException", "not enabled")
        for export in self.exports:
            if export["ClientToken"] == ClientToken:
                return {"ExportDescription": export}
        export = {
            **given,
            "ClientToken": ClientToken,
            "TableArn": TableArn,
            "TableId": table.description["TableId"],
            "ExportArn": f"{TableArn}/export/{len(self.exports)}",
            "ExportTime": self.now,
            "ExportStatus": "IN_PROGRESS",
            "ends": self.now + timedelta(seconds=EXPORT_SECONDS),
        }
        self.exports.append(export)
        self._running.append(export)
        return {"ExportDescription": export}

    def DeleteTable(self, TableName: str) -> Response:
        table = self._table(TableName, active=True)
        if table.description.get("DeletionProtectionEnabled"):
            raise client_error("ValidationException", "protected")
        if not self.archived(TableName):
            self.lost.append(TableName)
        self._changing(table, "DELETING")
        return {}

    def archived(self, name: str) -> bool:
        """Whether a complete export has everything that was written to a table."""
        table = self.tables[name]
        return any(
            export["ExportStatus"] == "COMPLETED"
            and export["TableId"] == table.description["TableId"]
            and (table.written is None or export["ExportTime"] >= table.written)
            for export in self.exports
        )


class Run:
    """A program on an account, a request at a time."""

    def __init__(self, account: Account, program: Program[Any]) -> None:
        self._account = account
        self._machine: Machine[Any] = ProgramMachine(program)
        self._start = account.now

    def step(self) -> Any:
        """Do the next request, or wait; return the result as a ``Done``, or None if there is more to do."""
        clock = (self._account.now - self._start).total_seconds()
        step = self._machine.next(clock)
        if isinstance(step, Send):
            answer = self._account.answer(step)
            self._machine.receive(step, answer if isinstance(answer, Exception) else step.answer(answer), clock)
            return None
        if isinstance(step, Wait):
            assert step.until is not None
            self._account.now += timedelta(seconds=step.until - clock)
            return None
        return step

    def to_end(self) -> Any:
        while (done := self.step()) is None:
            pass
        return done.value
