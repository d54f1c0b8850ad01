"""Virtual time over the project's own machines: loads, merged reads, clients side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate, zip_longest
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, Strategy, Unsharded
from shardkit.bulk.writes import Write
from shardkit.core.machine import Answer, Done, ProgramMachine, Send, Step, Wait
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError
from shardkit.partitions import Partitions, SimulatedTable, Simulator
from shardkit.partitions.simulator import draws
from shardkit.sharding.programs import Programs
from tests.support.machines import a_fan_out

DESCRIPTION: dict[str, Any] = {
    "TableName": "Messages",
    "KeySchema": [{"AttributeName": "User", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "User", "AttributeType": "S"},
        {"AttributeName": "Id", "AttributeType": "N"},
    ],
    "ProvisionedThroughput": {"ReadCapacityUnits": 100, "WriteCapacityUnits": 100},
}


def a_table(read_units: int = 100, write_units: int = 100, **options: Any) -> SimulatedTable:
    throughput = {"ReadCapacityUnits": read_units, "WriteCapacityUnits": write_units}
    described = {**DESCRIPTION, "ProvisionedThroughput": throughput}
    return SimulatedTable.described(described, **{"burst_seconds": 0, **options})


def messages(count: int, users: int = 10) -> Iterator[dict[str, Any]]:
    return ({"User": f"U{number % users}", "Id": number} for number in range(count))


# Loads.


def test_a_load_takes_as_long_as_its_units() -> None:
    """A thousand units at a hundred a second, of which one second's are kept."""
    table = a_table()
    simulator = Simulator(table)
    report = simulator.load(messages(1000), write_units=100)
    assert (report.items, report.written, report.write_units) == (1000, 1000, 1000.0)
    assert report.seconds == pytest.approx(9.5, abs=0.6)
    assert simulator.now == pytest.approx(report.seconds, abs=0.1)
    assert len(table.items) == 1000


def test_a_hot_key_is_slower_than_its_shards() -> None:
    """One key is one partition's; spread over suffixes, the load takes what the table has."""
    seconds = {}
    strategies: list[Strategy] = [Unsharded(), CalculatedSuffix("Id", shards=60)]
    for strategy in strategies:
        table = a_table(write_units=4000, count=4)
        simulator = Simulator(table)
        items = ({"User": "2014-07-09", "Id": number} for number in range(5000))
        report = simulator.load(items, strategy, window=1000)
        assert report.written == 5000
        seconds[strategy] = report.seconds
    slow, fast = seconds.values()
    assert slow > 3.5
    assert fast < slow / 3


@settings(max_examples=25, deadline=None)
@given(
    users=st.integers(1, 40),
    items=st.integers(1, 400),
    write_units=st.sampled_from([5, 100, 5000]),
    count=st.sampled_from([1, 3]),
    adaptive=st.sampled_from([None, 0]),
    keeps_items=st.booleans(),
    strategy=st.sampled_from([Unsharded(), RandomSuffix(5)]),
)
def test_whatever_is_throttled_every_item_ends_written(
    *,
    users: int,
    items: int,
    write_units: int,
    count: int,
    adaptive: float | None,
    keeps_items: bool,
    strategy: Strategy,
) -> None:
    """And the table serves no more than it has, in the time that the load takes."""
    table = a_table(write_units=write_units, count=count, adaptive_seconds=adaptive, keeps_items=keeps_items)
    report = Simulator(table).load(messages(items, users), strategy)
    assert report.written == items
    taken = sum(sum(heat.taken["write"]) for heat in table.partitions.heat.partitions)
    assert taken == report.write_units == items
    assert items <= write_units * (report.seconds + 1) + 1e-6


def test_writes_that_are_made_already() -> None:
    """They are loaded as they are, without an item being looked at."""
    table = a_table(keeps_items=False)
    bodies = [b'{"PutRequest":{"Item":{"User":{"S":"U%d"},"Id":{"N":"1"}}}}' % user for user in range(150)]
    writes = [Write(body, place, None, identity := (f"U{place}", 1), identity, 1) for place, body in enumerate(bodies)]
    report = Simulator(table).load(writes)
    assert report.written == report.write_units == 150
    assert report.throttles > 0


def a_run(seed: int) -> str:
    simulator = Simulator(a_table(write_units=500, count=4), seed=seed)
    return f"{simulator.load(messages(1200, 30), window=300)} {simulator.now}\n"


def test_the_same_seed_is_the_same_run() -> None:
    """In another process too, however it hashes its strings; another seed is another run."""
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", "from tests.unit.partitions.test_simulator import a_run; print(a_run(7), end='')"],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": hashes},
    )
    assert done.stdout == a_run(7) != a_run(8)
    assert "1,200 written" in done.stdout
    assert " 0 throttles" not in done.stdout


# Merged reads.


@pytest.mark.parametrize("limit", [None, 30])
def test_a_merged_read_runs_its_own_machine(limit: int | None) -> None:
    """Over a partition that is full it waits, and gives every item in order."""
    strategy = RandomSuffix(8)
    table = a_table(read_units=4)
    requests = Programs("Messages", strategy, DESCRIPTION, lambda: 0.5)
    for number in range(200):
        item = {"User": strategy.physical_key("U1", number % 8 + 1), "Id": number, "body": "x" * 500}
        table.hold(to_wire_item(item))
    simulator = Simulator(table)
    params: dict[str, Any] = {
        "TableName": "Messages",
        "KeyConditionExpression": "#user = :user",
        "ExpressionAttributeNames": {"#user": "User"},
        "ExpressionAttributeValues": {":user": "U1"},
    }
    if limit is not None:
        params["Limit"] = limit
    found: list[int] = []
    while True:
        page = simulator.run(
            ProgramMachine(requests.query(params, shard=None, return_shards=False, fan_out=a_fan_out()))
        )
        found += [int(item["Id"]) for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            break
        params["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    assert found == list(range(200))
    taken = sum(sum(heat.taken["read"]) for heat in table.partitions.heat.partitions)
    assert taken > 10
    assert taken <= 4 * (simulator.now + 1) + 4  # the last read may go into debt
    assert from_wire_item(next(iter(table.items.page(first_key())), {}))["Id"] == 0


def first_key() -> dict[str, Any]:
    names = {"KeyConditionExpression": "#user = :user", "ExpressionAttributeNames": {"#user": "User"}}
    return {**names, "ExpressionAttributeValues": {":user": {"S": "U1.1"}}}


# Machines side by side, and time.


class Ticks:
    """Writes an item every so many seconds."""

    def __init__(self, user: str, seconds: float, times: int) -> None:
        self.user, self.seconds, self.times = user, seconds, times
        self.answers: list[tuple[float, Answer]] = []
        self._sent = 0

    def next(self, now: float) -> Step[int]:
        if self._sent < self.times:
            if now < self._sent * self.seconds:
                return Wait(self._sent * self.seconds)
            self._sent += 1
            return Send(
                "PutItem", {"TableName": "Messages", "Item": to_wire_item({"User": self.user, "Id": self._sent})}
            )
        return Wait() if len(self.answers) < self.times else Done(self._sent)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.answers.append((now, answer))


def test_machines_side_by_side_share_the_table() -> None:
    """Two loads and somebody who writes now and then: together they get no more than there is, and all end."""
    table = a_table(write_units=200)
    simulator = Simulator(table)
    loads = [simulator.loading(messages(1000), write_units=90) for _ in range(2)]
    ticks = Ticks("U99", 0.5, 10)
    *reports, ticked = simulator.run_all([*loads, ticks])
    assert ticked == 10
    assert [report.written for report in reports] == [1000, 1000]
    assert simulator.now >= 9
    assert all(0.005 <= now - 0.5 * number <= 0.01 for number, (now, _) in enumerate(ticks.answers))


def test_latency_of_ones_own() -> None:
    """Of the request and a draw."""
    ticks = Ticks("U1", 10, 3)
    simulator = Simulator(a_table(), latency=lambda send, draw: 1.5 if send.operation == "PutItem" else draw, now=100)
    assert simulator.run(ticks) == 3
    assert simulator.now == 101.5
    assert [now for now, _ in ticks.answers] == [101.5] * 3


def test_a_machine_that_waits_for_nothing() -> None:
    class Stuck(Ticks):
        def next(self, now: float) -> Step[int]:
            return Wait(self.seconds or None)

    with pytest.raises(RuntimeError, match="no request is under way"):
        Simulator(a_table()).run(Stuck("U1", 0, 1))
    with pytest.raises(RuntimeError, match="waits for 5"):
        Simulator(a_table(), now=5).run(Stuck("U1", 5, 1))


def test_a_load_wants_a_table() -> None:
    simulator = Simulator(lambda send, now: {})
    with pytest.raises(ConfigurationError, match="SimulatedTable"):
        simulator.load([])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *(
            ({"latency": wrong}, "latency[=:]")
            for wrong in (None, 0.005, (1,), (1, 2, 3), (2, 1), (-1, 1), "ab", ("a", "b"))
        ),
        *(({"now": wrong}, "now: must be a number >= 0") for wrong in (None, "soon", float("nan"))),
    ],
)
def test_arguments_that_cannot_work(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Simulator(a_table(), **arguments)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"workers": wrong} for wrong in (None, 0, 1.5, "x")),
        *({"window": wrong} for wrong in (None, 0, 2.5)),
        {"max_failures": "few"},
        {"duplicates": "newest"},
        {"write_units": -1},
    ],
)
def test_a_load_checks_its_options_as_bulk_load_does(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        Simulator(a_table()).load([], **wrong)


def test_draws_are_even() -> None:
    """From 0 to below 1, and not those of another seed."""
    draw, other = draws(1), draws(2)
    drawn = [draw() for _ in range(1000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert sum(drawn) / 1000 == pytest.approx(0.5, abs=0.03)
    assert drawn[:10] != [other() for _ in range(10)]


def test_heat_of_a_load() -> None:
    """Every unit is in it, by partition and second."""
    partitions = Partitions(read_units=10, write_units=400, count=4, burst_seconds=0)
    table = SimulatedTable(DESCRIPTION, partitions)
    report = Simulator(table).load(messages(2000, 40))
    assert sum(sum(heat.taken["write"]) for heat in partitions.heat.by_range) == 2000
    columns = zip_longest(*[heat.taken["write"] for heat in partitions.heat.by_range], fillvalue=0.0)
    for seconds, taken in enumerate(accumulate(map(sum, columns)), start=1):
        assert taken <= 400 * (seconds + 1)
    assert report.throttles > 0
    assert sum(sum(heat.throttled["write"]) for heat in partitions.heat.by_range) > 0


class Sleeper:
    """Waits until a second is over, and then says so."""

    def __init__(self, woken: list[Sleeper]) -> None:
        self._woken = woken

    def next(self, now: float) -> Step[None]:
        if now < 1.0:
            return Wait(1.0)
        self._woken.append(self)
        return Done(None)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        raise AssertionError("it sends nothing")


@pytest.mark.parametrize("reverse", [False, True])
def test_machines_that_wait_for_the_same_time_take_turns_in_their_order(reverse: bool) -> None:
    """Wherever in memory they are."""
    woken: list[Sleeper] = []
    sleepers = sorted((Sleeper(woken) for _ in range(5)), key=id, reverse=reverse)
    Simulator(a_table()).run_all(sleepers)
    assert woken == sleepers
