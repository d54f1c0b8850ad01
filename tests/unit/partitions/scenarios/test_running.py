"""Ways of a scenario in virtual time: what is written, throttled and read, and how long it takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.partitions.scenarios.items import ScenarioItems, generated
from shardkit.partitions.scenarios.reading import read_scenario
from shardkit.partitions.scenarios.running import UNPROCESSED, run
from shardkit.partitions.scenarios.way_result import HeatMap, WayResult
from shardkit.partitions.simulator import draws

HOT = "TableWriteKeyRangeThroughputExceeded"
DAY = {"distribution": "weights", "weights": {"2014-07-09": 1}}
MANY = {"distribution": "uniform", "values": 2000}


def items_of(scenario: Any) -> ScenarioItems:
    return generated(scenario.items, scenario.keys, draws("items"))


def simulated(*, table: Any = None, items: Any = None, progress: Any = lambda _share: None, **parts: Any) -> WayResult:
    """Run the only way of a scenario: four partitions of 1,000 write units, no burst."""
    given = {
        "table": {
            "partition_key": "Date",
            "sort_key": "OrderId",
            "write_units": 4000,
            "partitions": 4,
            "burst_seconds": 0,
            **(table or {}),
        },
        "items": {"number": 3000, "size": 500, "keys": MANY, **(items or {})},
        **parts,
    }
    scenario = read_scenario(given, "s.toml")
    return run(scenario, scenario.ways[0], items_of(scenario), progress=progress)


def puts(per_second: float, **others: Any) -> dict[str, Any]:
    return {"with": "put_item", "per_second": per_second, **others}


# -- a steady rate -----------------------------------------------------------------------------------------------------


def test_a_days_key_is_throttled_and_its_shards_are_not() -> None:
    day = {"number": 3000, "keys": DAY}
    unsharded = simulated(items=day, load=puts(2000, attempts=1))
    # A partition serves 1,000 a second, and begins with a second's worth.
    assert unsharded.written == pytest.approx(1000 * (1.5 + 1), rel=0.001)
    assert unsharded.throttled == {HOT: 3000 - unsharded.written}
    assert unsharded.seconds == pytest.approx(1.5, abs=0.01)
    assert not unsharded.complete
    assert unsharded.busiest[1] == 1000
    assert (unsharded.hottest_key, unsharded.hottest_key_share) == ("2014-07-09", 1.0)

    sharded = simulated(items=day, load=puts(2000, attempts=1), sharding={"shards": 50, "by": "OrderId"})
    assert (sharded.written, sharded.throttled, sharded.complete) == (3000, {}, True)
    assert sharded.units_a_second == pytest.approx(2000, rel=0.001)
    assert sharded.share == pytest.approx(2000 / 4000, rel=0.001)
    assert sharded.ceiling is None
    assert sharded.hottest_key.startswith("2014-07-09.")


def test_retries_write_more_of_it() -> None:
    day = {"number": 2500, "keys": DAY}
    once, often = (simulated(items=day, load=puts(2000, attempts=attempts)) for attempts in (1, 4))
    assert once.requests == 2500
    assert often.requests > 2500
    assert often.written > once.written


def test_the_tables_throughput_is_a_reason_too() -> None:
    outcome = simulated(table={"write_units": 400}, items={"number": 1800}, load=puts(600, attempts=1))
    assert outcome.throttled == {"TableWriteProvisionedThroughputExceeded": 1800 - outcome.written}
    assert outcome.written == pytest.approx(400 * (3 + 1), rel=0.01)
    assert (outcome.units_a_second, outcome.share) == (400, 1)
    assert outcome.counted_seconds == pytest.approx(outcome.seconds + 1, abs=0.1)  # what the table began with


def test_without_adaptive_capacity_a_partition_has_its_share() -> None:
    day = {"number": 1800, "keys": DAY}
    off = simulated(table={"write_units": 1200, "adaptive": False}, items=day, load=puts(600, attempts=1))
    assert off.written == pytest.approx(300 * (3 + 1), rel=0.01)
    at_once = simulated(table={"write_units": 1200}, items=day, load=puts(600, attempts=1))
    assert at_once.written == 1800


def test_burst_credit_is_what_was_not_used_before() -> None:
    # Key after key: the partitions of later keys have nothing to do at first. Each has 10 units a second.
    keys = {"distribution": "uniform", "values": 4}
    load = puts(60, attempts=1, order="sorted")
    written = [
        simulated(
            table={"write_units": 40, "adaptive": False, "burst_seconds": seconds},
            items={"number": 1200, "keys": keys},
            load=load,
        ).written
        for seconds in (0, 5, 300)
    ]
    assert written == sorted(set(written))


def test_puts_go_round_the_items_for_as_long_as_they_are_to() -> None:
    outcome = simulated(items={"number": 100}, load=puts(50, seconds=10), reads=READS)
    assert (outcome.items, outcome.written) == (500, 500)
    assert outcome.reads == pytest.approx(100, abs=1)  # as long as the load


@pytest.mark.parametrize(("seconds", "calls"), [(0.01, 1), (0.1, 1), (0.11, 2), (2, 20)])
def test_a_call_is_begun_at_each_time_before_the_end(seconds: float, calls: int) -> None:
    outcome = simulated(table={"read_units": 1000}, load=puts(10, seconds=seconds), reads={**READS, "seconds": seconds})
    assert (outcome.items, outcome.written, outcome.reads) == (calls, calls, calls)


def test_a_hot_index_throttles_the_tables_writes() -> None:
    index = {"name": "ByStatus", "partition_key": "Status", "write_units": 4000, "partitions": 4, "burst_seconds": 0}
    items = {"number": 3000, "attributes": {"Status": {"distribution": "weights", "weights": {"open": 1}}}}
    outcome = simulated(table={"indexes": [index]}, items=items, load=puts(2000, attempts=1))
    assert outcome.throttled == {"IndexWriteKeyRangeThroughputExceeded": 3000 - outcome.written}
    assert outcome.written == pytest.approx(1000 * (1.5 + 1), rel=0.001)
    assert {name: sum(sum(one.taken["write"]) for one in heat.partitions) for name, heat in outcome.heat.items()} == {
        None: outcome.written,
        "ByStatus": outcome.written,
    }
    loaded = simulated(table={"indexes": [index]}, items={**items, "number": 1000}, load={"with": "bulk_load"})
    assert loaded.ceiling == pytest.approx(1 / 4)


# -- tools -------------------------------------------------------------------------------------------------------------


def test_the_ceiling_is_what_the_busiest_partition_leaves() -> None:
    outcome = simulated(items={"number": 1000}, load=puts(1000))
    by_partition = [sum(one.taken["write"]) for one in outcome.heat[None].by_range]
    loaded = simulated(items={"number": 1000}, load={"with": "bulk_load"})
    assert loaded.ceiling == pytest.approx(1000 / (4 * max(by_partition)))
    small = simulated(items={"number": 1000}, load={"with": "bulk_load"}, table={"write_units": 400})
    assert small.ceiling == pytest.approx(1.0)  # each partition could serve what all have
    alone = simulated(items={"number": 1000}, load={"with": "bulk_load"}, table={"write_units": 400, "adaptive": False})
    assert alone.ceiling == pytest.approx(loaded.ceiling)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 800),
    st.integers(1, 8),
    st.integers(100, 6000),
    st.sampled_from([0, 1, 300]),
    st.sampled_from([{"adaptive": True}, {"adaptive": False}, {"on_demand": True}, {"split_for_heat": 0.5}]),
    st.sampled_from([{"with": "bulk_load"}, {"with": "batch_writer", "attempts": 1}, puts(3000)]),
    st.sampled_from([MANY, DAY, {"distribution": "zipf", "values": 20}]),
)
def test_no_share_is_above_its_ceiling_and_no_partition_above_what_it_serves(
    number: int, partitions: int, units: int, burst: int, table: dict[str, Any], load: dict[str, Any], keys: Any
) -> None:
    table = {**table, "write_units": units, "partitions": partitions, "burst_seconds": burst}
    outcome = simulated(table=table, items={"number": number, "keys": keys, "size": [100, 3000]}, load=load)
    assert (outcome.ceiling is None) == (load["with"] == "put_item")
    assert outcome.share <= (1 if outcome.ceiling is None else outcome.ceiling) * (1 + 1e-9)
    assert (outcome.ceiling or 0) <= 1 + 1e-9
    assert outcome.busiest[1] <= 1000 * (1 + 1e-9)
    # Nothing is served sooner than that: all begin with one second's units, and nobody gets more in advance.
    assert outcome.seconds >= outcome.least_seconds - 1 - 1e-6


@pytest.mark.parametrize("tool", ["bulk_load", "batch_writer"])
@pytest.mark.parametrize("order", ["as given", "sorted", "random"])
def test_everything_is_written_in_no_less_time_than_there_must_be(tool: str, order: str) -> None:
    outcome = simulated(
        table={"write_units": 2000, "partitions": 2},
        items={"number": 3000},
        load={"with": tool, "order": order, "workers": 10},
    )
    assert (outcome.written, outcome.complete, outcome.stopped) == (3000, True, None)
    assert outcome.served("write") == 3000
    assert outcome.ceiling is not None
    # A second's worth is there at the beginning.
    assert outcome.seconds >= 3000 / 2000 / outcome.ceiling - 1
    assert sum(outcome.throttled.values()) <= outcome.requests
    assert set(outcome.throttled) <= {HOT, UNPROCESSED, "TableWriteProvisionedThroughputExceeded"}
    assert outcome.throttled[UNPROCESSED] > 0


def test_one_batch_writer_waits_for_each_answer() -> None:
    outcome = simulated(load={"with": "batch_writer"}, latency_seconds=0.1)
    assert outcome.requests == 120
    assert outcome.seconds == pytest.approx(11.9)  # the last one is sent then
    threads = simulated(load={"with": "batch_writer", "workers": 4}, latency_seconds=0.1)
    assert threads.seconds == pytest.approx(2.9)


def test_a_batch_writer_that_stays_throttled_ends() -> None:
    outcome = simulated(table={"write_units": 5}, items={"number": 200}, load={"with": "batch_writer", "attempts": 1})
    assert outcome.stopped is not None
    assert "ProvisionedThroughputExceededException" in outcome.stopped
    assert outcome.written < 200
    assert not outcome.complete


def test_the_options_of_a_bulk_load_are_the_loads() -> None:
    held = simulated(load={"with": "bulk_load", "write_units": 500})
    assert held.seconds == pytest.approx(6, rel=0.2)
    share = simulated(load={"with": "bulk_load", "write_units": "12.5%"})
    assert share.seconds == pytest.approx(6, rel=0.2)
    assert simulated(load={"with": "bulk_load", "workers": 1}, latency_seconds=1.0).seconds >= 119


def at_work(outcome: WayResult) -> int:
    """How many partitions served anything in the first second."""
    return sum(any(one.taken["write"][:1]) for one in outcome.heat[None].partitions)


def test_cursors_mix_what_is_sorted() -> None:
    table = {"write_units": 400, "adaptive": False}
    each = {"number": 4000, "keys": {"distribution": "each", "values": 10, "items": 400}}
    load = {"with": "bulk_load", "window": 200}
    plain, mixed = (simulated(table=table, items=each, load={**load, "cursors": cursors}) for cursors in (1, 10))
    # A window of 200 holds one key of 400 items, and then one partition works at a time.
    assert at_work(plain) == 1
    assert at_work(mixed) > 1


def test_of_items_with_one_key_a_bulk_load_writes_the_last() -> None:
    keys = {"number": 500, "keys": {"distribution": "uniform", "values": 20}}
    given = {"partition_key": "Date", "write_units": 4000}
    scenario = read_scenario({"table": given, "items": keys, "load": {"with": "bulk_load"}}, "s.toml")
    outcome = run(scenario, scenario.ways[0], items_of(scenario))
    assert (outcome.written, outcome.items, outcome.complete) == (20, 20, True)


# -- reads -------------------------------------------------------------------------------------------------------------

READS = {"with": "get_item", "per_second": 10}


def test_without_reads_none_are_counted() -> None:
    outcome = simulated(items={"number": 10}, load={"with": "batch_writer"})
    assert (outcome.reads, outcome.failed_reads) == (0, 0)


def test_what_takes_no_time_is_counted_at_the_rate_of_its_partition() -> None:
    outcome = simulated(items={"number": 1}, load={"with": "batch_writer"}, latency_seconds=0)
    assert (outcome.seconds, outcome.written) == (0, 1)
    assert outcome.busiest[1] == 1000


def test_single_reads() -> None:
    outcome = simulated(table={"read_units": 3000}, reads={**READS, "seconds": 5}, sharding={"shards": 7})
    assert (outcome.reads, outcome.requests, outcome.failed_reads) == (50, 50, 0)
    assert outcome.served("read") == 25.0  # of an item that is there, 500 bytes, eventually consistent
    assert (outcome.kind, outcome.provisioned, outcome.complete) == ("read", 3000, True)
    strong = simulated(table={"read_units": 3000}, reads={**READS, "seconds": 5, "consistent": True})
    assert strong.served("read") == 50.0


def test_popular_items_are_read_from_a_cache() -> None:
    items = {"number": 1000, "size": 500, "keys": {"distribution": "each", "values": 1000, "items": 1}}
    reads = {"with": "get_item", "per_second": 500, "seconds": 5, "zipf": 1.2}
    plain = simulated(table={"read_units": 3000}, items=items, reads=reads)
    assert (plain.requests, plain.cache_hits, plain.way.name) == (2500, 0, "get_item")
    cache = {"max_bytes": 50 * 900, "ttl": 1000}
    cached = simulated(table={"read_units": 3000}, items=items, reads={**reads, "cache": cache})
    assert cached.requests == 2500 - cached.cache_hits
    assert cached.served("read") == plain.served("read") - cached.saved_read_units
    assert 0.6 < cached.cache_hits / cached.reads < 0.8  # the 50 most popular of 1,000 get 75% of the reads
    assert cached.busiest[1] < plain.busiest[1] / 2
    assert cached.way.name == "get_item with a cache"
    short = simulated(table={"read_units": 3000}, items=items, reads={**reads, "cache": {**cache, "ttl": 0.1}})
    assert short.cache_hits < cached.cache_hits / 1.2


def test_reads_of_an_item_that_is_being_read_are_no_requests() -> None:
    items = {"number": 1, "keys": {"distribution": "each", "values": 1, "items": 1}}
    reads = {"with": "get_item", "per_second": 1000, "seconds": 1, "cache": {"max_bytes": 10_000}}
    outcome = simulated(table={"read_units": 3000}, items=items, reads=reads, latency_seconds=0.5)
    assert (outcome.requests, outcome.cache_hits) == (1, 999)


def test_queries_are_merged_over_the_shards() -> None:
    day = {"number": 100, "keys": DAY}
    query = {"with": "query", "per_second": 2, "seconds": 5}
    plain = simulated(table={"read_units": 3000}, items=day, reads=query)
    assert (plain.reads, plain.requests) == (10, 10)
    assert plain.served("read") == 10 * 6.5  # 100 items of 500 bytes are 13 blocks of 4 KB
    sharded = simulated(table={"read_units": 3000}, items=day, reads=query, sharding={"shards": 5, "by": "OrderId"})
    assert (sharded.reads, sharded.failed_reads) == (10, 0)
    assert sharded.requests >= 50
    assert sharded.served("read") >= plain.served("read")
    first = simulated(table={"read_units": 3000}, items=day, reads={**query, "limit": 5})
    assert (first.requests, first.served("read")) == (10, 10 * 0.5)


def test_reads_that_stay_throttled_fail() -> None:
    day = {"number": 10, "keys": DAY}
    reads = {"with": "get_item", "per_second": 100, "seconds": 5, "consistent": True, "attempts": 1}
    outcome = simulated(table={"read_units": 10}, items=day, reads=reads)
    assert outcome.failed_reads > 300
    assert outcome.throttled == {"TableReadProvisionedThroughputExceeded": outcome.failed_reads}
    assert not outcome.complete


def test_reads_while_a_load_runs_end_with_it() -> None:
    outcome = simulated(table={"read_units": 1000}, load=puts(500), reads=READS)
    assert outcome.written == 3000
    assert outcome.reads == pytest.approx(60, abs=2)
    assert outcome.served("read") > 0


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_the_same_scenario_gives_the_same() -> None:
    def once(**options: Any) -> dict[str, Any]:
        return simulated(
            items={"number": 1200}, load={"with": "bulk_load"}, sharding={"shards": 3}, **options
        ).to_dict()

    assert once() == once()
    other = once(seed=2)
    assert other != once()


def test_progress_is_told_from_nothing_to_all() -> None:
    told: list[float] = []
    simulated(items={"number": 1500}, load=puts(500), progress=told.append)
    assert told == sorted(told)
    assert 0 <= told[0] < 0.2
    assert 0.8 < told[-1] <= 1
    told.clear()
    simulated(table={"read_units": 3000}, reads={**READS, "per_second": 100, "seconds": 20}, progress=told.append)
    assert told == sorted(told)
    assert 0.8 < told[-1] <= 1


def test_a_heat_map_is_of_all_that_was_taken() -> None:
    outcome = simulated(load=puts(100))
    whole = HeatMap.of(outcome.heat[None], "write", 1000)
    assert whole.seconds == 1.0
    assert sum(map(sum, whole.rows)) == 3000
    coarse = HeatMap.of(outcome.heat[None], "write", 7)
    assert len({len(row) for row in coarse.rows}) == 1
    assert len(coarse.rows[0]) <= 7
    assert sum(map(sum, coarse.rows)) * coarse.seconds == pytest.approx(3000)
    assert whole.hottest >= coarse.hottest
    two = coarse.in_rows(2)
    assert two.rows == tuple(tuple(map(max, *coarse.rows[at : at + 2])) for at in (0, 2))
    assert coarse.in_rows(4) == coarse


def test_items_are_counted_by_their_keys() -> None:
    outcome = simulated(items={"number": 2500, "keys": {"distribution": "zipf", "values": 100}}, load=puts(500))
    harmonic = sum(1 / rank for rank in range(1, 101))
    assert outcome.hottest_key == "key-001"
    assert outcome.hottest_key_share == pytest.approx(1 / harmonic, rel=0.1)
    assert Counter(outcome.throttled) == Counter()
