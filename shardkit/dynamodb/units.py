"""Read and write units: of a number of bytes, added up, and divided over keys."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, TypeVar

from shardkit.errors import ConfigurationError, brief

K = TypeVar("K", bound=Hashable)

PARTITION_READ_UNITS = 3000
"""Read units a second that a partition serves, and so the most for one partition key value (Developer Guide)."""
PARTITION_WRITE_UNITS = 1000
"""Write units a second that a partition serves, and so the most for one partition key value (Developer Guide)."""

READ_UNIT_BYTES = 4096
"""Bytes that a read unit reads with strong consistency (Developer Guide)."""
WRITE_UNIT_BYTES = 1024
"""Bytes that a write unit writes (Developer Guide)."""

# The service reports halves of units. A batch is divided into finer parts, which floats still add up exactly.
_PARTS = 1024


def read_units(size: int, *, consistent: bool = False, transactional: bool = False) -> float:
    """Return the read units of one read: of an item, or of a page of a Query or Scan.

    Example:
        >>> read_units(3500), read_units(3500, consistent=True), read_units(3500, transactional=True)
        (0.5, 1.0, 2.0)

    Args:
        size: bytes of the item (GetItem and BatchGetItem round each item), or of all items that the page evaluated,
            before filter and projection (Query and Scan round the sum); 0 if nothing was found.
        consistent: strongly consistent; eventually consistent reads cost half.
        transactional: read in a transaction, which costs twice a strongly consistent read.

    Returns:
        Read units, at least those of one block of 4096 bytes.

    Raises:
        ConfigurationError: ``size`` is negative, or not a number.

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
    """Return the write units of one write to a table.

    Example:
        >>> write_units(500), write_units(1600), write_units(500, transactional=True)
        (1.0, 2.0, 2.0)

    Args:
        size: bytes of the deleted item, or of the larger of the item before and after a put or an update; 0 if there
            was no item.
        transactional: written in a transaction, which costs twice as much (on the table, not on its indexes).

    Returns:
        Write units, at least those of one block of 1024 bytes.

    Raises:
        ConfigurationError: as :func:`read_units`, which has the same cost and source.
    """
    return _blocks(size, WRITE_UNIT_BYTES) * (2.0 if transactional else 1.0)


def _blocks(size: int, block: int) -> int:
    try:
        valid = size >= 0
    except TypeError:
        valid = False
    if not valid:
        raise ConfigurationError(f"size: must be a number of bytes >= 0, got {brief(size)}; give 0 if there is no item")
    return max(1, -(-size // block))


def partitions_taken(read_units: float, write_units: float) -> float:
    """Return how many partitions' throughput is needed for these units a second: for reads or writes, the larger.

    Example:
        >>> partitions_taken(1500, 2000)
        2.0

    Source:
        DynamoDB Developer Guide, "Burst and adaptive capacity": a partition's reads and writes are managed
        independently.
    """
    return max(read_units / PARTITION_READ_UNITS, write_units / PARTITION_WRITE_UNITS)


def rounded_up(partitions: float) -> int:
    """Round up to an integer, but not for a float's rounding error."""
    return ceil(round(partitions, 9))


def add_consumed(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add two ``ConsumedCapacity`` structures of one table, part by part.

    Example:
        >>> add_consumed({"TableName": "Orders", "CapacityUnits": 0.5}, {"TableName": "Orders", "CapacityUnits": 2.0})
        {'TableName': 'Orders', 'CapacityUnits': 2.5}

    Args:
        a: a structure as boto3 returns it: units under ``CapacityUnits``, ``ReadCapacityUnits``,
            ``WriteCapacityUnits``, and the same under ``Table``, ``LocalSecondaryIndexes`` and
            ``GlobalSecondaryIndexes``; any part may be missing. None counts as empty.
        b: the other one; the table may have its plain name in one and its ARN in the other.

    Returns:
        A new structure with every part that either has; neither argument is changed or shared. The table has its plain
        name if one of the two has it.

    Raises:
        ConfigurationError: they are of different tables.

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
        raise ConfigurationError(f"TableName: must be the same in both, got {sorted(names)}; add up capacity per table")
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
    """Divide the units that a batch consumed over its keys; the parts add up to exactly the whole.

    Example:
        >>> apportion(6.0, {"2014-07-09": 1.0, "2014-07-10": 2.0})
        {'2014-07-09': 2.0, '2014-07-10': 4.0}

    Args:
        units: the read or write units that were reported.
        weights: the units that each key is estimated to have consumed, >= 0.

    Returns:
        The estimated units of each key: in proportion to the weights, in multiples of 1/1024 of a unit.

    Raises:
        ConfigurationError: ``weights`` is empty, or a weight is negative.

    Cost:
        No request.
    """
    if not weights or min(weights.values()) < 0:
        raise ConfigurationError(f"weights: must be numbers >= 0, at least one, got {brief(dict(weights), 200)}")
    fractions = {key: Fraction(weight) for key, weight in weights.items()}
    whole = sum(fractions.values())
    if not whole:
        fractions, whole = dict.fromkeys(weights, Fraction(1)), Fraction(len(weights))
    parts, rest = divmod(units * _PARTS, 1)
    exact = {key: int(parts) * weight / whole for key, weight in fractions.items()}
    shares = {key: int(share) for key, share in exact.items()}
    # The parts that rounding down left over (fewer than there are keys) go to the keys that lost most by it.
    by_loss = sorted(exact, key=lambda key: shares[key] - exact[key])
    for key in by_loss[: int(parts) - sum(shares.values())]:
        shares[key] += 1
    result = {key: share / _PARTS for key, share in shares.items()}
    result[by_loss[0]] += rest / _PARTS
    return result


@lru_cache(1024)
def table_name(name: str) -> str:
    """Return the plain name of a table that is named by its name or its ARN."""
    return name.partition(":table/")[2].partition("/")[0] if name.startswith("arn:") else name
