"""DynamoDB Streams of real engines: the records of a sharded table have the items that were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.config import Config

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.streams import RecordReader
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


def test_records_have_logical_items(engine_resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> None:
    strategy = CalculatedSuffix("OrderId", shards=5)
    table = make_table(engine_resource, ("Date", "S"), ("OrderId", "S"))
    table.update(StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"})
    table.reload()
    orders = ShardedTable(table, strategy)
    first, second = ({"Date": "2014-07-09", "OrderId": order} for order in ("A17", "A18"))
    orders.put_item(Item={**first, "Paid": 12})
    orders.put_item(Item={**second, "Raw": b"\x00"})
    orders.update_item(Key=first, UpdateExpression="SET Paid = :t", ExpressionAttributeValues={":t": 13})
    orders.delete_item(Key=second)

    reader = RecordReader(table.name, strategy, key_schema={"KeySchema": table.key_schema})
    # By kind: the two items are in two shards, and engines need not order one's changes against the other's.
    found = {
        (one.event, one.key["OrderId"]): one for raw in _records(table, boto3_session) for one in [reader.read(raw)]
    }
    assert {kind: (one.key, one.new_image, one.old_image) for kind, one in found.items()} == {
        ("INSERT", "A17"): (first, {**first, "Paid": 12}, None),
        ("INSERT", "A18"): (second, {**second, "Raw": b"\x00"}, None),
        ("MODIFY", "A17"): (first, {**first, "Paid": 13}, {**first, "Paid": 12}),
        ("REMOVE", "A18"): (second, None, {**second, "Raw": b"\x00"}),
    }
    assert all(one.shard == strategy.shard_of("2014-07-09", one.key) for one in found.values())


def _records(table: Any, session: boto3.Session) -> list[Any]:
    # dynoxide's names of shards are shorter than AWS's.
    streams = session.client(
        "dynamodbstreams",
        endpoint_url=table.meta.client.meta.endpoint_url,
        config=Config(parameter_validation=False),
    )
    arn = table.latest_stream_arn
    iterators = [
        streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
    ]
    return [
        record
        for iterator in iterators
        for record in streams.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
    ]
