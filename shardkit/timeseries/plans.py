"""The plan of each period of a time series: by which strategy, and with which throughput, its table is used.

With a control table, a plan is an item there. It is written once, if there is none, before the period's table is made
or used, and never changed: so all processes act on the same one. Its form never changes: tests/vectors/plans.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from shardkit.core.machine import Program, Send
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, brief
from shardkit.strategies import RangeSuffix, Strategy
from shardkit.timeseries.control import is_missing
from shardkit.timeseries.periods import Period
from shardkit.timeseries.settings import Series, Throughput

PLAN = "shardkit:plan"
"""The attribute that has a plan, as JSON; with the name of the series, its partition key: ``shardkit:plan:clicks``."""
_FORM = 1


@dataclass(frozen=True)
class PeriodPlan:
    """A period's strategy; the units a second, named as in ``Throughput``, that its new table has at least; and why."""

    strategy: Strategy
    throughput: Mapping[str, int] = field(default_factory=dict)
    why: str = ""

    def raised(self, hot: Throughput) -> Throughput:
        """Return the throughput of the new table."""
        known = [name for name in self.throughput if name != "write_units" or not hot.on_demand]
        more: dict[str, Any] = {name: max(self.throughput[name], getattr(hot, name) or 0) for name in known}
        return replace(hot, **more)

    def __str__(self) -> str:
        units = [f", {most:,} {name.replace('_', ' ')}" for name, most in self.throughput.items()]
        return f"{self.strategy!r}{''.join(units)}: {self.why}"

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
        self._series = series
        self.default = PeriodPlan(strategy)
        self.table = getattr(table, "name", table)
        self._known: dict[Period, PeriodPlan] = {}  # shared by threads; what it has stays
        self._key: tuple[str, str] | None = None
        self._of_series = {"S": f"{PLAN}:{series.name}"}
        if table is None:
            return
        if not isinstance(self.table, str) or not self.table or hasattr(table, "runner"):
            raise ConfigurationError(
                f"plans: must be a boto3 Table or its name, got {brief(table)}; give resource.Table('Control')"
            )
        self.default = replace(self.default, why="strategy= of the process that needed it first")
        _allowed(strategy).to_dict()  # refuses a function that is not registered

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
        ends = {":first": {"S": unknown[0].name}, ":last": {"S": unknown[-1].name}}
        asked: dict[str, Any] = {
            "TableName": self.table,
            "ConsistentRead": True,
            "KeyConditionExpression": "#series = :series AND #period BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#series": partition, "#period": sort},
            "ExpressionAttributeValues": {":series": self._of_series, **ends},
        }
        while True:
            answer = yield Send("Query", asked)
            for item in answer["Items"]:
                period = self._series.calendar.named(item[sort]["S"])
                if period is not None:
                    where = f"the plan of period {period} of {self._series.name!r} in table {self.table!r}"
                    self._known.setdefault(period, PeriodPlan.of(item, where))
            if "LastEvaluatedKey" not in answer:
                return
            asked = {**asked, "ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def settle(self, periods: Iterable[Period], plan: PeriodPlan | None = None) -> Program[None]:
        """Have the plans of these periods: those that there are; where there is none, it is written, and read."""
        periods = [*periods]
        yield from self.read(periods)
        while unknown := [period for period in periods if period not in self]:
            for period in unknown:
                partition, sort = yield from self._key_names()
                key = {partition: self._of_series, sort: {"S": period.name}}
                params = {"TableName": self.table, "Item": {**key, **(plan or self.default).to_attributes()}}
                names = {"ExpressionAttributeNames": {"#series": partition}}
                try:
                    yield Send("PutItem", {**params, **names, "ConditionExpression": "attribute_not_exists(#series)"})
                except Exception as error:
                    if code_of(error) != "ConditionalCheckFailedException":
                        raise
            # Not what was written: another process may have been first.
            yield from self.read(unknown)

    def _key_names(self) -> Program[tuple[str, str]]:
        if self._key is not None:
            return self._key
        try:
            answer = yield Send("DescribeTable", {"TableName": self.table}, joins=True)
        except Exception as error:
            if not is_missing(error):
                raise
            raise ConfigurationError(f"plans: table {self.table!r} does not exist; create it") from error
        described = answer["Table"]
        names = KeySchema.of(described["KeySchema"], f"table {self.table!r}").names
        types = {each["AttributeName"]: each["AttributeType"] for each in described["AttributeDefinitions"]}
        if [types[name] for name in names] != ["S", "S"]:
            raise ConfigurationError(
                f"plans: table {self.table!r} must have a string partition key and a string sort key, got {names}"
            )
        self._key = names[0], names[1]
        return self._key
