"""Sharded global secondary indexes: their keys, and the writes that keep them true.

An index is sharded in one of three ways:

1. ``attribute="shard"``: its key has an attribute of its own for the shard's number. The shard does not depend on the
   logical value, so every update expression works.
2. ``source="status"``: the logical value stays in ``status``; shardkit keeps the index's partition key (``open.3``).
3. In place: the index's partition key itself has the suffix; reads show it without.

The attributes of the first two are *kept*: shardkit writes them and hides them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import digits
from typing import Any

from shardkit.core.checks import did_you_mean
from shardkit.core.ranges import NAME_CHARACTERS
from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.decode import as_given
from shardkit.dynamodb.expressions.key_condition import KeyCondition, sort_value
from shardkit.dynamodb.expressions.rewrite import and_condition, refuse_attributes, rewrite_spread
from shardkit.dynamodb.expressions.update import Action, Setting, actions, add_actions, replace_values
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError, UnsupportedExpressionError, brief
from shardkit.sharding.spread import Spread, read_by
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy
from shardkit.strategies.suffixes import in_place_of_strategy

_CONDITIONS = ("ConditionExpression", "Expected")
_UPDATES = ("UpdateExpression", "AttributeUpdates")
_MOST_NUMBER = 10**9  # of a shard that any strategy may have had
_ANY: WireValue = {"S": "any"}  # the shards of an attribute of their own are the same for every key


@dataclass(frozen=True)
class ShardedIndex(Spread):
    """A sharded global secondary index, whose partition key has the suffix; ``letter`` is its type."""

    name: str
    strategy: Strategy
    keys: KeySchema
    letter: str

    @cached_property
    def stored_name(self) -> str:
        return self.keys.partition_key

    @property
    def kept(self) -> bool:
        """Whether the attribute that differs between shards is shardkit's, and hidden."""
        return self.strategy.source is not None

    @cached_property
    def logical_keys(self) -> KeySchema:
        """The key schema that callers see."""
        return KeySchema((self.strategy.source or self.keys.partition_key,), self.keys.sort)

    @property
    def logical_name(self) -> str:
        return self.logical_keys.partition_key

    def touched(self, logical: WireValue, condition: KeyCondition) -> Sequence[int | None]:
        # A backfill to more shards may not have moved all items to the calculated ones yet.
        if isinstance(self.strategy, CalculatedSuffix):
            return self.shards(logical)
        return super().touched(logical, condition)

    def compared(self, value: WireValue) -> list[WireValue]:
        """Return all stored values that a condition means by a logical one."""
        return self.all_physical(value) if value.get(self.letter) else [value]

    def stored_shard(self, stored: WireValue, logical: WireValue | None = None) -> int | None:
        """Return the shard that a stored value names, of this logical key if it is given; None: it names none."""
        key, shard = self.logical(stored)
        return shard if logical is None or sort_value(key) == sort_value(logical) else None

    def may_have_stored(self, stored: WireValue) -> bool:
        """Return whether a value of its attribute may be shardkit's: it ends as one of any number of shards."""
        content = stored.get(self.letter)
        if not content:
            return False
        text = binary_bytes(content).decode("latin-1") if self.letter == "B" else content
        logical, _, written = text.rpartition(self.strategy.separator)
        known = digits if self.strategy.ordered_by is None else NAME_CHARACTERS
        return bool(logical and written) and set(written) <= {*known}

    def checked(self, value: WireValue) -> WireValue:
        """Return a logical value if it can be the index's partition key."""
        if len(value) != 1 or not value.get(self.letter):
            raise InvalidKeyError(
                f"{self.logical_name}: must be a value of type {self.letter}, not empty, because it is the partition "
                f"key of index {self.name!r}, got {as_given(value)}; give such a value, or leave the attribute out"
            )
        return value


class NumberedIndex(ShardedIndex):
    """A sharded index whose key has an attribute for the shard's number, which is the same whatever the logical key."""

    @cached_property
    def stored_name(self) -> str:
        assert self.strategy.attribute is not None
        return self.strategy.attribute

    @property
    def kept(self) -> bool:
        return True

    @cached_property
    def logical_keys(self) -> KeySchema:
        return KeySchema(tuple(name for name in self.keys.partition if name != self.stored_name), self.keys.sort)

    def shard_of(self, logical: WireValue, item: Mapping[str, Any]) -> int | None:
        return super().shard_of(_ANY, item)

    def shards(self, logical: WireValue) -> Sequence[int | None]:
        return super().shards(_ANY)

    def physical(self, logical: WireValue, shard: int | None) -> WireValue:
        return {"N": str(shard)}

    def all_physical(self, logical: WireValue) -> list[WireValue]:
        return [{"N": str(shard)} for shard in self.shards(logical)]

    def stored_shard(self, stored: WireValue, logical: WireValue | None = None) -> int | None:
        number = sort_value(stored)
        return next((shard for shard in self.shards(_ANY) if shard == number), None)

    def may_have_stored(self, stored: WireValue) -> bool:
        number: Any = sort_value(stored) if "N" in stored else -1
        return bool(0 <= number < _MOST_NUMBER and number == int(number))

    def checked(self, value: WireValue) -> WireValue:
        return value


def sharded_indexes(
    table: str,
    given: Mapping[str, Strategy] | None,
    keys: KeySchema,
    indexes: Mapping[str, KeySchema],
    types: Mapping[str, str],
    *,
    local: Collection[str],
    suffixed: bool,
) -> ShardedIndexes:
    """Return the indexes of ``indexes=``, checked; ``suffixed``: the table's partition key has suffixes."""
    made = []
    for name, strategy in (given or {}).items():
        what = f"indexes: {name!r} of table {table!r}"
        if name not in indexes or name in local:
            known = sorted(indexes.keys() - set(local))
            raise ConfigurationError(
                f"{what}: must be a global secondary index of the table (known: {known})"
                f"{did_you_mean(str(name), known)}; create it first, or add it to key_schema="
            )
        if not isinstance(strategy, RandomSuffix | CalculatedSuffix | RangeSuffix) or strategy.locate:
            raise ConfigurationError(
                f"{what}: must be RandomSuffix(…), CalculatedSuffix(…) or RangeSuffix(…), without locate=True, got "
                f"{in_place_of_strategy(strategy)}"
            )
        schema = indexes[name]
        for problem in _problems(strategy, schema, keys, types, suffixed=suffixed):
            raise ConfigurationError(f"{what}, {brief(strategy, 200)}: {problem}")
        made_as = ShardedIndex if strategy.attribute is None else NumberedIndex
        made.append(made_as(name, strategy, schema, types.get(schema.partition_key, "S")))
    for index in made:
        for name, schema in indexes.items():
            other = next((one for one in made if one.name == name), None)
            if other is not None and (other.stored_name, other.strategy) == (index.stored_name, index.strategy):
                continue
            if index.stored_name in schema.names or (other is not None and other.logical_name == index.stored_name):
                raise ConfigurationError(
                    f"indexes: {index.stored_name!r} has the shards of index {index.name!r}, and index {name!r} of "
                    f"table {table!r} reads it too; give both the same strategy, or give {index.name!r} source="
                )
    return ShardedIndexes(table, frozenset(keys.names), tuple(made))


def _problems(
    strategy: Strategy, index: KeySchema, keys: KeySchema, types: Mapping[str, str], *, suffixed: bool
) -> Iterator[str]:
    """Yield why an index cannot be sharded so, and what to do."""
    stored = strategy.attribute or index.partition_key
    partition = ", ".join(index.partition)
    if suffixed and keys.partition_key in index.names:
        yield (
            f"its key has the table's partition key {keys.partition_key!r}, which has suffixes; leave it out of "
            "indexes= (its Query is fanned out already), or use Unsharded() for the table"
        )
    if stored in keys.names:
        yield f"{stored!r} is a key attribute of the table; create an index on another attribute with source={stored!r}"
    if strategy.ordered_by is not None and index.sort != (strategy.ordered_by,):
        yield f"by must be the index's sort key ({', '.join(index.sort) or 'it has none'}); use CalculatedSuffix"
    if strategy.attribute is not None:
        if stored not in index.partition or len(index.partition) == 1:
            yield (
                f"attribute must be one of several partition key attributes of the index ({partition}); create an "
                "index with such a key, or use source="
            )
        if types.get(stored) != "N":
            yield f"{stored!r} must have the type N, got {types.get(stored)}; create it as a number"
        if not isinstance(strategy.shards, int):
            yield "shards must be a number, because with attribute= it is the same for all keys"
        return
    if len(index.partition) > 1:
        yield f"its key has several partition key attributes ({partition}); give attribute="
    if types.get(stored, "S") == "N":
        yield f"{stored!r} is a number, which cannot have a suffix; create an index with attribute="
    if strategy.source == stored:
        yield f"source must be another attribute than the index's partition key {stored!r}; leave it out"
    if strategy.by_attributes == (strategy.source or stored,) and strategy.ordered_by is None:
        yield f"by is {strategy.source or stored!r}, so all items of a key would have the same shard; use another one"


@dataclass(frozen=True)
class ShardedIndexes:
    """The sharded indexes of a table."""

    table: str = ""
    key_names: frozenset[str] = frozenset()
    indexes: tuple[ShardedIndex, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.indexes)

    def to_dict(self) -> dict[str, Any]:
        return {index.name: index.strategy.to_dict() for index in self.indexes}

    def get(self, name: str | None) -> ShardedIndex | None:
        return next((index for index in self.indexes if index.name == name), None)

    @cached_property
    def _distinct(self) -> list[ShardedIndex]:
        """The indexes that differ in what they keep: several may share an attribute.

        An attribute for the shard may be shared by indexes of different logical keys, each of which needs it.
        """
        return list({(index.stored_name, index.logical_keys.partition): index for index in self.indexes}.values())

    @cached_property
    def stored_names(self) -> frozenset[str]:
        """The attributes that differ between shards."""
        return frozenset(index.stored_name for index in self._distinct)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The attributes that are shardkit's."""
        return frozenset(index.stored_name for index in self._distinct if index.kept)

    @cached_property
    def read_by(self) -> frozenset[str]:
        """The attributes that shards are calculated from, where ``by`` names them."""
        return frozenset(name for index in self._distinct for name in index.strategy.by_attributes or ())

    def stored(self, item: WireItem, place: Mapping[str, Any], draw: Callable[[], float]) -> WireItem:
        """Return an item with the attributes of all indexes; ``place`` is the item in Python values."""
        if given := self.kept & item.keys():
            raise UnsupportedExpressionError(
                f"Item: must not have {min(given)!r}, which shardkit keeps for an index of table {self.table!r}; "
                "leave it out (for an export, give stored_by=)"
            )
        item = dict(item)
        made: set[str] = set()
        # Not the distinct ones: an index with another sort key may need the shard although this one does not.
        for index in self.indexes:
            held = all(name in item for name in index.logical_keys.partition)
            if index.stored_name in made or (not held and not isinstance(index, NumberedIndex)):
                continue
            logical = index.checked(item[index.logical_name]) if held else _ANY
            try:
                item[index.stored_name] = self._value(index, logical, place, draw)
                made.add(index.stored_name)
            except ShardUnknownError:
                # Without a key attribute of the index, the item is not in it. An update that adds the attribute also
                # needs the shard.
                missing = {*index.logical_keys.sort} & {*(index.strategy.by_attributes or ())} - item.keys()
                if held and not (index.kept and missing):
                    raise
        return item

    def rewritten(
        self, operation: str, wire: Mapping[str, Any], place: Mapping[str, Any], draw: Callable[[], float]
    ) -> dict[str, Any]:
        """Return a write, in wire values, that keeps the indexes true. ``place``: its item or key in Python values."""
        wire = self.filtered(wire, *_CONDITIONS)
        if operation == "PutItem":
            wire["Item"] = self.stored(wire["Item"], place, draw)
        return self._updated(wire, place, draw) if operation == "UpdateItem" else wire

    def filtered(self, wire: Mapping[str, Any], *parameters: str) -> dict[str, Any]:
        """Return a request whose conditions or filters compare stored values."""
        refuse_attributes(wire, self.kept, *parameters)
        wire = dict(wire)
        for index in self._distinct:
            if not index.kept:
                for parameter in parameters:
                    wire = rewrite_spread(wire, parameter, index.stored_name, index.compared)
        return wire

    def _updated(self, wire: dict[str, Any], key: Mapping[str, Any], draw: Callable[[], float]) -> dict[str, Any]:
        refuse_attributes(wire, self.kept, *_UPDATES)
        found = actions(wire)
        sets: dict[str, Setting] = {}
        removes: list[str] = []
        values: list[tuple[Action, WireValue]] = []
        for index in self._distinct:
            self._refuse(index, found, key)
            partition, numbered = index.logical_keys.partition, isinstance(index, NumberedIndex)
            own = [action for action in found if action.name in partition]
            if self.key_names & {*partition} or (numbered and any(action.clause != "REMOVE" for action in own)):
                # The update may create the item, or bring it into the index.
                in_key = index.logical_name in self.key_names
                logical = index.checked(wire["Key"][index.logical_name]) if in_key else _ANY
                value = self._value(index, logical, key, draw)
                # A shard that was drawn is kept: another one would move the item within the index.
                sets[index.stored_name] = Setting(value, if_absent=isinstance(index.strategy, RandomSuffix))
            if numbered:
                continue  # the stored attribute has only the number, which fits every logical value
            for action in own:
                if action.same:
                    continue
                if action.clause == "REMOVE" and not action.nested:
                    if index.kept:
                        removes.append(index.stored_name)
                    continue
                if action.value is None:
                    raise self._not_rewritable(index, action)
                value = self._value(index, index.checked(action.value), key, draw)
                if not index.kept:
                    values.append((action, value))
                    continue
                sets[index.stored_name] = Setting(value, if_absent=action.if_absent)
                if action.if_absent:
                    # An item from before the index was sharded has the value, but not the index's attribute, which
                    # cannot be calculated here from the stored value. Such an update fails.
                    names = {"#shardkit_s": index.logical_name, "#shardkit_i": index.stored_name}
                    guard = "attribute_not_exists(#shardkit_s) OR attribute_exists(#shardkit_i)"
                    wire = and_condition(wire, guard, names)
        # First the values, whose places in the expression the others move.
        wire = replace_values(wire, values) if values else wire
        return add_actions(wire, sets, removes) if sets or removes else wire

    def _refuse(self, index: ShardedIndex, found: Sequence[Action], key: Mapping[str, Any]) -> None:
        """Refuse an update that changes an item's shard in an index, or copies a value with a suffix."""
        if moved := {action.name for action in found} & (read_by(index.strategy, key, self.table) - self.key_names):
            raise UnsupportedExpressionError(
                f"UpdateItem: changes {sorted(moved)}, from which the item's shard in index {index.name!r} is "
                "calculated; delete the item and put it again, or calculate the shard from the primary key"
            )
        for action in found:
            if not index.kept and action.name != index.stored_name and index.stored_name in action.reads:
                raise UnsupportedExpressionError(
                    f"UpdateItem: {action.clause} of {action.name!r} reads {index.stored_name!r}, which is stored with "
                    f"the suffix of index {index.name!r}; set a :value, or give the index source="
                )

    def _value(
        self, index: ShardedIndex, logical: WireValue, place: Mapping[str, Any], draw: Callable[[], float]
    ) -> WireValue:
        try:
            shard = index.shard_of(logical, place)
        except ShardUnknownError as error:
            raise ShardUnknownError(
                f"by: the shard of index {index.name!r} ({brief(index.strategy, 200)}) cannot be calculated from "
                f"{sorted(map(str, place))}; give what by reads in Item=, or in Key= beside the key attributes"
            ) from error
        return index.physical(logical, index.drawn(logical, draw()) if shard is None else shard)

    def _not_rewritable(self, index: ShardedIndex, action: Action) -> UnsupportedExpressionError:
        return UnsupportedExpressionError(
            f"UpdateItem: {action.clause} of {action.name!r} must set it to a :value, or to if_not_exists(it, :value), "
            f"because shardkit keeps the shard of index {index.name!r} with it; read the item and set a value, or give "
            "the index an attribute for the shard (attribute=)"
        )

    def logical_item(self, item: WireItem, read_from: ShardedIndex | None = None) -> WireItem:
        """Return a stored item, or a part of one, as callers see it: logical values, without the kept attributes."""
        shown = dict(item)
        if read_from is not None and read_from.strategy.source is not None and read_from.stored_name in shown:
            # An index that projects keys only has no copy of the source.
            shown.setdefault(read_from.logical_name, read_from.logical(shown[read_from.stored_name])[0])
        for index in self._distinct:
            stored = shown.get(index.stored_name)
            if stored is not None and index.kept:
                del shown[index.stored_name]
            elif stored is not None:
                shown[index.stored_name] = index.logical(stored)[0]
        return shown


NO_INDEXES = ShardedIndexes()
