"""What a load says is done, so that a resumed one leaves it out."""

from __future__ import annotations

from typing import Any

import pytest

from shardkit import ShardkitError
from shardkit.core.machine import Done, Send
from shardkit.errors import ShareEndedError
from tests.support.fakes import Service, a_load, client_error, some


def settle(load: Any, service: Service) -> None:
    """Run a load until it waits for items."""
    while not (load.wants or load.ended):
        step = load.next(0.0)
        if isinstance(step, Send):
            load.receive(step, service.answer(step, 0.0), 0.0)


def test_what_failed_is_done_once_a_later_write_of_its_key_is() -> None:
    """Or a resumed load would write the older one over it."""
    load = a_load(window=1)
    service = Service(refuses=lambda item: "bad" in item)
    (first,), (second,) = some(1, bad=True), some(1)
    load.put(first, "first")
    settle(load, service)
    done, ((place, result),) = load.settled()
    assert (done, place, result.ok) == ([], "first", False)
    load.put(second, "second")
    settle(load, service)
    assert load.settled() == (["first", "second"], [])
    assert load.settled() == ([], [])


def test_a_load_that_is_stopped_finishes_what_is_in_flight() -> None:
    """The rest fails for that reason, and is neither done nor dead: it is loaded another time."""
    load = a_load(window=50)
    service = Service()
    for place, item in enumerate(some(50)):
        load.put(item, place)
    send = load.next(0.0)
    assert isinstance(send, Send)
    reason = ShardkitError("stopped")
    load.stop(reason)
    assert not load.wants
    load.receive(send, service.answer(send, 0.0), 0.0)
    step = load.next(0.0)
    assert isinstance(step, Done)
    assert load.settled() == (list(range(25)), [])
    assert {result.error for result in step.value if not result.ok} == {reason}
    assert (load.ended, load.report.written, load.report.failed, load.report.stopped) == (True, 25, 25, 25)
    assert str(load.report).startswith("50 items: 25 written, 0 failed, 25 not written because it stopped; ")


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (25, client_error("ProvisionedThroughputExceededException")),
        (25, ShareEndedError("not sent")),
        (1, ShareEndedError("not sent")),
    ],
)
def test_what_is_in_flight_and_refused_when_it_is_stopped(count: int, error: Exception) -> None:
    """It is not sent again."""
    load = a_load(window=count)
    for place, item in enumerate(some(count)):
        load.put(item, place)
    send = load.next(0.0)
    assert isinstance(send, Send)
    load.stop(ShardkitError("stopped"))
    load.receive(send, error, 0.0)
    assert isinstance(load.next(0.0), Done)
    assert load.settled() == ([], [])
    assert (load.ended, load.report.failed) == (True, count)
