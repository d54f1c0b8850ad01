"""Tables with a shard map on real engines: keys of each type, over the client, past it, and from many threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, ShardMapAdmin, Unsharded
from tests.support.engines import EngineName
from tests.support.mapped import Moment, before, requests_of
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

KEYS = [(("pk", "S"), ("sk", "N")), (("pk", "B"), ("sk", "B")), (("pk", "B"), None)]


@pytest.mark.parametrize(("partition", "sort"), KEYS)
def test_keys_of_each_type(engine_resource: DynamoDBServiceResource, partition: Any, sort: Any) -> None:
    table, moment = make_table(engine_resource, partition, sort), Moment()
    admin, strategy = moment.admin(table), CalculatedSuffix((sort or partition)[0], shards=3 if sort else 1)
    admin.create(Unsharded())
    orders = ShardedTable(table, moment.map())
    values: dict[str, Any] = {"S": "d", "B": b"d", "N": 5}
    item = {name: values[kind] for name, kind in filter(None, (partition, sort))}
    orders.put_item(Item=item)
    admin.start(strategy)
    for stage in ("guard", "switch", "move"):
        moment.advanced(admin, stage)
        assert orders.get_item(Key=item)["Item"] == item
        assert orders.query(KeyConditionExpression=Key("pk").eq(values[partition[1]]))["Items"] == [item]
        assert list(orders.scan_items(segments=2)) == [item]
    assert table.scan(Select="COUNT")["Count"] == 2


def test_times_are_the_engines(engine_resource: DynamoDBServiceResource) -> None:
    state = ShardMapAdmin(make_table(engine_resource)).create(Unsharded())
    assert state.since is not None
    assert abs(state.since - time.time()) < 60


def test_a_read_of_the_map_is_one_unit(engine_resource: DynamoDBServiceResource, engine_name: EngineName) -> None:
    table, moment = make_table(engine_resource, sort_key=("sk", "S")), Moment()
    moment.admin(table).create(CalculatedSuffix("sk", shards=200))
    orders, meter = ShardedTable(table, moment.map()), CapacityMeter()
    with meter.attach(orders), meter.scope("reads") as used:
        orders.get_item(Key={"pk": "d", "sk": "1"})
    if engine_name == "dynoxide":
        assert used.read_units == 1.5
    assert used.by_operation["GetItem"].requests == 2


@pytest.mark.parametrize("transport", ["client", "direct"])
def test_each_request_of_many_threads_is_under_a_lease(
    engine_resource: DynamoDBServiceResource, transport: Any
) -> None:
    table, moment = make_table(engine_resource, sort_key=("sk", "S")), Moment()
    admin = moment.admin(table)
    admin.create(Unsharded())
    orders = ShardedTable(table, moment.map(), transport=transport)
    lock = threading.Lock()
    items = [{"pk": "d", "sk": f"{number:03}"} for number in range(96)]

    def put(item: dict[str, str]) -> None:
        orders.put_item(Item=item)
        with lock:
            moment.wait(0.5)

    orders.get_item(Key=items[0])
    with requests_of(table.meta.client) as seen, ThreadPoolExecutor(8) as threads:
        list(threads.map(put, items))
        counts = Counter(name for name, _ in seen)
        admin.start(CalculatedSuffix("sk", shards=4))
        moment.advanced(admin, "move")
        list(threads.map(put, items))
    assert counts["PutItem"] == 96
    assert 2 <= counts["map"] <= 5  # not one for each thread, whenever the lease is 20 seconds old
    assert orders.query(KeyConditionExpression=Key("pk").eq("d"))["Items"] == items


@pytest.mark.parametrize("transport", ["client", "direct"])
def test_a_process_that_stands_still_reads_the_map_first(
    engine_resource: DynamoDBServiceResource, transport: Any
) -> None:
    table, moment = make_table(engine_resource, sort_key=("sk", "S")), Moment()
    admin, client = moment.admin(table), table.meta.client
    admin.create(Unsharded())
    orders = ShardedTable(table, moment.map(), transport=transport)
    items = [{"pk": "d", "sk": str(number)} for number in range(4)]
    for item in items[:2]:
        orders.put_item(Item=item)
    with before(client, "PutItem", do=lambda: moment.wait(30)), requests_of(client) as seen:
        orders.put_item(Item=items[2])
    assert [name for name, _ in seen] == ["map", "PutItem"]

    def moved() -> None:
        admin.start(CalculatedSuffix("sk", shards=4))
        moment.advanced(admin, "move")

    with before(client, "PutItem", do=moved):
        orders.put_item(Item=items[3])
    stored = {item["sk"]: item["pk"] for item in table.scan(ConsistentRead=True)["Items"]}
    assert [stored[item["sk"]] == "d" for item in items] == [True, True, True, False]
