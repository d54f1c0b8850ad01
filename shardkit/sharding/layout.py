"""A table's sharding: its strategy, and the key schemas of the table and its indexes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from shardkit.core.checks import most_similar
from shardkit.core.machine import Program
from shardkit.dynamodb.body import binary, binary_text
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, InvalidKeyError
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.strategies import Strategy, Unsharded

_SURROGATE = re.compile("[\ud800-\udfff]").search
# A page has one key, a load a few hundred. Keys of 2 KB, with their parts, take at most 4 MB.
_KEYS_KEPT = 1000
_TYPE_NAMES = {"S": "string", "N": "number", "B": "binary"}


@dataclass(frozen=True)
class Sharding:
    """A sharded table: its name, strategy, key schemas, key types, and the caller's form of values."""

    table: str
    strategy: Strategy
    keys: KeySchema
    indexes: Mapping[str, KeySchema] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    form: Form = PYTHON_VALUES

    @classmethod
    def described(
        cls, table: str, strategy: Strategy, description: Mapping[str, Any], form: Form = PYTHON_VALUES
    ) -> Sharding:
        """Make it from DescribeTable's ``Table``, or from the arguments of CreateTable."""
        if not isinstance(description, Mapping) or "KeySchema" not in description:
            raise ConfigurationError(
                f"key_schema: of table {table!r}: not a key schema: {description!r:.200}; give what CreateTable takes, "
                '{"KeySchema": […], "AttributeDefinitions": […]}, with its indexes'
            )
        try:
            types = {
                str(definition["AttributeName"]): str(definition["AttributeType"])
                for definition in description.get("AttributeDefinitions") or ()
            }
            indexes = {
                str(index["IndexName"]): KeySchema.of(index["KeySchema"], f"index {index['IndexName']!r}")
                for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
                for index in description.get(kind) or ()
            }
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                f"key_schema: of table {table!r}: invalid attribute definitions or indexes ({error!r}): "
                f"{description!r:.200}; give them as CreateTable takes them"
            ) from error
        keys = KeySchema.of(description["KeySchema"], f"table {table!r}")
        if types.get(keys.partition_key) == "N" and not isinstance(strategy, Unsharded):
            raise ConfigurationError(
                f"key_schema: the partition key {keys.partition_key!r} of table {table!r} is a number (type N), which "
                "cannot have a suffix; use a table with a string or binary partition key, such as the number's text"
            )
        if set(strategy.by_attributes or ()) == {keys.partition_key} and strategy.shards != 1:
            raise ConfigurationError(
                f"by: {keys.partition_key!r} is the partition key of table {table!r}, so all items of a key would have "
                "the same shard; use another attribute (the sort key), or RandomSuffix"
            )
        return cls(table, strategy, keys, indexes, types, form)

    @cached_property
    def partition_key(self) -> str:
        return self.keys.partition_key

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
        return key

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
                f"{name}: must be a value of one type, got {value!r:.100}, in the {kind} (table {self.table!r})"
            )
        ((letter, content),) = value.items()
        if letter == "B":
            content = binary(content)
        wanted = self.types.get(name)
        if letter != wanted and (wanted is not None or letter not in _TYPE_NAMES):
            expected = _TYPE_NAMES.get(wanted or "", "string, number or binary")
            raise InvalidKeyError(
                f"{name}: got type {letter} ({content!r:.100}); this key attribute of table {self.table!r} must be a "
                f"{expected}"
            )
        if letter != "N" and not content:
            raise InvalidKeyError(f"{name}: empty; DynamoDB refuses an empty key attribute (table {self.table!r})")
        if letter == "S" and not content.isascii() and _SURROGATE(content):
            raise InvalidKeyError(
                f"{name}: {content!r:.100} has an unpaired surrogate, which UTF-8 cannot encode, in a key attribute of "
                f"table {self.table!r}; fix the text where it was decoded"
            )
        return value

    def shard_of(self, logical: WireValue, item: Mapping[str, Any]) -> int | None:
        """Return the shard of an item (in Python values); None: any."""
        return self.strategy.shard_of(_plain(logical), item)

    def known_shard(self, key: WireItem, item: Mapping[str, Any]) -> tuple[int | None, bool]:
        """Return an item's shard, and whether it is known (None is the known shard of ``Unsharded``)."""
        shard = self.strategy.shard_of(_plain(key[self.partition_key]), item)
        return shard, shard is not None or isinstance(self.strategy, Unsharded)

    def shards(self, logical: WireValue) -> Sequence[int | None]:
        return self.strategy.shards_for(_plain(logical))

    def physical(self, logical: WireValue, shard: int | None) -> WireValue:
        ((letter, content),) = logical.items()
        # physical_key() refuses a shard outside the key's range.
        if letter == "S":
            return {"S": self._physical_key(content, shard)}
        key = self._physical_key(_plain(logical), shard)
        return logical if letter == "N" else _wire(letter, key)

    def all_physical(self, logical: WireValue) -> list[WireValue]:
        """Return the physical key of each shard, in the order of :meth:`shards`."""
        # Not through the cache: it has room for the keys of a load, not for thousands of shards of one key.
        ((letter, _),) = logical.items()
        if letter == "N":
            return [logical]
        return [_wire(letter, key) for key in self.strategy.physical_keys(_plain(logical))]

    def logical(self, physical: WireValue) -> tuple[WireValue, int | None]:
        """Return the logical partition key value, and the shard (None: no suffix)."""
        (letter,) = physical
        if letter == "N":
            return physical, None
        key, shard = self._split(_plain(physical))
        return _wire(letter, key), shard

    # Typed caches: otherwise True and 1.0 would hit the entry of shard 1, and not be refused.

    @cached_property
    def _physical_key(self) -> Callable[[Any, int | None], Any]:
        return lru_cache(_KEYS_KEPT, typed=True)(self.strategy.physical_key)

    @cached_property
    def _split(self) -> Callable[[Any], tuple[Any, int | None]]:
        return lru_cache(_KEYS_KEPT, typed=True)(self.strategy.split)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    def suffix_bytes(self, shard: int | None) -> int:
        return 0 if shard is None else len(f"{self.strategy.separator}{shard}")

    def stored(self, item: WireItem, shard: int | None) -> WireItem:
        return {**item, self.partition_key: self.physical(item[self.partition_key], shard)}

    def shown(self, item: WireItem) -> WireItem:
        """Return a stored item or key, or part of one, with its logical partition key."""
        if self.partition_key not in item:
            return item
        return {**item, self.partition_key: self.logical(item[self.partition_key])[0]}

    def to_caller(self, item: WireItem) -> dict[str, Any]:
        """Return the same in the caller's form."""
        return self.form.shown(self.shown(item))


Known = Callable[[str], Program["Sharding | None"]]
"""Returns the sharding of a table, by its name or ARN in a request; None: the table is not sharded."""


def named(known: Known, table: str) -> Program[Sharding | None]:
    """Return a table's sharding for requests that name the table as the caller does."""
    sharding = yield from known(table)
    return sharding if sharding is None or sharding.table == table else replace(sharding, table=table)


def _plain(value: WireValue) -> Any:
    """Return a key's Python value for a strategy; binary as bytes."""
    ((letter, content),) = value.items()
    return content if letter == "S" else binary(content) if letter == "B" else from_wire(value)


def _wire(letter: str, key: Any) -> WireValue:
    return {letter: binary_text(key) if letter == "B" else key}
