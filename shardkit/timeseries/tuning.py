"""The next period's shards and throughput, from what the hottest keys of the periods before asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from operator import itemgetter
from typing import Any

from shardkit.analysis.shards import HEADROOM, shards_for
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS
from shardkit.errors import ConfigurationError, brief
from shardkit.strategies import CalculatedSuffix, RandomSuffix
from shardkit.timeseries.periods import Period
from shardkit.timeseries.plans import PeriodPlan, Plans
from shardkit.timeseries.settings import Series, Throughput

_PERIODS = 7
_MORE = 1.25  # times the highest second: a period may exceed those before
_STEP = 4  # at most so many times the shards and the units of the period before
_WORTH = 1.5  # twice the partitions are worth their price if they divide the shards by at least this
_NEW_UNITS = 4_000  # of a new on-demand table
_MOST_UNITS = 40_000  # a table's default quota, beyond which CreateTable is refused


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Plan the shards and the write throughput of a time series' next table, by the last seven periods.

    Example:
        clicks.maintain(tuning=Tuning(heat=highest_seconds("traces/"), deployed=True))

    Args:
        heat: Of each table, the hottest key and the write units that it asked for in its highest second.
        deployed: Whether all processes have ``plans=``. If not, the plan is shown as advice only, because a process
            without it would write and read items of a tuned period at other places.
        max_shards: The most shards.

    Raises:
        ConfigurationError: In use: the series has no ``plans=``, or no number of shards, or an argument is invalid.
    """

    heat: Mapping[str, tuple[Any, float]]
    deployed: bool = False
    max_shards: int = 64

    def next_plan(self, series: Series, period: Period, plans: Plans) -> PeriodPlan:
        """Return the plan of a period, from those of the periods before that are known."""
        strategy = plans.default.strategy
        if not isinstance(strategy, CalculatedSuffix | RandomSuffix) or not isinstance(strategy.shards, int):
            raise ConfigurationError(
                f"strategy: must be a CalculatedSuffix or a RandomSuffix whose shards are a number, to be tuned, got "
                f"{brief(strategy, 200)}; give one, or leave tuning= (--trace) out"
            )
        periods = earlier(series, period)
        before = next((plans[one] for one in periods if one in plans), plans.default)
        had = getattr(before.strategy, "shards", 1)
        had = had if isinstance(had, int) else strategy.shards
        found = [(table, *self.heat[table]) for table in map(series.table, periods) if table in self.heat]
        if not found:
            why = f"as the period before, because no heat is known of the last {_PERIODS}"
            return PeriodPlan(replace(strategy, shards=had), before.throughput, why)
        table, key, units = max(found, key=itemgetter(2))
        needed, throughput = _needed(_MORE * units, series.hot, before.throughput)
        shards = min(self.max_shards, max(ceil(had / _STEP), min(needed or self.max_shards, _STEP * had)))
        why = f"key {brief(key, 60)} of {table} asked for {units:,.0f} write units in its highest second"
        return PeriodPlan(replace(strategy, shards=shards), throughput, why)


def earlier(series: Series, period: Period) -> list[Period]:
    """Return the periods by which one is planned, the newest first."""
    return [series.calendar.at(period.number - ago) for ago in range(1, _PERIODS + 1)]


def _needed(units: float, hot: Throughput, before: Mapping[str, int]) -> tuple[int | None, dict[str, int]]:
    """Return the shards of a key that asks for so many write units a second, and the throughput of the new table.

    The table is made larger as long as that takes away a third of the shards.
    """
    has = hot.write_units or _NEW_UNITS
    least = max(has, hot.warm_write_units or 0)
    most = min(_STEP * max([least, *before.values()]), max(least, hot.max_write_units or _MOST_UNITS))
    served = min(ceil(units / (1 - HEADROOM)), most)
    warm = max(least, served)
    shards = _shards(units, warm)
    while warm < most:
        fewer = _shards(units, min(2 * warm, most))
        if shards is not None and (fewer is None or fewer * _WORTH > shards):
            break
        warm, shards = min(2 * warm, most), fewer
    throughput = {"write_units": served} if served > has and not hot.on_demand else {}
    if warm > max([least, *throughput.values()]):
        throughput["warm_write_units"] = warm
    return shards, throughput


def _shards(units: float, write_units: int) -> int | None:
    return shards_for(write_units=units, partitions=ceil(write_units / PARTITION_WRITE_UNITS)).shards
