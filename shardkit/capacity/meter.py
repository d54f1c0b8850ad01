"""The meter: counts what the calls of a client consume, from their responses, or else estimated."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from shardkit.capacity.attach import (
    ClientObserver,
    Observers,
    ask_for_units,
    described_by,
    parts_of,
    schemas_of,
    take_units,
    target_of,
)
from shardkit.capacity.charge import (
    Charge,
    KeyOfIndex,
    KeyOfTable,
    charge_of,
    index_keys_throttled,
    keys_of,
    plain_key,
    sharding_in,
    whole_of,
    wire_key,
    wire_key_of,
)
from shardkit.capacity.heat_report import HeatReport
from shardkit.capacity.hot_keys import HotKeyWarning, HotKeyWatch
from shardkit.capacity.recorder import Backlog, Recorder, Whole
from shardkit.capacity.scopes import Scope, Totals, scopes_of
from shardkit.capacity.seconds import Seconds
from shardkit.capacity.thinning import RowKey
from shardkit.capacity.trace import Trace
from shardkit.core.calls import explains_calls
from shardkit.core.checks import check_text
from shardkit.dynamodb.requests import METERED, tables_of
from shardkit.dynamodb.service_errors import (
    is_throttle_code,
    scope_of_reasons,
    throttle_reasons,
    throttled_indexes,
)
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.observers import CacheLookup, CacheObserver, Call
from shardkit.runtime.targets import Attachment, SessionAttachment, events_of_session

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding


@explains_calls
class CapacityMeter(Totals):
    """Count the capacity units that calls consume: as the responses report them, or else estimated.

    Example:
        >>> meter = CapacityMeter()
        >>> with meter.attach(table), meter.scope("import") as used:  # doctest: +SKIP
        ...     table.put_item(Item={"Date": "2014-07-09", "Total": 12})
        >>> used.write_units, meter.hottest(5)  # doctest: +SKIP
        (1.0, [HotKey(table='Orders', key='2014-07-09', usage=Usage(read_units=0.0, write_units=1.0, ...))])

    The meter has the figures of all its scopes together, and of calls outside of them: ``read_units``, ``write_units``,
    ``estimated_read_units``, ``estimated_write_units``, ``requests``, ``rates``, ``throttles``, ``retries``,
    ``by_table``, ``by_index``, ``by_operation``, ``by_key``, ``by_physical_key``, ``by_tag``, ``hottest(n)``,
    ``skew(key)``, ``advise()``, and of cached tables ``cache``, ``cache_by_table``, ``cache_by_key``. ``print(meter)``
    shows them; ``to_dict()`` and ``to_json()`` return them.

    Two kinds of calls are estimated: successful ones without ``ConsumedCapacity``, and writes whose condition failed
    (the size of the item if the error carries it, else one unit, the least it can cost). Calls that failed otherwise
    count as requests without units.

    Args:
        max_keys: how many keys ``by_key`` holds for reads, and how many for writes. Beyond, the keys with the fewest
            units move to ``other_keys``, and a key's figure may be too low by at most all units divided by
            ``max_keys``.
        window: seconds that ``rates`` looks back, above 0.
        warn_at: a share of what a partition serves (1,000 write units or 3,000 read units a second), above 0 and at
            most 1. A stored key that reaches it within one second is logged as a warning, at most once a minute. None:
            no warnings.
        trace: where to record what calls take, by second and key, for ``shardkit plan trace``; None: nowhere.
        heat: what reports the hottest keys to ``shardkit tune``; None: nothing.
        on_warning: is called with each :class:`HotKeyWarning`, on the thread (or in the task) that made the call, so it
            must return quickly. Its errors are logged.
        clock: returns the time in seconds; for tests.

    Raises:
        ConfigurationError: ``max_keys`` is less than 1, ``window`` is not above 0, ``warn_at`` or ``on_warning`` is
            invalid, ``on_warning`` is given without ``warn_at``, or ``trace`` or ``heat`` is of another class.

    Cost:
        No request. Every call asks for ``ReturnConsumedCapacity`` unless its caller did; a caller who did not ask does
        not see the answer. One more pass over the items of batches. About 300 bytes per key that is held, in the meter
        and in every scope.

    Source:
        DynamoDB API reference, ``ReturnConsumedCapacity``; DynamoDB Developer Guide, "Best practices for tables" (what
        a partition serves).
    """

    def __init__(
        self,
        *,
        max_keys: int = 10_000,
        window: float = 60.0,
        warn_at: float | None = None,
        on_warning: Callable[[HotKeyWarning], object] | None = None,
        trace: Trace | None = None,
        heat: HeatReport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if warn_at is None and on_warning is not None:
            raise ConfigurationError("on_warning: must be given together with warn_at; give for example warn_at=0.8")
        for name, given, kind in (("trace", trace, Trace), ("heat", heat, HeatReport)):
            if not isinstance(given, kind | None):
                raise ConfigurationError(f"{name}: must be a {kind.__name__}, got {brief(given)}")
        watchers = tuple(one for one in (trace, heat) if one is not None)
        watch = None if warn_at is None else HotKeyWatch(warn_at, on_warning)
        backlog = Backlog(window=window, watch=watch, takers=[one.take for one in watchers])
        self._recorder = partial(Recorder, backlog, max_keys=max_keys, window=window, clock=clock)
        super().__init__("total", self._recorder(watch=watch), {})
        observer: Callable[..., _MeterObserver] = _MeterObserver
        for one in watchers:
            one.record(self, backlog, clock)
            observer = partial(_WatchedObserver, watchers)
        self._observers = Observers(partial(observer, self))

    def attach(self, target: Any, *, key_schema: Mapping[str, str | Mapping[str, Any]] | None = None) -> Attachment:
        """Count the calls of a client, those of one table on its client, or those of a session's clients.

        Example:
            >>> with meter.attach(boto3.client("dynamodb"), key_schema={"Orders": "Date"}):  # doctest: +SKIP
            ...     ...

        Args:
            target: one of these, of boto3, aioboto3, botocore or aiobotocore:

                - a client or a resource: all tables;
                - a ``Table``, a :class:`shardkit.ShardedTable` or a :class:`shardkit.aio.ShardedTable`: that table, all
                  calls on the client that it holds;
                - a :class:`shardkit.TimeSeries` or a :class:`shardkit.aio.TimeSeries`: all its tables, likewise, also
                  those that are created later;
                - a session: all DynamoDB clients that it makes from now on, those of its resources included.
            key_schema: table names to the names of their partition keys, for ``by_key``. A ``ShardedTable`` and a boto3
                ``Table`` do not need it. An aioboto3 ``Table`` does, and so does every table that is used through a
                client: ``by_key`` has only the tables that are named here. For the keys of its global indexes, give a
                table's description instead, as CreateTable takes it: ``{"KeySchema": […], …}``.

        Returns:
            An :class:`Attachment`: a context manager that also has ``detach()``. A target attached twice counts once.

        Raises:
            ConfigurationError: ``target`` or ``key_schema`` is invalid.

        Cost:
            One DescribeTable for a boto3 ``Table`` that is not loaded and not in ``key_schema``; if it is refused,
            ``by_key`` stays empty for the table.
        """
        keys, described = schemas_of(key_schema)
        events = events_of_session(target)
        if events is not None:
            return SessionAttachment(
                events, lambda client: self._observers.attach(client, None, keys, described=described)
            )
        client, table, _ = target_of(target, keys, describe=False)
        if table is not None and table not in keys and (own := described_by(target)) is not None:
            keys[table], described[table] = own.partition_key, own
        return self._observers.attach(client, table, keys, described=described, is_part=parts_of(target))

    def scope(self, name: str, /, **tags: str) -> Scope:
        """Return a scope, which counts the calls made inside its ``with`` and keeps the figures afterwards.

        Example:
            >>> with meter.scope("import", tenant="acme") as used:  # doctest: +SKIP
            ...     ...
            >>> used.write_units, meter.by_tag["tenant", "acme"].write_units  # doctest: +SKIP
            (20.0, 20.0)

        Args:
            name: the scope's name in ``print(scope)``.
            tags: counts the calls in ``by_tag`` too. The tags of outer scopes are included; of tags with the same name,
                the innermost counts. A tag may have any name, even ``name``.

        Returns:
            A :class:`Scope`, with the same figures as the meter. Scopes nest: a call counts in all scopes around it.
            Threads count if they run in a copy of the context (``contextvars.copy_context``), as shardkit's do.

        Raises:
            ConfigurationError: ``name`` or a tag is not a str, or cannot be encoded in UTF-8 (an unpaired surrogate).

        Cost:
            No request.
        """
        check_text("name", name)
        for text in (*tags, *tags.values()):
            check_text("tags", text)
        return Scope(self, name, self._recorder(), tags)


_UNPROCESSED = "UnprocessedItems"
_log = logging.getLogger("shardkit")


class _Note:
    """A call under way: who counts it, and why its last attempt failed, if it did."""

    failed: tuple[str, ...] = ()
    retries = 0
    tags: tuple[tuple[str, str], ...] = ()

    def __init__(self, recorders: tuple[Recorder, ...], *, asked: bool) -> None:
        self.recorders = recorders
        self.asked = asked


class _MeterObserver(ClientObserver, CacheObserver):
    """Counts the calls of one client for a meter. An error in here is logged, and does not reach the caller."""

    def __init__(self, meter: Totals, client: Any) -> None:
        super().__init__(client)
        self._meter = meter
        self._recorders = (meter.recorder,)
        self._backlog = meter.recorder.backlog
        self._clock = meter.recorder.clock

    def before(self, call: Call) -> None:
        if call.operation not in METERED:
            return
        try:
            only = self._only
            if (
                only is not None
                and call.params.get("TableName") not in only
                and not any(table in only for table in tables_of(call))
            ):
                return
            note = _Note(self._recorders, asked=ask_for_units(call))
            if scopes := scopes_of(self._meter):
                note.recorders += tuple([scope.recorder for scope in scopes])
                # Of tags with the same name, the innermost counts.
                note.tags = tuple({name: value for scope in scopes for name, value in scope.tags.items()}.items())
            call.notes[self] = note
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the meter could not read the request; it is not counted", call.operation)

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        note = call.notes.get(self)
        if note is not None:
            try:
                self._failed(call, note, response)
            except Exception:  # noqa: BLE001 - of whatever kind
                _log.exception("%s: the meter could not read an attempt; it is not counted", call.operation)

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        note = call.notes.pop(self, None)
        if note is None:
            return
        try:
            consumed = take_units(parsed, asked=note.asked)
            whole = whole_of(call, consumed, parsed, self._keys, self._described)
            seen: Whole | Charge
            if whole is None:
                seen = charge_of(
                    call, consumed, parsed, only=self._only, partition_keys=self._keys, described=self._described
                )
            else:
                table, keys, report, index_keys = whole
                # Unless the meter asked for it, the report is the caller's, who may change it.
                report = report if note.asked else _copied(report)
                seen = call.operation, sharding_in(call, table), table, keys, report, index_keys
            self._backlog.put(seen, self._clock(), note.recorders, note.tags)
            self._attempts(call, note, parsed)
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the meter could not read the response; it is not counted", call.operation)

    def looked_up(self, table: str, lookups: Sequence[CacheLookup]) -> None:
        if not any(known.table in {None, table} for known in self._attached):
            return
        try:
            seen = [(_key_of(table, key), status, units) for key, status, units in lookups]
            for recorder in (*self._recorders, *(scope.recorder for scope in scopes_of(self._meter))):
                recorder.look_up(table, seen)
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("the meter could not read a lookup of table %s; it is not counted", table)

    def _attempts(self, call: Call, note: _Note, parsed: Mapping[str, Any]) -> None:
        if "Error" in parsed:
            if not note.failed:  # a handler answered, without an attempt
                self._failed(call, note, parsed)
        elif note.failed:
            self._retried(note)
        elif parsed.get(_UNPROCESSED):
            self._throttled(call, note, (_UNPROCESSED,), {})
        metadata = parsed.get("ResponseMetadata")
        unseen = (metadata.get("RetryAttempts") or 0) - note.retries if metadata else 0
        if unseen > 0:
            note.failed = ("unknown",) * unseen
            self._retried(note)

    def _failed(self, call: Call, note: _Note, response: Mapping[str, Any]) -> None:
        if note.failed:
            self._retried(note)
        code = response["Error"].get("Code", "unknown")
        reasons = throttle_reasons(response) if is_throttle_code(code) else frozenset()
        note.failed = tuple(sorted(reasons)) or (code,)
        if is_throttle_code(code):
            self._throttled(call, note, note.failed, response)

    def _retried(self, note: _Note) -> None:
        note.retries += 1
        for recorder in note.recorders:
            with recorder as tally:
                tally.retries.update(note.failed)

    def _throttled(self, call: Call, note: _Note, reasons: tuple[str, ...], response: Mapping[str, Any]) -> None:
        tables = tables_of(call)
        if self._only is not None:
            tables = {table for table in tables if table in self._only}
        key = None
        index_keys: Mapping[KeyOfIndex, Sharding | None] = {}
        scope = scope_of_reasons(throttle_reasons(response)) if response else None
        if len(tables) == 1 and scope in {"key", "index"}:
            (table,) = tables
            indexes = throttled_indexes(response)
            index_keys = index_keys_throttled(call, table, indexes, self._described)
            if scope == "key" or len(index_keys) < len(indexes):  # an index may have the table's key
                logical, _ = keys_of(wire_key_of(call, table, self._keys), sharding_in(call, table))
                key = None if logical is None else (table, logical)
        now = self._clock()
        for recorder in note.recorders:
            with recorder as tally:
                tally.throttled(reasons, now, operation=call.operation, tables=tables, key=key, index_keys=index_keys)


class _WatchedObserver(_MeterObserver):
    """Also shows what was throttled, and every 32nd call: its sort key, and the time in its answer."""

    def __init__(self, watchers: tuple[Seconds, ...], meter: Totals, client: Any) -> None:
        super().__init__(meter, client)
        self._watchers = watchers
        self._looks = cycle([True, *[False] * 31])

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        super().after(call, parsed)
        if not next(self._looks):
            return
        try:
            for key in self._rows_of(call):
                known = sharding_in(call, key[1]) or self._described.get(key[1])
                name = known.keys.sort[0] if known is not None and known.keys.sort else None
                sort = wire_key(call.params.get("Key") or call.params.get("Item") or {}, name)
                if sort is not None:
                    for one in self._watchers:
                        one.see_item(key, sort[1])
            metadata = parsed.get("ResponseMetadata") or {}
            for one in self._watchers:
                one.see_date(metadata.get("HTTPHeaders", {}).get("date"), self._clock())
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: a trace or a report could not look at the call", call.operation)

    def _throttled(self, call: Call, note: _Note, reasons: tuple[str, ...], response: Mapping[str, Any]) -> None:
        super()._throttled(call, note, reasons, response)
        for key in self._rows_of(call):
            for one in self._watchers:
                one.throttle(key, self._clock())

    def _rows_of(self, call: Call) -> Iterator[RowKey]:
        for table in tables_of(call):
            if self._only is None or table in self._only:
                keys = keys_of(wire_key_of(call, table, self._keys), sharding_in(call, table))
                yield call.operation, table, None, *keys


def _key_of(table: str, key: Mapping[str, Any] | None) -> KeyOfTable | None:
    if key is None:
        return None
    ((letter, content),) = key.items()
    return table, plain_key(letter, content)


def _copied(structure: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(part) if isinstance(part, dict) else part for name, part in structure.items()}
