"""How often each of many keys was asked for lately, in a few bytes per key.

A count-min sketch (Cormode and Muthukrishnan, 2005) with conservative updates, whose counts halve from time to time, as
TinyLFU uses it (Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", 2017).
HeavyHitters would not do: it takes ten times the memory per key, and never forgets.
"""

from __future__ import annotations

from collections.abc import Hashable

MOST = 15
"""The highest count. A new favourite overtakes an old one after so many requests."""
_ROWS = 4
_WIDTH_PER_KEY = 8
_PERIOD_PER_KEY = 50  # requests; TinyLFU's 10 measures a static law too coarsely (10% fewer hits at s = 1)
_LEAST_KEYS = 128
_HALVES = bytes(count >> 1 for count in range(256))
_MIX = 0x9E3779B97F4A7C15  # spreads the bits of small integers, which hash to themselves
_64_BITS = (1 << 64) - 1


class FrequencySketch:
    """Counts of keys, which may be too high and are never too low, up to ``MOST``.

    Example:
        >>> sketch = FrequencySketch()
        >>> [sketch.add(key) for key in "aab"], sketch.count("a"), sketch.count("c")
        ([1, 2, 1], 2, 0)

    After 50 requests per key of ``fit``, all counts halve.

    Cost: 32 bytes per key of ``fit``.
    """

    def __init__(self) -> None:
        self._width = _LEAST_KEYS * _WIDTH_PER_KEY
        self._rows = [bytearray(self._width) for _ in range(_ROWS)]
        self._period = _LEAST_KEYS * _PERIOD_PER_KEY
        self._added = 0

    def fit(self, keys: int) -> None:
        """Make room for the counts of so many keys."""
        self._period = max(keys, _LEAST_KEYS) * _PERIOD_PER_KEY
        while keys * _WIDTH_PER_KEY > self._width:
            # A key's place in a row of twice the width is the old one, or the old one plus the width.
            self._rows = [row + row for row in self._rows]
            self._width *= 2

    def add(self, key: Hashable) -> int:
        """Count a request for a key, and return its count."""
        places = self._places(key)
        counts = [row[place] for row, place in zip(self._rows, places, strict=True)]
        count = min(counts)
        if count < MOST:
            for row, place, known in zip(self._rows, places, counts, strict=True):
                if known == count:
                    row[place] = count + 1
            count += 1
        self._added += 1
        if self._added >= self._period:
            self._added //= 2
            self._rows = [row.translate(_HALVES) for row in self._rows]
        return count

    def count(self, key: Hashable) -> int:
        """Return how often a key was asked for lately, at most ``MOST``."""
        return min(row[place] for row, place in zip(self._rows, self._places(key), strict=True))

    def _places(self, key: Hashable) -> list[int]:
        mixed = hash(key) * _MIX & _64_BITS
        first, step, mask = mixed >> 32, mixed | 1, self._width - 1
        return [(first + row * step) & mask for row in range(_ROWS)]
