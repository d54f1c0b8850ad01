"""Which maintenance the tables of a time series need: each step follows from what its table is at that moment.

A table is deleted only if its period is past keeping, its key schema is that of the series, it has no deletion
protection and no replicas, and, with an archive, if a complete export was made of it after clients stopped writing to
it: ``SETTLED_SECONDS`` after its period left ``keep``, when clients whose clocks are late refuse its items too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import ceil
from typing import Any

from shardkit.analysis.prices import Prices
from shardkit.dynamodb.schema import KeySchema, throughput_of
from shardkit.dynamodb.units import write_units
from shardkit.timeseries.control import changing
from shardkit.timeseries.periods import Period, datetime_of, second_of
from shardkit.timeseries.settings import Series, Throughput
from shardkit.timeseries.steps import (
    GB,
    Maintenance,
    MaintenanceStep,
    Saving,
    shown_size,
)

SETTLED_SECONDS = 900
_FREE_DECREASES, _MOST_DECREASES, _HOUR = 4, 27, timedelta(hours=1)
"""Four decreases a day at any time, more only an hour after the last one, 27 in all (Service quotas)."""
_HOURS_A_MONTH = 730


@dataclass(frozen=True)
class TableState:
    """What is known of an existing table; its backups and exports only if it may have to be archived."""

    description: Mapping[str, Any]
    backups: bool = False
    exports: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Due:
    """The steps that a table needs, in order; why something else is refused; and if it is kept past ``keep``."""

    steps: tuple[MaintenanceStep, ...] = ()
    refused: str = ""
    kept: bool = False


def plan_of(
    series: Series, now: datetime, states: Mapping[Period, TableState], unknown: Collection[Period] = ()
) -> Maintenance:
    """Plan the maintenance of a time series, from the state of each table that exists and is not ``unknown``."""
    steps: list[MaintenanceStep] = []
    refused: dict[str, str] = {}
    kept: list[str] = []
    # First the tables that items are waiting for.
    for period in dict.fromkeys((*to_create(series, now), *sorted(states, reverse=True))):
        if period in unknown:
            continue
        due = due_of(series, now, period, states.get(period))
        steps += due.steps
        if due.refused:
            refused[series.table(period)] = due.refused
        if due.kept:
            kept.append(series.table(period))
    return Maintenance(series.name, now, tuple(steps), refused, tuple(reversed(kept)))


def to_create(series: Series, now: datetime) -> Iterator[Period]:
    """Yield the periods that must have a table now: the current one, and in time the next one."""
    current = series.current(now)
    yield current
    following = series.calendar.at(current.number + 1)
    if second_of("now", now) >= following.start - series.seconds_ahead:
        yield following


def due_of(series: Series, now: datetime, period: Period, state: TableState | None) -> Due:
    """Return what a period's table needs; ``state`` is None if it does not exist."""
    if state is None:
        return Due((_creation(series, period),)) if period in to_create(series, now) else Due()
    described = state.description
    if described.get("TableStatus") == "DELETING":
        return Due()
    if other := _other_schema(series, described):
        return Due((), other)
    past = series.is_past_keeping(period, series.current(now))
    waits = f"the table, or one of its indexes, is {status}" if (status := changing(described)) else ""
    steps: list[MaintenanceStep] = []
    refused = ""
    if past:
        steps, refused = _removal(series, now, period, state)
    second = second_of("now", now)
    ended = second >= period.end + series.cool_after.total_seconds()
    if ended and not any(step.action == "delete" and not step.waits for step in steps):
        cooling = [*_cooling(series, now, period, described)]
        cooled = sum((step.saves for step in cooling), Saving())
        steps = [*cooling, *(step if step.action != "delete" else _after(cooled, step) for step in steps)]
    steps = [replace(step, waits=step.waits or waits) for step in steps]
    return Due(tuple(steps), refused, kept=past and not series.delete)


def _after(cooled: Saving, deletion: MaintenanceStep) -> MaintenanceStep:
    """Return the deletion of a table that is cooled first: it saves the rest."""
    saves = deletion.saves
    rest = replace(
        saves,
        read_units=saves.read_units - cooled.read_units,
        write_units=saves.write_units - cooled.write_units,
        money=saves.money if cooled.money is None else _less(saves.money, cooled.money),
    )
    return replace(deletion, saves=rest)


def _creation(series: Series, period: Period) -> MaintenanceStep:
    hot = series.new.get(period, series.hot)
    params = series.creation(period, hot)
    each = _provisioned(hot, [str(index["IndexName"]) for index in params.get("GlobalSecondaryIndexes", ())])
    money = _monthly(series.prices, hot.table_class, *each, 0.0)
    return MaintenanceStep(
        table=series.table(period),
        action="create",
        what=f"for {datetime_of(period.start):%Y-%m-%d %H:%M %Z}: {hot}",
        operation="CreateTable",
        params=params,
        saves=Saving(0.0 - each[0], 0.0 - each[1], money=None if money is None else -money),
    )


def _provisioned(throughput: Throughput, indexes: Iterable[str]) -> tuple[float, float]:
    each = [throughput, *(throughput.of_index(name) for name in indexes)]
    return float(sum(one.read_units or 0 for one in each)), float(sum(one.write_units or 0 for one in each))


def _monthly(prices: Prices | None, table_class: str, read: float, write: float, size: float) -> float | None:
    if prices is None:
        return None
    a_read, a_write, a_gb = prices.of_class(table_class)
    return _HOURS_A_MONTH * (read * a_read + write * a_write) + size / GB * a_gb


def _other_schema(series: Series, described: Mapping[str, Any]) -> str:
    """Return why a table is not one of the series, though its name is; empty if it is."""

    def keys(given: Mapping[str, Any]) -> tuple[KeySchema, dict[str, str]]:
        schema = KeySchema.of(given["KeySchema"], "table")
        types = {each["AttributeName"]: each["AttributeType"] for each in given["AttributeDefinitions"]}
        return schema, {name: types.get(name, "") for name in schema.names}

    if keys(described) == keys(series.schema):
        return ""
    return "has another key schema than the series, so it is left alone; rename one of them"


# Cooling down.


def _cooling(series: Series, now: datetime, period: Period, described: Mapping[str, Any]) -> Iterator[MaintenanceStep]:
    cold = series.cold
    if cold is None:
        return
    table = series.table(period)
    table_class = _class_of(described)
    before = _units_of(described)
    changes, after = _throughput_changes(cold, described)
    if changes:
        money = [_monthly(series.prices, table_class, *units, 0.0) for units in (before, after)]
        yield MaintenanceStep(
            table=table,
            action="set throughput",
            what=_shown(described, cold, before, after),
            operation="UpdateTable",
            params={"TableName": table, **changes},
            saves=Saving(before[0] - after[0], before[1] - after[1], money=_less(money[0], money[1])),
            waits=_no_decrease(described, changes, now),
        )
    if cold.table_class != table_class:
        size = _bytes_of(described)
        yield MaintenanceStep(
            table=table,
            action="set table class",
            what=f"{table_class} → {cold.table_class}",
            operation="UpdateTable",
            params={"TableName": table, "TableClass": cold.table_class},
            saves=Saving(
                money=_less(
                    _monthly(series.prices, table_class, *after, size),
                    _monthly(series.prices, cold.table_class, *after, size),
                )
            ),
        )


def _shown(
    described: Mapping[str, Any], cold: Throughput, before: tuple[float, float], after: tuple[float, float]
) -> str:
    def text(units: tuple[float, float]) -> str:
        return f"{units[0]:,.0f} read and {units[1]:,.0f} write units"

    was = "on-demand" if _on_demand(described) else text(before)
    return f"{was} → {cold if cold.on_demand else text(after) + ' a second'}"


def _less(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before - after


def _on_demand(described: Mapping[str, Any]) -> bool:
    return (described.get("BillingModeSummary") or {}).get("BillingMode") == "PAY_PER_REQUEST"


def _class_of(described: Mapping[str, Any]) -> str:
    return str((described.get("TableClassSummary") or {}).get("TableClass") or "STANDARD")


def _indexes(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(described.get("GlobalSecondaryIndexes") or ())


def _units_of(described: Mapping[str, Any]) -> tuple[float, float]:
    """Return the provisioned read and write units of a table and its indexes."""
    each = [throughput_of(one).provisioned for one in (described, *_indexes(described))]
    return sum(one.read or 0.0 for one in each), sum(one.write or 0.0 for one in each)


def _bytes_of(described: Mapping[str, Any]) -> float:
    indexes = chain(_indexes(described), described.get("LocalSecondaryIndexes") or ())
    return float(described.get("TableSizeBytes") or 0) + sum(float(one.get("IndexSizeBytes") or 0) for one in indexes)


def _throughput_changes(cold: Throughput, described: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[float, float]]:
    """Return the parameters of the UpdateTable that cools a table, and its provisioned units afterwards."""
    was_on_demand = _on_demand(described)
    changes: dict[str, Any] = {}
    if was_on_demand != cold.on_demand:
        changes["BillingMode"] = "PAY_PER_REQUEST" if cold.on_demand else "PROVISIONED"
    own, *after = [
        _cooled(one, throughput, switched=was_on_demand)
        for one, throughput in (
            (described, cold),
            *((index, cold.of_index(str(index["IndexName"]))) for index in _indexes(described)),
        )
    ]
    changes |= own[0]
    updates = [
        {"Update": {"IndexName": index["IndexName"], **change}}
        for index, (change, _) in zip(_indexes(described), after, strict=True)
        if change
    ]
    if updates:
        changes["GlobalSecondaryIndexUpdates"] = updates
    units = [each for _, each in (own, *after)]
    return changes, (sum(read for read, _ in units), sum(write for _, write in units))


def _cooled(
    described: Mapping[str, Any], cold: Throughput, *, switched: bool
) -> tuple[dict[str, Any], tuple[float, float]]:
    """Return the change of a table or an index, and its provisioned units afterwards; nothing is ever raised."""
    now = throughput_of(described)
    if cold.on_demand:
        wanted = cold.settings(warm=False).get("OnDemandThroughput")
        maxima = (cold.max_read_units, cold.max_write_units)
        less = any(
            most is not None and (is_now is None or is_now > most)
            for most, is_now in zip(maxima, now.maximum, strict=True)
        )
        return ({"OnDemandThroughput": wanted} if wanted and less else {}), (0.0, 0.0)
    assert cold.read_units is not None and cold.write_units is not None
    read, write = float(cold.read_units), float(cold.write_units)
    if not switched:
        read, write = min(read, now.provisioned.read or read), min(write, now.provisioned.write or write)
    if not switched and (read, write) == tuple(now.provisioned):
        return {}, (read, write)
    return {"ProvisionedThroughput": {"ReadCapacityUnits": int(read), "WriteCapacityUnits": int(write)}}, (read, write)


def _no_decrease(described: Mapping[str, Any], changes: Mapping[str, Any], now: datetime) -> str:
    """Return until when the service allows no decrease of a table or an index; empty if it allows one."""
    changed = {update["Update"]["IndexName"] for update in changes.get("GlobalSecondaryIndexUpdates", ())}
    touched = [described] if "ProvisionedThroughput" in changes else []
    touched += [index for index in _indexes(described) if index["IndexName"] in changed]
    for one in touched:
        throughput = one.get("ProvisionedThroughput") or {}
        today, last = int(throughput.get("NumberOfDecreasesToday") or 0), throughput.get("LastDecreaseDateTime")
        last = None if last is None else last.astimezone(UTC)
        if today < _FREE_DECREASES or (last is not None and last.date() < now.date()):
            continue
        tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        again = tomorrow if today >= _MOST_DECREASES or last is None else min(tomorrow, last + _HOUR)
        if again > now:
            return f"{today} decreases today; the next one is allowed at {again:%Y-%m-%d %H:%M %Z}"
    return ""


# Archiving and deleting.


def _removal(series: Series, now: datetime, period: Period, state: TableState) -> tuple[list[MaintenanceStep], str]:
    described = state.description
    table = series.table(period)
    refused = ""
    if series.delete and described.get("DeletionProtectionEnabled"):
        refused = "is protected against deletion; remove the protection (UpdateTable), or raise keep="
    elif series.delete and described.get("Replicas"):
        refused = "has replicas in other Regions; delete them first"
    steps: list[MaintenanceStep] = []
    complete = True
    if series.exported_to is not None:
        complete, steps = _archiving(series, now, period, state)
    if series.delete and not refused:
        read, write = _units_of(described)
        size, items = _bytes_of(described), float(described.get("ItemCount") or 0)
        mean = ceil(float(described.get("TableSizeBytes") or 0) / items) if items else 0
        money = _monthly(series.prices, _class_of(described), read, write, size)
        deletion = MaintenanceStep(
            table=table,
            action="delete",
            what=f"{items:,.0f} {'item' if items == 1 else 'items'} of {_span(period)}",
            operation="DeleteTable",
            params={"TableName": table},
            saves=Saving(read, write, size, money, deletes=items * write_units(mean)),
            waits="" if complete else "its export is not complete",
        )
        steps.append(deletion)
    return steps, refused


def _span(period: Period) -> str:
    ends = [datetime_of(second) for second in (period.start, period.end)]
    form = "%Y-%m-%d %H:%M %Z" if any(end.hour or end.minute or end.second for end in ends) else "%Y-%m-%d"
    return " to ".join(f"{end:{form}}" for end in ends)


def _archiving(series: Series, now: datetime, period: Period, state: TableState) -> tuple[bool, list[MaintenanceStep]]:
    """Return whether a table is archived, and the steps that are left until it is."""
    assert series.exported_to is not None
    table, bucket = series.table(period), series.exported_to.bucket
    prefix = series.exported_to.prefix_of(table)
    described = state.description
    closed = datetime_of(series.past_keeping_since(period) + SETTLED_SECONDS)
    ours = [
        export
        for export in state.exports
        if export.get("S3Bucket") == bucket
        and str(export.get("S3Prefix") or "").strip("/") == prefix
        and export.get("TableId", described.get("TableId")) == described.get("TableId")
        and export.get("ExportType", "FULL_EXPORT") == "FULL_EXPORT"
        and not export.get("FilterSpecification")
    ]
    complete = [export.get("ExportTime") for export in ours if export.get("ExportStatus") == "COMPLETED"]
    if any(time is not None and time >= closed for time in complete):
        return True, []
    waits = "" if now >= closed else f"clients may still write to it until {closed:%Y-%m-%d %H:%M %Z}"
    running = next((export for export in ours if export.get("ExportStatus") == "IN_PROGRESS"), None)
    if running is not None:
        waits = f"the export {running.get('ExportArn')} is in progress"
    failed = next((export for export in ours if export.get("ExportStatus") == "FAILED"), None)
    again = "" if failed is None else f", again, because an export failed: {failed.get('FailureMessage') or 'unknown'}"
    # The same token for two runs at once, which then make one export; another one after each export that was made.
    identity = f"{described.get('TableArn')} {described.get('TableId')} {bucket}/{prefix} {len(ours)}"
    size = float(described.get("TableSizeBytes") or 0)
    steps = []
    if not state.backups and running is None:
        steps.append(
            MaintenanceStep(
                table=table,
                action="turn on backups",
                what="point-in-time recovery, which an export needs",
                operation="UpdateContinuousBackups",
                params={
                    "TableName": table,
                    "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
                },
                waits=waits,
            )
        )
    steps.append(
        MaintenanceStep(
            table=table,
            action="export",
            what=f"{shown_size(size)} to s3://{bucket}/{prefix}{again}",
            operation="ExportTableToPointInTime",
            params={
                "TableArn": described.get("TableArn"),
                "S3Bucket": bucket,
                "S3Prefix": prefix,
                "ExportFormat": "DYNAMODB_JSON",
                "ClientToken": hashlib.sha256(identity.encode()).hexdigest()[:36],
            },
            saves=Saving(once=None if series.prices is None else size / GB * series.prices.export_gb),
            waits=waits,
        )
    )
    return False, steps
