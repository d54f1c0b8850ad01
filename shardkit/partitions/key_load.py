"""The load of one hot key over its shards: what a shard takes, and whether partitions can serve what falls on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardkit.capacity.units import partitions_taken, read_units, write_units
from shardkit.partitions.estimate import initial_partitions
from shardkit.partitions.hottest import probability_bound, probability_within
from shardkit.partitions.index_writes import IndexWrites

__all__ = ["MOST_SHARDS", "Fit", "KeyLoad", "judged", "least_shards"]

MOST_SHARDS = 10_000
"""Where the search for a number of shards ends: a Query of that many takes 5,000 read units at least."""
PAGE_BYTES = 1024 * 1024  # of a Query


@dataclass(frozen=True, slots=True)
class Fit:
    """How the shards of a key fall on the partitions of a table, or of an index that has the table's partition key.

    Args:
        index: the index's name; None: the table.
        read_units: read units a second that all shards take.
        write_units: write units a second that all shards take.
        partitions: how many there are.
        most: how many shards a partition can serve, with the headroom kept free.
        probability: that no partition gets more.
    """

    index: str | None
    read_units: float
    write_units: float
    partitions: int
    most: int
    probability: float


@dataclass(frozen=True)
class KeyLoad:
    """What a logical key is asked for; all methods are of a number of shards.

    Args:
        item_size: bytes of an item, without a suffix.
        writes: items written a second.
        reads: single items read a second.
        queries: queries of the whole key a second.
        items_of_query: how many items a query evaluates.
        consistent: whether reads are strongly consistent.
        indexes: the table's secondary indexes.
        headroom: the part of a partition's throughput that is left free.
        partitions: how many the table has; None: as many as twice the load needs.
        times: how many times as many partitions the table and its indexes have.
    """

    item_size: int
    writes: float
    reads: float
    queries: float
    items_of_query: int
    consistent: bool
    indexes: tuple[IndexWrites, ...]
    headroom: float
    partitions: int | None
    times: int = 1

    @property
    def limit(self) -> float:
        """The part of a partition's throughput that may be used."""
        return 1 - self.headroom

    def suffix_bytes(self, shards: int) -> int:
        """Bytes of the longest suffix: a dot and a number."""
        return len(f".{shards}") if shards > 1 else 0

    def stored_size(self, shards: int) -> int:
        """Bytes of an item with its suffix."""
        return self.item_size + self.suffix_bytes(shards)

    def index_write_units(self, index: IndexWrites, shards: int) -> float:
        """Write units a second, on an index."""
        return self.writes * index.write_units(self.suffix_bytes(shards))

    def item_write_units(self, shards: int) -> float:
        """Write units of a write, on the table and its local indexes."""
        suffix = self.suffix_bytes(shards)
        local = sum(index.write_units(suffix) for index in self.indexes if index.local)
        return write_units(self.stored_size(shards)) + local

    def query_read_units(self, shards: int, items: int) -> float:
        """Read units of a query that evaluates so many items, as many of each shard."""
        return shards * read_units(math.ceil(self.stored_size(shards) * items / shards), consistent=self.consistent)

    def query_requests(self, shards: int, items: int) -> int:
        """Requests of it: pages of 1 MB at the most."""
        return shards * max(1, math.ceil(self.stored_size(shards) * items / shards / PAGE_BYTES))

    def read_units(self, shards: int) -> float:
        """Read units a second."""
        single = self.reads * read_units(self.stored_size(shards), consistent=self.consistent)
        return single + self.queries * self.query_read_units(shards, self.items_of_query)

    def write_units(self, shards: int) -> float:
        """Write units a second, on the table."""
        return self.writes * self.item_write_units(shards)

    def fits(self, shards: int) -> Iterator[Fit]:
        """Give how the shards fit the table and each index that is sharded with it."""
        yield self._fit(shards, None, self.partitions, self.read_units(shards), self.write_units(shards))
        for index in self.indexes:
            if not index.local and index.hottest_share is None:
                yield self._fit(shards, index.name, index.partitions, 0.0, self.index_write_units(index, shards))

    def _fit(self, shards: int, index: str | None, has: int | None, read: float, write: float) -> Fit:
        partitions = self.times * (has or initial_partitions(read_units=2 * read, write_units=2 * write))
        taken = partitions_taken(read, write)
        most = math.floor(min(shards, round(shards * self.limit / taken, 9))) if taken else shards
        return Fit(index, read, write, partitions, most, 0.0)


def least_shards(load: KeyLoad, probability: float) -> tuple[int, tuple[Fit, ...]] | None:
    """Find the least number of shards with which no partition gets too many, at this probability or a higher one.

    The table and each index are looked at for themselves. None: there is no such number up to MOST_SHARDS.
    """
    failed: list[tuple[int, int]] = []
    for shards in range(1, MOST_SHARDS + 1):
        fits = tuple(load.fits(shards))
        tried = [(fit.most, fit.partitions) for fit in fits]
        # One shard more, and no more of them on a partition: less probable than what has failed.
        if tried == failed:
            continue
        if all(probability_bound(shards, fit.partitions, fit.most) >= probability for fit in fits):
            known = judged(shards, fits)
            if all(fit.probability >= probability for fit in known):
                return shards, known
        failed = tried
    return None


def judged(shards: int, fits: tuple[Fit, ...]) -> tuple[Fit, ...]:
    """Give them with their probabilities, which take time to find."""
    return tuple(replace(fit, probability=probability_within(shards, fit.partitions, fit.most)) for fit in fits)
