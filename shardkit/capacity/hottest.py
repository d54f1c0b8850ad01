"""How many of the keys that are hashed onto partitions the fullest partition gets: balls in bins, exactly."""

from __future__ import annotations

import cmath
import math

from shardkit.errors import ConfigurationError

__all__ = ["probability_bound", "probability_within"]


def probability_within(keys: int, partitions: int, most: int) -> float:
    """Give the probability that no partition gets more than ``most`` of the keys.

    Each key falls on each partition with the same probability, whatever the others do. The counts are then multinomial,
    which is to say: Poisson counts, independent of each other, given that their sum is the number of keys (Levin, "A
    Representation for Multinomial Cumulative Distribution Functions", 1981). The sum of the truncated Poisson counts
    is found by its characteristic function, at as many points as it has values: no approximation but a float's.

    Example:
        >>> round(probability_within(5, 5, 1), 4)  # each of five keys on a partition of its own: 5! / 5**5
        0.0384

    Args:
        keys: how many equally hot keys, at least 1.
        partitions: how many partitions, of equal parts of the hash space, at least 1.
        most: how many keys one partition may get, at least 0.

    Returns:
        A probability, exact to about 12 decimals.

    Raises:
        ConfigurationError: an argument is too small.

    Cost:
        No request; time in proportion to ``partitions`` times the square of ``most``.
    """
    _check(keys, partitions, most)
    if most * partitions < keys:
        return 0.0
    if most >= keys:
        return 1.0
    mean = keys / partitions
    weights = [_poisson(count, mean) for count in range(most, -1, -1)]
    values = most * partitions + 1
    total = 0.0
    for place in range(values // 2 + 1):
        turn = cmath.exp(2j * math.pi * place / values)
        characteristic = 0j
        for weight in weights:
            characteristic = characteristic * turn + weight
        # The other half of the circle gives the same real parts; the sum has an odd or an even number of points.
        times = 1 if place == 0 or 2 * place == values else 2
        total += times * (characteristic**partitions * turn**-keys).real
    return min(1.0, max(0.0, total / values / _poisson(keys, keys)))


def probability_bound(keys: int, partitions: int, most: int) -> float:
    """Give what that probability is never above: the counts of partitions hinder each other from being small.

    Counts of a multinomial are negatively associated (Joag-Dev and Proschan, 1983), so it is at most the product of
    each partition's own probability. Where that is high, the two are nearly the same, and this one costs
    next to nothing.
    """
    _check(keys, partitions, most)
    if most * partitions < keys or most >= keys:
        return float(most >= keys)
    one, other = math.log(1 / partitions), math.log1p(-1 / partitions)
    within = math.fsum(
        math.exp(_log_choose(keys, count) + count * one + (keys - count) * other) for count in range(most + 1)
    )
    return float(min(1.0, within) ** partitions)


def _poisson(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _log_choose(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)


def _check(keys: int, partitions: int, most: int) -> None:
    if keys < 1 or partitions < 1 or most < 0:
        raise ConfigurationError(
            f"keys={keys!r} on partitions={partitions!r} with most={most!r} of them on one: give at least 1 key, "
            "1 partition, and 0"
        )
