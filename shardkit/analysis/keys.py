"""How evenly a candidate for a partition key spreads data: distinct values, the hottest, entropy, heat at a time."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import nlargest
from typing import Any, NamedTuple, TypeAlias

from shardkit.core.hashing import binary, stable_hash
from shardkit.core.heavy_hitters import HeavyHitters
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError

MAX_KEYS = 100_000
"""Distinct keys that are counted one by one."""

Key: TypeAlias = tuple[Any, ...]
"""A key: for each attribute of the candidate a value of type S, N or B (str, int or Decimal, bytes)."""

_HASH_BITS = 64
_HEAVY = 1000  # keys whose part of the entropy is known; that of the others is estimated from a sample
_YEAR = r"(?:19|20)\d\d"
_MONTH = r"(?:0[1-9]|1[0-2])"
_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?:[01]\d|2[0-3])(?::?[0-5]\d(?::?[0-5]\d)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?"
# Months, weeks, days, hours, minutes and seconds as ISO 8601 writes them (or with slashes). Finer ones are left out: a
# thousand of them a second are a thousand keys.
_is_time = re.compile(
    rf"{_YEAR}-(?:{_MONTH}|W[0-5]\d(?:-[1-7])?)|{_YEAR}([-/]?){_MONTH}\1{_DAY}(?:[T ]{_CLOCK})?"
).fullmatch


class KeyUsage(NamedTuple):
    """What is under one key.

    Attributes:
        key: the key.
        items: how many items.
        bytes: their sizes together; None: not counted, because there are too many keys.
        write_units: what writing each of them takes.
        read_units: what reading each of them takes; None: not counted, because there are too many keys.
    """

    key: Key
    items: int
    bytes: int | None
    write_units: float
    read_units: float | None


@dataclass(frozen=True)
class Uniformity:
    """How evenly a candidate for a partition key spreads the items that have it.

    Attributes:
        attributes: the candidate: the names of one or several attributes.
        times: those of them that say when an item is written, to the second at the finest.
        items: items that have the key.
        bytes: their sizes together.
        write_units: what writing each of them takes.
        read_units: what reading each of them takes.
        distinct: how many different keys; an estimate where not ``exact``.
        exact: whether all keys were counted one by one. Otherwise ``distinct`` and ``entropy`` are estimated from a
            sample of the keys, and the figures of a key may be too low, by ``error`` at the most.
        error: write units that the figure of a key may be too low by; 0 where ``exact``.
        entropy: of the write units over the keys, in bits.
        hottest: the keys with most write units, in that order.
        write_share: the hottest key's share of the write units; of a candidate with ``times``, that of the hottest key
            at its time, on average: what is written at one time goes to the keys of that time only.
        read_share: the same of the read units.
    """

    attributes: tuple[str, ...]
    times: tuple[str, ...]
    items: int
    bytes: int
    write_units: float
    read_units: float
    distinct: int
    exact: bool
    error: float
    entropy: float
    hottest: tuple[KeyUsage, ...]
    write_share: float
    read_share: float

    @property
    def effective_keys(self) -> float:
        """How many equally hot keys have the same entropy."""
        return float(2.0**self.entropy)

    @property
    def evenness(self) -> float:
        """The entropy as a share of the most that so many distinct keys can have: 1.0 where all are equally hot."""
        return min(1.0, self.entropy / math.log2(self.distinct)) if self.distinct > 1 else 1.0


class KeyUniformity:
    """Counts what is under each key of a candidate, in bounded memory.

    Example:
        >>> days = KeyUniformity(["Date"])
        >>> for day in ("2014-07-09", "2014-07-09", "2014-07-10", "2014-07-11"):
        ...     days.add((day,), 350, 1.0, 0.5)
        >>> found = days.result()
        >>> found.distinct, found.entropy, found.hottest[0].items, found.times, found.write_share
        (3, 1.5, 2, ('Date',), 1.0)

    While there are no more than ``max_keys`` keys, every figure is exact. Beyond, the hottest are found by a sketch
    (``HeavyHitters``), and the other figures are estimated from the keys whose hash falls into a shrinking part of its
    range: of each of these keys all items are counted (Flajolet, "On adaptive sampling", 1990).

    Args:
        attributes: the candidate's attributes.
        times: those that say when an item is written. None: those all of whose values are dates or times (months,
            weeks, days, hours, minutes, seconds; ISO 8601).
        max_keys: distinct keys that are counted one by one, at least 1. The standard error of ``distinct`` beyond is
            about 1.2 / √max_keys of it: 0.4% for 100,000.

    Raises:
        ConfigurationError: ``times`` names another attribute, or ``max_keys`` is below 1.

    Cost:
        No request. About 1 µs an item, 15 µs where there are more than ``max_keys`` keys; 300 bytes a distinct key, and
        no more than 1,000 bytes for each of ``max_keys``.

    Source:
        Developer Guide, "Design for Uniform Data Access Across Items In Your Tables".
    """

    def __init__(
        self, attributes: Sequence[str], *, times: Iterable[str] | None = None, max_keys: int = MAX_KEYS
    ) -> None:
        self.attributes = tuple(attributes)
        if max_keys < 1:
            raise ConfigurationError(f"max_keys: must be an integer >= 1, got {max_keys}")
        self._max_keys = max_keys
        self._looks_at_values = times is None
        self._times = list(range(len(self.attributes))) if times is None else [self._place(name) for name in times]
        self._total = _Counts()
        self._keys: dict[Key, _Counts] = {}
        self._level = 0  # the sample holds the keys whose hash begins with so many zero bits
        self._writes: HeavyHitters[Key] | None = None
        self._reads: HeavyHitters[Key] | None = None

    def add(self, key: Key, size: int, write_units: float, read_units: float) -> None:
        """Count an item.

        Args:
            key: its values of the candidate's attributes, in that order; numbers that are equal are one key.
            size: its bytes.
            write_units: what writing it takes, more than 0.
            read_units: what reading it takes, more than 0.
        """
        self._total.add(size, write_units, read_units)
        counts = self._keys.get(key)
        if counts is None:
            counts = self._begin(key)
        counts.add(size, write_units, read_units)
        if self._writes is not None and self._reads is not None:
            self._writes.add(key, write_units)
            self._reads.add(key, read_units)

    @property
    def items(self) -> int:
        """How many items were counted."""
        return self._total.items

    def result(self, top: int = 10) -> Uniformity:
        """Give what was counted so far.

        Args:
            top: how many of the hottest keys to give.

        Raises:
            ConfigurationError: nothing was counted.
        """
        if not self._total.items:
            raise ConfigurationError(f"no item has {' and '.join(self.attributes)}: nothing was counted")
        writes, reads = self._units()
        return Uniformity(
            attributes=self.attributes,
            times=tuple(self.attributes[place] for place in self._times),
            items=self._total.items,
            bytes=self._total.bytes,
            write_units=self._total.write_units,
            read_units=self._total.read_units,
            distinct=len(self._keys) << self._level,
            exact=self._writes is None,
            error=0.0 if self._writes is None else self._writes.error,
            entropy=self._entropy(writes),
            hottest=tuple(map(self._usage, nlargest(top, writes, key=writes.__getitem__))),
            write_share=self._share(writes) / self._total.write_units,
            read_share=self._share(reads) / self._total.read_units,
        )

    def _place(self, name: str) -> int:
        if name not in self.attributes:
            raise ConfigurationError(f"times name {name!r}, which is not of the key {', '.join(self.attributes)}")
        return self.attributes.index(name)

    def _begin(self, key: Key) -> _Counts:
        """Give the counts of a key that has none; they are kept if there is room, or if it is in the sample."""
        if self._looks_at_values and self._times:
            self._times = [place for place in self._times if _tells_a_time(key[place])]
        counts = _Counts()
        if self._sampled(key):
            self._keys[key] = counts
            if len(self._keys) > self._max_keys:
                self._overflow()
        return counts

    def _overflow(self) -> None:
        if self._writes is None:
            self._writes, self._reads = HeavyHitters(self._max_keys), HeavyHitters(self._max_keys)
            for key, counts in self._keys.items():
                if counts.items:
                    self._writes.add(key, counts.write_units, requests=counts.items)
                    self._reads.add(key, counts.read_units, requests=counts.items)
        while len(self._keys) > self._max_keys and self._level < _HASH_BITS:
            self._level += 1
            self._keys = {key: counts for key, counts in self._keys.items() if self._sampled(key)}

    def _sampled(self, key: Key) -> bool:
        return not self._level or not stable_hash(key) >> (_HASH_BITS - self._level)

    def _units(self) -> tuple[Mapping[Key, float], Mapping[Key, float]]:
        """Give the write and the read units of all keys, or of those that are held."""
        if self._writes is None or self._reads is None:
            writes = {key: counts.write_units for key, counts in self._keys.items()}
            return writes, {key: counts.read_units for key, counts in self._keys.items()}
        return (
            {key: held.units for key, held in self._writes.held.items()},
            {key: held.units for key, held in self._reads.held.items()},
        )

    def _usage(self, key: Key) -> KeyUsage:
        if self._writes is None:
            counts = self._keys[key]
            return KeyUsage(key, counts.items, counts.bytes, counts.write_units, counts.read_units)
        held = self._writes.held[key]
        return KeyUsage(key, held.requests, None, held.units, None)

    def _entropy(self, writes: Mapping[Key, float]) -> float:
        heavy = set(nlargest(_HEAVY, writes, key=writes.__getitem__)) if self._level else set()
        known = sum(map(_weighed, (writes[key] for key in heavy)))
        others = sum(_weighed(counts.write_units) for key, counts in self._keys.items() if key not in heavy)
        total = self._total.write_units
        spread: float = math.log2(total) - (known + others * 2.0**self._level) / total
        return max(0.0, spread)

    def _share(self, units: Mapping[Key, float]) -> float:
        """Give the units of the hottest key; where keys have a time, those of the hottest of each time, together."""
        hottest: defaultdict[Key, float] = defaultdict(float)
        for key, used in units.items():
            time = tuple(key[place] for place in self._times)
            hottest[time] = max(hottest[time], used)
        return sum(hottest.values())


class _Counts:
    """What is counted of a key, or of all."""

    __slots__ = ("bytes", "items", "read_units", "write_units")

    def __init__(self) -> None:
        self.items = self.bytes = 0
        self.write_units = self.read_units = 0.0

    def add(self, size: int, write_units: float, read_units: float) -> None:
        self.items += 1
        self.bytes += size
        self.write_units += write_units
        self.read_units += read_units


def _weighed(units: float) -> float:
    return units * math.log2(units) if units else 0.0


def _tells_a_time(value: Any) -> bool:
    # 20140709 is one as a number too.
    return isinstance(value, str | int | Decimal) and _is_time(str(value)) is not None


KEY_BYTES = 2048
"""A partition key's value at the most (API reference)."""


class Candidate:
    """One or several attributes, and what items hold under their values.

    Example:
        >>> candidate = Candidate(["Date"])
        >>> candidate.add({"Date": "2014-07-09", "OrderId": "A17"}, 26, 1.0, 0.5)
        >>> candidate.add({"OrderId": "A18"}, 10, 1.0, 0.5)
        >>> candidate.uniformity.result().items, dict(candidate.without)
        (1, {('Date', 'missing'): 1})

    Args:
        attributes: names of attributes, at least one, each once.
        times: those that say when an item is written; None: found by their values (see ``KeyUniformity``).
        max_keys: distinct keys that are counted one by one.

    Attributes:
        attributes: as given.
        uniformity: the counts of the items that have the key.
        without: how many items have none, by the attribute and what is the matter with it: ``missing``, ``empty``,
            ``too long``, ``no UTF-8``, or the type of a value that can be no key (``BOOL``, ``NULL``, ``M``, ``L``, …).

    Raises:
        ConfigurationError: no attribute, an empty name, or one that is given twice.

    Cost:
        As ``KeyUniformity``.
    """

    def __init__(
        self, attributes: Sequence[str], *, times: Iterable[str] | None = None, max_keys: int = MAX_KEYS
    ) -> None:
        self.attributes = tuple(attributes)
        if not all(self.attributes) or len({*self.attributes}) < max(1, len(self.attributes)):
            raise ConfigurationError(
                f"{','.join(self.attributes)!r} is no key; give an attribute, or several with commas, each once"
            )
        self.uniformity = KeyUniformity(self.attributes, times=times, max_keys=max_keys)
        self.without: Counter[tuple[str, str]] = Counter()

    def add(self, item: Mapping[str, Any], size: int, write_units: float, read_units: float) -> Key | None:
        """Count an item.

        Args:
            item: attribute names to Python values.
            size: its bytes.
            write_units: what writing it takes.
            read_units: what reading it takes.

        Returns:
            Its key; None if it has none.
        """
        key = self.key(item)
        if key is None:
            self.without.update([self._problem(item)])
        else:
            self.uniformity.add(key, size, write_units, read_units)
        return key

    def key(self, item: Mapping[str, Any]) -> Key | None:
        """Give an item's key; None if it has none. Nothing is counted."""
        key = tuple([binary(item.get(name)) for name in self.attributes])
        return None if any(map(_wrong, key)) else key

    def _problem(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """Give the first attribute that can be no part of a key, and what is the matter with it."""
        name, problem = next((name, wrong) for name in self.attributes if (wrong := _wrong(binary(item.get(name)))))
        return name, problem if name in item else "missing"


def _wrong(value: Any) -> str | None:
    """Say why a value can be no key, or a part of one."""
    if isinstance(value, str):
        try:
            value = value if value.isascii() else value.encode()
        except UnicodeEncodeError:
            return "no UTF-8"  # JSON can hold half of a surrogate pair
    if isinstance(value, str | bytes):
        return None if 0 < len(value) <= KEY_BYTES else "too long" if value else "empty"
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return None
    return next(iter(to_wire_item({"": value})[""]))
