"""Time series for tests, and the promise that one reads like a plain table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr, Key
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, TimeSeries, bulk_load
from shardkit.timeseries import Tuning
from shardkit.timeseries.programs import SeriesPrograms

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

    from shardkit.timeseries.periods import PeriodLength

Item = dict[str, Any]

NOW = datetime(2016, 4, 15, 12, tzinfo=UTC)
SCHEMA: Mapping[str, Any] = {
    "KeySchema": [
        {"AttributeName": "Customer", "KeyType": "HASH"},
        {"AttributeName": "Time", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Customer", "AttributeType": "S"},
        {"AttributeName": "Time", "AttributeType": "S"},
        {"AttributeName": "Url", "AttributeType": "S"},
        {"AttributeName": "Size", "AttributeType": "N"},
    ],
    "LocalSecondaryIndexes": [
        {
            "IndexName": "by-size",
            "KeySchema": [
                {"AttributeName": "Customer", "KeyType": "HASH"},
                {"AttributeName": "Size", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "by-url",
            "KeySchema": [
                {"AttributeName": "Url", "KeyType": "HASH"},
                {"AttributeName": "Time", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
}
CLICKS: Mapping[str, Any] = {
    "KeySchema": SCHEMA["KeySchema"],
    "AttributeDefinitions": SCHEMA["AttributeDefinitions"][:2],
}
BY_ID: Mapping[str, Any] = {
    "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
}
TIMES = (
    "2015-12-31T23:59:59.999Z",
    "2016-01-01T00:00:00Z",
    "2016-01-31T23:59:59Z",
    "2016-01-31T23:59:60Z",
    "2016-02-01T00:00:00.000001Z",
    "2016-02-28T23:59:59Z",
    "2016-02-29T00:00:00Z",
    "2016-02-29T23:59:59.5Z",
    "2016-03-01T00:00:00Z",
    "2016-03-13T07:00:00Z",
    "2016-03-31T23:59:59Z",
    "2016-04-01T00:00:00Z",
)
"""Around the borders of months: a new year, a leap second, a leap day, the start of daylight saving in New York."""
ENDS = (*TIMES, "2016-02", "2016-02-29", "2016-03-01", "2016-0", "2017")


def a_series(resource: Any, **options: Any) -> TimeSeries:
    """A monthly series of clicks, under a name that no other test has."""
    given: dict[str, Any] = {"at": "Time", "period": "month", "schema": SCHEMA, "clock": lambda: NOW}
    return TimeSeries(resource, f"clicks-{uuid.uuid4().hex[:8]}", **given | {"missing": "create"} | options)


def a_plain_table(resource: DynamoDBServiceResource) -> Table:
    request: dict[str, Any] = {**SCHEMA, "TableName": f"plain-{uuid.uuid4().hex}", "BillingMode": "PAY_PER_REQUEST"}
    table = resource.create_table(**request)
    if table.table_status != "ACTIVE":
        table.wait_until_exists()
    return table


@dataclass(frozen=True)
class Case:
    """Items of one customer, a Query on them, and how its answer is read."""

    items: list[Item]
    index: str | None
    condition: tuple[str, str, str] | None
    descending: bool
    filtered: bool
    limits: list[int | None]
    at: int

    def query(self, pk: str) -> dict[str, Any]:
        condition: Any = Key("Url" if self.index == "by-url" else "Customer").eq(pk)
        if self.condition is not None and self.index != "by-size":
            op, *values = self.condition
            condition &= getattr(Key("Time"), op)(*(sorted(values) if op == "between" else values[:1]))
        return {
            "KeyConditionExpression": condition,
            **({} if self.index is None else {"IndexName": self.index}),
            **({"ScanIndexForward": False} if self.descending else {}),
            **({"FilterExpression": Attr("Keep").eq(True)} if self.filtered else {}),
        }


def cases() -> st.SearchStrategy[Case]:
    ops = st.sampled_from(["eq", "lt", "lte", "gt", "gte", "begins_with", "between", "between"])
    return st.builds(
        Case,
        items=st.lists(
            st.fixed_dictionaries({"Time": st.sampled_from(TIMES), "Size": st.integers(0, 3), "Keep": st.booleans()}),
            max_size=9,
            unique_by=lambda item: item["Time"],
        ),
        index=st.sampled_from([None, None, "by-url", "by-size"]),
        condition=st.none() | st.tuples(ops, st.sampled_from(ENDS), st.sampled_from(ENDS)),
        descending=st.booleans(),
        filtered=st.booleans(),
        limits=st.lists(st.sampled_from([None, 1, 2, 3, 5]), min_size=1, max_size=3),
        at=st.integers(1, 6),
    )


def check_reads_like_one_table(series: TimeSeries, plain: Table, case: Case) -> None:
    """Every way to read a Query's answer has the items of the plain table, in the same order.

    On an index that another attribute sorts, the order is by period first.
    """
    pk = uuid.uuid4().hex
    items = [{**item, "Customer": pk, "Url": pk} for item in case.items]
    for item in items:
        series.put_item(Item=item)
        plain.put_item(Item=item)
    query = case.query(pk)
    expected: list[Item] = plain.query(**query)["Items"]
    if case.index == "by-size":
        programs = programs_of(series)

        def sizes(items: list[Item]) -> list[tuple[Any, Any]]:
            return [(programs.series.period_of(item, programs.form), item["Size"]) for item in items]

        assert sorted(sizes(expected), reverse=case.descending) == sizes([*series.query_items(**query)])
    else:
        assert [*series.query_items(**query)] == expected
    assert by_time(paged(series, query, case.limits)) == by_time(expected)
    if case.index != "by-size":
        assert paged(series, query, case.limits) == expected
        stream = series.query_items(**query, max_items=case.at)
        first = [*stream]
        assert first == expected[: case.at]
        if stream.last_evaluated_key is not None:
            resumed = paged(series, query, case.limits, stream.last_evaluated_key)
            assert first + resumed == expected
        if expected[case.at :] and case.index is None:
            key = {name: expected[case.at - 1][name] for name in ("Customer", "Time")}
            assert paged(series, query, case.limits, key) == expected[case.at :]


def paged(series: TimeSeries, query: dict[str, Any], limits: list[int | None], start: Any = None) -> list[Item]:
    found: list[Item] = []
    for number in range(200):
        limit = limits[number % len(limits)]
        asked = query | ({} if limit is None else {"Limit": limit})
        page = series.query(**asked | ({} if start is None else {"ExclusiveStartKey": start}))
        assert page["Count"] == len(page["Items"]) <= (limit or len(TIMES))
        found += page["Items"]
        if "LastEvaluatedKey" not in page:
            return found
        start = page["LastEvaluatedKey"]
    raise AssertionError("paging does not end")


def programs_of(series: TimeSeries) -> SeriesPrograms:
    programs = series.runner.programs
    assert isinstance(programs, SeriesPrograms)
    return programs


def by_time(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item["Time"])


STRATEGIES = (None, CalculatedSuffix("Time", shards=3))
PERIODS: tuple[PeriodLength, ...] = ("month", "week", timedelta(hours=7))


def a_control_table(resource: DynamoDBServiceResource) -> Table:
    """A table for plans, with other attribute names than the tables of a series."""
    table = resource.create_table(
        TableName=f"control-{uuid.uuid4().hex[:8]}",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "What", "KeyType": "HASH"}, {"AttributeName": "Which", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("What", "Which")],
    )
    table.wait_until_exists()
    return table


class Planned:
    """A daily series whose third day has more shards than the others."""

    days = (13, 14, 15, 16)
    shards = (3, 3, 12, 3)

    def __init__(self, resource: DynamoDBServiceResource) -> None:
        self.resource = resource
        self.control = a_control_table(resource)
        self.name = f"clicks-{uuid.uuid4().hex[:8]}"
        self.now = datetime(2016, 4, self.days[0], 23, 30, tzinfo=UTC)

    def settings(self, shards: int = 3) -> dict[str, Any]:
        """The arguments of a process; its own strategy is that of periods without a plan only."""
        return {
            "name": self.name,
            "at": "Time",
            "period": "day",
            "schema": CLICKS,
            "strategy": CalculatedSuffix("Time", shards=shards),
            "plans": self.control,
            "clock": lambda: self.now,
        }

    def table(self, day: int) -> str:
        return f"{self.name}-2016-04-{day}"

    def heat(self) -> dict[str, tuple[str, float]]:
        """What the hottest keys took until now: the second day's most by far."""
        peaks = dict(zip(self.days, (100.0, 9000.0, 100.0), strict=False))
        return {self.table(day): ("c1", units) for day, units in peaks.items() if day == self.now.day}

    def items(self) -> list[Item]:
        return [
            {"Customer": "c1", "Time": f"2016-04-{day}T{hour:02}:00:00Z", "N": 100 * day + hour}
            for day in self.days
            for hour in range(8)
        ]

    def check_stored(self, items: list[Item]) -> None:
        """The tables have exactly these items, each on the shard that its own period's plan says."""
        for day, shards in zip(self.days, self.shards, strict=True):
            strategy = CalculatedSuffix("Time", shards=shards)
            stored = self.resource.Table(self.table(day)).scan()["Items"]
            of_day = [item for item in items if item["Time"][8:10] == str(day)]
            keys = [strategy.physical_key("c1", strategy.shard_of("c1", item)) for item in of_day]
            expected = [{**item, "Customer": key} for item, key in zip(of_day, keys, strict=True)]
            assert by_time(stored) == by_time(expected)


def check_periods_with_plans(planned: Planned) -> None:
    """Days with other numbers of shards read and write like one table, by every operation, in every process."""
    resource = planned.resource
    tuner = TimeSeries(resource, **planned.settings())
    while planned.now.day < planned.days[-1]:
        tuner.maintain(tuning=Tuning(heat=planned.heat(), deployed=True))
        planned.now += timedelta(days=1)
    one, other = (TimeSeries(resource, **planned.settings(shards)) for shards in (3, 7))
    items = planned.items()
    assert bulk_load(other, items[::2]).written == 16
    with one.batch_writer() as batch:
        for item in items[1::4]:
            batch.put_item(Item=item)
    for item in items[3::8]:
        other.put_item(Item=item)  # of days that have ended, too
    one.transact_write_items(TransactItems=[{"Put": {"Item": item}} for item in items[7::8]])
    planned.check_stored(items)
    c1: dict[str, Any] = {"KeyConditionExpression": Key("Customer").eq("c1")}
    for series in (one, other, TimeSeries(resource, **planned.settings(9))):
        assert [*series.query_items(**c1)] == items
        assert [*series.query_items(**c1, ScanIndexForward=False)] == items[::-1]
        assert paged(series, c1, [5]) == items
        assert paged(series, c1 | {"ScanIndexForward": False}, [3, 7]) == items[::-1]
        assert by_time([*series.scan_items()]) == by_time([*series.scan_items(segments=3)]) == items
        keys = [{name: item[name] for name in ("Customer", "Time")} for item in items]
        assert series.batch_get_items(keys)["Items"] == items
        assert [series.get_item(Key=key).get("Item") for key in keys[::5]] == items[::5]
        asked: Any = [{"Get": {"Key": key}} for key in keys[::6]]
        assert [found["Item"] for found in series.transact_get_items(TransactItems=asked)["Responses"]] == items[::6]
        assert [series.logical_item(series.physical_item(item)) for item in items] == items
        cut = series.query_items(**c1, max_items=11)
        first = [*cut]
        assert [*first, *series.query_items(**c1, ExclusiveStartKey=cut.last_evaluated_key or {})] == items
    late = {name: items[0][name] for name in ("Customer", "Time")}
    other.update_item(Key=late, UpdateExpression="SET N = :n", ExpressionAttributeValues={":n": 0})
    assert one.get_item(Key=late)["Item"]["N"] == 0
    one.delete_item(Key=late)
    planned.check_stored(items[1:])
    assert {item["What"] for item in planned.control.scan()["Items"]} == {f"shardkit:plan:{planned.name}"}
