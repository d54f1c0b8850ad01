"""A client for tests of the meter: it answers as a test says, and emits the events that botocore's clients emit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.hooks import HierarchicalEmitter

from shardkit.capacity import CapacityMeter
from shardkit.capacity.charge import Charge, KeyUnits
from shardkit.capacity.usage import Units
from shardkit.runtime.hooks import prepare
from shardkit.runtime.own_call import OwnCall, visible

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/T"


class FakeClient:
    def __init__(self) -> None:
        self.events = HierarchicalEmitter()
        self.meta = SimpleNamespace(events=self.events)
        self.sent: dict[str, Any] = {}

    def call(
        self,
        operation: str,
        response: dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]],
        *,
        sharding: Any = None,
        attempts: Sequence[dict[str, Any] | Exception] = (),
        **params: Any,
    ) -> dict[str, Any]:
        """Make a call: ``attempts`` fail before the response comes; with ``sharding``, it is shardkit's own."""
        if sharding is not None:
            prepare(self)
        own = nullcontext() if sharding is None else OwnCall(operation, dict(params), {sharding.table: sharding})
        context: dict[str, Any] = {}
        with own:
            self.sent = copy.deepcopy(params) if sharding is None else visible(params)
            self.events.emit(
                f"before-parameter-build.dynamodb.{operation}",
                params=self.sent,
                model=SimpleNamespace(name=operation),
                context=context,
            )
            for number, met in enumerate(attempts, 1):
                self.attempt(operation, context, number, met)
            parsed = copy.deepcopy(response(self.sent) if callable(response) else response)
            if "Error" in parsed and attempts:
                self.attempt(operation, context, len(attempts) + 1, parsed)
            self.events.emit(f"after-call.dynamodb.{operation}", parsed=parsed, context=context)
        return parsed

    def attempt(self, operation: str, context: dict[str, Any], number: int, met: dict[str, Any] | Exception) -> None:
        lost = isinstance(met, Exception)
        self.events.emit(
            f"needs-retry.dynamodb.{operation}",
            response=None if lost else (SimpleNamespace(status_code=400), met),
            caught_exception=met if lost else None,
            operation=SimpleNamespace(name=operation),
            attempts=number,
            request_dict={"context": context},
        )


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def meter(client: FakeClient) -> CapacityMeter:
    meter = CapacityMeter()
    meter.attach(client, key_schema={"T": "pk", "U": "pk"})
    return meter


def consumed(units: float, table: str = "T", **parts: Any) -> dict[str, Any]:
    return {"TableName": table, "CapacityUnits": units, **parts}


def item(key: str, size: int = 0) -> dict[str, Any]:
    return {"pk": {"S": key}, "sk": {"N": "1"}, "body": {"S": "x" * size}}


def key(name: str) -> dict[str, Any]:
    return {"pk": {"S": name}, "sk": {"N": "1"}}


def put(name: str, size: int = 0) -> dict[str, Any]:
    return {"PutRequest": {"Item": item(name, size)}}


def charge(
    operation: str,
    tables: Mapping[str, Units],
    keys: Iterable[KeyUnits] = (),
    indexes: Mapping[tuple[str, str], Units] | None = None,
) -> Charge:
    made = Charge(operation)
    made.requests = 1
    for table, units in tables.items():
        made.tables[table].add(units)
    for place, units in (indexes or {}).items():
        made.indexes[place].add(units)
    made.keys = list(keys)
    return made
