"""How a scenario's items are distributed over the values of an attribute."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shardkit.partitions.scenarios.entries import Entries

_MOST = 10_000_000  # values, and items per value: they are held in memory


@dataclass(frozen=True)
class Weighted:
    """Each item's value is drawn at random, by weight; if there are very many values, the heaviest come first."""

    values: Sequence[str]
    weights: Sequence[float]

    def places(self, number: int | None, draw: Callable[[], float]) -> list[int]:
        """Return, for ``number`` items, the place of each item's value in ``values``."""
        cumulated = list(accumulate(self.weights))
        whole, last = cumulated[-1], len(cumulated) - 1
        return [min(last, bisect_right(cumulated, draw() * whole)) for _ in range(number or 0)]


@dataclass(frozen=True)
class EachValue:
    """Each value has a random number of items, from the first of ``items`` to the second; they come value by value."""

    values: Sequence[str]
    items: tuple[int, int]

    @property
    def most(self) -> int:
        return len(self.values) * self.items[1]

    def places(self, number: int | None, draw: Callable[[], float]) -> list[int]:
        """Return the place of each item's value in ``values``, for at most ``number`` items."""
        least, most = self.items
        found: list[int] = []
        for place in range(len(self.values)):
            found += [place] * (least + int(draw() * (most - least + 1)))
            if number is not None and len(found) >= number:
                return found[:number]
        return found


Distribution = Weighted | EachValue


def read_distribution(given: Entries) -> Distribution:
    kind = given.choice("distribution", "uniform", tuple(_READERS), needed=True)
    found = _READERS[kind](given)
    given.end()
    return found


def _uniform(given: Entries) -> Weighted:
    values = _values(given)
    return Weighted(values, (1.0,) * len(values))


def _zipf(given: Entries) -> Weighted:
    exponent = given.number("exponent", 1.0, "exponent", above=True)
    values = _values(given)
    return Weighted(values, [rank**-exponent for rank in range(1, len(values) + 1)])


def _hot(given: Entries) -> Weighted:
    share = given.number("share", 0.5, "share of the hottest value", above=True, most=1.0, needed=True)
    values = _values(given)
    others = len(values) - 1
    if others == 0:
        return Weighted(values, (1.0,))
    return Weighted(values, (share, *((1 - share) / others,) * others))


def _weights(given: Entries) -> Weighted:
    weights = given.weights("weights")
    return Weighted(tuple(weights), tuple(weights.values()))


def _each(given: Entries) -> EachValue:
    least, most = given.span("items", (1, 1), "items of a value", most=_MOST, needed=True)
    return EachValue(_values(given), (int(least), int(most)))


def _values(given: Entries) -> list[str]:
    """Return the values: a prefix, and a number with leading zeros."""
    count = given.count("values", 1, "different values", most=_MOST, needed=True)
    prefix = given.text("prefix", "key-")
    digits = len(str(count))
    return [f"{prefix}{number:0{digits}}" for number in range(1, count + 1)]


_READERS: dict[str, Callable[[Entries], Distribution]] = {
    "uniform": _uniform,
    "zipf": _zipf,
    "hot": _hot,
    "weights": _weights,
    "each": _each,
}
