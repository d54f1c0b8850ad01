"""Where requests in flight can be cancelled, a failure is raised at once; elsewhere, when the others have answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from shardkit import ShardQueryError
from shardkit.core.machine import Machine, Send, Wait
from shardkit.sharding.batch_get import BatchGet, Lookup
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.scan import StreamOfSegments
from tests.support.fakes import client_error
from tests.support.machines import a_fan_out, page_machine, stream_machine
from tests.support.tables import many


def a_plan() -> QueryPlan:
    return QueryPlan.of(many(3), {"KeyConditionExpression": Key("pk").eq("k")})


def a_batch(**options: Any) -> BatchGet:
    places: list[Lookup] = [({"pk": {"S": "k"}, "sk": {"N": str(number)}}, 1) for number in range(250)]
    return BatchGet(many(3), places, {}, a_fan_out(**options))


MACHINES: dict[str, Callable[..., Machine[Any]]] = {
    "page": lambda **options: page_machine(a_plan(), **options),
    "stream": lambda **options: stream_machine(a_plan(), **options),
    "scan": lambda **options: StreamOfSegments(many(), {}, 3, a_fan_out(**options)),
    "batch": a_batch,
}


def started(machine: Machine[Any]) -> list[Send]:
    sends = []
    while isinstance(step := machine.next(0.0), Send):
        sends.append(step)
    assert isinstance(step, Wait)
    assert len(sends) == 3
    return sends


@pytest.mark.parametrize("name", MACHINES)
def test_a_failure_is_not_held_up_by_the_others(name: str) -> None:
    machine = MACHINES[name](cancels=True)
    machine.receive(started(machine)[1], client_error("AccessDeniedException"), 0.0)
    with pytest.raises((ClientError, ShardQueryError), match="AccessDenied"):
        machine.next(0.0)


@pytest.mark.parametrize("name", MACHINES)
def test_a_failure_waits_for_the_others(name: str) -> None:
    machine = MACHINES[name]()
    first, second, third = started(machine)
    for send in (second, first):
        machine.receive(send, client_error("AccessDeniedException"), 0.0)
        assert isinstance(machine.next(0.0), Wait)
    machine.receive(third, client_error("AccessDeniedException"), 0.0)
    with pytest.raises(ClientError, match="AccessDenied"):
        machine.next(0.0)


@pytest.mark.parametrize("name", ["page", "stream"])
def test_a_failure_that_is_accepted_waits_too(name: str) -> None:
    """The others are read to the end."""
    machine = MACHINES[name](cancels=True, on_shard_error="partial")
    machine.receive(started(machine)[1], client_error("AccessDeniedException"), 0.0)
    assert isinstance(machine.next(0.0), Wait)
