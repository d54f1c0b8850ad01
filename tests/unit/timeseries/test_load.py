"""A load into a time series: every item ends in its period's table, or with a reason, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import PeriodError, Unsharded
from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Response, Send
from shardkit.timeseries.load import SeriesLoad
from shardkit.timeseries.programs import SeriesPrograms
from shardkit.timeseries.settings import Series
from tests.support.fakes import Fault, Service, client_error, drive

NOW = datetime(2016, 4, 15, tzinfo=UTC)
SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
}
MONTHS = ("2015-12", "2016-01", "2016-02", "2016-03", "2016-04", "2016-06")
"""The first is past keeping, the last too far in the future."""


class Tables:
    """The tables of a series, each a service of its own."""

    def __init__(self, existing: Iterable[str], faults: Iterable[Fault] = ()) -> None:
        self._faults = iter(faults)
        self.services = {table: Service(self._faults) for table in existing}
        self.made: list[str] = []

    def answer(self, send: Send, now: float) -> Answer:
        params: Any = send.params
        table = params.get("TableName") or next(iter(params["RequestItems"]))
        if send.operation == "CreateTable":
            self.made.append(table)
            self.services[table] = Service(self._faults)
            return {}
        if table not in self.services:
            return client_error("ResourceNotFoundException")
        if send.operation == "DescribeTable":
            described: Response = {"Table": {"TableName": table, "TableStatus": "ACTIVE"}}
            return described
        return self.services[table].answer(send, now)


def a_series_load(**options: Any) -> tuple[SeriesLoad, SeriesPrograms]:
    missing = options.pop("missing", "create")
    series = Series("clicks", "sk", "month", SCHEMA, keep=3, missing=missing)
    programs = SeriesPrograms(series, Unsharded(), lambda: 0.5, lambda: NOW)
    sharding = programs.shardings["clicks"]
    return SeriesLoad(programs, sharding, **{"workers": 2, "draw": lambda: 0.5, **options}), programs


def times(months: Iterable[str]) -> list[dict[str, Any]]:
    return [
        {"pk": f"c{number % 7}", "sk": f"{month}-09T{number // 60 % 24:02}:{number % 60:02}:00Z", "n": number}
        for number, month in enumerate(months)
    ]


@given(
    months=st.lists(st.sampled_from(MONTHS), max_size=120),
    # So few that no item can meet them at each of its tries, and be given up.
    faults=st.lists(
        st.sampled_from(["none", "throttle", "unprocessed", "500", "lost", "lost after"]), max_size=ATTEMPTS - 1
    ),
    existing=st.sets(st.sampled_from(MONTHS)),
    workers=st.integers(1, 4),
    window=st.integers(1, 60),
    seed=st.integers(0, 9),
)
def test_conservation(
    months: list[str], faults: list[Fault], existing: set[str], workers: int, window: int, seed: int
) -> None:
    load, _ = a_series_load(workers=workers, window=window)
    tables = Tables((f"clicks-{month}" for month in existing), faults)
    items = times(months)
    results = drive(load, items, tables, Random(seed))
    assert sorted(result.place for result in results) == list(range(len(items)))
    refused = {"2015-12"} | {"2016-06"} - existing
    for result in results:
        month = months[result.place]
        assert result.ok == (month not in refused), result.error
        assert result.ok or isinstance(result.error, PeriodError)
    for month in set(months) - refused:
        stored = tables.services[f"clicks-{month}"].items
        assert {item["n"]["N"] for item in stored.values()} == {
            str(number) for number, each in enumerate(months) if each == month
        }
    report = load.report
    assert (report.items, report.written) == (len(items), len([month for month in months if month not in refused]))
    assert sorted(tables.made) == sorted({f"clicks-{month}" for month in {*months} - refused - existing})


def test_at_most_so_many_requests_as_workers() -> None:
    load, _ = a_series_load(workers=3)
    for item in times(MONTHS[1:5] * 50):
        load.put(item)
    load.close()
    sends = []
    while isinstance(step := load.next(0.0), Send):
        sends.append(step)
    assert len(sends) == 3


def test_a_missing_table_fails_its_own_items_only() -> None:
    load, _ = a_series_load(missing="error")
    tables = Tables(["clicks-2016-03"])
    results = drive(load, times(["2016-02", "2016-03"] * 100), tables)
    reasons = {str(result.error) for result in results if not result.ok}
    assert len(reasons) == 1
    assert "the period 2016-02 of 'clicks' has no table" in reasons.pop()
    assert (load.report.written, load.report.failed, load.report.stopped) == (100, 100, 0)
    assert len(tables.services["clicks-2016-03"].items) == 100


def test_a_table_that_is_deleted_meanwhile_fails_its_own_items_only() -> None:
    """Those that it had been given; later ones look for it again."""
    load, programs = a_series_load(window=50)
    for month in ("2016-02", "2016-03"):
        programs.tables.remember(programs.period_to_store({"sk": f"{month}-09T00:00:00Z"}, "item"))
    tables = Tables(["clicks-2016-03"])
    results = drive(load, times(["2016-02", "2016-03"] * 100), tables)
    failed = [result for result in results if not result.ok]
    assert {str(result.error) for result in failed} == {str(client_error("ResourceNotFoundException"))}
    assert len(tables.services["clicks-2016-03"].items) == 100
    assert len(tables.services["clicks-2016-02"].items) == 100 - len(failed) > 0


def test_a_table_that_is_being_deleted_fails_its_own_items_only() -> None:
    """It can neither be written nor be made again yet."""
    load, _ = a_series_load()

    class Deleting(Tables):
        def answer(self, send: Send, now: float) -> Answer:
            if send.params.get("TableName") == "clicks-2016-02":
                gone: Response = {"Table": {"TableName": "clicks-2016-02", "TableStatus": "DELETING"}}
                return gone if send.operation == "DescribeTable" else client_error("ResourceInUseException")
            return super().answer(send, now)

    results = drive(load, times(["2016-02", "2016-03"] * 100), Deleting(["clicks-2016-03"]))
    assert {str(result.error).partition(";")[0] for result in results if not result.ok} == {
        "table 'clicks-2016-02': must be active within 600 s of its creation, got DELETING"
    }
    assert (load.report.written, load.report.failed, load.report.stopped) == (100, 100, 0)


def test_a_table_that_the_account_cannot_have_fails_its_own_items_only() -> None:
    """Also those that come later: the table is asked for once."""
    load, _ = a_series_load(window=50)
    refused = client_error("LimitExceededException", "Subscriber limit exceeded: 2,500 tables")
    asked: list[Send] = []

    class Full(Tables):
        def answer(self, send: Send, now: float) -> Answer:
            if send.operation == "CreateTable":
                asked.append(send)
                return refused
            return super().answer(send, now)

    results = drive(load, times(["2016-02", "2016-03"] * 100), Full(["clicks-2016-03"]))
    assert {result.error for result in results if not result.ok} == {refused}
    assert (load.report.written, load.report.failed, load.report.stopped, len(asked)) == (100, 100, 0, 1)


@pytest.mark.parametrize("limit", [0, 3])
def test_failures_are_counted_over_all_tables(limit: int) -> None:
    load, _ = a_series_load(max_failures=limit)
    results = drive(load, times(["2016-03", "2015-12"] * 600), Tables(["clicks-2016-03"]))
    assert load.fatal is not None
    assert f"more than max_failures={limit}" in str(load.fatal)
    assert len(results) == load.report.items


def test_an_invalid_item_makes_no_table() -> None:
    load, _ = a_series_load()
    tables = Tables([])
    (result,) = drive(load, [{"sk": "2016-03-09T00:00:00Z"}], tables)
    assert "pk" in str(result.error)
    assert tables.made == []


def test_what_one_table_refuses_to_all_stops_every_load() -> None:
    load, _ = a_series_load()

    class Refusing(Tables):
        def answer(self, send: Send, now: float) -> Answer:
            if send.operation == "DescribeTable":
                return client_error("AccessDeniedException")
            return super().answer(send, now)

    results = drive(load, times(["2016-02", "2016-03"] * 100), Refusing([]))
    assert {str(result.error) for result in results} == {str(client_error("AccessDeniedException"))}
    assert load.report.stopped == load.report.failed == 200
