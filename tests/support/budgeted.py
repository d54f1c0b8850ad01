"""For tests of budgets: a service over HTTP that reports units, a client of it, and time that passes by sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from shardkit import CapacityBudget
from tests.support.fakes import Clock
from tests.support.wire import Service, a_client, serving


def reported(units: float, table: str = "T", **more: Any) -> tuple[int, Any]:
    return 200, {"ConsumedCapacity": {"TableName": table, "CapacityUnits": units}, **more}


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(lambda operation, body: reported(1.0, body.get("TableName", "T"))) as made:
        yield made


@pytest.fixture
def client(service: Service) -> Iterator[Any]:
    client = a_client(service)
    yield client
    client.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> Callable[..., CapacityBudget]:
    return partial(CapacityBudget, burst=0, clock=clock, sleep=clock.sleep)


def put(client: Any, key: str = "a", size: int = 0, table: str = "T", **more: Any) -> Any:
    item = {"pk": {"S": key}, "sk": {"S": "1"}, "body": {"S": "x" * size}}
    return client.put_item(TableName=table, Item=item, **more)
