"""Heavy hitters in bounded memory: which keys consumed most, out of any number of keys.

Space-saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
2005), weighted by units. No maintained library fits: Apache DataSketches' frequent items take integers only, drop what
they evict (so the sum would not be conserved), and need NumPy and a compiled extension.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

from shardkit.core.checks import check_count

K = TypeVar("K", bound=Hashable)


class KeyCounters:
    """The counters of one key.

    ``reported`` and ``estimated`` units and ``requests`` count from when the key entered; ``before`` is the most units
    that it may have consumed earlier; ``peak`` is the most units in any second.
    """

    __slots__ = ("_in_second", "_peak", "_second", "before", "estimated", "reported", "requests")

    def __init__(self, before: float, second: int) -> None:
        self.reported: float = 0.0
        self.estimated: float = 0.0
        self.requests: int = 0
        self.before: float = before
        self._in_second = self._peak = 0.0
        self._second = second

    def add(self, reported: float, estimated: float, requests: int, second: int) -> None:
        self.reported += reported
        self.estimated += estimated
        self.requests += requests
        if second == self._second:
            self._in_second += reported + estimated
        else:
            self._peak = self.peak
            self._second = second
            self._in_second = reported + estimated

    @property
    def units(self) -> float:
        return self.reported + self.estimated

    @property
    def peak(self) -> float:
        return max(self._peak, self._in_second)

    def units_in(self, second: int) -> float:
        """Return the units of the latest second; 0 for any other."""
        return self._in_second if second == self._second else 0.0


class HeavyHitters(Generic[K]):
    """The keys that consumed most, out of any number of keys.

    Example:
        >>> sketch = HeavyHitters(capacity=2)
        >>> for key in "aabca":
        ...     sketch.add(key, 1.0)
        >>> sketch.held["a"].units, sketch.others.units, sketch.error <= 5 / 2
        (3.0, 1.0, True)

    With at most ``capacity`` keys (at least 1), all numbers are exact. After that, a new key replaces the key with the
    fewest units (including those it may have consumed earlier), whose units move to ``others``. The units in ``held``
    and ``others`` always sum to what was added. A key has consumed at least ``held[key].units``, and at most ``before``
    more. ``before`` is never more than ``error``, and ``error`` never more than all units divided by ``capacity``. A
    key that consumed more than that is always held.

    Attributes:
        held: The counters of each key that is held.
        others: The counters of all other keys together.
        error: The most units that any held key may have consumed before it entered.

    Cost:
        No request; about 300 bytes per held key; one dictionary access per addition, O(log capacity) where a key is
        replaced.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = check_count("max_keys", capacity, "keys")
        self.held: dict[K, KeyCounters] = {}
        self.others: KeyCounters = KeyCounters(0.0, 0)
        self.error: float = 0.0
        # A heap of (units, tie-breaker, key), built when the sketch is full. Units only grow, and an entry is not
        # updated when they do: it is a lower bound, corrected when it reaches the top of the heap.
        self._least: list[tuple[float, int, K]] = []
        self._numbers = count()

    def add(self, key: K, reported: float, estimated: float = 0.0, requests: int = 1, second: int = 0) -> None:
        """Add what a key consumed: units that the service reported or that are estimated, and its reads or writes.

        ``second`` is the time in whole seconds, for the peak.
        """
        held = self.held.get(key)
        if held is None:
            held = self._enter(key, second) if reported or estimated or len(self.held) < self._capacity else self.others
        held.add(reported, estimated, requests, second)

    def _enter(self, key: K, second: int) -> KeyCounters:
        before = 0.0
        if len(self.held) >= self._capacity:
            before = self._push_out()
            heapq.heapreplace(self._least, (before, next(self._numbers), key))
        held = self.held[key] = KeyCounters(before, second)
        return held

    def _push_out(self) -> float:
        if not self._least:
            self._least = [(held.units, next(self._numbers), key) for key, held in self.held.items()]
            heapq.heapify(self._least)
        while True:
            least, number, key = self._least[0]
            held = self.held[key]
            units = held.before + held.units
            if units == least:
                break
            heapq.heapreplace(self._least, (units, number, key))
        del self.held[key]
        self.others.add(held.reported, held.estimated, held.requests, 0)
        self.error = units
        return units
