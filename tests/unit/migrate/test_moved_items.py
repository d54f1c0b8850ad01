"""Programs of single items that move, fed by hand: what they send after each answer, at every hard moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Send, Wait
from shardkit.errors import StageError
from shardkit.migrate.freeze import drop_stub, finish, freeze
from shardkit.migrate.items import OPERATIONS
from shardkit.migrate.marks import COPY_MARKED, MARK, STUB
from shardkit.migrate.sending import Sending
from tests.support.machines import a_fan_out
from tests.support.moving import TOKEN, homes, moving

KEY = {"pk": "k", "sk": "s"}
HOMES = homes(KEY)
LIVE = {**HOMES.old, "n": {"N": "1"}}
FROZEN = {**LIVE, MARK: {"S": TOKEN}}
STREAMED = {**LIVE, MARK: {"S": TOKEN + COPY_MARKED}}
STUBBED = {**HOMES.old, MARK: STUB}
PUT = {"Item": {**KEY, "n": 2}}
OK: dict[str, Any] = {}
OLD, NEW = HOMES.old["pk"]["S"], HOMES.new["pk"]["S"]


def failed(item: Mapping[str, Any] | None = None) -> ClientError:
    """The service's answer to a condition that does not hold on this item."""
    response: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, **({} if item is None else {"Item": item})}
    return ClientError(response, "PutItem")


def conflict() -> ClientError:
    return ClientError({"Error": {"Code": "TransactionConflictException"}}, "PutItem")


def cancelled(*reasons: Any) -> ClientError:
    given: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": list(reasons)}
    return ClientError(given, "TransactWriteItems")


FINE, UNMET, TOO_LARGE = ({"Code": code} for code in ("None", "ConditionalCheckFailed", "ValidationError"))


def refused() -> ClientError:
    return ClientError({"Error": {"Code": "ValidationException"}}, "TransactWriteItems")


def run(program: Any, answers: Iterable[Any]) -> tuple[list[str], Any]:
    """Return what a program sent, as ``operation place``, and its result or error; it must take all answers."""
    sent: list[str] = []
    left = list(answers)
    step, result = next(program), None
    while True:
        try:
            if isinstance(step, Wait):
                step = program.send(0.0)
                continue
            assert isinstance(step, Send)
            sent.append(said(step))
            answer = left.pop(0)
            step = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        except StopIteration as stop:
            result = stop.value
        except (ClientError, StageError) as error:
            result = error
        else:
            continue
        assert not left
        return sent, result


def said(send: Send) -> str:
    assert send.part
    if send.operation == "TransactWriteItems":
        put, check = (next(iter(part.values())) for part in send.params["TransactItems"])
        if "Item" not in put:
            return f"thaw {put['Key']['pk']['S']}, check {check['Key']['pk']['S']}"
        return f"copy {put['Item']['pk']['S']}{' marked' * (MARK in put['Item'])}, check {check['Key']['pk']['S']}"
    key = send.params.get("Item") or send.params["Key"]
    stub = " stub" if key.get(MARK) == STUB else ""
    guarded = " guarded" if MARK in send.params.get("ExpressionAttributeNames", {}).values() else ""
    if send.operation == "GetItem":
        consistent = ", consistently" * bool(send.params.get("ConsistentRead"))
        return f"GetItem {key['pk']['S']}{consistent}"
    return f"{send.operation}{stub} {key['pk']['S']}{guarded}"


def put(stage: Any, answers: Iterable[Any], **params: Any) -> tuple[list[str], Any]:
    return run(OPERATIONS["PutItem"](moving(stage), {**PUT, **params}, None, a_fan_out()), answers)


def got(item: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if item is None else {"Item": dict(item)}


CONDITION = {"ConditionExpression": "n = :n", "ExpressionAttributeValues": {":n": 5}}
THAW = f"thaw {OLD}, check {NEW}"
COPY = f"copy {NEW}, check {OLD}"
GET, GUARDED, PLAIN = f"GetItem {OLD}, consistently", f"PutItem {OLD} guarded", f"PutItem {NEW}"
DROP = f"DeleteItem {OLD} guarded"


@pytest.mark.parametrize(
    ("stage", "answers", "expected"),
    [
        ("guard", [OK], [GUARDED]),
        ("guard", [failed(STUBBED), OK], [GUARDED, PLAIN]),
        ("guard", [conflict(), OK], [GUARDED, GUARDED]),
        ("switch", [got(LIVE), OK], [GET, GUARDED]),
        ("switch", [got(STUBBED), OK], [GET, PLAIN]),
        ("switch", [got(None), OK, OK], [GET, f"PutItem stub {OLD}", PLAIN]),
        # A put came between: its item is found there.
        ("switch", [got(None), failed(), got(LIVE), OK], [GET, f"PutItem stub {OLD}", GET, GUARDED]),
        # Between read and write: frozen and moved; deleted; replaced by a stub.
        ("switch", [got(LIVE), failed(FROZEN), got(FROZEN), got(FROZEN), OK, OK, got(None), OK, OK],
         [GET, GUARDED, GET, GET, COPY, DROP, GET, f"PutItem stub {OLD}", PLAIN]),
        ("move", [got(LIVE), failed(), got(None), OK], [GET, GUARDED, GET, PLAIN]),
        ("move", [got(LIVE), failed(STUBBED), got(STUBBED), OK], [GET, GUARDED, GET, PLAIN]),
        ("move", [got(None), OK], [GET, PLAIN]),
        # The item that was frozen is gone when it is read again.
        ("move", [got(FROZEN), got(None), got(None), OK], [GET, GET, GET, PLAIN]),
        ("move", [got(FROZEN), got(FROZEN), conflict(), OK, OK, got(None), OK],
         [GET, GET, COPY, COPY, DROP, GET, PLAIN]),
        # The item is too large to move: whoever meets it, the move goes back, and the write goes where the item is.
        ("switch", [got(FROZEN), got(FROZEN), refused(), OK, got(LIVE), OK], [GET, GET, COPY, THAW, GET, GUARDED]),
        ("move", [got(FROZEN), got(FROZEN), cancelled(TOO_LARGE, FINE), cancelled(UNMET, FINE), got(LIVE), OK],
         [GET, GET, COPY, THAW, GET, GUARDED]),
    ],
)  # fmt: skip
def test_a_write_goes_where_the_item_lives(stage: Any, answers: list[Any], expected: list[str]) -> None:
    """And starts again when that has changed."""
    sent, result = put(stage, answers)
    assert sent == expected
    assert result == {}


@pytest.mark.parametrize(
    ("stage", "answers", "shown"),
    [
        ("guard", [failed(LIVE)], True),
        ("guard", [failed()], False),
        ("guard", [failed(STUBBED), failed({**HOMES.new, "n": {"N": "1"}})], True),
        ("switch", [got(LIVE), failed(LIVE)], True),
        ("switch", [got(None), OK, failed()], False),
        ("move", [got(None), failed({**HOMES.new, "n": {"N": "1"}})], True),
    ],
)
def test_the_callers_own_condition_fails(stage: Any, answers: list[Any], shown: bool) -> None:
    """The item is shown if the caller asked, with its logical key; the error is the service's."""
    _, error = put(stage, answers, **CONDITION, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    item = {"pk": {"S": "k"}, "sk": {"S": "s"}, "n": {"N": "1"}} if shown else None
    assert error.response.get("Item") == item


@pytest.mark.parametrize(("stage", "answers"), [("guard", [failed(LIVE)]), ("move", [got(LIVE), failed(LIVE)])])
def test_the_item_is_not_shown_unasked(stage: Any, answers: list[Any]) -> None:
    """Shardkit asks the service for it, to tell the caller's condition from its own."""
    _, error = put(stage, answers, **CONDITION)
    assert "Item" not in error.response


def test_other_errors_are_raised_at_once() -> None:
    """An error that is no failed condition ends the operation, whatever the step."""
    for answers in ([denied()], [got(LIVE), denied()], [got(None), denied()], [got(None), OK, denied()]):
        _, error = put("switch", answers)
        assert error.response["Error"]["Code"] == "AccessDeniedException"


def denied() -> ClientError:
    return ClientError({"Error": {"Code": "AccessDeniedException"}}, "PutItem")


def test_tries_are_bounded() -> None:
    """An item that never holds still, and a conflict that never ends."""
    _, error = put("switch", [got(LIVE), failed(FROZEN)] + [got(LIVE), failed()] * (ATTEMPTS - 1))
    assert isinstance(error, StageError)
    assert "try again" in str(error)
    sent, error = put("guard", [conflict()] * ATTEMPTS)
    assert error.response["Error"]["Code"] == "TransactionConflictException"
    assert len(sent) == ATTEMPTS


@pytest.mark.parametrize(
    ("stage", "answers", "expected", "n"),
    [
        ("guard", [got(LIVE)], [OLD], "1"),
        ("guard", [got(None)], [OLD], None),
        ("guard", [got(STUBBED), got({**HOMES.new, "n": {"N": "2"}})], [OLD, NEW], "2"),
        ("switch", [got(FROZEN)], [OLD], "1"),
        ("switch", [got(None), got({**HOMES.new, "n": {"N": "2"}})], [OLD, NEW], "2"),
        ("move", [got({**HOMES.new, "n": {"N": "2"}})], [NEW], "2"),
        ("move", [got(None), got(FROZEN)], [NEW, OLD], "1"),
        # It moved between the first two reads.
        ("move", [got(None), got(None), got({**HOMES.new, "n": {"N": "2"}})], [NEW, OLD, NEW], "2"),
        ("move", [got(None), got(STUBBED), got(None)], [NEW, OLD, NEW], None),
    ],
)
def test_a_read_follows_the_item(stage: Any, answers: list[Any], expected: list[str], n: str | None) -> None:
    """The last read of the new home is consistent; the others are as the caller asked."""
    sent, response = run(OPERATIONS["GetItem"](moving(stage), {"Key": KEY}, None, a_fan_out()), answers)
    last_again = len(expected) > 1 and expected[-1] == NEW
    assert sent == [f"GetItem {place}" for place in expected[:-1]] + [
        f"GetItem {expected[-1]}{', consistently' * last_again}"
    ]
    item = {} if n is None else {"Item": {**KEY, "n": int(n)}}
    assert response == item


def test_units_of_all_requests_are_summed() -> None:
    """Of each request of which the service tells them; the caller asked."""
    unit = {"ConsumedCapacity": {"TableName": "Table", "CapacityUnits": 1.0}}
    batch = {"ConsumedCapacity": [{"TableName": "Table", "CapacityUnits": 4.0}]}
    answers = [{**got(FROZEN), **unit}, {**got(FROZEN), **unit}, batch, unit, {**got(None), **unit}, unit]
    sent, response = put("move", answers, ReturnConsumedCapacity="TOTAL")
    assert len(sent) == len(answers)
    assert response["ConsumedCapacity"] == {"TableName": "Table", "CapacityUnits": 9.0}


# The move of one item.


def sending() -> Sending:
    return Sending("Table", a_fan_out())


def test_a_freeze_tells_what_is_there() -> None:
    """A snapshot, or what another has left."""
    assert run(freeze(sending(), HOMES, TOKEN), [{"Attributes": FROZEN}])[1] == FROZEN
    for there in (None, STUBBED, FROZEN):
        assert run(freeze(sending(), HOMES, TOKEN), [failed(there)])[1] == there
    assert run(freeze(sending(), HOMES, TOKEN), [denied()])[1].response["Error"]["Code"] == "AccessDeniedException"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([OK, OK], [COPY, DROP]),
        ([OK, failed()], [COPY, DROP]),  # another has removed it
        ([cancelled(UNMET, UNMET)], [COPY]),  # another has finished it
        ([cancelled(FINE, UNMET)], [COPY]),
        ([cancelled({**UNMET, "Item": {**LIVE, **HOMES.new}}, FINE), OK], [COPY, DROP]),  # copied before
        ([cancelled({"Code": "TransactionConflict"}, FINE), OK, OK], [COPY, COPY, DROP]),
        ([cancelled(UNMET, {"Code": "TransactionConflict"}), cancelled(UNMET, UNMET)], [COPY, COPY]),
        ([cancelled({"Code": "ThrottlingError"}, FINE), OK, OK], [COPY, COPY, DROP]),
    ],
)
def test_a_move_is_finished_once(answers: list[Any], expected: list[str]) -> None:
    """By whoever comes; a step that is done is passed over."""
    sent, result = run(finish(moving("move"), sending(), HOMES, FROZEN), answers)
    assert (sent, result) == (expected, None)


def test_with_a_stream_the_copy_is_marked_until_the_item_is_gone() -> None:
    """The mark goes last, and only if it is still this move's."""
    marked, unmark = f"copy {NEW} marked, check {OLD}", f"UpdateItem {NEW} guarded"
    for last in (OK, failed()):
        sent, _ = run(finish(moving("move"), sending(), HOMES, STREAMED), [OK, OK, last])
        assert sent == [marked, DROP, unmark]
    assert run(freeze(sending(), HOMES, TOKEN, streamed=True), [{"Attributes": STREAMED}])[1] == STREAMED


def test_a_stub_is_dropped_if_it_is_one() -> None:
    for answer in (OK, failed()):
        assert run(drop_stub(sending(), HOMES), [answer]) == ([DROP], None)
