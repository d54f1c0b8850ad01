"""Throttles of calls whose pace shardkit decides, in each of botocore's retry modes, sync and async."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from shardkit.core.machine import Send
from shardkit.runtime.drivers import through_async_client
from shardkit.runtime.hooks import observe, prepare
from shardkit.runtime.observers import Call
from tests.support.wire import BYTES, THROTTLE, echo, error, get, read_by_us, serving, wired

REASONS = [{"reason": "TableReadKeyRangeThroughputExceeded", "resource": "arn:aws:dynamodb:us-east-1:1:table/T"}]
PACED = Send("GetItem", get().params, paced=True)


class Seen:
    """An observer that keeps what it sees."""

    def __init__(self) -> None:
        self.codes: list[str | None] = []
        self.attempts: list[str] = []

    def before(self, call: Call) -> None:
        call.notes[self] = True

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        self.attempts.append(response["Error"]["Code"])

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        assert call.notes.pop(self)
        self.codes.append(parsed.get("Error", {}).get("Code"))


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let botocore's own retries follow at once."""

    async def at_once(_: float) -> None:
        return

    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(asyncio, "sleep", at_once)


@pytest.mark.parametrize("mode", ["legacy", "standard"])
@pytest.mark.parametrize("code", [THROTTLE, "ThrottlingException", "RequestLimitExceeded"])
def test_canary_the_first_throttle_of_a_paced_call_is_its_answer(mode: str, code: str) -> None:
    """It is the exception that the client raises; an unpaced call, and a plain one, keep botocore's retries."""
    seen, failures = Seen(), list[Exception]()
    with wired(attempts=3, mode=mode) as wire:
        wire.service.answer = lambda *_: error(code, ThrottlingReasons=REASONS)
        observe(wire.client, seen)
        wire.client.meta.events.register("after-call-error", lambda exception, **_: failures.append(exception))
        with pytest.raises(ClientError) as plain:
            wire.client.get_item(**get().params)
        tries = len(wire.service.requests)
        unpaced = wire.send(get())
        assert len(wire.service.requests) == 2 * tries
        paced = wire.send(PACED)
        assert len(wire.service.requests) == 2 * tries + 1
    # In its old mode botocore does not know this one.
    assert tries == (1 if (mode, code) == ("legacy", "RequestLimitExceeded") else 3)
    for answer, attempts in ((unpaced, tries), (paced, 1)):
        assert isinstance(answer, ClientError)
        assert type(answer) is type(plain.value)
        assert answer.operation_name == plain.value.operation_name
        assert answer.response["Error"] == plain.value.response["Error"]
        assert answer.response.get("ThrottlingReasons") == plain.value.response.get("ThrottlingReasons")
        assert answer.response["ResponseMetadata"]["RetryAttempts"] == attempts - 1
        assert answer.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert seen.codes == [code] * 3
    assert seen.attempts == [code] * (2 * tries + 1)
    assert failures == [paced]


def test_the_reasons_come_along() -> None:
    """Which limit was met is what the pace depends on."""
    with wired(attempts=3) as wire:
        wire.service.answer = lambda *_: error(THROTTLE, ThrottlingReasons=REASONS)
        answer: Any = wire.send(PACED)
    assert answer.response["ThrottlingReasons"] == REASONS
    assert isinstance(answer, wire.client.exceptions.ProvisionedThroughputExceededException)


def test_in_adaptive_mode_too() -> None:
    """Whose own rate is not lowered by a throttle that shardkit paces."""
    with wired(attempts=3, mode="adaptive") as wire:
        wire.service.answer = lambda *_: error(THROTTLE)
        assert isinstance(wire.send(PACED), ClientError)
        assert len(wire.service.requests) == 1


@pytest.mark.parametrize("first", [error("InternalServerError"), None], ids=["server error", "lost connection"])
def test_other_failures_of_a_paced_call_are_retried_by_botocore(first: Any) -> None:
    """The throttle that comes after one ends the call."""
    answers = iter([first, error(THROTTLE)])
    with wired(attempts=5) as wire:
        wire.service.answer = lambda *_: next(answers)
        answer: Any = wire.send(PACED)
        assert len(wire.service.requests) == 2
    assert answer.response["Error"]["Code"] == THROTTLE
    assert answer.response["ResponseMetadata"]["RetryAttempts"] == 1


def test_no_answer_at_all() -> None:
    """The exception is the answer."""
    with wired(attempts=2) as wire:
        wire.service.answer = lambda *_: None
        assert isinstance(wire.send(PACED), HTTPClientError)
        assert len(wire.service.requests) == 2


@pytest.mark.aio
@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_async(mode: str) -> None:
    """The same through aiobotocore: bodies written and read, own and plain calls beside each other, first throttles."""
    pytest.importorskip("aiobotocore")
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(retries={"total_max_attempts": 3, "mode": mode})

    async def run(url: str) -> tuple[Any, Any]:
        async with get_session().create_client("dynamodb", endpoint_url=url, config=config) as made:
            client: Any = made  # its hooks take coroutines too, which its types do not say
            prepare(client)
            send = through_async_client(client, {})

            async def nested(params: Any = None, **_: Any) -> None:
                # A call inside a call: each gets its own answer.
                if b'"outer"' in params["body"]:
                    assert read_by_us(await send(get("inner")), "inner")
                    inner = await client.get_item(**get("plain").params)
                    assert inner["Item"]["b"] == {"B": BYTES}

            client.meta.events.register("before-call.dynamodb.GetItem", nested)
            read_by_us(await send(get("outer")), "outer")
            both = await asyncio.gather(
                *(send(get(str(number))) for number in range(20)),
                *(client.get_item(**get(str(number)).params) for number in range(20)),
            )
            assert all(read_by_us(answer, str(number)) for number, answer in enumerate(both[:20]))
            assert not any(read_by_us(answer, str(number)) for number, answer in enumerate(both[20:]))
            service.answer = lambda *_: error(THROTTLE, ThrottlingReasons=REASONS)
            service.requests.clear()
            unpaced, tries = await send(get()), len(service.requests)
            assert tries == 3
            return unpaced, await send(PACED)

    with serving(echo) as service:
        unpaced, paced = asyncio.run(run(service.url))
        assert len(service.requests) == 4
    assert type(paced) is type(unpaced)
    assert isinstance(paced, ClientError)
    assert paced.response["Error"] == unpaced.response["Error"]
    assert paced.response.get("ThrottlingReasons") == REASONS
