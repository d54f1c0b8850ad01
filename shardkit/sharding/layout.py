"""A table's sharding: its strategy, and the key schemas of the table and its indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

from shardkit.core.checks import most_similar
from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.decode import as_given
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.units import table_name
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, InvalidKeyError, brief
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.indexes import NO_INDEXES, ShardedIndex, ShardedIndexes, sharded_indexes
from shardkit.sharding.shard_map import is_map_value
from shardkit.sharding.spread import Spread, plain
from shardkit.strategies import Strategy, Unsharded

_SURROGATE = re.compile("[\ud800-\udfff]").search
_TYPE_NAMES = {"S": "string", "N": "number", "B": "binary"}
_ONE_ITEM = (
    "without a sort key, each key has one item, and suffixes spread nothing: use Unsharded(), and for one hot item a "
    "ShardedCounter or a CachedTable"
)


def _of_wire_form(content: Any) -> str:
    """Return a hint if a value was given as ``{"S": "acme"}`` where plain values are."""
    wire = isinstance(content, Mapping) and len(content) == 1 and not content.keys().isdisjoint(_TYPE_NAMES)
    return "; this is the wire form: give the plain Python value" if wire else ""


@dataclass(frozen=True)
class Sharding(Spread):
    """A sharded table: its name, strategy, key schemas, key types, sharded indexes, and the caller's form of values."""

    table: str
    strategy: Strategy
    keys: KeySchema
    indexes: Mapping[str, KeySchema] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    form: Form = PYTHON_VALUES
    sharded: ShardedIndexes = NO_INDEXES
    cursor_period: str = ""
    """Of a table of a time series: what its cursors begin with."""
    has_map: bool = False
    """Whether the table holds a shard map: an item that no operation shows or changes."""

    @property
    def hiding_marks(self) -> frozenset[str]:
        """The indexes that may have what a move leaves behind, and not the marks by which to tell it from items."""
        return frozenset()

    @classmethod
    def described(
        cls,
        table: str,
        strategy: Strategy,
        description: Mapping[str, Any],
        form: Form = PYTHON_VALUES,
        sharded: Mapping[str, Strategy] | None = None,
        cursor_period: str = "",
    ) -> Self:
        """Make it from DescribeTable's ``Table``, or from the arguments of CreateTable.

        It is of a strategy for good; :func:`shardkit.tables.described` knows the others.
        """
        assert strategy.settled, strategy
        if not isinstance(description, Mapping) or "KeySchema" not in description:
            raise ConfigurationError(
                f"key_schema: of table {table!r}: not a key schema: {brief(description, 200)}; give what CreateTable "
                'takes, {"KeySchema": […], "AttributeDefinitions": […]}, with its indexes'
            )
        try:
            types = {
                str(definition["AttributeName"]): str(definition["AttributeType"])
                for definition in description.get("AttributeDefinitions") or ()
            }
            local, indexes = (
                {
                    str(index["IndexName"]): KeySchema.of(index["KeySchema"], f"index {index['IndexName']!r}")
                    for index in description.get(kind) or ()
                }
                for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
            )
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                f"key_schema: of table {table!r}: invalid attribute definitions or indexes ({error!r}): "
                f"{brief(description, 200)}; give them as CreateTable takes them"
            ) from error
        keys = KeySchema.of(description["KeySchema"], f"table {table!r}")
        if types.get(keys.partition_key) == "N" and not isinstance(strategy, Unsharded):
            raise ConfigurationError(
                f"key_schema: the partition key {keys.partition_key!r} of table {table!r} is a number (type N), which "
                "cannot have a suffix; use a table with a string or binary partition key, such as the number's text"
            )
        ordered_by = strategy.ordered_by
        if ordered_by is not None and keys.sort != (ordered_by,):
            raise ConfigurationError(
                f"by: must be the sort key of table {table!r} ({', '.join(keys.sort) or 'it has none'}), got "
                f"{ordered_by!r}; "
                + (
                    "ranges of another attribute do not keep the order; use CalculatedSuffix"
                    if keys.sort
                    else _ONE_ITEM
                )
            )
        if ordered_by is None and set(strategy.by_attributes or ()) == {keys.partition_key} and strategy.shards != 1:
            raise ConfigurationError(
                f"by: {keys.partition_key!r} is the partition key of table {table!r}, so all items of a key would have "
                "the same shard; "
                + ("use another attribute (the sort key), or RandomSuffix" if keys.sort else _ONE_ITEM)
            )
        if strategy.attribute is not None or strategy.source is not None:
            raise ConfigurationError(
                f"strategy: must not have attribute= or source= for table {table!r}, got {brief(strategy, 200)}; they "
                "are for an index: give the strategy in indexes="
            )
        schemas = {**local, **indexes}
        suffixed = not isinstance(strategy, Unsharded)
        found = sharded_indexes(table, sharded, keys, schemas, types, local=local, suffixed=suffixed)
        return cls(table, strategy, keys, schemas, types, form, found, cursor_period)

    def by(self, strategy: Strategy) -> Sharding:
        """Return the same table with another strategy."""
        return Sharding(**{one.name: getattr(self, one.name) for one in fields(Sharding)} | {"strategy": strategy})

    @cached_property
    def partition_key(self) -> str:
        return self.keys.partition_key

    @property
    def stored_name(self) -> str:
        return self.partition_key

    @cached_property
    def stored_names(self) -> frozenset[str]:
        """The attributes that are stored otherwise than callers see them."""
        return self.sharded.stored_names | {self.partition_key}

    def refuse_if_moving(self, what: str, remedy: str) -> None:
        """Refuse what is not possible while items move."""

    def marks(self, index: str | None) -> tuple[str, ...]:
        """Return what shardkit must read of items in the table (None) or an index, in addition to their keys."""
        return ()

    @property
    def readings(self) -> tuple[Sharding, ...]:
        """By which of them an item may be stored that has a logical key; the first if the key is a position."""
        return (self,)

    @cached_property
    def reads_keys(self) -> bool:
        """Whether a shard is calculated by a function, which may read more of ``Key=`` than the primary key."""
        strategies = (self.strategy, *(index.strategy for index in self.sharded.indexes))
        return any(callable(getattr(strategy, "by", None)) for strategy in strategies)

    @cached_property
    def placed_by(self) -> frozenset[str]:
        """The attributes that shards are calculated from, where ``by`` names them."""
        return self.sharded.read_by.union(self.strategy.by_attributes or ())

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return self.keys.names

    @cached_property
    def _texts(self) -> frozenset[str]:
        """The key attributes that may be strings."""
        return frozenset(name for name in self.key_names if self.types.get(name, "S") == "S")

    def schema(self, index: str | None) -> KeySchema:
        """Return the key schema of an index, or of the table for None."""
        if index is None:
            return self.keys
        try:
            return self.indexes[index]
        except KeyError:
            raise ConfigurationError(
                f"IndexName: {index!r} is not a known index of table {self.table!r} (known: {sorted(self.indexes)}); "
                "check the name, or add the index to key_schema="
            ) from None

    def key_of(self, item: Mapping[str, WireValue], *, kind: str = "item") -> WireItem:
        """Return the primary key of a wire item, each part checked."""
        key, texts = {}, self._texts
        for name in self.key_names:
            value = item.get(name)
            # Fast path for the most common key, without a call: this runs for every item that is written.
            if value is not None and (text := value.get("S")) and text.isascii() and name in texts and len(value) == 1:
                key[name] = value
            else:
                key[name] = self.checked(name, value, kind, item)
        if self.has_map and kind != "cursor":  # a page may end there
            self.check_key(key[self.partition_key])
        return key

    def check_key(self, logical: WireValue) -> None:
        """Refuse the key of the shard map."""
        if is_map_value(logical):
            raise InvalidKeyError(
                f"{self.partition_key}: {plain(logical)!r} is the key of the shard map of table {self.table!r}; use "
                "another key, or ShardMapAdmin to change the map"
            )

    def checked(self, name: str, value: WireValue | None, kind: str, item: Iterable[str] = ()) -> WireValue:
        """Return a key attribute's wire value if DynamoDB accepts it; ``item`` has the names where one is missing."""
        if value is None:
            near = most_similar(name, (other for other in item if other not in self.key_names))
            has = "" if near is None else f", which has {near!r}"
            raise InvalidKeyError(
                f"{name}: missing in the {kind}{has}; it is a key attribute of table {self.table!r}; give it a value"
            )
        if len(value) != 1:  # botocore accepts it
            raise InvalidKeyError(
                f"{name}: must be a value of one type, got {brief(value)}, in the {kind} (table {self.table!r})"
            )
        ((letter, content),) = value.items()
        if letter == "B":
            content = binary_bytes(content)
        wanted = self.types.get(name)
        if letter != wanted and (wanted is not None or letter not in _TYPE_NAMES):
            expected = _TYPE_NAMES.get(wanted or "", "string, number or binary")
            raise InvalidKeyError(
                f"{name}: got type {letter} ({as_given(value)}); this key attribute of table {self.table!r} must be a "
                f"{expected}{_of_wire_form(content)}"
            )
        if letter != "N" and not content:
            raise InvalidKeyError(f"{name}: empty; DynamoDB refuses an empty key attribute (table {self.table!r})")
        if letter == "S" and not content.isascii() and _SURROGATE(content):
            raise InvalidKeyError(
                f"{name}: {brief(content)} has an unpaired surrogate, which UTF-8 cannot encode, in a key attribute of "
                f"table {self.table!r}; fix the text where it was decoded"
            )
        return value

    @property
    def calculated(self) -> str:
        """What to use where the shards of a strategy cannot be calculated, for messages."""
        return "or use CalculatedSuffix" if self.keys.sort else f"or, {_ONE_ITEM}"

    def stored(self, item: WireItem, shard: int | None) -> WireItem:
        return {**item, self.partition_key: self.physical(item[self.partition_key], shard)}

    def logical_item(self, item: WireItem) -> WireItem:
        """Return a stored item or key, or part of one, with its logical keys."""
        if self.partition_key not in item:
            return self.sharded.logical_item(item) if self.sharded else item
        return self.logical_item_from(item)[0]

    def logical_item_from(self, item: WireItem, index: ShardedIndex | None = None) -> tuple[WireItem, int | None]:
        """Return a stored item or key (``index``: it was read from there) with its logical keys, and its shard."""
        try:
            stored = item[self.partition_key]
        except KeyError:
            raise ConfigurationError(
                f"table {self.table!r}: must have the partition key {self.partition_key!r}, got an item without it "
                f"({sorted(item)!s:.100}); its key schema is another one, so use another table"
            ) from None
        logical, shard = self.logical(stored)
        shown = self.sharded.logical_item(item, index) if self.sharded else item
        return {**shown, self.partition_key: logical}, shard

    def to_caller(self, item: WireItem) -> dict[str, Any]:
        """Return the same in the caller's form."""
        return self.form.shown(self.logical_item(item))


def sharding_named(shardings: Mapping[str, Sharding], table: str) -> Sharding | None:
    """Return the sharding of a table as a request names it, by its name or ARN.

    Another account may have a table of the same name, so a name and an ARN are taken for the same table only if all
    tables of this name are sharded alike.
    """
    if table in shardings:
        return shardings[table]
    alike = [sharding for name, sharding in shardings.items() if table_name(name) == table_name(table)]
    return alike[0] if alike and all(one.strategy == alike[0].strategy for one in alike) else None
