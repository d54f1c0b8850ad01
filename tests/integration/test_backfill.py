"""A backfill on real engines: killed and resumed, beside writers, and what it costs."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable, Unsharded, backfill_index
from tests.support.engines import EngineName
from tests.support.loading import backfilled, soon
from tests.support.platforms import require_fork
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

require_fork()
# A process of its own, forked off one that has imported all and has no threads: it starts in 20 ms.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.loading"])
STATUSES = ["open", "paid", "sent"]
BY_SOURCE = CalculatedSuffix("OrderId", shards=5, source="Status")
INDEX = GlobalIndex("by-status", ("ix", "S"), ("At", "N"))


def make_orders(resource: DynamoDBServiceResource, count: int, *, padding: int = 0) -> Any:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[INDEX])
    with table.batch_writer() as batch:
        for number in range(count):
            item = {"Date": f"2014-07-{number % 7}", "OrderId": f"A{number:04}", "At": number}
            batch.put_item(Item={**item, "Status": STATUSES[number % 3], "Pad": "x" * padding})
    return table


def test_what_it_costs(engine_resource: DynamoDBServiceResource) -> None:
    """For each item of 1 KB one update: a write unit of the table, one of the index; and 1.5 read units per 4 KB."""
    table = make_orders(engine_resource, 40, padding=880)
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": BY_SOURCE}, max_concurrency=2)
    report = backfill_index(orders, "by-status", write_units=None, read_units=None)
    assert (report.complete, report.written, report.write_units) == (True, 40, 80.0)
    assert report.requests == 40 + 2 * 2
    # The second pass reads what the first has made of them, a few bytes more.
    assert report.read_units == pytest.approx(1.5 * 40 * 950 / 4096, abs=3)


def test_writers_and_a_backfill(engine_resource: DynamoDBServiceResource) -> None:
    """Put, updated and deleted meanwhile by writers that use ``indexes=``: the index then has what the table has."""
    table = make_orders(engine_resource, 150)
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": BY_SOURCE})
    done = threading.Event()

    def write(seed: int) -> None:
        rng = Random(seed)
        while not done.is_set():
            number = rng.randrange(150)
            key = {"Date": f"2014-07-{number % 7}", "OrderId": f"A{number:04}"}
            match rng.randrange(4):
                case 0:
                    orders.delete_item(Key=key)
                case 1:
                    orders.put_item(Item={**key, "At": number, "Status": rng.choice(STATUSES)})
                case 2:
                    orders.update_item(Key=key, UpdateExpression="REMOVE #s", ExpressionAttributeNames={"#s": "Status"})
                case _:
                    orders.update_item(
                        Key=key,
                        UpdateExpression="SET #s = :s, #a = :a",
                        ExpressionAttributeNames={"#s": "Status", "#a": "At"},
                        ExpressionAttributeValues={":s": rng.choice(STATUSES), ":a": number},
                    )

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        report = backfill_index(orders, "by-status", write_units=None, read_units=None)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert report.complete
    assert report.failed == 0
    items = table.scan(ConsistentRead=True)["Items"]
    for status in STATUSES:
        found = orders.query_items(IndexName="by-status", KeyConditionExpression=Key("Status").eq(status))
        assert [item["OrderId"] for item in found] == sorted(
            item["OrderId"] for item in items if item.get("Status") == status and "At" in item
        )


def test_killed_and_resumed(engine_resource: DynamoDBServiceResource, tmp_path: Path) -> None:
    """No update is made twice, and nothing is left."""
    table = make_orders(engine_resource, 100)
    journal = tmp_path / "backfill.journal"

    def updated() -> int:
        return sum("ix" in item for item in table.scan(ConsistentRead=True)["Items"])

    endpoint = engine_resource.meta.client.meta.endpoint_url
    process = processes.Process(target=backfilled, args=(endpoint, table.name, BY_SOURCE, journal), daemon=True)
    process.start()
    try:
        assert soon(lambda: updated() >= 10)
    finally:
        process.kill()
        process.join()
    before = updated()
    assert before < 100
    assert json.loads(journal.read_text("utf-8"))["index"] == "by-status"
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": BY_SOURCE})
    report = backfill_index(orders, "by-status", journal=journal, write_units=None, read_units=None)
    # When it was killed, ten requests may have been in flight.
    assert 90 - before <= report.written <= 100 - before
    assert (report.complete, updated()) == (True, 100)
    assert not journal.exists()


def test_an_attribute_of_its_own(engine_resource: DynamoDBServiceResource, engine_name: EngineName) -> None:
    """A key of several attributes: dynoxide takes it, and cannot query it."""
    index = GlobalIndex("by-status", [("Status", "S"), ("shard", "N")], ("At", "N"))
    table = make_table(engine_resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[index])
    for number in range(30):
        table.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number}", "Status": "open", "At": number})
    strategy = RandomSuffix(5, attribute="shard")
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": strategy})
    report = backfill_index(orders, "by-status", write_units=None, read_units=None)
    assert (report.complete, report.written) == (True, 30)
    assert {item["shard"] for item in table.scan()["Items"]} <= {1, 2, 3, 4, 5}
    if engine_name == "dynamodb_local":
        found = orders.query_items(IndexName="by-status", KeyConditionExpression=Key("Status").eq("open"))
        assert [item["At"] for item in found] == list(range(30))
