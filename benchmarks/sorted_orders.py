"""Orders sorted by partition key, with their stored keys: the source of the benches ``staging`` and ``spark``.

Each key has as many orders, numbered alike. An order takes one write unit. The table has 20 partitions, with no burst
credit beyond the second.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from random import Random

from shardkit import CalculatedSuffix
from shardkit.bulk.writes import Write
from shardkit.partitions import Partitions
from shardkit.partitions.model import hash_of_plain

__all__ = [
    "PARTITIONS",
    "SEED",
    "WRITE_UNITS",
    "SortedOrders",
    "ceiling",
    "key",
    "mixed",
    "order_id",
    "partition_of",
    "partitions",
    "strategy",
]

PARTITIONS = 20
WRITE_UNITS = 1_000 * PARTITIONS
SEED = 1


def partitions() -> Partitions:
    """Make the partitions of the table."""
    return Partitions(read_units=0, write_units=WRITE_UNITS, count=PARTITIONS, burst_seconds=0)


_PARTITIONS = partitions()


def partition_of(stored_key: str) -> int:
    """Return the partition of a stored partition key, from 0."""
    return _PARTITIONS.place(hash_of_plain(stored_key))


def key(number: int) -> str:
    """Return a partition key without its suffix."""
    return f"K{number:05}"


def order_id(number: int) -> str:
    """Return the sort key of an order of a key."""
    return f"A{number:06}"


def strategy(shards: int) -> CalculatedSuffix:
    """Return the strategy of the table."""
    return CalculatedSuffix("OrderId", shards=shards)


@dataclass(frozen=True)
class SortedOrders:
    """The orders of so many keys; ``shards`` 1: without suffixes."""

    keys: int
    orders: int
    shards: int

    @property
    def items(self) -> int:
        """How many there are."""
        return self.keys * self.orders

    @cached_property
    def stored(self) -> list[list[str]]:
        """The stored keys of each key."""
        if self.shards == 1:
            return [[key(number)] for number in range(self.keys)]
        return [[*map(str, strategy(self.shards).physical_keys(key(number)))] for number in range(self.keys)]

    @cached_property
    def shard(self) -> list[int]:
        """The shard of each order of a key, from 0."""
        if self.shards == 1:
            return [0] * self.orders
        found = (strategy(self.shards).shard_of(key(0), {"OrderId": order_id(one)}) for one in range(self.orders))
        return [shard - 1 for shard in found if shard is not None]

    def write(self, place: int) -> Write:
        """The order at this place of the source, without the attributes that no partition looks at."""
        number, order = divmod(place, self.orders)
        stored, sort = self.stored[number][self.shard[order]], order_id(order)
        body = b'{"PutRequest":{"Item":{"Key":{"S":"%b"},"OrderId":{"S":"%b"}}}}' % (stored.encode(), sort.encode())
        return Write(body, place, None, (stored, sort), (stored, sort), 1)

    def partitions(self) -> bytes:
        """The partition of every order, in the order of the source."""
        found = bytearray()
        for stored in self.stored:
            places = [partition_of(one) for one in stored]
            found += bytes([places[shard] for shard in self.shard])
        return bytes(found)


def mixed(count: int) -> list[int]:
    """Return so many places in random order, as that of a hash is."""
    places = list(range(count))
    Random(SEED).shuffle(places)
    return places


def ceiling(items: bytes) -> float:
    """Return the share of the partitions' throughput that no order exceeds: the busiest partition decides."""
    return len(items) / PARTITIONS / max(Counter(items).values())
