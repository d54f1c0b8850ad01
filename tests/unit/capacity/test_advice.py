from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, Unsharded
from shardkit.analysis.per_key import SUFFIXED, PerKey
from shardkit.analysis.shards import shards_for
from shardkit.capacity import Advice, CapacityBudget, CapacityMeter, Skew, Usage
from shardkit.errors import ConfigurationError
from shardkit.sharding.shard_map import MAP
from tests.support.metered import FakeClient, consumed, item
from tests.support.tables import described


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metered(clock: Clock) -> tuple[FakeClient, CapacityMeter]:
    client, meter = FakeClient(), CapacityMeter(clock=clock)
    meter.attach(client, key_schema={"T": "pk"})
    return client, meter


Metered = tuple[FakeClient, CapacityMeter]


def write(client: FakeClient, key: str, units: float, sharding: Any = None) -> None:
    client.call(
        "PutItem",
        {"ConsumedCapacity": consumed(units, "T" if sharding is None else sharding.table)},
        sharding=sharding,
        TableName="T" if sharding is None else sharding.table,
        Item=item(key),
    )


def read(client: FakeClient, key: str, units: float) -> None:
    client.call("GetItem", {"ConsumedCapacity": consumed(units)}, TableName="T", Key={"pk": {"S": key}})


def test_keys_above_a_partitions_limits(clock: Clock, metered: Metered) -> None:
    client, meter = metered
    for second in range(20):
        clock.now = second
        write(client, "hot", 100 if second else 2600)
        write(client, "warm", 800)
        read(client, "read", 2400.5)
        read(client, "each by itself", 2400)
        write(client, "each by itself", 800)
    advice = meter.advise()
    assert [(one.key, one.shards_needed) for one in advice] == [("hot", 65), ("read", 8)]
    assert advice[0] == Advice(
        table="T",
        key="hot",
        shards=1,
        shards_needed=65,
        reason=shards_for(write_units=2600).reason,
        peak_read_units=0,
        peak_write_units=2600,
        throttles=0,
        headroom=0.2,
        per_key=PerKey({"hot": 65, "read": 8}),
    )
    assert str(advice[0]) == (
        "T 'hot': 65 shards instead of 1: on 6 partitions (assumed: twice what this key takes), none gets more "
        "than 80% of what a partition serves (20% is left free), with a probability of at least 99%. Write "
        'CalculatedSuffix("<sort key>", shards={"hot": 65, "read": 8}), for hot keys alone: the others keep their '
        f"number of shards, and cheap Queries. But {SUFFIXED}. Give all keys as many shards only if many will be hot, "
        "or you cannot list them. The busiest "
        "second of its hottest shard took 0.0 read and 2,600.0 write units, 2.60 of what a partition serves (3,000 "
        "read or 1,000 write units a second), and 0.80 leaves 20% headroom"
    )
    assert [(one.key, one.shards_needed) for one in meter.advise(headroom=0)] == [
        ("hot", shards_for(write_units=2600, headroom=0).shards)
    ]


def test_a_meter_shows_what_it_holds(metered: Metered) -> None:
    client, meter = metered
    write(client, "a", 2.5)
    read(client, "a", 1.0)
    assert repr(meter) == "<CapacityMeter 'total': 2 requests, 1.0 read units, 2.5 write units, 0 throttles>"
    budget = CapacityBudget(write_units=100)
    assert repr(budget) == "CapacityBudget(write_units=100, burst=1, mode='wait', timeout=60)"


def test_where_no_number_is_enough_the_advice_says_why(metered: Metered) -> None:
    client, meter = metered
    write(client, "small", 900)
    write(client, "a", 200_000)
    advice = meter.advise()
    assert [(one.key, one.shards_needed) for one in advice] == [("a", None), ("small", 8)]
    assert "T 'a': no number of shards is enough, and it has 1: on 400 partitions (assumed: " in str(advice[0])


def test_a_key_that_was_throttled_needs_more(metered: Metered) -> None:
    client, meter = metered
    reasons = [{"reason": "TableWriteKeyRangeThroughputExceeded"}]
    error = {"Error": {"Code": "ThrottlingException"}, "ThrottlingReasons": reasons}
    client.call("PutItem", error, TableName="T", Item=item("a"))
    (advice,) = meter.advise()
    assert (advice.key, advice.shards_needed, advice.throttles) == ("a", 2, 1)
    assert "2 shards instead of 1: more than it has, because it was throttled, and what it asks for is not " in str(
        advice
    )
    assert "throttled 1 times" in str(advice)


def test_shards_that_are_there_are_counted(metered: Metered) -> None:
    client, meter = metered
    sharding = described(CalculatedSuffix("sk", shards=4), {"pk": "S", "sk": "N"}, ["pk", "sk"])
    for shard, units in ((1, 700.0), (2, 900.0), (3, 100.0)):
        write(client, f"a.{shard}", units, sharding)
        write(client, f"b.{shard}", 800, sharding)
    (advice,) = meter.advise()
    assert (advice.key, advice.shards, advice.shards_needed, advice.peak_write_units) == ("a", 4, 117, 900)
    assert (advice.times_fair, advice.skewed) == (4 * 900 / 1700, True)
    assert "the hottest took 2.12 times its fair share of the key's units. More shards do not help where" in str(advice)
    skew = meter.skew("a")
    assert skew == Skew(
        table=sharding.table,
        key="a",
        shards=4,
        by_physical_key={
            f"a.{shard}": Usage(write_units=units, requests=1) for shard, units in ((1, 700), (2, 900), (3, 100))
        },
    )
    assert skew.hottest == "a.2"
    assert (skew.share, skew.fair_share, skew.times_fair) == (900 / 1700, 0.25, 4 * 900 / 1700)
    assert str(skew) == (
        f"{sharding.table} 'a': the hottest of 4 shards, 'a.2', took 52.9% of its units, 2.12 times the fair share of "
        "25.0%"
    )


def test_of_a_sharded_table_a_few_hot_keys_get_more(metered: Metered) -> None:
    client, meter = metered
    strategy = CalculatedSuffix("sk", shards={None: 2, "old": 4})
    sharding = described(strategy, {"pk": "S", "sk": "N"}, ["pk", "sk"])
    for key, units in (("a", 900.0), ("b", 1.0)):
        for shard in (1, 2):
            write(client, f"{key}.{shard}", units, sharding)
    (advice,) = meter.advise()
    assert advice.line == f'shards={{None: 2, "old": 4, "a": {advice.shards_needed}}}'
    assert f". Write {advice.line}, for hot keys alone: the others keep" in str(advice)
    assert ". The items of these keys must move: shardkit reshard, " in str(advice)


@pytest.mark.parametrize(("keys", "line"), [(("pk", "sk"), 'CalculatedSuffix("sk", shards={"a": 8})'), (("pk",), None)])
def test_the_sort_key_of_an_unsharded_table(metered: Metered, keys: tuple[str, ...], line: str | None) -> None:
    """It is in the line; without one, a key is one item, which no shards relieve."""
    client, meter = metered
    sharding = described(Unsharded(), dict.fromkeys(keys, "S"), [*keys])
    write(client, "a", 900, sharding)
    write(client, "b", 1, sharding)
    (advice,) = meter.advise()
    assert (advice.shards_needed, advice.line) == (8, line)


def test_a_look_for_a_shard_map_is_no_key(metered: Metered) -> None:
    """With it, the one key of a table would be one of two, and so alone hot."""
    client, meter = metered
    write(client, "a", 900)
    read(client, MAP, 0.5)
    (advice,) = meter.advise()
    assert advice.per_key is None


def test_shards_that_are_even_are_not_skewed(metered: Metered) -> None:
    client, meter = metered
    sharding = described(CalculatedSuffix("sk", shards=2), {"pk": "S", "sk": "N"}, ["pk", "sk"])
    for shard in (1, 2):
        write(client, f"a.{shard}", 900, sharding)
    (advice,) = meter.advise()
    assert (advice.shards_needed, advice.times_fair, advice.skewed) == (shards_for(write_units=1800).shards, 1, False)
    assert str(advice).endswith("20% headroom")


def test_skew_of_what_has_no_shards_or_was_not_seen(metered: Metered) -> None:
    client, meter = metered
    with pytest.raises(ConfigurationError, match=r"^table: required unless exactly one table was used; "):
        meter.skew("a")
    write(client, "a", 3)
    assert (meter.skew("a").hottest, meter.skew("a").times_fair) == ("a", 1)
    nothing = meter.skew("b", table="T")
    assert (nothing.hottest, nothing.share) == (None, 0)
    assert "nothing was seen" in str(nothing)


@pytest.mark.parametrize("strategy", [CalculatedSuffix("sk", shards=2), CalculatedSuffix("sk", shards=lambda _: 2)])
def test_a_key_of_a_table_with_a_shard_map_can_grow(metered: Metered, strategy: CalculatedSuffix) -> None:
    client, meter = metered
    sharding = replace(described(strategy, {"pk": "S", "sk": "N"}, ["pk", "sk"]), has_map=True)
    write(client, "a.1", 900, sharding)
    (advice,) = meter.advise()
    line = f"ShardMapAdmin(table).grow('a', shards={advice.shards_needed})"
    assert advice.growing == isinstance(strategy.shards, int)
    assert advice.line == (line if advice.growing else None)
    assert str(advice).endswith(f". To grow the key: {line}") == advice.growing


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=30), st.floats(0, 0.4))
def test_what_is_advised_is_what_the_busiest_second_needs(units: list[float], headroom: float) -> None:
    clock = Clock()
    client, meter = FakeClient(), CapacityMeter(clock=clock)
    meter.attach(client, key_schema={"T": "pk"})
    for second, amount in enumerate(units):
        clock.now = second
        write(client, "a", amount)
    needed = shards_for(write_units=max(units), headroom=headroom)
    assert bool(meter.advise(headroom=headroom)) == (max(units) / 1000 > 1 - headroom)
    for one in meter.advise(headroom=headroom):
        assert (one.shards_needed, one.reason) == (needed.shards, needed.reason)


@pytest.mark.parametrize("headroom", [-0.1, 1, float("nan"), True, "0.2"])
def test_the_headroom_is_checked(metered: Metered, headroom: Any) -> None:
    with pytest.raises(ConfigurationError, match="headroom: must be"):
        metered[1].advise(headroom=headroom)
