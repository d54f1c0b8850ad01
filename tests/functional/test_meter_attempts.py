"""Throttles and retries over real HTTP: each attempt is seen, in each of botocore's retry modes, sync and async."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from shardkit import CapacityBudget, CapacityMeter
from shardkit.capacity import Usage
from shardkit.core.machine import Send
from shardkit.runtime.runner import ClientRunner
from shardkit.runtime.transports import Transport
from tests.support.wire import THROTTLE, Body, Service, a_client, error, get, serving, wired

HOT = "TableReadKeyRangeThroughputExceeded"
REASONS = [{"reason": HOT, "resource": "arn:aws:dynamodb:us-east-1:1:table/T"}]
CONSUMED = {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": 0.5}}
Answer = tuple[int, Any] | None
TRANSPORTS: tuple[Transport, ...] = ("client", "direct")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let botocore's own retries follow at once."""

    async def at_once(_: float) -> None:
        return

    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(asyncio, "sleep", at_once)


def scheduled(*answers: Answer) -> Callable[[str, Body], Answer]:
    left: Iterator[Answer] = iter(answers)
    return lambda *_: next(left)


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(scheduled()) as service:
        yield service


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_canary_every_attempt_is_seen(service: Service, mode: str) -> None:
    client, meter = a_client(service, attempts=5, mode=mode), CapacityMeter()
    service.answer = scheduled(
        error(THROTTLE, ThrottlingReasons=REASONS),
        error("ThrottlingException", throttlingReasons=REASONS),
        error(THROTTLE),
        error("InternalServerError"),
        (200, CONSUMED),
    )
    with meter.attach(client, key_schema={"T": "pk"}):
        client.get_item(**get().params)
    client.close()
    assert len(service.requests) == 5
    assert meter.throttles == {HOT: 2, THROTTLE: 1}
    assert meter.retries == {HOT: 2, THROTTLE: 1, "InternalServerError": 1}
    assert meter.total == Usage(read_units=0.5, requests=1, throttles=3)
    assert meter.by_key == {("T", "k"): Usage(read_units=0.5, requests=1, throttles=3)}


@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_past_the_client_the_same_is_counted(service: Service, mode: str) -> None:
    """Each attempt of a read, with a lost answer, and of an update, which is not sent again after one."""
    hot, failed = error(THROTTLE, ThrottlingReasons=REASONS), error("InternalServerError")
    counted = []
    for transport in TRANSPORTS:
        client, meter = a_client(service, attempts=4, mode=mode), CapacityMeter()
        runner, read, update = ClientRunner(client, {}, 1, transport), get(), Send("UpdateItem", get().params)
        service.answer = lambda *_: (200, {})
        assert not isinstance(runner.send(read), Exception)
        assert not isinstance(runner.send(update), Exception)
        service.requests.clear()
        with (
            meter.attach(client, key_schema={"T": "pk"}),
            CapacityBudget(read_units=1000, write_units=1000).attach(client),
        ):
            service.answer = scheduled(hot, failed, None, (200, CONSUMED))
            assert not isinstance(runner.send(read), Exception)
            service.answer = scheduled(hot, hot, error("ValidationException"))
            assert isinstance(runner.send(update), ClientError)
            service.answer = lambda *_: hot
            assert isinstance(runner.send(read), ClientError)
        counted.append((service.operations, meter.total, meter.retries, meter.throttles, meter.by_key))
        client.close()
    assert counted[0] == counted[1]


def test_past_the_client_an_error_that_ends_an_update_is_counted_as_its_last_attempt(service: Service) -> None:
    client, meter = a_client(service, attempts=4), CapacityMeter()
    runner, update = ClientRunner(client, {}, 1, "direct"), Send("UpdateItem", get().params)
    service.answer = lambda *_: (200, {})
    runner.send(update)
    service.requests.clear()
    with meter.attach(client):
        for ends in (error("InternalServerError"), None):
            service.answer = scheduled(error(THROTTLE), ends)
            assert isinstance(runner.send(update), Exception)
    client.close()
    assert len(service.requests) == 4
    assert meter.retries == meter.throttles == {THROTTLE: 2}
    assert meter.requests == 2


def test_the_last_attempt_counts_too(service: Service) -> None:
    client, meter = a_client(service, attempts=3), CapacityMeter()
    service.answer = lambda *_: error(THROTTLE, ThrottlingReasons=REASONS)
    with meter.attach(client), pytest.raises(client.exceptions.ProvisionedThroughputExceededException):
        client.get_item(**get().params)
    client.close()
    assert meter.throttles == {HOT: 3}
    assert meter.retries == {HOT: 2}
    assert meter.requests == 1


def test_canary_lost_connections(service: Service) -> None:
    """A call that no answer ends is a request too."""
    client, meter = a_client(service, attempts=2), CapacityMeter()
    service.answer = lambda *_: None
    with meter.attach(client):
        with pytest.raises(BotoCoreError) as lost:
            client.get_item(**get().params)
        service.answer = scheduled(None, (200, CONSUMED))
        client.get_item(**get().params)
    client.close()
    assert meter.retries == {type(lost.value).__name__: 2}
    assert meter.throttles == {}
    assert meter.total == Usage(read_units=0.5, requests=2)


def test_calls_whose_pace_shardkit_decides() -> None:
    """Their first throttle ends them; shardkit's own retry is another request."""
    meter = CapacityMeter()
    with wired(attempts=3) as wire, meter.attach(wire.client):
        wire.service.answer = scheduled(error(THROTTLE, ThrottlingReasons=REASONS), (200, CONSUMED))
        paced = Send("GetItem", {**get().params}, paced=True)
        assert isinstance(wire.send(paced), wire.client.exceptions.ProvisionedThroughputExceededException)
        wire.send(paced)
    assert meter.throttles == {HOT: 1}
    assert meter.retries == {}
    assert meter.total == Usage(read_units=0.5, requests=2, throttles=1)


@pytest.mark.aio
def test_an_aiobotocore_client_and_session(service: Service) -> None:
    """Scopes follow tasks; every attempt is seen there too; a session's clients are counted."""
    session_module = pytest.importorskip("aiobotocore.session")
    throttles = [error(THROTTLE, ThrottlingReasons=REASONS), None]
    service.answer = scheduled(*throttles, *[(200, CONSUMED)] * 4)
    meter, session = CapacityMeter(), session_module.get_session()

    async def run() -> None:
        options = {"endpoint_url": service.url, "region_name": "us-east-1"}
        async with session.create_client("dynamodb", **options) as client:
            with meter.attach(client, key_schema={"T": "pk"}), meter.scope("x") as used:
                await client.get_item(**get().params)
                await asyncio.gather(*[client.get_item(**get().params) for _ in range(2)])
            assert used.total == Usage(read_units=1.5, requests=3, throttles=1)
        with meter.attach(session):
            async with session.create_client("dynamodb", **options) as client:
                await client.get_item(**get().params)

    asyncio.run(run())
    assert meter.throttles == {HOT: 1}
    assert sum(meter.retries.values()) == 2
    assert meter.by_key == {("T", "k"): Usage(read_units=1.5, requests=3, throttles=1)}
    assert meter.read_units == 2
