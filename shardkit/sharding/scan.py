"""Scan a table or its segments, and show logical items."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardkit.core.in_flight import InFlight
from shardkit.core.machine import Answer, Done, Machine, Program, Response, Send, Step
from shardkit.dynamodb.expressions.rewrite import grouped, project
from shardkit.dynamodb.expressions.tokens import rebuilt
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import CursorError, UnsupportedExpressionError, brief, shard_error
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import NOT_OF_WHOLE_SCANS, FanOutOptions, projected, stored_filters, wire_request
from shardkit.sharding.query.cursor import Cursor, as_key, from_key, is_token, made_for
from shardkit.sharding.query.plan import check_position
from shardkit.sharding.shard_map import map_key

Row = tuple[dict[str, Any], "int | None"]
"""A logical item in the caller's form, and its shard."""


def scan(sharding: Sharding, params: Mapping[str, Any]) -> Program[dict[str, Any]]:
    """Read one page of the table or of one segment."""
    request = _Request(sharding, params)
    response = yield request.send({})
    rows = request.rows(response.get("Items", ()))
    shown = {**response, "Shards": [shard for _, shard in rows]}
    if "Items" in response:
        shown["Items"] = [item for item, _ in rows]
    if last := shown.pop("LastEvaluatedKey", None):
        shown["LastEvaluatedKey"] = request.cursor(last)
    return shown


class _Request:
    def __init__(self, sharding: Sharding, params: Mapping[str, Any]) -> None:
        wire = wire_request(sharding, "Scan", params)
        wire = stored_filters(sharding, wire, "FilterExpression", "ScanFilter")
        if sharding.has_map:
            wire = without_map(sharding, wire)
        self._sharding = sharding
        self._index = sharding.sharded.get(wire.get("IndexName"))
        self.purpose = made_for(sharding.table, wire.get("IndexName"), "scan")
        given = wire.pop("ExclusiveStartKey", None)
        if given is not None:
            token = is_token(given, sharding.form)
            if not token and not sharding.form.keys_as_cursors:
                raise CursorError(
                    f"ExclusiveStartKey: {brief(params['ExclusiveStartKey'], 200)} is not a cursor of shardkit; pass "
                    "LastEvaluatedKey unchanged"
                )
            if token:
                wire["ExclusiveStartKey"] = _position(sharding, wire.get("IndexName"), given, self.purpose)
            else:
                sharding.key_of(given, kind="cursor")
                wire["ExclusiveStartKey"] = from_key(sharding, given, self._index)
        marks = sharding.marks(wire.get("IndexName"))
        # Which place an item that moves has is calculated from its key.
        own = sharding.keys.names + marks if len(sharding.readings) > 1 else (sharding.partition_key,)
        self._params, self._hidden = project(projected(sharding, wire), own)

    def cursor(self, last: WireItem) -> dict[str, Any]:
        """Return the cursor after a page's last key, in the caller's form."""
        form = self._sharding.form
        if form.keys_as_cursors:
            return form.shown(as_key(self._sharding, last, self._index))
        return Cursor(None, last).token(self.purpose, form, self._sharding.cursor_period)

    def send(self, more: Mapping[str, Any]) -> Send:
        return Send("Scan", {**self._params, **more})

    def rows(self, items: Iterable[WireItem]) -> list[Row]:
        sharding = self._sharding
        rows: list[Row] = []
        for stored in items:
            item, shard = sharding.logical_item_from(stored, self._index)
            for name in self._hidden:
                item.pop(name, None)
            rows.append((sharding.form.shown(item), shard))
        return rows


def _position(sharding: Sharding, index: str | None, given: Mapping[str, Any], purpose: str) -> WireItem:
    what = f"a Scan of {sharding.table!r}"
    cursor = Cursor.read(given, purpose, what, sharding.form, sharding.cursor_period)
    # The key attributes of an index that key_schema= omits are unknown.
    known = index is None or index in sharding.indexes
    names = {*sharding.schema(index).names, *sharding.keys.names} if known else {*cursor.key, *sharding.keys.names}
    check_position(sharding, cursor.key, names, what)
    if cursor.shard is not None:
        raise CursorError(
            f"ExclusiveStartKey: the cursor has shard {cursor.shard}, which {what} does not have; start the read again"
        )
    return cursor.key


def without_map(sharding: Sharding, wire: Mapping[str, Any]) -> dict[str, Any]:
    """Let the service leave out the shard map, so that counts are right too."""
    if "ScanFilter" in wire:
        raise UnsupportedExpressionError(
            f"ScanFilter: not supported on table {sharding.table!r}, whose shard map is hidden; use FilterExpression"
        )
    ours = "#shardkit_map <> :shardkit_map"
    given = wire.get("FilterExpression")
    key = map_key(sharding.keys, sharding.types)[sharding.partition_key]
    text = ours if given is None else f"{grouped(given)} AND {ours}"
    names, values = {"#shardkit_map": sharding.partition_key}, {":shardkit_map": key}
    return rebuilt(wire, {"FilterExpression": text}, names=names, values=values)


class ScanRows:
    """Yields the rows of a stream as items, or as ``(item, shard)``."""

    def __init__(self, *, return_shards: bool) -> None:
        self._return_shards = return_shards
        self._rows: deque[Row] = deque()
        self._ended = False

    @property
    def wanting(self) -> bool:
        """Whether more rows must be added before the next ``take``."""
        return not (self._rows or self._ended)

    def begin(self, stream: Machine[list[Row]]) -> Machine[list[Row]]:
        """Return the machine that reads the stream."""
        return stream

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows; an empty sequence is the end."""
        self._rows.extend(rows)
        self._ended = not rows

    def take(self) -> Any:
        if not self._rows:
            raise StopIteration
        row = self._rows.popleft()
        return row if self._return_shards else row[0]

    def end(self) -> None:
        self._ended = True
        self._rows.clear()


class StreamOfSegments:
    """A whole Scan, its segments concurrently. Each result is the rows of one page; an empty result is the end.

    The timeout applies to each wait for a page; time that the caller spends between pages does not count.
    """

    def __init__(self, sharding: Sharding, params: Mapping[str, Any], segments: int, fan_out: FanOutOptions) -> None:
        own = sorted({*NOT_OF_WHOLE_SCANS} & params.keys())
        if own or params.get("Select") == "COUNT":
            raise UnsupportedExpressionError(
                f"{', '.join(own) or 'Select'}: not supported by scan_items(), which yields the items of all segments; "
                "use scan()"
            )
        self._request = _Request(sharding, params)
        self._segments = segments
        self._fan_out = fan_out
        self._parts: dict[int, dict[str, Any]] = {
            segment: {"Segment": segment, "TotalSegments": segments} if segments > 1 else {}
            for segment in range(segments)
        }
        """What the next request of each segment has."""
        self._requests = InFlight(self._parts, concurrency=fan_out.concurrency, timeout=fan_out.timeout)
        self._pages: deque[list[Row]] = deque()
        self._errors: dict[int | None, BaseException] = {}
        self._answered = False

    def next(self, now: float) -> Step[list[Row]]:
        requests = self._requests
        if self._pages:
            requests.restart()
            return Done(self._pages.popleft())
        if requests.late(now):
            error = TimeoutError(f"Scan did not answer within {self._fan_out.timeout} seconds")
            for late in requests.busy:
                self._failed(late, error)
            requests.drop(requests.busy)
        if self._errors and (self._fan_out.cancels or not requests.in_flight):
            raise self._failure()
        segment = None if self._errors else requests.next(now)
        if segment is not None:
            send = self._request.send(self._parts[segment])
            requests.sent(send)
            return send
        return requests.wait(now) if requests.in_flight else Done([])

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        segment = self._requests.answered(send)
        if segment is None:
            return  # it arrived after the deadline
        self._requests.done(segment)
        if isinstance(answer, Exception):
            self._failed(segment, answer)
            return
        self._answered = True
        if rows := self._rows(answer):
            self._pages.append(rows)
        if last := answer.get("LastEvaluatedKey"):
            self._parts[segment] = {**self._parts[segment], "ExclusiveStartKey": last}
            self._requests.add(segment)

    def _failed(self, segment: int, error: BaseException) -> None:
        self._errors[segment if self._segments > 1 else None] = error

    def _rows(self, answer: Response) -> list[Row]:
        return self._request.rows(answer.get("Items", ()))

    def _failure(self) -> BaseException:
        first = next(iter(self._errors.values()))
        # If no segment answered and all have the same error, shardkit has nothing to add to the service's error.
        alike = not self._answered and len({code_of(error) for error in self._errors.values()}) == 1
        if not isinstance(first, TimeoutError) and (alike or self._segments == 1):
            return first
        return shard_error(first)(
            f"{len(self._errors)} of {self._segments} segments of the scan failed ({first}); the scan ended here: "
            "the rest of every segment was not read",
            self._errors,
        )
