"""What a plan has to know of a secondary index."""

from __future__ import annotations

from dataclasses import dataclass

from shardkit.core.checks import check_count
from shardkit.dynamodb.sizes import ITEM_BYTES
from shardkit.dynamodb.units import write_units
from shardkit.errors import ConfigurationError

__all__ = ["IndexWrites"]


@dataclass(frozen=True, slots=True)
class IndexWrites:
    """What writes to a table write to one of its secondary indexes.

    Example:
        >>> IndexWrites("ByCustomer", 200, share=0.5).write_units()
        0.5

    Args:
        name: the index's name.
        entry_size: bytes that it holds of an item: what is projected, keys among them, without a suffix.
        local: whether it is a local secondary index, which takes its units from the table's partitions.
        hottest_share: the part of its writes that goes to its hottest partition key value, above 0 and at most 1, where
            it has a partition key of its own; None: its partition key is the table's, so that it is sharded too.
        moves: whether a write changes the key of an entry that is there: one write deletes it, another puts it.
        share: the part of the table's writes that write an entry, above 0 and at most 1 (a sparse index has few).
        partitions: how many a global index has; None: not known, twice what its load takes is
            assumed.

    Raises:
        ConfigurationError: a size or a share is none.

    Source:
        Developer Guide, "Provisioned throughput considerations for global secondary indexes".
    """

    name: str
    entry_size: int
    local: bool = False
    hottest_share: float | None = None
    moves: bool = False
    share: float = 1.0
    partitions: int | None = None

    def __post_init__(self) -> None:
        check_count(f"entry_size of index {self.name!r}", self.entry_size, "bytes", most=ITEM_BYTES)
        if self.partitions is not None:
            check_count(f"partitions of index {self.name!r}", self.partitions, "partitions")
        for name, share in (("share", self.share), ("hottest_share", self.hottest_share)):
            if share is not None and not 0 < share <= 1:
                raise ConfigurationError(
                    f"{name}={share!r} of index {self.name!r} is no part of its writes; give one above 0, at most 1"
                )
        if self.local and self.hottest_share is not None:
            raise ConfigurationError(
                f"index {self.name!r} is local, so its partition key is the table's; leave hottest_share out"
            )

    def write_units(self, suffix_bytes: int = 0) -> float:
        """Give the write units of a write to the table, on average; an entry holds the table's key with its suffix."""
        return self.share * write_units(self.entry_size + suffix_bytes) * (2 if self.moves else 1)
