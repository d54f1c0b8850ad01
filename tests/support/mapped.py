"""Tables with a shard map on clocks that a test sets, and the requests that really went."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shardkit import ShardMap, ShardMapAdmin
from shardkit.sharding.shard_map import MAP


class Moment:
    """A time that a test sets: the clock of leases, and of an admin."""

    def __init__(self) -> None:
        self.now = 1000.0

    def map(self) -> ShardMap:
        return ShardMap(clock=lambda: (self.now,))

    def admin(self, table: Any) -> ShardMapAdmin:
        return ShardMapAdmin(table, clock=lambda: self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def advanced(self, admin: ShardMapAdmin, stage: str) -> None:
        """Go on to a stage, each step as soon as it may be."""
        while admin.read().stage != stage:
            self.wait(admin.wait())
            admin.advance()


@contextmanager
def requests_of(client: Any) -> Iterator[list[tuple[str, Any]]]:
    """Collect the operation and the body of each request that goes; reads of the map are called ``"map"``."""
    seen: list[tuple[str, Any]] = []

    def see(request: Any, **_: Any) -> None:
        target = request.headers["X-Amz-Target"]
        operation = (target if isinstance(target, str) else target.decode()).rpartition(".")[2]
        body = json.loads(request.body)
        seen.append(("map" if MAP in str(body.get("Key", {}).values()) else operation, body))

    client.meta.events.register_last("before-send", see)
    try:
        yield seen
    finally:
        client.meta.events.unregister("before-send", see)


@contextmanager
def before(client: Any, *operations: str, do: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Do something after a call of one of the operations has begun, and before its request is signed."""
    left = [times]

    def once(model: Any, params: Any, **_: Any) -> None:
        if left[0] and model.name in operations and MAP not in str(params["body"]):
            left[0] -= 1
            do()

    client.meta.events.register_last("before-call", once)
    try:
        yield
    finally:
        client.meta.events.unregister("before-call", once)
