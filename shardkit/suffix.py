"""How a suffix is chosen (Developer Guide, "Best Practices for Tables"): the strategies and hashes; pure, immutable."""

from __future__ import annotations

import base64
import builtins
import hashlib
import math
import re
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from shardkit.codec import Binary
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError

__all__ = ["CalculatedSuffix", "RandomSuffix", "Strategy", "Unsharded"]
__all__ += ["code_point_product", "register_function", "stable_hash"]

KeyValue = str | bytes | bytearray | Binary | int | Decimal
Shards = int | Mapping[Any, int] | Callable[[Any], int]
By = str | tuple[str, ...] | Callable[[Mapping[str, Any]], Any]
F = TypeVar("F", bound=Callable[..., Any])

_MOST_DIGITS = 1000  # a number's plain text; DynamoDB holds 1E-130 to 9.99E+125
_SURROGATE = re.compile("[\ud800-\udfff]").search
_KEY_FORMS: dict[str, Callable[[Any], Any]] = {"S": str, "B": lambda text: base64.b64decode(text, validate=True)}


def register_function(function: F, *, name: str) -> F:
    """Give a function a name, so that a strategy that uses it can be written down and read again.

    Example: ``register_function(shards_of_day, name="shards-of-day")``, at import, in each process that reads it.
    Arguments: ``name``, non-empty text, one function's for ever. Returns: ``function``. Raises: ConfigurationError (no
    callable, no name, or another function's). Cost: O(1). Source: design, Strategies.
    """
    given: Any = function, name
    if not (callable(given[0]) and isinstance(given[1], str) and name):
        raise ConfigurationError(f"{_shown(function)} under name={_shown(name)}: give a callable and a non-empty str.")
    if _FUNCTIONS.setdefault(name, function) != function:
        raise ConfigurationError(f"The name {name!r} is taken by {_shown(_FUNCTIONS[name])}. Choose another name.")
    return function


def stable_hash(value: Any) -> int:
    """Hash a value to 64 bits, the same in every process, version and language.

    The first 8 bytes, big-endian, of SHA-256 over the UTF-8 text, the bytes, or a number's exact plain decimal text
    without trailing zeros; for a tuple, over each member as type letter (S, B, N), 4-byte big-endian length, bytes.
    Example: ``stable_hash(Decimal("1.50")) == stable_hash("1.5")``. Arguments: ``value``, a str, bytes, Binary, int or
    Decimal, or a non-empty tuple of these. Returns: 0 to 2**64 - 1. Raises: InvalidKeyError (another type, NaN,
    Infinity, over 1000 digits, an unpaired surrogate). Cost: one SHA-256. Source: design; tests/vectors.
    """
    encoded = [_encoded(member) for member in _members(value)]
    data = b"".join(letter + len(content).to_bytes(4, "big") + content for letter, content in encoded)
    return int.from_bytes(hashlib.sha256(data if isinstance(value, tuple) else data[5:]).digest()[:8], "big")


def code_point_product(value: Any) -> int:
    """Multiply the code points of a text: the guide's formula, for data already written with it; it spreads badly.

    Example: ``code_point_product("A17") == 65 * 49 * 55``; the strategy does the guide's "modulo 200 + 1". Arguments:
    ``value``, a str. Raises: InvalidKeyError (no str). Cost: O(length squared). Source: Developer Guide, as above.
    """
    if not isinstance(value, str):
        raise InvalidKeyError(f"{_shown(value)} has no code points. Use stable_hash, or a by= that gives a str.")
    return math.prod(map(ord, value))


_FUNCTIONS: dict[str, Callable[..., Any]] = {"stable_hash": stable_hash, "code_point_product": code_point_product}


class Strategy:
    """How a table's suffixes are chosen: immutable, compared by value, picklable; nothing is sent, drawn or waited for.

    Example: ``strategy.physical_key(key, strategy.shard_of(key, item))``, with one of the subclasses. Arguments of the
    methods: ``key``, a logical key, str or binary (Unsharded: numbers too). Raises, in all: InvalidKeyError (an empty
    key or none), ConfigurationError (a number, or a function that gave no count). Source: design, Strategies.
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
        """Say which shard an item belongs to; None means any (RandomSuffix) or no suffix (Unsharded).

        Example: ``CalculatedSuffix("OrderId", 200).shard_of("2014-07-09", {"OrderId": "A17"})``. Arguments: ``item``,
        Python values (of a call with only a Key: that). Raises: ShardUnknownError (an attribute is missing),
        InvalidKeyError (a value that has no hash), ConfigurationError (no non-negative int). Cost: one hash.
        """
        return None

    def shards_for(self, key: KeyValue) -> tuple[int | None, ...]:
        """List a logical key's shards, ``first`` to ``first + shards - 1``; Unsharded: ``(None,)``.

        Example: ``RandomSuffix(3).shards_for("k") == (1, 2, 3)``. Raises: as the class. Cost: O(shards).
        """
        return tuple(self._range(key))

    def physical_key(self, key: KeyValue, shard: int | None) -> KeyValue:
        """Write a logical key and one of its shards as the partition key that is stored.

        Example: ``RandomSuffix(200).physical_key("2014-07-09", 57) == "2014-07-09.57"``. Returns: str for str, bytes
        for binary; Unsharded: ``key``. Raises: as the class, and ConfigurationError (no shard of it). Cost: O(length).
        """
        shards = self._range(key)
        if (type(shard) is not int and shard is not None) or shard not in shards:
            span = f"{shards[0]} to {shards[-1]}"
            raise ConfigurationError(f"shard={_shown(shard)} is no shard of {_shown(key)}. Give one from {span}.")
        return self._join(key, shard)

    def physical_keys(self, key: KeyValue) -> tuple[KeyValue, ...]:
        """List every physical key of a logical key, in the order of ``shards_for``.

        Example: ``RandomSuffix(2).physical_keys("k") == ("k.1", "k.2")``. Raises: as the class. Cost: O(shards).
        """
        return tuple(self._join(key, shard) for shard in self._range(key))

    def split(self, physical: KeyValue) -> tuple[KeyValue, int | None]:
        """Take a stored partition key apart, once, from the right: the reverse of ``physical_key``.

        Example: ``RandomSuffix(200).split("a.5.57") == ("a.5", 57)``. Returns: logical key, shard; or as it is, None,
        if it does not end in separator and a shard of that key (ASCII digits, no leading zero). Cost: O(length).
        """
        raw = _binary(physical)
        if not self.separator or not isinstance(raw, str | bytes):
            return physical, None
        cut: Any = self.separator if isinstance(raw, str) else self.separator.encode("ascii")
        logical, _, digits = raw.rpartition(cut)
        # An empty logical key is none; a zero comes first only in "0".
        if not logical or not digits.isascii() or not digits.isdigit() or (len(digits) > 1 and not int(digits[:1])):
            return physical, None
        shards = self._range(logical)
        ours = len(digits) <= len(str(shards[-1])) and int(digits) in shards
        return (logical, int(digits)) if ours else (physical, None)

    def to_dict(self) -> dict[str, Any]:
        """Write the strategy down as plain values that JSON can carry, for ``from_dict``.

        Example: ``Unsharded().to_dict() == {"type": "Unsharded"}``. Raises: ConfigurationError (a function without a
        name: see ``register_function``). Cost: O(keys in ``shards``).
        """
        return {"type": type(self).__name__, **{name: _form(value) for name, value in vars(self).items()}}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Strategy:
        """Build the strategy that ``to_dict`` wrote down; fields with a default may be left out.

        Example: ``Strategy.from_dict({"type": "RandomSuffix", "shards": 200}) == RandomSuffix(200)``. Raises:
        ConfigurationError (a wrong type, field or value, or an unknown function). Cost: O(keys in ``shards``).
        """
        given: Any = form
        made = _TYPES.get(str(given.get("type"))) if isinstance(given, Mapping) else None
        if made is None:
            raise ConfigurationError(f"{_shown(form)} has no known type. Give a mapping with type: {[*_TYPES]}.")
        try:
            return made(**{name: _unform(name, value) for name, value in form.items() if name != "type"})
        except TypeError as error:  # a field too many or too few
            raise ConfigurationError(f"{_shown(form)}: {error}. Give the fields of {made.__name__}.") from error

    def _join(self, key: KeyValue, shard: int | None) -> KeyValue:
        if shard is None:
            return key
        raw = _carrier(key)
        suffix = f"{self.separator}{shard}"
        return raw + suffix if isinstance(raw, str) else raw + suffix.encode("ascii")

    def _range(self, key: KeyValue) -> Sequence[int | None]:
        shards, raw = self.shards, _carrier(key)
        if isinstance(shards, Mapping):
            shards = shards.get(raw, 1)
        elif callable(shards):
            shards = _whole(shards(raw), f"For the key {_shown(raw)}, the function gave shards", 1)
        return range(self.first, self.first + shards)

    def _check(self) -> None:
        separator: Any = self.separator
        if not (isinstance(separator, str) and separator and separator.isascii()) or any(map(str.isdigit, separator)):
            raise ConfigurationError(f"separator={_shown(separator)} is empty or not ASCII without digits. Give '.'.")
        object.__setattr__(self, "first", _whole(self.first, "first", 0))
        shards: Any = self.shards
        if isinstance(shards, Mapping) or not callable(shards):
            kept = _Counts(shards) if isinstance(shards, Mapping) else _whole(shards, "shards", 1)
            object.__setattr__(self, "shards", kept)

    def __repr__(self) -> str:
        values = [(name, value) for name, value in vars(self).items() if value != getattr(type(self), name, None)]
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in values)})"


@dataclass(frozen=True, repr=False)
class Unsharded(Strategy):
    """One shard and no suffix, what an existing table has: its shard is None, its keys may be numbers.

    Example: ``Unsharded().physical_key("2014-07-09", None) == "2014-07-09"``. Cost: none. Source: design.
    """

    def _range(self, key: KeyValue) -> Sequence[int | None]:
        _carrier(str(key) if type(key) in {int, Decimal} else key)
        return (None,)


@dataclass(frozen=True, repr=False)
class RandomSuffix(Strategy):
    """A suffix drawn at random for every write, evenly over the shards; the caller supplies the draw.

    Example: ``RandomSuffix(200)``: ``2014-07-09.1`` to ``.200``. Arguments: ``shards``, how many, >= 1: an int, a
    mapping from logical key to int (a key not in it has one), or a function of the logical key (bytes for Binary);
    ``separator``, ASCII without digits; ``first``, the lowest shard, >= 0; ``locate``, whether single items are looked
    for on every shard. Raises: ConfigurationError. Cost: O(keys in ``shards``). Source: Developer Guide, as above.
    """

    shards: Shards
    separator: str = field(default=".", kw_only=True)
    first: int = field(default=1, kw_only=True)
    locate: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        if type(self.locate) is not bool:
            raise ConfigurationError(f"locate={_shown(self.locate)} is no bool. Give True or False.")


@dataclass(frozen=True, repr=False)
class CalculatedSuffix(Strategy):
    """A suffix calculated from the item, so that one item is always on one shard: ``hash(value) % shards + first``.

    Example: ``CalculatedSuffix("OrderId", shards=200)``. Arguments: ``by``, what is hashed: an attribute's name, a
    tuple of names (hashed as a tuple), or a function of the item; ``hash``, from value (binary comes as bytes) to int
    >= 0; the others as in RandomSuffix. Raises: ConfigurationError. Warns: UserWarning, ``hash=code_point_product``.
    Cost: O(keys in ``shards``). Source: Developer Guide, as above, "Using a Calculated Value".
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
            raise ConfigurationError(f"by={_shown(self.by)} is no name, tuple of names or function. Give one of these.")
        function: Any = self.hash
        if not callable(function) or function is builtins.hash:
            raise ConfigurationError(f"hash={_shown(function)} is no function or salted per process. Use stable_hash.")
        if function is code_point_product:
            warnings.warn(
                "code_point_product: a product of code points is nearly always divisible by 200; most items share a "
                "suffix (of 20,000 UUIDs all, of random 8-digit ids 64%). Use it only for data written with it.",
                stacklevel=4 if sys._getframe(2).f_code is Strategy.from_dict.__code__ else 3,  # noqa: SLF001
            )

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:  # noqa: D102
        shards = self._range(key)
        number: Any = self.hash(self._value(item))
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigurationError(f"hash={_shown(self.hash)} gave {_shown(number)}, no int >= 0. Use stable_hash.")
        return shards[number % len(shards)]

    def _value(self, item: Mapping[str, Any]) -> Any:
        by = self.by
        try:
            value = by(item) if callable(by) else item[by] if isinstance(by, str) else tuple(item[name] for name in by)
        except LookupError as error:
            raise ShardUnknownError(
                f"The shard is calculated with by={_shown(by)}, but among {sorted(map(str, item))} it found no "
                f"{error}. Put it into Item=, or into Key= beside the key attributes; or pass Shard=."
            ) from error
        if isinstance(by, str) and isinstance(value, tuple):
            raise InvalidKeyError(f"by={by!r} has the value {_shown(value)}, a list to DynamoDB. Use a single value.")
        members = tuple((_encoded(member), _binary(member))[1] for member in _members(value))
        return members if isinstance(value, tuple) else members[0]


_TYPES: dict[str, type[Strategy]] = {made.__name__: made for made in (RandomSuffix, CalculatedSuffix, Unsharded)}


class _Counts(Mapping[Any, int]):
    """A checked, unchangeable copy of a mapping from logical key to its number of shards."""

    def __init__(self, counts: Mapping[Any, int]) -> None:
        try:
            self._counts = {_carrier(key): _whole(count, f"shards[{key!r}]", 1) for key, count in counts.items()}
        except InvalidKeyError as error:
            raise ConfigurationError(f"shards={_shown(counts)} has a key that is none: {error}") from error

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


def _binary(value: Any) -> Any:
    """Bytes for all that boto3 writes as B, anything else as it is."""
    value = value.value if isinstance(value, Binary) else value  # type: ignore[attr-defined]
    return bytes(value) if isinstance(value, bytearray) else value


def _carrier(key: Any) -> str | bytes:
    """The key as something that can carry a suffix."""
    raw = _binary(key)
    if isinstance(raw, int | float | Decimal) and not isinstance(raw, bool):
        problem = f"The partition key {_shown(key)} is a number, and a number cannot carry a suffix"
        raise ConfigurationError(f"{problem}. Use an S or B partition key, or an S key holding the number's text.")
    if not isinstance(raw, str | bytes) or not raw:
        raise InvalidKeyError(f"The partition key {_shown(key)} is empty or no key. Give a non-empty str or bytes.")
    return raw


def _whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{what}={_shown(value)} is no int of at least {least}. Give one.")
    return int(value)


def _members(value: Any) -> tuple[Any, ...]:
    if value == () and isinstance(value, tuple):
        raise InvalidKeyError("An empty tuple has nothing to calculate a shard from. Give it a member.")
    return value if isinstance(value, tuple) else (value,)


def _encoded(value: Any) -> tuple[bytes, bytes]:
    """Type letter and content of what a shard can be calculated from."""
    raw = _binary(value)
    if isinstance(raw, bytes):
        return b"B", raw
    if isinstance(raw, str) and not _SURROGATE(raw):
        return b"S", raw.encode("utf-8")
    if isinstance(raw, int | Decimal) and not isinstance(raw, bool):
        number = Decimal(raw)
        if not number:
            return b"N", b"0"
        if number.is_finite() and abs(number.adjusted()) < _MOST_DIGITS:
            text = format(number, "f")  # exact at any length, whatever the context
            return b"N", (text.rstrip("0").rstrip(".") if "." in text else text).encode("ascii")
    raise InvalidKeyError(
        f"No shard can be calculated from {_shown(raw)} ({type(raw).__name__}; no text with unpaired surrogates, NaN, "
        "Infinity or over 1000 digits). Use text, bytes, an int or a Decimal."
    )


def _form(value: Any) -> Any:
    """A field's plain form, for ``to_dict``; ``_unform`` is its reverse."""
    if isinstance(value, _Counts):
        forms = [{"S": key} if isinstance(key, str) else {"B": base64.b64encode(key).decode()} for key in value]
        return sorted(map(list, zip(forms, value.values(), strict=True)), key=repr)
    if not callable(value):
        return list(value) if isinstance(value, tuple) else value
    for name, function in list(_FUNCTIONS.items()):
        if function == value:
            return {"function": name}
    raise ConfigurationError(f"{_shown(value)} has no name. Give it one: register_function(function, name=...).")


def _unform(name: str, form: Any) -> Any:
    if isinstance(form, Mapping):
        if len(form) != 1 or form.get("function") not in list(_FUNCTIONS):
            raise ConfigurationError(f"{name}={_shown(form)} is no known function. Call register_function first.")
        return _FUNCTIONS[form["function"]]
    if name != "shards" or not isinstance(form, list):
        return tuple(form) if isinstance(form, list) else form
    try:
        return {_KEY_FORMS[letter](text): count for key, count in form for letter, text in [*key.items()]}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"shards={_shown(form)} is wrong. Give [[{{'S': key}}, count], ...].") from error


def _shown(value: Any) -> str:
    """A value for a message, cut short; a function by its name."""
    if isinstance(value, int) and value.bit_length() > _MOST_DIGITS:  # Python refuses to print very long ones
        return f"<int of {value.bit_length()} bits>"
    return str(getattr(value, "__qualname__", None) or reprlib.repr(value))
