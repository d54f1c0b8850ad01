"""Bytes to read and write units, and sums and shares of what the service reported."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, TypeVar

from shardkit.errors import ConfigurationError

K = TypeVar("K", bound=Hashable)

PARTITION_READ_UNITS = 3000
"""Read units a second that a partition serves, and so one partition key value at the most (Developer Guide)."""
PARTITION_WRITE_UNITS = 1000
"""Write units a second that a partition serves, and so one partition key value at the most (Developer Guide)."""

READ_UNIT_BYTES = 4096
"""Bytes that a read unit reads with strong consistency (Developer Guide)."""
WRITE_UNIT_BYTES = 1024
"""Bytes that a write unit writes (Developer Guide)."""

# The service reports halves; a batch is apportioned in finer parts, which a float still adds up exactly.
_PARTS = 1024


def read_units(size: int, *, consistent: bool = False, transactional: bool = False) -> float:
    """Give the read units of one read: of an item, or of all that a Query or Scan page evaluated.

    Example:
        >>> read_units(3500), read_units(3500, consistent=True), read_units(3500, transactional=True)
        (0.5, 1.0, 2.0)

    Args:
        size: bytes, of the item (GetItem and BatchGetItem round each item) or of the page's items together, before
            filter and projection (Query and Scan round the sum); 0 where nothing was found.
        consistent: strongly consistent; eventually consistent reads cost half of it.
        transactional: read in a transaction, which costs twice a strongly consistent read.

    Returns:
        Read units, at least those of one block of 4096 bytes.

    Raises:
        ConfigurationError: ``size`` is negative, or no number.

    Cost:
        No request.

    Source:
        DynamoDB Developer Guide, "Read and write capacity: capacity unit consumption".
    """
    blocks = _blocks(size, READ_UNIT_BYTES)
    if transactional:
        return blocks * 2.0
    return float(blocks) if consistent else blocks / 2


def write_units(size: int, *, transactional: bool = False) -> float:
    """Give the write units of one write to a table.

    Example:
        >>> write_units(500), write_units(1600), write_units(500, transactional=True)
        (1.0, 2.0, 2.0)

    Args:
        size: bytes: for a put or an update the larger of the item before and after, for a delete the deleted item;
            0 where there was none.
        transactional: written in a transaction, which costs twice as much (on the table, not on its indexes).

    Returns:
        Write units, at least those of one block of 1024 bytes.

    Raises:
        ConfigurationError: ``size`` is negative, or no number.

    Cost:
        No request.

    Source:
        DynamoDB Developer Guide, "Read and write capacity: capacity unit consumption".
    """
    return _blocks(size, WRITE_UNIT_BYTES) * (2.0 if transactional else 1.0)


def _blocks(size: int, block: int) -> int:
    try:
        known = size >= 0
    except TypeError:
        known = False
    if not known:
        raise ConfigurationError(
            f"a size is a number of bytes and not negative, got {size!r:.100}; give 0 where there is no item"
        )
    return max(1, -(-size // block))


def partitions_taken(read_units: float, write_units: float) -> float:
    """Give how many partitions' throughput so many units a second take: of reads or of writes, whichever is more.

    Example:
        >>> partitions_taken(1500, 2000)
        2.0

    Source:
        DynamoDB Developer Guide, "Burst and adaptive capacity": a partition's reads and writes are managed
        independently.
    """
    return max(read_units / PARTITION_READ_UNITS, write_units / PARTITION_WRITE_UNITS)


def rounded_up(partitions: float) -> int:
    """Give the next whole number; what is one but for a float's rounding is that."""
    return ceil(round(partitions, 9))


def add_consumed(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add two ``ConsumedCapacity`` structures of one table, part by part.

    Example:
        >>> add_consumed({"TableName": "Orders", "CapacityUnits": 0.5}, {"TableName": "Orders", "CapacityUnits": 2.0})
        {'TableName': 'Orders', 'CapacityUnits': 2.5}

    Args:
        a: a structure as boto3 gives it: units under ``CapacityUnits``, ``ReadCapacityUnits``,
            ``WriteCapacityUnits``, and the same under ``Table``, ``LocalSecondaryIndexes`` and
            ``GlobalSecondaryIndexes``; any part may be missing. None counts as an empty one.
        b: another one; a table may have its plain name in one and its ARN in the other.

    Returns:
        A new structure with every part that either has, in units; neither argument is changed or shared. The table has
        its plain name where one of the two has it.

    Raises:
        ConfigurationError: the two are of different tables.

    Cost:
        No request.

    Source:
        DynamoDB API reference, ``ConsumedCapacity``.
    """
    one, other = a or {}, b or {}
    names = {str(part["TableName"]) for part in (one, other) if part.get("TableName") is not None}
    plain = {table_name(name) for name in names}
    # Two ARNs are two tables, of two accounts or Regions, even where the plain name is the same.
    if len(plain) > 1 or len(names - plain) > 1:
        raise ConfigurationError(
            f"capacity of different tables cannot be added up, got {sorted(names)}; add them per table"
        )
    total = _add(one, other)
    if len(names) > 1:
        total["TableName"] = plain.pop()
    return total


def _add(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for name in (*a, *(name for name in b if name not in a)):
        one, other = a.get(name), b.get(name)
        if isinstance(one, Mapping) or isinstance(other, Mapping):
            total[name] = _add(one or {}, other or {})
        elif one is None or other is None:
            total[name] = other if one is None else one
        else:
            total[name] = one if isinstance(one, str) else one + other
    return total


def apportion(units: float, weights: Mapping[K, float]) -> dict[K, float]:
    """Divide the units that a batch consumed over the keys in it; the parts add up to exactly the whole.

    Example:
        >>> apportion(6.0, {"2014-07-09": 1.0, "2014-07-10": 2.0})
        {'2014-07-09': 2.0, '2014-07-10': 4.0}

    Args:
        units: what was reported, in read or write units.
        weights: for each key the units that it is estimated to have consumed, not negative.

    Returns:
        Units for each key, an estimate: in proportion to the weights, in multiples of 1/1024 of a unit.

    Raises:
        ConfigurationError: there is no key, or a weight is negative.

    Cost:
        No request.
    """
    if not weights or min(weights.values()) < 0:
        raise ConfigurationError(
            f"units are divided over keys of weight 0 or more, got {dict(weights)!r:.200}; give such keys"
        )
    fractions = {key: Fraction(weight) for key, weight in weights.items()}
    whole = sum(fractions.values())
    if not whole:
        fractions, whole = dict.fromkeys(weights, Fraction(1)), Fraction(len(weights))
    parts, rest = divmod(units * _PARTS, 1)
    exact = {key: int(parts) * weight / whole for key, weight in fractions.items()}
    shares = {key: int(share) for key, share in exact.items()}
    # What rounding down left over goes to those that lost most by it (fewer parts than there are keys).
    by_loss = sorted(exact, key=lambda key: shares[key] - exact[key])
    for key in by_loss[: int(parts) - sum(shares.values())]:
        shares[key] += 1
    result = {key: share / _PARTS for key, share in shares.items()}
    result[by_loss[0]] += rest / _PARTS
    return result


@lru_cache(1024)
def table_name(name: str) -> str:
    """Give the plain name of a table that may be named by its ARN, in requests and in responses."""
    return name.partition(":table/")[2].partition("/")[0] if name.startswith("arn:") else name
