"""Transactions, batches and loads of a table whose items move: each item is where a stage may have it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from shardkit import (
    CapacityBudget,
    CapacityMeter,
    ShardedTable,
    StageError,
    UnsupportedParameterError,
    bulk_load,
    install,
    streaming_bulk,
)
from shardkit.migrate.marks import MARK
from shardkit.sharding.shard_map import MAP
from shardkit.strategies import Stage
from tests.support.fakes import Clock
from tests.support.moving import (
    BETWEEN,
    SCHEMA,
    STATES,
    actions,
    after_actions,
    batch,
    contents,
    fill,
    key,
    resharding,
)
from tests.support.recorder import recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

ADD: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 5}}


def sharded(table: Table, stage: Stage) -> ShardedTable:
    """One request at a time: of two threads that put the first items of a partition key, moto loses one's."""
    return ShardedTable(table, resharding(stage), key_schema=SCHEMA, max_concurrency=1)


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("pk", "S"), ("sk", "S"))


@pytest.mark.parametrize("stage", BETWEEN)
def test_a_write_transaction(table: Table, stage: Any) -> None:
    """Every action, on items in every state and on new ones, in one transaction; each once."""
    fill(table, stage, "put", "update", "delete", "check")
    sharded(table, stage).transact_write_items(TransactItems=actions(stage))
    assert contents(table, stage) == after_actions(stage)


@pytest.mark.parametrize("stage", BETWEEN)
def test_a_cancelled_transaction(table: Table, stage: Any) -> None:
    """The reasons are of the caller's actions, in their order, with logical items if they were asked for."""
    fill(table, stage, "a", "b", "c")
    parts: list[Any] = []
    expected: list[Any] = []
    for state in STATES[stage]:
        false = {"ConditionExpression": "n > :two", "ExpressionAttributeValues": {":two": 2}}
        shown = {**false, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        parts += [{"Put": {"Item": key(state, "a")}}, {"Delete": {"Key": key(state, "b"), **shown}}]
        parts += [{"ConditionCheck": {"Key": key(state, "c"), **false}}]
        item = {"pk": {"S": state}, "sk": {"S": "b"}, "n": {"N": "1"}}
        expected += [("None", None), ("ConditionalCheckFailed", None if state == "absent" else item)]
        expected += [("ConditionalCheckFailed", None)]
    with pytest.raises(ClientError) as raised:
        sharded(table, stage).transact_write_items(TransactItems=parts)
    response: Any = raised.value.response
    assert [(one["Code"], one.get("Item")) for one in response["CancellationReasons"]] == expected
    there = {(state, name): 1 for state in STATES[stage] for name in "abc" if state != "absent"}
    assert contents(table, stage) == there


@pytest.mark.parametrize("stage", BETWEEN)
def test_a_read_transaction(table: Table, stage: Any) -> None:
    """One request, which reads both places of each item."""
    fill(table, stage, "s1")
    moved = sharded(table, stage)
    for asked, kept in (({}, ("pk", "sk", "n")), ({"ProjectionExpression": "n"}, ("n",))):
        gets: list[Any] = [{"Get": {"Key": key(state), **asked}} for state in STATES[stage]]
        with recording(table.meta.client) as wire:
            responses = moved.transact_get_items(TransactItems=gets)["Responses"]
        assert wire.operations[-1:] == ["TransactGetItems"] == [one for one in wire.operations if "Get" in one]
        items = [{**key(state), "n": 1} for state in STATES[stage]]
        expected = [{"Item": {name: item[name] for name in kept}} for item in items]
        assert responses == [{}, *expected[1:]], "the first is absent"
    with pytest.raises(UnsupportedParameterError, match="needs 102 actions on 51 items"):
        moved.transact_get_items(TransactItems=[{"Get": {"Key": key("k", str(number))}} for number in range(51)])
    with pytest.raises(UnsupportedParameterError, match="needs 101 actions, in stage"):
        moved.transact_write_items(TransactItems=[{"Put": {"Item": key("k", str(number))}} for number in range(101)])


def test_a_transaction_over_several_tables(resource: DynamoDBServiceResource, table: Table) -> None:
    """One between the stages, one in another stage, one that is not sharded; also through an installed client."""
    other, plain = make_table(resource, ("pk", "S"), ("sk", "S")), make_table(resource, ("Id", "S"))
    fill(table, "guard", "s1")
    fill(other, "move", "s1")
    tables = {table.name: resharding("guard"), other.name: resharding("move")}
    parts = [
        *({"Update": {"TableName": table.name, "Key": key(state), **ADD}} for state in STATES["guard"]),
        {"Put": {"TableName": plain.name, "Item": {"Id": "x"}}},
        *({"Update": {"TableName": other.name, "Key": key(state), **ADD}} for state in STATES["move"]),
    ]
    client: Any = resource.meta.client
    with install(resource, tables, max_concurrency=1):
        client.transact_write_items(TransactItems=parts)
        with pytest.raises(StageError, match="ClientRequestToken"):
            client.transact_write_items(TransactItems=parts, ClientRequestToken="mine")
        gets = [{"Get": {"TableName": table.name, "Key": key("stub")}}, {"Get": {"TableName": plain.name,
                "Key": {"Id": "x"}}}, {"Get": {"TableName": other.name, "Key": key("frozen")}}]  # fmt: skip
        items = [one["Item"] for one in client.transact_get_items(TransactItems=gets)["Responses"]]
    assert items == [{**key("stub"), "n": 6}, {"Id": "x"}, {**key("frozen"), "n": 6}]
    stages: list[tuple[Table, Stage]] = [(table, "guard"), (other, "move")]
    for one, stage in stages:
        expected = {(state, "s1"): 5 if state == "absent" else 6 for state in STATES[stage]}
        assert contents(one, stage) == expected


def test_only_the_callers_own_token_is_refused(table: Table) -> None:
    """Of a ShardedTable too; it would not make a transaction safe to repeat that is planned again."""
    moved = sharded(table, "switch")
    with pytest.raises(StageError, match="ClientRequestToken: not possible in stage 'switch'"):
        moved.transact_write_items(TransactItems=[{"Put": {"Item": key("k")}}], ClientRequestToken="mine")
    assert table.scan()["Items"] == []


def after_batch(stage: str) -> Mapping[tuple[str, str], int]:
    return {(state, "put"): 7 for state in STATES[stage]}


OPERATIONS = {
    "guard": {"PutItem", "DeleteItem"},
    "switch": {"GetItem", "PutItem", "DeleteItem", "TransactWriteItems"},
    "move": {"BatchGetItem", "BatchWriteItem", "GetItem", "PutItem", "DeleteItem", "TransactWriteItems"},
}


@pytest.mark.parametrize("stage", BETWEEN)
def test_batch_writes_of_an_installed_client(resource: DynamoDBServiceResource, table: Table, stage: Any) -> None:
    """Single conditional writes in guard and switch; in move a batch for what is not at its old place."""
    plain = make_table(resource, ("Id", "S"))
    fill(table, stage, "put", "delete")
    client: Any = resource.meta.client
    with install(resource, {table.name: resharding(stage)}, max_concurrency=1), recording(client) as wire:
        others = {plain.name: [{"PutRequest": {"Item": {"Id": "x"}}}]}
        response = client.batch_write_item(
            RequestItems={table.name: batch(stage), **others}, ReturnConsumedCapacity="TOTAL"
        )
    assert response["UnprocessedItems"] == {}
    assert {one["TableName"] for one in response["ConsumedCapacity"]} == {table.name, plain.name}
    assert contents(table, stage) == after_batch(stage)
    assert plain.scan()["Count"] == 1
    assert set(wire.operations) - {"DescribeTable"} == {"BatchWriteItem", *OPERATIONS[stage]}
    for body in wire.bodies("BatchWriteItem"):
        keys = [part["PutRequest"]["Item"]["pk"]["S"] for part in body["RequestItems"].get(table.name, ())
                if "PutRequest" in part]  # fmt: skip
        assert all("." in one for one in keys), "a batch writes to new places only"


@pytest.mark.parametrize(("stage", "writer"), [("guard", "boto3"), ("switch", "shardkit"), ("move", "boto3")])
def test_batch_writers(resource: DynamoDBServiceResource, table: Table, stage: Any, writer: str) -> None:
    """boto3's, on an installed resource, and shardkit's."""
    fill(table, stage, "put", "delete")
    moved: Any = table if writer == "boto3" else sharded(table, stage)
    installed = install(resource, {table.name: resharding(stage)}, max_concurrency=1)
    with installed, moved.batch_writer() as batch_writer:
        for part in batch(stage):
            if "PutRequest" in part:
                batch_writer.put_item(**part["PutRequest"])
            else:
                batch_writer.delete_item(**part["DeleteRequest"])
    assert contents(table, stage) == after_batch(stage)


@pytest.mark.parametrize("stage", BETWEEN)
def test_loads(table: Table, stage: Any, tmp_path: Path) -> None:
    """Every item is written once, and counted; a journal made in one stage goes on in another."""
    fill(table, stage, "s1")
    items: list[dict[str, Any]] = [{**key(state, name), "n": 7} for name in ("s1", "s2") for state in STATES[stage]]
    bad: list[dict[str, Any]] = [{"pk": "v", "sk": 5}, {"pk": "v.1", "sk": "s"}, {"pk": "v", "sk": "s", MARK: "stub"}]
    moved = sharded(table, stage)
    meter = CapacityMeter()
    with meter.attach(moved):
        report = bulk_load(moved, items, journal=tmp_path / "journal", write_units=1000)
    assert (report.written, report.failed) == (len(items), 0)
    assert contents(table, stage) == {(item["pk"], item["sk"]): 7 for item in items}
    assert {str(use.key) for use in meter.hottest(20)} == {*STATES[stage], MAP}, "logical keys"
    again = sharded(table, "switch" if stage == "guard" else "move")
    assert bulk_load(again, items, journal=tmp_path / "journal").resumed == len(items)
    results = list(streaming_bulk(moved, [*items, *bad], on_error="collect", dead_letters=tmp_path / "letters"))
    assert [str(result.error)[:5] for result in results if not result.ok] == ["sk: g", "pk: '", "Item:"]
    with pytest.raises(StageError, match="processes=: not possible in stage"):
        bulk_load(moved, items, processes=2)


def test_a_budget_counts_every_request_of_a_logical_key(table: Table) -> None:
    """In guard, a write of an item at its new place is two: the failed one at the old place is paid for too."""
    fill(table, "guard", "s1")
    clock = Clock()
    moved = sharded(table, "guard")
    budget = CapacityBudget(write_units=1, burst=0, timeout=100, clock=clock, sleep=clock.sleep)
    with budget.attach(moved, key="stub"):
        for _ in range(3):
            moved.update_item(Key=key("live"), **ADD)
        assert clock.now == 0, "another key"
        for _ in range(3):
            moved.update_item(Key=key("stub"), **ADD)
    assert clock.now >= 3, "a unit for each of the failed ones; moto reports half a unit for the others"
