"""How large items are, what units they take, and which attributes take the bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from shardkit.dynamodb.sizes import ITEM_BYTES, STORAGE_OVERHEAD, attribute_sizes
from shardkit.dynamodb.values import utf8_size
from shardkit.errors import ConfigurationError

NEAR_BYTES = ITEM_BYTES * 9 // 10
"""A larger item has less than a tenth of its 400 KB left."""
SHORT_NAME = 2
"""Bytes of a short name; letters and digits alone make 3,900 such names."""

_COARSE = 1024
_MOST_ATTRIBUTES = 10_000
_WIDE = 8
_STEPS = 16


class Distribution(NamedTuple):
    """The sizes of all items, or the units that they take.

    Of ``percentiles``, each is the smallest figure that so many percent of the items do not exceed.
    """

    total: float
    mean: float
    least: float
    percentiles: Mapping[int, float]
    most: float


class AttributeSize(NamedTuple):
    """The bytes of one attribute's names and values, in the ``items`` that have it; ``name_bytes`` are the names."""

    name: str
    items: int
    bytes: int
    name_bytes: int


class SizeProfile:
    """Counts the sizes of items, in bounded memory.

    All figures are exact for items of up to 400 KB. Larger sizes, which DynamoDB refuses, are rounded up to whole KB.

    Example:
        >>> from shardkit.dynamodb.units import write_units
        >>> profile = SizeProfile()
        >>> profile.add({"Date": "2014-07-09", "Total": 12})
        21
        >>> profile.add({"Date": "2014-07-10", "Note": "x" * 2000})
        2018
        >>> profile.sizes().total, profile.units(write_units).total, profile.over(1024)
        (2039, 3.0, 1)

    ``bytes_saved_by_short_names`` are those saved if no attribute's name were longer than two bytes.

    Cost:
        About 1 µs per attribute; 100 bytes per different size, at most 80 MB; and at most 3 MB for attributes: those
        after the first 10,000 names are added up as ``other_bytes``.

    Source:
        Developer Guide, "DynamoDB item sizes and formats", "Read and write capacity: capacity unit consumption".
    """

    def __init__(self) -> None:
        self.items = self.bytes = self.bytes_saved_by_short_names = 0
        self._sizes: Counter[int] = Counter()
        self._short: Counter[int] = Counter()
        self._attributes: dict[str, _AttributeCounts] = {}

    def add(self, item: Mapping[str, Any]) -> int:
        """Count an item, as a boto3 resource takes it, and return its bytes; if it raises an error, count nothing."""
        parts = attribute_sizes(item)
        size = short = sum(parts.values())
        for name, part in parts.items():
            counts = self._attributes.get(name)
            if counts is None:
                counts = _AttributeCounts(utf8_size(name))
                if len(self._attributes) < _MOST_ATTRIBUTES:
                    self._attributes[name] = counts
            counts.items += 1
            counts.bytes += part
            short -= counts.saved
        self.items += 1
        self.bytes += size
        self.bytes_saved_by_short_names += size - short
        self._sizes[_counted(size)] += 1
        self._short[_counted(short)] += 1
        return size

    @property
    def other_bytes(self) -> int:
        """The bytes of the attributes after the first 10,000."""
        return self.bytes - sum(counts.bytes for counts in self._attributes.values())

    @property
    def storage_bytes(self) -> int:
        """The size in a table, with 100 bytes more per item."""
        return self.bytes + STORAGE_OVERHEAD * self.items

    def sizes(self, percents: Sequence[int] = (50, 90, 99)) -> Distribution:
        found = self.units(float, percents)
        return found._replace(total=self.bytes, mean=self.bytes / self.items)

    def units(self, of: Callable[[int], float], percents: Sequence[int] = (50, 90, 99)) -> Distribution:
        """Return the units that the items take; ``of`` returns those of a size, never fewer for a larger one."""
        self._check_any()
        rising = sorted(self._sizes)
        upto = list(accumulate(self._sizes[size] for size in rising))
        # Units never fall with the size, so a percentile of the units is the units of that percentile of the sizes.
        percentiles = {percent: of(rising[bisect_left(upto, -(-upto[-1] * percent // 100))]) for percent in percents}
        total = sum(of(size) * self._sizes[size] for size in rising)
        return Distribution(total, total / upto[-1], of(rising[0]), percentiles, of(rising[-1]))

    def over(self, size: int) -> int:
        """Return how many items are larger than ``size`` bytes (at most 400 KB)."""
        return sum(count for one, count in self._sizes.items() if one > size)

    def histogram(self) -> list[tuple[int, int]]:
        """Return at most 20 pairs of a size and the number of items up to it and above the size before.

        The sizes have even steps; if the largest item is over eight times the smallest, they are powers of two.
        """
        self._check_any()
        least, most = min(self._sizes), max(self._sizes)
        if most > _WIDE * least:
            edges = [1 << power for power in range(max(0, least - 1).bit_length(), (most - 1).bit_length() + 1)]
        else:
            step = 1 << ((most - least) // _STEPS).bit_length()
            edges = [*range(-(-least // step) * step, most + step, step)]
        counts = [0] * len(edges)
        for size, count in self._sizes.items():
            counts[bisect_left(edges, size)] += count
        return list(zip(edges, counts, strict=True))

    def attributes(self) -> list[AttributeSize]:
        return sorted(
            (AttributeSize(name, one.items, one.bytes, one.items * one.name) for name, one in self._attributes.items()),
            key=lambda one: (-one.bytes, one.name),
        )

    def units_saved_by_short_names(self, of: Callable[[int], float]) -> float:
        """Return how many units fewer items would take if no attribute's name were longer than two bytes."""
        return sum(
            of(size) * (self._sizes[size] - self._short[size]) for size in self._sizes.keys() | self._short.keys()
        )

    def _check_any(self) -> None:
        if not self.items:
            raise ConfigurationError("no item was counted, so there are no sizes to report")


class _AttributeCounts:
    __slots__ = ("bytes", "items", "name", "saved")

    def __init__(self, name: int) -> None:
        self.items = self.bytes = 0
        self.name = name  # bytes
        self.saved = max(0, name - SHORT_NAME)  # bytes that a short name would save


def _counted(size: int) -> int:
    return size if size <= ITEM_BYTES else -(-size // _COARSE) * _COARSE
