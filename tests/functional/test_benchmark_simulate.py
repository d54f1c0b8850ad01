"""What the simulated loads stand on: their data, what boto3 raises, and what is made of the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from botocore.exceptions import ClientError

pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from benchmarks import messages, simulate
from benchmarks.heat_maps import panels
from benchmarks.simulate import EndlessRetries, Run, Way, figures, section, simulated, together
from shardkit import CalculatedSuffix
from shardkit.bulk.writes import Write
from shardkit.cli.pictures import picture
from shardkit.core.machine import Answer, ProgramMachine, Send
from shardkit.partitions import Simulator, Throttle
from shardkit.partitions.scenarios.clients import ATTEMPTS, batch_writer
from tests.functional.test_docs import texts_of
from tests.support.fakes import client_error


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


def test_a_script_that_boto3_raises_to_begins_again_with_its_batch() -> None:
    """After four tries with waits of up to 1, 2 and 4 seconds."""
    times: list[float] = []

    def answer(_: Send, now: float) -> Answer:
        times.append(now)
        throttle = Throttle("write", "KeyRangeThroughput", "table/Messages")
        return throttle.error("BatchWriteItem") if len(times) <= 6 else {"UnprocessedItems": {}}

    items = map(messages.stored, messages.in_order([25]))
    retries = EndlessRetries(ATTEMPTS, lambda: 0.5)
    Simulator(answer, latency=(0, 0)).run(ProgramMachine(batch_writer("Messages", items, retries)))
    assert times == [0.0, 0.5, 1.5, 3.5, 3.5, 4.0, 5.0]
    assert retries.raised == 1


def test_other_errors_end_the_script() -> None:
    error = client_error("ValidationException")
    retries = EndlessRetries(ATTEMPTS, lambda: 0.5)
    with pytest.raises(ClientError) as raised:
        Simulator(lambda _send, _now: error).run(ProgramMachine(retries.call(Send("BatchWriteItem", {}))))
    assert raised.value is error
    assert retries.raised == 0


def test_a_message_is_stored_as_its_write_says() -> None:
    (write,) = messages.in_order([1])
    assert orjson.loads(write.body) == {"PutRequest": {"Item": messages.stored(write)}}


def of(**way: Any) -> Run:
    return simulated(Way(**{"name": "a way", "items": 30_000, "users": 200, **way}))


def test_ways_are_run_and_judged() -> None:
    """The order of the input keeps partitions idle; one key is one partition's."""
    sorted_run, random_run = (of(order=order, threads=10, items=48_000, users=320) for order in ("sorted", "random"))
    assert sorted_run.seconds > random_run.seconds
    assert sorted_run.ceiling == random_run.ceiling
    one = of(order="day", items=5_000, users=0, shards=1)
    assert one.of_ceiling == pytest.approx(100, abs=10)
    assert one.least_seconds == 4.0
    assert [sum(row) for row in one.heat].count(0) == 10
    rows = section("Loads", [sorted_run, one]).rows
    assert rows[0][:2] == ("a way", "48,000")
    assert not list(figures([sorted_run, one], short=True))


def test_loaders_side_by_side() -> None:
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


def test_runs_are_drawn_on_one_time_axis(tmp_path: Path) -> None:
    run = of(order="day", items=100, users=0, shards=1)
    slow, fast = (replace(run, seconds=seconds, heat=((5.0,) * seconds,) * 11) for seconds in (90, 60))
    with picture(str(tmp_path / "runs.svg"), 3) as figure:
        panels(figure, [slow, fast], "two ways")
    axes = figure.axes[:2]
    assert [one.get_xlim() for one in axes] == [(0, 1.5), (0, 1.5)]
    assert [one.images[0].get_extent()[1] for one in axes] == [1.5, 1.0]
    assert {"two ways", "time (minutes)", "partition", "write units a second"} <= set(texts_of(tmp_path / "runs.svg"))
