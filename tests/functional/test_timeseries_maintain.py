"""The maintenance of a time series over moto: through a real client, with archives in S3."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shardkit.timeseries import Prices, Throughput
from tests.functional.test_docs import DOCS
from tests.support.recorder import recording
from tests.support.series import a_series

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


def test_from_creation_to_deletion(resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> None:
    boto3_session.client("s3").create_bucket(Bucket="bucket")
    now = [datetime(2014, 7, 31, 23, 30, tzinfo=UTC)]
    series = a_series(
        resource,
        clock=lambda: now[0],
        hot=Throughput(read_units=500, write_units=800),
        cold=Throughput(read_units=5, write_units=1),
        keep=1,
        archive="s3://bucket/clicks",
        delete=True,
        missing="error",
        prices=Prices(read_unit_hour=0.0001, write_unit_hour=0.0005),
    )

    def timed(parsed: dict[str, Any], **_: Any) -> None:
        parsed["ExportDescription"]["ExportTime"] = now[0]  # moto leaves it out

    def exported(**_: Any) -> None:
        for thread in threading.enumerate():
            if type(thread).__name__ == "TableExport":  # moto's
                thread.join()

    events = resource.meta.client.meta.events
    events.register("after-call.dynamodb.DescribeExport", timed)
    events.register("after-call.dynamodb.ExportTableToPointInTime", exported)
    shown: list[Any] = []
    with recording(resource.meta.client) as sent:
        report = series.maintain(on_plan=shown.append)
    assert shown == [report.plan]
    assert str(report).startswith(f"{series.name}: 2 steps done, 0 waiting, 0 failed\n  done     create  ")
    july, august = series.table_names()
    for time in ("2014-07-31T23:30:00Z", "2014-08-01T00:30:00Z"):
        series.put_item(Item={"Customer": "c1", "Time": time, "Url": "/", "Size": 1})
    now[0] += timedelta(hours=1)
    assert [(step.action, step.table) for step in series.maintain().done] == [("set throughput", july)]
    described = resource.Table(july).provisioned_throughput
    assert (described["ReadCapacityUnits"], described["WriteCapacityUnits"]) == (5, 1)
    now[0] = datetime(2014, 9, 1, 1, tzinfo=UTC)
    with recording(resource.meta.client) as also_sent:
        report = series.maintain()
    done = [(step.action, step.table) for step in report.done]
    assert report.done[-1].what.endswith(" of 2014-07-01 to 2014-08-01")
    # The page names every permission that this takes.
    page = (DOCS / "reference" / "timeseries.md").read_text(encoding="utf-8")
    assert {name for name, _ in (*sent.requests, *also_sent.requests)} == set(
        re.findall(
            r"`(?:dynamodb:)?([A-Z][a-z]+[A-Z]\w+)`", page[page.index("Permissions:") : page.index("Every step")]
        )
    )
    assert done == [
        ("create", series.table_name(now[0])),
        ("set throughput", august),
        ("turn on backups", july),
        ("export", july),
        ("delete", july),
    ]
    assert july not in series.table_names()
    objects = boto3_session.client("s3").list_objects_v2(Bucket="bucket")["Contents"]
    assert any(f"clicks/{july}/" in one["Key"] for one in objects)
    assert series.plan().to_dict() == {
        "series": series.name,
        "now": now[0].isoformat(),
        "steps": [],
        "refused": {},
        "kept": [],
        "plans": {},
        "advice": "",
        "saves": {"read_units": 0, "write_units": 0, "size": 0, "money": None, "once": None, "deletes": 0},
    }


def test_its_own_tables_are_known_at_once(resource: DynamoDBServiceResource) -> None:
    now = [datetime(2014, 7, 31, 23, 59, 59, tzinfo=UTC)]
    series = a_series(resource, clock=lambda: now[0], keep=0, delete=True)
    assert series.table_names() == []
    series.maintain()
    _, august = series.table_names()
    now[0] += timedelta(seconds=2)
    series.maintain()
    assert series.table_names() == [august]
