"""Tuner: gives hot keys of a table with a shard map more shards, by what its processes report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
from boto3.dynamodb.conditions import Attr, Key

from shardkit.analysis.tuning import Growth, Heat, Memory, Report, Rule, heat_name, key_of
from shardkit.capacity.heat_report import EXPIRES, key_names
from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, StageError
from shardkit.migrate.admin import ShardMapAdmin, TooEarlyError, service_time
from shardkit.migrate.migrating import move
from shardkit.sharding.shard_map import GENERATION, ShardMapState, grown
from shardkit.strategies import RandomSuffix

_TUNER, _LOG = "shardkit:tuner", "shardkit:log"
_FORM = 1
_MOST_DECISIONS, _MOST_BYTES, _MOST_KEY = 50, 20_000, 100
_SAME = ("action", "reason", "applied", "shards")
_WAITS = "every process has to follow the last change of the map first"


class Tuner:
    """Give hot keys of a table more shards, by the :class:`shardkit.capacity.HeatReport` of its processes.

    Example:
        tuner = Tuner(ShardedTable(resource.Table("Orders"), ShardMap()), resource.Table("Control"), apply=True)
        print(tuner.step()["reason"])  # each minute, on one machine or several

    Args:
        table: A ``ShardedTable`` with ``ShardMap()``, whose strategy is a CalculatedSuffix or a RandomSuffix.
        control: The boto3 ``Table`` of the reports.
        apply: Whether to do what it finds right, and not only say so.
        finish: Whether to move items after a growth, which the next one needs; it takes as long as reading the table.
        write_units: For ``finish``: the mover's write units a second, or a share of the table's, such as ``"20%"``.
        max_shards: The most shards of a key.
        max_read_units: The most read units a second that queries of reported keys may take beyond one shard, with a
            read for each write that grows and 100 for the mover; None: no limit.
        partitions: The least number of partitions of the table.
        clock: For tests: returns the time in seconds since 1970.

    Raises:
        ConfigurationError: An argument is invalid.

    Cost: a run reads all reports (2 processes: 1 read unit) and writes an item (200 processes: some 50 KB).
    IAM: ``dynamodb:DescribeTable``, ``Query`` and ``PutItem`` on ``control``; on the table, what
        :class:`ShardMapAdmin` needs, and with ``finish`` what :func:`shardkit.migrate.move` needs.
    """

    def __init__(
        self,
        table: Any,
        control: Any,
        *,
        apply: bool = False,
        finish: bool = False,
        write_units: float | str | None = 100,
        max_shards: int = 64,
        max_read_units: float | None = None,
        partitions: int = 1,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._table, self._control, self._keys = table, control, key_names(control)
        self._admin = ShardMapAdmin(table, clock=clock)
        self._apply, self._finish, self._write_units, self._clock = apply, finish, write_units, clock
        check_count("max_shards", max_shards, "shards")
        check_count("partitions", partitions, "partitions")
        check_number("max_read_units", max_read_units or 0, "units a second")
        self._rule = Rule(partitions=partitions, max_shards=max_shards, max_read_units=max_read_units)

    def step(self) -> dict[str, Any]:
        """Look at the reports, and with ``apply`` take the step that is due; return the decision, as in :meth:`log`.

        Example:
            tuner.step()["action"]  # "none", "grow", "advance" (to a growth's next stage) or "finish"

        Raises:
            ConfigurationError: The table has no shard map, or its strategy cannot grow keys.
            StageError: Another process ran a tuner or changed the map meanwhile, or items could not be moved.
        """
        state = self._admin.read()
        strategy = state.new if state.stage in {"move", "new"} and state.new is not None else state.old
        grown(strategy, {})  # refuses one whose keys cannot grow
        items, now = self._items()
        own = items.pop(_TUNER, {_TUNER: orjson.dumps({"form": _FORM}), _LOG: "[]", GENERATION: 0})
        form = orjson.loads(own[_TUNER])
        if form.pop("form") != _FORM:
            raise ConfigurationError(f"control: {_TUNER!r} is of a newer shardkit; use the version that wrote it")
        memory = Memory.of(**form)
        # Time to Live may be days late: what has ended must not fill the memory.
        living = {name: item for name, item in items.items() if item.get(EXPIRES, now) >= now}
        reports = {name: report for name, item in living.items() if (report := Report.of(item))}
        # Where the time of the last change is not known, a step records it and is refused.
        waits = state.since is not None and state.rest(now) > 0
        # A new item takes a stub more, until all processes have left "switch".
        steady = state.stage != "switch" and not (waits and state.stage == "move")
        fleet = memory.see(now, reports, lambda key: len(strategy.shards_for(key_of(key))), steady=steady)
        action, reason = self._under_way(state, memory, now, waits=waits)
        shards, read_units = dict[str, int](), 0.0
        if not action:
            rule = replace(self._rule, moves=not isinstance(strategy, RandomSuffix))
            shards, reason, read_units = rule.decide(memory, now, fleet)
            action = "grow" if shards else "none"
        applied = self._apply and action != "none"
        if applied and shards:
            memory.growths.append(Growth(now, {key: fleet.shards[key] for key in shards}, shards))
        key, heat = max(fleet.heats.items(), key=lambda pair: pair[1].wanted, default=(None, Heat()))
        decision = {
            "at": now,
            "until": now,
            "action": action,
            "reason": reason,
            "applied": applied,
            "reports": fleet.reports,
            "processes": fleet.processes,
            "key": key and key[:_MOST_KEY],
            "peak": round(heat.peak, 1),
            "upper_bound": round(heat.wanted, 1),
            "shards": {key[:_MOST_KEY]: number for key, number in shards.items()},
            "read_units": round(read_units, 1),
        }
        self._put(own, memory, decision)
        if applied:
            self._do(action, state, _by_key(memory.growths[-1]))
        return decision

    def log(self) -> list[dict[str, Any]]:
        """Return the last 50 decisions, or as many as 20 KB hold; of equal ones in a row, one, ``until`` the last.

        Example:
            [decision["reason"] for decision in tuner.log()]
        """
        log: list[dict[str, Any]] = orjson.loads(self._items()[0].get(_TUNER, {_LOG: "[]"})[_LOG])
        return log

    def _items(self) -> tuple[dict[str, Mapping[str, Any]], float]:
        """Return the items about the table, by sort key, and the service's time."""
        partition, sort = self._keys
        found: dict[str, Mapping[str, Any]] = {}
        query: dict[str, Any] = {"KeyConditionExpression": Key(partition).eq(heat_name(self._table.name))}
        while True:
            page = self._control.query(ConsistentRead=True, **query)
            found |= {item[sort]: item for item in page["Items"]}
            if "LastEvaluatedKey" not in page:
                return found, service_time(page) if self._clock is None else self._clock()
            query["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _under_way(self, state: ShardMapState, memory: Memory, now: float, *, waits: bool) -> tuple[str, str]:
        """Return the step that is due and why; no step: the table may grow."""
        if state.stage in {"old", "new"}:
            return ("none", _WAITS) if waits else ("", "")
        own = False
        with suppress(ConfigurationError):  # its keys have those shards already
            own = bool(memory.growths) and state.new == grown(state.old, _by_key(memory.growths[-1]))
        if not own:
            return "none", "another's move is under way; end it first, with shardkit reshard"
        if state.stage == "move":
            memory.growths[-1].effect = memory.growths[-1].effect or now
        if waits:
            return "none", _WAITS
        if state.stage != "move":
            return "advance", "a growth is under way"
        if self._finish or isinstance(state.new, RandomSuffix):
            return "finish", "a growth is in effect, and its end lets the next one begin"
        return "none", "a growth is in effect, and the next one needs its items to be moved: --finish"

    def _put(self, own: Mapping[str, Any], memory: Memory, decision: Mapping[str, Any]) -> None:
        """Write the memory and the log, if they are as they were read."""
        log: list[Any] = [*orjson.loads(own[_LOG]), decision][-_MOST_DECISIONS:]
        if log[1:] and all(log[-2][name] == decision[name] for name in _SAME):
            log[-2:] = [{**decision, "at": log[-2]["at"]}]
        while len(text := orjson.dumps(log)) > _MOST_BYTES:
            log = log[1:]
        attributes = {_TUNER: orjson.dumps({"form": _FORM, **vars(memory)}).decode(), _LOG: text.decode()}
        key = dict(zip(self._keys, (heat_name(self._table.name), _TUNER), strict=True))
        seen = own[GENERATION]
        condition = Attr(GENERATION).eq(seen) if seen else Attr(GENERATION).not_exists()
        try:
            self._control.put_item(Item={**key, **attributes, GENERATION: seen + 1}, ConditionExpression=condition)
        except Exception as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise
            raise StageError("control: another tuner of the table ran meanwhile; nothing was done") from error

    def _do(self, action: str, state: ShardMapState, shards: Mapping[str | bytes, int]) -> None:
        with suppress(TooEarlyError):  # where the time of the last change was not known
            if action != "finish":
                self._admin.grow(shards, generation=state.generation)
            elif isinstance(state.new, RandomSuffix) or move(self._table, write_units=self._write_units).complete:
                self._admin.finish()
            else:
                raise StageError("stage: items are left that could not be moved; see shardkit reshard move", "move")


def _by_key(growth: Growth) -> dict[str | bytes, int]:
    return {key_of(key): number for key, number in growth.shards.items()}
