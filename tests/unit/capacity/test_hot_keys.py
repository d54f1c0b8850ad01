"""Warnings of a meter about keys that come near what a partition serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, CapacityMeter, ConfigurationError
from shardkit.capacity import HotKeyWarning
from shardkit.capacity.charge import Charge, KeyUnits
from shardkit.capacity.hot_keys import HotKeyWatch
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import Units
from tests.support.fakes import sharding
from tests.support.metered import FakeClient, consumed, item, put


class Metered:
    """A client whose meter warns, on a clock of the test's."""

    def __init__(self, warn_at: float = 0.8, on_warning: Callable[[HotKeyWarning], object] | None = None) -> None:
        self.now = 1000.0
        self.warnings: list[HotKeyWarning] = []
        self.client = FakeClient()
        self.meter = CapacityMeter(
            warn_at=warn_at, on_warning=on_warning or self.warnings.append, clock=lambda: self.now
        )
        self.meter.attach(self.client, key_schema={"T": "pk"})

    def write(self, key: str, units: float, sharding: Any = None) -> None:
        table = "T" if sharding is None else sharding.table
        answer = {"ConsumedCapacity": consumed(units, table)}
        self.client.call("PutItem", answer, sharding=sharding, TableName=table, Item=item(key))

    def read(self, key: str, units: float) -> None:
        self.client.call("GetItem", {"ConsumedCapacity": consumed(units)}, TableName="T", Key={"pk": {"S": key}})

    def told(self) -> list[tuple[Any, float, float]]:
        """Give the warnings since the last time; reading a figure adds up all calls."""
        assert self.meter.requests
        taken, self.warnings[:] = [(one.key, one.read_units, one.write_units) for one in self.warnings], []
        return taken


def test_reads_and_writes_have_their_own_limits() -> None:
    metered = Metered()
    metered.write("a", 799.5)
    metered.read("a", 2399.5)
    assert metered.told() == []
    metered.write("a", 0.5)
    assert metered.told() == [("a", 2399.5, 800.0)]
    metered.read("b", 2400.0)
    assert metered.told() == [("b", 2400.0, 0.0)]


def test_a_second_at_a_time() -> None:
    metered = Metered()
    for second in range(5):
        metered.now = 1000.9 + second
        metered.write("a", 500)
        metered.now += 0.2
        metered.write("a", 200)
    assert metered.told() == []
    metered.write("a", 600)
    assert metered.told() == [("a", 0.0, 800.0)]


@given(st.lists(st.floats(0, 40), max_size=30))
def test_once_a_key_and_minute(waits: list[float]) -> None:
    metered, last, expected = Metered(), float("-inf"), 0
    for wait in waits:
        metered.now += 1 + wait
        metered.write("a", 900)
        metered.write("cold", 1)
        if metered.now - last >= 60:
            last, expected = metered.now, expected + 1
    assert len(metered.warnings if not waits else metered.told()) == expected


def test_no_later_than_the_next_second_and_the_64th_call() -> None:
    """Nobody reads a figure here."""
    metered = Metered()
    for _ in range(3):
        metered.write("few and large", 400)
    assert metered.warnings == []
    metered.now += 1
    metered.write("another", 1)
    assert [one.key for one in metered.warnings] == ["few and large"]
    for _ in range(64):
        metered.write("many and small", 20)
    assert [one.key for one in metered.warnings] == ["few and large", "many and small"]


def test_a_sharded_key_is_judged_by_its_stored_keys() -> None:
    """A partition serves a stored key, so 900 units on each of two shards are too much, and 450 are not."""
    metered, sharded = Metered(), sharding(CalculatedSuffix("sk", shards=5))
    for shard in (1, 2):
        metered.write(f"day.{shard}", 450, sharded)
    assert metered.told() == []
    metered.write("day.2", 450, sharded)
    assert metered.meter.requests == 3
    (warning,) = metered.warnings
    assert warning == HotKeyWarning(
        table="Messages", key="day", physical_key="day.2", shards=5, read_units=0.0, write_units=900.0
    )
    assert str(warning) == (
        "Messages 'day', stored key 'day.2': 900.0 write units in one second, 90% of the 1,000 that a partition "
        "serves; it has 5 shards: give it more (the meter's advise() says how many)"
    )
    metered.write("day.1", 451, sharded)
    assert metered.told()[1:] == [("day", 0.0, 901.0)]  # another stored key of the same minute


def test_a_batchs_parts_count() -> None:
    metered = Metered(warn_at=0.02)
    answer = {"ConsumedCapacity": [consumed(25.0)]}
    metered.client.call("BatchWriteItem", answer, RequestItems={"T": [put("a")] * 21 + [put("b")] * 4})
    assert metered.told() == [("a", 0.0, 21.0)]


def test_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    metered = Metered()
    metered.read("a", 3300)
    assert metered.told() == [("a", 3300.0, 0.0)]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("shardkit", logging.WARNING)
    assert record.getMessage() == (
        "T 'a': 3,300.0 read units in one second, 110% of the 3,000 that a partition serves; spread the key over "
        "several shards (the meter's advise() says how many)"
    )


def test_a_callback_may_read_the_meter_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """It is called without a lock, and the call goes on."""
    seen: list[float] = []

    def look(warning: HotKeyWarning) -> None:
        seen.append(metered.meter.write_units)
        raise RuntimeError("no pager")

    metered = Metered(on_warning=look)
    for _ in range(65):  # the first is added up by itself
        metered.write("a", 20)
    assert seen == [1300]
    assert "no pager" in caplog.text
    assert metered.meter.write_units == 1300


def test_only_the_meter_warns_not_its_scopes() -> None:
    metered = Metered()
    with metered.meter.scope("outer"), metered.meter.scope("inner"):
        metered.write("a", 1000)
    assert metered.told() == [("a", 0.0, 1000.0)]


def test_no_warnings_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    client, meter = FakeClient(), CapacityMeter()
    meter.attach(client, key_schema={"T": "pk"})
    client.call("PutItem", {"ConsumedCapacity": consumed(5000)}, TableName="T", Item=item("a"))
    assert meter.write_units == 5000
    assert caplog.records == []


async def _later(warning: HotKeyWarning) -> None: ...


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"warn_at": 0}, "warn_at: must be a number > 0 and <= 1 "),
        ({"warn_at": 1.01}, "warn_at: must be a number > 0 and <= 1 "),
        ({"warn_at": True}, "warn_at: must be a number > 0 and <= 1 "),
        ({"warn_at": "80%"}, "warn_at: must be a number > 0 and <= 1 .* got '80%'"),
        ({"warn_at": float("nan")}, "warn_at: must be a number > 0 and <= 1 "),
        ({"warn_at": 0.8, "on_warning": 1}, "on_warning: must be a function that is not async, got 1"),
        ({"warn_at": 0.8, "on_warning": _later}, "on_warning: must be a function that is not async"),
        ({"on_warning": print}, "on_warning: must be given together with warn_at"),
    ],
)
def test_invalid_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CapacityMeter(**given)


def test_a_clock_that_is_set_back() -> None:
    metered = Metered()
    metered.write("a", 900)
    assert len(metered.told()) == 1
    metered.now -= 0.5  # as of another thread, whose call ended before and was noted later
    metered.write("a", 900)
    assert metered.told() == []
    metered.now -= 3600
    metered.write("a", 900)
    assert len(metered.told()) == 1


def test_the_time_of_a_warning_does_not_grow_with_the_keys() -> None:
    """A warning for each of 8,000 keys takes less than half a second; once it took 6."""
    found: list[HotKeyWarning] = []
    watch = HotKeyWatch(0.001, found.append)
    tally = Tally(max_keys=100, window=60)
    began = time.process_time()
    for number in range(8000):
        charge = Charge("PutItem", {})
        charge.keys.append(KeyUnits("T", f"{number}", None, Units(0.0, 1.0, 0.0, 0.0), 1))
        tally.add(charge, 1000.0)
        watch.look(tally, charge, 1000.0)
    assert time.process_time() - began < 3
    watch.report()
    assert len(found) == 8000
