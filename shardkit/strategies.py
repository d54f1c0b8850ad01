"""The text form of a strategy, as plain values that JSON can carry, and the names of functions in it."""

from __future__ import annotations

import base64
import builtins
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from shardkit.core.hashing import binary, checked, code_point_product, shown, stable_hash
from shardkit.dynamodb.values import Binary
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError

__all__ = ["CalculatedSuffix", "RandomSuffix", "Strategy", "TextForm", "Unsharded", "register_function"]

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: dict[str, type[Strategy]] = {}  # by the class's name; the room of the strategies fills it
_FUNCTIONS: dict[str, Callable[..., Any]] = {"stable_hash": stable_hash, "code_point_product": code_point_product}
_KEY_FORMS: dict[str, Callable[[Any], Any]] = {"S": str, "B": lambda text: base64.b64decode(text, validate=True)}


def register_function(function: F, *, name: str) -> F:
    """Give a function a name, so that a strategy that uses it can be written down and read again.

    Example::

        register_function(shards_of_day, name="shards-of-day")

    Do so at import, in each process that reads the strategy.

    Args:
        function: What a strategy takes as ``shards``, ``by`` or ``hash``.
        name: A non-empty text, that of one function for ever.

    Returns:
        ``function``, as it was given.

    Raises:
        ConfigurationError: No callable, no name, or a name that another function has.

    Cost: O(1); no request.
    """
    given: Any = function, name
    if not (callable(given[0]) and isinstance(given[1], str) and name):
        raise ConfigurationError(f"{shown(function)} under name={shown(name)}: give a callable and a non-empty str.")
    if _FUNCTIONS.setdefault(name, function) != function:
        raise ConfigurationError(f"The name {name!r} is taken by {shown(_FUNCTIONS[name])}. Choose another name.")
    return function


class TextForm:
    """What every strategy has: it can be written down, and read again."""

    def to_dict(self) -> dict[str, Any]:
        """Write the strategy down as plain values that JSON can carry, for ``from_dict``.

        Example::

            Unsharded().to_dict() == {"type": "Unsharded"}

        Returns:
            ``type``, the class's name, and its arguments.

        Raises:
            ConfigurationError: A function without a name (see ``register_function``).

        Cost: O(keys in ``shards``); no request.
        """
        return {"type": type(self).__name__, **{name: _plain(value) for name, value in vars(self).items()}}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Strategy:
        """Build the strategy that ``to_dict`` wrote down.

        Example::

            Strategy.from_dict({"type": "RandomSuffix", "shards": 200}) == RandomSuffix(200)

        Args:
            form: What ``to_dict`` gave; fields with a default may be left out.

        Returns:
            A strategy that is equal to the one written down.

        Raises:
            ConfigurationError: A wrong type, field or value, or a function that is not registered.

        Cost: O(keys in ``shards``); no request.
        """
        given: Any = form
        made = _TYPES.get(str(given.get("type"))) if isinstance(given, Mapping) else None
        if made is None:
            raise ConfigurationError(f"{shown(form)} has no known type. Give a mapping with type: {[*_TYPES]}.")
        try:
            return made(**{name: _value(name, value) for name, value in form.items() if name != "type"})
        except TypeError as error:  # a field too many or too few
            raise ConfigurationError(f"{shown(form)}: {error}. Give the fields of {made.__name__}.") from error


def _plain(value: Any) -> Any:
    """Give the plain form of a field's value; ``_value`` is its reverse."""
    if isinstance(value, Mapping) and not callable(value):
        forms = [{"S": key} if isinstance(key, str) else {"B": base64.b64encode(key).decode()} for key in value]
        return sorted(map(list, zip(forms, value.values(), strict=True)), key=repr)
    if not callable(value):
        return list(value) if isinstance(value, tuple) else value
    for name, function in list(_FUNCTIONS.items()):
        if function == value:
            return {"function": name}
    raise ConfigurationError(f"{shown(value)} has no name. Give it one: register_function(function, name=...).")


def _value(name: str, form: Any) -> Any:
    if isinstance(form, Mapping):
        if len(form) != 1 or form.get("function") not in list(_FUNCTIONS):
            raise ConfigurationError(f"{name}={shown(form)} is no known function. Call register_function first.")
        return _FUNCTIONS[form["function"]]
    if name != "shards" or not isinstance(form, list):
        return tuple(form) if isinstance(form, list) else form
    try:
        return {_KEY_FORMS[letter](text): count for key, count in form for letter, text in [*key.items()]}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"shards={shown(form)} is wrong. Give [[{{'S': key}}, count], ...].") from error


_MOST_SHARDS = 1_000_000  # of a logical key: its partitions then serve 1,000 million write units a second

KeyValue = str | bytes | bytearray | Binary | int | Decimal
Shards = int | Mapping[Any, int] | Callable[[Any], int]
By = str | tuple[str, ...] | Callable[[Mapping[str, Any]], Any]


class Strategy(TextForm):
    """How a table's suffixes are chosen: immutable, compared by value, picklable; nothing is sent, drawn or waited for.

    Example::

        strategy = CalculatedSuffix("OrderId", shards=200)
        strategy.physical_key("2014-07-09", strategy.shard_of("2014-07-09", {"OrderId": "A17"}))

    It is the base of ``RandomSuffix``, ``CalculatedSuffix`` and ``Unsharded``, and is not used by itself.

    In every method ``key`` is a logical partition key: text or binary, for ``Unsharded`` also a number.

    Raises:
        InvalidKeyError: In every method: an empty key, or a value that is no key.
        ConfigurationError: In every method: a number as key, or a function that gave no count of shards.

    Source: Developer Guide, "Best Practices for Tables".
    """

    shards: Shards
    separator: str = ""
    first: int

    @property
    def locate(self) -> bool:
        """Whether an item whose shard is unknown is looked for on every shard (RandomSuffix only)."""
        return False

    @property
    def by_attributes(self) -> tuple[str, ...] | None:
        """The attributes that the shard is calculated from; None if it is not, or by a function of the item."""
        by: By | None = getattr(self, "by", None)
        return (by,) if isinstance(by, str) else by if isinstance(by, tuple) else None

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:
        """Say which shard an item belongs to, where that is known.

        Example::

            CalculatedSuffix("OrderId", shards=200).shard_of("2014-07-09", {"OrderId": "A17"})

        Args:
            key: A logical partition key.
            item: Attribute names to Python values: the item, or of a call without one its Key.

        Returns:
            The number of the shard. None means any (``RandomSuffix``, unless the key has only one) or no suffix
            (``Unsharded``).

        Raises:
            ShardUnknownError: An attribute that it is calculated from is missing.
            InvalidKeyError: As the class; or such an attribute has a value without a hash.
            ConfigurationError: As the class; or ``hash`` gave no int of at least 0.

        Cost: at most one hash; no request.
        """
        return None

    def shards_for(self, key: KeyValue) -> Sequence[int | None]:
        """Give the shards of a logical key.

        Example::

            RandomSuffix(3).shards_for("k") == range(1, 4)

        Args:
            key: A logical partition key.

        Returns:
            The range from ``first`` to ``first + shards - 1``; of ``Unsharded`` ``(None,)``.

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
                shards = _count(shards(raw), f"For the key {shown(raw)}, the function gave shards")
        return range(self.first, self.first + shards)

    def physical_key(self, key: KeyValue, shard: int | None) -> KeyValue:
        """Write a logical key and one of its shards as the partition key that is stored.

        Example::

            RandomSuffix(200).physical_key("2014-07-09", 57) == "2014-07-09.57"

        Args:
            key: A logical partition key.
            shard: The number of one of its shards; None with ``Unsharded``.

        Returns:
            A str for text, bytes for binary; of ``Unsharded`` ``key`` itself.

        Raises:
            InvalidKeyError: As the class.
            ConfigurationError: As the class; or ``shard`` is no shard of ``key``.

        Cost: O(length of the key); no request.
        """
        shards = self.shards_for(key)
        if (type(shard) is not int and shard is not None) or shard not in shards:
            span = f"{shards[0]} to {shards[-1]}"
            raise ConfigurationError(f"shard={shown(shard)} is no shard of {shown(key)}. Give one from {span}.")
        return self._join(key, shard)

    def physical_keys(self, key: KeyValue) -> tuple[KeyValue, ...]:
        """List every physical key of a logical key, in the order of ``shards_for``.

        Example::

            RandomSuffix(2).physical_keys("k") == ("k.1", "k.2")

        Args:
            key: A logical partition key.

        Returns:
            What ``physical_key`` gives, for each shard.

        Raises:
            InvalidKeyError: As the class.
            ConfigurationError: As the class.

        Cost: O(shards); no request.
        """
        return tuple(self._join(key, shard) for shard in self.shards_for(key))

    def split(self, physical: KeyValue) -> tuple[KeyValue, int | None]:
        """Take a stored partition key apart, once, from the right: the reverse of ``physical_key``.

        Example::

            RandomSuffix(200).split("a.5.57") == ("a.5", 57)

        Args:
            physical: A stored partition key, of any type.

        Returns:
            The logical key and its shard. Or ``physical`` and None, where it does not end in the separator and a shard
            of that key (ASCII digits, no leading zero).

        Raises:
            ConfigurationError: The function in ``shards`` gave no count of shards.

        Cost: O(length of the key); no request.
        """
        raw = binary(physical)
        if not self.separator or not isinstance(raw, str | bytes):
            return physical, None
        cut: Any = self.separator if isinstance(raw, str) else self.separator.encode("ascii")
        logical, _, digits = raw.rpartition(cut)
        # An empty logical key is none; a zero comes first only in "0".
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
            raise ConfigurationError(f"separator={shown(separator)} is empty or not ASCII without digits. Give '.'.")
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
    """One shard and no suffix, what an existing table has: its shard is None, its keys may be numbers.

    Example::

        Unsharded().physical_key("2014-07-09", None) == "2014-07-09"

    Cost: none.
    """

    def shards_for(self, key: KeyValue) -> Sequence[int | None]:  # noqa: D102
        _carrier(str(key) if type(key) in {int, Decimal} else key)
        return (None,)


@dataclass(frozen=True, repr=False)
class RandomSuffix(Strategy):
    """A suffix drawn at random for every write, evenly over the shards; the caller supplies the draw.

    Example::

        RandomSuffix(200)  # 2014-07-09.1 to 2014-07-09.200
        RandomSuffix({"2014-07-09": 200}, locate=True)  # any other day has one shard

    Args:
        shards: How many shards a logical key has, 1 to 1,000,000: an int, a mapping from logical key to int (a key that
            is not in it has one), or a function of the logical key (which gets bytes for binary).
        separator: What stands between logical key and shard: ASCII text without digits.
        first: The number of the lowest shard, at least 0.
        locate: Whether a single item, whose shard nobody knows, is looked for on every shard.

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
            raise ConfigurationError(f"locate={shown(self.locate)} is no bool. Give True or False.")

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:  # noqa: D102
        shards = self.shards_for(key)
        return shards[0] if len(shards) == 1 else None


@dataclass(frozen=True, repr=False)
class CalculatedSuffix(Strategy):
    """A suffix calculated from the item, so that one item is always on one shard: ``hash(value) % shards + first``.

    Example::

        CalculatedSuffix("OrderId", shards=200)

    Args:
        by: What is hashed: an attribute's name, a tuple of names (hashed as a tuple), or a function of the item.
        shards: How many shards a logical key has, 1 to 1,000,000: an int, a mapping from logical key to int (a key that
            is not in it has one), or a function of the logical key (which gets bytes for binary).
        hash: A function from the value (binary comes as bytes) to an int of at least 0, the same in every process.
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
            raise ConfigurationError(f"by={shown(self.by)} is no name, tuple of names or function. Give one of these.")
        function: Any = self.hash
        if not callable(function) or function is builtins.hash:
            raise ConfigurationError(f"hash={shown(function)} is no function or salted per process. Use stable_hash.")
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
            raise ConfigurationError(f"hash={shown(self.hash)} gave {shown(number)}, no int >= 0. Use stable_hash.")
        return shards[number % len(shards)]

    def _value(self, item: Mapping[str, Any]) -> Any:
        by = self.by
        try:
            value = by(item) if callable(by) else item[by] if isinstance(by, str) else tuple(item[name] for name in by)
        except LookupError as error:
            raise ShardUnknownError(
                f"The shard is calculated with by={shown(by)}, but among {sorted(map(str, item))} it found no "
                f"{error}. Put it into Item=, or into Key= beside the key attributes; or pass Shard=."
            ) from error
        if isinstance(by, str) and isinstance(value, tuple):
            raise InvalidKeyError(f"by={by!r} has the value {shown(value)}, a list to DynamoDB. Use a single value.")
        return checked(value)


_TYPES.update({made.__name__: made for made in (RandomSuffix, CalculatedSuffix, Unsharded)})


class _Counts(Mapping[Any, int]):
    """A checked, unchangeable copy of a mapping from logical key to its number of shards."""

    def __init__(self, counts: Mapping[Any, int]) -> None:
        try:
            self._counts = {_carrier(key): _count(count, f"shards[{key!r}]") for key, count in counts.items()}
        except InvalidKeyError as error:
            raise ConfigurationError(f"shards={shown(counts)} has a key that is none: {error}") from error

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
    """The key as something that can carry a suffix."""
    if type(key) is str and key:
        return key
    raw = binary(key)
    if isinstance(raw, int | float | Decimal) and not isinstance(raw, bool):
        problem = f"The partition key {shown(key)} is a number, and a number cannot carry a suffix"
        raise ConfigurationError(f"{problem}. Use an S or B partition key, or an S key holding the number's text.")
    if not isinstance(raw, str | bytes) or not raw:
        raise InvalidKeyError(f"The partition key {shown(key)} is empty or no key. Give a non-empty str or bytes.")
    return raw


def _count(value: Any, what: str) -> int:
    shards = _whole(value, what, 1)
    if shards > _MOST_SHARDS:
        raise ConfigurationError(f"{what}={shown(value)} is more than {_MOST_SHARDS:,}. Give fewer.")
    return shards


def _whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{what}={shown(value)} is no int of at least {least}. Give one.")
    return int(value)
