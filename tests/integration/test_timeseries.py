"""A TimeSeries on real engines: it reads like one table, and its tables are created, dialled down and deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import TimeSeries, bulk_load
from shardkit.timeseries import Throughput
from tests.support.engines import EngineName
from tests.support.series import (
    CLICKS,
    STRATEGIES,
    Case,
    Planned,
    a_plain_table,
    a_series,
    cases,
    check_periods_with_plans,
    check_reads_like_one_table,
)

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

pytestmark = pytest.mark.integration


@pytest.fixture
def tables(engine_resource: DynamoDBServiceResource) -> tuple[list[TimeSeries], Table]:
    return [a_series(engine_resource, strategy=strategy) for strategy in STRATEGIES], a_plain_table(engine_resource)


@pytest.mark.long_search
@settings(max_examples=settings().max_examples // 6)
@given(case=cases(), number=st.integers(0, 1))
def test_reads_like_one_table(
    tables: tuple[list[TimeSeries], Table], engine_name: EngineName, number: int, case: Case
) -> None:
    series, plain = tables
    check_reads_like_one_table(series[number], plain, _known(case) if engine_name == "dynamodb_local" else case)


def _known(case: Case) -> Case:
    """A case without what DynamoDB Local refuses: to go on at a bound of an index with the table's sort key."""
    exclusive = {"lte": "lt", "gte": "gt", "between": "gt"}
    if case.index != "by-url" or case.condition is None:
        return case
    operator, low, high = case.condition
    return replace(case, condition=(exclusive.get(operator, operator), low, high))


def test_maintain(engine_resource: DynamoDBServiceResource) -> None:
    now = [datetime(2014, 7, 31, 23, 30, tzinfo=UTC)]
    series = a_series(
        engine_resource,
        schema=CLICKS,  # dynoxide does not change the throughput of an index
        clock=lambda: now[0],
        hot=Throughput(read_units=500, write_units=800),
        cold=Throughput(read_units=5, write_units=1),
        keep=1,
        delete=True,
        missing="error",
    )
    assert [step.action for step in series.maintain().done] == ["create", "create"]
    items: list[dict[str, Any]] = [
        {"Customer": f"c{n}", "Time": f"2014-0{7 + n % 2}-01T00:00:{n % 60:02}Z", "Url": "/", "Size": n}
        for n in range(100)
    ]
    assert bulk_load(series, items).written == 100
    now[0] = datetime(2014, 9, 1, 1, tzinfo=UTC)
    done = [(step.action, step.table[-7:]) for step in series.maintain().done]
    assert done == [("create", "2014-09"), ("set throughput", "2014-08"), ("delete", "2014-07")]
    assert len([*series.scan_items()]) == 50
    assert series.plan().steps == ()


def test_periods_with_plans(engine_resource: DynamoDBServiceResource) -> None:
    check_periods_with_plans(Planned(engine_resource))
