"""The example Lambda over recorded events, and exports of sharded tables, read back and loaded again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples import stream_lambda
from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable, bulk_load, open_source
from shardkit.bulk.sources.base import BadRecord
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError
from tests.support.strategies import VECTORS
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

RECORDED: dict[str, Any] = json.loads((VECTORS / "stream_events.json").read_text(encoding="utf-8"))
EVENTS = ["Lambda, DynamoDB Streams", "Lambda, Kinesis"]

# -- the example -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    stream_lambda.seen.clear()
    yield
    stream_lambda.seen.clear()


@pytest.mark.parametrize("name", EVENTS)
def test_the_lambda_handles_a_batch(name: str) -> None:
    assert stream_lambda.handler(RECORDED[name]) == {"batchItemFailures": []}
    assert stream_lambda.seen == {
        ("2014-07-09", "INSERT"): 1,
        ("2014-07-09", "MODIFY"): 1,
        ("2014-07-08", "REMOVE"): 1,
    }


@pytest.mark.parametrize("name", EVENTS)
def test_the_lambda_reports_the_first_record_that_fails(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def act(record: Any) -> None:
        if record.event == "MODIFY":
            raise OSError("the other system is down")
        done.append(record.key["OrderId"])

    done: list[str] = []
    monkeypatch.setattr(stream_lambda, "act", act)
    raw = RECORDED[name]["Records"][1]
    number = raw["kinesis"]["sequenceNumber"] if "kinesis" in raw else raw["dynamodb"]["SequenceNumber"]
    assert stream_lambda.handler(RECORDED[name]) == {"batchItemFailures": [{"itemIdentifier": number}]}
    assert done == ["A17"]  # none after the record that failed: Lambda gives them again
    assert "the other system is down" in caplog.text


@pytest.mark.parametrize("name", EVENTS)
def test_the_lambda_reports_a_record_that_cannot_be_read(name: str) -> None:
    event = copy.deepcopy(RECORDED[name])
    raw = event["Records"][1]
    if "kinesis" in raw:
        raw["kinesis"]["data"] = "SGVsbG8="
    else:
        raw["dynamodb"]["Keys"] = {}
    ((failure,),) = stream_lambda.handler(event).values()
    assert failure["itemIdentifier"] in {raw.get("kinesis", {}).get("sequenceNumber"),
                                         raw.get("dynamodb", {}).get("SequenceNumber")}  # fmt: skip
    assert sum(stream_lambda.seen.values()) == 1


# -- exports -----------------------------------------------------------------------------------------------------------

ITEMS = [
    {"Date": f"2014-07-{day:02}", "OrderId": f"A{number}", "Total": Decimal(number)}
    for day in (8, 9)
    for number in range(5)
]


def make(resource: DynamoDBServiceResource, name: str) -> Any:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name=name)


def items_of(table: Any) -> list[Any]:
    scanned: list[Any] = table.scan()["Items"]
    return sorted(scanned, key=lambda item: (item["Date"], int(item["OrderId"][1:])))


def test_an_export_is_loaded_with_another_strategy(
    resource: DynamoDBServiceResource, boto3_session: boto3.Session, tmp_path: Path
) -> None:
    """What moto exports to S3 has stored keys; open_source makes them logical, and the load adds the new suffixes."""
    table = make(resource, "Orders")
    old, new = CalculatedSuffix("OrderId", shards=5), CalculatedSuffix("OrderId", shards=3)
    bulk_load(ShardedTable(table, old), ITEMS)
    s3 = boto3_session.client("s3")
    s3.create_bucket(Bucket="exports")
    client = table.meta.client
    client.update_continuous_backups(
        TableName="Orders", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    started = client.export_table_to_point_in_time(TableArn=table.table_arn, S3Bucket="exports", S3Prefix="july")
    arn = started["ExportDescription"]["ExportArn"]
    while client.describe_export(ExportArn=arn)["ExportDescription"]["ExportStatus"] == "IN_PROGRESS":
        pass  # moto exports on a thread of its own
    (export,) = [one["Key"] for one in s3.list_objects_v2(Bucket="exports")["Contents"] if "/data/" in one["Key"]]
    where = tmp_path / "data.json.gz"
    where.write_bytes(s3.get_object(Bucket="exports", Key=export)["Body"].read())
    target = ShardedTable(make(resource, "Orders-3"), new)

    stored: list[Any] = [record for _, record in open_source(where, table=target).read()]
    assert {item["Date"] for item in stored} == {item["Date"] for item in table.scan()["Items"]}
    source = open_source(where, table=target, stored_by=old)
    assert bulk_load(target, source).written == len(ITEMS)
    assert items_of(target) == ITEMS
    assert {item["Date"] for item in target.table.scan()["Items"]} == {
        new.physical_key(str(item["Date"]), new.shard_of(str(item["Date"]), item)) for item in ITEMS
    }


def test_stored_by(resource: DynamoDBServiceResource, tmp_path: Path) -> None:
    """Items without a suffix stay, dead letters are logical already, what cannot be read is told."""
    table = ShardedTable(make(resource, "Orders"), RandomSuffix(3))
    lines = [
        *RECORDED["export, full"],
        to_wire_item({"Date": "2014-07-09.4", "OrderId": "A19"}),
        {
            "Item": to_wire_item({"Date": "v1.4", "OrderId": "A20"}),
            "reason": "r",
            "load": "l",
            "at": [0, 0],
            "shard": 2,
        },
        {"Item": {"Date": {"Q": "x"}, "OrderId": {"S": "A21"}}},
        RECORDED["export, incremental"][0],
    ]
    path = tmp_path / "data.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    strategy = CalculatedSuffix("OrderId", shards=10)
    source = open_source(path, table=table, stored_by=strategy)
    records: list[Any] = [record for _, record in source.read()]
    assert [record["Date"] for record in records[:5]] == [
        "2014-07-09",
        "2014-07-09",
        "2014-07-08",
        "2014-07-09",
        "v1.4",
    ]
    assert records[4].shard == 2
    assert all(isinstance(record, BadRecord) for record in records[5:])
    assert "must be a wire value" in str(records[5].error)
    assert "shardkit.streams" in str(records[6].error)
    # A load is resumed only with the same items.
    assert source.identity()["options"] == {"stored_by": strategy.to_dict()}
    assert open_source(path, table=table).identity()["options"] == {}


def test_where_stored_by_is_refused(resource: DynamoDBServiceResource, tmp_path: Path) -> None:
    table = ShardedTable(make(resource, "Orders"), RandomSuffix(3))
    strategy: Any = RandomSuffix(3)
    (tmp_path / "a.csv").write_text("Date,OrderId\nd,o\n")
    (tmp_path / "a.jsonl").write_text('{"Date": "d", "OrderId": "o"}\n')
    (tmp_path / "a.json").write_text('{"Item": {"Date": {"S": "d"}, "OrderId": {"S": "o"}}}\n')
    for name in ("a.csv", "a.jsonl"):
        with pytest.raises(ConfigurationError, match="stored_by: is only supported for DynamoDB JSON, not for"):
            open_source(tmp_path / name, table=table, stored_by=strategy)
    with pytest.raises(ConfigurationError, match="stored_by: needs table="):
        open_source(tmp_path / "a.json", stored_by=strategy)
    with pytest.raises(ConfigurationError, match="stored_by: must be a strategy, got 3"):
        open_source(tmp_path / "a.json", table=table, stored_by=3)  # type: ignore[arg-type] # the type checker sees it
