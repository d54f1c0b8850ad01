"""Which call is whose: calls inside and beside others, and calls that are not shardkit's."""

from __future__ import annotations

import contextvars
import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from shardkit.core.machine import Answer, Send
from shardkit.runtime.drivers import through_client
from shardkit.runtime.hooks import prepare
from tests.support.wire import ANSWERS, BYTES, PARAMS, Wire, a_client, echo, error, get, read_by_us, wired

EVENTS = ["provide-client-params", "before-parameter-build", "before-call", "request-created", "before-sign",
          "before-send", "before-parse", "response-received", "needs-retry", "after-call"]  # fmt: skip


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wired() as made:
        yield made


def inner_calls(client: Any, send: Callable[[Send], Answer]) -> list[Callable[[], None]]:
    """Calls that a handler may make in the middle of another one, each with its own check."""

    def plain() -> None:
        item = client.get_item(TableName="T", Key={"pk": {"S": "inner"}})["Item"]
        assert item == {"pk": {"S": "inner"}, "b": {"B": BYTES}}

    def plain_that_fails() -> None:
        with pytest.raises(ClientError, match="as scheduled"):
            client.get_item(TableName="T", Key={"pk": {"S": "fail"}})

    def plain_that_is_refused() -> None:
        with pytest.raises(ParamValidationError):
            client.get_item(TableName="T", Key=5)

    def own() -> None:
        assert read_by_us(send(get("inner")), "inner")

    def own_that_fails() -> None:
        assert isinstance(send(get("fail")), ClientError)

    def own_that_is_lost() -> None:
        assert isinstance(send(get("lost")), Exception)

    def own_that_is_refused() -> None:
        assert isinstance(send(get("inner", Nonsense=1)), ParamValidationError)

    return [plain, plain_that_fails, plain_that_is_refused, own, own_that_fails, own_that_is_lost, own_that_is_refused]


def scheduled(operation: str, body: Any) -> tuple[int, Any] | None:
    key = body["Key"]["pk"]["S"]
    return None if key == "lost" else error("ValidationException") if key == "fail" else echo(operation, body)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("place", ["{}.dynamodb.GetItem", "{}"])
def test_a_call_inside_another_is_not_taken_for_it(wire: Wire, event: str, place: str) -> None:
    """A user's handler of any event calls on the same client: each call gets its own answer, only ours are ours."""
    wire.service.answer = scheduled
    inside: list[Callable[[], None]] = []

    def handler(**_: Any) -> None:
        if inside:
            inside.pop()()

    wire.client.meta.events.register(place.format(event), handler)
    for inner in inner_calls(wire.client, wire.send):
        inside.append(inner)
        read_by_us(wire.send(get("outer")), "outer")
        assert not inside
        inside.append(inner)
        item = wire.client.get_item(TableName="T", Key={"pk": {"S": "outer"}})["Item"]
        assert item == {"pk": {"S": "outer"}, "b": {"B": BYTES}}
        assert not inside


def test_threads_beside_each_other(wire: Wire) -> None:
    """Own and plain calls at once, also in a copy of a context in which an own call is under way."""
    contexts: list[contextvars.Context] = []
    wire.client.meta.events.register("before-parse.dynamodb", lambda **_: contexts.append(contextvars.copy_context()))
    assert read_by_us(wire.send(get()))

    def call(number: int) -> bool:
        key = str(number)
        if number % 2:
            return read_by_us(wire.send(get(key)), key)
        return read_by_us(wire.client.get_item(TableName="T", Key={"pk": {"S": key}}), key)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: contexts[0].copy().run(call, number), range(80)))
    assert results == [bool(number % 2) for number in range(80)]


def test_calls_that_are_not_ours_are_untouched(wire: Wire) -> None:
    """On a client that shardkit works with, a user's own calls emit the same and give the same as on any other."""
    wire.service.answer = lambda operation, _: (
        error("ValidationException") if operation == "DeleteItem" else (200, ANSWERS.get(operation, {"TableNames": []}))
    )
    traces = []
    for prepared in (False, True):
        client = a_client(wire.service, attempts=2)
        if prepared:
            prepare(client)
            assert isinstance(through_client(client, {})(Send("Query", PARAMS["Query"])), dict)
        trace: list[Any] = []

        def note(trace: list[Any] = trace, **emitted: Any) -> None:
            kept = {
                name: copy.deepcopy(emitted[name])
                for name in ("params", "parsed", "response_dict", "customized_response_dict")
                if name in emitted
            }
            for volatile in ("context", "headers"):
                for part in kept.values():
                    part.pop(volatile, None)
            if "parsed" in kept:
                kept["parsed"].pop("ResponseMetadata")
            trace.append((emitted["event_name"], kept, set(emitted.get("context", ())) - {"retries", "signing"}))

        for event in EVENTS:
            client.meta.events.register(event, note)
        client.query(**PARAMS["Query"])
        client.batch_get_item(**PARAMS["BatchGetItem"])
        client.list_tables()
        with pytest.raises(ClientError) as failed:
            client.delete_item(**PARAMS["DeleteItem"])
        trace.append(failed.value.response["Error"])
        client.close()
        traces.append(trace)
    assert len(traces[0]) > 4 * len(EVENTS) - 4
    assert traces[0] == traces[1]


def test_a_client_is_not_kept_alive(wire: Wire) -> None:
    """Its handlers do not hold it."""
    client = a_client(wire.service)
    prepare(client)
    assert read_by_us(through_client(client, {})(get()))
    client.close()
    dropped = weakref.ref(client)
    del client
    gc.collect()
    assert dropped() is None
