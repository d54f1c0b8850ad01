"""Strategies: how a table's suffixes are chosen, and how a strategy is written as JSON."""

from __future__ import annotations

import base64
import builtins
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from inspect import signature
from typing import Any, TypeAlias, TypeVar

from shardkit.core import ranges
from shardkit.core.calls import explains_construction
from shardkit.core.checks import check_count, did_you_mean
from shardkit.core.hashing import checked, code_point_product, number_text, stable_hash, unwrapped
from shardkit.dynamodb.values import Binary
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError, brief

__all__ = ["CalculatedSuffix", "RandomSuffix", "RangeSuffix", "Strategy", "TextForm", "Unsharded", "register_function"]

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Strategy")

_TYPES: dict[str, type[Strategy]] = {}  # by the class's name; filled below
_FUNCTIONS: dict[str, Callable[..., Any]] = {"stable_hash": stable_hash, "code_point_product": code_point_product}
_KEY_FORMS: dict[str, Callable[[Any], Any]] = {"S": str, "B": lambda text: base64.b64decode(text, validate=True)}
_EXAMPLES = {"by": '"OrderId"', "shards": "8", "boundaries": '["F", "N"]'}
_BOUNDARY_FORMS: dict[str, Callable[[Any], Any]] = {**_KEY_FORMS, "N": Decimal}


def register_function(function: F, *, name: str) -> F:
    """Register a function under a name, so that strategies that use it can be written as JSON.

    Example:
        register_function(shards_of_day, name="shards-of-day")

    Do so at import, in every process that reads the strategy.

    Args:
        function: A function for ``shards``, ``by``, ``hash`` or ``boundaries`` of a strategy.
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
            f"function, name: must be a callable and a non-empty str, got {brief(function)} and {brief(name)}"
        )
    if _FUNCTIONS.setdefault(name, function) != function:
        raise ConfigurationError(f"name: {name!r} is taken by {brief(_FUNCTIONS[name])}; choose another name")
    return function


def known_type(made: type[S]) -> type[S]:
    """Let ``from_dict`` make a class of strategies, by its name."""
    _TYPES[made.__name__] = explains_construction(made)
    return made


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
        given = {name: value for name, value in vars(self).items() if value is not None}
        return {"type": type(self).__name__, **{name: _plain(value) for name, value in given.items()}}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Strategy:
        """Return the strategy that ``to_dict`` represents.

        Example:
            Strategy.from_dict({"type": "RandomSuffix", "shards": 200}) == RandomSuffix(200)
            Strategy.from_dict({"type": "RandomSuffix", "shards": {"hot": 8}}) == RandomSuffix({"hot": 8})

        Args:
            form: The result of ``to_dict``; fields with a default may be omitted, and counts and boundaries per key may
                be given as to the class.

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
                f"form: must be a mapping whose type is one of {[*_TYPES]}, got {brief(form)}{near}"
            )
        return made(**{str(name): _value(name, value) for name, value in form.items() if name != "type"})


def _outside() -> int:
    """Return the ``stacklevel`` with which a warning names the line that called shardkit."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001
    while frame.f_back is not None and (
        frame.f_globals.get("__name__", "").startswith("shardkit.")
        or (frame.f_code.co_name, frame.f_code.co_filename) == ("__init__", "<string>")  # of a subclass's dataclass()
    ):
        frame, level = frame.f_back, level + 1
    return level


def _plain(value: Any) -> Any:
    """Return the plain form of a field's value; ``_value`` is the inverse."""
    if isinstance(value, Mapping) and not callable(value):
        forms = [
            key if key is None else {"S": key} if isinstance(key, str) else {"B": base64.b64encode(key).decode()}
            for key in value
        ]
        return sorted(map(list, zip(forms, map(_plain, value.values()), strict=True)), key=repr)
    if isinstance(value, Decimal):
        return {"N": number_text(value)}
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode()}
    if not callable(value):
        return list(map(_plain, value)) if isinstance(value, tuple) else value
    for name, function in list(_FUNCTIONS.items()):
        if function == value:
            return {"function": name}
    raise ConfigurationError(f"{brief(value)}: not registered; call register_function(function, name=...) first")


def _value(name: str, form: Any) -> Any:
    if name == "boundaries" and isinstance(form, list):
        return _boundaries(form)
    if name in {"old", "new"} and isinstance(form, Mapping):  # of a Resharding
        return Strategy.from_dict(form)
    if name in {"shards", "boundaries"} and isinstance(form, Mapping) and not isinstance(form.get("function"), str):
        return {key: _boundaries(value) if isinstance(value, list) else value for key, value in form.items()}
    if isinstance(form, Mapping):
        if len(form) != 1 or form.get("function") not in list(_FUNCTIONS):
            raise ConfigurationError(
                f"{name}: {brief(form)} is not a registered function; call register_function first"
            )
        return _FUNCTIONS[form["function"]]
    if name != "shards" or not isinstance(form, list):
        return tuple(form) if isinstance(form, list) else form
    try:
        return {key if key is None else _read_form(_KEY_FORMS, key): count for key, count in form}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"shards: must be [[{{'S': key}}, count], ...], got {brief(form)}") from error


def _boundaries(form: list[Any]) -> Any:
    try:
        if form and isinstance(form[0], list):
            return {_read_form(_KEY_FORMS, key): _boundaries(one) for key, one in form}
        return tuple(_read_form(_BOUNDARY_FORMS, one) if isinstance(one, Mapping) else one for one in form)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "boundaries: must be ['text', {'N': '1'}, {'B': base64}, ...] or [[{'S': key}, [boundary, ...]], ...], "
            f"got {brief(form)}"
        ) from error


def _read_form(forms: Mapping[str, Callable[[Any], Any]], form: Mapping[str, Any]) -> Any:
    ((letter, text),) = form.items()
    return forms[letter](text)


_MOST_SHARDS = 1_000_000  # per logical key: enough for 1,000 million write units a second

KeyValue: TypeAlias = str | bytes | bytearray | Binary | int | Decimal
Shards = int | Mapping[Any, int] | Callable[[Any], int]
By = str | tuple[str, ...] | Callable[[Mapping[str, Any]], Any]
Boundaries = Sequence[KeyValue] | Mapping[Any, Sequence[KeyValue]] | Callable[[Any], Sequence[KeyValue]]


class Strategy(TextForm):
    """How a table's suffixes are chosen. Strategies are immutable, picklable, compared by value, and do no I/O.

    Example:
        strategy = CalculatedSuffix("OrderId", shards=200)
        strategy.physical_key("2014-07-09", strategy.shard_of("2014-07-09", {"OrderId": "A17"}))

    This is the base class of ``RandomSuffix``, ``CalculatedSuffix``, ``RangeSuffix`` and ``Unsharded``; do not use it
    directly.

    In every method, ``key`` is a logical partition key: text or binary; for ``Unsharded`` also a number.

    Raises:
        InvalidKeyError: In every method: the key is empty or not a key.
        ConfigurationError: In every method: the key is a number, or the ``shards`` function returned an invalid number.

    Source: Developer Guide, "Best Practices for Tables".
    """

    shards: Shards
    separator: str = ""
    first: int
    attribute: str | None = None
    source: str | None = None
    settled: bool = True
    """Whether it alone tells where items are. A ``Resharding`` and a ``ShardMap`` have others in their stages."""

    @property
    def locate(self) -> bool:
        """Whether to search all shards for an item whose shard is unknown (RandomSuffix only)."""
        return False

    @property
    def by_attributes(self) -> tuple[str, ...] | None:
        """The attributes that the shard is calculated from; None for other strategies, or if ``by`` is a function."""
        by: By | None = getattr(self, "by", None)
        return (by,) if isinstance(by, str) else by if isinstance(by, tuple) else None

    @property
    def ordered_by(self) -> str | None:
        """The sort key whose ranges are the shards (RangeSuffix only): lower shards have lower sort keys."""
        return None

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
            The range from ``first`` to ``first + shards - 1`` (``RangeSuffix``: from 1); for ``Unsharded`` ``(None,)``.

        Raises:
            InvalidKeyError: As the class.
            ConfigurationError: As the class.

        Cost: none; no request.
        """
        shards, raw = self.shards, _carrier(key)
        if not isinstance(shards, int):
            if isinstance(shards, Mapping):
                shards = shards.get(raw, shards.get(None, 1))
            else:
                shards = _count(shards(raw), f"shards (for key {brief(raw)})")
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
        check_shard("shard", shard, self.shards_for(key), key)
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
            of that key (ASCII digits, no leading zero; ``RangeSuffix``: the name of a range). Only the last suffix is
            removed.

        Raises:
            ConfigurationError: The ``shards`` function returned an invalid number.

        Cost: O(length of the key); no request.
        """
        raw = unwrapped(physical)
        if not self.separator or not isinstance(raw, str | bytes):
            return physical, None
        cut: Any = self.separator if isinstance(raw, str) else self.separator.encode("ascii")
        logical, _, written = raw.rpartition(cut)
        shard = self._read(logical, written) if logical and written.isascii() else None  # a logical key is not empty
        return (physical, None) if shard is None else (logical, shard)

    def _join(self, key: KeyValue, shard: int | None) -> KeyValue:
        if shard is None:
            return key
        raw = _carrier(key)
        suffix = f"{self.separator}{self._written(raw, shard)}"
        return raw + suffix if isinstance(raw, str) else raw + suffix.encode("ascii")

    def _written(self, logical: str | bytes, shard: int) -> str:
        """Return how a shard of a key is written after the separator."""
        return str(shard)

    def _read(self, logical: str | bytes, written: str | bytes) -> int | None:
        """Return the shard of a key that is written so; None: it has no such shard."""
        # Digits have a leading zero only in "0".
        if not written.isdigit() or (len(written) > 1 and not int(written[:1])):
            return None
        shards: Any = self.shards_for(logical)
        return int(written) if len(written) <= len(str(shards[-1])) and int(written) in shards else None

    def _check(self) -> None:
        self._check_of_index()
        self._check_separator()
        object.__setattr__(self, "first", _whole(self.first, "first", 0))
        shards: Any = self.shards
        if isinstance(shards, Mapping) or not callable(shards):
            kept = _PerKey(shards, "shards", _count) if isinstance(shards, Mapping) else _count(shards, "shards")
            object.__setattr__(self, "shards", kept)

    def _check_of_index(self) -> None:
        for name in ("attribute", "source"):
            given: Any = getattr(self, name)
            if given is not None and not (isinstance(given, str) and given):
                raise ConfigurationError(
                    f"{name}: must be the name of an attribute, for an index of indexes=, got {brief(given)}; omit it"
                )
        if self.attribute is not None and self.source is not None:
            raise ConfigurationError(
                f"attribute, source: must not both be given, got {brief(self.attribute)} and {brief(self.source)}; "
                "give attribute= for an index with an attribute for the shard in its key, else source="
            )

    def _check_separator(self) -> None:
        separator: Any = self.separator
        if not (isinstance(separator, str) and separator and separator.isascii()) or any(map(str.isdigit, separator)):
            raise ConfigurationError(
                f"separator: must be ASCII text without digits, not empty, got {brief(separator)}; give '.'"
            )

    def __repr__(self) -> str:
        values = [(name, value) for name, value in vars(self).items() if value != getattr(type(self), name, None)]
        return f"{type(self).__name__}({', '.join(f'{name}={brief(value)}' for name, value in values)})"


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

    A put never replaces an item: a second put of a primary key most likely goes to another shard, and adds an item. If
    items are put again, use ``CalculatedSuffix`` by the sort key. A table without a sort key would then have several
    items of one key: use ``Unsharded()`` there, and for one hot item a ``ShardedCounter`` or a ``CachedTable``.

    Args:
        shards: How many shards a logical key has, 1 to 1,000,000: an int, a mapping from logical key to int (a key that
            is not in it has as many as ``None`` has there, else one), or a function of the logical key (which gets
            bytes for binary).
        separator: What stands between logical key and shard: ASCII text without digits.
        first: The number of the lowest shard, at least 0.
        locate: Whether operations on one item search all shards for it.
        attribute: For an index of ``indexes=`` only: the attribute of its key that has the shard's number.
        source: For an index of ``indexes=`` only: the attribute that keeps the logical value of its partition key.
            Without it and ``attribute``, only items that have the index's partition key themselves are in it.

    Raises:
        ConfigurationError: An argument cannot work.

    Cost: O(keys in ``shards``); no request.
    Source: Developer Guide, "Best Practices for Tables", "Randomizing Across Multiple Partition Key Values".
    """

    shards: Shards
    separator: str = field(default=".", kw_only=True)
    first: int = field(default=1, kw_only=True)
    locate: bool = field(default=False, kw_only=True)
    attribute: str | None = field(default=None, kw_only=True)
    source: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        if type(self.locate) is not bool:
            raise ConfigurationError(f"locate: must be True or False, got {brief(self.locate)}")

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:  # noqa: D102
        shards = self.shards_for(key)
        return shards[0] if len(shards) == 1 else None


@dataclass(frozen=True, repr=False)
class CalculatedSuffix(Strategy):
    """A suffix calculated from the item, so that its shard is known: ``hash(value) % shards + first``.

    Example:
        CalculatedSuffix("OrderId", shards=200)

    Args:
        by: What is hashed: an attribute's name, a tuple of names (hashed as a tuple), or a function of the item. As a
            rule the name of the table's sort key. That is not its default, because a strategy, and its text form, is
            also read where there is no table: in streams, exports and other languages.
        shards: How many shards a logical key has, 1 to 1,000,000: an int, a mapping from logical key to int (a key that
            is not in it has as many as ``None`` has there, else one), or a function of the logical key (which gets
            bytes for binary).
        hash: A function from the value (bytes for binary) to an int >= 0, the same in every process.
        separator: What stands between logical key and shard: ASCII text without digits.
        first: The number of the lowest shard, at least 0.
        attribute: For an index of ``indexes=`` only: the attribute of its key that has the shard's number.
        source: For an index of ``indexes=`` only: the attribute that keeps the logical value of its partition key.
            Without it and ``attribute``, only items that have the index's partition key themselves are in it.

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
    attribute: str | None = field(default=None, kw_only=True)
    source: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        names: tuple[Any, ...] = self.by if isinstance(self.by, tuple) else (self.by,)
        if not callable(self.by) and not (names and all(isinstance(name, str) and name for name in names)):
            raise ConfigurationError(
                f"by: must be an attribute name, a tuple of names or a function, got {brief(self.by)}"
            )
        if callable(self.by):
            _check_takes_item(self.by)
        function: Any = self.hash
        if not callable(function) or function is builtins.hash:
            raise ConfigurationError(
                f"hash: must be a function that returns the same in every process, got {brief(function)}; "
                "use stable_hash"
            )
        if function is code_point_product:
            warnings.warn(
                "code_point_product: a product of code points is nearly always divisible by 200; most items share a "
                "suffix (of 20,000 UUIDs all, of random 8-digit ids 64%). Use it only for data written with it.",
                stacklevel=_outside(),
            )

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:  # noqa: D102
        shards = self.shards_for(key)
        number: Any = self.hash(_by_value(self.by, item))
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigurationError(
                f"hash: {brief(self.hash)} returned {brief(number)}; it must return an int >= 0; use stable_hash"
            )
        return shards[number % len(shards)]


@dataclass(frozen=True, repr=False)
class RangeSuffix(Strategy):
    """Ranges of the sort key as shards, which keep the order: a Query asks only those that it can touch, one by one.

    Example:
        RangeSuffix("OrderId", ["F", "N"])  # 3 ranges: below F, from F to below N, from N on

    The suffix of a range is its lower boundary in hex (``2014-07-09.x46``), not its number: a new boundary above all
    stored sort keys moves no item. Shards are numbered from 1, in the order of their sort keys.

    Args:
        by: The name of the table's sort key; for an index of ``indexes=``, of the index's.
        boundaries: The lowest sort key of every range but the first, in ascending order: texts, bytes or numbers of at
            most 64 bytes. A mapping from logical key to boundaries (a key that is not in it has one range), or a
            function of the logical key (which gets bytes for binary, and must return the same each time), gives each
            key its own.
        separator: What stands between logical key and range: ASCII text without digits and the letters a to f and x.
        source: As of ``CalculatedSuffix``.

    Raises:
        ConfigurationError: An argument cannot work.

    Cost: O(boundaries); no request.
    Source: ``tests/vectors/suffix.json``, for implementations in other languages.
    """

    by: str
    boundaries: Boundaries
    separator: str = field(default=".", kw_only=True)
    source: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_of_index()
        self._check_separator()
        if ranges.NAME_CHARACTERS & set(self.separator):
            raise ConfigurationError(
                f"separator: must not have the letters a to f and x, which are in the names of ranges, got "
                f"{brief(self.separator)}; give '.'"
            )
        if not isinstance(self.by, str) or not self.by:
            raise ConfigurationError(f"by: must be the name of the table's sort key, got {brief(self.by)}")
        given: Any = self.boundaries
        if isinstance(given, Mapping) and given:
            object.__setattr__(self, "boundaries", _PerKey(given, "boundaries", ranges.boundaries))
        elif not callable(given):
            listed = () if isinstance(given, Mapping) else given
            object.__setattr__(self, "boundaries", ranges.boundaries(listed, "boundaries"))

    @classmethod
    def from_sample(cls, values: Iterable[KeyValue], shards: int, *, by: str, separator: str = ".") -> RangeSuffix:
        """Return a strategy whose boundaries cut a sample of sort keys into ranges of equal size.

        Example:
            RangeSuffix.from_sample(order_ids, 50, by="OrderId")

        A boundary is the shortest text that separates two values of the sample. With 100 values a shard, the fullest
        of 50 ranges gets about a quarter more than the mean.

        Args:
            values: Sort keys, in the order in which they were written. They are kept in memory.
            shards: How many ranges to cut, 1 to 1,000,000.
            by: As of the class.
            separator: As of the class.

        Returns:
            A strategy with at most ``shards`` ranges; :meth:`skew` tells how evenly other keys fall.

        Raises:
            ConfigurationError: There are fewer values than shards, or boundaries would be longer than 64 bytes.
            InvalidKeyError: A value is not a sort key, or of another type than the first.

        Warns:
            UserWarning: The sort keys only grow (or only fall), so all new items would have one shard; or values repeat
                so often that the ranges are fewer or uneven.

        Cost: O(values × log(values)); no request.
        """
        check_count("shards", shards, "ranges", most=_MOST_SHARDS)
        sample = ranges.sample(values)
        if len(sample) < shards:
            raise ConfigurationError(
                f"values: must be at least as many as shards ({shards:,}), got {len(sample):,}; give a larger sample"
            )
        strategy = cls(by, tuple(ranges.cuts(sorted(sample), shards)), separator=separator)
        above, below = ranges.growth(sample)
        for share, growing, outer in ((above, "grow", "last"), (below, "fall", "first")):
            if share > _MOST_OUTSIDE:
                warnings.warn(
                    f"values: sort keys that only {growing}: {share:.0%} of the later half of the sample lie beyond "
                    f"all of the earlier half, so new items would all have the {outer} range; use CalculatedSuffix, or "
                    "give the values in the order in which they were written",
                    stacklevel=2,
                )
        found, skew = len(strategy.shards_for("any")), strategy.skew("any", sample)
        if found < shards or skew > _MOST_SKEW:
            warnings.warn(
                f"values: {len(sample):,} with {len(sample) - len(set(sample)):,} repetitions make {found:,} ranges of "
                f"{shards:,}, and the fullest has {skew:.3g} times the mean; give a larger sample, or fewer shards",
                stacklevel=2,
            )
        return strategy

    def skew(self, key: KeyValue, values: Iterable[KeyValue]) -> float:
        """Return how much fuller than the mean the fullest range of a key is.

        Example:
            RangeSuffix("OrderId", ["F", "N"]).skew("2014-07-09", ["A", "B", "G", "P"]) == 1.5

        Args:
            key: A logical partition key.
            values: Sort keys, such as those of a later day than the sample's.

        Returns:
            The items of the fullest range divided by the mean of all ranges: 1 is even, the number of ranges is the
            worst.

        Raises:
            InvalidKeyError: As the class; or a value is not a sort key of the boundaries' type.
            ConfigurationError: As the class; or there are no values.

        Cost: O(values × log(boundaries)); no request.
        """
        return ranges.fullest(self._bounds(_carrier(key)), ranges.sample(values))

    @property
    def ordered_by(self) -> str:  # noqa: D102
        return self.by

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int:  # noqa: D102
        return 1 + ranges.place(self._bounds(_carrier(key)), _by_value(self.by, item), self.by)

    def shards_for(self, key: KeyValue) -> Sequence[int]:  # noqa: D102
        return range(1, len(self._bounds(_carrier(key))) + 2)

    def shards_between(
        self, key: KeyValue, low: KeyValue | None = None, high: KeyValue | None = None, *, below: bool = False
    ) -> Sequence[int]:
        """Return the shards that can hold sort keys from ``low`` to ``high``.

        Example:
            RangeSuffix("OrderId", ["F", "N"]).shards_between("2014-07-09", "G", "N", below=True) == range(2, 3)

        Args:
            key: A logical partition key.
            low: The lowest sort key; None: no lower end.
            high: The highest sort key; None: no upper end. If it is lower than ``low``, the shard of ``low`` is
                returned: DynamoDB refuses such a range, and a request shows its error.
            below: Whether ``high`` itself is excluded.

        Returns:
            A range of shard numbers, never empty.

        Raises:
            InvalidKeyError: As the class; or an end is not a sort key of the boundaries' type.
            ConfigurationError: As the class.

        Cost: O(log(boundaries)); no request.
        """
        bounds = self._bounds(_carrier(key))
        first = 0 if low is None else ranges.place(bounds, low, self.by)
        last = len(bounds) if high is None else ranges.place(bounds, high, self.by)
        if below and last and bounds[last - 1] == ranges.sort_key(high):
            last -= 1
        return range(first + 1, max(first, last) + 2)

    def _bounds(self, raw: str | bytes) -> tuple[ranges.Boundary, ...]:
        given: Any = self.boundaries
        if isinstance(given, tuple):
            return given
        return given.get(raw, ()) if isinstance(given, Mapping) else _bounds_from(given, raw)

    def _written(self, logical: str | bytes, shard: int) -> str:
        return ranges.name(self._bounds(logical)[shard - 2] if shard > 1 else None)

    def _read(self, logical: str | bytes, written: str | bytes) -> int | None:
        name = written if isinstance(written, str) else written.decode("ascii")
        return _shards_by_name(self._bounds(logical)).get(name)


_MOST_OUTSIDE = 0.5  # of a sample's later half, beyond its earlier half
_MOST_SKEW = 1.5


@lru_cache(1000)
def _bounds_from(function: Callable[[Any], Any], raw: str | bytes) -> tuple[ranges.Boundary, ...]:
    return ranges.boundaries(function(raw), f"boundaries (for key {brief(raw)})")


@lru_cache(1000)
def _shards_by_name(bounds: tuple[ranges.Boundary, ...]) -> dict[str, int]:
    return {ranges.name(bound): number for number, bound in enumerate((None, *bounds), 1)}


for _made in (RandomSuffix, CalculatedSuffix, RangeSuffix, Unsharded):
    known_type(_made)


def _check_takes_item(by: Callable[..., Any]) -> None:
    try:
        signature(by).bind({})
    except ValueError:
        return  # a function that is written in C may have no signature
    except TypeError as error:
        raise ConfigurationError(
            f"by: a function is called with the item alone, but {brief(by)} is not made for that ({error}); give an "
            "attribute's name, a tuple of names, or a function such as lambda item: item['OrderId']"
        ) from None


def _by_value(by: By, item: Mapping[str, Any]) -> Any:
    try:
        value = item[by] if isinstance(by, str) else by(item) if callable(by) else tuple(item[name] for name in by)
    except LookupError as error:
        near = did_you_mean(str(next(iter(error.args), "")), map(str, item))
        raise ShardUnknownError(
            f"by: {brief(by)} found no {error} among {sorted(map(str, item))}{near}; add it to Item=, or to Key= "
            "beside the key attributes; or give Shard="
        ) from error
    if isinstance(by, str) and isinstance(value, tuple):
        raise InvalidKeyError(f"by: {by!r} has the value {brief(value)}, a list in DynamoDB; use a single value")
    return checked(value)


class _PerKey(Mapping[Any, Any]):
    """A checked, unchangeable copy of a mapping from logical key to its number of shards, or to its boundaries."""

    def __init__(self, given: Mapping[Any, Any], what: str, check: Callable[[Any, str], Any]) -> None:
        try:
            # None: every key that is not in the mapping.
            default = {key: given[key] for key in given if key is None and what == "shards"}
            keys = {_carrier(key): value for key, value in given.items() if key not in default}
        except (InvalidKeyError, ConfigurationError) as error:
            raise ConfigurationError(f"{what}: {brief(given)} has an invalid key: {error}") from error
        self._values = {key: check(value, f"{what}[{key!r}]") for key, value in (default | keys).items()}

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


def in_place_of_strategy(given: Any) -> str:
    """Return the text of what is not a strategy, for a message; with how to make one of it, if that is known."""
    if not (isinstance(given, type) and issubclass(given, Strategy)):
        return brief(given, 200) + ("; give Strategy.from_dict(…)" if isinstance(given, Mapping) else "")
    needed = [name for name, one in signature(given).parameters.items() if one.default is one.empty]
    example = ", ".join(f"{name}={_EXAMPLES.get(name, '…')}" for name in needed)
    return f"the class {given.__name__}; call it: {given.__name__}({example})"


def check_shard(name: str, given: Any, shards: Sequence[int | None], key: Any) -> None:
    """Refuse an argument that must be one of a key's shards."""
    if (type(given) is not int and given is not None) or given not in shards:
        span = "None" if shards[0] is None else f"an integer from {shards[0]} to {shards[-1]}"
        raise ConfigurationError(
            f"{name}: must be {span} for key {brief(key)}, got {brief(given)}; give, for example, {name}={shards[0]}"
        )


def _carrier(key: Any) -> str | bytes:
    if type(key) is str and key:
        return key
    raw = unwrapped(key)
    if isinstance(raw, int | float | Decimal) and not isinstance(raw, bool):
        raise ConfigurationError(
            f"key: must be text or binary, got the number {brief(key)}, which cannot have a suffix; use a partition "
            "key of type S or B, such as the number's text"
        )
    if not isinstance(raw, str | bytes) or not raw:
        raise InvalidKeyError(f"key: must be a non-empty str or bytes, got {brief(key)}")
    return raw


def _count(value: Any, what: str) -> int:
    remedy = "; give a number, a mapping of key to number, or a function of the key" if what == "shards" else ""
    shards = _whole(value, what, 1, remedy)
    if shards > _MOST_SHARDS:
        raise ConfigurationError(f"{what}: must be an integer from 1 to {_MOST_SHARDS:,}, got {brief(value)}")
    return shards


def _whole(value: Any, what: str, least: int, remedy: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{what}: must be an integer >= {least}, got {brief(value)}{remedy}")
    return int(value)
