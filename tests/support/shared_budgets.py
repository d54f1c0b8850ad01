"""Members of shared budgets in virtual time: a network that delays, loses and repeats; clocks that differ; deaths."""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from shardkit.capacity.membership import BORN, SILENT_SECONDS
from shardkit.capacity.shared_budget import Member, Terms
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ShareEndedError
from tests.support.fakes import client_error, lost_connection

TIMEOUT = 5.0


class Item:
    """A budget's item in memory, as strict as DynamoDB with the updates of its members."""

    def __init__(self) -> None:
        self.attributes: WireItem = {}
        self.updates = 0

    def answer(self, send: Send) -> Answer:
        self.updates += 1
        params: Any = send.params
        names, values = params["ExpressionAttributeNames"], params.get("ExpressionAttributeValues", {})
        item = dict(self.attributes)
        mine = item.get(names["#me"])
        passes = not item or BORN in item
        if "#me[0]" in params["ConditionExpression"] and mine is not None:
            passes = passes and int(mine["L"][0]["N"]) <= int(values[":beat"]["N"])
        if ":answered" in values:
            passes = passes and mine is not None and int(values[":answered"]["N"]) <= int(mine["L"][0]["N"])
        if not passes:
            return client_error("ConditionalCheckFailedException", operation="UpdateItem")
        set_, _, remove = params["UpdateExpression"].partition("REMOVE ")
        if set_:
            item.setdefault(BORN, values[":born"])
            item[names["#me"]] = values[":me"]
            if "#settled" in names:
                item[names["#settled"]] = values[":settled"]
        for name in filter(None, remove.split(", ")):
            item.pop(names[name], None)
        self.attributes = item
        return {"Attributes": dict(item)}


class World:
    """The time, the item, the network, and all units that were sent: (time, units)."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.item = Item()
        self.slow = 0.0  # seconds that a call may take on its way
        self.lost = 0.0  # how many calls get lost, each way
        self.sent: list[tuple[float, float]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._numbers), event))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heappop(self._events)
            event()
        self.now = until

    def delay(self) -> float:
        return self.random.uniform(0.002, 0.02) + (self.random.random() ** 4) * self.slow

    def excess(self, rate: float, since: float = 0.0) -> float:
        """Return the most units, over all windows, by which what was sent exceeds ``rate`` times the window."""
        total, least, most = 0.0, 0.0, 0.0
        for time, units in sorted(self.sent):
            if time >= since:
                least = min(least, total - rate * time)
                total += units
                most = max(most, total - rate * time - least)
        return most

    def used(self, since: float, until: float) -> float:
        """Return the mean rate at which units were sent."""
        return sum(units for time, units in self.sent if since <= time < until) / (until - since)


class Process:
    """A process with a load that sends requests of ``units``, as many as it may, up to ``demand`` units a second."""

    def __init__(self, world: World, terms: Terms, *, units: float = 1.0, demand: float | None = None) -> None:
        self.world, self.units, self.demand = world, units, demand
        self.side = next(iter(terms.rates))
        self.alive = True
        self.requests = 0
        self.cut = False
        self.suspended_until = 0.0
        self.jump = 0.0  # of the second clock
        self._offset, self._speed = world.random.uniform(-1e6, 1e6), world.random.uniform(0.98, 1.02)
        self.member = Member(terms, None, self.clock, self._start)
        self._beating: Generator[Send, Answer, float | None] | None = None
        self._alarm = 0
        world.at(world.now, self._work)

    def clock(self) -> tuple[float, float]:
        now = self.world.now * self._speed
        return self._offset + now, 1.7e9 + now + self.jump

    def kill(self) -> None:
        self.alive = False

    def suspend(self, seconds: float) -> None:
        self.suspended_until = max(self.suspended_until, self.world.now + seconds)

    def _later(self, time: float, event: Callable[[], None]) -> None:
        """Do something unless the process is dead then, and not while it stands still."""

        def does() -> None:
            if not self.alive:
                return
            if self.suspended_until > self.world.now:
                self.world.at(self.suspended_until, does)
            else:
                event()

        self.world.at(time, does)

    # The load.

    def _work(self) -> None:
        self._later(self.world.now, self._decide)

    def _decide(self) -> None:
        world = self.world
        if self.demand == 0:
            self._later(world.now + 0.5, self._decide)
            return
        ready = self.member.ready(self.side, world.now)
        if ready > world.now:
            self._later(min(ready, world.now + 0.1), self._decide)
            return
        self.member.take(self.side, self.units)
        # A process may stand still just between its decision and the request.
        self._later(world.now, self._go)

    def _go(self) -> None:
        world = self.world
        try:
            self.member.check()
        except ShareEndedError:
            self.member.take(self.side, -self.units)
        else:
            world.sent.append((world.now, self.units))
            self.requests += 1
        pause = self.units / self.demand if self.demand else 0.0
        self._later(world.now + pause, self._decide)

    # The thread.

    def _start(self, _: Member) -> None:
        self._later(self.world.now, self._beat)

    def _beat(self) -> None:
        self._beating = self.member.beat()
        self._step(None)

    def _step(self, answer: Answer | None) -> None:
        assert self._beating is not None
        try:
            send = next(self._beating) if answer is None else self._beating.send(answer)
        except StopIteration as stop:
            if stop.value is not None:
                self._sleep(stop.value)
            return
        self._call(send)

    def _sleep(self, seconds: float) -> None:
        self._alarm += 1
        alarm, woken = self._alarm, self.member.woken

        def wake() -> None:
            if alarm == self._alarm and woken is self.member.woken:
                self._alarm += 1
                self._beat()

        def look() -> None:
            if alarm == self._alarm:
                if woken.is_set():
                    woken.clear()
                    wake()
                else:
                    self._later(self.world.now + 0.05, look)

        self._later(self.world.now + seconds / self._speed, wake)
        self._later(self.world.now + min(seconds, 0.25), look)

    def _call(self, send: Send) -> None:
        world, done = self.world, [False]

        def answered(answer: Answer) -> None:
            if not done[0]:
                done[0] = True
                self._step(answer)

        def arrives() -> None:
            answer = world.item.answer(send)
            if not self.cut and world.random.random() >= world.lost:
                self._later(world.now + world.delay(), lambda: answered(answer))

        if not self.cut:
            if world.random.random() >= world.lost:
                world.at(world.now + world.delay(), arrives)
            if world.random.random() < world.lost:  # once more: a retry, or a packet that took its time
                world.at(world.now + world.random.uniform(0.0, 20.0), arrives)
        self._later(world.now + TIMEOUT, lambda: answered(lost_connection()))


def terms(rate: float = 100.0, *, burst: float = 1.0, name: str = "b") -> Terms:
    return Terms(table="Budgets", name=name, rates={"write": rate}, burst=burst, key={"pk": {"S": name}})


SETTLED = SILENT_SECONDS + 1.0
