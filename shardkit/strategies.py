"""Strategies: how a table's suffixes are chosen, and how a strategy is written as JSON."""

from __future__ import annotations

import base64
import builtins
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from shardkit.core.checks import did_you_mean
from shardkit.core.hashing import binary, checked, code_point_product, shown, stable_hash
from shardkit.dynamodb.values import Binary
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError

__all__ = ["CalculatedSuffix", "RandomSuffix", "Strategy", "TextForm", "Unsharded", "register_function"]

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: dict[str, type[Strategy]] = {}  # by the class's name; filled below
_FUNCTIONS: dict[str, Callable[..., Any]] = {"stable_hash": stable_hash, "code_point_product": code_point_product}
_KEY_FORMS: dict[str, Callable[[Any], Any]] = {"S": str, "B": lambda text: base64.b64decode(text, validate=True)}


def register_function(function: F, *, name: str) -> F:
    """Register a function under a name, so that strategies that use it can be written as JSON.

    Example:
        register_function(shards_of_day, name="shards-of-day")

    Do so at import, in every process that reads the strategy.

    Args:
        function: A function for ``shards``, ``by`` or ``hash`` of a strategy.
        name: A non-empty str. Never reuse it for another function.

    Returns:
        ``function``, unchanged.

    Raises:
        ConfigurationError: ``function`` is not callable, or the name is empty or taken by another function.

    Cost: O(1); no request.
    """
    given: Any = function, name
    if not (callable(given[0]) and isinstance(given[1], str) and name):
        raise ConfigurationError(
            f"function, name: must be a callable and a non-empty str, got {shown(function)} and {shown(name)}"
        )
    if _FUNCTIONS.setdefault(name, function) != function:
        raise ConfigurationError(f"name: {name!r} is taken by {shown(_FUNCTIONS[name])}; choose another name")
    return function


class TextForm:
    """The methods that write a strategy as JSON and read it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the strategy as plain values that JSON can represent, for ``from_dict``.

        Example:
            Unsharded().to_dict() == {"type": "Unsharded"}

        Returns:
            The class's name under ``type``, and its arguments.

        Raises:
            ConfigurationError: A function is not registered (see ``register_function``).

        Cost: O(keys in ``shards``); no request.
        """
        return {"type": type(self).__name__, **{name: _plain(value) for name, value in vars(self).items()}}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Strategy:
        """Return the strategy that ``to_dict`` represents.

        Example:
            Strategy.from_dict({"type": "RandomSuffix", "shards": 200}) == RandomSuffix(200)

        Args:
            form: The result of ``to_dict``; fields with a default may be omitted.

        Returns:
            A strategy equal to the original one.

        Raises:
            ConfigurationError: The type, a field or a value is invalid, or a function is not registered.

        Cost: O(keys in ``shards``); no request.
        """
        given: Any = form
        made = _TYPES.get(str(given.get("type"))) if isinstance(given, Mapping) else None
        if made is None:
            named = given.get("type") if isinstance(given, Mapping) else None
            near = did_you_mean(named, _TYPES) if isinstance(named, str) else ""
            raise ConfigurationError(
                f"form: must be a mapping whose type is one of {[*_TYPES]}, got {shown(form)}{near}"
            )
        try:
            return made(**{name: _value(name, value) for name, value in form.items() if name != "type"})
        except TypeError as error:  # a field too many or too few
            raise ConfigurationError(
                f"form: {shown(form)} does not fit {made.__name__}: {error}; give its fields"
            ) from error


def _plain(value: Any) -> Any:
    """Return the plain form of a field's value; ``_value`` is the inverse."""
    if isinstance(value, Mapping) and not callable(value):
        forms = [{"S": key} if isinstance(key, str) else {"B": base64.b64encode(key).decode()} for key in value]
        return sorted(map(list, zip(forms, value.values(), strict=True)), key=repr)
    if not callable(value):
        return list(value) if isinstance(value, tuple) else value
    for name, function in list(_FUNCTIONS.items()):
        if function == value:
            return {"function": name}
    raise ConfigurationError(f"{shown(value)}: not registered; call register_function(function, name=...) first")


def _value(name: str, form: Any) -> Any:
    if isinstance(form, Mapping):
        if len(form) != 1 or form.get("function") not in list(_FUNCTIONS):
            raise ConfigurationError(
                f"{name}: {shown(form)} is not a registered function; call register_function first"
            )
        return _FUNCTIONS[form["function"]]
    if name != "shards" or not isinstance(form, list):
        return tuple(form) if isinstance(form, list) else form
    try:
        return {_KEY_FORMS[letter](text): count for key, count in form for letter, text in [*key.items()]}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"shards: must be [[{{'S': key}}, count], ...], got {shown(form)}") from error


_MOST_SHARDS = 1_000_000  # per logical key: enough for 1,000 million write units a second

KeyValue: TypeAlias = str | bytes | bytearray | Binary | int | Decimal
Shards = int | Mapping[Any, int] | Callable[[Any], int]
By = str | tuple[str, ...] | Callable[[Mapping[str, Any]], Any]


class Strategy(TextForm):
    """How a table's suffixes are chosen. Strategies are immutable, picklable, compared by value, and do no I/O.

    Example:
        strategy = CalculatedSuffix("OrderId", shards=200)
        strategy.physical_key("2014-07-09", strategy.shard_of("2014-07-09", {"OrderId": "A17"}))

    This is the base class of ``RandomSuffix``, ``CalculatedSuffix`` and ``Unsharded``; do not use it directly.

    In every method, ``key`` is a logical partition key: text or binary; for ``Unsharded`` also a number.

    Raises:
        InvalidKeyError: In every method: the key is empty or not a key.
        ConfigurationError: In every method: the key is a number, or the ``shards`` function returned an invalid number.

    Source: Developer Guide, "Best Practices for Tables".
    """

    shards: Shards
    separator: str = ""
    first: int

    @property
    def locate(self) -> bool:
        """Whether to search all shards for an item whose shard is unknown (RandomSuffix only)."""
        return False

    @property
    def by_attributes(self) -> tuple[str, ...] | None:
        """The attributes that the shard is calculated from; None for other strategies, or if ``by`` is a function."""
        by: By | None = getattr(self, "by", None)
        return (by,) if isinstance(by, str) else by if isinstance(by, tuple) else None

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:
        """Return the shard of an item, if it is known.

        Example:
            CalculatedSuffix("OrderId", shards=200).shard_of("2014-07-09", {"OrderId": "A17"})

        Args:
            key: A logical partition key.
            item: The item, or its ``Key`` in a call without an item, as Python values.

        Returns:
            The number of the shard. None means any shard (``RandomSuffix``, unless the key has only one) or no suffix
            (``Unsharded``).

        Raises:
            ShardUnknownError: An attribute that the shard is calculated from is missing.
            InvalidKeyError: As the class; or such an attribute has a value that cannot be hashed.
            ConfigurationError: As the class; or ``hash`` did not return an int >= 0.

        Cost: at most one hash; no request.
        """
        return None

    def shards_for(self, key: KeyValue) -> Sequence[int | None]:
        """Return the shards of a logical key.

        Example:
            RandomSuffix(3).shards_for("k") == range(1, 4)

        Args:
            key: A logical partition key.

        Returns:
            The range from ``first`` to ``first + shards - 1``; for ``Unsharded`` ``(None,)``.

        Raises:
            InvalidKeyError: As the class.
            ConfigurationError: As the class.

        Cost: none; no request.
        """
        shards, raw = self.shards, _carrier(key)
        if not isinstance(shards, int):
            if isinstance(shards, Mapping):
                shards = shards.get(raw, 1)
            else:
                shards = _count(shards(raw), f"shards (for key {shown(raw)})")
        return range(self.first, self.first + shards)

    def physical_key(self, key: KeyValue, shard: int | None) -> KeyValue:
        """Return the stored partition key for a logical key and one of its shards.

        Example:
            RandomSuffix(200).physical_key("2014-07-09", 57) == "2014-07-09.57"

        Args:
            key: A logical partition key.
            shard: The number of one of its shards; None with ``Unsharded``.

        Returns:
            A str for text, bytes for binary; for ``Unsharded`` ``key`` itself.

        Raises:
            InvalidKeyError: As the class.
            ConfigurationError: As the class; or ``shard`` is not a shard of ``key``.

        Cost: O(length of the key); no request.
        """
        shards = self.shards_for(key)
        if (type(shard) is not int and shard is not None) or shard not in shards:
            span = f"{shards[0]} to {shards[-1]}"
            raise ConfigurationError(f"shard: must be from {span} for key {shown(key)}, got {shown(shard)}")
        return self._join(key, shard)

    def physical_keys(self, key: KeyValue) -> tuple[KeyValue, ...]:
        """Return all physical keys of a logical key, in the order of ``shards_for``.

        Example:
            RandomSuffix(2).physical_keys("k") == ("k.1", "k.2")

        Args:
            key: A logical partition key.

        Returns:
            The ``physical_key`` of each shard.

        Raises:
            InvalidKeyError: As the class.
            ConfigurationError: As the class.

        Cost: O(shards); no request.
        """
        return tuple(self._join(key, shard) for shard in self.shards_for(key))

    def split(self, physical: KeyValue) -> tuple[KeyValue, int | None]:
        """Split a stored partition key into logical key and shard: the inverse of ``physical_key``.

        Example:
            RandomSuffix(200).split("a.5.57") == ("a.5", 57)

        Args:
            physical: A stored partition key, of any type.

        Returns:
            The logical key and its shard; or ``physical`` and None, if it does not end with the separator and a shard
            of that key (ASCII digits, no leading zero). Only the last suffix is removed.

        Raises:
            ConfigurationError: The ``shards`` function returned an invalid number.

        Cost: O(length of the key); no request.
        """
        raw = binary(physical)
        if not self.separator or not isinstance(raw, str | bytes):
            return physical, None
        cut: Any = self.separator if isinstance(raw, str) else self.separator.encode("ascii")
        logical, _, digits = raw.rpartition(cut)
        # A logical key is not empty; digits have a leading zero only in "0".
        if not logical or not digits.isascii() or not digits.isdigit() or (len(digits) > 1 and not int(digits[:1])):
            return physical, None
        shards = self.shards_for(logical)
        ours = len(digits) <= len(str(shards[-1])) and int(digits) in shards
        return (logical, int(digits)) if ours else (physical, None)

    def _join(self, key: KeyValue, shard: int | None) -> KeyValue:
        if shard is None:
            return key
        raw = _carrier(key)
        suffix = f"{self.separator}{shard}"
        return raw + suffix if isinstance(raw, str) else raw + suffix.encode("ascii")

    def _check(self) -> None:
        separator: Any = self.separator
        if not (isinstance(separator, str) and separator and separator.isascii()) or any(map(str.isdigit, separator)):
            raise ConfigurationError(
                f"separator: must be ASCII text without digits, not empty, got {shown(separator)}; give '.'"
            )
        object.__setattr__(self, "first", _whole(self.first, "first", 0))
        shards: Any = self.shards
        if isinstance(shards, Mapping) or not callable(shards):
            kept = _Counts(shards) if isinstance(shards, Mapping) else _count(shards, "shards")
            object.__setattr__(self, "shards", kept)

    def __repr__(self) -> str:
        values = [(name, value) for name, value in vars(self).items() if value != getattr(type(self), name, None)]
        return f"{type(self).__name__}({', '.join(f'{name}={shown(value)}' for name, value in values)})"


@dataclass(frozen=True, repr=False)
class Unsharded(Strategy):
    """No suffixes, as in an existing table: one shard per key, whose number is None. Keys may be numbers.

    Example:
        Unsharded().physical_key("2014-07-09", None) == "2014-07-09"

    Cost: none.
    """

    def shards_for(self, key: KeyValue) -> Sequence[int | None]:  # noqa: D102
        _carrier(str(key) if type(key) in {int, Decimal} else key)
        return (None,)


@dataclass(frozen=True, repr=False)
class RandomSuffix(Strategy):
    """A random suffix for every write, evenly distributed over the shards.

    Example:
        RandomSuffix(200)  # 2014-07-09.1 to 2014-07-09.200
        RandomSuffix({"2014-07-09": 200}, locate=True)  # any other day has one shard

    Args:
        shards: How many shards a logical key has, 1 to 1,000,000: an int, a mapping from logical key to int (a key that
            is not in it has one), or a function of the logical key (which gets bytes for binary).
        separator: What stands between logical key and shard: ASCII text without digits.
        first: The number of the lowest shard, at least 0.
        locate: Whether operations on one item search all shards for it.

    Raises:
        ConfigurationError: An argument cannot work.

    Cost: O(keys in ``shards``); no request.
    Source: Developer Guide, "Best Practices for Tables", "Randomizing Across Multiple Partition Key Values".
    """

    shards: Shards
    separator: str = field(default=".", kw_only=True)
    first: int = field(default=1, kw_only=True)
    locate: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        if type(self.locate) is not bool:
            raise ConfigurationError(f"locate: must be True or False, got {shown(self.locate)}")

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:  # noqa: D102
        shards = self.shards_for(key)
        return shards[0] if len(shards) == 1 else None


@dataclass(frozen=True, repr=False)
class CalculatedSuffix(Strategy):
    """A suffix calculated from the item, so that its shard is known: ``hash(value) % shards + first``.

    Example:
        CalculatedSuffix("OrderId", shards=200)

    Args:
        by: What is hashed: an attribute's name, a tuple of names (hashed as a tuple), or a function of the item.
        shards: How many shards a logical key has, 1 to 1,000,000: an int, a mapping from logical key to int (a key that
            is not in it has one), or a function of the logical key (which gets bytes for binary).
        hash: A function from the value (bytes for binary) to an int >= 0, the same in every process.
        separator: What stands between logical key and shard: ASCII text without digits.
        first: The number of the lowest shard, at least 0.

    Raises:
        ConfigurationError: An argument cannot work.

    Warns:
        UserWarning: ``hash=code_point_product``, which spreads badly.

    Cost: O(keys in ``shards``); no request.
    Source: Developer Guide, "Best Practices for Tables", "Using a Calculated Value".
    """

    by: By
    shards: Shards
    hash: Callable[[Any], int] = field(default=stable_hash, kw_only=True)
    separator: str = field(default=".", kw_only=True)
    first: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        names: tuple[Any, ...] = self.by if isinstance(self.by, tuple) else (self.by,)
        if not callable(self.by) and not (names and all(isinstance(name, str) and name for name in names)):
            raise ConfigurationError(
                f"by: must be an attribute name, a tuple of names or a function, got {shown(self.by)}"
            )
        function: Any = self.hash
        if not callable(function) or function is builtins.hash:
            raise ConfigurationError(
                f"hash: must be a function that returns the same in every process, got {shown(function)}; "
                "use stable_hash"
            )
        if function is code_point_product:
            warnings.warn(
                "code_point_product: a product of code points is nearly always divisible by 200; most items share a "
                "suffix (of 20,000 UUIDs all, of random 8-digit ids 64%). Use it only for data written with it.",
                stacklevel=4 if sys._getframe(2).f_code is Strategy.from_dict.__code__ else 3,  # noqa: SLF001
            )

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:  # noqa: D102
        shards = self.shards_for(key)
        number: Any = self.hash(self._value(item))
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigurationError(
                f"hash: {shown(self.hash)} returned {shown(number)}; it must return an int >= 0; use stable_hash"
            )
        return shards[number % len(shards)]

    def _value(self, item: Mapping[str, Any]) -> Any:
        by = self.by
        try:
            value = item[by] if isinstance(by, str) else by(item) if callable(by) else tuple(item[name] for name in by)
        except LookupError as error:
            near = did_you_mean(str(next(iter(error.args), "")), map(str, item))
            raise ShardUnknownError(
                f"by: {shown(by)} found no {error} among {sorted(map(str, item))}{near}; add it to Item=, or to Key= "
                "beside the key attributes; or give Shard="
            ) from error
        if isinstance(by, str) and isinstance(value, tuple):
            raise InvalidKeyError(f"by: {by!r} has the value {shown(value)}, a list in DynamoDB; use a single value")
        return checked(value)


_TYPES.update({made.__name__: made for made in (RandomSuffix, CalculatedSuffix, Unsharded)})


class _Counts(Mapping[Any, int]):
    """A checked, unchangeable copy of a mapping from logical key to its number of shards."""

    def __init__(self, counts: Mapping[Any, int]) -> None:
        try:
            self._counts = {_carrier(key): _count(count, f"shards[{key!r}]") for key, count in counts.items()}
        except InvalidKeyError as error:
            raise ConfigurationError(f"shards: {shown(counts)} has an invalid key: {error}") from error

    def __getitem__(self, key: Any) -> int:
        return self._counts[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __hash__(self) -> int:
        return hash(frozenset(self._counts.items()))

    def __repr__(self) -> str:
        return repr(self._counts)


def _carrier(key: Any) -> str | bytes:
    if type(key) is str and key:
        return key
    raw = binary(key)
    if isinstance(raw, int | float | Decimal) and not isinstance(raw, bool):
        raise ConfigurationError(
            f"key: must be text or binary, got the number {shown(key)}, which cannot have a suffix; use a partition "
            "key of type S or B, such as the number's text"
        )
    if not isinstance(raw, str | bytes) or not raw:
        raise InvalidKeyError(f"key: must be a non-empty str or bytes, got {shown(key)}")
    return raw


def _count(value: Any, what: str) -> int:
    shards = _whole(value, what, 1)
    if shards > _MOST_SHARDS:
        raise ConfigurationError(f"{what}: must be an integer from 1 to {_MOST_SHARDS:,}, got {shown(value)}")
    return shards


def _whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{what}: must be an integer >= {least}, got {shown(value)}")
    return int(value)
