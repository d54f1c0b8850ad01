"""Budgets on real clients, over HTTP: when calls go, and what they are charged."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit import CapacityBudget, CapacityBudgetError
from tests.support.budgeted import budget, client, clock, put, reported, service
from tests.support.fakes import Clock
from tests.support.wire import Service, a_client, error

__all__ = ["budget", "client", "clock", "service"]

ITEM: dict[str, Any] = {"pk": {"S": "a"}, "sk": {"S": "1"}}


def test_calls_wait_for_their_turn(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    with budget(write_units=2).attach(client):
        seen = [put(client) for _ in range(5)]
    assert clock.sleeps == [0.5] * 4
    assert all("ConsumedCapacity" not in response for response in seen)
    assert all(body["ReturnConsumedCapacity"] == "INDEXES" for _, body in service.requests)
    put(client)
    assert len(clock.sleeps) == 4


def test_who_asks_sees_what_was_consumed(client: Any, budget: Any) -> None:
    with budget(write_units=2).attach(client):
        assert put(client, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]["CapacityUnits"] == 1.0


def test_what_the_service_reports_is_charged(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: reported(8.0, Items=[], Count=0)
    with budget(read_units=2).attach(client):
        for _ in range(2):
            client.scan(TableName="T")
    assert clock.sleeps == [4.0]


def test_reads_and_writes_are_apart(client: Any, budget: Any, clock: Clock) -> None:
    with budget(write_units=1, read_units=1).attach(client):
        put(client)
        client.get_item(TableName="T", Key=ITEM)
        assert clock.sleeps == []
        put(client)
        client.get_item(TableName="T", Key=ITEM)
    assert clock.sleeps == [1.0]
    with budget(write_units=1).attach(client):
        for _ in range(5):
            client.get_item(TableName="T", Key=ITEM)
        client.list_tables()
    assert clock.sleeps == [1.0]


def test_a_write_that_is_reported_as_a_read(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    """DynamoDB does so for a transaction that is repeated with its token."""
    part = {"TableName": "T", "CapacityUnits": 6.0, "ReadCapacityUnits": 6.0, "WriteCapacityUnits": 0.0}
    service.answer = lambda operation, body: (
        (200, {"ConsumedCapacity": [part]}) if "TransactItems" in body else reported(1.0)
    )
    with budget(write_units=4, read_units=2).attach(client):
        client.transact_write_items(TransactItems=[{"Put": {"TableName": "T", "Item": ITEM}}])
        put(client)
        assert clock.sleeps == []
        client.get_item(TableName="T", Key=ITEM)
    assert clock.sleeps == [3.0]


def test_unused_units_are_kept_for_the_burst(client: Any, budget: Any, clock: Clock) -> None:
    with budget(write_units=2, burst=2).attach(client):
        clock.now += 100
        for _ in range(6):
            put(client)
    assert clock.sleeps == [0.5]


def test_a_budget_that_raises_sends_nothing(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    with budget(write_units=2, mode="raise").attach(client):
        put(client, size=4000)
        with pytest.raises(CapacityBudgetError, match="PutItem was not sent") as raised:
            put(client)
        assert raised.value.seconds == 0.5
        clock.now += raised.value.seconds
        put(client)
    assert clock.sleeps == []
    assert len(service.requests) == 2


def test_the_size_of_what_is_written_is_charged_before(client: Any, budget: Any, clock: Clock) -> None:
    """While a large write is under way, the next one waits for what it will take."""

    def in_the_middle(**_: Any) -> None:
        client.meta.events.unregister("before-send.dynamodb", in_the_middle)
        put(client)

    with budget(write_units=2).attach(client):
        client.meta.events.register("before-send.dynamodb", in_the_middle)
        put(client, size=4000)
    assert clock.sleeps == [2.0]


def test_no_call_waits_longer_than_timeout(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: reported(100.0)
    with budget(write_units=1, timeout=5).attach(client):
        put(client)
        with pytest.raises(CapacityBudgetError, match=r"100\.0 units") as raised:
            put(client)
    assert (raised.value.rate, raised.value.debt, raised.value.seconds) == (1.0, 100.0, 100.0)
    assert clock.sleeps == []


@pytest.mark.parametrize("answer", [error("ValidationException"), error("InternalServerError"), None])
def test_a_call_that_fails_is_given_back_its_units(
    client: Any, budget: Any, clock: Clock, service: Service, answer: Any
) -> None:
    service.answer = lambda operation, body: answer
    with budget(write_units=1).attach(client):
        for _ in range(3):
            with pytest.raises(Exception, match=r"as scheduled|Connection was closed"):
                put(client, size=5000)
    assert clock.sleeps == []


def test_a_failed_condition_costs(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: error("ConditionalCheckFailedException")
    with budget(write_units=1).attach(client):
        for _ in range(2):
            with pytest.raises(ClientError):
                put(client, ConditionExpression="attribute_not_exists(pk)")
    assert clock.sleeps == [1.0]


def test_retries_inside_a_call_are_not_held(budget: Any, clock: Clock, service: Service) -> None:
    client = a_client(service, attempts=3)
    answers = iter([error("InternalServerError"), error("InternalServerError"), reported(1.0)])
    service.answer = lambda operation, body: next(answers)
    with budget(write_units=1).attach(client), pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        put(client)
    assert clock.sleeps == []
    assert len(service.requests) == 3
    client.close()


def test_an_interrupted_wait_makes_room(client: Any, clock: Clock, service: Service) -> None:
    interruptions: list[BaseException] = [KeyboardInterrupt()]

    def sleep(seconds: float) -> None:
        if interruptions:
            raise interruptions.pop()
        clock.sleep(seconds)

    budget = CapacityBudget(write_units=1, burst=0, clock=clock, sleep=sleep)
    with budget.attach(client):
        put(client)
        with pytest.raises(KeyboardInterrupt):
            put(client, size=5000)
        put(client)
    assert clock.sleeps == [1.0]
    assert len(service.requests) == 2


def test_a_call_that_another_handler_answers_is_not_held(client: Any, budget: Any, clock: Clock) -> None:
    from botocore.stub import Stubber

    with budget(write_units=1).attach(client), Stubber(client) as stub:
        for _ in range(3):
            stub.add_response("put_item", {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": 50.0}})
            put(client)
        stub.deactivate()
        put(client)
    assert clock.sleeps == []


def test_a_call_that_botocore_refuses_is_not_charged(client: Any, budget: Any, clock: Clock) -> None:
    with budget(write_units=1).attach(client):
        with pytest.raises(Exception, match="Parameter validation"):
            client.put_item(TableName="T", Item={"pk": {"S": 5}})
        put(client)
    assert clock.sleeps == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_the_budget_does_not_reach_the_call(
    client: Any, budget: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    from shardkit.capacity.charge import charge_of

    def fault(call: Any, consumed: Any, parsed: Any, **options: Any) -> Any:
        if bool(parsed) == (when == "after"):
            raise RuntimeError("a fault of ours")
        return charge_of(call, consumed, parsed, **options)

    monkeypatch.setattr("shardkit.capacity.budget.charge_of", fault)
    with budget(write_units=1).attach(client):
        assert "ResponseMetadata" in put(client)
    assert "a fault of ours" in caplog.text
    assert "PutItem" in caplog.text


def test_many_threads_hold_the_rate(client: Any, service: Service) -> None:
    """Real threads, and a clock that a sleeper moves: none goes before its time, and all go."""
    lock, now, went = threading.Lock(), [0.0], []

    def sleep(seconds: float) -> None:
        until = now[0] + seconds
        with lock:
            now[0] = max(now[0], until)

    def sent(**_: Any) -> None:
        went.append(now[0])

    client.meta.events.register("before-send.dynamodb", sent)
    budget = CapacityBudget(write_units=10, burst=0, timeout=1e6, clock=lambda: now[0], sleep=sleep)
    with budget.attach(client), ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: put(client, str(number)), range(60)))
    assert len(service.requests) == 60
    # Each was charged one unit before it went: at no time had more gone than the rate allows, and those in flight.
    assert max(went) >= 59 / 10 - 1e-6
    for number, when in enumerate(sorted(went)):
        assert number - 8 <= 10 * when + 1e-6
