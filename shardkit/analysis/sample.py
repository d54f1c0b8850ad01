"""A table's figures, estimated from random segments of a parallel Scan that are read whole.

DynamoDB assigns an item to a segment by a hash of its partition key, so a segment has all items of a key or none. What
this means for a simple random sample of segments (one-stage cluster sampling):

- The items and bytes of a key that was read are exact.
- Every key is read with the same probability, the share of the segments that are read, however many items it has. So
  the hottest key may be missing: ``keys_unseen`` bounds how many hotter keys there can be.
- Totals are estimated from how much the segments differ. An interval does not hold if a key that was not read has far
  more items than all that were: the sample cannot know of it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

from shardkit.analysis.keys import Uniformity
from shardkit.core.checks import check_number
from shardkit.dynamodb.units import READ_UNIT_BYTES, read_units
from shardkit.errors import ConfigurationError

CONFIDENCE = 0.95
"""The probability that an interval contains the true figure."""
PAGE_UNITS = read_units(1024**2)
"""The most read units of a page of a Scan that is eventually consistent: it has at most 1 MB (API reference)."""
LEAST_UNITS = 2 * PAGE_UNITS
"""The fewest read units that a sample may be limited to: a page, and one in reserve."""

_MOST_SEGMENTS = 1_000_000  # API reference, TotalSegments
_WANTED = 200  # segments of a sample
_FEWEST = 30  # below, an interval is too wide to be of use
_UNKNOWN = 100  # segments of a table whose size is unknown
_SMALLEST = 2.0  # read units of a segment: half a unit is lost by rounding
_ROUNDING = 0.25  # read units that rounding adds to a segment, on average
_LEAST_SEGMENT = read_units(0)  # read units of an empty segment
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # 97.5% quantiles of Student's t, by degrees of freedom


@dataclass(frozen=True)
class SamplePlan:
    """How many of so many segments to read, and the read units that this takes (None: the table's size is unknown)."""

    total_segments: int
    segments: int
    read_units: float | None

    @property
    def share(self) -> float:
        return self.segments / self.total_segments

    @property
    def requests(self) -> int:
        """The Scans that this takes: one for each page of each segment."""
        return self.segments * math.ceil((self.read_units or self.segments) / self.segments / PAGE_UNITS)


def plan_sample(size: int, most_units: float) -> SamplePlan:
    """Return how to read a random sample of a table of ``size`` bytes (0: unknown), for at most ``most_units``.

    Example:
        >>> plan_sample(10**9, 1000)
        SamplePlan(total_segments=27998, segments=189, read_units=871.29...)
        >>> plan_sample(10**6, 1000).share
        1.0
    """
    most_units = check_number("read_units", most_units, "read units", above=True)
    if most_units < LEAST_UNITS:
        raise ConfigurationError(
            f"read_units: must be a number >= {LEAST_UNITS:,.0f} (a page of 1 MB takes {PAGE_UNITS:,.0f}), "
            f"got {most_units:,.10g}"
        )
    if not size:
        return SamplePlan(_UNKNOWN, _UNKNOWN, None)
    whole = size / (2 * READ_UNIT_BYTES)  # eventually consistent
    usable = most_units - PAGE_UNITS  # no page is begun that might exceed the rest
    total = min(_MOST_SEGMENTS, math.ceil(whole / max(usable / _WANTED, _SMALLEST)))
    if _units_of_all(size) <= usable:
        # All of it is read, so more segments are only more requests. These are for a table that has grown since.
        total = min(total, _FEWEST)
    each = max(_LEAST_SEGMENT, whole / total + _ROUNDING)
    segments = min(total, int(usable / each))
    if segments < min(total, _FEWEST):
        least = math.ceil(min(total, _FEWEST) * each + PAGE_UNITS)
        raise ConfigurationError(
            f"read_units: must be at least {least:,} for this table, got {most_units:,.10g}; the smallest part that "
            f"can be read by itself takes about {each:,.0f}, and {_FEWEST} are needed"
        )
    return SamplePlan(total, segments, segments * each)


def units_of_all(size: int) -> int:
    """Return the ``most_units`` with which :func:`plan_sample` reads all of a table of ``size`` bytes."""
    return math.floor(max(LEAST_UNITS, _units_of_all(size) + PAGE_UNITS)) + 1  # to spare: plans are in floats


def _units_of_all(size: int) -> float:
    return size / (2 * READ_UNIT_BYTES) + _FEWEST * _ROUNDING  # eventually consistent


class Estimate(NamedTuple):
    """A figure of the whole table, and its 95% interval. If all was read, it is exact: ``low`` and ``high`` are it."""

    value: float
    low: float
    high: float


class SegmentSample:
    """The figures of the segments that were read, and the table's as estimated from them.

    Example:
        >>> sample = SegmentSample(total_segments=100)
        >>> for items in (12, 8, 11, 9, 10):
        ...     sample.add({"items": items})
        >>> sample.share, [round(figure) for figure in sample.total("items")]
        (0.05, [1000, 826, 1211])
    """

    def __init__(self, total_segments: int) -> None:
        self.total_segments = total_segments
        self._rows: list[Mapping[str, float]] = []

    def add(self, figures: Mapping[str, float]) -> None:
        """Add a segment: its figures by name; a name that is missing is 0."""
        self._rows.append(figures)

    @property
    def segments(self) -> int:
        return len(self._rows)

    @property
    def share(self) -> float:
        """The share of the segments, and so of the keys, that were read."""
        return self.segments / self.total_segments

    def read(self, name: str) -> float:
        """Return the sum of a figure over the segments that were read."""
        return sum(row.get(name, 0.0) for row in self._rows)

    def total(self, name: str) -> Estimate:
        """Estimate the sum of a figure over the whole table."""
        read = self.read(name)
        if self.share == 1:
            return Estimate(read, read, read)
        value = read / self.share if self.share else 0.0
        # Segments have a long tail upwards, so the interval is symmetric by factors: of the logarithm.
        error = self._error(name, None) / (read / self.segments) if read else math.inf
        factor = math.exp(error) if error < math.log(1e9) else math.inf
        return Estimate(value, max(read, value / factor), value * factor if read else math.inf)

    def ratio(self, name: str, of: str) -> Estimate:
        """Estimate the quotient of two sums: a share of the bytes, or bytes per item."""
        read, whole = self.read(name), self.read(of)
        value = read / whole if whole else 0.0
        if self.share == 1:
            return Estimate(value, value, value)
        error = self._error(name, of) / (whole / self.segments) if whole else math.inf
        return Estimate(value, max(0.0, value - error), value + error)

    def _error(self, name: str, of: str | None) -> float:
        """Return half of the interval of a segment's mean figure, or of its difference from a ratio ``of`` another."""
        count = self.segments
        if count < 2:  # noqa: PLR2004 - one segment shows no differences
            return math.inf
        ratio = 0.0 if of is None else self.read(name) / self.read(of)
        values = [row.get(name, 0.0) - (ratio * row.get(of, 0.0) if of else 0.0) for row in self._rows]
        mean = sum(values) / count
        variance = sum((value - mean) ** 2 for value in values) / (count - 1)
        # Sampled without replacement: nothing is uncertain when all segments are read.
        return _student(count - 1) * math.sqrt((1 - self.share) * variance / count)


def _student(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t: its expansion in the normal one (Abramowitz and Stegun, 26.7.5)."""
    if freedom in _STUDENT:
        return _STUDENT[freedom]
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return float(z + first / freedom + second / freedom**2 + third / freedom**3)


def shards_total(found: Sequence[float], shards: int, share: float) -> Estimate:
    """Estimate a figure of all ``shards`` of a logical key, from those that were ``found``: that have items.

    A shard that was not found was not read or is empty; which, is not known, because DynamoDB's hash is not public.
    Each was read with the probability ``share``.

    Example:
        >>> [round(figure) for figure in shards_total([10, 12, 8, 11], shards=10, share=0.5)]
        [82, 41, 126]
        >>> shards_total([5], shards=10, share=1.0)
        Estimate(value=5, low=5, high=5)
    """
    read, count = sum(found), len(found)
    if share == 1 or count == shards:
        return Estimate(read, read, read)
    # read / share is right on average over all samples, but those that found no shard count as 0 and show no key. Of
    # the m shards that have items, exactly one is found with the probability m p (1 - p)^(m - 1). If its own figure is
    # taken then, the average over the samples that do show the key is right, for any m and any figures.
    value = read if count == 1 else read / share
    least, most = _shards_with_items(count, shards, share)
    low, high = _even(found, least).low, _even(found, most).high
    return Estimate(value, min(low, value), max(high, value))


def _even(found: Sequence[float], shards: int) -> Estimate:
    """Estimate the sum over ``shards`` that have items, of which those found are a random sample."""
    sample = SegmentSample(shards)
    for figure in found:
        sample.add({"figure": figure})
    return sample.total("figure")


def _shards_with_items(found: int, shards: int, share: float) -> tuple[int, int]:
    """Return the 95% interval of how many shards have items, if so many were found."""
    tail = (1 - CONFIDENCE) / 2
    numbers = range(found, shards + 1)
    least = bisect_left(numbers, tail, key=lambda m: 1 - _at_most(found - 1, m, share))
    most = bisect_right(numbers, -tail, key=lambda m: -_at_most(found, m, share))
    return numbers[min(least, len(numbers) - 1)], numbers[max(most - 1, 0)]


def _at_most(count: int, of: int, share: float) -> float:
    """Return the probability that at most ``count`` of so many are read."""
    each = (
        math.lgamma(of + 1) - math.lgamma(n + 1) - math.lgamma(of - n + 1)
        + n * math.log(share) + (of - n) * math.log1p(-share)
        for n in range(min(count, of) + 1)
    )  # fmt: skip
    return math.fsum(map(math.exp, each))


def keys_unseen(share: float) -> int:
    """Return how many keys there can be that are hotter than all that were read, with 95% confidence.

    Each key is read with the probability ``share``, so n hotter ones are all missed with (1 - share) ** n. This holds
    for any table.

    Example:
        >>> keys_unseen(0.01), keys_unseen(0.5), keys_unseen(1)
        (298, 4, 0)
    """
    if not 0 < share < 1:
        return 0
    return math.floor(math.log(1 - CONFIDENCE) / math.log1p(-share))


def extrapolated(found: Uniformity, sample: SegmentSample, items: int) -> Uniformity:
    """Return the figures of a whole table from those of a sample: ``found`` is of the items that were read.

    ``items`` are those that DynamoDB counted; 0: unknown, the sample's own estimate is used. The count is better: a
    very hot key that was read by chance would otherwise be taken for one of many.

    The sample's figures are ``items`` and ``keys``.
    """
    if sample.share == 1:
        return found
    factor = max(1.0, (items or sample.total("items").value) / found.items)
    # If a key says when it is written, its share is that of the hottest key of each time, of which the sample has
    # many; otherwise it is the hottest key's of all.
    part = 1.0 if found.times else factor
    distinct = max(found.distinct, round(sample.total("keys").value))
    return replace(
        found,
        items=round(found.items * factor),
        bytes=round(found.bytes * factor),
        write_units=found.write_units * factor,
        read_units=found.read_units * factor,
        distinct=distinct,
        exact=False,
        entropy=min(found.entropy + math.log2(factor), math.log2(distinct)),
        write_share=found.write_share / part,
        read_share=found.read_share / part,
        unseen=keys_unseen(sample.share),
    )
