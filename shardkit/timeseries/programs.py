"""The operations of a time series as programs: those of the tables of its periods, one after another.

1. An item's table follows from the item alone. A call that has no time asks the tables newest first.
2. A Query asks only the tables whose times can satisfy its key condition, one at a time, in the direction of the read.
   A page ends when it has ``Limit`` items, or without ``Limit`` after the first table that has any.
3. The strategy of a table is that of its period's plan, which is known before a request is made for the table.
4. Which tables exist is listed, at most once in ``LISTED_SECONDS``. A table that is missing all the same has no items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar

from shardkit.core.machine import Program, Response
from shardkit.dynamodb.expressions.key_condition import KeyCondition, parse_key_condition
from shardkit.dynamodb.expressions.rewrite import build_conditions, updated_attributes
from shardkit.dynamodb.expressions.update import Setting, add_actions
from shardkit.dynamodb.service_errors import check_fits
from shardkit.dynamodb.units import add_consumed, table_name
from shardkit.errors import ConfigurationError, InvalidKeyError, PeriodError, UnsupportedExpressionError, brief
from shardkit.sharding import items
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.get_many import find_many, lookups
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params, check_keywords, wire_request
from shardkit.sharding.programs import Programs, listed_keys, no_request
from shardkit.sharding.query.cursor import made_for
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.seam import Operations
from shardkit.sharding.transactions import TRANSACTIONS, parts_of
from shardkit.strategies import Strategy
from shardkit.timeseries.control import is_missing
from shardkit.timeseries.pages import WITHIN, Pages, starting
from shardkit.timeseries.periods import Period, second_of
from shardkit.timeseries.plans import Plans, Tuning
from shardkit.timeseries.running import maintained, planned
from shardkit.timeseries.settings import Series
from shardkit.timeseries.steps import Maintenance, MaintenanceReport
from shardkit.timeseries.stream import QueryOfPeriods, StreamOfPeriods, returned
from shardkit.timeseries.tables import SeriesTables

T = TypeVar("T")
Kind = Literal["read", "delete", "write"]

_MOST_TABLES = 2500  # of an account in a Region, unless AWS has raised that


class SeriesPrograms(Programs):
    """The operations of one time series, over the :class:`Programs` of its tables."""

    def __init__(
        self,
        series: Series,
        strategy: Strategy,
        draw: Callable[[], float],
        clock: Callable[[], datetime],
        indexes: Mapping[str, Strategy] | None = None,
        form: Form = PYTHON_VALUES,
        plans: Any = None,
    ) -> None:
        if not getattr(strategy, "settled", True):
            raise ConfigurationError(
                f"strategy: must not be a Resharding or a ShardMap, got {brief(strategy, 200)}; a time series has a "
                "table for each period: move the items of one with ShardedTable"
            )
        super().__init__(series.name, strategy, series.schema, draw, form, indexes=indexes)
        self.series = series
        self.is_part = lambda table: series.period_of_table(table) is not None
        self.plans = Plans(series, strategy, plans)
        self.tables = SeriesTables(self.plans, clock)
        self._pages = Pages(series, form)
        self._programs: dict[Period, Programs] = {}

    # Periods and their tables.

    def of(self, period: Period) -> Programs:
        """Return the operations of a period's table, whose plan is known."""
        programs = self._programs.get(period)
        if programs is None:
            self._drop_missing()
            programs = self._programs[period] = Programs(
                self.series.table(period),
                self.plans[period].strategy,
                self.series.schema,
                self.draw,
                self.form,
                self.shardings,
                self.indexes,
                partial(Operations.described, cursor_period=f"{period}{WITHIN}"),
            )
        return programs

    def _drop_missing(self) -> None:
        """Forget periods without a table before there are too many: keys of any time may be asked for."""
        if len(self._programs) < _MOST_TABLES:
            return
        for period in [period for period in [*self._programs] if not self.tables.exists(period)]:
            self._programs.pop(period, None)
            self.shardings.pop(self.series.table(period), None)

    def sharding_of(self, period: Period) -> Operations:
        known: Operations = returned(self.of(period).known())
        return known

    def machine(self, sharding: Operations) -> Callable[..., Any]:
        from shardkit.timeseries.load import SeriesLoad  # noqa: PLC0415 - a series that loads nothing needs no load

        return partial(SeriesLoad, self)

    @property
    def _sharding_of_all(self) -> Operations:
        assert self._known is not None
        return self._known

    def known(self, index: object = None) -> Program[Operations]:
        """Refuse what works on one table only: counters, backfills."""
        raise ConfigurationError(
            f"table: must be one table, got time series {self.table!r}; give the table of a period: "
            f"ShardedTable(resource.Table(series.table_name(time)), strategy)"
        )

    def key_names(self) -> Program[tuple[str, ...]]:
        yield from ()
        return self._sharding_of_all.key_names

    def to_load(self, *, look: bool = False) -> Program[Operations]:
        yield from self.tables.existing()
        return self._sharding_of_all

    def period_to_store(self, given: Any, what: str) -> Period:
        """Return the period of an item or a key that must have a time."""
        period = self.series.period_of(given, self.form)
        if period is None:
            raise InvalidKeyError(
                f"{self.series.at}: missing in the {what}; the table of time series {self.series.name!r} follows from "
                "it; give it a value"
            )
        return period

    def planned(self, period: Period, kind: Kind) -> Program[bool]:
        """Return whether a period has its plan; of one that has none, it is written if there is a table, or may be.

        A plan is written before the table: so what has neither has no items.
        """
        yield from self.plans.read([period])
        if period in self.plans:
            return True
        if kind != "read":
            self.tables.list_again()
        if period not in (yield from self.tables.existing()):
            if kind != "write":
                return False
            self.tables.check_creatable(period)
            yield from self.plans.settle([period])
        return True

    def maintenance(self, now: datetime | None, tuning: Tuning | None) -> Program[Maintenance]:
        return planned(self.plans, self.tables.clock() if now is None else now, tuning)

    def maintained(
        self, now: datetime | None, on_plan: Callable[[Maintenance], object], tuning: Tuning | None
    ) -> Program[MaintenanceReport]:
        try:
            return (yield from maintained(self.plans, self.tables.clock() if now is None else now, on_plan, tuning))
        finally:
            self.tables.list_again()

    # Single items.

    def item(
        self,
        operation: str,
        params: Params,
        *,
        shard: int | None,
        return_shards: bool,
        fan_out: FanOutOptions,
        since: datetime | None = None,
    ) -> Program[Response]:
        def of(period: Period) -> Program[Response]:
            programs, asked = self.of(period), self._as_sent(period, operation, params)
            response = yield from programs.item(
                operation, asked, shard=shard, return_shards=return_shards, fan_out=fan_out
            )
            if asked is not params and params.get("ReturnValues") in {"UPDATED_NEW", "UPDATED_OLD"}:
                response.get("Attributes", {}).pop(self.series.at, None)  # like a key, it is not one of those updated
            return response

        period = self._period_of(operation, params)
        nothing: Response = {"ResponseMetadata": no_request(), **({"Shard": None} if return_shards else {})}
        if period is None:
            return (yield from self._searched(of, since, nothing))
        if operation in {"PutItem", "UpdateItem"}:
            self.tables.check_open(period)
        kind: Kind = "read" if operation == "GetItem" else "write"
        if operation == "DeleteItem" and not _conditional(params):
            kind = "delete"
        if period not in self.plans and not (yield from self.planned(period, kind)):
            return nothing
        response = yield from self._if_exists(period, of(period))
        if response is not None:
            self.tables.remember(period)
            return response
        if kind != "write":
            return nothing
        self.tables.check_creatable(period)
        yield from self.tables.created(period)
        return (yield from of(period))

    def _if_exists(self, period: Period, program: Program[T]) -> Program[T | None]:
        """Run a program on a period's table; return None if the table does not exist."""
        try:
            return (yield from program)
        except Exception as error:
            if not is_missing(error):
                check_fits(error, self.series.table(period))
                raise
            self.tables.forget(period)
            return None

    def _period_of(self, operation: str, params: Params) -> Period | None:
        """Return the period of an item's request; None for a GetItem whose key has no time."""
        series = self.series
        if operation == "PutItem":
            return self.period_to_store(params.get("Item"), "item")
        key = params.get("Key")
        within = series.at in self._sharding_of_all.key_names
        if operation == "UpdateItem" and not within:
            changed = updated_attributes(wire_request(self._sharding_of_all, operation, params))
            if series.at in changed:
                raise UnsupportedExpressionError(
                    f"UpdateItem: changes {series.at!r}, from which the table of the item follows in time series "
                    f"{series.name!r}; delete the item and put it again"
                )
        if operation == "GetItem" and not within and self.series.period_of(key, self.form) is None:
            return None
        return self.period_to_store(key, "key")

    def key_as_sent(self, sharding: Sharding, key: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a key for one table, without a time that is not part of it."""
        at = self.series.at
        if at not in key or at in sharding.key_names or sharding.reads_keys or at in sharding.placed_by:
            return key
        return {name: value for name, value in key.items() if name != at}

    def _as_sent(self, period: Period, operation: str, params: Params) -> Params:
        """Return an item's request for a period's table, likewise."""
        key = params.get("Key") or {}
        if (sent := self.key_as_sent(self.sharding_of(period), key)) is key:
            return params
        if operation == "UpdateItem" and not {"AttributeUpdates", "Expected"} & params.keys():
            # The update may create the item.
            time = Setting(key[self.series.at], if_absent=True)
            params = add_actions(build_conditions(params), {self.series.at: time}, ())
        return {**params, "Key": sent}

    def _searched(
        self, of: Callable[[Period], Program[Response]], since: datetime | None, response: Response
    ) -> Program[Response]:
        """Ask the tables for an item, newest first; return ``response`` if there is no table."""
        consumed = None
        for period in (yield from self._newest_first(since)):
            found = yield from self._if_exists(period, of(period))
            if found is None:
                continue
            response = found
            if "ConsumedCapacity" in response:
                consumed = response["ConsumedCapacity"] = self._added(consumed, response["ConsumedCapacity"])
            if "Item" in response:
                break
        return response

    def _newest_first(self, since: datetime | None) -> Program[list[Period]]:
        oldest = None if since is None else self.series.calendar.of(second_of("since", since))
        periods = yield from self.tables.existing()
        return [period for period in reversed(periods) if oldest is None or period >= oldest]

    def _added(self, consumed: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        return add_consumed(consumed, {**more, "TableName": self.series.name})

    def batch_get_items(
        self,
        keys: Iterable[Mapping[str, Any]],
        params: Params,
        *,
        fan_out: FanOutOptions,
        since: datetime | None = None,
    ) -> Program[Response]:
        """Read items by key, a table after another, the newest first; keys without a time from every table."""
        given = listed_keys(keys)
        check_keywords("BatchGetItem", params)
        periods = [self._period_of("GetItem", {"Key": key}) for key in given]
        anywhere = [place for place, period in enumerate(periods) if period is None]
        searched = set((yield from self._newest_first(since))) if anywhere else set()
        response: Response = {"ResponseMetadata": no_request()}
        found: dict[int, dict[str, Any]] = {}
        left: list[int] = []
        for period in sorted({period for period in periods if period is not None} | searched, reverse=True):
            places = [place for place, own in enumerate(periods) if own == period]
            if period in searched:
                places += [place for place in anywhere if place not in found]
            if not places or not (yield from self.planned(period, "read")):
                continue
            sharding = self.sharding_of(period)
            asked = [self.key_as_sent(sharding, given[place]) for place in places]
            looked = [lookups(sharding, key) for key in asked]
            answer = yield from self._if_exists(period, find_many(sharding, asked, looked, params, fan_out))
            if answer is None:
                continue
            batch, read = answer
            found.update((places[number], item) for number, item in read.items())
            unread = {id(primary) for primary, _ in batch.unprocessed}
            left += [place for place, one in zip(places, looked, strict=True) if id(one[0][0]) in unread]
            response["ResponseMetadata"] = batch.metadata
            if batch.consumed is not None:
                response["ConsumedCapacity"] = self._added(response.get("ConsumedCapacity"), batch.consumed)
        response["Items"] = [found[place] for place in sorted(found)]
        response["UnprocessedKeys"] = [dict(given[place]) for place in sorted({*left} - found.keys())]
        return response

    def transact(self, operation: str, params: Params, *, fan_out: FanOutOptions) -> Program[Response]:
        """Read or write items of this time series, and of unsharded tables, in one transaction."""
        kind: Kind = "read" if operation == "TransactGetItems" else "write"
        periods: set[Period] = set()
        parts = []
        for action, body in parts_of(params):
            if table_name(body.get("TableName", self.table)) != table_name(self.table):
                parts.append({action: body})
                continue
            single = {"Put": "PutItem", "Update": "UpdateItem", "Get": "GetItem"}.get(action, "DeleteItem")
            rest = {name: value for name, value in body.items() if name not in {"Shard", "TableName"}}
            period = self._period_of(single, rest) or self.period_to_store(rest.get("Key"), "key")
            if action in {"Put", "Update"}:
                self.tables.check_open(period)
            if not (yield from self.planned(period, kind)):
                raise self._no_table(period)
            periods.add(period)
            sent = self._as_sent(period, single, rest)
            shard = {"Shard": body["Shard"]} if "Shard" in body else {}
            parts.append({action: {**sent, **shard, "TableName": self.series.table(period)}})
        shardings = {self.series.table(period): self.sharding_of(period) for period in periods}

        def known(table: str) -> Program[Operations | None]:
            yield from ()
            return shardings.get(table)

        def whole() -> Program[Response]:
            return TRANSACTIONS[operation]({**params, "TransactItems": parts}, known, self.form, fan_out)

        try:
            return (yield from whole())
        except Exception as error:
            if not is_missing(error):
                raise
        # The service does not say which table it misses.
        self.tables.list_again()
        existing = yield from self.tables.existing()
        for period in sorted(periods.difference(existing)):
            if kind == "read":
                raise self._no_table(period)
            self.tables.check_creatable(period)
            yield from self.tables.created(period)
        return (yield from whole())

    def _no_table(self, period: Period) -> PeriodError:
        return PeriodError(
            f"{self.series.at}: the period {period} of {self.table!r} has no table, so a transaction cannot read from "
            "it, and its strategy is not known; leave the item out, or use batch_get_items()",
            period.name,
        )

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        sharding = yield from self._sharding_for(item, source.lower())
        if source == "Key":
            item = self.key_as_sent(sharding, item)
        return items.physical_item(sharding, item, source, self.draw)

    def logical(self, item: Mapping[str, Any]) -> Program[dict[str, Any]]:
        return items.logical_item((yield from self._sharding_for(item, "item")), item)

    def _sharding_for(self, item: Mapping[str, Any], what: str) -> Program[Operations]:
        """Return the operations of an item's table; without plans, all tables are alike."""
        if self.plans.table is None:
            return self._sharding_of_all
        period = self.period_to_store(item, what)
        if not (yield from self.planned(period, "read")):
            raise self._no_table(period)
        return self.sharding_of(period)

    # Reads of many items.

    def query(
        self, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOutOptions
    ) -> Program[Response]:
        periods, start, purpose = yield from self._to_query(params, shard)

        def read(period: Period, asked: Params) -> Program[Response | None]:
            query = self.of(period).query(asked, shard=shard, return_shards=return_shards, fan_out=fan_out)
            return self._if_exists(period, query)

        return (yield from self._pages.page(periods, start, purpose, params, read, return_shards=return_shards))

    def stream(
        self, params: Params, shard: int | None, *, max_items: int | None, fan_out: FanOutOptions
    ) -> Program[QueryOfPeriods]:
        periods, start, _ = yield from self._to_query(params, shard)
        begins = periods[0] if periods else None

        def opening(period: Period, left: int | None) -> Program[Any]:
            asked = starting(params, start if period == begins else None)
            return self.of(period).stream(asked, shard, max_items=left, fan_out=fan_out)

        return QueryOfPeriods(periods, opening, table=self.series.table, max_items=max_items)

    def scan(self, params: Params, *, return_shards: bool) -> Program[Response]:
        purpose = made_for(self.table, params.get("IndexName"), "scan")
        existing = yield from self.tables.existing()
        periods, start = self._pages.left(params, existing, purpose, f"a Scan of {self.table!r}")

        def read(period: Period, asked: Params) -> Program[Response | None]:
            return self._if_exists(period, self.of(period).scan(asked, return_shards=return_shards))

        return (yield from self._pages.page(periods, start, purpose, params, read, return_shards=return_shards))

    def segments(self, params: Params, segments: int, *, fan_out: FanOutOptions) -> Program[StreamOfPeriods]:
        periods = yield from self.tables.existing()

        def opening(period: Period, _: int | None) -> Program[Any]:
            return self.of(period).segments(params, segments, fan_out=fan_out)

        return StreamOfPeriods(periods, opening, table=self.series.table, nothing=[])

    def _to_query(self, params: Params, shard: int | None) -> Program[tuple[list[Period], Any, str]]:
        """Return the periods that a Query reads, in order; where it starts in the first; and its cursors' purpose."""
        condition = parse_key_condition(wire_request(self._sharding_of_all, "Query", params))
        index = params.get("IndexName")
        purpose = made_for(self.table, index, condition.equals, *([] if shard is None else [shard]))
        touches = self._touching(condition)
        # One time is in one table, of which the list may not know yet.
        period = self._named_by(condition)
        periods = [period] if period is not None and (yield from self.planned(period, "read")) else []
        if not periods:
            existing = yield from self.tables.existing()
            # If no table can have such items, ask one all the same: the service checks the request.
            periods = [*filter(touches, existing)] or existing[-1:]
        if not periods:  # nothing is sent, so the request is checked here
            QueryPlan.of(self._sharding_of_all, starting(params, None), shard=shard)
        if params.get("ScanIndexForward") is False:
            periods.reverse()
        periods, start = self._pages.left(params, periods, purpose, f"time series {self.table!r}", touches)
        return periods, start, purpose

    def _named_by(self, condition: KeyCondition) -> Period | None:
        """Return the one period that a condition on a single time can touch; None: it has no such time."""
        time = condition.equals.get(self.series.at)
        try:
            return None if time is None else self.series.period_at(time)
        except InvalidKeyError:
            return None

    def _touching(self, condition: KeyCondition) -> Callable[[Period], bool]:
        """Return whether a period's table can have items that satisfy a condition."""
        at, times = self.series.at, self.series.times
        if at in condition.equals:
            return lambda period: period == self._named_by(condition)
        if condition.range is None or condition.range[0] != at:
            return lambda _: True
        term = condition.range[1]
        return lambda period: times.can_touch(period, term)


def _conditional(params: Params) -> bool:
    return bool({"ConditionExpression", "Expected"} & params.keys())
