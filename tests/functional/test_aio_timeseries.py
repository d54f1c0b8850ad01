"""The async TimeSeries: everything that the sync one does, awaited."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityMeter, ConfigurationError, PeriodError
from shardkit.timeseries import Throughput, Tuning
from shardkit.timeseries import TimeSeries as SyncTimeSeries
from tests.support.series import BY_ID, SCHEMA, a_control_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import TimeSeries, bulk_load  # noqa: E402

C1 = Key("Customer").eq("c1")


def click(time: str, **more: Any) -> dict[str, Any]:
    return {"Customer": "c1", "Time": time, "Url": "/", "Size": 1, **more}


def key(time: str) -> dict[str, Any]:
    return {"Customer": "c1", "Time": time}


def test_as_the_sync_one(moto_endpoint: str) -> None:
    now = [datetime(2014, 7, 31, 23, 30, tzinfo=UTC)]

    async def main() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            series = TimeSeries(
                client,
                f"clicks-{uuid.uuid4().hex[:8]}",
                at="Time",
                period="month",
                schema=SCHEMA,
                strategy=CalculatedSuffix("Time", shards=3),
                hot=Throughput(read_units=50, write_units=80),
                cold=Throughput(read_units=5, write_units=1),
                keep=1,
                delete=True,
                clock=lambda: now[0],
            )
            shown: list[Any] = []
            report = await series.maintain(on_plan=shown.append)
            assert [step.action for step in report.done] == ["create", "create"]
            assert shown == [report.plan]
            assert len(await series.table_names()) == 2
            times = ["2014-07-01T00:00:00Z", "2014-07-31T23:59:59Z", "2014-08-01T00:00:00Z"]
            for number, time in enumerate(times):
                await series.put_item(Item=click(time, N=number))
            found = [item async for item in series.query_items(KeyConditionExpression=C1, ScanIndexForward=False)]
            assert [item["N"] for item in found] == [2, 1, 0]
            page = await series.query(KeyConditionExpression=C1, Limit=2)
            more = await series.query(KeyConditionExpression=C1, ExclusiveStartKey=page["LastEvaluatedKey"])
            assert [item["N"] for item in (*page["Items"], *more["Items"])] == [0, 1, 2]
            assert len([item async for item in series.scan_items(segments=2)]) == 3
            response = await series.batch_get_items([key(time) for time in times])
            assert [item["N"] for item in response["Items"]] == [0, 1, 2]
            assert (await series.get_item(Key=key(times[1])))["Item"]["N"] == 1
            await series.transact_write_items(
                TransactItems=[{"Delete": {"Key": key(times[0])}}, {"Put": {"Item": click(times[1], N=5)}}]
            )
            async with series.batch_writer() as batch:
                for time in times[1:]:
                    await batch.delete_item(Key=key(time))
            assert (await series.scan())["Count"] == 0
            loaded = [click(f"2014-0{7 + n % 2}-02T00:00:{n:02}Z", N=n) for n in range(50)]
            meter = CapacityMeter()
            with meter.attach(series):
                assert (await bulk_load(series, loaded)).written == 50
            assert meter.by_table.keys() == {*await series.table_names()}
            with pytest.raises(PeriodError):
                await series.put_item(Item=click("2014-05-01T00:00:00Z"))
            now[0] = datetime(2014, 9, 1, 1, tzinfo=UTC)
            done = [(step.action, step.table[-7:]) for step in (await series.maintain()).done]
            assert done == [("create", "2014-09"), ("set throughput", "2014-08"), ("delete", "2014-07")]
            assert (await series.plan()).steps == ()

    asyncio.run(main())


def test_each_takes_its_own_clients(boto3_session: Any) -> None:
    async def main() -> None:
        async with get_session().create_client("dynamodb") as client:
            with pytest.raises(ConfigurationError, match=r"target: must be a boto3 resource or client.*shardkit\.aio"):
                SyncTimeSeries(client, "clicks", at="Time", period="day", schema=BY_ID)

    asyncio.run(main())
    with pytest.raises(ConfigurationError, match=r"target: must be an aiobotocore client"):
        TimeSeries(boto3_session.client("dynamodb"), "clicks", at="Time", period="day", schema=BY_ID)


def test_periods_with_plans(moto_endpoint: str, boto3_session: Any) -> None:
    """The async form acts on the plans that the sync one has written, and writes its own."""
    control = a_control_table(boto3_session.resource("dynamodb", endpoint_url=moto_endpoint))
    now = datetime(2016, 4, 14, 23, 30, tzinfo=UTC)
    settings: dict[str, Any] = {
        "name": f"clicks-{uuid.uuid4().hex[:8]}",
        "at": "Time",
        "period": "day",
        "schema": SCHEMA,
        "clock": lambda: now,
        "missing": "create",
    }
    resource = boto3_session.resource("dynamodb", endpoint_url=moto_endpoint)
    SyncTimeSeries(resource, **settings, strategy=CalculatedSuffix("Time", shards=2), plans=control).maintain()

    async def main() -> None:
        nonlocal now
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            series = TimeSeries(client, **settings, strategy=CalculatedSuffix("Time", shards=5), plans=control.name)
            now += timedelta(days=1)
            heat = {series.table_name(now): ("c1", 9000.0)}
            await series.maintain(tuning=Tuning(heat=heat, deployed=True))
            items = [click(f"2016-04-{day}T00:00:{n:02}Z", N=n) for day in (12, 14, 15, 16) for n in range(20)]
            assert (await bulk_load(series, items)).written == 80
            assert [item async for item in series.query_items(KeyConditionExpression=C1)] == items
            page = await series.query(KeyConditionExpression=C1, Limit=70)
            more = await series.query(KeyConditionExpression=C1, ExclusiveStartKey=page["LastEvaluatedKey"])
            assert [*page["Items"], *more["Items"]] == items
            stored = await series.physical_item(items[-1])
            assert await series.logical_item(stored) == items[-1]

    asyncio.run(main())
    plans = {
        item["Which"]: json.loads(str(item["shardkit:plan"]))["strategy"]["shards"] for item in control.scan()["Items"]
    }
    assert plans == {"2016-04-12": 5, "2016-04-14": 2, "2016-04-15": 2, "2016-04-16": 8}
