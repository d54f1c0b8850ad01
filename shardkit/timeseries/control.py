"""List and create the tables of a time series, and wait until a table is active."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardkit.core.machine import Program, Send, Wait
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import PeriodError, ShardQueryError
from shardkit.timeseries.periods import Period
from shardkit.timeseries.settings import Series, Throughput

POLL_SECONDS = 2.0
MOST_SECONDS = 600.0
"""How long a table may take to become active."""
_PASSING = frozenset({"BACKFILLING", "CREATING", "UPDATING", "missing"})


def is_missing(error: BaseException) -> bool:
    """Return whether a request failed because its table does not exist (or is still being created).

    So do requests of a fan-out under which the table was deleted, though some were answered.
    """
    if isinstance(error, ShardQueryError):
        return bool(error.errors) and all(map(is_missing, error.errors.values()))
    return code_of(error) in {"ResourceNotFoundException", "TableNotFoundException"}  # the latter: backups, exports


def listed(series: Series) -> Program[set[Period]]:
    """Return the periods whose tables exist."""
    found: set[Period] = set()
    params: dict[str, Any] = {}
    while True:
        answer = yield Send("ListTables", params)
        periods = map(series.period_of_table, answer.get("TableNames", ()))
        found.update(period for period in periods if period is not None)
        if "LastEvaluatedTableName" not in answer:
            return found
        params = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}


def created(series: Series, period: Period, throughput: Throughput) -> Program[None]:
    """Create a period's table, unless it exists, and wait until it is active."""
    until = (yield Wait()) + MOST_SECONDS
    while True:
        made = True
        try:
            yield Send("CreateTable", series.creation(period, throughput))
        except Exception as error:
            if code_of(error) != "ResourceInUseException":
                raise
            made = False
        described = yield from settled(series.table(period), created=made)
        now = yield Wait()
        if described is not None or now >= until:
            break
        # It was just being deleted; or another process has just made it, and it does not show yet.
        yield Wait(now + POLL_SECONDS)
    if not described or changing(described):
        raise PeriodError(
            f"table {series.table(period)!r}: must be active within {MOST_SECONDS:.0f} s of its creation, got "
            f"{changing(described or {})}; try again later",
            period.name,
        )


def settled(table: str, *, created: bool = False) -> Program[dict[str, Any] | None]:
    """Wait until a table and its indexes are active; return its description, or None if it does not exist.

    One that was just ``created`` may not be visible yet. After ``MOST_SECONDS``, what it is then is returned.
    """
    now = yield Wait()
    until = now + MOST_SECONDS
    while True:
        try:
            answer = yield Send("DescribeTable", {"TableName": table})
        except Exception as error:
            if not is_missing(error):
                raise
            if not created:
                return None
            answer = {}
        described: dict[str, Any] = answer.get("Table", {})
        if changing(described) not in _PASSING or now >= until:
            return described
        now = yield Wait(now + POLL_SECONDS)


def changing(described: Mapping[str, Any]) -> str:
    """Return the status of a table, or of one of its indexes, that is not active; empty if all are."""
    indexes = described.get("GlobalSecondaryIndexes") or ()
    statuses = [described.get("TableStatus", "missing"), *(index.get("IndexStatus", "ACTIVE") for index in indexes)]
    return next((status for status in statuses if status != "ACTIVE"), "")
