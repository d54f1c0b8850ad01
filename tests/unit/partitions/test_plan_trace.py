"""Replays of traces: near the model call by call, in the words of the rest, and refused where rows say too little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from shardkit import ConfigurationError
from shardkit.analysis.trace_files import TraceRow
from shardkit.capacity.thinning import RowKey, Thinning
from shardkit.core.hashing import stable_hash
from shardkit.partitions import Partitions, plan_shards, plan_trace
from shardkit.partitions.model import HASHES
from shardkit.partitions.replay import Replay, Traffic, place_of, refused, waits
from shardkit.timeseries import Prices
from tests.support.profiles import LONG

BEGAN = 1_404_900_000


def writes(seconds: int, **keys: float) -> Iterator[TraceRow]:
    """Make exact rows of keys that take so many write units in each second, each of another item."""
    for second in range(BEGAN, BEGAN + seconds):
        for key, units in keys.items():
            yield TraceRow(second, "PutItem", "Orders", None, key, None, int(units), 0.0, units, item=second)
        whole = sum(keys.values())
        yield TraceRow(second, "PutItem", "Orders", None, None, None, int(whole), 0.0, whole)


def queries(seconds: int, key: str, count: int, units: float, shards: int = 1) -> Iterator[TraceRow]:
    for second in range(BEGAN, BEGAN + seconds):
        for shard in range(1, shards + 1):
            yield TraceRow(
                second, "Query", "Orders", None, key, shard if shards > 1 else None, count, units / shards, 0.0
            )
        yield TraceRow(second, "Query", "Orders", None, None, None, count * shards, units, 0.0)


def planned(rows: Any, **options: Any) -> Any:
    return plan_trace(rows, **{"partitions": 16, "shards": (1, 2, 4, 8, 16), "times": (1, 1.25), **options})


def calls_of(seed: int, seconds: int) -> list[list[tuple[str, int]]]:
    """Draw calls by second: a hot key that varies, a warm one, one that is a single item, and many others."""
    random = Random(seed)
    found = []
    for _ in range(seconds):
        hot = ["hot"] * int(random.uniform(900, 1700)) + ["warm"] * int(random.uniform(200, 400)) + ["item"] * 300
        keys = hot + [f"k{int(random.paretovariate(0.9)) % 5000}" for _ in range(1000)]
        random.shuffle(keys)
        found.append([(key, 7 if key == "item" else random.getrandbits(31)) for key in keys])
    return found


def kept(calls: list[list[tuple[str, int]]], rows_per_second: float) -> Iterator[TraceRow]:
    thinning = Thinning(rows_per_second, Random(1).random)
    for second, ones in enumerate(calls):
        counts, items = Counter(key for key, _ in ones), dict(ones)
        rows: dict[RowKey, list[float]] = {("PutItem", "T", None, key, None): [n, 0, n, 0] for key, n in counts.items()}
        for (operation, table, index, key, _), (n, read, units, _), weight in thinning.keep(second, rows):
            item = items.get(str(key))
            yield TraceRow(second, operation, table, index, key, None, int(n), read, units, 0, item, weight)


def by_call(calls: list[list[tuple[str, int]]], shards: int, salt: int, times: float) -> float:
    """Return the part that partitions refuse, one call after the other, by the model of the simulator."""
    partitions = Partitions(read_units=None, write_units=None, count=12, on_demand=True, now=0.0)
    lost = total = 0
    for second, ones in enumerate(calls):
        for place, (key, item) in enumerate(ones):
            at = place_of(stable_hash(key), item % shards, salt, 12)
            now = second + place / len(ones)
            lost += partitions.serve(HASHES * at // 12 + 1, "write", times, now) is not None
            total += 1
    return lost / total


@pytest.mark.parametrize("rows_per_second", [100_000.0, 60.0])
def test_shares_are_within_half_a_point_of_the_model_call_by_call(rows_per_second: float) -> None:
    calls = calls_of(3, 25)
    traffic = Traffic([*kept(calls, rows_per_second)], "write")
    for shards, salt, times in ((1, 0, 1.0), (8, 2, 1.5)):
        replay = Replay(traffic, 12, (times,), shards, None)
        share = sum(sum(refused(cells, 1000 / times)) for cells in replay.asked(salt)) / sum(replay.total)
        assert share == pytest.approx(by_call(calls, shards, salt, times), abs=0.005)


def test_it_names_the_hot_key_alone() -> None:
    plan = planned(writes(60, t0000=1500.0, **{f"k{n}": 5.0 for n in range(40)}))
    assert plan.decisions[0] is not None
    assert plan.line == f'shards={{"t0000": {plan.decisions[1]}}}'  # with 20% left free
    assert plan.sentence == f"{plan.decisions[1]} shards serve up to 1.25x the traffic"
    assert plan.line in str(plan)
    assert plan.to_dict()["line"] == plan.line
    assert [way.fine[0] for way in plan.ways][::4] == [0, 50]
    assert plan.ways[0].throttled[0] == pytest.approx(500 / 1700, abs=0.02)
    assert plan.ways[0].longest_wait == pytest.approx(30.0, abs=2.0)  # 500 units a second are left, for a minute


def test_a_load_that_is_even_needs_no_shards_and_gets_no_line() -> None:
    plan = planned(writes(60, **{f"k{n}": 5.0 for n in range(40)}))
    assert (plan.decisions, plan.line) == ((1, 1), None)


def test_many_hot_keys_get_shards_for_all() -> None:
    plan = planned(writes(40, **{f"k{n}": 400.0 for n in range(16)}), partitions=32)
    assert plan.line == f"shards={plan.decisions[1]}"


def test_it_is_within_a_factor_of_two_of_the_planner() -> None:
    for load in (1500, 4000):
        plan = planned(writes(60, hot=float(load)), shards=(1, 2, 4, 8, 11, 16, 23, 32, 45, 64, 90))
        needed = plan_shards(350, load, partitions=16).shards
        assert needed is not None
        assert needed / 2 <= plan.decisions[1] <= needed * 2


def test_one_hot_item_stays_on_its_shard_unless_shards_are_drawn() -> None:
    rows = [row._replace(item=None if row.key is None else 5) for row in writes(60, hot=1500.0)]
    plan = planned(rows)
    assert (plan.decisions, plan.line) == ((None, None), None)
    assert plan.hot_items == {"hot": pytest.approx(1.0, abs=0.02)}
    assert "one item takes 98% of it" in str(plan)
    drawn = planned(rows, at_random=True, shards=[32])
    assert (drawn.hot_items, drawn.decisions[0]) == ({}, 32)


def test_only_the_given_keys_get_shards() -> None:
    rows = [*writes(60, a=1500.0, b=1500.0)]
    assert planned(rows, keys=["a"]).decisions[0] is None
    both = planned(rows, keys=["a", "b"], shards=[32])
    assert both.line == 'shards={"a": 32, "b": 32}'


def test_a_hashed_key_is_named_by_its_hash() -> None:
    rows = writes(60, **{"<hash ab12>": 1500.0, **{f"k{n}": 5.0 for n in range(9)}})
    assert str(planned(rows).line).startswith('shards={"<hash ab12>": ')


def test_queries_take_more_by_each_shard_than_now() -> None:
    rows = [*queries(30, "day", 100, 400.0)]
    plan = planned(rows, prices=Prices(read_unit_hour=0.001))
    assert [way.extra_read_units for way in plan.ways] == [0, 50, 150, 350, 750]
    assert plan.ways[1].dollars == pytest.approx(50 * 0.001 * 730)
    assert "36.50 $ a month" in str(plan)
    # Of a table with four shards, the meter sees four calls a Query.
    now = planned(queries(30, "day", 100, 400.0, shards=4), keys=["day"])
    assert [way.extra_read_units for way in now.ways] == [-150, -100, 0, 200, 600]


def test_a_provisioned_table_has_a_limit_and_a_burst() -> None:
    rows = [*writes(60, **{f"k{n}": 10.0 for n in range(60)})]
    assert planned(rows).ways[0].throttled == (0.0, 0.0)
    assert planned(rows, write_units=550).ways[0].throttled[0] == pytest.approx((60 * 50 - 550) / 36_000, abs=0.001)


def test_partitions_that_are_not_given_are_assumed() -> None:
    plan = planned(writes(20, a=900.0, b=900.0, c=900.0), partitions=None)
    assert plan.partitions == 6
    assert "6 partitions (assumed)" in str(plan)


def test_rows_that_say_too_little_are_refused() -> None:
    exact = [*writes(60, hot=1500.0, warm=500.0)]
    thin = [row._replace(weight=50.0) if row.key == "hot" and row.second % 50 == 0 else row for row in exact]
    plan = planned([row for row in thin if row.key != "hot" or row.weight > 1])
    assert "16.66% of the hottest keys' units exact" in plan.recorded
    assert (plan.decisions, plan.unsure, plan.line) == ((None, None), (1, 1.25), None)
    assert "these rows carry no decision" in plan.sentence
    assert "record more rows" in str(plan)


def test_another_sample_that_could_decide_otherwise_is_no_decision() -> None:
    # Five warm keys on few partitions, known by a row in 20: shares are near 0.1%, and uncertain.
    random = Random(2)
    rows = [*writes(60, **{f"w{n}": 330.0 for n in range(5)})]
    thin = [
        row if row.key is None else row._replace(weight=20.0)
        for row in rows
        if row.key is None or random.random() < 0.05
    ]
    plan = planned(thin, partitions=4, times=(0.8, 0.9, 1.0, 1.1), shards=(1, 2, 4))
    assert plan.unsure
    assert any(low < high for way in plan.ways for low, high in way.interval)


def test_throttled_attempts_count_as_if_all_had_been_wanted() -> None:
    rows = [row._replace(throttled=500) for row in writes(60, hot=1000.0)]
    plan = planned(rows)
    assert ": 60,000 write units, 0 read units, 30,000 throttled attempts" in plan.recorded
    assert plan.ways[0].throttled[0] == pytest.approx(500 / 1500, abs=0.02)
    assert "30,000 throttled attempts, which count as if all had been wanted" in str(plan)


def test_an_index_is_replayed_by_its_own_rows() -> None:
    rows = [row._replace(index_name="by-status") for row in writes(60, open=1500.0)] + [*writes(60, a=1.0)]
    plan = planned(rows, index="by-status")
    assert str(plan).startswith(
        "Orders, index by-status, 2014-07-09 10:00:00 to 2014-07-09 10:01:00 UTC: 90,000 write units"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"shards": []}, "shards"),
        ({"shards": [0]}, "shards"),
        ({"times": [0]}, "times"),
        ({"partitions": 0}, "partitions"),
        ({"write_units": 0}, "write_units"),
        ({"table": "Other"}, "table"),
        ({"index": "none"}, "table"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{named}.*: "):
        planned([*writes(2, a=1.0)], **options)


def test_of_several_tables_one_must_be_named() -> None:
    rows = [*writes(2, a=1.0), *(row._replace(table="Other") for row in writes(2, a=1.0))]
    with pytest.raises(ConfigurationError, match=r"several tables .*Orders, Other"):
        planned(rows)
    assert planned(rows, table="Other").table == "Other"


def test_waits_and_the_tables_limit() -> None:
    assert waits([3000.0, 0.0, 0.0], 1000.0) == (1000.0, 1.0)
    assert refused([3000.0, 500.0, 2600.0], 1000.0) == [1000, 0, 1100]  # a second's units are there at the start
    assert refused([0.0, 200.0, 400.0], 100.0, 2.0) == [0, 0, 200]


def of_fleet(calls: list[list[tuple[str, int]]], processes: int, rows_per_second: float) -> Iterator[TraceRow]:
    """Record the same calls in many processes, each with a trace of its own."""
    random = Random(9)
    parts: list[list[list[tuple[str, int]]]] = [[[] for _ in calls] for _ in range(processes)]
    for second, ones in enumerate(calls):
        for one in ones:
            parts[random.randrange(processes)][second].append(one)
    for part in parts:
        yield from kept(part, rows_per_second)


@pytest.mark.long_search
@pytest.mark.skipif(not LONG, reason="takes 15 seconds: set HYPOTHESIS_PROFILE=search")
def test_decisions_are_those_of_the_whole_trace() -> None:
    """At 30 rows a second of one process, and at the default of 20; at 30 rows of all 20 right or refused."""
    for seed in range(3):
        calls = calls_of(seed, 300)
        whole = planned([*kept(calls, 1e9)], times=(1, 1.5, 2))
        thin, default, few = (
            planned([*rows], times=(1, 1.5, 2))
            for rows in (kept(calls, 30.0), of_fleet(calls, 20, 50.0), of_fleet(calls, 20, 1.5))
        )
        for plan in (thin, default, few):
            for times, right, found in zip(whole.times, whole.decisions, plan.decisions, strict=True):
                assert times in plan.unsure or found == right, (seed, times)
        assert len(thin.unsure) <= 1
        assert len(default.unsure) <= 1
