"""DynamoDB Streams of real engines: the records of a sharded table have the items that were written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from shardkit import CalculatedSuffix, Resharding, ShardedTable, Unsharded, migrate
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


def test_records_of_a_move(engine_resource: DynamoDBServiceResource, boto3_session: boto3.Session) -> None:
    """The application's changes are told from the move's; nobody sees the mark."""
    strategy = Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=5), stage="move")
    table = make_table(engine_resource, ("Date", "S"), ("OrderId", "S"))
    table.update(StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"})
    table.reload()
    first, second, third = ({"Date": "2014-07-09", "OrderId": order} for order in ("A17", "A18", "A19"))
    table.put_item(Item={**first, "Paid": 12})
    ShardedTable(table, replace(strategy, stage="switch")).put_item(Item={**second, "Paid": 5})
    orders = ShardedTable(table, strategy)
    orders.put_item(Item={**third, "Paid": 7})
    migrate.move(orders, write_units=None, read_units=None)
    orders.update_item(Key=first, UpdateExpression="SET Paid = :t", ExpressionAttributeValues={":t": 13})
    orders.delete_item(Key=third)

    reader = RecordReader(table.name, strategy, key_schema={"KeySchema": table.key_schema})
    found = [reader.read(raw) for raw in _records(table, boto3_session)]
    kinds = Counter((one.origin, one.event, one.key["OrderId"]) for one in found)
    assert kinds == {
        ("application", "INSERT", "A17"): 1,
        ("application", "INSERT", "A18"): 1,
        ("application", "INSERT", "A19"): 1,
        ("application", "MODIFY", "A17"): 1,
        ("application", "REMOVE", "A19"): 1,
        ("move", "MODIFY", "A17"): 2,  # frozen; its copy released
        ("move", "INSERT", "A17"): 1,
        ("move", "REMOVE", "A17"): 1,
        ("move", "INSERT", "A18"): 1,  # a stub
        ("move", "REMOVE", "A18"): 1,
    }
    images = [image for one in found for image in (one.new_image, one.old_image) if image is not None]
    assert {name for image in images for name in image} == {"Date", "OrderId", "Paid"}


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
