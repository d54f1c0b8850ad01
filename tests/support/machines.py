"""The machines of a merged Query, and a driver with a virtual clock."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardkit.core.machine import Answer, Machine, Send
from shardkit.partitions.simulator import Simulator
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import StreamOfShards
from tests.support import fakes
from tests.support.model import ModelTable
from tests.support.tables import many

throttled = partial(fakes.throttled, kind="Read")


def a_fan_out(concurrency: int = 10, **options: Any) -> FanOutOptions:
    return FanOutOptions(concurrency, lambda: 0.5, **options)


def page_machine(plan: QueryPlan, *, sizes: ItemSizes | None = None, **fan_out: Any) -> PageOfShards:
    return PageOfShards(plan, sizes=sizes or ItemSizes(), fan_out=a_fan_out(**fan_out))


def stream_machine(
    plan: QueryPlan, *, sizes: ItemSizes | None = None, max_items: int | None = None, **fan_out: Any
) -> StreamOfShards:
    return StreamOfShards(plan, sizes=sizes or ItemSizes(), fan_out=a_fan_out(**fan_out), max_items=max_items)


@dataclass
class Timed:
    """Runs a machine on a virtual clock: ``answers`` returns the seconds that a request takes, and its answer.

    ``sent`` collects the requests and their times; a ``deque(maxlen=0)`` keeps none.
    """

    answers: Callable[[Send], tuple[float, Answer]]
    now: float = 0.0
    sent: MutableSequence[tuple[float, Send]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seconds = 0.0
        self._simulator = Simulator(self._take, latency=lambda _, __: self._seconds)

    def run(self, machine: Machine[Any]) -> Any:
        """Run the machine to its next result; a machine that streams can be run again."""
        self._simulator.now = self.now
        try:
            return self._simulator.run(machine)
        finally:
            self.now = self._simulator.now

    def run_on(self, machine: Any, most: int) -> Any:
        """Run a pass to its end, but for at most so many results; return its report."""
        while not machine.ended and most:
            self.run(machine)
            most -= 1
        return machine.report

    def _take(self, send: Send, now: float) -> Answer:
        self.now = now
        self.sent.append((now, send))
        self._seconds, answer = self.answers(send)
        return answer


class Shuffled(Timed):
    """Runs machines on a table whose answers arrive in any order; ``failing`` holds errors by request number from 0."""

    def __init__(
        self, table: ModelTable, rng: random.Random | None = None, *, failing: Mapping[int, Exception] | None = None
    ) -> None:
        self.table = table
        rng, failing = rng or random.Random(0), failing or {}
        super().__init__(lambda send: (rng.random(), failing.get(len(self.sent) - 1) or table.answer(send)))


Fault = Callable[[int, int], "float | tuple[float, Answer] | None"]
"""(shard, number of its request from 1): the seconds that it takes (None: 10 ms), and what it fails with."""


class FaultyShards(Timed):
    """40 items over some shards that answer in 10 ms, with faults."""

    def __init__(self, shards: int, fault: Fault) -> None:
        self.table = ModelTable(many(shards))
        for number in range(40):
            self.table.put({"pk": "k", "sk": number}, 1 + number % shards)
        self.requests: Counter[int] = Counter()
        self._fault = fault
        super().__init__(self._answer)

    def _answer(self, send: Send) -> tuple[float, Answer]:
        shard = shard_of(send)
        self.requests[shard] += 1
        fault = self._fault(shard, self.requests[shard])
        return fault if isinstance(fault, tuple) else (0.01 if fault is None else fault, self.table.answer(send))

    def times(self, shard: int) -> list[float]:
        """When a shard was asked."""
        return [at for at, send in self.sent if shard_of(send) == shard]


def shard_of(send: Send) -> int:
    (stored,) = (value["S"] for value in send.params["ExpressionAttributeValues"].values() if "S" in value)
    return int(stored.rsplit(".", 1)[1])
