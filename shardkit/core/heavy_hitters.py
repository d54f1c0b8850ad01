"""Heavy hitters in bounded memory: which of unboundedly many keys consumed most.

Space-saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
2005), weighted by units. Own code, because nothing kept does this: Apache DataSketches' frequent items take whole
numbers, drop what they push out (the sum would not be conserved), and bring NumPy and a compiled extension.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

from shardkit.core.checks import check_count

__all__ = ["HeavyHitters", "Held"]

K = TypeVar("K", bound=Hashable)


class Held:
    """What is known of a key that is held apart.

    ``reported`` and ``estimated`` units and ``requests`` are those since it is held; ``before`` bounds the units that
    it may have consumed earlier; ``peak`` is the most units in any second.
    """

    __slots__ = ("_in_second", "_peak", "_second", "before", "estimated", "reported", "requests")

    def __init__(self, before: float, second: int) -> None:
        self.reported = self.estimated = self._in_second = self._peak = 0.0
        self.requests = 0
        self.before = before
        self._second = second

    def add(self, reported: float, estimated: float, requests: int, second: int) -> None:
        """Add what was consumed in a second."""
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
        """Units since it is held."""
        return self.reported + self.estimated

    @property
    def peak(self) -> float:
        """The most units in any second."""
        return max(self._peak, self._in_second)


class HeavyHitters(Generic[K]):
    """The keys that consumed most, of unboundedly many.

    Example:
        >>> sketch = HeavyHitters(capacity=2)
        >>> for key in "aabca":
        ...     sketch.add(key, 1.0)
        >>> sketch.held["a"].units, sketch.others.units, sketch.error <= 5 / 2
        (3.0, 1.0, True)

    While there are no more than ``capacity`` keys, every figure is exact. Beyond, a new key takes the place of the one
    that has (or may have) the fewest units, whose units go to ``others``; so the units of all that are held, and of
    ``others``, sum to what was added. What a key has consumed is at least ``held[key].units`` and at most ``before``
    more; ``before`` is never more than ``error``, which is never more than all units over ``capacity``. A key that
    consumed more than that is always held.

    Args:
        capacity: how many keys are held, at least 1.

    Raises:
        ConfigurationError: ``capacity`` is less than 1.

    Attributes:
        held: the keys that are held apart.
        others: all that is not under them.
        total: units that were added.

    Cost:
        No request; about 300 bytes a key that is held; a dictionary's access an addition, and where a key is pushed out
        O(log capacity).
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = check_count("max_keys", capacity, "keys")
        self.held: dict[K, Held] = {}
        self.others = Held(0.0, 0)
        self.error = 0.0
        # Made when it is full: the least that a key has, a number that decides between equals, and the key. What is
        # said of a key is then its units or fewer: it is put right when it comes up.
        self._least: list[tuple[float, int, K]] = []
        self._numbers = count()

    def add(self, key: K, reported: float, estimated: float = 0.0, requests: int = 1, second: int = 0) -> None:
        """Add what a key consumed.

        Args:
            key: which.
            reported: units that the service reported, not negative.
            estimated: units that no response said, not negative.
            requests: reads or writes of it.
            second: the time in whole seconds, for the peak.
        """
        held = self.held.get(key)
        if held is None:
            held = self._enter(key, second) if reported or estimated or len(self.held) < self._capacity else self.others
        held.add(reported, estimated, requests, second)

    def _enter(self, key: K, second: int) -> Held:
        before = 0.0
        if len(self.held) >= self._capacity:
            before = self._push_out()
            heapq.heapreplace(self._least, (before, next(self._numbers), key))
        held = self.held[key] = Held(before, second)
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
