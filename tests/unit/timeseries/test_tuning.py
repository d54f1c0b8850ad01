"""What the next period's table gets: by the highest second of seven periods, within limits; and how well that does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from math import ceil, exp
from random import Random
from typing import Any

import pytest

from shardkit import CalculatedSuffix, ConfigurationError, RandomSuffix, Strategy, Unsharded
from shardkit.analysis.shards import shards_for
from shardkit.timeseries import Maintenance, Throughput, Tuning
from shardkit.timeseries import plans as module
from shardkit.timeseries.plans import PeriodPlan, Plans
from shardkit.timeseries.settings import Series
from tests.support.planned import NOW, TODAY, TOMORROW, Account, a_process
from tests.support.profiles import LONG
from tests.support.series import CLICKS

FOUR = CalculatedSuffix("Time", shards=4)


def next_plan(
    heat: Mapping[str, float], before: PeriodPlan | None = None, *, strategy: Strategy = FOUR, **options: Any
) -> PeriodPlan:
    """The plan of tomorrow, by the units of days before and the plan of today."""
    hot = options.pop("hot", Throughput())
    series = Series(name="clicks", at="Time", period="day", schema=CLICKS, hot=hot)
    plans = Plans(series, strategy, "Control")
    today = series.current(NOW)
    if before is not None:
        plans._known[today] = before  # noqa: SLF001 - as if it had been read
    tuning = Tuning(heat={table: ("c1", units) for table, units in heat.items()}, **options)
    return tuning.next_plan(plans, series.calendar.at(today.number + 1))


@pytest.mark.parametrize(
    ("units", "shards", "warm"),
    [(0, 1, None), (640, 1, None), (1200, 8, 8_000), (2000, 16, 16_000), (9000, 16, 16_000)],
)
def test_shards_and_throughput_are_chosen_together(units: float, shards: int, warm: int | None) -> None:
    plan = next_plan({TODAY: units})
    assert plan.strategy == replace(FOUR, shards=shards)
    assert plan.throughput == ({} if warm is None else {"warm_write_units": warm})
    assert plan.why == f"key 'c1' of {TODAY} asked for {units:,} write units in its highest second"
    needed = shards_for(write_units=1.25 * units, partitions=(warm or 4000) // 1000).shards
    assert shards == min(needed or 64, 16)


def test_the_highest_of_seven_periods_counts() -> None:
    heat = {f"clicks-2016-04-{day:02}": float(100 * day) for day in range(1, 16)} | {"clicks-2016-04-09": 2000.0}
    assert "clicks-2016-04-09 asked for 2,000" in next_plan(heat).why
    assert (
        "clicks-2016-04-15 asked for 1,500"
        in next_plan(heat | {"clicks-2016-04-08": 9000.0} | {"clicks-2016-04-09": 1.0}).why
    )


def test_at_most_four_times_in_a_period() -> None:
    before = PeriodPlan(replace(FOUR, shards=20), {"warm_write_units": 8000})
    more, less = next_plan({TODAY: 30_000.0}, before, max_shards=500), next_plan({TODAY: 1.0}, before)
    assert (more.strategy.shards, more.throughput) == (80, {"warm_write_units": 32_000})
    assert (less.strategy.shards, less.throughput) == (5, {})
    assert next_plan({TODAY: 30_000.0}, before, max_shards=64).strategy.shards == 64
    assert next_plan({TODAY: 30_000.0}, before, max_shards=3).strategy.shards == 3
    # A table's default quota is not exceeded, nor a maximum that is given.
    large = PeriodPlan(replace(FOUR, shards=64), {"warm_write_units": 30_000})
    assert next_plan({TODAY: 20_000.0}, large).throughput == {"warm_write_units": 40_000}
    assert next_plan({TODAY: 3000.0}, hot=Throughput(max_write_units=6000)).throughput == {"warm_write_units": 6000}


def test_a_provisioned_table_has_units_for_the_peak_and_is_warm_for_more() -> None:
    hot = Throughput(read_units=10, write_units=1000)
    plan = next_plan({TODAY: 1600.0}, PeriodPlan(replace(FOUR, shards=64), {"write_units": 5000}), hot=hot)
    assert plan.throughput == {"write_units": 2500, "warm_write_units": 20_000}
    raised = plan.raised(hot)
    assert (raised.read_units, raised.write_units, raised.warm_write_units) == (10, 2500, 20_000)
    # What hot has is never less; an on-demand table has no provisioned units.
    assert plan.raised(replace(hot, write_units=9000, warm_write_units=30_000)).warm_write_units == 30_000
    assert plan.raised(Throughput()) == Throughput(warm_write_units=20_000)
    assert next_plan({TODAY: 1200.0}, hot=replace(hot, write_units=40_000)).throughput == {}


def test_without_heat_the_plan_stays() -> None:
    before = PeriodPlan(replace(FOUR, shards=20), {"warm_write_units": 8000}, "x")
    for heat in ({}, {"clicks-2016-04-08": 9000.0}, {"clicks-2016-04-16": 9000.0}, {"Orders": 9000.0}):
        plan = next_plan(heat, before)
        assert (plan.strategy, plan.throughput) == (before.strategy, before.throughput)
        assert plan.why == "as the period before, because no heat is known of the last 7"


def test_another_strategy_in_the_code_is_taken_from_the_next_period_on() -> None:
    plan = next_plan({}, PeriodPlan(RandomSuffix(9)), strategy=CalculatedSuffix("Time", shards=2))
    assert plan.strategy == CalculatedSuffix("Time", shards=9)
    assert next_plan({}, PeriodPlan(Unsharded())).strategy.shards == 1


@pytest.mark.parametrize("strategy", [Unsharded(), RandomSuffix({"c1": 8})])
def test_strategies_that_cannot_be_tuned(strategy: Strategy) -> None:
    with pytest.raises(ConfigurationError, match=r"^strategy: must be a CalculatedSuffix or a RandomSuffix whose"):
        next_plan({}, strategy=strategy)


def test_maintenance_tunes_what_it_creates() -> None:
    account, process = Account(), a_process()
    shown: list[Maintenance] = []
    heat = {TODAY: ("c1", 2500.0)}
    account.run(process.maintained(NOW, lambda _: None, None))
    del account.tables[TOMORROW], account.plans[TOMORROW[7:]]
    process = a_process()  # of another run
    advised = account.run(process.maintenance(NOW, Tuning(heat=heat)))
    text = (
        "CalculatedSuffix(by='Time', shards=16), 16,000 warm write units: key 'c1' of clicks-2016-04-15 asked for 2,500"
    )
    assert advised.advice.startswith(f"{TOMORROW}: {text}")
    assert f"\n  advice           {TOMORROW}: {text}" in str(advised)
    assert [plan.strategy for plan in advised.plans.values()] == [FOUR]
    assert TOMORROW[7:] not in account.plans
    account.run(process.maintained(NOW, shown.append, Tuning(heat=heat, deployed=True)))
    assert (shown[0].advice, str(*shown[0].plans.values())[: len(text)]) == ("", text)
    assert f"{TOMORROW}\n    for 2016-04-16 00:00 UTC: on-demand, warm for 16,000 write units" in str(shown[0])
    assert PeriodPlan.of(account.plans[TOMORROW[7:]], "").strategy.shards == 16
    assert account.creations[TOMORROW]["WarmThroughput"] == {"WriteUnitsPerSecond": 16_000}
    # The next day's is advised until it is due.
    assert account.run(process.maintenance(NOW, Tuning(heat=heat))).advice.startswith("clicks-2016-04-17: ")


def test_a_table_that_no_process_with_plans_has_used_is_seen() -> None:
    account = Account(tables={TODAY: {}})
    report = account.run(a_process().maintained(NOW, lambda _: None, Tuning(heat={}, deployed=True)))
    assert report.plan.refused == {
        TOMORROW: f"not tuned, because no process with plans= has used {TODAY}; deploy plans= first"
    }
    assert PeriodPlan.of(account.plans[TOMORROW[7:]], "").strategy == FOUR


def test_a_table_from_long_ago_has_been_used() -> None:
    account = Account()
    account.run(a_process().maintained(NOW - timedelta(days=30), lambda _: None, None))
    report = account.run(a_process().maintained(NOW, lambda _: None, Tuning(heat={}, deployed=True)))
    assert report.plan.refused == {}
    assert {plan.why[:20] for plan in report.plan.plans.values()} == {"as the period before"}


def test_tuning_needs_plans() -> None:
    process = a_process(plans=None)
    with pytest.raises(ConfigurationError, match=r"^tuning: needs plans="):
        Account().run(process.maintenance(NOW, Tuning(heat={})))


# Seven loads of 120 days, each day's key at places of its own; a table's partitions are those of its plan.

DAYS, QUERIES = 120, 50.0
STEPS, STEP_UNITS = (288, 50.0) if LONG else (36, 250.0)
CURVE = [0.35 + 0.65 * exp(-(((step / STEPS) - 0.6) ** 2) / 0.02) for step in range(STEPS)]


def loads(rng: Random) -> Iterator[tuple[str, list[float]]]:
    def noise() -> float:
        return exp(rng.gauss(0, 0.12))

    walk = [0.0]
    for _ in range(DAYS - 1):
        walk.append(walk[-1] + rng.gauss(0, 0.10))
    days = range(DAYS)
    yield "steady", [1500 * noise() for _ in days]
    yield "2% more each day", [600 * 1.02**day * noise() for day in days]
    yield "weekends twice as high", [1100 * (2.2 if day % 7 >= 5 else 1) * noise() for day in days]
    yield "three times as high from day 40", [(900 if day < 40 else 2700) * noise() for day in days]
    yield "one day five times as high", [(4500 if day == 60 else 900) * noise() for day in days]
    yield "falls 2% each day", [4000 * 0.98**day * noise() for day in days]
    yield "random walk", [min(5000.0, max(200.0, 1500 * exp(each))) for each in walk]


def refused(peak: float, shards: int, partitions: int, rng: Random) -> float:
    """The part of a day's writes that partitions refuse."""
    counts = [0] * partitions
    for _ in range(shards):
        counts[rng.randrange(partitions)] += 1
    lost = sum(max(0.0, factor * peak * count / shards - 1000) for count in counts if count for factor in CURVE)
    return lost / (peak * sum(CURVE))


def figures(peaks: list[float], rng: Random) -> tuple[float, float]:
    """The part of all writes that is refused, and the extra read units a second, from a first plan of four shards."""
    seen, plan, lost, shards = [peaks[0]], PeriodPlan(FOUR), [], []
    for peak in peaks[1:]:
        heat = {f"clicks-2016-04-{15 - ago}": units for ago, units in enumerate(reversed(seen[-7:]))}
        plan = next_plan({table: ceil(units / STEP_UNITS) * STEP_UNITS for table, units in heat.items()}, plan)
        count = plan.strategy.shards
        assert isinstance(count, int)
        partitions = ceil(plan.throughput.get("warm_write_units", 4000) / 1000)
        lost.append(peak * refused(peak, count, partitions, rng))
        shards.append(count)
        seen.append(min(peak, 3 * 1000 * min(count, partitions)))  # of what is throttled, less is seen
    return sum(lost) / sum(peaks[1:]), QUERIES * 0.5 * (sum(shards) / len(shards) - 1)


@pytest.mark.long_search
def test_seven_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "shards_for", lru_cache(None)(shards_for))
    seeds = range(20 if LONG else 1)
    both = [figures(peaks, Random(seed + 70)) for seed in seeds for _, peaks in loads(Random(seed))]
    share, reads = (sum(figure) / len(both) for figure in zip(*both, strict=True))
    print(f"{share:.3%} refused, {reads:.0f} extra read units/s")  # noqa: T201 - with -s, for the page
    assert share <= 0.001
    assert reads <= 450
