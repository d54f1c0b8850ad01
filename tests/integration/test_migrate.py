"""A move on dynoxide: beside a writer and a reader, killed and resumed, and what it costs."""

from __future__ import annotations

import multiprocessing
import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import moving
from shardkit import CalculatedSuffix, Resharding, ShardedTable, Unsharded, migrate
from shardkit.dynamodb.sizes import ITEM_BYTES, item_size
from shardkit.migrate.marks import MARK
from tests.support.engines import EngineName
from tests.support.loading import moved, soon
from tests.support.moving import ADOPT, resharding
from tests.support.platforms import require_fork
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

pytestmark = pytest.mark.integration
require_fork()
# A process of its own, forked off one that has imported all and has no threads: it starts in 20 ms.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.loading"])


@pytest.fixture
def engine_name() -> EngineName:
    """Once: transactions on DynamoDB Local take long, and show nothing more."""
    return "dynoxide"


def make_items(resource: DynamoDBServiceResource, count: int, padding: int = 0) -> Any:
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    with table.batch_writer() as batch:
        for number in range(count):
            batch.put_item(Item={"pk": f"k{number % 3}", "sk": f"s{number:03}", "n": 0, "pad": "x" * padding})
    return table


def test_what_it_costs(engine_resource: DynamoDBServiceResource) -> None:
    """For each item of 1 KB 6 write units, and 1.5 read units per 4 KB; a plan says so."""
    table = make_items(engine_resource, 20, padding=900)
    orders = ShardedTable(table, resharding("move"), max_concurrency=2)
    plan = migrate.plan(orders, read_units=None)
    report = migrate.move(orders, write_units=None, read_units=None)
    assert (report.complete, report.moved, report.write_units) == (True, 20, 120.0)
    assert plan.table_units == 120.0
    # Beside the items, the first scan may read some of the copies.
    assert 1.5 * 20 * 940 / 4096 - 3 <= report.read_units <= 2 * 20 * 940 / 4096 + 3


def test_what_is_too_large_for_its_new_place(engine_resource: DynamoDBServiceResource) -> None:
    """With a stream the copy is marked too: the mark fits beside the item, and the copy does not. It stays writable."""
    table = make_table(engine_resource, ("pk", "S"), ("sk", "S"))
    table.update(StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    table.reload()
    item = {"pk": "k", "sk": "s", "x": ""}
    item["x"] = "x" * (ITEM_BYTES - 60 - item_size(item))
    table.put_item(Item=item)
    longer = CalculatedSuffix("sk", 2, separator="#" * 50)
    orders = ShardedTable(table, Resharding(Unsharded(), longer, stage="move"), max_concurrency=1)
    assert migrate.plan(orders, read_units=None).too_large == 1
    report = migrate.move(orders, write_units=None, read_units=None)
    assert (report.moved, report.failed, report.left) == (0, 1, 1)
    assert table.scan()["Items"] == [item]
    orders.update_item(Key={"pk": "k", "sk": "s"}, UpdateExpression="SET x = :x", ExpressionAttributeValues={":x": "x"})
    assert migrate.move(orders, write_units=None, read_units=None).moved == 1


def test_two_movers_beside_a_writer_and_a_reader(engine_resource: DynamoDBServiceResource) -> None:
    """No update is lost, no item is missing at any time, and nobody reads an older value than before."""
    table = make_items(engine_resource, 40)
    orders = ShardedTable(table, resharding("move"), max_concurrency=4)
    keys = [{"pk": f"k{number % 3}", "sk": f"s{number:03}"} for number in range(40)]
    added = dict.fromkeys((key["sk"] for key in keys), 0)
    problems: list[Any] = []
    done = threading.Event()

    def write() -> None:
        rng = Random(1)
        while not done.is_set():
            key = rng.choice(keys)
            orders.update_item(Key=key, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": 1})
            added[key["sk"]] += 1

    def read() -> None:
        rng = Random(2)
        while not done.is_set():
            key = rng.choice(keys)
            least = added[key["sk"]]
            item: Any = orders.get_item(Key=key, ConsistentRead=True).get("Item")
            if item is None or MARK in item or item["n"] < least:
                problems.append((key, least, item))

    def move() -> None:
        report = migrate.move(orders, write_units=None, read_units=None)
        if report.failed:
            problems.append(report)

    helpers = [threading.Thread(target=write), threading.Thread(target=read)]
    movers = [threading.Thread(target=move) for _ in range(2)]
    for thread in (*helpers, *movers):
        thread.start()
    for thread in movers:
        thread.join()
    done.set()
    for thread in helpers:
        thread.join()
    assert problems == []
    assert sum(added.values()) > 0
    assert migrate.verify(orders, read_units=None).complete
    after = ShardedTable(table, ADOPT[1])
    assert {item["sk"]: item["n"] for item in after.scan_items()} == added


def test_the_benchmark(engine_resource: DynamoDBServiceResource) -> None:
    """With few items: it moves all, and calls a table in each stage."""
    told = moving.moved(engine_resource, 20)
    assert "6.00 units an item" in told
    assert told.endswith("all at their new places")
    assert [line.partition(": old ")[0] for line in moving.latencies(engine_resource, 4, 1)] == [
        "get", "put", "put, new item", "query of 20"
    ]  # fmt: skip


def test_killed_and_resumed(engine_resource: DynamoDBServiceResource) -> None:
    """Half moved items are finished, and nothing is left."""
    table = make_items(engine_resource, 40)

    def at_home() -> int:
        return sum("." in str(item["pk"]) for item in table.scan(ConsistentRead=True)["Items"])

    endpoint = engine_resource.meta.client.meta.endpoint_url
    process = processes.Process(target=moved, args=(endpoint, table.name), daemon=True)
    process.start()
    try:
        assert soon(lambda: at_home() >= 5)
    finally:
        process.kill()
        process.join()
    assert at_home() < 40
    orders = ShardedTable(table, resharding("move"), max_concurrency=4)
    report = migrate.move(orders, write_units=None, read_units=None)
    assert (report.complete, report.failed, at_home()) == (True, 0, 40)
    assert len(table.scan()["Items"]) == 40


def test_fewer_shards_and_back_to_none(engine_resource: DynamoDBServiceResource) -> None:
    """A move works in every direction."""
    table = make_items(engine_resource, 8)
    steps = [(Unsharded(), CalculatedSuffix("sk", 6)), (CalculatedSuffix("sk", 6), CalculatedSuffix("sk", 4))]
    for old, new in [*steps, (CalculatedSuffix("sk", 4), Unsharded())]:
        orders = ShardedTable(table, resharding("move", old, new), max_concurrency=4)
        assert migrate.move(orders, write_units=None, read_units=None).complete
        assert len(list(ShardedTable(table, new).scan_items())) == 8
    assert {item["pk"] for item in table.scan()["Items"]} == {"k0", "k1", "k2"}
