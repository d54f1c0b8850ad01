"""Planned shards: how many, with which probability, at what cost, and whether it is worth it."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.errors import ConfigurationError
from shardkit.partitions import IndexWrites, ShardPlan, plan_shards, probability_within


def warned(plan: ShardPlan) -> str:
    return "\n".join(one.text for one in plan.warnings)


# -- how many ----------------------------------------------------------------------------------------------------------


def test_one_partition_is_enough() -> None:
    plan = plan_shards(350, 800)
    assert (plan.shards, plan.least_shards, plan.probability, plan.alternatives) == (1, 1, 1.0, ())
    assert (plan.headroom, plan.asked_probability) == (0.2, 0.99)
    assert plan.warnings == ()
    assert str(plan).startswith("No sharding: 1 shard\n")


def test_beyond_the_headroom_it_is_not() -> None:
    assert (plan_shards(350, 801).shards or 0) > 1
    assert plan_shards(350, 801, headroom=0).shards == 1


def test_the_least_number_that_reaches_the_probability() -> None:
    plan = plan_shards(350, 4000, partitions=16, headroom=0.2, probability=0.99)
    assert (plan.shards, plan.least_shards, plan.table.most) == (45, 5, 9)
    assert plan.probability == probability_within(45, 16, 9) >= 0.99
    for shards in range(1, 45):
        assert probability_within(shards, 16, shards * 800 // 4000) < 0.99, shards


@pytest.mark.parametrize(
    ("writes", "entry_size", "share", "partitions", "index_partitions", "probability"),
    [
        (1500, 100, 1, 4, 6, 0.8),
        (1500, 3000, 1, 40, 9, 0.95),
        (2500, 1500, 1, 9, 30, 0.9),
        (4000, 2000, 1, 64, 24, 0.6),
        (4000, 100, 0.5, 200, 4, 0.99),
        (4000, 100, 0.5, 200, 7, 0.95),
    ],
)
def test_no_smaller_number_serves_the_table_and_its_index(
    writes: int, entry_size: int, share: float, partitions: int, index_partitions: int, probability: float
) -> None:
    index = IndexWrites("ByTotal", entry_size, share=share, partitions=index_partitions)
    plan = plan_shards(350, writes, partitions=partitions, indexes=[index], probability=probability)

    def reached(shards: int) -> bool:
        index_units = writes * index.write_units(len(f".{shards}") if shards > 1 else 0)
        return all(
            probability_within(shards, has, int(shards * 800 // units)) >= probability
            for units, has in ((writes, partitions), (index_units, index_partitions))
        )

    assert plan.shards == next(shards for shards in range(1, 1000) if reached(shards))


def test_the_probability_is_the_exact_one_not_its_bound() -> None:
    # Five shards on five partitions: 3.8%, which the bound takes for 22%.
    assert plan_shards(350, 4000, partitions=5, probability=0.1).shards is None
    assert plan_shards(350, 4000, partitions=5, probability=0.03).shards == 5


def test_the_hottest_partition_of_a_simulation_stays_under_its_limit() -> None:
    plan = plan_shards(350, 3000, partitions=9, probability=0.9)
    rounds, draw = 2000, random.Random(4)
    assert plan.shards is not None
    assert plan.least_shards is not None
    each = plan.table.write_units / plan.shards
    under = sum(
        max(Counter(draw.choices(range(9), k=plan.shards)).values()) * each <= 800 + 1e-9 for _ in range(rounds)
    )
    assert under / rounds == pytest.approx(plan.probability, abs=0.03)
    # With as many shards as the average asks for it hardly ever does.
    few = plan.least_shards
    under = sum(max(Counter(draw.choices(range(9), k=few)).values()) * 3000 / few <= 800 for _ in range(rounds))
    assert under / rounds < 0.5


def test_more_partitions_take_fewer_shards() -> None:
    plan = plan_shards(350, 4000)
    assert plan.table.partitions == 8  # as many as twice the load needs
    found = [(other.partitions, other.write_units, other.shards) for other in plan.alternatives]
    assert (plan.shards, found) == (190, [(16, 16_000, 45), (32, 32_000, 20), (64, 64_000, 15)])


@pytest.mark.parametrize(
    ("writes", "partitions", "better"),
    [
        (2500, 4, (8, 32)),
        (4000, None, (16, 45)),
        (3000, 4, (8, 60)),  # then 16: 23 and 32: 15; two doublings together are no reason
        (4000, 4, (16, 45)),  # no number is enough on 4
        (4000, 16, None),
        (800, 4, None),
    ],
)
def test_the_text_leads_with_more_partitions_where_they_save_most_shards(
    writes: int, partitions: int | None, better: tuple[int, int] | None
) -> None:
    plan = plan_shards(306, writes, partitions=partitions)
    assert (plan.better and (plan.better.partitions, plan.better.shards)) == better
    if better is None:
        assert plan.to_dict()["better"] is None
    else:
        assert plan.to_dict()["better"]["shards"] == better[1]
        assert str(plan).startswith(
            f"{better[1]} shards, with {better[0]} partitions\n"
            f'  write: CalculatedSuffix("<sort key>", shards={{"<key>": {better[1]}}})\n'
        )


def test_a_third_number_says_what_it_is() -> None:
    """It might be meant as the partitions, and would be taken for reads."""
    with pytest.raises(TypeError, match="positional"):
        plan_shards(350, 4000, 16)  # type: ignore[call-arg]


def test_reads_ask_for_shards_too() -> None:
    plan = plan_shards(350, 0, reads_per_second=12_000, partitions=20)
    assert (plan.table.read_units, plan.least_shards) == (6000, 3)
    assert plan_shards(350, 0, reads_per_second=12_000, consistent=True, partitions=20).least_shards == 5
    assert plan_shards(350, 0, reads_per_second=12_000).table.partitions == 4  # 2 × 6,000 / 3,000


def test_where_the_partitions_are_too_few_it_says_so() -> None:
    plan = plan_shards(350, 4000, partitions=5)
    assert (plan.shards, plan.least_shards, plan.empty_query, plan.query) == (None, 5, None, None)
    assert plan.probability == pytest.approx(5 * 4 * 3 * 2 / 5**5)
    assert plan.reason == (
        "on 5 partitions, one gets more than 80% of what a partition serves (20% is left free), with a probability "
        "above 1%, for any number of shards up to 10,000; more partitions are needed"
    )
    assert plan.reason in warned(plan)
    assert plan.alternatives[0].shards == 100


def test_where_a_doubled_table_is_too_small_as_well() -> None:
    plan = plan_shards(350, 8000, partitions=2)
    assert plan.alternatives[0].shards is None
    assert "or with 4 partitions: no number of shards is enough\n" in str(plan)


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_200_empty_shards_cost_100_read_units() -> None:
    plan = plan_shards(350, 4000, items_per_query=1000)
    assert plan.shards is not None
    assert plan.empty_query is not None
    assert plan.empty_query.requests == plan.shards
    assert plan.empty_query.read_units == 0.5 * plan.shards
    assert (plan.empty_query.plain_requests, plan.empty_query.plain_read_units) == (1, 0.5)
    assert plan.query is not None
    # 1,000 items of 354 bytes, 6 or so on each of 190 shards: a block of 4 KB each.
    assert (plan.query.read_units, plan.query.plain_read_units) == (95, 43)


def test_pages_of_1_mb_are_requests() -> None:
    plan = plan_shards(1000, 500, items_per_query=10_000)
    assert plan.query is not None
    assert (plan.query.requests, plan.query.read_units) == (10, 1221)


def test_strongly_consistent_reads_cost_twice() -> None:
    query = plan_shards(350, 4000, consistent=True).empty_query
    assert query is not None
    assert query.read_units == 190


def test_a_suffix_may_cost_a_write_unit() -> None:
    plan = plan_shards(1024, 600, partitions=8)
    assert plan.shards == 1
    plan = plan_shards(1024, 900, partitions=32)
    assert (plan.stored_size, plan.item_write_units) == (1024 + len(f".{plan.shards}"), 2)
    assert "2 write units instead of 1" in warned(plan)
    assert "instead of" not in warned(plan_shards(1000, 900, partitions=32))
    assert "instead of" not in warned(plan_shards(1024, 0, reads_per_second=12_000, partitions=32))


# -- indexes -----------------------------------------------------------------------------------------------------------


def test_an_index_with_the_tables_partition_key_is_sharded_with_it() -> None:
    plan = plan_shards(350, 2000, partitions=64, indexes=[IndexWrites("ByTotal", 2000)])
    table, index = plan.fits
    assert (index.index, index.write_units, index.partitions) == ("ByTotal", 4000, 8)
    assert plan.probability == index.probability < table.probability
    assert plan.least_shards == 5
    without = plan_shards(350, 2000, partitions=64)
    assert (plan.shards or 0) > (without.shards or 0) > 1
    wide = plan_shards(350, 2000, partitions=64, indexes=[IndexWrites("ByTotal", 2000, partitions=64)])
    assert wide.fits[1].partitions == 64
    assert wide.shards is not None
    assert plan.shards is not None
    assert wide.shards < plan.shards


def test_a_local_index_takes_the_tables_partitions() -> None:
    plan = plan_shards(350, 500, indexes=[IndexWrites("ByTotal", 100, local=True)])
    assert (plan.item_write_units, plan.table.write_units, len(plan.fits)) == (2, 1000, 1)
    assert (plan.shards or 0) > 1


def test_an_index_with_a_hot_key_of_its_own_throttles_the_table() -> None:
    hot = IndexWrites("ByStatus", 100, hottest_share=0.5)
    plan = plan_shards(350, 4000, indexes=[hot])
    assert "index ByStatus has its own hot key, with 2,000 write units a second" in warned(plan)
    assert len(plan.fits) == 1
    assert warned(plan_shards(350, 1600, indexes=[hot])) == ""


# -- whether it is worth it --------------------------------------------------------------------------------------------


def test_fan_out_reads_that_cost_more_than_the_writes_bring() -> None:
    few = plan_shards(350, 1200, queries_per_second=10, partitions=16)
    assert (few.shards or 0) > 1
    assert "costs more than it brings" not in warned(few)
    many = plan_shards(350, 1200, queries_per_second=2000, partitions=16)
    assert "sharding costs more than it brings: queries take" in warned(many)
    (said,) = [one for one in many.warnings if "brings" in one.text]
    assert said.kind == "model"
    # One partition serves all the writes: sharding brings them nothing, and any read unit more is too much.
    brings_nothing = warned(plan_shards(350, 100, reads_per_second=12_000, queries_per_second=0.1))
    assert "for 0 write units a second that one partition does not serve" in brings_nothing


def test_reads_that_ask_for_shards_are_better_cached() -> None:
    plan = plan_shards(350, 100, reads_per_second=12_000)
    assert (plan.shards or 0) > 1
    (said,) = [one for one in plan.warnings if "cache" in one.text]
    assert (said.kind, said.page) == ("rule", "Best Practices for Tables, Cache Popular Items")
    for writes in (4000, 900):
        assert "cache" not in warned(plan_shards(350, writes))


def test_partitions_that_are_too_few_for_any_number_of_shards() -> None:
    plan = plan_shards(350, 4000, partitions=1)
    assert (plan.shards, plan.least_shards) == (None, 5)
    assert plan.reason == "with 20% left free, 1 partition serves less than the load; more partitions are needed"
    assert "\n\nNo number of shards serves this load, with 1 partition\n" in str(plan)
    assert "more partitions are needed" in warned(plan)


def test_queries_that_no_number_of_shards_serves() -> None:
    plan = plan_shards(350, 400, queries_per_second=6000)
    assert (plan.shards, plan.least_shards, plan.probability) == (None, None, 0.0)
    assert str(plan).startswith("No number of shards serves this load\n")
    assert "at least 1 shard" not in str(plan)
    assert "at least 1 shard" in str(plan_shards(350, 400))
    assert (
        "every Query reads every shard, so 6,000 queries a second take at least 3,000 read units a second of each"
        in (warned(plan))
    )


def test_a_load_beyond_all_bounds() -> None:
    plan = plan_shards(350, 1e9)
    assert (plan.shards, plan.least_shards) == (None, None)
    assert "even with 10,000 shards, each takes more than 80% of what a partition serves" in warned(plan)


@pytest.mark.parametrize("rate", [1e-310, 5e-324])
def test_next_to_no_load(rate: float) -> None:
    assert plan_shards(350, rate).shards == 1


def test_rules_have_pages_and_models_none() -> None:
    plan = plan_shards(1024, 4000, queries_per_second=3000, items_per_query=5)
    said = (*plan.reasoning, *plan.warnings)
    assert {one.kind for one in said} == {"rule", "model"}
    assert all((one.kind == "rule") == (one.page is not None) for one in said)


# -- what always holds -------------------------------------------------------------------------------------------------


@pytest.mark.long_search
@settings(max_examples=settings().max_examples // 3)
@given(
    st.integers(1, 5000),
    st.integers(0, 6000),
    st.integers(0, 6000),
    st.sampled_from([0, 5]),
    st.integers(1, 40),
    st.sampled_from([0.0, 0.2, 0.5]),
)
def test_a_plan_that_reaches_its_probability_keeps_every_average_under_the_limit(
    item_size: int, writes: int, reads: int, queries: int, partitions: int, headroom: float
) -> None:
    plan = plan_shards(
        item_size,
        writes,
        reads_per_second=reads,
        queries_per_second=queries,
        partitions=partitions,
        headroom=headroom,
        probability=0.9,
    )
    if plan.shards is not None:
        assert plan.least_shards is not None
        assert plan.shards >= plan.least_shards
        assert plan.probability >= 0.9
        assert plan.table.write_units / min(plan.shards, partitions) <= 1000 * (1 - headroom) + 1e-6
        assert plan.table.read_units / min(plan.shards, partitions) <= 3000 * (1 - headroom) + 1e-6
    else:
        assert plan.warnings
    assert json.loads(json.dumps(plan.to_dict()))["shards"] == plan.shards
    assert str(plan)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"item_size": 0}, "item_size: must be an integer from 1 to 409,600 (bytes), got 0"),
        ({"writes_per_second": -1}, "writes_per_second: must be a number >= 0 (writes a second), got -1"),
        ({"reads_per_second": "5"}, "reads_per_second: must be a number >= 0 (reads a second), got '5'"),
        ({"queries_per_second": True}, "queries_per_second: must be a number >= 0 (queries a second), got True"),
        ({"items_per_query": -1}, "items_per_query: must be an integer >= 0 (items), got -1"),
        ({"partitions": 0}, "partitions: must be an integer >= 1 (partitions), got 0"),
        ({"headroom": 1}, "headroom: must be a number >= 0 and < 1 (a share of a partition's throughput), got 1"),
        ({"headroom": "0.2"}, "headroom: must be a number >= 0 and < 1 (a share"),
        ({"probability": 1}, "probability: must be above 0 and below 1, got 1"),
        ({"probability": 0}, "probability: must be above 0 and below 1, got 0"),
    ],
)
def test_what_is_no_figure_is_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        plan_shards(**{"item_size": 350, "writes_per_second": 10, **given_})
    assert message in str(raised.value)
