"""The plan of each period of a time series: by which strategy, and with which throughput, its table is used.

With a control table, a plan is an item there. It is written once, if there is none, before the period's table is made
or used, and never changed: so all processes act on the same one. Its form never changes: tests/vectors/plans.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from operator import itemgetter
from typing import Any

import orjson

from shardkit.analysis.shards import HEADROOM, shards_for
from shardkit.core.machine import Program, Send
from shardkit.dynamodb.schema import control_keys
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.units import PARTITION_WRITE_UNITS
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, brief
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy
from shardkit.timeseries.control import is_missing
from shardkit.timeseries.periods import Period
from shardkit.timeseries.settings import Series, Throughput

PLAN = "shardkit:plan"  # the attribute that has a plan, as JSON; and of the partition key: shardkit:plan:clicks
_FORM = 1
_PERIODS = 7
_MORE = 1.25  # times the highest second: a period may exceed those before
_STEP = 4  # at most so many times the shards and the units of the period before
_WORTH = 1.5  # twice the partitions are worth their price if they divide the shards by at least this
_NEW_UNITS = 4_000  # of a new on-demand table
_MOST_UNITS = 40_000  # a table's default quota, beyond which CreateTable is refused


@dataclass(frozen=True)
class PeriodPlan:
    """A period's strategy; the units a second, named as in ``Throughput``, that its new table has at least; and why."""

    strategy: Strategy
    throughput: Mapping[str, int] = field(default_factory=dict)
    why: str = ""

    def raised(self, hot: Throughput) -> Throughput:
        """Return the throughput of the new table; one that is on-demand has no provisioned units."""
        known = {*self.throughput} - ({"write_units"} if hot.on_demand else set())
        more: dict[str, Any] = {name: max(self.throughput[name], getattr(hot, name) or 0) for name in known}
        return replace(hot, **more)

    def __str__(self) -> str:
        units = "".join(f", {most:,} {name.replace('_', ' ')}" for name, most in self.throughput.items())
        return f"{self.strategy!r}{units}: {self.why}"

    def to_attributes(self) -> WireItem:
        """Return the attributes of the plan's item, without its key."""
        given = {"form": _FORM, "strategy": self.strategy.to_dict(), "throughput": self.throughput, "why": self.why}
        return {PLAN: {"S": orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode()}}

    @classmethod
    def of(cls, item: WireItem, where: str) -> PeriodPlan:
        """Read a plan's item."""
        try:
            given: Any = orjson.loads(item[PLAN]["S"])
            if given["form"] == _FORM:
                return cls(_allowed(Strategy.from_dict(given["strategy"])), dict(given["throughput"]), given["why"])
            reason = f"its form is {given['form']!r}, and this shardkit reads {_FORM}"
        except (LookupError, TypeError, ValueError) as error:
            reason = str(error)
        raise ConfigurationError(
            f"plans: {where} cannot be read: {brief(reason, 300)}; register its functions (register_function), or use "
            "the shardkit that wrote it"
        )


def _allowed(strategy: Strategy) -> Strategy:
    if not strategy.settled or isinstance(strategy, RangeSuffix) or callable(getattr(strategy, "shards", 1)):
        raise ConfigurationError(
            f"strategy: with plans= must not be a RangeSuffix, nor have a function as shards=, got "
            f"{brief(strategy, 200)}; give a number of shards, or leave plans= out"
        )
    return strategy


class Plans:
    """The plans that a client knows, by period; without a control ``table``, all periods have the ``default``."""

    def __init__(self, series: Series, strategy: Strategy, table: Any = None) -> None:
        self.series = series
        self.default = PeriodPlan(strategy)
        self.table = getattr(table, "name", table)
        self._known: dict[Period, PeriodPlan] = {}  # shared by threads; what it has stays
        self._key: tuple[str, ...] = ()
        self._of_series = {"S": f"{PLAN}:{series.name}"}
        if table is None:
            return
        if not isinstance(self.table, str) or not self.table or hasattr(table, "runner"):
            raise ConfigurationError(
                f"plans: must be a boto3 Table or its name, got {brief(table)}; give resource.Table('Control')"
            )
        self.default = PeriodPlan(_allowed(strategy), why="strategy= of the process that needed it first")
        self.default.to_attributes()  # refuses a function that is not registered

    def __contains__(self, period: Period) -> bool:
        return self.table is None or period in self._known

    def __getitem__(self, period: Period) -> PeriodPlan:
        return self.default if self.table is None else self._known[period]

    def read(self, periods: Iterable[Period]) -> Program[None]:
        """Read the plans of these periods, if some are not known: by one Query, in pages."""
        unknown = sorted(period for period in periods if period not in self)
        if not unknown:
            return
        partition, sort = yield from self._key_names()
        first, last = unknown[0].name, unknown[-1].name
        asked: dict[str, Any] = {
            "TableName": self.table,
            "ConsistentRead": True,
            "KeyConditionExpression": "#series = :series AND #period BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#series": partition, "#period": sort},
            "ExpressionAttributeValues": {":series": self._of_series, ":first": {"S": first}, ":last": {"S": last}},
        }
        while True:
            answer = yield Send("Query", asked)
            for item in answer["Items"]:
                period = self.series.calendar.named(item[sort]["S"])
                if period is not None:
                    where = f"the plan of period {period} of {self.series.name!r} in table {self.table!r}"
                    self._known.setdefault(period, PeriodPlan.of(item, where))
            if "LastEvaluatedKey" not in answer:
                return
            asked = {**asked, "ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def settle(self, periods: Iterable[Period], plan: PeriodPlan | None = None) -> Program[None]:
        """Make sure that these periods have plans: write those that are missing, and read what is there then."""
        periods = [*periods]
        yield from self.read(periods)
        while unknown := [period for period in periods if period not in self]:
            partition, sort = yield from self._key_names()
            for period in unknown:
                item = {partition: self._of_series, sort: {"S": period.name}, **(plan or self.default).to_attributes()}
                put = {"TableName": self.table, "Item": item, "ExpressionAttributeNames": {"#series": partition}}
                try:
                    yield Send("PutItem", {**put, "ConditionExpression": "attribute_not_exists(#series)"})
                except Exception as error:
                    if code_of(error) != "ConditionalCheckFailedException":
                        raise
            # Not what was written: another process may have been first.
            yield from self.read(unknown)

    def _key_names(self) -> Program[tuple[str, ...]]:
        if not self._key:
            try:
                described = (yield Send("DescribeTable", {"TableName": self.table}, joins=True))["Table"]
            except Exception as error:
                if not is_missing(error):
                    raise
                raise ConfigurationError(f"plans: table {self.table!r} does not exist; create it") from error
            self._key = control_keys("plans", self.table, described["KeySchema"], described["AttributeDefinitions"])
        return self._key


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

    def next_plan(self, plans: Plans, period: Period) -> PeriodPlan:
        """Return the plan of a period, from those of the periods before that are known."""
        series, strategy = plans.series, plans.default.strategy
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
        shards = int(min(self.max_shards, max(ceil(had / _STEP), min(needed, _STEP * had))))
        why = f"key {brief(key, 60)} of {table} asked for {units:,.0f} write units in its highest second"
        return PeriodPlan(replace(strategy, shards=shards), throughput, why)


def earlier(series: Series, period: Period) -> list[Period]:
    """Return the periods by which one is planned, the newest first."""
    return [series.calendar.at(period.number - ago) for ago in range(1, _PERIODS + 1)]


def _needed(units: float, hot: Throughput, before: Mapping[str, int]) -> tuple[float, dict[str, int]]:
    """Return the shards of a key that asks for so many write units a second, and the throughput of the new table.

    The table is made larger as long as that takes away a third of the shards.
    """

    def shards_of(warm: int) -> float:
        return shards_for(write_units=units, partitions=ceil(warm / PARTITION_WRITE_UNITS)).shards or inf

    has = hot.write_units or _NEW_UNITS
    least = max(has, hot.warm_write_units or 0)
    most = min(_STEP * max([least, *before.values()]), max(least, hot.max_write_units or _MOST_UNITS))
    served = min(ceil(units / (1 - HEADROOM)), most)
    warm = max(least, served)
    shards = shards_of(warm)
    while warm < most and (fewer := shards_of(min(2 * warm, most))) * _WORTH <= shards:
        warm, shards = min(2 * warm, most), fewer
    throughput = {"write_units": served} if served > has and not hot.on_demand else {}
    if warm > max([least, *throughput.values()]):
        throughput["warm_write_units"] = warm
    return shards, throughput
