"""Where a page of a merged Query starts: ExclusiveStartKey, read and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from shardkit.cursor import Cursor, is_token
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.expressions.key_condition import comparable
from shardkit.dynamodb.values import WireItem
from shardkit.errors import CursorError, InvalidKeyError, ShardUnknownError
from shardkit.sharding import Sharding
from shardkit.suffix import Unsharded

if TYPE_CHECKING:
    from shardkit.operations.query import Plan

__all__ = ["check_position", "read_start"]


def read_start(plan: Plan, given: Any) -> Cursor:
    """Read a cursor, or a primary key made by hand."""
    what = f"{plan.sharding.table!r}" + (f", index {plan.index!r}" if plan.index else "") + ", key "
    what += repr(from_wire_item(plan.condition.equals))
    cursor = Cursor.read(given, plan.purpose, what) if is_token(given) else _by_hand(plan, given, what)
    check_position(plan.sharding, cursor.key, plan.key_names, what)
    _check_equals(plan, cursor.key, what)
    if cursor.shard not in plan.shards:
        raise CursorError(
            f"the cursor stands on shard {cursor.shard}, which is not among those of {what}; start the read again"
        )
    if not plan.within(cursor.key):
        raise CursorError(f"the cursor stands outside the key condition of this Query on {what}")
    return cursor


def check_position(sharding: Sharding, key: WireItem, names: Collection[str], what: str) -> None:
    """Refuse the key of a cursor that is no key of what is read: not of these attributes, or not of their types."""
    if set(key) != set(names):
        raise CursorError(f"the cursor is damaged: it does not stand on a key of {what}; start the read again")
    try:
        for name, value in key.items():
            sharding.checked(name, value, "cursor")
    except InvalidKeyError as error:
        raise CursorError(f"the cursor is damaged: {error}; start the read again") from error


def _check_equals(plan: Plan, key: WireItem, what: str) -> None:
    for name, value in plan.condition.equals.items():
        if name in key and comparable(key[name]) != comparable(value):
            raise CursorError(f"ExclusiveStartKey is not of {what}; start the read again")


def _by_hand(plan: Plan, given: Any, what: str) -> Cursor:
    names = tuple(dict.fromkeys(plan.schema.names + plan.sharding.keys.names))
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise CursorError(
            f"ExclusiveStartKey {given!r:.200} is neither a cursor of shardkit nor a key of {sorted(names)}; "
            "pass LastEvaluatedKey as it came"
        )
    key: WireItem = {name: plan.sharding.checked(name, given[name], "cursor") for name in names}
    _check_equals(plan, key, what)
    try:
        shard = plan.sharding.shard_of(key[plan.sharding.partition_key], from_wire_item(key))
        known = shard is not None or isinstance(plan.sharding.strategy, Unsharded)
    except ShardUnknownError:
        shard, known = None, False
    if not known:
        raise CursorError(
            f"ExclusiveStartKey {from_wire_item(key)!r:.200} was made by hand, and the shard of an item cannot be "
            "calculated from its key here; pass LastEvaluatedKey as it came"
        )
    if plan.fanned:
        return Cursor(shard, plan.rest(key))
    return Cursor(None, plan.sharding.stored(key, shard))
