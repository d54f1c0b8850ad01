"""How evenly a candidate for a partition key spreads data: distinct values, hottest keys, entropy, heat at one time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import nlargest
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from shardkit.core.hashing import stable_hash, unwrapped
from shardkit.core.heavy_hitters import HeavyHitters
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.units import read_units, write_units
from shardkit.errors import ConfigurationError

MAX_KEYS = 100_000
"""Distinct keys that are counted exactly."""

Key: TypeAlias = tuple[Any, ...]
"""A key: a value for each attribute of the candidate, of type S, N or B (str, int or Decimal, bytes)."""


def key_text(key: Key) -> str:
    """Return a key as text; the parts of a composite one with a # between them."""
    return "#".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)


_HASH_BITS = 64
_HEAVY = 1000  # keys whose part of the entropy is exact; the others' is estimated from a sample
_YEAR = r"(?:19|20)\d\d"
_MONTH = r"(?:0[1-9]|1[0-2])"
_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?:[01]\d|2[0-3])(?::?[0-5]\d(?::?[0-5]\d)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?"
# Months, weeks, days, hours, minutes and seconds, in ISO 8601 or with slashes. Fractions of a second do not match: they
# make up to a thousand keys or more a second.
_is_time = re.compile(
    rf"{_YEAR}-(?:{_MONTH}|W[0-5]\d(?:-[1-7])?)|{_YEAR}([-/]?){_MONTH}\1{_DAY}(?:[T ]{_CLOCK})?"
).fullmatch


class KeyUsage(NamedTuple):
    """The items of one key, and the units that writing or reading each of them once takes.

    ``bytes`` and ``read_units`` are None if there were too many keys to count them.
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
        times: those that say when an item is written, to the second at the finest.
        write_units: the units to write each item once; ``read_units`` are those to read it.
        distinct: the number of different keys, estimated unless ``exact``.
        exact: whether all keys were counted exactly. If not, ``distinct`` and ``entropy`` are estimated from a sample
            of the keys, and a key's figures may be too low, by at most ``error``.
        error: the most write units by which a key's figure may be too low; 0 if ``exact``.
        entropy: of the write units over the keys, in bits.
        hottest: the keys with the most write units, hottest first.
        write_share: the hottest key's share of the write units. With ``times``, the share of the hottest key of each
            time, on average, because what is written at one time goes only to the keys of that time. Times with too few
            items to tell are counted together with the next ones, as one time.
        read_share: the same of the read units.
        unseen: of a sample, how many keys at most may be hotter than the hottest, with 95% confidence; 0: none.
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
    unseen: int = 0

    @property
    def effective_keys(self) -> float:
        """The number of equally hot keys with the same entropy."""
        return float(2.0**self.entropy)

    @property
    def evenness(self) -> float:
        """The entropy divided by the most that so many distinct keys can have: 1.0 if all are equally hot."""
        return min(1.0, self.entropy / math.log2(self.distinct)) if self.distinct > 1 else 1.0


class KeyUniformity:
    """Counts the items and units of each key of a candidate, in bounded memory.

    Example:
        >>> days = KeyUniformity(["Date"])
        >>> for day in ("2014-07-09", "2014-07-09", "2014-07-10", "2014-07-11"):
        ...     days.add((day,), 350, 1.0, 0.5)
        >>> found = days.result()
        >>> found.distinct, found.entropy, found.hottest[0].items, found.times, found.write_share
        (3, 1.5, 2, ('Date',), 1.0)

    With at most ``max_keys`` keys, all figures are exact. With more, a sketch (``HeavyHitters``) finds the hottest, and
    the other figures are estimated from a sample: all items of the keys whose hash falls into a shrinking part of its
    range (Flajolet, "On adaptive sampling", 1990).

    Args:
        attributes: the candidate's attributes.
        times: those that say when an item is written. None: those whose values are all dates or times (ISO 8601:
            months, weeks, days, hours, minutes, seconds).
        max_keys: how many distinct keys to count exactly, at least 1. With more keys, the relative standard error of
            ``distinct`` is about 1.2 / √max_keys: 0.4% for 100,000.

    Cost:
        No request. About 1 µs per item, 15 µs with more than ``max_keys`` keys. About 300 bytes per distinct key, at
        most 1,000 bytes × ``max_keys``.

    Source:
        Developer Guide, "Design for Uniform Data Access Across Items In Your Tables".
    """

    def __init__(
        self, attributes: Sequence[str], *, times: Iterable[str] | None = None, max_keys: int = MAX_KEYS
    ) -> None:
        self.attributes: tuple[str, ...] = tuple(attributes)
        if max_keys < 1:
            raise ConfigurationError(f"max_keys: must be an integer >= 1, got {max_keys}")
        self._max_keys = max_keys
        self._looks_at_values = times is None
        self._times = list(range(len(self.attributes))) if times is None else [self._place(name) for name in times]
        self._total = _Counts()
        self._keys: dict[Key, _Counts] = {}
        self._level = 0  # the sample is the keys whose hash begins with so many zero bits
        self._writes: HeavyHitters[Key] | None = None
        self._reads: HeavyHitters[Key] | None = None

    def add(self, key: Key, size: int, write_units: float, read_units: float) -> None:
        """Count an item, with its bytes and the units to write and to read it; equal numbers are one key."""
        self._total.add(size, write_units, read_units)
        counts = self._keys.get(key)
        if counts is None:
            counts = self._new_counts(key)
        counts.add(size, write_units, read_units)
        if self._writes is not None and self._reads is not None:
            self._writes.add(key, write_units)
            self._reads.add(key, read_units)

    @property
    def items(self) -> int:
        return self._total.items

    def result(self, top: int = 10) -> Uniformity:
        """Return the figures so far, with the ``top`` hottest keys."""
        if not self._total.items:
            raise ConfigurationError(f"no item has {' and '.join(self.attributes)}, so none was counted")
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
            write_share=self._share(writes),
            read_share=self._share(reads, reads=True),
        )

    def _place(self, name: str) -> int:
        if name not in self.attributes:
            raise ConfigurationError(f"times: {name!r} is not an attribute of the key {', '.join(self.attributes)}")
        return self.attributes.index(name)

    def _new_counts(self, key: Key) -> _Counts:
        """Return new counts for a key; they are kept only if the key is in the sample."""
        if self._looks_at_values and self._times:
            self._times = [place for place in self._times if tells_a_time(key[place])]
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
        """Return the write units and the read units of all keys, or of those that the sketches hold."""
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

    def _share(self, units: Mapping[Key, float], *, reads: bool = False) -> float:
        """Return the share of the hottest key; if keys have a time, of the hottest of each time, on average."""
        if not self._times:
            return max(units.values()) / (self._total.read_units if reads else self._total.write_units)
        hottest = total = 0.0
        for window in _windows(self._at_times(reads=reads)):
            hottest += window.hottest[1]
            total += window.units
        return hottest / total if total else 1.0

    def _at_times(self, *, reads: bool) -> Iterator[tuple[Key, Key, int, float]]:
        """Yield each key as its time and its other parts, with its items and units."""
        sketch = self._reads if reads else self._writes
        # The sketch knows only keys with more units than its error, and the sample stands for all others.
        heavy = {} if sketch is None else {key: one for key, one in sketch.held.items() if one.units > sketch.error}
        known = [(key, held.requests, held.units) for key, held in heavy.items()]
        for key, counts in self._keys.items():
            if key not in heavy:
                units = counts.read_units if reads else counts.write_units
                known.append((key, counts.items, units * 2.0**self._level))
        others = [place for place in range(len(self.attributes)) if place not in self._times]
        for key, items, units in known:
            yield tuple([key[place] for place in self._times]), tuple([key[place] for place in others]), items, units


class _Window:
    """The items of neighbouring times, by the parts of their keys that are no times."""

    __slots__ = ("_keys", "hottest", "items", "units")

    def __init__(self) -> None:
        self.items = 0
        self.units = 0.0
        self.hottest: tuple[int, float] = (0, 0.0)  # the items and units of the hottest key
        self._keys: dict[Key, tuple[int, float]] = {}

    def add(self, key: Key, items: int, units: float) -> None:
        had_items, had_units = self._keys.get(key, (0, 0.0))
        found = self._keys[key] = had_items + items, had_units + units
        self.items += items
        self.units += units
        self.hottest = max(self.hottest, found, key=itemgetter(1))

    def add_all(self, other: _Window) -> None:
        for key, (items, units) in other._keys.items():
            self.add(key, items, units)

    @property
    def tells(self) -> bool:
        """Whether the items are enough: the standard error of the hottest key's share is at most a tenth of it.

        One item more, of another key, is counted: a single item is no evidence that its key takes everything.
        """
        hottest, items = self.hottest[0], self.items + 1
        return 100 * (items - hottest) <= items * hottest


def _windows(keys: Iterable[tuple[Key, Key, int, float]]) -> Iterator[_Window]:
    """Yield windows of as many neighbouring times as it takes to tell which key is the hottest."""
    done: _Window | None = None
    window = _Window()
    for _, at_this_time in groupby(sorted(keys, key=_in_order), key=itemgetter(0)):
        for _, key, items, units in at_this_time:
            window.add(key, items, units)
        if window.tells:
            if done is not None:
                yield done
            done, window = window, _Window()
    if done is None:
        done = window
    else:
        done.add_all(window)
    yield done


def _in_order(found: tuple[Key, Key, int, float]) -> Any:
    # Only values of one type can be compared.
    return [(isinstance(part, str), isinstance(part, bytes), part) for part in found[0]]


class _Counts:
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


def tells_a_time(value: Any) -> bool:
    """Return whether a value is a date or a time, to the second at the finest; the number 20140709 is one too."""
    return isinstance(value, str | int | Decimal) and _is_time(str(value)) is not None


KEY_BYTES = 2048
"""The most bytes of a partition key's value (API reference)."""


class Candidate:
    """One or several attributes as a partition key, and the counts of items by it.

    Example:
        >>> candidate = Candidate(["Date"])
        >>> candidate.add({"Date": "2014-07-09", "OrderId": "A17"}, 26)
        ('2014-07-09',)
        >>> candidate.add({"OrderId": "A18"}, 10)
        >>> candidate.uniformity.result().items, dict(candidate.without)
        (1, {('Date', 'missing'): 1})

    The arguments are those of ``KeyUniformity``, and so is the cost.

    Attributes:
        uniformity: the counts of the items that have the key.
        without: how many items do not have it, by attribute and reason: ``missing``, ``empty``, ``too long``,
            ``no UTF-8``, or the type of a value that cannot be a key (``BOOL``, ``NULL``, ``M``, ``L``, …).
    """

    def __init__(self, attributes: Sequence[str], *, times: Iterable[str] | None = None) -> None:
        self.attributes: tuple[str, ...] = tuple(attributes)
        if not all(self.attributes) or len({*self.attributes}) < max(1, len(self.attributes)):
            raise ConfigurationError(
                f"attributes: {','.join(self.attributes)!r} is not a key; give one attribute, or several, each once"
            )
        self.uniformity = KeyUniformity(self.attributes, times=times)
        self.without: Counter[tuple[str, str]] = Counter()

    def add(self, item: Mapping[str, Any], size: int) -> Key | None:
        """Count an item of so many bytes, and return its key; None: it has none."""
        key = self.key(item)
        if key is None:
            self.without.update([self._problem(item)])
        else:
            self.uniformity.add(key, size, write_units(size), read_units(size))
        return key

    def key(self, item: Mapping[str, Any]) -> Key | None:
        """Return an item's key, without counting it; None: it has none."""
        key = tuple([unwrapped(item.get(name)) for name in self.attributes])
        return None if any(map(_wrong, key)) else key

    def _problem(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """Return the first attribute that cannot be part of a key, and why."""
        name, problem = next((name, wrong) for name in self.attributes if (wrong := _wrong(unwrapped(item.get(name)))))
        return name, problem if name in item else "missing"


def _wrong(value: Any) -> str | None:
    """Return why a value cannot be part of a key."""
    if isinstance(value, str):
        try:
            value = value if value.isascii() else value.encode()
        except UnicodeEncodeError:
            return "no UTF-8"  # JSON can contain half of a surrogate pair
    if isinstance(value, str | bytes):
        return None if 0 < len(value) <= KEY_BYTES else "too long" if value else "empty"
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return None
    return next(iter(to_wire_item({"": value})[""]))
