"""What an item from before an index was sharded lacks, and the update that gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.core.machine import Send
from shardkit.dynamodb.decode import as_given
from shardkit.dynamodb.expressions.rewrite import as_read
from shardkit.dynamodb.values import WireItem, WireValue, comparable
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError, brief
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.indexes import NumberedIndex, ShardedIndex
from shardkit.sharding.layout import Sharding
from shardkit.sharding.spread import Watched

_KEY_TYPES = {"S", "N", "B"}


@dataclass(frozen=True, slots=True)
class Repair:
    """Gives an item the attribute of an index, or removes it (``value`` is None).

    ``seen`` are the attributes that the value was calculated from, and the attribute itself, as they were read (None:
    absent). The service makes the update only if they are unchanged, so it undoes no other write.
    """

    key: WireItem
    name: str
    value: WireValue | None
    seen: Mapping[str, WireValue | None]

    def send(self, table: str) -> Send:
        condition, names, values = as_read(self.seen, "s")
        given = {} if self.value is None else {":i": self.value}
        return Send(
            "UpdateItem",
            {
                "TableName": table,
                "Key": self.key,
                "UpdateExpression": "REMOVE #i" if self.value is None else "SET #i = :i",
                "ConditionExpression": condition,
                "ExpressionAttributeNames": {"#i": self.name, **names},
                "ExpressionAttributeValues": {**given, **values},
                "ReturnConsumedCapacity": "INDEXES",
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
            paced=True,
        )


def repair(sharding: Sharding, index: ShardedIndex, stored: WireItem, draw: Callable[[], float]) -> Repair | None:
    """Return the update that a stored item needs to be in a sharded index under its key; None: it needs none.

    Raises:
        InvalidKeyError: The logical value cannot be the index's partition key; or the attribute has a value that
            shardkit cannot have written.
        ShardUnknownError: The item has no attribute that the shard is calculated from.
    """
    names, held = index.logical_keys.partition, stored.get(index.stored_name)
    watched: Watched | None = None
    value: WireValue | None = None
    if all(name in stored for name in names):
        logical = index.checked(stored[index.logical_name])
        watched = Watched(WIRE_VALUES.python(sharding.logical_item(stored)))
        try:
            shard = index.shard_of(logical, watched)
        except ShardUnknownError:
            if all(name in stored for name in index.keys.sort):
                raise
            return None  # without its sort key, the item is not in the index, whatever its shard
        if shard is None:
            # An attribute that was there before the index may be of any type.
            if held is not None and held.keys() <= _KEY_TYPES and index.stored_shard(held, logical) is not None:
                return None
            shard = index.drawn(logical, draw())
        value = index.physical(logical, shard)
    elif isinstance(index, NumberedIndex):
        return None  # without its other key attributes, the item is not in the index, whatever its shard
    if value is None if held is None else value is not None and comparable(value) == comparable(held):
        return None
    if held is not None and not index.may_have_stored(held):
        raise InvalidKeyError(
            f"{index.stored_name}: has a value that is not of index {index.name!r}, {as_given(held)}, and is left "
            "unchanged; only shardkit may write this attribute: check the index and its strategy, or remove the value"
        )
    read = set() if watched is None else {*watched.read, *(watched if watched.whole else ())}
    seen = [*names, *sorted(read - {*names, *sharding.key_names}), index.stored_name]
    key = {name: stored[name] for name in sharding.key_names}
    return Repair(key, index.stored_name, value, {name: stored.get(name) for name in seen})


def attributes_read(sharding: Sharding, index: ShardedIndex) -> tuple[str, ...] | None:
    """Return the attributes that :func:`repair` reads; None: it may read any."""
    if callable(getattr(index.strategy, "by", None)):
        return None
    by = index.strategy.by_attributes or ()
    names = (*sharding.key_names, *index.logical_keys.names, index.stored_name, *by)
    return tuple(dict.fromkeys(names))


def index_of(sharding: Sharding, name: str) -> ShardedIndex:
    """Return the index to backfill.

    Raises:
        ConfigurationError: It is not a sharded index, or its suffix is in place.
    """
    index = sharding.sharded.get(name)
    if index is None:
        known: list[Any] = [one.name for one in sharding.sharded.indexes]
        raise ConfigurationError(
            f"index: must be one of indexes= of table {sharding.table!r} ({known}), got {brief(name)}; give the table "
            "its sharded indexes with indexes="
        )
    if not index.kept:
        raise ConfigurationError(
            f"index: must have attribute= or source=, got {name!r}, whose suffix is in {index.stored_name!r} itself: a "
            "backfill would change the value that others read; create an index on another attribute, with "
            f"source={index.stored_name!r}"
        )
    return index
