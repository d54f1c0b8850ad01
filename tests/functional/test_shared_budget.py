"""SharedBudget on real clients: loads and budgets that share a rate, errors, pickles and forks."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from botocore.stub import Stubber

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    CapacityBudget,
    CapacityBudgetError,
    ConfigurationError,
    ShardedTable,
    SharedBudget,
    Unsharded,
    backfill_index,
    bulk_load,
)
from shardkit.capacity.membership import BEAT_SECONDS, MEMBER_LEASE_SECONDS, SILENT_SECONDS
from tests.support.beats import Beats
from tests.support.tables import AttributeType, GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

Make = Callable[..., SharedBudget]
ITEMS = [{"pk": f"{number}"} for number in range(200)]


@pytest.fixture
def budgets(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, name="Budgets")


@pytest.fixture
def orders(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, name="Orders")


@pytest.fixture
def beats() -> Beats:
    return Beats()


@pytest.fixture
def make(budgets: Table, beats: Beats) -> Make:
    def made(write_units: float | None = 10.0, name: str = "Orders", **options: Any) -> SharedBudget:
        return SharedBudget(
            options.pop("table", budgets), name, write_units, clock=beats.read, start=beats.start, **options
        )

    return made


def timed(table: Table, beats: Beats) -> ShardedTable:
    sharded = ShardedTable(table, Unsharded())
    sharded.runner.clock, sharded.runner.sleep = beats, beats.sleep
    return sharded


def members(budgets: Table, name: str = "Orders", **key: Any) -> list[str]:
    item = budgets.get_item(Key={"pk": name, **key})["Item"]
    return [attribute for attribute in item if attribute.startswith("m:")]


def test_a_load_keeps_to_its_share(make: Make, orders: Table, beats: Beats, budgets: Table) -> None:
    budget = make(10.0, burst=0.0)
    report = bulk_load(timed(orders, beats), ITEMS, write_units=budget, workers=1)
    assert report.written == 200
    # It waited until all who might use the budget were known; moto reports one unit for each of the eight batches.
    assert SILENT_SECONDS + 0.7 <= beats.now <= SILENT_SECONDS + 5.0
    assert len(members(budgets)) == 1
    beats.sleep(3 * BEAT_SECONDS)
    assert members(budgets) == []
    assert beats.due == {}


def test_two_loads_of_a_process_share_its_share(make: Make, orders: Table, beats: Beats) -> None:
    budget = make(10.0, burst=0.0)
    with CapacityBudget(write_units=budget, clock=beats, sleep=beats.sleep).attach(orders):
        for item in ITEMS[:20]:
            orders.put_item(Item=item)
    before = beats.now
    bulk_load(timed(orders, beats), ITEMS, write_units=budget, workers=1)
    with CapacityBudget(write_units=budget, clock=beats, sleep=beats.sleep).attach(orders):
        for item in ITEMS[:20]:
            orders.put_item(Item=item)
    assert beats.now - before >= 2.6


def test_a_budget_for_reads_and_writes(make: Make, orders: Table, beats: Beats) -> None:
    budget = make(5.0, read_units=2.0, burst=0.0)
    limits = CapacityBudget(write_units=budget, read_units=budget, clock=beats, sleep=beats.sleep)
    with limits.attach(orders):
        orders.put_item(Item={"pk": "a"})
        orders.get_item(Key={"pk": "a"}, ConsistentRead=True)
        began = beats.now
        for _ in range(10):
            orders.get_item(Key={"pk": "a"}, ConsistentRead=True)
        reads = beats.now - began
        for _ in range(10):
            orders.put_item(Item={"pk": "a"})
    assert reads == pytest.approx(2.5, abs=0.3)  # moto reports half a unit
    assert beats.now - began - reads == pytest.approx(2.0, abs=0.6)


def test_it_may_be_on_the_client_that_it_limits(make: Make, resource: DynamoDBServiceResource, beats: Beats) -> None:
    orders = make_table(resource, name="Orders")
    with CapacityBudget(write_units=make(10.0), clock=beats, sleep=beats.sleep).attach(resource):
        for item in ITEMS[:50]:
            orders.put_item(Item=item)
    assert beats.now == pytest.approx(SILENT_SECONDS + 5.0, abs=1.0)


def test_without_a_share_a_call_waits_no_longer_than_its_timeout(make: Make, orders: Table, beats: Beats) -> None:
    with CapacityBudget(write_units=make(), timeout=2.0, clock=beats, sleep=beats.sleep).attach(orders):
        with pytest.raises(CapacityBudgetError, match=r"no share of the write units .* it waits 2 at most"):
            orders.put_item(Item=ITEMS[0])
        assert beats.now == pytest.approx(2.0, abs=0.2)
        beats.sleep(SILENT_SECONDS)
        orders.put_item(Item=ITEMS[0])


def test_a_request_that_was_decided_before_the_process_stood_still_does_not_go(
    make: Make, orders: Table, beats: Beats
) -> None:
    def stands_still(**_: Any) -> None:
        beats.now += MEMBER_LEASE_SECONDS

    budget, events = make(100.0), orders.meta.client.meta.events
    with CapacityBudget(write_units=budget, clock=beats, sleep=beats.sleep).attach(orders):
        orders.put_item(Item={"pk": "before"})
        events.register("before-sign", stands_still)
        with pytest.raises(CapacityBudgetError, match="stood still"):
            orders.put_item(Item={"pk": "during"})
        events.unregister("before-sign", stands_still)
        orders.put_item(Item={"pk": "after"})
    assert {item["pk"] for item in orders.scan()["Items"]} == {"before", "after"}


def test_a_batch_that_was_decided_before_the_process_stood_still_goes_later(
    make: Make, orders: Table, beats: Beats
) -> None:
    stops = [True]

    def stands_still(**_: Any) -> None:
        if stops:
            stops.clear()
            beats.now += 60.0

    seen: list[float] = []
    events = orders.meta.client.meta.events
    events.register("before-sign.dynamodb.BatchWriteItem", stands_still)
    events.register_first("before-send.dynamodb.BatchWriteItem", lambda **_: seen.append(beats.now))
    report = bulk_load(timed(orders, beats), ITEMS, write_units=make(100.0), workers=1)
    assert (report.written, report.failed, report.throttles) == (200, 0, 0)
    assert report.requests == 9  # one of them did not go
    assert min(seen) > 60.0


def test_an_item_of_another_kind_stops_a_load(make: Make, orders: Table, budgets: Table, beats: Beats) -> None:
    budgets.put_item(Item={"pk": "Orders", "Total": 5})
    budget = make()
    with pytest.raises(ConfigurationError, match="'Orders' that is not a shared budget"), budget:
        bulk_load(timed(orders, beats), ITEMS, write_units=budget)
    assert budgets.get_item(Key={"pk": "Orders"})["Item"] == {"pk": "Orders", "Total": 5}
    assert orders.scan()["Count"] == 0
    limits = CapacityBudget(write_units=make(), clock=beats, sleep=beats.sleep)
    with limits.attach(orders), pytest.raises(ConfigurationError, match="not a shared budget"):
        orders.put_item(Item=ITEMS[0])


def test_a_table_that_does_not_exist_stops_a_load(
    make: Make, orders: Table, resource: DynamoDBServiceResource, beats: Beats
) -> None:
    """The error is that of the load, also where the budget is closed by it."""
    budget = make(table=resource.Table("None"))
    with pytest.raises(BulkLoadError, match=r"the load stopped: .*ResourceNotFoundException"), budget:
        bulk_load(timed(orders, beats), ITEMS, write_units=budget)


def test_throttles_are_logged_once_and_it_goes_on_by_itself(
    make: Make, budgets: Table, orders: Table, beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    budget = make(1000.0)
    limits = CapacityBudget(write_units=budget, timeout=1000.0, clock=beats, sleep=beats.sleep)
    with limits.attach(orders), caplog.at_level(logging.WARNING, "shardkit"):
        orders.put_item(Item=ITEMS[0])
        with Stubber(budgets.meta.client) as stubber:
            for _ in range(30):
                stubber.add_client_error("update_item", "ProvisionedThroughputExceededException")
            beats.sleep(20.0)
            assert budget.shared_rate("write", "").rate == 0.0
        began = beats.now
        orders.put_item(Item=ITEMS[1])
        assert beats.now - began <= BEAT_SECONDS
    assert [record.getMessage().split(": the share ")[1][:20] for record in caplog.records] == [
        "cannot be renewed (P",
        "is renewed again",
    ]


def test_a_deleted_item_is_made_again(make: Make, budgets: Table, orders: Table, beats: Beats) -> None:
    with CapacityBudget(write_units=make(100.0), clock=beats, sleep=beats.sleep).attach(orders):
        orders.put_item(Item=ITEMS[0])
        budgets.delete_item(Key={"pk": "Orders"})
        began = beats.now
        for item in ITEMS:
            orders.put_item(Item=item)
        assert beats.now - began == pytest.approx(2.0, abs=0.2)  # its share holds meanwhile
        beats.sleep(BEAT_SECONDS)
    assert len(members(budgets)) == 1


@pytest.mark.parametrize(("kind", "stored"), [("S", "shardkit:budget"), ("B", b"shardkit:budget"), ("N", 0)])
def test_a_table_with_a_sort_key(
    make: Make, resource: DynamoDBServiceResource, beats: Beats, kind: AttributeType, stored: Any
) -> None:
    table = make_table(resource, sort_key=("sk", kind))
    make(table=table).shared_rate("write", "").ready(0.0)
    beats.sleep(1.0)
    assert len(members(table, sk=stored)) == 1


def test_a_table_whose_partition_key_is_a_number(
    make: Make, orders: Table, resource: DynamoDBServiceResource, beats: Beats
) -> None:
    with pytest.raises(ConfigurationError, match="is of type N; a shared budget needs"):
        bulk_load(timed(orders, beats), ITEMS, write_units=make(table=make_table(resource, ("Id", "N"))))


def test_it_closes_and_opens_again(make: Make, budgets: Table, orders: Table, beats: Beats) -> None:
    with make(100.0) as budget:
        bulk_load(timed(orders, beats), ITEMS, write_units=budget)
        beats.sleep(0.0)
    assert members(budgets) == []
    budget.close()
    began = beats.now
    bulk_load(timed(orders, beats), ITEMS, write_units=budget)
    assert beats.now - began <= 1.0  # the item is known: no wait for others
    assert len(members(budgets)) == 1


def test_it_travels_without_its_client(make: Make, budgets: Table, orders: Table, beats: Beats) -> None:
    budget = pickle.loads(pickle.dumps(make(100.0, read_units=5.0)))  # noqa: S301 - made here
    assert repr(budget) == "SharedBudget('Budgets', 'Orders', write_units=100, read_units=5)"
    with pytest.raises(ConfigurationError, match=r"was unpickled, and has no client; use budget\.over"):
        bulk_load(orders, ITEMS, write_units=budget)
    again = make(100.0).over(budgets.meta.client)
    bulk_load(timed(orders, beats), ITEMS, write_units=again)
    assert len(members(budgets)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_is_another_member(make: Make, beats: Beats) -> None:
    rate = make(100.0).shared_rate("write", "")
    while rate.ready(beats.now) > beats.now:
        beats.sleep(1.0)
    assert rate.rate == 100.0
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, f"{rate.rate} {rate.ready(0.0)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"0.0 inf"
    assert rate.rate == 100.0


def test_the_thread_ends_with_the_use(budgets: Table, orders: Table) -> None:
    before = threading.enumerate()
    budget = SharedBudget(budgets, "Orders", 100.0)
    rate = budget.shared_rate("write", "")
    rate.ready(0.0)
    (thread,) = [one for one in threading.enumerate() if one.name == "shardkit-budget" and one not in before]
    assert thread.daemon
    budget.close()
    thread.join(5.0)
    assert not thread.is_alive()


def test_a_thread_that_cannot_start_is_tried_again(budgets: Table) -> None:
    tries: list[object] = []

    def start(member: object) -> None:
        tries.append(member)
        raise RuntimeError("can't start new thread")

    rate = SharedBudget(budgets, "Orders", 100.0, start=start).shared_rate("write", "")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="thread"):
            rate.ready(0.0)
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": ""}, "name: must be a str"),
        ({"name": 5}, "name: must be a str"),
        ({"write_units": 0}, "write_units: must be a number > 0"),
        ({"write_units": "80%"}, "write_units: must be a number > 0"),
        ({"write_units": None}, "both are missing"),
        ({"read_units": float("inf")}, "read_units: must be a number > 0"),
        ({"burst": -1}, "burst: must be a number >= 0"),
        ({"table": "Budgets"}, "table: must be a boto3 Table, got 'Budgets'"),
        ({"table": None}, "table: must be a boto3 Table, got None"),
    ],
)
def test_bad_arguments(make: Make, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(**given)


def test_bad_uses(make: Make, orders: Table) -> None:
    with pytest.raises(ConfigurationError, match=r"write_units: SharedBudget.* has no write_units"):
        bulk_load(orders, ITEMS, write_units=make(None, read_units=5.0))
    with pytest.raises(ConfigurationError, match=r"read_units: SharedBudget.* has no read_units"):
        CapacityBudget(read_units=make())
    with pytest.raises(ConfigurationError, match="table: must be a boto3 Table"):
        make(table=ShardedTable(orders, CalculatedSuffix("x", shards=2)))
    with pytest.raises(ConfigurationError, match="target: must be a boto3 DynamoDB client"):
        make().over("x")


def test_a_backfill_refuses_it(make: Make, resource: DynamoDBServiceResource) -> None:
    orders = make_table(resource, global_indexes=[GlobalIndex("by-status", ("statusShard", "S"))])
    strategy = CalculatedSuffix("pk", shards=2, source="status")
    indexed = ShardedTable(orders, Unsharded(), indexes={"by-status": strategy})
    with pytest.raises(ConfigurationError, match="a SharedBudget is supported by loads only"):
        backfill_index(indexed, "by-status", write_units=make())  # type: ignore[arg-type]
