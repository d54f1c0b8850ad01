"""Several tuners on one table, in virtual time: late calls, crashes, clocks that are hours off, frozen reporters.

The tuner and the admin of the shard map are the real ones. The service is a few lines, whose calls stand still while
others go on. What must never happen is looked for after each change of the map.
"""

from __future__ import annotations

import json
import random
import threading
from bisect import bisect_left
from collections.abc import Callable
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from shardkit import CalculatedSuffix
from shardkit.analysis import tuning
from shardkit.analysis.tuning import SECONDS, KeyReport, Report
from shardkit.core.machine import Send
from shardkit.errors import StageError
from shardkit.migrate.tuner import Tuner
from shardkit.sharding.shard_map import WAIT_SECONDS, ShardMapState, created
from tests.support.fakes import client_error
from tests.support.profiles import LONG

A_DAY, MOST_SHARDS = 4, 64
HOUR = 3600.0
PROCESSES = 8
DESCRIPTION = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
}


class CrashError(BaseException):
    """The process ends here."""


class Tuners:
    """The service, its time, the processes that report, and tuners, each in a thread that runs only when it is told."""

    def __init__(self, seed: int, clock: Callable[[float, float], float] | None = None) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000.0
        self.clock = clock
        self.map: dict[str, Any] = {}
        self.items: dict[str, dict[str, Any]] = {}
        self.maps: list[tuple[float, ShardMapState]] = []
        self.starts: list[float] = []
        self.frozen: set[int] = set()
        self.reported: dict[int, float] = {}
        self.observed: list[float] = []
        self.counters = dict.fromkeys(range(PROCESSES), 0)
        self.crashes = self.races = 0
        self.control = SimpleNamespace(
            name="Control",
            key_schema=DESCRIPTION["KeySchema"],
            attribute_definitions=DESCRIPTION["AttributeDefinitions"],
            query=self._query,
            put_item=self._put_control,
        )
        self.put_map(created(CalculatedSuffix("sk", shards=1)))
        self.running = threading.local()
        self.over = False
        self.failed: Exception | None = None
        self.recorded: dict[str, int] = {}
        client = SimpleNamespace(meta=SimpleNamespace(events=1))
        self.table = SimpleNamespace(name="T", meta=SimpleNamespace(client=client))

    # -- the service

    def answer(self, **parts: Any) -> dict[str, Any]:
        return {**parts, "ResponseMetadata": {"HTTPHeaders": {"date": formatdate(self.now, usegmt=True)}}}

    def put_map(self, state: ShardMapState) -> None:
        before = self.maps[-1][1] if self.maps else state
        self.map = state.to_attributes()
        if state.generation != before.generation:
            self.check(before, state)
        if not self.maps or state.generation != before.generation:
            self.maps.append((self.now, state))

    def send(self, send: Send) -> Any:
        if send.operation == "DescribeTable":
            return self.answer(Table=DESCRIPTION)
        self.pause()
        if send.operation == "GetItem":
            return self.answer(Item={**send.params["Key"], **self.map})
        seen = send.params["ExpressionAttributeValues"][":seen"]
        if seen != self.map["shardkit:generation"]:
            return client_error("ConditionalCheckFailedException", operation="PutItem")
        self.put_map(ShardMapState.of(send.params["Item"], "T"))
        self.may_crash()
        return self.answer()

    def _query(self, **_: Any) -> Any:
        self.pause()
        self.running.asked = self.now
        return self.answer(Items=[dict(item) for item in self.items.values()])

    def _put_control(self, *, Item: dict[str, Any], ConditionExpression: Any) -> Any:
        self.pause()
        expected = ConditionExpression.get_expression()
        seen = expected["values"][1] if expected["operator"] == "=" else None
        if self.items.get(Item["sk"], {}).get("shardkit:generation") != seen:
            raise client_error("ConditionalCheckFailedException", operation="PutItem")
        if json.loads(Item["shardkit:log"])[-1]["action"] == "grow":
            # Since when, as tuners have seen it, each process says the same; a second more or less, as dates are whole.
            since = [self.seen_at(last) for last in self.reported.values()]
            fresh = sum(self.running.asked - each < 181 for each in since)
            assert 2 * fresh >= sum(self.running.asked - each < HOUR - 1 for each in since), "grown by frozen processes"
            self.recorded = json.loads(Item["shardkit:tuner"])["growths"][-1]["shards"]
        self.items[Item["sk"]] = Item
        self.observed.append(self.running.asked)
        self.may_crash()
        return self.answer()

    def seen_at(self, reported: float) -> float:
        first = bisect_left(self.observed, reported)
        return self.observed[first] if first < len(self.observed) else float(self.running.asked)

    # -- what must hold

    def check(self, before: ShardMapState, after: ShardMapState) -> None:
        old, new = before.new or before.old, after.new or after.old
        for key in (f"k{number}" for number in range(24)):
            assert len(old.shards_for(key)) <= len(new.shards_for(key)) <= MOST_SHARDS, "shards"
        if len(self.maps) > 1:
            assert self.now - self.maps[-1][0] >= WAIT_SECONDS, "a step too early"
        if after.stage == "guard":
            assert all(len(new.shards_for(key[2:])) == number for key, number in self.recorded.items()), "not recorded"
            self.starts = [each for each in self.starts if self.now - each < tuning.DAY] + [self.now]
            assert len(self.starts) <= A_DAY, "more growths a day than allowed"

    # -- threads that take turns

    def pause(self) -> None:
        self.running.turn.release()
        self.running.go.acquire()
        if self.over or self.rng.random() < 0.003:
            raise CrashError

    def may_crash(self) -> None:
        if self.rng.random() < 0.01:
            raise CrashError

    def _tuner(self, go: threading.Semaphore, turn: threading.Semaphore, offset: float) -> None:
        self.running.go, self.running.turn = go, turn
        go.acquire()
        while not self.over:
            if self.clock is not None:
                self.running.offset = offset
            try:
                Tuner(self.table, self.control, apply=True, max_shards=MOST_SHARDS).step()
            except CrashError:
                self.crashes += 1
            except StageError:
                self.races += 1
            except Exception as error:  # noqa: BLE001 - `run` raises it
                self.failed, self.over = error, True
            turn.release()
            if not self.over:
                go.acquire()

    def run(self, hours: float) -> None:
        turn = threading.Semaphore(0)
        gos = [threading.Semaphore(0) for _ in range(self.rng.choice([2, 3]))]
        threads = [
            threading.Thread(target=self._tuner, args=(go, turn, self.rng.uniform(-2, 2) * HOUR), daemon=True)
            for go in gos
        ]
        for thread in threads:
            thread.start()
        end = self.now + hours * HOUR
        while self.now < end and not self.over:
            self.now += self.rng.expovariate(1 / 5)
            if self.rng.random() < 0.7:
                self._report(self.rng.randrange(PROCESSES))
            else:
                self.rng.choice(gos).release()
                turn.acquire()
            state = self.maps[-1][1]
            if state.stage == "move" and self.now - self.maps[-1][0] > HOUR:
                self.put_map(ShardMapState.of(self.map, "T").advanced())  # somebody has moved the items
        self.over = True
        for go, thread in zip(gos, threads, strict=True):
            go.release()
            thread.join()
        if self.failed is not None:
            raise self.failed

    def _report(self, process: int) -> None:
        if self.rng.random() < 0.002:  # for an hour or so, at once with others
            self.frozen = {*self.rng.sample(range(PROCESSES), self.rng.randrange(PROCESSES))}
        if process in self.frozen:
            return
        self.counters[process] += 1
        self.reported[process] = self.now
        key, units = f"S:k{int(self.now // (10 * HOUR)) % 24}", tuple([self.rng.uniform(100, 400)] * SECONDS)
        report = Report(self.counters[process], (KeyReport(key, None, 0.0, 5, 0, 0.0, units),))
        self.items[f"p{process}"] = {"sk": f"p{process}", **report.to_attributes()}


@pytest.fixture
def tuners(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tuners]:
    def made(seed: int, own_clock: tuple[str, ...] = ()) -> Tuners:
        together = Tuners(seed, clock=(lambda now, offset: now + offset) if own_clock else None)
        monkeypatch.setattr("shardkit.migrate.admin.through_client", lambda *_: together.send)
        monkeypatch.setattr(tuning, "A_DAY", A_DAY)
        for module in own_clock:
            monkeypatch.setattr(
                f"shardkit.migrate.{module}.service_time", lambda _: together.now + together.running.offset
            )
        return together

    return made


ONLY_LONG = (pytest.mark.long_search, pytest.mark.skipif(not LONG, reason="set HYPOTHESIS_PROFILE=search"))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=ONLY_LONG) for seed in range(1, 13))])
def test_tuners_do_no_harm_to_each_other(tuners: Callable[..., Tuners], seed: int) -> None:
    together = tuners(seed)
    together.run(72 if seed else 24)
    assert len(together.maps) > 2
    assert together.crashes
    assert together.races


@pytest.mark.parametrize("own_clock", [("tuner",), ("admin", "tuner")])
def test_a_tuner_with_a_clock_of_its_own_is_found(tuners: Callable[..., Tuners], own_clock: tuple[str, ...]) -> None:
    def search() -> None:
        for seed in range(20):
            tuners(seed, own_clock).run(24)

    with pytest.raises(AssertionError, match=r"step too early|by frozen processes|more growths"):
        search()
