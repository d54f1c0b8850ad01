"""How large items are: every size counted, what reading and writing them takes, and which attributes make them so."""

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
"""An item that is larger has less than a tenth of its 400 KB left."""
SHORT_NAME = 2
"""Bytes of a short name: there are 3,900 of them even of letters and digits."""

_COARSE = 1024
_MOST_ATTRIBUTES = 10_000
_WIDE = 8
_STEPS = 16


class Distribution(NamedTuple):
    """Figures of all items: of their sizes, or of the units that they take.

    Attributes:
        total: their sum.
        mean: its share of an item.
        least: the smallest.
        percentiles: for each percent the smallest figure that so many percent of the items do not exceed.
        most: the largest.
    """

    total: float
    mean: float
    least: float
    percentiles: Mapping[int, float]
    most: float


class AttributeSize(NamedTuple):
    """What an attribute takes.

    Attributes:
        name: its name.
        items: how many items have it.
        bytes: its name and value, in all of them.
        name_bytes: of these, its name.
    """

    name: str
    items: int
    bytes: int
    name_bytes: int


class SizeProfile:
    """Counts the sizes of items, in bounded memory.

    Every size up to 400 KB is counted by itself, so that all figures are exact; beyond (which DynamoDB refuses), sizes
    are rounded up to whole KB.

    Example:
        >>> profile = SizeProfile()
        >>> profile.add({"Date": "2014-07-09", "Total": 12})
        21
        >>> profile.add({"Date": "2014-07-10", "Note": "x" * 2000})
        2018
        >>> profile.sizes().total, profile.units(write_units).total, profile.over(1024)
        (2039, 3.0, 1)

    Attributes:
        items: how many were counted.
        bytes: their sizes together.
        bytes_saved_by_short_names: what they would take less if no name of an attribute were longer than two bytes.

    Cost:
        About 1 µs an attribute; 100 bytes a different size, 80 MB at the most, and 3 MB for attributes: those beyond
        the first 10,000 names are added up as ``other_bytes``.

    Source:
        Developer Guide, "DynamoDB item sizes and formats", "Read and write capacity: capacity unit consumption".
    """

    def __init__(self) -> None:
        self.items = self.bytes = self.bytes_saved_by_short_names = 0
        self._sizes: Counter[int] = Counter()
        self._short: Counter[int] = Counter()
        self._attributes: dict[str, _Counts] = {}

    def add(self, item: Mapping[str, Any]) -> int:
        """Count an item.

        Args:
            item: attribute names to Python values, of the types that a boto3 resource takes.

        Returns:
            Its size in bytes.

        Raises:
            InvalidKeyError: it is no mapping, or a name in it is no str.
            InvalidValueError: DynamoDB cannot hold a value. Nothing is counted.
        """
        parts = attribute_sizes(item)
        size = short = sum(parts.values())
        for name, part in parts.items():
            counts = self._attributes.get(name)
            if counts is None:
                counts = self._begin(name)
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
        """What the attributes take that are not counted apart, because there are too many."""
        return self.bytes - sum(counts.bytes for counts in self._attributes.values())

    @property
    def storage_bytes(self) -> int:
        """What they take in a table: 100 bytes an item more."""
        return self.bytes + STORAGE_OVERHEAD * self.items

    def sizes(self, percents: Sequence[int] = (50, 90, 99)) -> Distribution:
        """Give their sizes in bytes."""
        found = self.units(float, percents)
        return found._replace(total=self.bytes, mean=self.bytes / self.items)

    def units(self, of: Callable[[int], float], percents: Sequence[int] = (50, 90, 99)) -> Distribution:
        """Give the units that they take, each by itself.

        Args:
            of: a size's units, which never fall with it: ``write_units``, ``read_units``.
            percents: which percentiles.
        """
        self._some()
        return _distribution(self._sizes, of, percents)

    def over(self, size: int) -> int:
        """Count the items that are larger than so many bytes, at most 400 KB."""
        return sum(count for one, count in self._sizes.items() if one > size)

    def histogram(self) -> list[tuple[int, int]]:
        """Count the items by size: from the smallest to the largest, at most 20 times up to a size and above the last.

        Returns:
            Sizes and items. The sizes are even steps; where the largest item is over eight times the smallest, powers
            of two.
        """
        self._some()
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
        """Give the attributes, the costliest first."""
        return sorted(
            (AttributeSize(name, one.items, one.bytes, one.items * one.name) for name, one in self._attributes.items()),
            key=lambda one: (-one.bytes, one.name),
        )

    def units_saved_by_short_names(self, of: Callable[[int], float]) -> float:
        """Give the units that items would take less if no name of an attribute were longer than two bytes.

        Args:
            of: a size's units: ``write_units``, ``read_units``.
        """
        return sum(
            of(size) * (self._sizes[size] - self._short[size]) for size in self._sizes.keys() | self._short.keys()
        )

    def _begin(self, name: str) -> _Counts:
        """Give the counts of an attribute that has none; they are kept if there is room."""
        counts = _Counts(utf8_size(name))
        if len(self._attributes) < _MOST_ATTRIBUTES:
            self._attributes[name] = counts
        return counts

    def _some(self) -> int:
        if not self.items:
            raise ConfigurationError("no item was counted, so there is nothing to say of their sizes")
        return self.items


class _Counts:
    """What is counted of an attribute."""

    __slots__ = ("bytes", "items", "name", "saved")

    def __init__(self, name: int) -> None:
        self.items = self.bytes = 0
        self.name = name  # bytes of its name
        self.saved = max(0, name - SHORT_NAME)  # and those beyond a short one


def _counted(size: int) -> int:
    return size if size <= ITEM_BYTES else -(-size // _COARSE) * _COARSE


def _distribution(sizes: Mapping[int, int], of: Callable[[int], float], percents: Sequence[int]) -> Distribution:
    rising = sorted(sizes)
    upto = list(accumulate(sizes[size] for size in rising))
    # Units never fall with the size, so that a percentile of them is that of the size at it.
    percentiles = {percent: of(rising[bisect_left(upto, -(-upto[-1] * percent // 100))]) for percent in percents}
    total = sum(of(size) * sizes[size] for size in rising)
    return Distribution(total, total / upto[-1], of(rising[0]), percentiles, of(rising[-1]))
