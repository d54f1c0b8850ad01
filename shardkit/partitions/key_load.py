"""The load of one hot key: the units that its shards take of the table and its indexes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardkit.analysis.shards import Fit
from shardkit.dynamodb.units import read_units, write_units
from shardkit.partitions.plan_load import IndexWrites

PAGE_BYTES = 1024 * 1024  # of a Query


@dataclass(frozen=True)
class KeyLoad:
    """The load of a logical key. Methods with ``shards`` return figures for that number of shards.

    Args:
        item_size: bytes of an item, without a suffix.
        writes: items written a second.
        reads: single items read a second.
        queries: queries of the whole key a second.
        items_of_query: items that a query evaluates.
        consistent: whether reads are strongly consistent.
        indexes: the table's secondary indexes.
        headroom: the part of a partition's throughput that is left free.
        partitions: the partitions of the table; None: unknown.
        times: a factor for the partitions of the table and its indexes.
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
        """Read units of a query of ``items`` items, evenly spread over the shards."""
        return shards * read_units(math.ceil(self.stored_size(shards) * items / shards), consistent=self.consistent)

    def query_requests(self, shards: int, items: int) -> int:
        """Requests of such a query, in pages of at most 1 MB."""
        return shards * max(1, math.ceil(self.stored_size(shards) * items / shards / PAGE_BYTES))

    def read_units(self, shards: int) -> float:
        """Read units a second."""
        single = self.reads * read_units(self.stored_size(shards), consistent=self.consistent)
        return single + self.queries * self.query_read_units(shards, self.items_of_query)

    def write_units(self, shards: int) -> float:
        """Write units a second, on the table."""
        return self.writes * self.item_write_units(shards)

    def fits(self, shards: int) -> Iterator[Fit]:
        """Yield how the shards fit the table, and each index that is sharded with it."""
        options: dict[str, Any] = {"headroom": self.headroom, "times": self.times}
        units = self.read_units(shards), self.write_units(shards)
        yield Fit.of(shards, *units, partitions=self.partitions, **options)
        for index in self.indexes:
            if not index.local and index.hottest_share is None:
                units = 0.0, self.index_write_units(index, shards)
                yield Fit.of(shards, *units, partitions=index.partitions, index=index.name, **options)
