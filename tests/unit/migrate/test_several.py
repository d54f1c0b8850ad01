"""Batches and transactions of items that move, fed by hand: what they send, and what they return or raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Program, ProgramMachine, Send
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import StageError
from shardkit.migrate.marks import MARK, STUB
from shardkit.sharding.batches import batch_write
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import AddedToken
from shardkit.sharding.transactions import transact_get, transact_write
from tests.support.fakes import throttled
from tests.support.machines import Timed, a_fan_out
from tests.support.moving import TOKEN, homes, moving

KEY = {"pk": "k", "sk": "s"}
WIRE = to_wire_item(KEY)
HOMES = homes(KEY)
FROZEN = {**HOMES.old, MARK: {"S": TOKEN}}
UNMET, CONFLICT, NONE = {"Code": "ConditionalCheckFailed"}, {"Code": "TransactionConflict"}, {"Code": "None"}
PUT: Any = {"TransactItems": [{"Put": {"TableName": "Table", "Item": WIRE}}]}
GETS: Any = {
    "TransactItems": [{"Get": {"TableName": "Table", "Key": WIRE}}, {"Get": {"TableName": "Plain", "Key": {}}}]
}
BATCH: Any = {"RequestItems": {"Table": [{"PutRequest": {"Item": WIRE}}]}, "ReturnConsumedCapacity": "TOTAL"}


def cancelled(*reasons: dict[str, Any], operation: str = "TransactWriteItems") -> ClientError:
    given: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": [*reasons]}
    return ClientError(given, operation)


def run(operation: Any, params: Any, stage: Any, answers: Callable[[Send], Answer]) -> tuple[list[Send], Any]:
    """Return what an operation sent, and its result or error."""

    def known(table: str) -> Program[Sharding | None]:
        yield from ()
        return replace(moving(stage), form=WIRE_VALUES) if table == "Table" else None

    timed = Timed(lambda send: (0.01, answers(send)))
    try:
        result = timed.run(ProgramMachine(operation(params, known, WIRE_VALUES, a_fan_out())))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        result = error
    return [send for _, send in timed.sent], result


def in_turn(*answers: Answer) -> Callable[[Send], Answer]:
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def place(send: Send) -> str:
    ((_, body),) = send.params["TransactItems"][0].items()
    return str((body.get("Item") or body["Key"])["pk"]["S"])


def test_an_item_that_switch_has_put_is_found_in_guard() -> None:
    """The stub comes back with the cancelled transaction, and the second one goes to the new place, plainly."""
    stub = {**UNMET, "Item": {**HOMES.old, MARK: STUB}}
    sent, result = run(transact_write, PUT, "guard", in_turn(cancelled(stub), {}))
    assert [place(send) for send in sent] == [HOMES.old["pk"]["S"], HOMES.new["pk"]["S"]]
    assert "ConditionExpression" in str(sent[0].params)
    assert "ConditionExpression" not in str(sent[1].params)
    assert result == {}


def test_a_frozen_item_in_guard() -> None:
    """Stages that must not run side by side do."""
    _, result = run(transact_write, PUT, "guard", in_turn(cancelled({**UNMET, "Item": FROZEN})))
    assert isinstance(result, StageError)
    assert "TransactWriteItems: in stage 'guard', met an item of table 'Table' that another process moves" in str(
        result
    )


def test_a_transaction_is_not_planned_for_ever() -> None:
    """An item that is there when it is looked for, and gone when it is written."""

    def answer(send: Send) -> Answer:
        if send.operation == "BatchGetItem":
            return {"Responses": {"Table": [HOMES.old]}}
        return cancelled(UNMET)

    sent, result = run(transact_write, PUT, "move", answer)
    assert isinstance(result, StageError)
    assert "changed its place" in str(result)
    assert ATTEMPTS <= sum(send.operation == "TransactWriteItems" for send in sent) <= 2 * ATTEMPTS


@pytest.mark.parametrize(("operation", "params"), [(transact_write, PUT), (transact_get, GETS)])
def test_conflicts(operation: Any, params: Any) -> None:
    """Sent again with growing waits, a bounded number of times; then the caller gets the error, one reason a part."""
    reasons = [CONFLICT] if operation is transact_write else [NONE, CONFLICT, NONE]
    sent, result = run(operation, params, "guard", in_turn(cancelled(*reasons)))
    assert len(sent) == ATTEMPTS
    assert result.response["CancellationReasons"] == ([CONFLICT] if operation is transact_write else [CONFLICT, NONE])


def test_the_token_that_botocore_adds() -> None:
    """Is left out: each time that a transaction is planned, it gets another."""
    sent, _ = run(transact_write, {**PUT, "ClientRequestToken": AddedToken("x")}, "guard", in_turn({}))
    assert "ClientRequestToken" not in sent[0].params
    sent, result = run(transact_write, {**PUT, "ClientRequestToken": "x"}, "guard", in_turn({}))
    assert (sent, type(result)) == ([], StageError)


def test_the_units_of_planning_are_added() -> None:
    """Of the read and of the stub, to those of the transaction."""

    def answer(send: Send) -> Answer:
        one = {"TableName": "Table", "CapacityUnits": {"BatchGetItem": 1.0, "PutItem": 2.0}.get(send.operation, 4.0)}
        single = send.operation == "PutItem"
        return {"ConsumedCapacity": one if single else [one], "Responses": {}, "UnprocessedKeys": {}}

    sent, result = run(transact_write, {**PUT, "ReturnConsumedCapacity": "TOTAL"}, "switch", answer)
    assert [send.operation for send in sent] == ["BatchGetItem", "PutItem", "TransactWriteItems"]
    assert sum(one["CapacityUnits"] for one in result["ConsumedCapacity"]) == 7.0


def test_a_batch_whose_read_is_throttled_comes_back() -> None:
    """Nothing of it is written, because nobody knows where its items are."""
    left = {"Table": {"Keys": [HOMES.old]}}
    sent, result = run(batch_write, BATCH, "move", in_turn({"Responses": {}, "UnprocessedKeys": left}))
    assert {send.operation for send in sent} == {"BatchGetItem"}
    assert result["UnprocessedItems"] == BATCH["RequestItems"]


def test_a_batch_whose_only_write_is_throttled() -> None:
    """The error of the write, as the service does it for a batch of which it can process nothing."""
    throttle = throttled("KeyRangeThroughput")
    _, result = run(batch_write, BATCH, "guard", in_turn(throttle))
    assert result is throttle


def test_what_a_batch_consumed() -> None:
    """The read of the old places and the write."""

    def answer(send: Send) -> Answer:
        consumed = [{"TableName": "Table", "CapacityUnits": 1.0}]
        return {"ConsumedCapacity": consumed, "Responses": {}, "UnprocessedKeys": {}, "UnprocessedItems": {}}

    sent, result = run(batch_write, BATCH, "move", answer)
    assert [send.operation for send in sent] == ["BatchGetItem", "BatchWriteItem"]
    assert [one["CapacityUnits"] for one in result["ConsumedCapacity"]] == [2.0]
