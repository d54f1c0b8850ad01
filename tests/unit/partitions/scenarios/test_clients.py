"""The clients of a scenario: boto3's batch_writer, its retries, and calls at a steady rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from boto3.dynamodb.table import BatchWriter
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Machine, Program, ProgramMachine, Send, Wait
from shardkit.partitions.scenarios.clients import ATTEMPTS, AtARate, ConcurrentClients, Retries, batch_writer
from tests.support.fakes import client_error, throttled
from tests.support.machines import Timed

# -- batch_writer ------------------------------------------------------------------------------------------------------


class Service:
    """Answers batches; of each the items at some places come back unprocessed, the same for both."""

    def __init__(self, left: list[set[int]]) -> None:
        self._left = list(left)
        self.batches: list[list[Any]] = []

    def batch_write_item(self, RequestItems: Mapping[str, list[Any]]) -> dict[str, Any]:
        ((table, requests),) = RequestItems.items()
        self.batches.append(list(requests))
        left = self._left.pop() if self._left else set()
        back = [request for place, request in enumerate(requests) if place in left]
        return {"UnprocessedItems": {table: back} if back else {}}

    def answer(self, send: Send) -> tuple[float, Answer]:
        assert send.operation == "BatchWriteItem"
        return 0.01, self.batch_write_item(**send.params)


@given(st.integers(0, 120), st.lists(st.sets(st.integers(0, 24)), max_size=20))
def test_batch_writer_sends_what_boto3_sends(items: int, left: list[set[int]]) -> None:
    given_items = [{"Key": {"S": str(number)}} for number in range(items)]
    theirs, ours = Service(left), Service(left)
    client: Any = theirs
    with BatchWriter("T", client) as writer:
        for item in given_items:
            writer.put_item(Item=item)
    Timed(ours.answer).run(ProgramMachine(batch_writer("T", iter(given_items), Retries(ATTEMPTS, Random(1).random))))
    assert ours.batches == theirs.batches


def test_batch_writers_share_what_is_to_be_written() -> None:
    service = Service([])
    items = iter([{"Key": {"S": str(number)}} for number in range(100)])
    writers = ConcurrentClients(*(ProgramMachine(batch_writer("T", items, Retries(1, lambda: 0.5))) for _ in range(3)))
    timed = Timed(service.answer)
    timed.run(writers)
    written = [request["PutRequest"]["Item"]["Key"]["S"] for batch in service.batches for request in batch]
    assert sorted(written, key=int) == [str(number) for number in range(100)]
    assert len(service.batches) == 4
    assert timed.now == pytest.approx(0.02)  # three at once, and then one


# -- retries -----------------------------------------------------------------------------------------------------------


def call(answers: Sequence[Answer], retries: Retries) -> tuple[Timed, Any]:
    """One call, to a service that gives these answers."""
    left = list(answers)
    timed = Timed(lambda _send: (0.0, left.pop(0)))
    try:
        result: Any = timed.run(ProgramMachine(retries.call(Send("PutItem", {}))))
    except Exception as error:  # noqa: BLE001 - what it ends in
        result = error
    return timed, result


def test_a_throttled_request_is_tried_four_times_after_growing_waits() -> None:
    refusal = throttled("KeyRangeThroughput")
    timed, result = call([refusal] * 4, Retries(ATTEMPTS, lambda: 0.5))
    assert result is refusal
    assert [at for at, _ in timed.sent] == [0.0, 0.5, 1.5, 3.5]
    timed, result = call([refusal, refusal, {}], Retries(ATTEMPTS, lambda: 1.0))
    assert result == {}
    assert [at for at, _ in timed.sent] == [0.0, 1.0, 3.0]


def test_waits_are_twenty_seconds_at_the_most() -> None:
    timed, _ = call([throttled("KeyRangeThroughput")] * 8, Retries(8, lambda: 1.0))
    waits = [round(b - a) for (a, _), (b, _) in zip(timed.sent, timed.sent[1:], strict=False)]
    assert waits == [1, 2, 4, 8, 16, 20, 20]


def test_other_errors_are_not_tried_again() -> None:
    error = client_error("ValidationException")
    timed, result = call([error], Retries(ATTEMPTS, lambda: 0.5))
    assert result is error
    assert len(timed.sent) == 1


def test_retries_end_when_their_quota_is_used_up() -> None:
    retries = Retries(ATTEMPTS, lambda: 0.0)
    refusals = [throttled("KeyRangeThroughput")] * 4
    tries = [len(call(refusals, retries)[0].sent) for _ in range(40)]
    # 500 of it, 5 a retry: 100 retries, which are 33 calls of three and one of one.
    assert tries == [4] * 33 + [2] + [1] * 6
    call([{}] * 5, retries)
    for _ in range(4):
        call([{}], retries)
    assert len(call(refusals, retries)[0].sent) == 2


# -- at a rate ---------------------------------------------------------------------------------------------------------


def waiting(seconds: float) -> Program[None]:
    """A call that sends, waits, and sends again."""
    yield Send("GetItem", {})
    now: float = yield Wait(0.0)
    yield Wait(now + seconds)
    yield Send("GetItem", {})


@given(st.floats(0.1, 1000), st.integers(0, 50), st.floats(0, 100))
def test_calls_begin_at_their_rate_whatever_becomes_of_those_before(rate: float, calls: int, latency: float) -> None:
    begun: list[int] = []

    def begin(number: int) -> Machine[Any]:
        begun.append(number)
        return ProgramMachine(iter_once(number))

    def iter_once(number: int) -> Program[None]:
        yield Send("GetItem", {"number": number})

    machine = AtARate(rate, begin, lambda number, _now: number < calls)
    timed = Timed(lambda _send: (latency, {}), now=5.0)
    timed.run(machine)
    assert begun == list(range(calls))
    assert [at for at, _ in timed.sent] == pytest.approx([5.0 + number / rate for number in range(calls)])
    assert (machine.begun, machine.failed) == (calls, 0)


def test_calls_may_wait_and_fail() -> None:
    answers: list[Answer] = [{}, client_error("ValidationException"), {}, {}, {}]
    machine = AtARate(1.0, lambda _number: ProgramMachine(waiting(2.5)), lambda number, _now: number < 3)
    timed = Timed(lambda _send: (0.1, answers.pop(0)))
    timed.run(machine)
    # The second call ends with its error; the others send once more, 2.5 seconds after their answer.
    assert [round(at, 3) for at, _ in timed.sent] == [0.0, 1.0, 2.0, 2.6, 4.6]
    assert (machine.begun, machine.failed) == (3, 1)


def test_calls_go_on_as_long_as_they_are_to() -> None:
    machine = AtARate(10.0, lambda _number: ProgramMachine(waiting(0.0)), lambda _number, now: now < 2.0)
    Timed(lambda _send: (0.01, {})).run(machine)
    assert machine.begun == 20


def test_one_that_fails_does_not_end_the_others() -> None:
    error = client_error("ValidationException")
    answers: list[Answer] = [error, {}, {}]
    side_by_side = ConcurrentClients(ProgramMachine(waiting(1.0)), ProgramMachine(waiting(1.0)))
    timed = Timed(lambda _send: (0.1, answers.pop(0)))
    timed.run(side_by_side)
    assert (side_by_side.failed, side_by_side.error) == (1, error)
    assert len(timed.sent) == 3
