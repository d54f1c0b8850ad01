"""Transactions, batches and loads of items that move, on dynoxide; each kind of request meets a conflict first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import CapacityMeter, ShardedTable, bulk_load, install
from tests.support.engines import ServerName
from tests.support.fakes import timeless
from tests.support.moving import (
    BETWEEN,
    PLACES,
    SCHEMA,
    STATES,
    Held,
    actions,
    after_actions,
    batch,
    contents,
    fill,
    key,
    resharding,
)
from tests.support.recorder import answering, recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3

pytestmark = pytest.mark.integration
CONFLICT = "com.amazonaws.dynamodb.v20120810#TransactionConflictException"
CANCELED = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"


@pytest.fixture(scope="module")
def resource(engine_endpoint: Callable[[ServerName], str], boto3_session: boto3.Session) -> Iterator[Any]:
    made = boto3_session.resource("dynamodb", endpoint_url=engine_endpoint("dynoxide"))
    yield made
    made.meta.client.close()


def conflicting(client: Any) -> ExitStack:
    """Answer the first request of each kind with a conflict, as another transaction on its items would."""
    stack, met = ExitStack(), set()

    def first(operation: str) -> Callable[[Any], dict[str, Any] | None]:
        def answer(body: Any) -> dict[str, Any] | None:
            if operation in met:
                return None
            met.add(operation)
            if not operation.startswith("Transact"):
                return {"__type": CONFLICT, "message": "Transaction is ongoing for the item"}
            reasons = [{"Code": "TransactionConflict"}, *({"Code": "None"} for _ in body["TransactItems"][1:])]
            return {"__type": CANCELED, "message": "Transaction cancelled", "CancellationReasons": reasons}

        return answer

    for operation in ("DeleteItem", "PutItem", "TransactGetItems", "TransactWriteItems", "UpdateItem"):
        stack.enter_context(answering(client, operation, first(operation)))
    return stack


@pytest.mark.parametrize("stage", BETWEEN)
def test_transactions(resource: Any, stage: Any) -> None:
    """All actions on items in every state are done once; a read sees all items."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    moved = ShardedTable(table, resharding(stage), key_schema=SCHEMA)
    timeless(moved)
    fill(table, stage, "put", "update", "delete", "check")
    with conflicting(moved.meta.client), recording(moved.meta.client) as wire:
        moved.transact_write_items(TransactItems=actions(stage))
        gets: Any = [{"Get": {"Key": key(state, "update")}} for state in STATES[stage]]
        read = moved.transact_get_items(TransactItems=gets)["Responses"]
    assert wire.operations.count("TransactGetItems") == 2
    assert {one["Item"]["pk"]: one["Item"]["n"] for one in read} == {
        state: n for (state, name), n in after_actions(stage).items() if name == "update"
    }
    assert contents(table, stage) == after_actions(stage)


@pytest.mark.parametrize("stage", BETWEEN)
def test_batches_and_loads(resource: Any, stage: Any) -> None:
    """Each write is done once, whatever it became."""
    expected = {(state, "put"): 7 for state in STATES[stage]}
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    fill(table, stage, "put", "delete")
    client = resource.meta.client
    with install(resource, {table.name: resharding(stage)}, key_schemas={table.name: SCHEMA}), conflicting(client):
        response = client.batch_write_item(RequestItems={table.name: batch(stage)})
    assert response["UnprocessedItems"] == {}
    assert contents(table, stage) == expected
    Held(table).clear()
    fill(table, stage, "put")
    moved = ShardedTable(table, resharding(stage), key_schema=SCHEMA)
    timeless(moved)
    with conflicting(client):
        report = bulk_load(moved, ({**key(state, "put"), "n": 7} for state in STATES[stage]))
    assert (report.written, report.failed) == (len(STATES[stage]), 0)
    assert contents(table, stage) == expected


def test_units(resource: Any) -> None:
    """A batch costs what its writes cost alone, but items at their old place are read twice; a transaction one more."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    item = {**key("k"), "text": "x" * 950}
    for stage, state in PLACES:
        moved = ShardedTable(table, resharding(stage), key_schema=SCHEMA)
        calls: dict[str, Callable[[ShardedTable], object]] = {
            "single": lambda moved: moved.put_item(Item=item),
            "batch": written_in_a_batch,
            "transaction": lambda moved: moved.transact_write_items(TransactItems=[{"Put": {"Item": item}}]),
            "read": lambda moved: moved.transact_get_items(TransactItems=[{"Get": {"Key": key("k")}}]),
        }
        units = {}
        for name, call in calls.items():
            Held(table).put(item, state)
            meter = CapacityMeter()
            with meter.attach(moved), meter.scope("one") as used:
                call(moved)
            units[name] = used.write_units + used.estimated_write_units, used.read_units
            assert {logical for _, logical in meter.by_key} == {"k"}
            Held(table).clear()
        writes, reads = units["single"]
        again = stage == "move" and state in {"live", "frozen", "copied"}
        assert units["batch"] == (writes, reads + again), (stage, state)
        # The units of a cancelled transaction are in no answer.
        shown = writes if (stage, state) == ("guard", "stub") else writes + 1
        assert units["transaction"] == (shown, reads), (stage, state)
        assert units["read"] == (0, 4)


def written_in_a_batch(moved: ShardedTable) -> None:
    with moved.batch_writer() as batch_writer:
        batch_writer.put_item(Item={**key("k"), "text": "x" * 950})
