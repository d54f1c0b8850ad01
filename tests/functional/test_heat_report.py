"""Reports of heat: what a process writes to the control table each minute, and that nothing fails for them."""

from __future__ import annotations

import logging
import os
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CalculatedSuffix, CapacityMeter, ConfigurationError, ShardedTable
from shardkit.analysis.tuning import Report
from shardkit.capacity import HeatReport
from tests.support.fakes import Clock, sharding
from tests.support.metered import FakeClient, consumed, item, key
from tests.support.platforms import require_fork
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

KNOWN = sharding(CalculatedSuffix("sk", shards=4))
THROTTLED = {
    "Error": {
        "Code": "ThrottlingException",
        "ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": "table/Messages"}],
    }
}


@pytest.fixture
def control(resource: DynamoDBServiceResource) -> Any:
    return make_table(resource, ("name", "S"), ("what", "S"))


def reporting(control: Any, clock: Any = None) -> tuple[HeatReport, FakeClient]:
    heat, client = HeatReport(control), FakeClient()
    CapacityMeter(heat=heat, **({} if clock is None else {"clock": clock})).attach(client)
    return heat, client


def write(client: FakeClient, name: str, count: int = 1, operation: str = "PutItem", **more: Any) -> None:
    keys: dict[str, Any] = {"Item": item(name)} if operation == "PutItem" else {"Key": key(name)}
    answer = {"ConsumedCapacity": consumed(1.0, "Messages"), **more}
    for _ in range(count):
        client.call(operation, answer, sharding=KNOWN, TableName="Messages", **keys)


def reports(control: Any) -> list[Report]:
    return [report for one in control.scan()["Items"] if (report := Report.of(one)) is not None]


def test_a_report_has_the_hottest_keys_with_their_seconds(control: Any) -> None:
    clock = Clock()
    heat, client = reporting(control, clock)
    date = 1_404_900_000  # the first second of a minute
    for second in range(120):
        clock.now = 1000.0 + second
        header: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": {"date": formatdate(date + second, usegmt=True)}}}
        write(client, f"hot.{second % 4 + 1}", 40 if second < 60 else 1, **header)
        write(client, f"k{second % 20}.1", second % 20 + 1)
        heat.hand_on()
    (stored,) = control.scan()["Items"]
    assert stored["name"] == "shardkit:heat:Messages"
    assert stored["shardkit:expires"] == pytest.approx(date + 60 + 7200, abs=30)
    (report,) = reports(control)
    assert [one.key for one in report.keys] == ["S:hot", *(f"S:k{number}" for number in range(19, 10, -1))]
    assert report.keys[0].units[5:60] == (40.0,) * 55  # until an answer said the time, it was another
    heat.flush()
    assert reports(control)[0].counter == report.counter + 1


def test_what_was_throttled_counts_by_the_units_of_a_write(control: Any) -> None:
    heat, client = reporting(control)
    write(client, "a.1", 3, ConsumedCapacity=consumed(5.0, "Messages"))
    for name in ("a.2", "a.3", "b.2", "b.2"):
        client.call("PutItem", THROTTLED, sharding=KNOWN, TableName="Messages", Item=item(name))
    client.call("GetItem", THROTTLED, sharding=KNOWN, TableName="Messages", Key=key("b.2"))
    heat.flush()
    (report,) = reports(control)
    assert {one.key: (sum(one.units), one.refused) for one in report.keys} == {"S:a": (15, 10), "S:b": (0, 2)}


def test_a_query_of_all_shards_is_one(resource: DynamoDBServiceResource, control: Any) -> None:
    table = ShardedTable(make_table(resource, ("pk", "S"), ("sk", "S")), CalculatedSuffix("sk", shards=4))
    heat = HeatReport(control)
    with CapacityMeter(heat=heat).attach(table):
        table.put_item(Item={"pk": "a", "sk": "1"})
        for _ in range(3):
            assert table.query(KeyConditionExpression="pk = :a", ExpressionAttributeValues={":a": "a"})["Count"] == 1
        heat.flush()
    (report,) = reports(control)
    assert (report.keys[0].key, report.keys[0].queries) == ("S:a", 3)


def test_the_hottest_item_is_known_from_a_sample_of_writes(control: Any) -> None:
    heat, client = reporting(control)
    for number in range(320):
        written = {**item("a.1"), "sk": {"S": "same" if number % 32 or number < 96 else str(number)}}
        client.call(
            "PutItem",
            {"ConsumedCapacity": consumed(1.0, "Messages")},
            sharding=KNOWN,
            TableName="Messages",
            Item=written,
        )
        client.call("GetItem", {}, sharding=KNOWN, TableName="Messages", Key={**key("a.1"), "sk": {"S": "read"}})
    heat.flush()
    (report,) = reports(control)
    assert 0 < report.keys[0].share < 1


def test_operations_that_are_neither_reads_nor_writes_do_no_harm(control: Any) -> None:
    heat, client = reporting(control)
    write(client, "a.1")
    heat.throttle(("SearchVectors", "Messages", None, "a", "a.1"), 0.0)
    heat.see_item(("SearchVectors", "Messages", None, "a", "a.1"), "sort key")
    heat.flush()
    assert [(one.key, one.refused) for one in reports(control)[0].keys] == [("S:a", 0)]


def test_tables_that_are_not_sharded_are_left_out(control: Any) -> None:
    heat, client = HeatReport(control), FakeClient()
    CapacityMeter(heat=heat).attach(client, key_schema={"T": "pk"})
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    heat.flush()
    assert reports(control) == []


def test_an_idle_process_says_that_it_is_there(control: Any) -> None:
    clock = Clock()
    heat, client = reporting(control, clock)
    write(client, "a.1")
    for minute in range(1, 5):
        clock.now = 60.0 * minute + 30
        heat.hand_on()
    assert reports(control) == [Report(4)]


def test_beyond_10000_keys_of_a_minute_the_hottest_stay(control: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.capacity.heat_report._MOST_HELD", 20)
    monkeypatch.setattr("shardkit.capacity.heat_report._HELD", 5)
    heat, client = reporting(control, Clock())
    for number in range(30):
        write(client, f"k{number}.1", 1 + number % 10)
    heat.flush()
    assert [sum(one.units) for one in reports(control)[0].keys] == [10, 10, 10, 9, 9]


def test_what_cannot_be_written_is_said_once_and_no_call_fails(
    resource: DynamoDBServiceResource, caplog: pytest.LogCaptureFixture
) -> None:
    heat, client = reporting(resource.Table("Missing"))
    with caplog.at_level(logging.WARNING, "shardkit"):
        for _ in range(3):
            write(client, "a.1")
            heat.flush()
    assert [record.getMessage()[:37] for record in caplog.records] == ["the heat report cannot be written to "]
    for keys in ((("name", "S"),), (("name", "S"), ("what", "N"))):
        wrong, client = reporting(make_table(resource, *keys))
        write(client, "a.1")
        caplog.clear()
        with caplog.at_level(logging.WARNING, "shardkit"):
            wrong.flush()
        assert "must have two keys, both strings" in caplog.text


@pytest.mark.parametrize("given", [None, "Control", FakeClient()])
def test_arguments_are_checked(given: Any, control: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^control: must be a boto3 Table"):
        HeatReport(given)
    with pytest.raises(ConfigurationError, match=r"^control: must be a boto3 Table"):
        HeatReport(control.meta.client)
    with pytest.raises(ConfigurationError, match=r"^heat: must be a HeatReport"):
        CapacityMeter(heat=given or 0)  # type: ignore[arg-type]


def test_a_forked_process_reports_under_its_own_name(control: Any) -> None:
    require_fork()
    heat, client = reporting(control)
    write(client, "a.1", 5)
    name = heat._name  # noqa: SLF001
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, f"{heat._name} {heat._counter} {len(heat._minutes)}".encode())  # noqa: SLF001
        os._exit(0)
    os.waitpid(child, 0)
    other, counter, minutes = os.read(reader, 100).decode().split()
    os.close(reader)
    os.close(writer)
    assert other != name
    assert (counter, minutes) == ("0", "0")
    heat.flush()
    assert sum(reports(control)[0].keys[0].units) == 5
