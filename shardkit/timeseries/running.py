"""Run the maintenance of a time series: look at the tables, plan the steps, and carry them out.

Nothing is remembered between runs. Each step is decided from the description of its table at that moment: so a run
that was stopped is finished by the next one, and two runs at once do no harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from shardkit.core.machine import Program, Send, Wait
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, MaintenanceError
from shardkit.timeseries.control import POLL_SECONDS, is_missing, listed, settled
from shardkit.timeseries.maintenance import TableState, due_of, plan_of, to_create
from shardkit.timeseries.periods import Period, datetime_of, second_of
from shardkit.timeseries.plans import Plans, Tuning, earlier
from shardkit.timeseries.settings import Series
from shardkit.timeseries.steps import Action, Maintenance, MaintenanceReport, MaintenanceStep, steps_text

_TRIES = 3
_COOLING = frozenset({"set throughput", "set table class"})
# Errors that time heals: another run or the service is at work on the table.
_LATER = frozenset(
    {
        "ContinuousBackupsUnavailableException",
        "ExportConflictException",
        "LimitExceededException",
        "PointInTimeRecoveryUnavailableException",
        "ResourceInUseException",
        "ResourceNotFoundException",
        "TableNotFoundException",
    }
)


Failed = list[tuple[MaintenanceStep, Exception]]


def planned(
    plans: Plans, now: datetime, tuning: Tuning | None = None, failed: Failed | None = None
) -> Program[Maintenance]:
    """Look at the tables, and plan their maintenance; with ``failed``, without tables that cannot be looked at."""
    series, now = plans.series, datetime_of(second_of("now", now))
    states: dict[Period, TableState] = {}
    unknown: list[Period] = []
    for period in sorted((yield from listed(series))):
        look = Send("DescribeTable", {"TableName": series.table(period)})
        try:
            answer = yield look
            if (state := (yield from _state(series, now, period, answer["Table"]))) is not None:
                states[period] = state
        except Exception as error:
            if is_missing(error):
                continue
            if failed is None:
                raise
            unknown.append(period)
            step = MaintenanceStep(
                table=series.table(period),
                action="describe",
                what="nothing is done with it",
                operation=look.operation,
                params=look.params,
            )
            failed.append((step, error))
    if plans.table is None:
        if tuning is not None:
            raise ConfigurationError("tuning: needs plans=, where the plans of periods are; make the series with it")
        return plan_of(series, now, states, unknown)
    new = [period for period in to_create(series, now) if period not in states and period not in unknown]
    first = new[0] if new else series.calendar.at(max([series.current(now), *states]).number + 1)
    last = max((period for period in states if period < first), default=first)
    yield from plans.read([*new, *earlier(series, first), last])
    chosen, refused, advice = plans.default, {}, ""
    if tuning is not None:
        proposed = tuning.next_plan(plans, first)
        if not tuning.deployed:
            advice = f"{series.table(first)}: {proposed}"
        elif last == first or last in plans:
            chosen = proposed
        else:
            why = f"not tuned, because no process with plans= has used {series.table(last)}; deploy plans= first"
            refused = {series.table(first): why}
    of_new = {period: plans[period] if period in plans else chosen for period in new}  # noqa: SIM401 - no dict
    raised = {period: plan.raised(series.hot) for period, plan in of_new.items()}
    plan = plan_of(replace(series, new=raised), now, states, unknown)
    return replace(plan, refused={**plan.refused, **refused}, plans=of_new, advice=advice)


def _state(series: Series, now: datetime, period: Period, described: Mapping[str, Any]) -> Program[TableState | None]:
    """Return what a table's maintenance depends on; None if the table is gone."""
    leaving = series.is_past_keeping(period, series.current(now)) and described.get("TableStatus") != "DELETING"
    if series.exported_to is None or not leaving:
        return TableState(described)
    try:
        answer = yield Send("DescribeContinuousBackups", {"TableName": series.table(period)})
    except Exception as error:
        if not is_missing(error):
            raise
        return None
    recovery = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription") or {}
    exports: list[Mapping[str, Any]] = []
    more: dict[str, Any] = {}
    while True:
        listing = yield Send("ListExports", {"TableArn": described["TableArn"], **more})
        for summary in listing.get("ExportSummaries", ()):
            export = yield Send("DescribeExport", {"ExportArn": summary["ExportArn"]})
            exports.append(export["ExportDescription"])
        if not listing.get("NextToken"):
            break
        more = {"NextToken": listing["NextToken"]}
    return TableState(described, recovery.get("PointInTimeRecoveryStatus") == "ENABLED", tuple(exports))


def maintained(
    plans: Plans, now: datetime, on_plan: Callable[[Maintenance], object], tuning: Tuning | None = None
) -> Program[MaintenanceReport]:
    """Plan the maintenance of a time series, show the plan, and carry it out."""
    now = datetime_of(second_of("now", now))
    failed: Failed = []
    plan = yield from planned(plans, now, tuning, failed)
    on_plan(plan)
    for each, proposed in plan.plans.items():
        yield from plans.settle([each], proposed)
    series = replace(plans.series, new={each: plans[each].raised(plans.series.hot) for each in plan.plans})
    done: list[MaintenanceStep] = []
    waiting: list[MaintenanceStep] = []
    first: dict[str, MaintenanceStep] = {}
    for step in plan.steps:
        first.setdefault(step.table, step)
    for step in first.values():
        period = series.period_of_table(step.table)
        assert period is not None
        try:
            yield from _carried_out(series, now, period, done, waiting, failed)
        except Exception as error:  # noqa: BLE001 - the other tables' steps are done all the same
            failed.append((step, error))
    report = MaintenanceReport(plan, tuple(done), tuple(waiting), tuple(failed))
    if failed:
        reasons = "; ".join(f"{step.action} {step.table}: {error}" for step, error in failed)
        raise MaintenanceError(
            f"{steps_text(len(failed))} of {series.name!r} failed ({reasons:.500}); fix the cause and run it again; "
            "error.report has the other steps",
            report,
        ) from failed[0][1]
    return report


def _carried_out(
    series: Series,
    now: datetime,
    period: Period,
    done: list[MaintenanceStep],
    waiting: list[MaintenanceStep],
    failed: Failed,
) -> Program[None]:
    """Do the first step that a table needs, look at the table again, and so on until it needs none."""
    requested: set[Action] = set()
    refused: tuple[Action, Exception] | None = None
    tries: Counter[Action] = Counter()
    held: dict[Action, str] = {}
    given_up: set[Action] = set()
    while True:
        described = yield from settled(series.table(period))
        state = None if described is None else (yield from _state(series, now, period, described))
        steps = [
            replace(one, waits=one.waits or held.get(one.action, ""))
            for one in due_of(series, now, period, state).steps
            if one.action not in given_up
        ]
        step = next((one for one in steps if not one.waits), None)
        if step is None:
            waiting += steps
            return
        action = step.action
        if refused is not None and refused[0] == action:
            if code_of(refused[1]) not in _LATER:
                failed.append((step, refused[1]))
                given_up.add(action)
            elif tries[action] == _TRIES:
                held[action] = f"{code_of(refused[1])}: {refused[1]}"
            else:
                woken = yield Wait()
                yield Wait(woken + POLL_SECONDS)
        elif action in requested:
            held[action] = "it was requested, which does not show yet"
        if action in held or action in given_up:
            if action in _COOLING:
                continue  # archives and deletions do not need it
            waiting += [replace(one, waits=held[action]) if one is step else one for one in steps if action in held]
            return
        try:
            yield Send(step.operation, step.params)
        except Exception as error:  # noqa: BLE001 - another run may have done the step: look again
            refused = action, error
            tries[action] += 1
        else:
            refused = None
            requested.add(action)
            done.append(step)
            if action == "delete":
                return
