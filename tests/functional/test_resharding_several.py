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
from shardkit.sharding.resharding.moving import MARK
from tests.support.moving import BETWEEN, STATES, Held, resharding
from tests.support.recorder import recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

ADD: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 5}}


def key(state: str, name: str = "s1") -> dict[str, Any]:
    return {"pk": state, "sk": name}


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("pk", "S"), ("sk", "S"))


def fill(table: Table, stage: Any, *names: str) -> None:
    """Put an item of each name in each state of the stage."""
    for state in STATES[stage]:
        for name in names or ("s1",):
            Held(table).put({**key(state, name), "n": 1}, state)


def contents(table: Table, stage: Any) -> dict[tuple[str, str], int]:
    """The items as a caller sees them; nothing else may be there, and none in two places but a frozen one's copy."""
    stored = table.scan(ConsistentRead=True)["Items"]
    found: dict[tuple[str, str], int] = {}
    for one in stored:
        assert MARK not in one or one[MARK] == "stub", "nothing is left frozen"
        if MARK not in one:
            logical = str(one["pk"]).split(".")[0], str(one["sk"])
            assert logical not in found
            found[logical] = int(one["n"])  # type: ignore[arg-type]
            read = ShardedTable(table, resharding(stage)).get_item(Key=key(*logical), ConsistentRead=True)
            assert read["Item"]["n"] == one["n"]
    return found


@pytest.mark.parametrize("stage", BETWEEN)
def test_a_write_transaction(table: Table, stage: Any) -> None:
    """Every action, on items in every state and on new ones, in one transaction; each once."""
    fill(table, stage, "put", "update", "delete", "check")
    actions: list[Any] = []
    for state in STATES[stage]:
        there = "attribute_not_exists(pk)" if state == "absent" else "attribute_exists(pk) AND n = :one"
        values = {} if state == "absent" else {"ExpressionAttributeValues": {":one": 1}}
        actions += [
            {"Put": {"Item": {**key(state, "put"), "n": 7}, "ConditionExpression": there, **values}},
            {"Update": {"Key": key(state, "update"), **ADD}},
            {"Delete": {"Key": key(state, "delete")}},
            {"ConditionCheck": {"Key": key(state, "check"), "ConditionExpression": there, **values}},
        ]
    ShardedTable(table, resharding(stage)).transact_write_items(TransactItems=actions)
    expected: dict[tuple[str, str], int] = {}
    for state in STATES[stage]:
        expected |= {(state, "put"): 7, (state, "update"): 5 if state == "absent" else 6}
        expected |= {} if state == "absent" else {(state, "check"): 1}
    assert contents(table, stage) == expected


@pytest.mark.parametrize("stage", BETWEEN)
@pytest.mark.parametrize("shown", [True, False], ids=["shown", "not shown"])
def test_a_cancelled_transaction(table: Table, stage: Any, *, shown: bool) -> None:
    """The reasons are of the caller's actions, in their order, with logical items if they were asked for."""
    fill(table, stage, "a", "b")
    asked = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if shown else {}
    actions: list[Any] = []
    for state in STATES[stage]:
        false = {"ConditionExpression": "n > :two", "ExpressionAttributeValues": {":two": 2}, **asked}
        actions += [{"Put": {"Item": key(state, "a")}}, {"Delete": {"Key": key(state, "b"), **false}}]
    with pytest.raises(ClientError) as raised:
        ShardedTable(table, resharding(stage)).transact_write_items(TransactItems=actions)
    response: Any = raised.value.response
    reasons = [(one["Code"], one.get("Item")) for one in response["CancellationReasons"]]
    expected: list[Any] = []
    for state in STATES[stage]:
        item = {"pk": {"S": state}, "sk": {"S": "b"}, "n": {"N": "1"}} if shown and state != "absent" else None
        expected += [("None", None), ("ConditionalCheckFailed", item)]
    assert reasons == expected
    assert contents(table, stage) == {(state, name): 1 for state in STATES[stage] for name in "ab" if state != "absent"}


@pytest.mark.parametrize("stage", BETWEEN)
def test_a_read_transaction(table: Table, stage: Any) -> None:
    """One request, which reads both places of each item."""
    fill(table, stage)
    moved = ShardedTable(table, resharding(stage))
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
    actions = [
        *({"Update": {"TableName": table.name, "Key": key(state), **ADD}} for state in STATES["guard"]),
        {"Put": {"TableName": plain.name, "Item": {"Id": "x"}}},
        *({"Update": {"TableName": other.name, "Key": key(state), **ADD}} for state in STATES["move"]),
    ]
    client: Any = resource.meta.client
    with install(resource, tables):
        client.transact_write_items(TransactItems=actions)
        with pytest.raises(StageError, match="ClientRequestToken"):
            client.transact_write_items(TransactItems=actions, ClientRequestToken="mine")
        gets = [{"Get": {"TableName": table.name, "Key": key("stub")}}, {"Get": {"TableName": plain.name,
                "Key": {"Id": "x"}}}, {"Get": {"TableName": other.name, "Key": key("frozen")}}]  # fmt: skip
        items = [one["Item"] for one in client.transact_get_items(TransactItems=gets)["Responses"]]
    assert items == [{**key("stub"), "n": 6}, {"Id": "x"}, {**key("frozen"), "n": 6}]
    for one, stage in ((table, "guard"), (other, "move")):
        expected = {(state, "s1"): 5 if state == "absent" else 6 for state in STATES[stage]}
        assert contents(one, stage) == expected


def test_only_the_callers_own_token_is_refused(table: Table) -> None:
    """Of a ShardedTable too; it would not make a transaction safe to repeat that is planned again."""
    moved = ShardedTable(table, resharding("switch"))
    with pytest.raises(StageError, match="ClientRequestToken: not possible in stage 'switch'"):
        moved.transact_write_items(TransactItems=[{"Put": {"Item": key("k")}}], ClientRequestToken="mine")
    assert table.scan()["Items"] == []


def batch(state_names: Any) -> list[dict[str, Any]]:
    puts = [{"PutRequest": {"Item": {**key(state, "put"), "n": 7}}} for state in state_names]
    return [*puts, *({"DeleteRequest": {"Key": key(state, "delete")}} for state in state_names)]


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
    with install(resource, {table.name: resharding(stage)}), recording(client) as wire:
        others = {plain.name: [{"PutRequest": {"Item": {"Id": "x"}}}]}
        response = client.batch_write_item(
            RequestItems={table.name: batch(STATES[stage]), **others}, ReturnConsumedCapacity="TOTAL"
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


@pytest.mark.parametrize("stage", BETWEEN)
def test_batch_writers(resource: DynamoDBServiceResource, table: Table, stage: Any) -> None:
    """boto3's, on an installed resource, and shardkit's."""
    for writer in ("boto3", "shardkit"):
        fill(table, stage, "put", "delete")
        moved: Any = table if writer == "boto3" else ShardedTable(table, resharding(stage))
        installed = install(resource, {table.name: resharding(stage)}) if writer == "boto3" else None
        with moved.batch_writer() as batch_writer:
            for part in batch(STATES[stage]):
                if "PutRequest" in part:
                    batch_writer.put_item(**part["PutRequest"])
                else:
                    batch_writer.delete_item(**part["DeleteRequest"])
        if installed is not None:
            installed.uninstall()
        assert contents(table, stage) == after_batch(stage), writer
        Held(table).clear()


@pytest.mark.parametrize("stage", BETWEEN)
def test_loads(table: Table, stage: Any, tmp_path: Path) -> None:
    """Every item is written once, and counted; a journal made in one stage goes on in another."""
    fill(table, stage, "s1")
    items: list[dict[str, Any]] = [{**key(state, name), "n": 7} for name in ("s1", "s2") for state in STATES[stage]]
    bad: dict[str, Any] = {"pk": "v", "sk": 5, "n": 7}
    moved = ShardedTable(table, resharding(stage))
    meter = CapacityMeter()
    with meter.attach(moved):
        report = bulk_load(moved, items, journal=tmp_path / "journal", write_units=1000)
    assert (report.written, report.failed) == (len(items), 0)
    assert contents(table, stage) == {(item["pk"], item["sk"]): 7 for item in items}
    assert {str(use.key) for use in meter.hottest(20)} == set(STATES[stage]), "logical keys"
    again = ShardedTable(table, resharding("switch" if stage == "guard" else "move"))
    assert bulk_load(again, items, journal=tmp_path / "journal").resumed == len(items)
    results = list(streaming_bulk(moved, [*items, bad], on_error="collect", dead_letters=tmp_path / "letters"))
    assert [str(result.error)[:3] for result in results if not result.ok] == ["sk:"]
    with pytest.raises(StageError, match="processes=: not possible in stage"):
        bulk_load(moved, items, processes=2)


def test_a_budget_counts_every_request(table: Table) -> None:
    """In guard, an item at its new place costs the failed write at the old one too."""
    fill(table, "guard", "s1")
    budget = CapacityBudget(write_units=1000)
    moved = ShardedTable(table, resharding("guard"))
    with budget.attach(moved):
        update: Any = {"Key": key("stub"), **ADD}
        moved.transact_write_items(TransactItems=[{"Update": update}])
    assert contents(table, "guard")[("stub", "s1")] == 6
