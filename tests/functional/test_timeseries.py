"""A TimeSeries over moto: an item's table follows from its time, and reads go over as few tables as they can."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    CapacityBudget,
    CapacityMeter,
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    PeriodError,
    RandomSuffix,
    ShardedCounter,
    ShardedTable,
    TimeSeries,
    UnsupportedExpressionError,
    backfill_index,
    bulk_load,
)
from shardkit.cache import CachedTable, MemoryStore
from shardkit.testing import VirtualClock, simulate_partitions
from shardkit.timeseries import Throughput
from tests.support.fakes import Clock
from tests.support.recorder import recording
from tests.support.series import (
    BY_ID,
    CLICKS,
    NOW,
    PERIODS,
    SCHEMA,
    STRATEGIES,
    Case,
    Planned,
    a_plain_table,
    a_series,
    cases,
    check_periods_with_plans,
    check_reads_like_one_table,
    paged,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

C1 = Key("Customer").eq("c1")
INDEXED = {
    **SCHEMA,
    "GlobalSecondaryIndexes": [
        {**SCHEMA["GlobalSecondaryIndexes"][0], "ProvisionedThroughput": {"ReadCapacityUnits": 1}},
    ],
}


def click(time: str, **more: Any) -> dict[str, Any]:
    return {"Customer": "c1", "Time": time, **more}


def fill(series: TimeSeries, months: str = "1234", **more: Any) -> None:
    for month in months:
        for day in (1, 20):
            series.put_item(Item=click(f"2016-0{month}-{day:02}T00:00:00Z", N=int(month) * 100 + day, **more))


def numbers(items: Any) -> list[int]:
    return [int(item["N"]) for item in items]


def asked(requests: Any) -> list[str]:
    """The operations, with the month of each one's table."""
    return [f"{name} {body.get('TableName', '')[-2:]}".strip() for name, body in requests]


@pytest.mark.long_search
@settings(max_examples=settings().max_examples // 3)
@given(case=cases(), strategy=st.sampled_from(STRATEGIES), period=st.sampled_from(PERIODS))
def test_reads_like_one_table(resource: DynamoDBServiceResource, strategy: Any, period: Any, case: Case) -> None:
    check_reads_like_one_table(*tables_of(resource, strategy, period), case)


_tables: dict[Any, Any] = {}


def tables_of(resource: DynamoDBServiceResource, strategy: Any, period: Any) -> tuple[TimeSeries, Table]:
    """The same tables for all examples of a test, whose resource has them."""
    if _tables.get("resource") is not resource:
        _tables.clear()
        _tables["resource"] = resource
    kind = repr((strategy, period))
    if kind not in _tables:
        _tables[kind] = a_series(resource, strategy=strategy, period=period), a_plain_table(resource)
    tables: tuple[TimeSeries, Table] = _tables[kind]
    return tables


def test_an_item_is_in_the_table_of_its_period(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, strategy=CalculatedSuffix("Time", shards=4))
    item, key = click("2016-02-29T23:59:59.5Z", N=1), click("2016-02-29T23:59:59.5Z")
    series.put_item(Item=item)
    assert series.table_names() == [f"{series.name}-2016-02"]
    assert series.table_name(datetime(2016, 2, 29, 23, tzinfo=UTC)) == f"{series.name}-2016-02"
    table = ShardedTable(resource.Table(f"{series.name}-2016-02"), series.strategy)
    assert table.get_item(Key=key)["Item"] == item
    assert series.physical_key(key) == table.physical_key(key)
    with recording(resource.meta.client) as sent:
        assert series.get_item(Key=key)["Item"] == item
        changed = series.update_item(
            Key=key,
            UpdateExpression="SET N = N + :n",
            ExpressionAttributeValues={":n": 1},
            ReturnValues="ALL_NEW",
            ReturnShards=True,
        )
        assert (changed["Attributes"], changed["Shard"]) == (item | {"N": 2}, table.strategy.shard_of("c1", item))
        assert series.delete_item(Key=key, ReturnValues="ALL_OLD")["Attributes"]["N"] == 2
        assert "Item" not in series.get_item(Key=key)
    assert asked(sent.requests) == ["GetItem 02", "UpdateItem 02", "DeleteItem 02", "GetItem 02"]
    with pytest.raises(InvalidKeyError, match=r"^Time: missing in the item; the table of time series"):
        series.put_item(Item={"Customer": "c1"})
    with pytest.raises(InvalidKeyError, match=r"^Time: must be ISO 8601 text with a zone"):
        series.get_item(Key=click("yesterday"))


def test_queries_touch_few_tables(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource)
    fill(series)
    assert len(series.table_names()) == 4
    with recording(resource.meta.client) as sent:
        page = series.query(KeyConditionExpression=C1, Limit=3)
        assert numbers(page["Items"]) == [101, 120, 201]
        assert numbers(series.query(KeyConditionExpression=C1, Limit=1, ScanIndexForward=False)["Items"]) == [420]
        between = C1 & Key("Time").between("2016-02-15T00:00:00Z", "2016-03-15T00:00:00Z")
        assert numbers(series.query_items(KeyConditionExpression=between, ScanIndexForward=False)) == [301, 220]
        assert numbers(series.query_items(KeyConditionExpression=C1, max_items=2)) == [101, 120]
        # No table can have such an item: one is asked all the same, so that the service checks the request.
        assert series.query(KeyConditionExpression=C1 & Key("Time").lt("2015"))["Items"] == []
    assert asked(sent.requests) == [
        *("Query 01", "Query 02"),
        "Query 04",
        *("Query 03", "Query 02"),
        "Query 01",
        "Query 04",
    ]


def test_a_page_without_limit_is_that_of_the_first_table_that_has_items(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource)
    fill(series)
    page = series.query(KeyConditionExpression=C1, Select="COUNT", ReturnConsumedCapacity="TOTAL")
    assert (page["Count"], page["ScannedCount"], "Items" in page) == (2, 2, False)
    assert page["ConsumedCapacity"]["TableName"] == series.name
    counts = [page["Count"]]
    while (start := page.get("LastEvaluatedKey")) is not None:
        assert start.keys() == {"shardkit"}
        page = series.query(KeyConditionExpression=C1, Select="COUNT", ExclusiveStartKey=start)
        counts.append(page["Count"])
    assert counts == [2, 2, 2, 2]


def test_a_cursor_is_checked(resource: DynamoDBServiceResource) -> None:
    series, other = a_series(resource), a_series(resource)
    fill(series)
    ended = series.query(KeyConditionExpression=C1, Limit=2)["LastEvaluatedKey"]["shardkit"]
    within = series.query(KeyConditionExpression=C1, Limit=3)["LastEvaluatedKey"]["shardkit"]
    assert (ended[:8], within[:8]) == ("2016-01~", "2016-02.")
    bad = [
        *(token[:-1] + chr(ord(token[-1]) ^ 1) for token in (ended, within)),
        *(token.replace("2016-02", "2016-03") for token in (within,)),
        *(token.replace("2016-0", "2016-") for token in (ended, within)),
        ended[8:],
        "2016-02",
    ]
    for token in bad:
        with pytest.raises(CursorError, match=r"^ExclusiveStartKey: "):
            series.query(KeyConditionExpression=C1, ExclusiveStartKey={"shardkit": token})
    for token in (ended, within):
        start = {"shardkit": token}
        with pytest.raises(CursorError):
            series.query(KeyConditionExpression=Key("Customer").eq("c2"), ExclusiveStartKey=start)
        with pytest.raises(CursorError, match=r"period 2016-0[12], outside the key condition"):
            series.query(KeyConditionExpression=C1 & Key("Time").gt("2016-04"), ExclusiveStartKey=start)
        with pytest.raises(CursorError):
            series.scan(ExclusiveStartKey=start)
        fill(other, "2")
        with pytest.raises(CursorError):
            other.query(KeyConditionExpression=C1, ExclusiveStartKey=start)
    with pytest.raises(CursorError, match="has no 'Time'"):
        series.query(KeyConditionExpression=C1, ExclusiveStartKey={"Customer": "c1"})
    # A table that is deleted meanwhile is passed over.
    down: Any = {"KeyConditionExpression": C1 & Key("Time").lt("2016-03"), "ScanIndexForward": False}
    back = series.query(**down, Limit=1)
    resource.Table(f"{series.name}-2016-02").delete()
    assert numbers(series.query(**down, ExclusiveStartKey=back["LastEvaluatedKey"])["Items"]) == [120, 101]
    for token in (ended, within):
        page = series.query(KeyConditionExpression=C1, ExclusiveStartKey={"shardkit": token})
        assert numbers(page["Items"]) == [301, 320]
    assert numbers(series.query_items(KeyConditionExpression=C1)) == [101, 120, 301, 320, 401, 420]


@pytest.mark.parametrize("read", ["query", "query_items", "scan", "scan_items"])
def test_a_table_is_deleted_under_a_fan_out(resource: DynamoDBServiceResource, read: str) -> None:
    """One shard or segment of it has answered, the next one finds no table: it is passed over like any that is gone."""
    series = a_series(resource, strategy=CalculatedSuffix("Time", shards=3), max_concurrency=1)
    fill(series)
    table = resource.Table(f"{series.name}-2016-02")
    requests: list[str] = []

    def delete(model: Any, params: Any, **_: Any) -> None:
        if model.name in {"Query", "Scan"} and table.name in str(params["body"]):
            requests.append(model.name)
            if len(requests) == 2:
                table.delete()

    resource.meta.client.meta.events.register("before-call.dynamodb", delete)
    if read == "query":
        found = paged(series, {"KeyConditionExpression": C1}, [None])
    elif read == "query_items":
        found = [*series.query_items(KeyConditionExpression=C1)]
    elif read == "scan":
        page = series.scan(Limit=3)
        found = page["Items"]
        while "LastEvaluatedKey" in page:
            page = series.scan(Limit=1, ExclusiveStartKey=page["LastEvaluatedKey"])
            found += page["Items"]
    else:
        found = [*series.scan_items(segments=2)]
    assert {101, 120, 301, 320, 401, 420} <= {*numbers(found)} < {101, 120, 201, 220, 301, 320, 401, 420}
    assert len(requests) >= 2


def test_cursors_are_signed(resource: DynamoDBServiceResource) -> None:
    """Within a table and between two; also the period is signed, and there is no way around by a key or none."""
    series = a_series(resource, cursor_secret=b"0123456789abcdef")
    fill(series)
    bare = TimeSeries(resource, series.name, at="Time", period="month", schema=SCHEMA, clock=lambda: NOW)
    up: Any = {"KeyConditionExpression": C1}
    expected = numbers(series.query_items(**up))
    for limit in (2, 3):
        page = series.query(**up, Limit=limit)
        found = numbers(page["Items"])
        start = page["LastEvaluatedKey"]
        assert found + numbers(series.query_items(**up, ExclusiveStartKey=start)) == expected
        unsigned = bare.query(**up, Limit=limit)["LastEvaluatedKey"]
        token = start["shardkit"]
        assert token.startswith(f"{unsigned['shardkit']}.")
        moved = [{"shardkit": period + token[7:]} for period in ("2016-03", "2020-01")]
        for wrong in (unsigned, *moved, page["Items"][0]):
            with pytest.raises(CursorError, match=r"not signed with|not a signed cursor"):
                series.query(**up, ExclusiveStartKey=wrong)
        with pytest.raises(CursorError):
            bare.query(**up, ExclusiveStartKey=start)
    page = series.scan(Limit=3)
    assert len(page["Items"]) + len(series.scan(ExclusiveStartKey=page["LastEvaluatedKey"])["Items"]) > 3
    with pytest.raises(CursorError, match="not signed"):
        series.scan(ExclusiveStartKey={"shardkit": page["LastEvaluatedKey"]["shardkit"].rpartition(".")[0]})


def test_a_cursor_between_two_tables(resource: DynamoDBServiceResource) -> None:
    """It is a position: a table that is made there later is read, and the read can turn round."""
    series = a_series(resource)
    fill(series, "124")
    up: Any = {"KeyConditionExpression": C1}
    down = up | {"ScanIndexForward": False}
    after: Any = {"ExclusiveStartKey": series.query(**up, Limit=4)["LastEvaluatedKey"]}
    before: Any = {"ExclusiveStartKey": series.query(**down, Limit=2)["LastEvaluatedKey"]}
    fill(series, "3")
    for start in (after, before):
        assert numbers(series.query_items(**down, **start)) == [
            *((320, 301) if start is before else ()),
            *(220, 201, 120, 101),
        ]
        assert numbers(series.query(**up, **start, Limit=9)["Items"]) == [
            *((301, 320) if start is after else ()),
            *(401, 420),
        ]


def test_one_time_is_asked_for_in_its_own_table(resource: DynamoDBServiceResource) -> None:
    """Whatever its zone, and before the table is listed."""
    schema = {
        "KeySchema": [
            {"AttributeName": "Time", "KeyType": "HASH"},
            {"AttributeName": "Id", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Time", "Id")],
    }
    series = a_series(resource, schema=schema)
    again = TimeSeries(resource, series.name, at="Time", period="month", schema=schema, clock=lambda: NOW)
    assert again.table_names() == []
    times = ("2016-04-01T01:30:00+02:00", "2016-04-01T02:00:00+02:00", "2016-03-31T23:00:00-01:00")
    for time in times:
        series.put_item(Item={"Time": time, "Id": "A1"})
    assert [name[-2:] for name in series.table_names()] == ["03", "04"]
    for time in times:
        condition = Key("Time").eq(time)
        for reader in (series, again):
            with recording(resource.meta.client) as sent:
                assert [item["Time"] for item in reader.query_items(KeyConditionExpression=condition)] == [time]
            assert [name for name, _ in sent.requests] == ["Query"]
        paged = series.query(KeyConditionExpression=condition, Limit=1)
        assert len(paged["Items"]) == 1
    assert series.query(KeyConditionExpression=Key("Time").eq("yesterday"))["Items"] == []


def test_a_stream_that_fails_can_be_resumed(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource)
    fill(series)
    broken = [True]

    def fails(params: Any, **_: Any) -> None:
        if broken[0] and b"2016-03" in params["body"]:
            raise PermissionError("no access to March")

    resource.meta.client.meta.events.register("before-call.dynamodb.Query", fails)
    stream = series.query_items(KeyConditionExpression=C1)
    found: list[Any] = []
    with pytest.raises(PermissionError):
        found.extend(stream)
    broken[0] = False
    assert stream.last_evaluated_key is not None
    rest = series.query_items(KeyConditionExpression=C1, ExclusiveStartKey=stream.last_evaluated_key)
    assert numbers(found) == [101, 120, 201, 220]
    assert numbers(rest) == [301, 320, 401, 420]


def test_at_most_so_many_items(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource)
    fill(series)
    with recording(resource.meta.client) as sent:
        assert numbers(series.query_items(KeyConditionExpression=C1, max_items=3)) == [101, 120, 201]
    assert [body["Limit"] for name, body in sent.requests if name == "Query"] == [3, 1]


def test_scans(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, strategy=CalculatedSuffix("Time", shards=2))
    fill(series)
    items = numbers(series.scan_items(segments=2))
    assert sorted(items) == [101, 120, 201, 220, 301, 320, 401, 420]
    found: list[int] = []
    start: dict[str, Any] = {}
    for _ in range(8):
        page = series.scan(Limit=3, FilterExpression=Attr("N").gt(200), **start)
        found += numbers(page["Items"])
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert sorted(found) == [201, 220, 301, 320, 401, 420]


def test_a_get_without_a_time_asks_the_newest_table_first(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, schema=BY_ID)
    for month in "1234":
        series.put_item(Item={"Id": f"A{month}", "Time": f"2016-0{month}-09T00:00:00Z", "Same": "x"})
    series.put_item(Item={"Id": "A1", "Time": "2016-03-09T00:00:00Z", "Same": "y"})
    with recording(resource.meta.client) as sent:
        found = series.get_item(Key={"Id": "A1"}, ReturnConsumedCapacity="TOTAL")
        assert found["Item"]["Same"] == "y"
        assert found["ConsumedCapacity"]["TableName"] == series.name
        assert series.get_item(Key={"Id": "A1", "Time": "2016-01-09T00:00:00Z"})["Item"]["Same"] == "x"
        assert "Item" not in series.get_item(Key={"Id": "A2"}, since=datetime(2016, 3, 1, tzinfo=UTC))
        assert "Item" not in series.get_item(Key={"Id": "none"})
    assert asked(sent.requests) == [
        *("ListTables", "GetItem 04", "GetItem 03"),
        "GetItem 01",
        *("GetItem 04", "GetItem 03"),
        *("GetItem 04", "GetItem 03", "GetItem 02", "GetItem 01"),
    ]
    keys = [{"Id": "A4"}, {"Id": "A1"}, {"Id": "none"}, {"Id": "A1", "Time": "2016-01-09T00:00:00Z"}, {"Id": "A2"}]
    with recording(resource.meta.client) as sent:
        response = series.batch_get_items(keys)
    found_ids = [(item["Id"], item["Same"]) for item in response["Items"]]
    assert found_ids == [("A4", "x"), ("A1", "y"), ("A1", "x"), ("A2", "x")]
    assert [len(part["Keys"]) for _, body in sent.requests for part in body["RequestItems"].values()] == [4, 3, 2, 2]
    with pytest.raises(InvalidKeyError, match=r"^Time: missing in the key"):
        series.delete_item(Key={"Id": "A1"})
    with pytest.raises(UnsupportedExpressionError, match=r"^UpdateItem: changes 'Time'"):
        series.update_item(
            Key={"Id": "A1", "Time": "2016-01-09T00:00:00Z"},
            UpdateExpression="SET #t = :t",
            ExpressionAttributeNames={"#t": "Time"},
            ExpressionAttributeValues={":t": "2016-02-09T00:00:00Z"},
        )


def test_an_update_that_creates_an_item_stores_its_time(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, schema=BY_ID, missing="create")
    key = {"Id": "A1", "Time": "2016-03-09T00:00:00Z"}
    add: Any = {"UpdateExpression": "ADD N :n", "ExpressionAttributeValues": {":n": 1}}
    made = series.update_item(Key=key, **add, ConditionExpression=Attr("Time").not_exists(), ReturnValues="UPDATED_NEW")
    assert "Time" not in made["Attributes"]
    series.update_item(Key=key | {"Time": "2016-03-10T00:00:00Z"}, **add)
    series.update_item(Key=key | {"Id": "A2"})
    update: Any = {"Key": key | {"Id": "A3"}, **add}
    series.transact_write_items(TransactItems=[{"Update": update}])
    assert sorted(series.scan_items(), key=lambda item: item["Id"]) == [
        {**key, "N": 2},
        {**key, "Id": "A2"},
        {**key, "Id": "A3", "N": 1},
    ]


@pytest.mark.parametrize("by", ["Time", lambda item: item["Time"]])
def test_a_sharded_index_may_read_the_time(resource: DynamoDBServiceResource, by: Any) -> None:
    schema = {
        "KeySchema": BY_ID["KeySchema"],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Id", "UrlKey")],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by-url",
                "KeySchema": [{"AttributeName": "UrlKey", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    }
    series = a_series(resource, schema=schema, indexes={"by-url": CalculatedSuffix(by, shards=3, source="Url")})
    key = {"Id": "A1", "Time": "2016-03-09T00:00:00Z"}
    series.put_item(Item=key)
    series.update_item(
        Key=key,
        UpdateExpression="SET #u = :u",
        ExpressionAttributeNames={"#u": "Url"},
        ExpressionAttributeValues={":u": "/"},
    )
    found = series.query_items(IndexName="by-url", KeyConditionExpression=Key("Url").eq("/"))
    assert [*found] == [{**key, "Url": "/"}]


def test_the_time_may_be_the_partition_key(resource: DynamoDBServiceResource) -> None:
    """The guide's orders by date, with suffixes."""
    schema = {
        "KeySchema": [
            {"AttributeName": "Date", "KeyType": "HASH"},
            {"AttributeName": "OrderId", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "OrderId")],
    }
    strategy = CalculatedSuffix("OrderId", shards=3)
    orders = a_series(resource, at="Date", time_format="iso without zone", schema=schema, strategy=strategy)
    with orders.batch_writer() as batch:
        for number in range(20):
            batch.put_item(Item={"Date": f"2016-0{3 + number % 2}-09", "OrderId": f"A{number:02}"})
    with recording(resource.meta.client) as sent:
        found = [item["OrderId"] for item in orders.query_items(KeyConditionExpression=Key("Date").eq("2016-03-09"))]
    assert found == [f"A{number:02}" for number in range(0, 20, 2)]
    assert {body["TableName"][-7:] for _, body in sent.requests} == {"2016-03"}


def test_keys_of_any_time_take_no_memory(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.timeseries.programs._MOST_TABLES", 5)
    series = a_series(resource, schema=BY_ID, period="day")
    series.put_item(Item={"Id": "A1", "Time": "2016-04-01T00:00:00Z"})
    for day in range(1, 29):
        series.get_item(Key={"Id": "A1", "Time": f"2016-02-{day:02}T00:00:00Z"})
    assert len(series.runner.programs.shardings) <= 6
    assert series.name + "-2016-04-01" in series.runner.programs.shardings


def test_over_a_client(boto3_session: boto3.Session, resource: DynamoDBServiceResource) -> None:
    series = a_series(boto3_session.client("dynamodb"))
    fill(series, "3")
    page = series.query(KeyConditionExpression=C1, Limit=1)
    assert numbers(page["Items"]) == [301]
    again = series.query(KeyConditionExpression=C1, ExclusiveStartKey=page["LastEvaluatedKey"])
    assert numbers(again["Items"]) == [320]
    assert series.get_item(Key=click("2016-03-01T00:00:00Z"))["Item"]["N"] == 301
    assert series.meta.client is not resource.meta.client


@pytest.mark.parametrize(
    ("form", "value", "table"),
    [
        ("iso", "2016-04-01T01:30:00+02:00", "2016-03"),
        ("iso without zone", "2016-03-31T23:30:00", "2016-03"),
        ("seconds", 1459467000, "2016-03"),
        ("milliseconds", 1459468800000, "2016-04"),
    ],
)
def test_formats(resource: DynamoDBServiceResource, form: Any, value: Any, table: str) -> None:
    series = a_series(resource, schema=BY_ID, time_format=form)
    series.put_item(Item={"Id": "A1", "Time": value})
    assert series.table_names() == [f"{series.name}-{table}"]
    assert series.get_item(Key={"Id": "A1", "Time": value})["Item"]["Time"] == value


def test_late_items(resource: DynamoDBServiceResource) -> None:
    now = [NOW]
    series = a_series(
        resource,
        keep=1,
        clock=lambda: now[0],
        hot=Throughput(read_units=7, write_units=8),
        cold=Throughput(read_units=2, write_units=1),
    )
    late, newest = click("2016-03-31T23:59:59Z"), click("2016-04-30T00:00:00Z")
    for item in (late, newest):
        series.put_item(Item=item)
    described = [resource.Table(name).provisioned_throughput for name in series.table_names()]
    assert [(one["ReadCapacityUnits"], one["WriteCapacityUnits"]) for one in described] == [(2, 1), (7, 8)]
    with pytest.raises(PeriodError, match=r"the period 2016-02 .* is older than keep=1.*; drop the item") as caught:
        series.put_item(Item=click("2016-02-29T23:59:59Z"))
    assert caught.value.period == "2016-02"
    # When the table is past keeping but still there, it is read, and takes deletes, but no more items.
    now[0] = datetime(2016, 5, 1, tzinfo=UTC)
    with pytest.raises(PeriodError, match="older than keep=1"):
        series.update_item(Key=late, UpdateExpression="SET N = :n", ExpressionAttributeValues={":n": 1})
    assert len([*series.query_items(KeyConditionExpression=C1)]) == 2
    series.delete_item(Key=late)
    assert [*series.query_items(KeyConditionExpression=C1)] == [newest]
    strict = a_series(resource, late="error", clock=lambda: now[0])
    with pytest.raises(PeriodError, match=r"the period 2016-04 .* has ended, and late='error'"):
        strict.put_item(Item=newest)


def test_missing_tables(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, missing="error")
    item = click("2016-04-01T00:00:00Z")
    with pytest.raises(PeriodError, match=r"the period 2016-04 .* has no table .*; run maintain\(\)"):
        series.put_item(Item=item)
    # Nothing is there, which is what reads and deletes find.
    assert series.get_item(Key=item, ReturnShards=True).keys() == {"ResponseMetadata", "Shard"}
    assert series.batch_get_items([item])["Items"] == []
    assert series.query(KeyConditionExpression=C1)["Items"] == [*series.query_items(KeyConditionExpression=C1)] == []
    assert series.scan()["Items"] == [*series.scan_items()] == []
    assert series.query(KeyConditionExpression=C1, ReturnShards=True)["Shards"] == []
    with pytest.raises(ConfigurationError, match=r"^Limit: must be"):
        series.query(KeyConditionExpression=C1, Limit=0)
    series.delete_item(Key=item)
    with pytest.raises(PeriodError):
        series.delete_item(Key=item, ConditionExpression=Attr("N").exists())
    creating = a_series(resource)
    creating.put_item(Item=click("2016-05-31T00:00:00Z"))
    with pytest.raises(PeriodError, match=r"the period 2016-06 .* in the future, and no table later than .*-2016-05'"):
        creating.put_item(Item=click("2016-06-01T00:00:00Z"))


@pytest.mark.parametrize("month", ["2016-01", "2016-03", "2016-04", "2016-05", "2016-06", "2026-01"])
@pytest.mark.parametrize("now", [NOW, datetime(2016, 4, 30, 12, tzinfo=UTC)])
def test_the_error_names_just_what_makes_the_table(
    resource: DynamoDBServiceResource, now: datetime, month: str
) -> None:
    item = click(f"{month}-01T00:00:00Z")

    def works(series: TimeSeries) -> bool:
        return bulk_load(series, [item], on_error="collect").written == 1

    series, creating = (a_series(resource, missing=missing, clock=lambda: now) for missing in ("error", "create"))
    with pytest.raises(PeriodError) as caught:
        series.put_item(Item=item)
    assert ("missing='create'" in str(caught.value)) is works(creating)
    series.maintain()
    assert ("maintain()" in str(caught.value)) is works(series)


def test_tables_of_others_are_seen_after_a_minute(resource: DynamoDBServiceResource) -> None:
    now = [NOW]
    series = a_series(resource, clock=lambda: now[0])
    again = TimeSeries(resource, series.name, at="Time", period="month", schema=SCHEMA, clock=lambda: now[0])
    assert again.table_names() == []
    fill(series, "3")
    assert numbers(again.query_items(KeyConditionExpression=C1)) == []
    # What a call's own time names is asked at once.
    assert again.get_item(Key=click("2016-03-01T00:00:00Z"))["Item"]["N"] == 301
    now[0] += timedelta(minutes=1)
    assert numbers(again.query_items(KeyConditionExpression=C1)) == [301, 320]


def test_a_transaction_over_periods(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, strategy=CalculatedSuffix("Time", shards=3))
    times = ("2016-02-29T00:00:00Z", "2016-03-01T00:00:00Z")
    series.transact_write_items(TransactItems=[{"Put": {"Item": click(time, N=1)}} for time in times])
    assert len(series.table_names()) == 2
    got = series.transact_get_items(TransactItems=[{"Get": {"Key": click(time)}} for time in times])
    assert [one["Item"]["Time"] for one in got["Responses"]] == [*times]
    with pytest.raises(PeriodError, match=r"the period 2016-01 .* has no table, so a transaction cannot read from it"):
        series.transact_get_items(TransactItems=[{"Get": {"Key": click("2016-01-01T00:00:00Z")}}])
    series.transact_write_items(
        TransactItems=[
            {"Delete": {"Key": click(times[0])}},
            {
                "Update": {
                    "Key": click(times[1]),
                    "UpdateExpression": "SET N = :n",
                    "ExpressionAttributeValues": {":n": 2},
                }
            },
        ]
    )
    assert numbers(series.query_items(KeyConditionExpression=C1)) == [2]


def test_a_load_fills_past_periods(resource: DynamoDBServiceResource) -> None:
    series = a_series(
        resource,
        strategy=CalculatedSuffix("Time", shards=3),
        keep=2,
        hot=Throughput(read_units=7, write_units=8),
        cold=Throughput(read_units=2, write_units=1),
    )
    items = [{"Customer": f"c{n}", "Time": f"2016-0{1 + n % 4}-15T00:00:{n % 60:02}Z", "Size": n} for n in range(400)]
    items.append({"Customer": "c1"})
    with CapacityMeter().attach(series), pytest.raises(BulkLoadError) as caught:
        bulk_load(series, items)
    report = caught.value.report
    assert report is not None
    assert (report.items, report.written, report.failed) == (401, 300, 101)
    assert {type(result.error) for result in caught.value.failed} == {PeriodError, InvalidKeyError}
    assert {result.item.get("Time", "")[:7] for result in caught.value.failed} == {"2016-01", ""}
    assert len([*series.scan_items()]) == 300
    # Made to be filled, so hot; maintain() dials it down.
    assert resource.Table(f"{series.name}-2016-02").provisioned_throughput["WriteCapacityUnits"] == 8
    with pytest.raises(ConfigurationError, match=r"^processes: not supported by a load into a TimeSeries"):
        bulk_load(series, items, processes=2)


def test_a_load_with_a_journal_is_resumed(resource: DynamoDBServiceResource, tmp_path: Path) -> None:
    series = a_series(resource, keep=2)
    items = [{"Customer": f"c{n}", "Time": f"2016-0{1 + n % 4}-15T00:00:00Z"} for n in range(40)]
    options: Any = {"journal": tmp_path / "journal", "dead_letters": tmp_path / "letters.jsonl", "on_error": "collect"}
    report = bulk_load(series, items, **options)
    assert (report.written, report.failed, report.resumed) == (30, 10, 0)
    again = bulk_load(series, items, **options | {"dead_letters": None})
    assert (again.items, again.resumed, again.failed_before) == (0, 40, 10)


def test_a_load_stops_if_a_table_cannot_be_created(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource)
    resource.meta.client.meta.events.register("before-call.dynamodb.CreateTable", denied)
    items = [{"Customer": f"c{n}", "Time": f"2016-0{1 + n % 4}-15T00:00:00Z"} for n in range(40)]
    with pytest.raises(BulkLoadError, match="the load stopped: not allowed to create; 0 of the 40") as caught:
        bulk_load(series, items)
    assert len(caught.value.failed) == 40


def test_a_meter_and_a_budget_cover_all_tables(resource: DynamoDBServiceResource) -> None:
    """Also those that are created later, and no others; also behind a cache, and for one key."""
    series = a_series(resource, schema=CLICKS)
    other = a_series(resource, schema=CLICKS)
    meter, of_cache = CapacityMeter(), CapacityMeter()
    clock = Clock()
    budget = CapacityBudget(write_units=1, clock=clock, sleep=clock.sleep)
    of_key = CapacityBudget(write_units=0.1, clock=clock, sleep=clock.sleep)
    cached = CachedTable(series, store=MemoryStore(1_000_000))
    with meter.attach(series), of_cache.attach(cached):
        for each in (series, other):
            each.put_item(Item=click("2016-03-01T00:00:00Z"))
            bulk_load(each, [click("2016-02-01T00:00:00Z"), click("2016-04-01T00:00:00Z")])
        assert meter.by_table.keys() == of_cache.by_table.keys() == {*series.table_names()}
        assert (meter.write_units, of_cache.write_units) == (3, 3)
        assert meter.by_key.keys() == {(table, "c1") for table in series.table_names()}
        for _ in range(2):
            cached.get_item(Key={"Customer": "c1", "Time": "2016-03-01T00:00:00Z"})
        assert (meter.cache.fresh, of_cache.cache.fresh) == (1, 1)
    with budget.attach(series):
        other.put_item(Item=click("2016-03-01T00:00:00Z"))
        for month in "123":
            series.put_item(Item=click(f"2016-0{month}-01T00:00:00Z"))
    assert clock.sleeps == [1.0, 1.0]
    with of_key.attach(series, key="c2"):
        for customer in ("c1", "c2", "c1", "c2"):
            series.put_item(Item={"Customer": customer, "Time": "2016-02-01T00:00:00Z"})
    assert clock.sleeps == [1.0, 1.0, 9.0]


def test_partitions_are_simulated_of_one_table(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, schema=CLICKS)
    series.maintain()
    with pytest.raises(ConfigurationError, match="client: must be one table, got TimeSeries"):
        simulate_partitions(series)
    with simulate_partitions(series, series.table_name(NOW), clock=VirtualClock()) as simulated:
        series.put_item(Item=click("2016-04-01T00:00:00Z"))
    assert [hot.key for hot in simulated.hottest_keys()] == ["c1"]


SENSORS: dict[str, Any] = {
    "at": "Measured",
    "time_format": "milliseconds",
    "schema": {
        "KeySchema": [
            {"AttributeName": "Sensor", "KeyType": "HASH"},
            {"AttributeName": "Measured", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": "Sensor", "AttributeType": "S"},
            {"AttributeName": "Measured", "AttributeType": "N"},
        ],
    },
}


def test_seconds_taken_as_milliseconds_make_no_table(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, **SENSORS)
    item: dict[str, Any] = {"Sensor": "s1", "Measured": int(NOW.timestamp())}
    with pytest.raises(PeriodError, match=r"none is created for milliseconds of 1970; is the time in seconds\?"):
        series.put_item(Item=item)
    with pytest.raises(BulkLoadError, match=r"is the time in seconds\?"):
        bulk_load(series, [item])
    assert series.table_names() == []
    with pytest.raises(PeriodError, match=r"or raise keep=; is the time in seconds\? time_format is 'milliseconds'"):
        a_series(resource, keep=12, **SENSORS).put_item(Item=item)
    series.put_item(Item={**item, "Measured": 1000 * item["Measured"]})


def test_a_table_that_only_has_the_name_of_one_is_named(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, **SENSORS)
    table = series.table_name(NOW)
    resource.create_table(
        TableName=table,
        KeySchema=BY_ID["KeySchema"],
        AttributeDefinitions=BY_ID["AttributeDefinitions"],
        BillingMode="PAY_PER_REQUEST",
    ).put_item(Item={"Id": "A17"})
    query, time = Key("Sensor").eq("s1"), int(NOW.timestamp() * 1000)
    reads: list[Callable[[], object]] = [
        lambda: series.query(KeyConditionExpression=query),
        lambda: [*series.query_items(KeyConditionExpression=query)],
        lambda: series.get_item(Key={"Sensor": "s1", "Measured": time}),
        lambda: series.put_item(Item={"Sensor": "s1", "Measured": time}),
    ]
    for call in reads:
        with pytest.raises(ClientError, match=f"table '{table}'; if it is not one of the time series"):
            call()
    scans: list[Callable[[], object]] = [series.scan, lambda: [*series.scan_items()]]
    for call in scans:
        with pytest.raises(ConfigurationError, match=f"table '{table}': must have the partition key 'Sensor'"):
            call()


def denied(**_: Any) -> None:
    raise PermissionError("not allowed to create")


def test_a_sharded_index(resource: DynamoDBServiceResource) -> None:
    schema = {
        "KeySchema": SCHEMA["KeySchema"],
        "AttributeDefinitions": [
            *CLICKS["AttributeDefinitions"],
            {"AttributeName": "UrlKey", "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by-url",
                "KeySchema": [
                    {"AttributeName": "UrlKey", "KeyType": "HASH"},
                    {"AttributeName": "Time", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    }
    by_url = CalculatedSuffix("Time", shards=3, source="Url")
    series = a_series(resource, schema=schema, indexes={"by-url": by_url})
    fill(series, Url="/")
    found = series.query_items(
        IndexName="by-url", KeyConditionExpression=Key("Url").eq("/") & Key("Time").gt("2016-02-10")
    )
    assert numbers(found) == [220, 301, 320, 401, 420]
    page = series.query(IndexName="by-url", KeyConditionExpression=Key("Url").eq("/"), Limit=3)
    assert numbers(page["Items"]) == [101, 120, 201]
    stored = resource.Table(series.table_names()[0]).scan()["Items"]
    assert {str(item["UrlKey"])[:2] for item in stored} == {"/."}


def test_a_batch_writer_over_periods(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, schema=BY_ID)
    with series.batch_writer() as batch:
        for number in range(60):
            batch.put_item(Item={"Id": f"A{number}", "Time": f"2016-0{1 + number % 3}-15T00:00:00Z"})
        batch.delete_item(Key={"Id": "A0", "Time": "2016-01-15T00:00:00Z"})
    assert len([*series.scan_items()]) == 59
    assert len(series.table_names()) == 3


def test_deletes_make_no_table(resource: DynamoDBServiceResource) -> None:
    """They find nothing where no table is; above all they never bring back one that was deleted after keep=."""
    series = a_series(resource, schema=BY_ID, keep=1)
    old, recent = ({"Id": "A1", "Time": f"2016-0{month}-15T00:00:00Z"} for month in (1, 3))
    with series.batch_writer() as batch:
        for key in (old, recent):
            batch.delete_item(Key=key)
    with pytest.raises(PeriodError, match="older than keep=1"):
        series.delete_item(Key=old, ConditionExpression=Attr("Id").exists())
    assert series.table_names() == []
    with series.batch_writer() as batch:
        batch.delete_item(Key=recent)
        batch.put_item(Item={**recent, "Id": "A2"})
        batch.delete_item(Key={**recent, "Id": "A2"})
    assert series.table_names() == [f"{series.name}-2016-03"]
    assert series.scan()["Items"] == []


def test_what_needs_one_table_is_refused(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource, strategy=RandomSuffix(3))
    uses: list[Callable[[], object]] = [
        lambda: backfill_index(series, "by-url"),
        lambda: ShardedCounter(series, {"Customer": "c1", "Time": "views"}, "N").add(),
    ]
    for use in uses:
        with pytest.raises(ConfigurationError, match=r"^table: must be one table, got time series 'clicks-"):
            use()
    assert not hasattr(series, "delete")
    item = click("2016-03-01T00:00:00Z")
    assert series.logical_item(series.physical_item(item)) == item


def test_views(resource: DynamoDBServiceResource) -> None:
    series = a_series(resource)
    fill(series, "3")
    quick = series.with_options(timeout=1, max_concurrency=2)
    assert isinstance(quick, TimeSeries)
    assert numbers(quick.query_items(KeyConditionExpression=C1)) == [301, 320]
    assert repr(series) == f"TimeSeries('{series.name}', at='Time', period='month', strategy=Unsharded())"


@pytest.fixture(scope="module")
def client() -> Any:
    """A client that sends nothing."""
    return boto3.client("dynamodb", region_name="us-east-1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": ""}, "^at: must be the name of an attribute"),
        ({"time_format": "seconds"}, "^time_format: must fit the type of 'Time' in schema"),
        ({"schema": {"KeySchema": []}}, "^schema: must be what CreateTable takes"),
        ({"schema": {**BY_ID, "AttributeDefinitions": [1]}}, "^schema: must be what CreateTable takes"),
        ({"schema": {**BY_ID, "GlobalSecondaryIndexes": {"by-url": 1}}}, "^schema: must be what CreateTable takes"),
        ({"time_format": ["iso"]}, "^time_format: must be one of"),
        ({"cool_after": None}, "^cool_after: must be a timedelta"),
        ({"clock": NOW}, "^clock: must be a function"),
        ({"schema": {**SCHEMA, "BillingMode": "PROVISIONED"}}, "^schema: must be without BillingMode"),
        ({"keep": -1}, "^keep: must be an integer"),
        ({"delete": True}, "^delete: must be True or False"),
        ({"archive": "s3://bucket/clicks"}, r"^archive: needs keep="),
        ({"schema": INDEXED}, r"^schema: must be without ProvisionedThroughput"),
        ({"archive": "bucket/clicks", "keep": 1}, "^archive: must be a place in S3"),
        ({"late": "never"}, "^late: must be one of 'write', 'error'"),
        ({"ahead": timedelta(-1)}, "^ahead: must be a timedelta"),
        ({"hot": {"read_units": 1}}, "^hot: must be a Throughput"),
        ({"hot": Throughput(indexes={"by-uri": Throughput()})}, r"^indexes: 'by-uri' must be a global index .*by-url"),
        ({"prices": 1}, "^prices: must be Prices"),
        ({"strategy": RandomSuffix}, "^strategy: must be"),
    ],
)
def test_arguments_are_checked(client: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        a_series(client, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"read_units": 5}, "^read_units, write_units: must be given together"),
        ({"read_units": 5, "write_units": 5, "max_read_units": 9}, "^max_read_units, max_write_units: must be those"),
        ({"read_units": 0, "write_units": 5}, "^read_units: must be an integer >= 1"),
        ({"table_class": "COLD"}, "^table_class: must be one of"),
        ({"indexes": ["by-url"]}, "^indexes: must map names of global indexes to Throughputs"),
        ({"indexes": {"by-url": Throughput(read_units=1, write_units=1)}}, "^indexes: of 'by-url': must be"),
    ],
)
def test_a_throughput_is_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Throughput(**options)


def test_periods_with_plans(resource: DynamoDBServiceResource) -> None:
    check_periods_with_plans(Planned(resource))
