"""A meter's eyes on one client."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardkit.capacity.charge import charge_of, the_key_of
from shardkit.capacity.charges import OPERATIONS, tables_of
from shardkit.capacity.scopes import Scope, Totals, scopes_of
from shardkit.events import Call, observe, unobserve
from shardkit.faults import is_throttle_code, scope_of_reasons, throttle_reasons_in

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Attached", "Attachment", "MeterObserver"]

_ASK = "ReturnConsumedCapacity"
_UNPROCESSED = "UnprocessedItems"
_log = logging.getLogger("shardkit")


class Attachment:
    """A meter on a client, a table or a session, until ``detach`` or the end of its ``with``."""

    def detach(self) -> None:
        """Count no more calls through this attachment; doing it twice does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Give the attachment; it counts already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach."""
        self.detach()


class Attached(Attachment):
    """A meter on one client, for one table or for all."""

    def __init__(self, observer: MeterObserver, table: str | None, keys: Mapping[str, str]) -> None:
        self._observer = observer
        self.table = table
        self.keys = keys

    def detach(self) -> None:
        """Count no more calls through this attachment; doing it twice does nothing."""
        self._observer.detach(self)


class _Note:
    """What is known of a call that is under way: who counts it, and what its last attempt met, if it failed."""

    __slots__ = ("asked", "failed", "retries", "scopes", "tags")

    def __init__(self, scopes: tuple[Scope, ...], *, asked: bool) -> None:
        self.asked = asked
        self.scopes = scopes
        self.tags = tuple({name: value for scope in scopes for name, value in scope.tags.items()}.items())
        self.failed: tuple[str, ...] = ()
        self.retries = 0


class MeterObserver:
    """One meter's eyes on one client, however many attachments it has there: a call is counted once.

    Nothing that goes wrong in here reaches the caller's call; it is logged.
    """

    def __init__(self, meter: Totals, client: Any) -> None:
        self._meter = meter
        # Weak: a client that is dropped while it is measured must not live on through its own handlers.
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._attached: tuple[Attached, ...] = ()
        self._only: frozenset[str] | None = None
        self._keys: Mapping[str, str] = {}

    def attach(self, table: str | None, keys: Mapping[str, str]) -> Attached:
        """Count the calls to a table, or to all."""
        attached = Attached(self, table, keys)
        with self._lock:
            self._set((*self._attached, attached))
            client = self._client()
            if client is not None:
                observe(client, self)
        return attached

    def detach(self, attached: Attached) -> None:
        """Count them no more."""
        with self._lock:
            self._set(tuple(known for known in self._attached if known is not attached))
            client = self._client()
            if not self._attached and client is not None:
                unobserve(client, self)

    def _set(self, attached: tuple[Attached, ...]) -> None:
        tables = [known.table for known in attached]
        self._only = frozenset(table for table in tables if table is not None) if all(tables) else None
        self._keys = {table: name for known in attached for table, name in known.keys.items()}
        self._attached = attached

    def before(self, call: Call) -> None:
        """Ask for what the call consumes, and note who counts it."""
        if call.operation not in OPERATIONS:
            return
        try:
            if self._only is not None and self._only.isdisjoint(tables_of(call)):
                return
            asked = call.params.get(_ASK, "NONE") == "NONE"
            if asked:
                call.params[_ASK] = "INDEXES"
            call.notes[self] = _Note(scopes_of(self._meter), asked=asked)
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
            # Who asked takes it out; that is the first who saw the request, and the last who sees the response.
            take = parsed.pop if note.asked else parsed.get
            consumed = take("ConsumedCapacity", None)
            charge = charge_of(call, consumed, parsed, only=self._only, partition_keys=self._keys)
            for totals in (self._meter, *note.scopes):
                totals.recorder.add(charge, note.tags)
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
        for totals in (self._meter, *note.scopes):
            with totals.recorder as tally:
                tally.retries.update(note.failed)

    def _throttled(self, call: Call, note: _Note, reasons: tuple[str, ...], *, by_key: bool) -> None:
        tables = tables_of(call)
        if self._only is not None:
            tables &= self._only
        key = None
        if by_key and len(tables) == 1:
            (table,) = tables
            logical, _ = the_key_of(call, table, self._keys)
            key = None if logical is None else (table, logical)
        for totals in (self._meter, *note.scopes):
            with totals.recorder as tally:
                now = totals.recorder.clock()
                tally.throttled(reasons, now, operation=call.operation, tables=tables, key=key)
