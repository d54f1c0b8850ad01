"""How a scenario's items are distributed over the values of an attribute: its partition key's, or another one's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shardkit.partitions.scenarios.entries import Entries

_MOST = 10_000_000  # values, and items of one: they are held in memory


@dataclass(frozen=True)
class Weighted:
    """Every item has a value that is drawn by its weight.

    Args:
        values: the values.
        weights: how often each comes, beside the others; the hottest first where there are very many.
    """

    values: Sequence[str]
    weights: Sequence[float]

    def places(self, number: int | None, draw: Callable[[], float]) -> list[int]:
        """Draw, for so many items, the place among ``values`` that the item has its value from."""
        cumulated = list(accumulate(self.weights))
        whole, last = cumulated[-1], len(cumulated) - 1
        return [min(last, bisect_right(cumulated, draw() * whole)) for _ in range(number or 0)]


@dataclass(frozen=True)
class EachValue:
    """Every value has so many items: users with 100 to 200 messages each; the items come value by value.

    Args:
        values: the values.
        items: the least and the most items of a value; any number between is as probable.
    """

    values: Sequence[str]
    items: tuple[int, int]

    @property
    def most(self) -> int:
        """How many items there are at most."""
        return len(self.values) * self.items[1]

    def places(self, number: int | None, draw: Callable[[], float]) -> list[int]:
        """Give, for each item, the place among ``values`` that it has its value from; ``number`` ends them early."""
        least, most = self.items
        found: list[int] = []
        for place in range(len(self.values)):
            found += [place] * (least + int(draw() * (most - least + 1)))
            if number is not None and len(found) >= number:
                return found[:number]
        return found


Distribution = Weighted | EachValue


def read_distribution(given: Entries) -> Distribution:
    """Read how an attribute's values are distributed."""
    kind = given.choice("distribution", "uniform", tuple(_READERS), needed=True)
    found = _READERS[kind](given)
    given.end()
    return found


def _uniform(given: Entries) -> Weighted:
    values = _named(given)
    return Weighted(values, (1.0,) * len(values))


def _zipf(given: Entries) -> Weighted:
    exponent = given.number("exponent", 1.0, "the exponent", above=True)
    values = _named(given)
    return Weighted(values, [rank**-exponent for rank in range(1, len(values) + 1)])


def _hot(given: Entries) -> Weighted:
    share = given.number("share", 0.5, "the share of the hottest value", above=True, most=1.0, needed=True)
    values = _named(given)
    others = len(values) - 1
    if others == 0:
        return Weighted(values, (1.0,))
    return Weighted(values, (share, *((1 - share) / others,) * others))


def _weights(given: Entries) -> Weighted:
    weights = given.weights("weights", needed=True) or {"-": 1.0}
    return Weighted(tuple(weights), tuple(weights.values()))


def _each(given: Entries) -> EachValue:
    least, most = given.span("items", (1, 1), "items of a value", most=_MOST, needed=True)
    return EachValue(_named(given), (int(least), int(most)))


def _named(given: Entries) -> list[str]:
    """Name the values: a prefix, and their number in digits of one length."""
    number = given.count("values", 1, "different values", most=_MOST, needed=True)
    prefix = given.text("prefix", "key-")
    return list(_numbered(prefix, number))


def _numbered(prefix: str, number: int) -> Iterable[str]:
    digits = len(str(number))
    return (f"{prefix}{one:0{digits}}" for one in range(1, number + 1))


_READERS: dict[str, Callable[[Entries], Distribution]] = {
    "uniform": _uniform,
    "zipf": _zipf,
    "hot": _hot,
    "weights": _weights,
    "each": _each,
}
