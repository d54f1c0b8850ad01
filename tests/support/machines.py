"""The machines of a merged Query, and a driver with a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardkit.core.machine import Answer, Machine, Send
from shardkit.partitions.simulator import Simulator
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import StreamOfShards
from tests.support import fakes
from tests.support.model import ModelTable

throttled = partial(fakes.throttled, kind="Read")


def page_machine(plan: Plan, *, sizes: ItemSizes | None = None, concurrency: int = 10, **fan_out: Any) -> PageOfShards:
    return PageOfShards(plan, sizes=sizes or ItemSizes(), draw=lambda: 0.5, fan_out=FanOut(concurrency, **fan_out))


def stream_machine(
    plan: Plan,
    *,
    sizes: ItemSizes | None = None,
    concurrency: int = 10,
    max_items: int | None = None,
    **fan_out: Any,
) -> StreamOfShards:
    return StreamOfShards(
        plan,
        sizes=sizes or ItemSizes(),
        draw=lambda: 0.5,
        fan_out=FanOut(concurrency, **fan_out),
        max_items=max_items,
    )


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
