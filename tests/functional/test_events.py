"""What shardkit's handlers write and read, and canaries for the events that botocore does not document."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore import xform_name
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ParamValidationError
from botocore.stub import Stubber

from shardkit import ConfigurationError
from shardkit.core.machine import Send
from shardkit.runtime.drivers import through_client
from shardkit.runtime.hooks import prepare
from tests.support.wire import (
    ANSWERS,
    BYTES,
    PARAMS,
    TEXT,
    THROTTLE,
    Wire,
    a_client,
    echo,
    error,
    get,
    read_by_us,
    wired,
)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wired() as made:
        yield made


# Written.


def as_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_bytes(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_bytes(part) for part in value]
    return BYTES if value == TEXT else value


@pytest.mark.parametrize("operation", PARAMS)
def test_requests_and_answers_are_those_of_a_plain_client(wire: Wire, operation: str) -> None:
    """What goes out and what comes back is what botocore writes and reads, binary as text."""
    wire.service.answer = lambda operation, _: (
        200,
        {**ANSWERS[operation], "ConsumedCapacity": None, "New": {"of": "AWS"}},
    )
    plain = a_client(wire.service)
    expected = getattr(plain, xform_name(operation))(**PARAMS[operation])
    plain.close()
    given = copy.deepcopy(PARAMS[operation])
    answer = wire.send(Send(operation, given))
    assert isinstance(answer, dict), answer
    assert given == PARAMS[operation]
    assert wire.service.requests[0] == wire.service.requests[1]
    for one in (answer, expected):
        assert one.pop("ResponseMetadata")["HTTPStatusCode"] == 200
    assert as_bytes(answer) == expected
    assert answer == ANSWERS[operation]


def carrying_values(shape: Any, seen: tuple[str, ...] = ()) -> bool:
    """Whether an attribute value can stand somewhere in a shape of botocore's model."""
    if shape.name == "AttributeValue":
        return True
    if shape.name in seen or shape.type_name not in {"structure", "map", "list"}:
        return False
    parts = {"map": ["value"], "list": ["member"]}.get(shape.type_name)
    shapes = shape.members.values() if parts is None else [getattr(shape, part) for part in parts]
    return any(carrying_values(part, (*seen, shape.name)) for part in shapes)


def filled(shape: Any) -> Any:
    """A value of the shape with everything in it, and attribute values of a type that botocore does not know."""
    if shape.name == "AttributeValue":
        return {"FUTURE": "x"}
    if shape.type_name == "structure":
        return {name: filled(part) for name, part in shape.members.items()}
    if shape.type_name == "map":
        return {"T": filled(shape.value)}
    if shape.type_name == "list":
        return [filled(shape.member)]
    return {"string": "T", "boolean": True, "integer": 1}[shape.type_name]


@pytest.mark.parametrize("operation", PARAMS)
def test_no_attribute_value_is_validated_or_written_by_botocore(wire: Wire, operation: str) -> None:
    """Wherever the model of this botocore lets one stand; it would cost most of a request's time."""
    wire.service.answer = lambda *_: (200, ANSWERS[operation])
    shape = wire.client.meta.service_model.operation_model(operation).input_shape
    members = {name: part for name, part in shape.members.items() if carrying_values(part)}
    assert members
    params = {
        name: filled(part)
        for name, part in shape.members.items()
        if name in {*members, "ClientRequestToken", "TableName"}
    }
    answer = wire.send(Send(operation, params))
    assert isinstance(answer, dict), answer
    assert wire.service.requests == [(operation, params)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"NotAParameter": 1},
        {"Limit": "7"},
        {"ExpressionAttributeValues": "x"},
        {"KeyConditions": {"a": {"ComparisonOperator": 5}}},
        {"KeyConditions": {"a": 5}},
    ],
    ids=str,
)
def test_botocore_still_refuses_wrong_parameters(wire: Wire, wrong: dict[str, Any]) -> None:
    """With its own error, as for a plain table; nothing is sent."""
    with pytest.raises(ParamValidationError) as plain:
        wire.client.query(TableName="T", **wrong)
    answer = wire.send(Send("Query", {"TableName": "T", **wrong}))
    assert isinstance(answer, ParamValidationError)
    assert str(answer) == str(plain.value)
    assert wire.service.requests == []


@pytest.mark.parametrize("event", ["before-call.*.*", "before-call.dynamodb.GetItem", "before-call.dynamodb"])
def test_every_handler_of_the_users_sees_the_real_body(wire: Wire, event: str) -> None:
    """Canary: a handler of ``before-call.*.*`` that is first comes before all others, also those of one operation."""
    seen: list[bytes] = []
    wire.client.meta.events.register(event, lambda params, **_: seen.append(params["body"]))
    wire.send(get())
    assert seen == [b'{"TableName":"T","Key":{"pk":{"S":"k"}}}']


def test_what_a_late_handler_adds_stays(wire: Wire) -> None:
    """Also one that comes after ours; what shardkit says itself is not changed by it."""

    def add(params: dict[str, Any], **_: Any) -> None:
        params.update(ReturnConsumedCapacity="TOTAL", ConsistentRead=False)

    wire.client.meta.events.register_last("before-parameter-build", add)
    wire.send(get(ConsistentRead=True))
    assert wire.service.requests[0][1]["ReturnConsumedCapacity"] == "TOTAL"
    assert wire.service.requests[0][1]["ConsistentRead"] is True


def test_without_before_call_nothing_passes_for_an_answer(wire: Wire) -> None:
    """A request that went out without its values is an error, whatever came back."""
    wire.client.meta.events.unregister("before-call.*.*", unique_id="shardkit-write")
    wire.service.answer = lambda *_: (200, {"Item": {}})
    answer = wire.send(get())
    assert isinstance(answer, ConfigurationError)
    assert "before-call" in str(answer)


def test_a_body_that_is_not_json_is_not_replaced(wire: Wire) -> None:
    """Should botocore speak another protocol one day, it is said before anything is sent."""

    def other(params: dict[str, Any], **_: Any) -> None:
        params["body"] = b"\xbf\xff"

    again = a_client(wire.service)
    again.meta.events.register_first("before-call.*.*", other)
    prepare(again)
    answer = through_client(again, {})(get())
    again.close()
    assert isinstance(answer, ConfigurationError)
    assert "JSON" in str(answer)
    assert wire.service.requests == []


# Read.


def test_canary_a_body_is_read_before_botocore_parses_it(wire: Wire) -> None:
    """``before-parse`` is emitted, its response can be replaced, and what it adds arrives in ``after-call``."""
    seen: list[Any] = []
    wire.client.meta.events.register(
        "before-parse.dynamodb", lambda response_dict, **_: seen.append(response_dict["body"])
    )
    wire.client.meta.events.register("after-call.*.*", lambda parsed, **_: seen.append(set(parsed)))
    assert read_by_us(wire.send(get()))
    assert TEXT.encode() in seen[0], "the user's handlers see the real body"
    assert seen[1:] == [{"ResponseMetadata"}], "and an answer without items"


def test_without_before_parse_botocore_reads_it(wire: Wire) -> None:
    """The same answer, binary as bytes."""
    wire.client.meta.events.unregister("before-parse", unique_id="shardkit-read")
    assert not read_by_us(wire.send(get()))


def test_an_error_is_left_to_botocore(wire: Wire) -> None:
    """With the item that it carries, as a plain client raises it."""
    wire.service.answer = lambda *_: error("ConditionalCheckFailedException", Item={"b": {"B": TEXT}})
    put = {"TableName": "T", "Item": {"pk": {"S": "k"}}}
    with pytest.raises(wire.client.exceptions.ConditionalCheckFailedException) as plain:
        wire.client.put_item(**put)
    answer = wire.send(Send("PutItem", put))
    assert type(answer) is type(plain.value)
    assert answer.response["Item"] == plain.value.response["Item"] == {"b": {"B": BYTES}}


def test_a_body_that_is_hard_to_read_is_left_to_botocore(wire: Wire) -> None:
    """A half of a surrogate pair, which orjson refuses."""
    wire.service.answer = lambda *_: (200, b'{"Item": {"a": {"S": "\\ud800"}}}')
    assert wire.send(get())["Item"] == wire.client.get_item(**get().params)["Item"] == {"a": {"S": "\ud800"}}


def test_each_attempt_is_read_anew(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server error is retried by botocore, paced or not, with the same body; its answer is read by us."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    client = a_client(wire.service, attempts=3)
    prepare(client)
    for paced in (False, True):
        answers = [echo("", get().params), error("InternalServerError")]
        wire.service.answer = lambda *_, answers=answers: answers.pop()
        wire.service.requests.clear()
        answer: Any = through_client(client, {})(Send("GetItem", get().params, paced=paced))
        assert read_by_us(answer)
        assert answer["ResponseMetadata"]["RetryAttempts"] == 1
        assert wire.service.requests == [("GetItem", dict(get().params))] * 2
    client.close()


def test_a_stub_answers(wire: Wire) -> None:
    """The Stubber of botocore gives answers as its parser makes them, and nothing is sent."""
    with Stubber(wire.client) as stubber:
        stubber.add_response("get_item", {"Item": {"pk": {"S": "k"}, "b": {"B": BYTES}}})
        assert not read_by_us(wire.send(get()))
        stubber.add_client_error("get_item", THROTTLE)
        answer = wire.send(Send("GetItem", get().params, paced=True))
    assert answer.response["Error"]["Code"] == THROTTLE
    assert wire.service.requests == []


@pytest.mark.parametrize("event", ["before-call.dynamodb.GetItem", "before-call.dynamodb"])
def test_a_handler_that_answers_from_before_call(wire: Wire, event: str) -> None:
    """Its parsed answer is taken as it is."""

    def answer(**_: Any) -> Any:
        nothing: Any = {}
        return AWSResponse("", 200, nothing, nothing), {"Item": {"pk": {"S": "k"}, "b": {"B": BYTES}}}

    wire.client.meta.events.register(event, answer)
    assert not read_by_us(wire.send(get()))
    assert wire.service.requests == []


def test_the_items_of_a_handlers_answer_stay_its_own(wire: Wire) -> None:
    """The list of items is emptied while it is converted: a copy, not the list of the one who answered."""
    items = [{"pk": {"S": "k"}, "b": {"B": BYTES}}]

    def answer(**_: Any) -> Any:
        nothing: Any = {}
        return AWSResponse("", 200, nothing, nothing), {"Items": items, "Count": 1}

    wire.client.meta.events.register("before-call.dynamodb.Query", answer)
    query = {"TableName": "T", "KeyConditionExpression": "pk = :k", "ExpressionAttributeValues": {":k": {"S": "k"}}}
    assert wire.send(Send("Query", query, read=lambda response: response["Items"].pop())) == items[0]
