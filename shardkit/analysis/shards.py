"""How many shards a key needs: the probability that no partition gets too many of them, calculated exactly."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from shardkit.dynamodb.units import partitions_taken, rounded_up
from shardkit.errors import ConfigurationError


def probability_within(keys: int, partitions: int, most: int) -> float:
    """Return the probability that no partition gets more than ``most`` of the keys.

    A hash assigns each key to a partition; all partitions are equally probable.

    Example:
        >>> round(probability_within(5, 5, 1), 4)  # five keys, each on another partition: 5! / 5**5
        0.0384

    Args:
        keys: the number of keys, at least 1.
        partitions: the number of partitions, at least 1.
        most: the most keys of one partition, at least 0.

    Returns:
        A probability, exact to about 12 decimals.

    Raises:
        ConfigurationError: an argument is too small.

    Cost:
        No request; time in proportion to ``partitions`` times the square of ``most``, less if there are many keys.
    """
    # The counts are multinomial: independent Poisson counts, given that their sum is the number of keys (Levin, "A
    # Representation for Multinomial Cumulative Distribution Functions", 1981). The distribution of the sum of the
    # truncated counts comes from its characteristic function, at as many points as the sum has values.
    _check(keys, partitions, most)
    if most * partitions < keys:
        return 0.0
    if most >= keys:
        return 1.0
    mean = keys / partitions
    # Counts further below the mean have a probability below exp(-50). With them, the search for a number of shards took
    # minutes where thousands are tried.
    least = max(0, math.ceil(mean - 10 * math.sqrt(mean)))
    weights = [_poisson(count, mean) for count in range(most, least - 1, -1)]
    values = (most - least) * partitions + 1
    total = 0.0
    for place in range(values // 2 + 1):
        turn = cmath.exp(2j * math.pi * place / values)
        characteristic = 0j
        for weight in weights:
            characteristic = characteristic * turn + weight
        # The other half of the circle has the same real parts.
        times = 1 if place == 0 or 2 * place == values else 2
        total += times * (characteristic**partitions * turn ** (least * partitions - keys)).real
    return min(1.0, max(0.0, total / values / _poisson(keys, keys)))


def probability_bound(keys: int, partitions: int, most: int) -> float:
    """Return an upper bound of :func:`probability_within`, at nearly no cost; close to it if it is high.

    The counts of a multinomial are negatively associated (Joag-Dev and Proschan, 1983), so the probability is at most
    the product of each partition's own.
    """
    _check(keys, partitions, most)
    if most * partitions < keys or most >= keys:
        return float(most >= keys)
    # A partition's count is binomial. Beyond the mean its probabilities fall fast, so the few above ``most`` are added
    # up, each from the one before; below, there may be thousands.
    beyond = most + 1
    one, other = math.log(1 / partitions), math.log1p(-1 / partitions)
    term = math.exp(_log_choose(keys, beyond) + beyond * one + (keys - beyond) * other)
    above = 0.0
    while term > above * _NEGLIGIBLE:
        above += term
        term *= (keys - beyond) / (beyond + 1) / (partitions - 1)
        beyond += 1
    return max(0.0, 1.0 - above) ** partitions


_NEGLIGIBLE = 1e-17


def _poisson(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _log_choose(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)


def _check(keys: int, partitions: int, most: int) -> None:
    if keys < 1 or partitions < 1 or most < 0:
        raise ConfigurationError(
            f"keys, partitions, most: must be integers >= 1, >= 1 and >= 0, got {keys!r}, {partitions!r} and {most!r}"
        )


HEADROOM = 0.2
"""The part of a partition's throughput that is left free."""
PROBABILITY = 0.99
"""The probability that no partition gets more than that."""
TIMES = (2, 4, 8)
"""The other numbers of partitions that are tried, as multiples of the table's."""
_BETTER = 4
MOST_SHARDS = 10_000
"""The most shards that are tried: a Query of so many takes at least 5,000 read units."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How the shards of a key fit on the partitions of a table, or of an index that has the table's partition key.

    Args:
        index: the index's name; None: the table.
        read_units: read units a second of all shards.
        write_units: write units a second of all shards.
        partitions: the number of partitions.
        assumed: whether that number is unknown, so that twice what the key takes is assumed.
        most: the most shards that a partition serves, with the headroom left free.
        probability: the probability that no partition gets more.
    """

    index: str | None
    read_units: float
    write_units: float
    partitions: int
    assumed: bool
    most: int
    probability: float

    @classmethod
    def of(
        cls,
        shards: int,
        read_units: float,
        write_units: float,
        *,
        partitions: int | None,
        headroom: float,
        index: str | None = None,
        times: int = 1,
    ) -> Fit:
        """Return the fit without its probability, which takes time; ``times`` multiplies the partitions."""
        taken = partitions_taken(read_units, write_units)
        most = math.floor(min(shards, round(shards * (1 - headroom) / taken, 9))) if taken else shards
        has = times * (partitions or max(1, rounded_up(2 * taken)))
        return cls(index, read_units, write_units, has, partitions is None, most, 0.0)


@dataclass(frozen=True, kw_only=True)
class ShardsNeeded:
    """How many shards a key needs, and why.

    Args:
        shards: the least number that is enough; 1: no sharding. None: no number is enough.
        least_shards: the number that is enough if no two shards share a partition; None: no number is.
        fits: how ``shards`` (or ``least_shards``) fit on the table's partitions, and on those of sharded indexes.
        headroom: the part of a partition's throughput that is left free.
        probability: the required probability that no partition gets more.
    """

    shards: int | None
    least_shards: int | None
    fits: tuple[Fit, ...]
    headroom: float
    probability: float

    @property
    def reason(self) -> str:
        """Why so many shards, or why no number is enough."""
        worst = min(self.fits, key=lambda fit: fit.probability)
        serves = f"{100 * (1 - self.headroom):.4g}% of what a partition serves ({self.headroom:.0%} is left free)"
        if self.shards == 1:
            return f"the key takes at most {serves}"
        if self.least_shards is None:
            return f"even with {MOST_SHARDS:,} shards, each takes more than {serves}"
        assumed = " (assumed: twice what this key takes)" if worst.assumed else ""
        where = "" if worst.index is None else f" of index {worst.index}"
        on = f"{worst.partitions:,} partition{'' if worst.partitions == 1 else 's'}{where}{assumed}"
        if self.shards is not None:
            likely = f"with a probability of at least {100 * self.probability:.6g}%"
            return f"on {on}, none gets more than {serves}, {likely}"
        if partitions_taken(worst.read_units, worst.write_units) > worst.partitions * (1 - self.headroom):
            serve = "serves" if worst.partitions == 1 else "serve"
            return f"with {self.headroom:.0%} left free, {on} {serve} less than the load; more partitions are needed"
        return (
            f"on {on}, one gets more than {serves}, with a probability above {100 - 100 * self.probability:.6g}%, for "
            f"any number of shards up to {MOST_SHARDS:,}; more partitions are needed"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is assumed of the partitions, each in a sentence."""
        return (*([_ASSUMED] if any(fit.assumed for fit in self.fits) else ()), _EVEN, _ADAPTIVE)


_ASSUMED = (
    "the number of partitions is unknown: enough for twice what this key takes are assumed, as of an on-demand table "
    "that served this key before"
)
_EVEN = (
    "partitions have equal parts of the hash space, a hash assigns each shard to one, and all shards are equally hot"
)
_ADAPTIVE = (
    "by adaptive capacity, which the guide calls best effort, a hot partition may use more than its share of the "
    "provisioned throughput, up to what a partition serves, while the table has units left"
)


def shards_for(
    *,
    read_units: float = 0.0,
    write_units: float = 0.0,
    partitions: int | None = None,
    headroom: float = HEADROOM,
    more_than: int = 0,
) -> ShardsNeeded:
    """Return how many shards a key needs for its units a second; ``more_than`` is known not to be enough.

    ``partitions`` are the table's; None: unknown, twice what the key takes is assumed.

    Example:
        >>> shards_for(write_units=4000).shards, shards_for(write_units=4000, partitions=16).shards
        (190, 45)
        >>> print(shards_for(write_units=4000, partitions=4).reason)
        with 20% left free, 4 partitions serve less than the load; more partitions are needed
    """
    return shards_needed(
        lambda shards: (Fit.of(shards, read_units, write_units, partitions=partitions, headroom=headroom),),
        headroom=headroom,
        more_than=more_than,
    )


class HasShards(Protocol):
    """An answer to how many shards a key needs."""

    @property
    def shards(self) -> int | None:
        """The number; None: no number is enough."""


F = TypeVar("F", bound=HasShards)


def better_of(shards: int | None, more: Iterable[F]) -> F | None:
    """Return the answer to prefer of those for 2, 4 and 8 times the partitions, by their ``shards``.

    Each doubling of the partitions up to it divides the shards by 4 or more, which is worth its price. None: the
    table's own partitions are as good.
    """
    better: F | None = None
    for one in more:
        if one.shards is not None and shards is not None and one.shards * _BETTER > shards:
            break
        if one.shards is not None:
            better, shards = one, one.shards
    return better


def better_for(needed: ShardsNeeded) -> ShardsNeeded | None:
    """Return what a table's key needs with more partitions, if that is better (:func:`better_of`).

    Example:
        >>> needed = shards_for(write_units=2000)
        >>> better = better_for(needed)
        >>> (needed.shards, needed.fits[0].partitions), (better.shards, better.fits[0].partitions)
        ((68, 4), (15, 8))
    """
    if needed.shards == 1:
        return None
    fit = needed.fits[0]
    load = partial(shards_for, read_units=fit.read_units, write_units=fit.write_units, headroom=needed.headroom)
    return better_of(needed.shards, (load(partitions=times * fit.partitions) for times in TIMES))


def shards_needed(
    fits: Callable[[int], Iterable[Fit]], *, headroom: float, probability: float = PROBABILITY, more_than: int = 0
) -> ShardsNeeded:
    """Return the least number of shards with which, at the given probability, no partition gets too many.

    ``fits`` returns how a number of shards fits on the table, and on each index that is sharded with it; each of them
    must have the probability. Takes up to some seconds of CPU for tens of thousands of writes a second.
    """
    least: int | None = None
    found: int | None = None
    known: tuple[Fit, ...] = ()
    failed: list[tuple[int, int]] = []
    for shards in range(more_than + 1, MOST_SHARDS + 1):
        tries = tuple(fits(shards))
        if least is None and all(fit.most for fit in tries):
            least = shards
        tried = [(fit.most, fit.partitions) for fit in tries]
        # More shards than the number that failed, and a partition still serves as many: less probable.
        if tried == failed:
            continue
        if all(probability_bound(shards, fit.partitions, fit.most) >= probability for fit in tries):
            known = _judged(shards, tries)
            if all(fit.probability >= probability for fit in known):
                found = shards
                break
        failed = tried
    return ShardsNeeded(
        shards=found,
        least_shards=least,
        fits=known if found else _judged(least or 1, tuple(fits(least or 1))),
        headroom=headroom,
        probability=probability,
    )


def _judged(shards: int, fits: tuple[Fit, ...]) -> tuple[Fit, ...]:
    return tuple(replace(fit, probability=probability_within(shards, fit.partitions, fit.most)) for fit in fits)
