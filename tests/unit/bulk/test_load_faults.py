"""A bulk load's machine when the service, or the way to it, fails."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise, repeat
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shardkit.bulk.load_end import raise_failures
from shardkit.bulk.load_machine import STALLED_SECONDS
from shardkit.bulk.report import BulkLoadError, BulkReport, BulkResult
from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Done, Send, Wait
from tests.support.fakes import (
    Fault,
    Service,
    a_load,
    all_written,
    client_error,
    drive,
    key_of,
    lost_connection,
    outcome,
    some,
    throttled,
)


def run(faults: Iterable[Fault], count: int = 1, **options: Any) -> tuple[Service, list[BulkResult], BulkReport]:
    service, load = Service(faults), a_load(**options)
    results = drive(load, some(count), service)
    return service, results, load.report


@pytest.mark.parametrize("fault", ["unprocessed", "unprocessed by ARN"])
def test_unprocessed_items_are_sent_again(fault: Fault) -> None:
    """Only they, after a wait, whether they come under the table's name or its ARN."""
    service, results, report = run([fault], 25)
    assert outcome(results) == all_written(25)
    assert len(service.singles) == 1
    assert [len(batch) for batch in service.batches] == [25, 7, 5]
    assert service.times[1] >= service.times[0] + 0.025
    assert (report.requests, report.retried, report.throttles, report.written) == (4, 13, 1, 25)
    assert report.throttles_by_reason == {"unknown": 1}
    assert report.write_units == 25.0


@pytest.mark.parametrize("fault", ["500", "lost", "500 after", "lost after"])
def test_waits_grow_and_tries_are_bounded(fault: Fault) -> None:
    """No try follows at once, each wait is longer, and the tenth is the last; the reason is kept."""
    load, service = a_load(draw=lambda: 0.0), Service(repeat(fault))
    results, report = drive(load, some(1), service), load.report
    assert len(service.times) == ATTEMPTS
    assert_growing(service.times, most=10.0)
    assert outcome(results) == [(0, False)]
    assert (report.items, report.written, report.failed) == (1, 0, 1)
    assert report.retried == report.requests - 1
    assert report.throttles == 0
    assert report.failures == tuple(results)


@pytest.mark.parametrize(("fault", "most"), [("throttle", 1.0), ("unprocessed", 2.0)])
def test_waits_grow_while_the_service_throttles(fault: Fault, most: float) -> None:
    """To a second for each write that is sent, also one that asks for the reason, until the load stops."""
    load, service = a_load(draw=lambda: 0.999), Service(repeat(fault), alone=repeat(throttled()))
    results, report = drive(load, some(1), service), load.report
    gaps = [round(later - earlier, 2) for earlier, later in pairwise(service.times)]
    assert gaps[:5] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8], abs=0.01)
    assert gaps == sorted(gaps)
    assert gaps[-1] == most
    assert service.times[-2] - service.times[0] < STALLED_SECONDS <= report.seconds
    assert outcome(results) == [(0, False)]
    assert (report.items, report.written, report.stopped) == (1, 0, 1)
    assert report.throttles == report.requests == report.retried + 1


def assert_growing(times: list[float], *, most: float) -> None:
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([min(most, 0.025 * 2**number) for number in range(len(gaps))], abs=0.005)


def test_the_waits_are_jittered() -> None:
    """Two draws, two waits."""
    early, late = (run(["throttle"], draw=lambda draw=draw: draw)[0] for draw in (0.0, 0.9))
    assert early.times[1] < late.times[1]


def test_a_batch_that_gets_on_is_not_given_up() -> None:
    """A table of little throughput that takes half of what it is sent takes all in the end."""
    faults: list[Fault] = ["unprocessed", *["throttle"] * (ATTEMPTS - 2)] * 4  # type: ignore[list-item]
    _, results, report = run(faults, 16)
    assert outcome(results) == all_written(16)
    assert report.requests > ATTEMPTS


@pytest.mark.parametrize("fault", ["500 after", "lost after"])
def test_an_error_after_the_write(fault: Fault) -> None:
    """The write is repeated, which changes nothing."""
    service, results, report = run([fault], 30)
    assert outcome(results) == all_written(30)
    assert len(service.items) == 30
    assert (report.written, report.requests) == (30, 3)


def test_a_rejected_batch_is_halved_until_the_bad_item_stands_alone() -> None:
    """24 good ones are written, and the bad one fails with the service's reason."""
    service = Service(refuses=lambda item: item["sk"] == {"S": "0007"})
    load = a_load()
    results = drive(load, some(25), service)
    assert outcome(results) == [(place, place != 7) for place in range(25)]
    assert len(service.items) == 24
    (failure,) = load.report.failures
    assert isinstance(failure.error, ClientError)
    assert failure.item == {"pk": "U1", "sk": "0007"}
    assert load.report.requests <= 1 + 2 * 5


def test_halving_is_no_try() -> None:
    """What was in company of a bad item has all its tries left."""
    faults: list[Fault] = [*["none"] * 3, *["500"] * (ATTEMPTS - 1)]  # type: ignore[list-item]
    service = Service(faults, refuses=lambda item: item["sk"] == {"S": "0000"})
    assert outcome(drive(a_load(), some(2), service)) == [(0, False), (1, True)]


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException", "ExpiredTokenException"])
def test_a_fatal_error_ends_the_load(code: str) -> None:
    """Nothing more is sent or read, and all that was taken is accounted for: under way, resting, halved, waiting."""
    load = a_load(workers=4, window=200)
    for number in range(200):
        load.put({"pk": "U1", "sk": str(number)})
    load.close()
    sends = [step for step in (load.next(0.0) for _ in range(4)) if isinstance(step, Send)]
    assert len(sends) == 4
    load.receive(sends[0], client_error("ThrottlingException"), 0.0)
    load.receive(sends[2], client_error("ValidationException"), 0.0)
    load.receive(sends[1], client_error(code), 0.0)
    assert isinstance(load.fatal, ClientError)
    assert not load.wants
    results = load.next(0.0)
    assert isinstance(results, Done)
    assert load.next(0.0) == Wait()
    load.receive(sends[3], {}, 0.0)
    last = load.next(0.0)
    assert isinstance(last, Done)
    assert outcome([*results.value, *last.value]) == sorted((place, place in range(75, 100)) for place in range(200))
    assert load.ended
    assert load.next(0.0) == Done([])
    with pytest.raises(BulkLoadError, match="the load stopped") as raised:
        raise_failures(load, collect=True)
    assert raised.value.__cause__ is load.fatal
    assert len(raised.value.failed) == 175


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerError", "ValidationException", "unprocessed"])
def test_what_returns_after_the_end_is_not_sent_again(code: str) -> None:
    """Its items fail, and the load ends."""
    load = a_load(workers=2)
    for item in some(50):
        load.put(item)
    load.close()
    first, second = load.next(0.0), load.next(0.0)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    load.receive(first, client_error("AccessDeniedException"), 0.0)
    left = {"UnprocessedItems": second.params["RequestItems"]}
    load.receive(second, left if code == "unprocessed" else client_error(code), 0.0)
    results = load.next(0.0)
    assert isinstance(results, Done)
    assert outcome(results.value) == [(place, False) for place in range(50)]
    assert load.ended


def test_what_is_put_after_the_end_fails_for_that_reason() -> None:
    """A writer whose caller goes on does not go on for ever."""
    load = a_load(window=1)
    drive(load, some(1), Service(["denied"]))
    load.put({"pk": "U1", "sk": "1"})
    step = load.next(0.0)
    assert isinstance(step, Done)
    assert [(result.place, result.error) for result in step.value] == [(1, load.fatal)]
    assert load.ended


def test_a_service_that_is_gone_ends_the_load() -> None:
    """Ten tries without any answer at all: the rest of a million items need not try."""
    load = a_load(workers=2, window=100)
    service = Service(["none", *["lost"] * 1000])  # type: ignore[list-item]
    results = drive(load, some(1000), service)
    assert load.fatal is not None
    assert load.report.written == 25
    assert load.report.items < 300
    assert len(results) == load.report.items
    assert load.report.requests <= 1 + 4 * ATTEMPTS


class Poisoned(Service):
    """The connection is lost whenever item 0000 is in a batch."""

    def answer(self, send: Send, now: float) -> Answer:
        if any(key_of(request)[1] == "0000" for request in send.params["RequestItems"]["Messages"]):
            return lost_connection()
        return super().answer(send, now)


@pytest.mark.parametrize("others", ["none", "throttle", "refused"])
def test_a_poisoned_batch_does_not_end_the_load(others: Any) -> None:
    """The service answers the others, with whatever, so it is there."""
    faults: Any = chain(repeat(others, 11), repeat("none")) if others == "throttle" else repeat("none")
    service = Poisoned(faults, refuses=lambda _: others == "refused")
    load = a_load(workers=2)
    results = drive(load, some(50), service)
    assert load.fatal is None
    assert [result.place for result in results if not isinstance(result.error, ClientError | None)] == list(range(25))


def test_a_service_that_is_ill_gets_less_new_work() -> None:
    """What waits for its next try keeps its place among the workers: the tries are not wasted."""
    load = a_load(workers=2, window=500)
    for item in some(500):
        load.put(item)
    load.close()
    under_way = 0
    while isinstance(step := load.next(0.0), Send):
        load.receive(step, client_error("InternalServerError"), 0.0)
        under_way += 1
    assert under_way == 2
    assert isinstance(step, Wait)
    assert step.until is not None
    later = load.next(step.until)
    assert isinstance(later, Send)
    assert load.report.items == 500
