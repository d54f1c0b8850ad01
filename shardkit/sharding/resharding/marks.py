"""What tells an item that moves: its two homes, and the mark at its old one.

The attribute ``MARK`` at the old home says whether the item there is *live* (no mark), *frozen* (the mark is a token:
the mover, or whoever finishes its work, copies the item) or a *stub* (the item lives at the new home; here is nothing
but its key). It is shardkit's own: no caller sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from shardkit.dynamodb.values import WireItem, WireValue, comparable_item

MARK = "shardkit:move"
STUB: WireValue = {"S": "stub"}
State = Literal["absent", "frozen", "live", "stub"]

COPY_MARKED = ":stream"
"""What the token of a frozen item ends with on a table with a stream: its copy is marked until the item is gone."""


@dataclass(frozen=True)
class Homes:
    """The primary keys of an item at its old and at its new home, as they are stored."""

    old: WireItem
    new: WireItem

    @cached_property
    def same(self) -> bool:
        """Whether the item does not move."""
        return comparable_item(self.old) == comparable_item(self.new)


def is_stub(item: WireItem) -> bool:
    return item.get(MARK) == STUB


def is_frozen(item: WireItem) -> bool:
    return MARK in item and not is_stub(item)


def state_at_old_home(item: WireItem | None) -> State:
    """Return what the item, or the part of it with its mark, that was read at an old home says; None: nothing."""
    return "absent" if item is None else "stub" if is_stub(item) else "frozen" if is_frozen(item) else "live"


def unmarked(item: WireItem) -> WireItem:
    """Return an item, or a part of one, without the mark."""
    return {name: value for name, value in item.items() if name != MARK} if MARK in item else item
