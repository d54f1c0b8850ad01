"""How many shards a key needs: the same answer wherever it is asked, and enough when it is simulated."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardkit import RandomSuffix
from shardkit.analysis.keys import KeyUniformity
from shardkit.analysis.shards import Fit, shards_for, shards_needed
from shardkit.analysis.verdict import judge
from shardkit.capacity import CapacityMeter
from shardkit.partitions import Partitions, plan_shards
from shardkit.partitions.model import hash_of_plain
from tests.support.metered import FakeClient, consumed, item

TABLES = 60
"""Simulated tables: the same number of partitions, other hashes."""


def judged(units: float) -> Any:
    days = KeyUniformity(["Date"])
    days.add(("2014-07-09",), 350, 1.0, 0.5)
    return judge(days.result(), write_units=units)


def advised(units: float) -> int | None:
    client, meter = FakeClient(), CapacityMeter(clock=lambda: 0.0)
    meter.attach(client, key_schema={"T": "pk"})
    client.call("PutItem", {"ConsumedCapacity": consumed(units, "T")}, TableName="T", Item=item("2014-07-09"))
    return next((one.shards_needed for one in meter.advise()), 1)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 10_000))
def test_all_who_are_asked_give_one_answer(units: int) -> None:
    planned = plan_shards(350, units).shards
    assert (judged(units).shards, judged(units).good) == (planned, planned == 1)
    assert advised(units) == planned


def is_served(shards: int, units: float, partitions: int, key: str) -> bool:
    """Write to a key for two seconds, evenly over its shards; whether nothing of it is throttled."""
    table = Partitions(read_units=None, write_units=None, count=partitions, burst_seconds=0, now=0.0)
    hashes = [hash_of_plain(str(physical)) for physical in RandomSuffix(shards).physical_keys(key)]
    each = units / shards * (1 - 1e-9)
    return not any(table.serve_all([(hashed, each) for hashed in hashes], "write", float(now)) for now in range(2))


def served(shards: int, units: float, partitions: int) -> float:
    """The part of the tables that serves it all."""
    return sum(is_served(shards, units, partitions, f"2014-07-09 of {table}") for table in range(TABLES)) / TABLES


@pytest.mark.long_search
@settings(max_examples=settings().max_examples // 2)
@given(
    st.integers(500, 6000),
    st.one_of(st.none(), st.floats(1.3, 8)),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from([0.5, 0.75, 0.9]),
)
def test_the_answer_is_enough_and_one_step_less_is_not(
    units: int, times: float | None, headroom: float, probability: float
) -> None:
    """A partition serves a whole number of shards: a step is the least number with which it serves one more of them."""
    full = units / (1 - headroom)  # so much that nothing of a partition is left free
    known = None if times is None else math.ceil(times * full / 1000)
    needed = shards_needed(
        lambda shards: [Fit.of(shards, 0.0, units, partitions=known, headroom=headroom)],
        headroom=headroom,
        probability=probability,
    )
    (fit,) = needed.fits
    chance = 5 * math.sqrt(probability * (1 - probability) / TABLES)
    if needed.shards is None:
        assert known is None  # twice the load is too little for half of a partition
        assert served(100, full, fit.partitions) <= probability + chance
        return
    assume(needed.shards <= 150)  # more take long
    assert served(needed.shards, full, fit.partitions) >= probability - chance
    if needed.shards > 1:
        steps = {math.ceil(round(most * full / 1000, 9)) for most in range(1, fit.most + 1)}
        one_less = max((step for step in steps if step < needed.shards), default=needed.shards - 1)
        assert served(one_less, full, fit.partitions) <= probability + chance


def test_one_shard_is_enough_for_what_a_partition_serves() -> None:
    needed = shards_for(write_units=800)
    assert (needed.shards, needed.reason) == (
        1,
        "the key takes at most 80% of what a partition serves (20% is left free)",
    )


@pytest.mark.parametrize("partitions", [2, 4, 5])
def test_where_there_is_no_number_there_is_a_reason(partitions: int) -> None:
    needed = shards_for(write_units=4000, partitions=partitions)
    assert needed.shards is None
    assert f"{partitions} partitions" in needed.reason
    assert needed.reason.endswith("more partitions are needed")
    assert plan_shards(350, 4000, partitions=partitions).shards is None
    for shards in (4, 20, 200):
        assert served(shards, 5000, partitions) < 0.2


def test_a_day_at_4000_write_units_is_written_whole() -> None:
    for shards in {plan_shards(350, 4000).shards, judged(4000).shards, advised(4000)}:
        assert shards is not None
        assert served(shards, 4000, 8) == 1
    assert served(4, 4000, 8) < 0.5


def test_a_floats_rounding_is_no_shard() -> None:
    assert 1 / (1 - 0.8) > 5
    assert shards_for(write_units=1000, partitions=100, headroom=0.8).least_shards == 5
