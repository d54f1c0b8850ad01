"""How the values of one partition key are spread over the shards of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.decode import from_wire
from shardkit.dynamodb.expressions.key_condition import KeyCondition, ends, sort_value
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ShardUnknownError, brief
from shardkit.strategies import RangeSuffix, Strategy, Unsharded

# A page has one key, a load a few hundred. Keys of 2 KB, with their parts, take at most 4 MB.
_KEYS_KEPT = 1000


class Spread:
    """The partition key of a table or of an index, and the strategy that spreads its values."""

    strategy: Strategy

    @property
    def stored_name(self) -> str:
        """The attribute that differs between the shards of a key."""
        raise NotImplementedError

    @property
    def logical_name(self) -> str:
        """The attribute that has the logical key."""
        return self.stored_name

    def shard_of(self, logical: WireValue, item: Mapping[str, Any]) -> int | None:
        """Return the shard of an item (in Python values); None: any."""
        return self.strategy.shard_of(plain(logical), item)

    def known_shard(self, key: WireItem, item: Mapping[str, Any]) -> tuple[int | None, bool]:
        """Return an item's shard, and whether it is known (None is the known shard of ``Unsharded``)."""
        shard = self.shard_of(key[self.logical_name], item)
        return shard, shard is not None or isinstance(self.strategy, Unsharded)

    def shards(self, logical: WireValue) -> Sequence[int | None]:
        return self.strategy.shards_for(plain(logical))

    def drawn(self, logical: WireValue, draw: float) -> int | None:
        """Return the shard that a draw from [0, 1) selects."""
        shards = self.shards(logical)
        return shards[int(draw * len(shards))]

    def touched(self, logical: WireValue, condition: KeyCondition) -> Sequence[int | None]:
        """Return the shards that can hold items that meet a key condition."""
        by = self.strategy.by_attributes
        if by and condition.equals.keys() >= set(by):
            # No write stores an item in another shard than the calculated one.
            return (self.shard_of(logical, {name: sort_value(condition.equals[name]) for name in by}),)
        name, term = condition.range or (None, None)
        if term is None or name != self.strategy.ordered_by or not isinstance(self.strategy, RangeSuffix):
            return self.shards(logical)
        low, high, _, below = ends(term)
        low_key, high_key = (None if end is None else sort_value(end) for end in (low, high))
        return self.strategy.shards_between(plain(logical), low_key, high_key, below=below)

    def physical(self, logical: WireValue, shard: int | None) -> WireValue:
        ((letter, content),) = logical.items()
        # physical_key() refuses a shard outside the key's range.
        if letter == "S":
            return {"S": self.stored_key(content, shard)}
        key = self.stored_key(plain(logical), shard)
        return logical if letter == "N" else _wire(letter, key)

    def all_physical(self, logical: WireValue) -> list[WireValue]:
        """Return the physical key of each shard, in the order of :meth:`shards`."""
        # Not through the cache: it has room for the keys of a load, not for thousands of shards of one key.
        ((letter, _),) = logical.items()
        if letter == "N":
            return [logical]
        return [_wire(letter, key) for key in self.strategy.physical_keys(plain(logical))]

    def logical(self, physical: WireValue) -> tuple[WireValue, int | None]:
        """Return the logical partition key value, and the shard (None: no suffix)."""
        (letter,) = physical
        if letter not in {"S", "B"}:
            return physical, None  # the attribute of an index may have any type; such an item is not in the index
        key, shard = self._split(plain(physical))
        return _wire(letter, key), shard

    # A copy for another process makes caches of its own: lru_cache() cannot be pickled.
    def __getstate__(self) -> dict[str, Any]:
        fields: Mapping[str, Any] = self.__dataclass_fields__  # type: ignore[attr-defined]
        return {name: value for name, value in vars(self).items() if name in fields}

    # Typed caches: otherwise True and 1.0 would hit the entry of shard 1, and not be refused.

    @cached_property
    def stored_key(self) -> Callable[[Any, int | None], Any]:
        """Returns the stored key for a logical key and its shard, in Python values."""
        return lru_cache(_KEYS_KEPT, typed=True)(self.strategy.physical_key)

    @cached_property
    def _split(self) -> Callable[[Any], tuple[Any, int | None]]:
        return lru_cache(_KEYS_KEPT, typed=True)(self.strategy.split)

    def suffix_bytes(self, logical: WireValue, shard: int | None) -> int:
        key = plain(logical)
        return 0 if shard is None else len(self.stored_key(key, shard)) - len(key)


def plain(value: WireValue) -> Any:
    """Return a key's Python value for a strategy; binary as bytes."""
    ((letter, content),) = value.items()
    return content if letter == "S" else binary_bytes(content) if letter == "B" else from_wire(value)


def _wire(letter: str, key: Any) -> WireValue:
    return {letter: binary_text(key) if letter == "B" else key}


def read_by(strategy: Strategy, key: Mapping[str, Any], table: str) -> set[str]:
    """Return the attributes that the shard is calculated from.

    A ``by`` function is called with the key, and its reads are recorded. If it reads only attributes that the key has,
    its result is the same for the key as for the whole item.
    """
    by = getattr(strategy, "by", None)
    if not callable(by):
        return set(strategy.by_attributes or ())
    watched = Watched(key)
    problem, cause = "", None
    try:
        by(watched)
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        problem, cause = f"raised {brief(error, 200)}", error
    if missing := sorted(str(name) for name in watched.read - key.keys()):
        problem = f"reads {missing}, which Key= does not contain"
    if watched.whole:
        problem = "reads the whole item"
    if problem:
        raise ShardUnknownError(
            f"by: {brief(by)} {problem} (given {sorted(map(str, key))}), so this update may change the item's shard in "
            f"table {table!r}; add the attributes that it reads to Key=, and let it read no others"
        ) from cause
    return watched.read


class Watched(Mapping[str, Any]):
    """A mapping that records which names are ``read``, present or not, and whether the ``whole`` is."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._item = item
        self.read: set[str] = set()
        self.whole = False

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._item[name]

    def __iter__(self) -> Iterator[str]:
        self.whole = True
        return iter(self._item)

    def __len__(self) -> int:
        self.whole = True
        return len(self._item)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies do not record.
        return dict, (dict(self),)
