"""A meter's eyes on one client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from shardkit.capacity.attachments import ClientObserver, ask_for_units, take_units
from shardkit.capacity.backlog import Charged, Recorder
from shardkit.capacity.charge import charge_of, keys_of, whole_of, wire_key_of
from shardkit.capacity.scopes import Totals, scopes_of
from shardkit.dynamodb.requests import METERED, tables_of
from shardkit.dynamodb.service_errors import is_throttle_code, scope_of_reasons, throttle_reasons_in
from shardkit.runtime.observers import Call

__all__ = ["MeterObserver"]

_UNPROCESSED = "UnprocessedItems"
_log = logging.getLogger("shardkit")


class _Note:
    """What is known of a call that is under way: who counts it, and what its last attempt met, if it failed."""

    failed: tuple[str, ...] = ()
    retries = 0
    tags: tuple[tuple[str, str], ...] = ()

    def __init__(self, recorders: tuple[Recorder, ...], *, asked: bool) -> None:
        self.recorders = recorders
        self.asked = asked


class MeterObserver(ClientObserver):
    """One meter's eyes on one client.

    Nothing that goes wrong in here reaches the caller's call; it is logged.
    """

    def __init__(self, meter: Totals, client: Any) -> None:
        super().__init__(client)
        self._meter = meter
        self._recorders = (meter.recorder,)
        self._backlog = meter.recorder.backlog
        self._clock = meter.recorder.clock

    def before(self, call: Call) -> None:
        """Ask for what the call consumes, and note who counts it."""
        if call.operation not in METERED:
            return
        try:
            only = self._only
            if only is not None and call.params.get("TableName") not in only and only.isdisjoint(tables_of(call)):
                return
            note = _Note(self._recorders, asked=ask_for_units(call))
            if scopes := scopes_of(self._meter):
                note.recorders += tuple([scope.recorder for scope in scopes])
                # The innermost of one name holds.
                note.tags = tuple({name: value for scope in scopes for name, value in scope.tags.items()}.items())
            call.notes[self] = note
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the meter could not read the request; it is not counted", call.operation)

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """Count an attempt that failed, by what the service or the network said."""
        note = call.notes.get(self)
        if note is not None:
            try:
                self._failed(call, note, response)
            except Exception:  # noqa: BLE001 - of whatever kind
                _log.exception("%s: the meter could not read an attempt; it is not counted", call.operation)

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """Count what the call consumed."""
        note = call.notes.pop(self, None)
        if note is None:
            return
        try:
            consumed = take_units(parsed, asked=note.asked)
            whole = whole_of(call, consumed, parsed, self._keys)
            now = self._clock()
            if whole is not None:
                table, keys, report = whole
                if not note.asked:
                    report = _copied(report)  # the response is the caller's
                self._backlog.put((call.operation, table, keys, call.sharding, report, now, note.recorders, note.tags))
            else:
                charge = charge_of(call, consumed, parsed, only=self._only, partition_keys=self._keys)
                self._backlog.put(Charged(charge, now, note.recorders, note.tags))
            self._attempts(call, note, parsed)
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the meter could not read the response; it is not counted", call.operation)

    def _attempts(self, call: Call, note: _Note, parsed: Mapping[str, Any]) -> None:
        if "Error" in parsed:
            if not note.failed:  # answered by a handler, without an attempt
                self._failed(call, note, parsed)
        elif note.failed:
            self._retried(note)
        elif parsed.get(_UNPROCESSED):
            self._throttled(call, note, (_UNPROCESSED,), by_key=False)
        metadata = parsed.get("ResponseMetadata")
        unseen = (metadata.get("RetryAttempts") or 0) - note.retries if metadata else 0
        if unseen > 0:
            note.failed = ("unknown",) * unseen
            self._retried(note)

    def _failed(self, call: Call, note: _Note, response: Mapping[str, Any]) -> None:
        if note.failed:
            self._retried(note)
        code = response["Error"].get("Code", "unknown")
        reasons = throttle_reasons_in(response) if is_throttle_code(code) else frozenset()
        note.failed = tuple(sorted(reasons)) or (code,)
        if is_throttle_code(code):
            self._throttled(call, note, note.failed, by_key=scope_of_reasons(reasons) == "key")

    def _retried(self, note: _Note) -> None:
        note.retries += 1
        for recorder in note.recorders:
            with recorder as tally:
                tally.retries.update(note.failed)

    def _throttled(self, call: Call, note: _Note, reasons: tuple[str, ...], *, by_key: bool) -> None:
        tables = tables_of(call)
        if self._only is not None:
            tables &= self._only
        key = None
        if by_key and len(tables) == 1:
            (table,) = tables
            logical, _ = keys_of(table, wire_key_of(call, table, self._keys), call.sharding)
            key = None if logical is None else (table, logical)
        now = self._clock()
        for recorder in note.recorders:
            with recorder as tally:
                tally.throttled(reasons, now, operation=call.operation, tables=tables, key=key)


def _copied(structure: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(part) if isinstance(part, dict) else part for name, part in structure.items()}
