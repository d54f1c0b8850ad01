"""Maintenance follows from what the tables are: in virtual time, stopped anywhere, and by two at once."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit import MaintenanceError, PeriodError, ShardkitError, Unsharded
from shardkit.analysis.prices import Prices
from shardkit.timeseries.control import created
from shardkit.timeseries.plans import Plans
from shardkit.timeseries.running import maintained, planned
from shardkit.timeseries.settings import Series, Throughput
from tests.support.control_plane import EXPORT_SECONDS, Account, Run
from tests.support.fakes import client_error
from tests.support.series import BY_ID, SCHEMA

HOT = Throughput(read_units=5000, write_units=8000, indexes={"by-url": Throughput(read_units=10, write_units=8000)})
COLD = Throughput(read_units=50, write_units=1, table_class="STANDARD_INFREQUENT_ACCESS")
PRICES = Prices(read_unit_hour=0.0001, write_unit_hour=0.0005, gb_month=0.25, infrequent_gb_month=0.1, export_gb=0.1)
HOUR = timedelta(hours=1)
OPERATIONS = (
    *("CreateTable", "DeleteTable", "DescribeContinuousBackups", "DescribeExport", "DescribeTable"),
    *("ExportTableToPointInTime", "ListExports", "ListTables", "UpdateContinuousBackups", "UpdateTable"),
)


def a_series(**options: Any) -> Series:
    given: dict[str, Any] = {
        "name": "clicks",
        "at": "Time",
        "period": "month",
        "schema": SCHEMA,
        "hot": HOT,
        "cold": COLD,
        "keep": 2,
        "archive": "s3://bucket/clicks",
        "delete": True,
        "prices": PRICES,
    }
    return Series(**given | options)


def at(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[arg-type, misc]


def maintain(account: Account, series: Series) -> Any:
    return Run(account, maintained(Plans(series, Unsharded()), account.now, lambda _: None)).to_end()


def plan(account: Account, series: Series) -> Any:
    return Run(account, planned(Plans(series, Unsharded()), account.now)).to_end()


def an_account(series: Series, *moments: datetime) -> Account:
    """An account that was maintained at some times; the tables were written to until their periods ended."""
    account = Account(moments[0])
    for moment in moments:
        account.now = moment
        maintain(account, series)
        for table in account.tables.values():
            table.written = account.now
    return account


def units(account: Account) -> dict[str, tuple[int, int]]:
    described = {name: table.description["ProvisionedThroughput"] for name, table in sorted(account.tables.items())}
    return {name: (one["ReadCapacityUnits"], one["WriteCapacityUnits"]) for name, one in described.items()}


def outcome(account: Account) -> Any:
    described = {name: table.description for name, table in account.tables.items()}
    classes = {name: one["TableClassSummary"]["TableClass"] for name, one in described.items()}
    return units(account), classes, [(export["S3Prefix"], export["ExportStatus"]) for export in account.exports]


def test_the_life_of_a_table() -> None:
    series = a_series()
    account = Account(at(2014, 7, 30, 23))
    assert [step.action for step in maintain(account, series).done] == ["create"]
    account.now = at(2014, 7, 31, 0, 1)  # a day before its start
    assert [(step.action, step.table) for step in maintain(account, series).done] == [("create", "clicks-2014-08")]
    assert maintain(account, series).done == ()
    account.now = at(2014, 8, 1)
    report = maintain(account, series)
    assert [step.action for step in report.done] == ["set throughput", "set table class"]
    assert str(report.plan) == (
        "clicks at 2014-08-01 00:00 UTC: 2 steps\n"
        "  set throughput   clicks-2014-07\n"
        "    5,010 read and 16,000 write units → 60 read and 2 write units a second\n"
        "    saves 4,950 read and 15,998 write units a second, $6,200.62 a month\n"
        "  set table class  clicks-2014-07\n"
        "    STANDARD → STANDARD_INFREQUENT_ACCESS\n"
        "    saves $0.15 a month\n"
        "  in all\n"
        "    saves 4,950 read and 15,998 write units a second, $6,200.77 a month"
    )
    assert units(account) == {"clicks-2014-07": (50, 1), "clicks-2014-08": (5000, 8000)}
    (index,) = account.tables["clicks-2014-07"].description["GlobalSecondaryIndexes"]
    assert index["ProvisionedThroughput"]["WriteCapacityUnits"] == 1
    assert index["ProvisionedThroughput"]["ReadCapacityUnits"] == 10  # never more than before
    account.now = at(2014, 9, 1)
    maintain(account, series)
    account.now = at(2014, 9, 30, 23)
    account.write("clicks-2014-07")
    # Past keeping from October on, but some clients' clocks are late.
    account.now = at(2014, 10, 1)
    report = maintain(account, series)
    assert {step.waits for step in report.waiting if step.action != "delete"} == {
        "clients may still write to it until 2014-10-01 00:15 UTC"
    }
    account.now += HOUR
    assert [step.action for step in maintain(account, series).done] == ["turn on backups", "export"]
    account.now += timedelta(minutes=30)
    report = maintain(account, series)
    assert (report.done, [step.action for step in report.waiting]) == ((), ["export", "delete"])
    assert "export/0 is in progress" in report.waiting[0].waits
    account.now += timedelta(seconds=EXPORT_SECONDS)
    (deletion,) = maintain(account, series).done
    assert (deletion.action, deletion.saves.deletes, deletion.saves.write_units) == ("delete", 2_000_000, 2)
    account.now += HOUR
    assert plan(account, series).steps == ()
    assert "clicks-2014-07" not in units(account)


def moved_on(account: Account, series: Series, start: datetime = datetime(2014, 11, 2, tzinfo=UTC)) -> None:
    for hours in range(4):
        account.now = start + 1.1 * hours * HOUR
        maintain(account, series)


def due() -> tuple[Series, Account]:
    """An account where every kind of step is due, and more than one table has some."""
    series = a_series()
    account = an_account(series, *(at(2014, month, 1) for month in (8, 9)))
    account.now = at(2014, 11, 2)
    return series, account


def test_a_run_that_stops_anywhere_is_finished_by_the_next_one() -> None:
    series, account = due()
    whole = pickle.dumps(account)
    moved_on(account, series)
    expected = outcome(account)
    actions = Counter(operation for operation, _ in account.requests)
    assert actions.keys() == {
        "CreateTable",
        "DeleteTable",
        "ExportTableToPointInTime",
        "UpdateContinuousBackups",
        "UpdateTable",
    }
    stops = 0
    for requests in range(200):
        account = pickle.loads(whole)  # noqa: S301
        run = Run(account, maintained(Plans(series, Unsharded()), account.now, lambda _: None))
        if any([run.step() for _ in range(requests)]):  # noqa: C419 - all of them
            break
        stops += 1
        moved_on(account, series)
        assert outcome(account) == expected, requests
        assert all(export["ExportTime"] >= at(2014, 10, 1, 0, 15) for export in account.exports)
    assert stops > 20


@given(st.lists(st.booleans(), max_size=80))
def test_two_at_once(turns: list[bool]) -> None:
    series, account = due()
    alone = pickle.loads(pickle.dumps(account))  # noqa: S301
    moved_on(alone, series)
    runs = [Run(account, maintained(Plans(series, Unsharded()), account.now, lambda _: None)) for _ in range(2)]
    done = [None, None]
    for turn in turns:
        if done[turn] is None:
            done[turn] = runs[turn].step()
    for run, end in zip(runs, done, strict=True):
        if end is None:
            run.to_end()
    moved_on(account, series)
    assert outcome(account) == outcome(alone)


CODES = (
    "AccessDeniedException",
    "ExportConflictException",
    "InternalServerError",
    "LimitExceededException",
    "ResourceInUseException",
    "ResourceNotFoundException",
    "TableNotFoundException",
    "ThrottlingException",
)


@given(st.lists(st.none() | st.sampled_from(CODES), min_size=1, max_size=60))
def test_errors_anywhere(codes: list[str | None]) -> None:
    """Whatever requests fail with, nothing is deleted too early, and later runs do the rest."""
    series, account = due()
    for code in codes:
        account.refused = {} if code is None else dict.fromkeys(OPERATIONS[len(account.requests) % 4 :: 4], code)
        with suppress(ClientError, MaintenanceError):
            maintain(account, series)
        account.now += timedelta(minutes=20)
    account.refused = {}
    moved_on(account, series, account.now)
    assert plan(account, series).steps == ()
    assert "clicks-2014-08" not in account.tables
    assert account.lost == []


def test_a_year_of_days() -> None:
    """Every twelve hours, and every third run stops somewhere: tables come in time, cool down, and go when archived."""
    series = a_series(
        period="day", keep=2, schema=BY_ID, hot=Throughput(read_units=5000, write_units=8000), ahead=25 * HOUR
    )
    account = Account(at(2015, 12, 31, 22))
    maintain(account, series)
    for number in range(1, 2 * 366 + 1):
        account.now = at(2015, 12, 31, 22) + number * 12 * HOUR
        today = series.current(account.now)
        account.write(series.table(today))  # it was made before its first second
        late = series.calendar.at(today.number - 2)
        if series.table(late) in account.tables:
            account.write(series.table(late))
        before = {name: account.archived(name) for name in account.tables}
        run = Run(account, maintained(Plans(series, Unsharded()), account.now, lambda _: None))
        if number % 3:
            run.to_end()
        else:
            any(run.step() is not None for _ in range(number % 50))
        deleted = [name for name, table in account.tables.items() if table.description["TableStatus"] == "DELETING"]
        assert all(before[name] for name in deleted)
        hot = [name for name, (read, _) in units(account).items() if read == 5000 and name not in deleted]
        assert len(hot) <= 3
        assert len(account.tables) <= 8
    made = [name for operation, name in account.requests if operation == "CreateTable"]
    assert len(made) == len(set(made)) == 368
    assert "clicks-2016-02-29" in made
    gone = Counter(name for operation, name in account.requests if operation == "DeleteTable")
    assert len(gone) >= 360


def test_decreases_of_a_day_are_limited() -> None:
    series = a_series(archive=None, keep=None, delete=False)
    account = an_account(series, at(2014, 7, 1), at(2014, 8, 1))
    table = account.tables["clicks-2014-07"].description
    throughput = table["ProvisionedThroughput"]
    throughput.update(
        ReadCapacityUnits=500,
        NumberOfDecreasesToday=4,
        LastDecreaseDateTime=at(2014, 8, 1, 0, 30).astimezone(timezone(-HOUR)),
    )
    account.now = at(2014, 8, 1, 1)
    (step,) = maintain(account, series).waiting
    assert (step.action, step.waits) == (
        "set throughput",
        "4 decreases today; the next one is allowed at 2014-08-01 01:30 UTC",
    )
    account.now = at(2014, 8, 1, 1, 30).astimezone(timezone(timedelta(hours=-7)))
    assert [step.action for step in maintain(account, series).done] == ["set throughput"]
    throughput = account.tables["clicks-2014-07"].description["ProvisionedThroughput"]
    throughput.update(ReadCapacityUnits=500, NumberOfDecreasesToday=27)
    account.now = at(2014, 8, 1, 12)
    (step,) = maintain(account, series).waiting
    assert "allowed at 2014-08-02 00:00 UTC" in step.waits
    account.now = at(2014, 8, 2)
    assert maintain(account, series).waiting == ()


@pytest.mark.parametrize(
    ("options", "described", "reason"),
    [
        ({}, {"DeletionProtectionEnabled": True}, "is protected against deletion"),
        ({}, {"Replicas": [{"RegionName": "eu-west-1"}]}, "has replicas in other Regions"),
        ({}, {"KeySchema": [{"AttributeName": "Time", "KeyType": "HASH"}]}, "has another key schema than the series"),
    ],
)
def test_what_is_not_deleted(options: dict[str, Any], described: dict[str, Any], reason: str) -> None:
    series = a_series(archive=None, **options)
    account = an_account(series, at(2014, 7, 1))
    account.tables["clicks-2014-07"].description.update(described)
    account.now = at(2014, 11, 1, 1)
    report = maintain(account, series)
    assert report.plan.refused["clicks-2014-07"].startswith(reason)
    assert "DeleteTable" not in dict(account.requests)


def test_tables_that_are_kept_are_one_line() -> None:
    series = a_series(archive=None, delete=False, cold=None)
    account = an_account(series, at(2014, 7, 1), at(2014, 8, 1))
    account.now = at(2014, 10, 1, 1)
    assert str(maintain(account, series).plan).splitlines()[-1] == (
        "  kept             clicks-2014-07: 1 table older than keep, because delete is not set"
    )
    account.now = at(2014, 11, 1, 1)
    plan = maintain(account, series).plan
    assert (plan.kept, dict(plan.refused)) == (("clicks-2014-07", "clicks-2014-08"), {})
    assert str(plan).endswith(
        "\n  kept             clicks-2014-07 to clicks-2014-08: 2 tables older than keep, because delete is not set"
    )


def test_an_export_that_does_not_count() -> None:
    """One of an earlier table of this name, one of a part, one to elsewhere, and one from before the last writes."""
    series = a_series()
    account = an_account(series, at(2014, 7, 1))
    good = {
        "S3Bucket": "bucket",
        "S3Prefix": "clicks/clicks-2014-07",
        "TableArn": account.tables["clicks-2014-07"].description["TableArn"],
        "TableId": account.tables["clicks-2014-07"].description["TableId"],
        "ExportTime": at(2014, 10, 1, 0, 15),
        "ExportStatus": "COMPLETED",
        "ClientToken": "",
    }
    bad: list[dict[str, Any]] = [
        {"TableId": "another"},
        {"FilterSpecification": {"KeyConditionExpression": "Customer = :c"}},
        {"ExportType": "INCREMENTAL_EXPORT"},
        {"S3Bucket": "another"},
        {"S3Prefix": "clicks/clicks-2014-06"},
        {"ExportTime": at(2014, 10, 1, 0, 14)},
        {"ExportTime": None},
        {"ExportStatus": "FAILED", "FailureMessage": "no access to the bucket"},
    ]
    account.exports += [{**good, "ExportArn": f"export/{number}", **other} for number, other in enumerate(bad)]
    account.now = at(2014, 11, 1, 1)
    shown = {step.action: step for step in plan(account, series).steps}
    assert shown["delete"].waits == "its export is not complete"
    assert shown["export"].what.endswith("again, because an export failed: no access to the bucket")
    account.exports.append({**good, "ExportArn": "export/good"})
    steps = [step for step in plan(account, series).steps if step.table == "clicks-2014-07"]
    assert [(step.action, step.waits) for step in steps] == [("delete", "")]


def test_an_export_that_fails_is_made_again() -> None:
    series = a_series()
    account = an_account(series, at(2014, 7, 1))
    account.failing_exports = 1
    for hours in range(5):
        account.now = at(2014, 11, 1, 1) + 1.1 * hours * HOUR
        maintain(account, series)
    assert [export["ExportStatus"] for export in account.exports] == ["FAILED", "COMPLETED"]
    assert "clicks-2014-07" not in account.tables


def test_a_table_that_is_being_deleted_is_left_alone() -> None:
    """Its backups and exports can no longer be asked for."""
    series = a_series()
    account = an_account(series, at(2014, 7, 1))
    table = account.tables["clicks-2014-07"]
    table.backups = True
    account.now = at(2014, 11, 1, 1)
    maintain(account, series)
    account.now += HOUR * 2
    assert [step.action for step in maintain(account, series).done] == ["delete"]
    assert table.description["TableStatus"] == "DELETING"
    assert plan(account, series).steps == ()
    # Or it is deleted between two looks.
    account = an_account(series, at(2014, 7, 1))
    account.now = at(2014, 11, 1, 1)
    account.refused = {"DescribeContinuousBackups": "TableNotFoundException"}
    assert {step.table for step in maintain(account, series).done} == {"clicks-2014-11"}


@pytest.mark.parametrize("operation", ["DescribeContinuousBackups", "ListExports"])
def test_a_table_that_cannot_be_looked_at_stops_no_other(operation: str) -> None:
    series, account = due()
    account.refused = {operation: "AccessDeniedException"}
    with pytest.raises(
        MaintenanceError, match=r"^1 step of 'clicks' failed \(describe clicks-2014-08: .*Access"
    ) as caught:
        maintain(account, series)
    assert {step.table for step in caught.value.report.done} == {"clicks-2014-09", "clicks-2014-11"}
    with pytest.raises(Exception, match="AccessDenied"):
        plan(account, series)


def test_a_table_that_waits_for_its_export_is_cooled() -> None:
    """Also if it cannot be: the export and the deletion do not depend on it."""
    series = a_series(keep=0)
    account = an_account(series, at(2014, 7, 1))
    account.now = at(2014, 8, 1, 0, 1)
    shown = {step.action: step for step in plan(account, series).steps}
    assert [*shown] == ["create", "set throughput", "set table class", "turn on backups", "export", "delete"]
    assert shown["set throughput"].saves.read_units + shown["delete"].saves.read_units == 5010
    whole = pickle.dumps(account)
    maintain(account, series)
    assert units(account)["clicks-2014-07"] == (50, 1)
    for error in ("LimitExceededException", "ValidationException"):
        account = pickle.loads(whole)  # noqa: S301
        account.refused = {"UpdateTable": error}
        for hours in range(3):
            account.now = at(2014, 8, 1, 1) + 1.1 * hours * HOUR
            with suppress(MaintenanceError):
                maintain(account, series)
        assert "clicks-2014-07" not in account.tables


@pytest.mark.parametrize("error", ["AccessDeniedException", "ValidationException"])
def test_a_step_that_fails_stops_no_other_table(error: str) -> None:
    series, account = due()
    account.refused = {"UpdateContinuousBackups": error}
    with pytest.raises(
        MaintenanceError, match=r"^1 step of 'clicks' failed \(turn on backups clicks-2014-08"
    ) as caught:
        maintain(account, series)
    report = caught.value.report
    assert [step.action for step, _ in report.failed] == ["turn on backups"]
    assert {step.action for step in report.done} >= {"create", "set throughput"}
    assert pickle.loads(pickle.dumps(caught.value)).report.done == report.done  # noqa: S301


def test_a_table_that_others_are_changing_is_left_to_a_later_run() -> None:
    series, account = due()
    table = account.tables["clicks-2014-09"]
    table.description["GlobalSecondaryIndexes"][0]["IndexStatus"] = "CREATING"
    report = maintain(account, series)
    assert {step.waits for step in report.waiting if step.table == "clicks-2014-09"} == {
        "the table, or one of its indexes, is CREATING"
    }
    assert {step.table for step in report.done} == {"clicks-2014-08", "clicks-2014-11"}
    del table.description["GlobalSecondaryIndexes"][0]["IndexStatus"]
    assert {step.table for step in maintain(account, series).done} == {"clicks-2014-09"}


def test_a_change_that_does_not_show_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    series, account = due()
    monkeypatch.setattr(account, "UpdateTable", lambda **_: {}, raising=False)
    report = maintain(account, series)
    assert account.requests.count(("UpdateTable", "clicks-2014-09")) == 2  # of the throughput, and of the class
    waits = {step.action: step.waits for step in report.waiting if step.table == "clicks-2014-09"}
    assert waits["set throughput"] == "it was requested, which does not show yet"


def test_a_table_that_is_not_active_in_time_is_an_error() -> None:
    series = a_series()
    account = Account(at(2014, 7, 1), change_seconds=3600)
    period = series.current(account.now)
    with pytest.raises(
        ShardkitError, match=r"^table 'clicks-2014-07': must be active within 600 s of .* got CREATING;"
    ):
        Run(account, created(series, period, series.hot)).to_end()


@pytest.mark.parametrize("refusals", [1, 3, 10_000])
def test_a_table_whose_deletion_ends_is_made_again(refusals: int) -> None:
    """CreateTable still finds the old one, and then nothing is there to wait for."""

    class Leaving(Account):
        left = refusals

        def CreateTable(self, *given: Any, **params: Any) -> Any:  # noqa: N802
            self.left -= 1
            if self.left >= 0:
                raise client_error("ResourceInUseException", "Table is being deleted")
            return super().CreateTable(*given, **params)

    series = a_series()
    start = at(2014, 7, 1)
    account = Leaving(start)
    run = Run(account, created(series, series.current(account.now), series.hot))
    if refusals < 10:
        run.to_end()
        assert account.now - start < timedelta(seconds=60)
    else:
        with pytest.raises(PeriodError, match="must be active within 600 s"):
            run.to_end()
    assert ("clicks-2014-07" in account.tables) == (refusals < 10)


def test_a_limit_that_time_heals_is_left_to_a_later_run() -> None:
    series, account = due()
    account.refused = {"CreateTable": "LimitExceededException"}
    report = maintain(account, series)
    (step, *_) = report.waiting
    assert (step.action, step.waits.partition(":")[0]) == ("create", "LimitExceededException")


@pytest.mark.parametrize(
    ("hot", "cold", "changes"),
    [
        (
            Throughput(read_units=100, write_units=200),
            Throughput(max_read_units=10),
            {
                "BillingMode": "PAY_PER_REQUEST",
                "OnDemandThroughput": {"MaxReadRequestUnits": 10},
                "GlobalSecondaryIndexUpdates": [
                    {
                        "Update": {
                            "IndexName": "by-url",
                            "OnDemandThroughput": {"MaxReadRequestUnits": 10},
                        }
                    }
                ],
            },
        ),
        (
            Throughput(max_write_units=20_000, warm_write_units=12_000),
            Throughput(read_units=1, write_units=2),
            {
                "BillingMode": "PROVISIONED",
                "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 2},
                "GlobalSecondaryIndexUpdates": [
                    {
                        "Update": {
                            "IndexName": "by-url",
                            "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 2},
                        }
                    }
                ],
            },
        ),
        (Throughput(), Throughput(), None),
        (Throughput(max_read_units=10), Throughput(max_read_units=20), None),
        (Throughput(read_units=1, write_units=2), Throughput(read_units=10, write_units=20), None),
    ],
)
def test_billing_modes(hot: Throughput, cold: Throughput, changes: Any) -> None:
    series = a_series(hot=hot, cold=cold, archive=None)
    account = an_account(series, at(2014, 7, 1))
    account.now = at(2014, 8, 1, 1)
    steps = [step for step in plan(account, series).steps if step.action == "set throughput"]
    assert [step.params for step in steps] == ([] if changes is None else [{"TableName": "clicks-2014-07", **changes}])
    maintain(account, series)
    assert plan(account, series).steps == ()


def test_a_warm_table() -> None:
    series = a_series(hot=Throughput(warm_read_units=15_000, warm_write_units=12_000, max_write_units=20_000))
    (step,) = plan(Account(at(2014, 7, 1)), series).steps
    assert step.params["WarmThroughput"] == {"ReadUnitsPerSecond": 15_000, "WriteUnitsPerSecond": 12_000}
    assert step.params["OnDemandThroughput"] == {"MaxWriteRequestUnits": 20_000}
    (index,) = step.params["GlobalSecondaryIndexes"]
    assert index["WarmThroughput"] == step.params["WarmThroughput"]
    assert str(series.hot) == (
        "on-demand, at most 20,000 write units a second, warm for 15,000 read and 12,000 write units"
    )


def test_a_table_stays_hot_for_a_while() -> None:
    series = a_series(cool_after=2 * HOUR, ahead=HOUR)
    account = an_account(series, at(2014, 7, 31, 22, 59), at(2014, 7, 31, 23))
    assert [name for _, name in account.requests] == ["clicks-2014-07", "clicks-2014-08"]
    account.now = at(2014, 8, 1, 1, 59)
    assert plan(account, series).steps == ()
    account.now = at(2014, 8, 1, 2)
    assert len(plan(account, series).steps) == 2
