"""What tells an item that moves: its two homes, and the mark at its old one.

The attribute ``MARK`` at the old home says whether the item there is *live* (no mark), *frozen* (the mark is a token:
the mover, or whoever finishes its work, copies the item) or a *stub* (the item lives at the new home; here is nothing
but its key). It is shardkit's own: no caller sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

from shardkit.dynamodb.values import WireItem, WireValue, comparable_item
from shardkit.errors import InvalidKeyError, ShardUnknownError, StageError, brief
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.indexes import ShardedIndex
from shardkit.sharding.layout import Sharding
from shardkit.sharding.spread import plain
from shardkit.strategies import Resharding, Stage

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


@dataclass(frozen=True)
class Moving(Sharding):
    """A table whose items are at their old or at their new home (``stage``: guard, switch or move).

    Its own ``strategy`` is the Resharding; operations use the plain shardings ``old`` and ``new``.
    """

    strategy: Resharding
    local: frozenset[str] = frozenset()
    """The local secondary indexes, which can be read strongly consistently."""
    hiding_marks: frozenset[str] = frozenset()
    """The indexes that may have stubs and do not have their marks: those of nothing but keys of the table."""

    @cached_property
    def stored_names(self) -> frozenset[str]:
        return self.sharded.stored_names | {self.partition_key, MARK}

    def marks(self, index: str | None) -> tuple[str, ...]:
        # Stubs have key attributes of the table alone: other indexes have none, and may not have the mark to read.
        return (MARK,) if {*self.schema(index).names} <= {*self.keys.names} else ()

    @property
    def stage(self) -> Stage:
        return self.strategy.stage

    @property
    def readings(self) -> tuple[Sharding, ...]:
        # In an index, only a key that is there can be a position.
        return (self.new, self.old) if self.stage == "move" else (self.old, self.new)

    @cached_property
    def old(self) -> Sharding:
        return self.by(self.strategy.old)

    @cached_property
    def new(self) -> Sharding:
        return self.by(self.strategy.new)

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Raise the error for what is not possible in this stage."""
        raise StageError(
            f"{what}: not possible in stage {self.stage!r} of a Resharding (table {self.table!r}); {remedy}", self.stage
        )

    refuse_if_moving = refuse

    def refuse_hiding(self, index: str | None) -> None:
        """Refuse a read of an index in which stubs cannot be told from items."""
        if index in self.hiding_marks:
            self.refuse(
                f"IndexName={index!r}",
                "it has key attributes of the table alone, and not the mark by which moved items are told from what "
                "they leave behind; read the table, or an index that projects ALL attributes",
            )

    @property
    def placed(self) -> Sharding:
        """Where items that are new are stored now."""
        return self.old if self.stage == "guard" else self.new

    def known_shard(self, key: WireItem, item: Mapping[str, Any]) -> tuple[int | None, bool]:
        return self.placed.known_shard(key, item)

    def homes(self, key: WireItem) -> Homes:
        """Return the homes of an item by its logical primary key, in wire values.

        It refuses a key whose stored form one of the strategies reads as another key's: in an unsharded table, ``v1.5``
        would be shard 5 of ``v1`` where the new strategy has ``separator="."``.
        """
        logical, place = plain(key[self.partition_key]), WIRE_VALUES.python(key)
        try:
            homes = Homes(*(one.stored(key, one.known_shard(key, place)[0]) for one in (self.old, self.new)))
        except ShardUnknownError as error:  # a function, which could not be checked before
            raise ShardUnknownError(
                f"by: the places of an item of table {self.table!r} cannot be calculated from its primary key "
                f"({', '.join(key)}): {error}; between the stages of a Resharding, by must read nothing else"
            ) from error
        for home in (homes.old, homes.new):
            if plain(self.logical(home[self.partition_key])[0]) != logical:
                raise InvalidKeyError(
                    f"{self.partition_key}: {brief(logical, 200)} is stored as "
                    f"{brief(plain(home[self.partition_key]), 200)} in table {self.table!r}, which "
                    f"{brief(self.strategy, 300)} reads as a shard of another key; give new another separator="
                )
        return homes

    def logical_item(self, item: WireItem) -> WireItem:
        return super().logical_item(unmarked(item))

    def logical_item_from(self, item: WireItem, index: ShardedIndex | None = None) -> tuple[WireItem, int | None]:
        return super().logical_item_from(unmarked(item), index)
