"""Records of streams and lines of exports."""

from __future__ import annotations

import time
from typing import Any

from shardkit import ShardedTable
from shardkit.streams import LogicalRecord, RecordReader
from tests.aws.check import NotVerified, check, holds
from tests.aws.orders import BY_ID, order
from tests.aws.run import Run

IMAGES: Any = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


def _reader(table: Any) -> RecordReader:
    return RecordReader(table.name, BY_ID, key_schema={"KeySchema": table.key_schema})


def _records(run: Run, table: Any, most: int, seconds: float) -> list[LogicalRecord]:
    """Read a table's stream from its beginning, until it has so many records."""
    streams: Any = run.session.client("dynamodbstreams", endpoint_url=run.place.endpoint)
    reader, arn = _reader(table), table.latest_stream_arn
    at: dict[str, str] = {}
    found: list[LogicalRecord] = []

    def enough() -> bool:
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            where = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            if shard["ShardId"] not in at:
                at[shard["ShardId"]] = streams.get_shard_iterator(**where)["ShardIterator"]
        for shard, iterator in at.items():
            if iterator:
                answer = streams.get_records(ShardIterator=iterator)
                found.extend(reader.records(answer))
                at[shard] = answer.get("NextShardIterator", "")
        return len(found) >= most

    run.until(enough, seconds, every=2.0)
    return found


@check("Records of a stream have logical keys and images", "streams", minutes=0.5, write_units=10, stream_reads=200)
def stream(run: Run) -> str:
    table = run.table(StreamSpecification=IMAGES)
    orders = ShardedTable(table, BY_ID)
    key = {name: order(1)[name] for name in ("day", "id")}
    orders.put_item(Item=order(1))
    orders.update_item(Key=key, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": 1})
    orders.delete_item(Key=key)
    found = [(one.event, one.key, one.old_image, one.new_image) for one in _records(run, table, 3, 60)]
    first, second = order(1), order(1) | {"n": 2}
    holds(found == [("INSERT", key, None, first), ("MODIFY", key, first, second), ("REMOVE", key, second, None)], found)
    return "INSERT, MODIFY, REMOVE"


@check(
    "An expired item's deletion has a logical key, and is told from the application's", "streams",
    minutes=60, also="ttl", write_units=20, stream_reads=5_000,
)  # fmt: skip
def ttl(run: Run) -> str:
    run.on_aws_only("engines delete expired items at another time, or write another record")
    table = run.table(StreamSpecification=IMAGES)
    run.client.update_time_to_live(
        TableName=table.name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"}
    )
    ShardedTable(table, BY_ID).put_item(Item=order(1, expires=int(time.time()) - 60))
    found = _records(run, table, 2, 3600)
    if len(found) < 2:
        raise NotVerified("the service had not deleted the item after an hour; it may take 48 of them")
    removed: Any = found[1].record
    seen = (found[1].event, found[1].key["day"], removed.get("userIdentity", {}).get("principalId"))
    holds(seen == ("REMOVE", "2014-07-09", "dynamodb.amazonaws.com"), seen)
    return "REMOVE by dynamodb.amazonaws.com"
