"""What the simulated loads stand on: their data, what batch_writer sends, and what is made of the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from boto3.dynamodb.table import BatchWriter as Boto3BatchWriter

pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from benchmarks import messages, simulate
from benchmarks.batch_writer import BatchWriter
from benchmarks.heat_maps import draw_heat, picture_of
from benchmarks.simulate import Run, Way, figures, section, simulated, together
from shardkit import CalculatedSuffix
from shardkit.bulk.writes import Write
from shardkit.machine import Answer, Send
from shardkit.partitions import Simulator, Throttle


def named(writes: Iterable[Write]) -> list[tuple[Any, ...]]:
    return [write.identity for write in writes]


@pytest.mark.parametrize(("items", "users"), [(1500, 10), (1100, 10), (2000, 10), (19_999, 133)])
def test_users_have_100_to_200_messages(items: int, users: int) -> None:
    counts = messages.counts(items, users)
    assert (sum(counts), len(counts)) == (items, users)
    assert 100 <= min(counts) <= max(counts) <= 200
    assert counts == messages.counts(items, users)


def test_orders_of_the_same_messages() -> None:
    """Sorted by user, shuffled, and those of one loader of two."""
    counts = messages.counts(1500, 10)
    ordered, shuffled = named(messages.in_order(counts)), named(messages.in_random_order(counts))
    users = [user for user, _ in ordered]
    assert users == sorted(users)
    assert list(Counter(users).values()) == counts
    assert len(set(ordered)) == len(shuffled) == 1500
    assert Counter(user for user, _ in shuffled) == Counter(users)
    assert len(set(shuffled)) == 1500
    assert len({user for user, _ in shuffled[:100]}) == 10
    halves = [named(messages.in_order(counts, range(part, 10, 2))) for part in (0, 1)]
    assert sorted(halves[0] + halves[1]) == sorted(ordered)


def test_orders_of_a_day_are_in_their_shards() -> None:
    strategy = CalculatedSuffix("OrderId", shards=7)
    keys = [key for key, _ in named(messages.of_one_day(50, 7))]
    assert keys == [
        strategy.physical_key("2014-07-09", strategy.shard_of("2014-07-09", {"OrderId": n})) for n in range(50)
    ]


class Client:
    """Leaves some of each batch unprocessed, as a schedule says."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed)
        self.batches: list[list[Any]] = []

    def batch_write_item(self, *, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:
        ((name, requests),) = RequestItems.items()
        requests = list(requests)
        self.batches.append(requests)
        left = [request for request in requests if self._draw.random() < 0.4]
        return {"UnprocessedItems": {name: left} if left else {}}


@pytest.mark.parametrize("seed", range(5))
def test_it_sends_what_boto3_sends(seed: int) -> None:
    """The same batches in the same order, whatever comes back unprocessed."""
    writes = list(messages.in_order(messages.counts(300, 2)))
    real, modelled = Client(seed), Client(seed)
    with Boto3BatchWriter("Messages", cast("Any", real)) as writer:
        for write in writes:
            user, number = write.identity
            writer.put_item({"pk": {"S": user}, "sk": {"N": f"{number}"}})

    def answer(send: Send, _: float) -> Answer:
        return modelled.batch_write_item(RequestItems=send.params["RequestItems"])

    machine = BatchWriter("Messages", iter(writes), Random(0).random)
    Simulator(answer).run(machine)
    assert modelled.batches == real.batches
    assert machine.requests == len(real.batches)
    assert 0 < machine.throttles < machine.requests


def test_a_throttled_batch_is_tried_as_botocore_does() -> None:
    """Four times, after waits of up to 1, 2 and 4 seconds; the script is told, and goes on with the batch."""
    times: list[float] = []

    def answer(_: Send, now: float) -> Answer:
        times.append(now)
        throttle = Throttle("write", "KeyRangeThroughput", "table/Messages")
        return throttle.error("BatchWriteItem") if len(times) <= 6 else {"UnprocessedItems": {}}

    machine = BatchWriter("Messages", iter(list(messages.in_order([25]))), lambda: 0.5)
    Simulator(answer, latency=(0, 0)).run(machine)
    assert times == [0.0, 0.5, 1.5, 3.5, 3.5, 4.0, 5.0]
    assert (machine.requests, machine.throttles, machine.raised) == (7, 6, 1)


def of(**way: Any) -> Run:
    return simulated(Way(**{"name": "a way", "items": 30_000, "users": 200, **way}))


def test_ways_are_run_and_judged() -> None:
    """The order of the input keeps partitions idle; one key is one partition's."""
    sorted_run, random_run = (of(order=order, threads=10, items=150_000, users=1000) for order in ("sorted", "random"))
    assert sorted_run.seconds > random_run.seconds
    assert sorted_run.ceiling == random_run.ceiling
    one = of(order="day", items=5_000, users=0, shards=1)
    assert one.of_ceiling == pytest.approx(100, abs=10)
    assert one.least_seconds == 4.0
    assert [sum(row) for row in one.heat].count(0) == 10
    rows = section("Loads", [sorted_run, one]).rows
    assert rows[0][:2] == ("a way", "150,000")
    assert not list(figures([sorted_run, one], short=True))


def test_loaders_side_by_side(tmp_path: Path) -> None:
    """Each has half of the users and half of every partition; together they are one run."""
    parts = [of(order="interleaved", part=part, parts=2) for part in (0, 1)]
    run = together(parts, wall_seconds=5.0)
    assert sum(map(sum, run.heat)) == 30_000
    assert run.requests == parts[0].requests + parts[1].requests
    assert run.seconds == max(part.seconds for part in parts)
    assert not list(figures([run], short=True))
    lost, took = figures([replace(run, seconds=run.least_seconds / 0.98)], short=False)
    assert lost.value == pytest.approx(2.0)
    assert lost.target == simulate.LOST
    assert (took.value, took.target) == (5.0, simulate.SECONDS)
    alone = replace(run, way=replace(run.way, parts=1))
    lost, took = figures([replace(alone, read_seconds=9.0, read_items=99_000)], short=True)
    assert lost.value == pytest.approx(10.0)
    assert took.target is None
    picture = picture_of(run, tmp_path)
    assert picture.name == "simulate-a-way.png"
    draw_heat(run, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
