"""The machine of a pass over the items that meet a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeVar, Unpack

from shardkit.core.machine import Response
from shardkit.dynamodb.expressions.rewrite import build_conditions
from shardkit.dynamodb.expressions.tokens import NAMES, VALUES, rebuilt, taken_placeholders
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, brief
from shardkit.passes.table_pass import PassOptions, R, TablePass
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import checked_types, stored_filters
from shardkit.sharding.shard_map import is_map_key

SEGMENTS = 100
"""Segments of a pass, unless the caller says otherwise: so many places of the table are written in turn."""
PAGE = 100  # items that a segment of a pass that writes holds at once: with all segments, 10,000 wait
T = TypeVar("T")


class Wanted(NamedTuple):
    """Which items a pass is about, and what becomes of each, in wire values.

    They are those that a Scan with the parameters ``scan`` returns, if ``test`` is true of the caller's form of them.
    ``change`` has the UpdateExpression, and also the placeholders of ``scan``; or ``function`` makes the new item.
    """

    operation: str = ""  # "": nothing becomes of them, they are counted
    scan: Mapping[str, Any] = {}
    test: Callable[[Any], Any] | None = None
    change: Mapping[str, Any] = {}
    function: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, sharding: Sharding, operation: str, options: Mapping[str, Any], change: Any = None) -> Self:
        where, index = options.get("where"), options.get("index")
        text = isinstance(where, str) or hasattr(where, "get_expression")
        if not (text or where is None or callable(where)):
            raise ConfigurationError(
                f'where: must be a condition (Attr("Status").eq("open")), its text, or a function of an item, got '
                f"{brief(where)}"
            )
        if operation == "UpdateItem" and not (isinstance(change, str) or callable(change)):
            raise ConfigurationError(
                f'change: must be an UpdateExpression ("SET Total = :t") or a function of an item, got {brief(change)}'
            )
        given = {name: options[name] for name in (NAMES, VALUES) if options.get(name)}
        given |= {} if index is None else {"IndexName": index}
        given |= {"FilterExpression": where} if text else {}
        given |= {"UpdateExpression": change} if isinstance(change, str) else {}
        # As one request, so that no placeholder means two things.
        wire = sharding.form.params(build_conditions(checked_types(given)))
        wire = stored_filters(sharding, wire, "FilterExpression")
        # The service refuses placeholders that are not used.
        every, of_scan = taken_placeholders(wire), {"IndexName", "FilterExpression"}
        changes = {name: one for name, one in rebuilt(wire, {}, released=every).items() if name not in of_scan}
        scan = rebuilt({name: wire[name] for name in wire if name != "UpdateExpression"}, {}, released=every)
        return cls(operation, scan, None if text else where, changes, change if callable(change) else None)


class Choosing(TablePass[R]):
    """A pass over the items that meet a condition. ``failed`` gets an item that fails, and why."""

    failed: Callable[[WireItem, Exception], object] = staticmethod(lambda *_: None)

    def __init__(
        self, sharding: Sharding, wanted: Wanted, report: R, scan: Mapping[str, Any], **options: Unpack[PassOptions]
    ) -> None:
        super().__init__(sharding.table, report, {**wanted.scan, **scan}, **options)
        self.sharding, self.wanted = sharding, wanted
        self._index = sharding.sharded.get(wanted.scan.get("IndexName"))

    def chosen(self, answer: Response, make: Callable[[WireItem, WireItem, int | None], T | None]) -> list[T]:
        """Return what ``make`` makes of each item that meets the condition, as stored and logical, and of its shard."""
        items, found = answer.get("Items", ()), []
        self.count(read=answer.get("ScannedCount", len(items)))
        for stored in items:
            if is_map_key(stored, self.sharding.keys):
                continue
            logical = stored
            try:
                logical, shard = self.logical(stored)
                made = make(stored, logical, shard) if self.meets(logical) else None
            except Exception as error:  # noqa: BLE001 - one bad item must not stop the pass
                self.fail(logical, error)
                continue
            if made is not None:
                found.append(made)
        return found

    def logical(self, stored: WireItem) -> tuple[WireItem, int | None]:
        return self.sharding.logical_item_from(stored, self._index)

    def meets(self, logical: WireItem) -> bool:
        return self.wanted.test is None or bool(self.wanted.test(self.sharding.form.shown(logical)))

    def key(self, item: WireItem) -> WireItem:
        return {name: item[name] for name in self.sharding.key_names}

    def concluded(self) -> R:
        return replace(self.report, complete=True)

    def fail(self, key: WireItem, error: Exception) -> None:
        super().fail(self.key(key), error)
        self.failed(key, error)
