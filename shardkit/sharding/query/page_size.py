"""How many items to ask of each shard.

A read is charged in blocks of 4 KB, half a read unit each (eventually consistent; the guide, "Capacity Unit
Consumption for Reads"): the rest of a block is free to ask for, and asking again from its end costs nothing more. So a
shard is asked for what it will probably bring, in whole blocks, and what turns out to be missing is asked for later.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

from shardkit.core.merge import Merge
from shardkit.dynamodb.units import READ_UNIT_BYTES

__all__ = ["ItemSizes", "first_share", "refill_share", "refills", "whole_blocks"]

_MEMORY = 256
_FIRST_MARGIN = 0.5
_BLIND_LEAST = 8  # items of 512 bytes fill a block
_REFILL_MARGIN = 2.0


class ItemSizes:
    """The sizes of a table's or an index's items, in bytes, learnt from the answers that came so far."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self._variance = 0.0
        self._seen = 0

    def learn(self, sizes: Sequence[int]) -> None:
        """Take note of the sizes of some items."""
        mean, variance = self.mean, self._variance
        for size in sizes:
            self._seen = min(self._seen + 1, _MEMORY)
            off = size - (size if mean is None else mean)
            mean = size - off + off / self._seen
            variance += (off * (size - mean) - variance) / self._seen
        self.mean, self._variance = mean, variance

    def most(self, items: float) -> float:
        """Give the bytes that so many items will hardly exceed."""
        assert self.mean is not None
        return items * self.mean + sqrt(items * self._variance)


def whole_blocks(items: float, sizes: ItemSizes) -> int:
    """Give a number of items, at least ``items``, that leaves nothing of its last block unasked."""
    least = ceil(items)
    if not sizes.mean:
        return least
    room = ceil(least * sizes.mean / READ_UNIT_BYTES) * READ_UNIT_BYTES
    most = int(room // sizes.mean)
    while most > least and sizes.most(most) > room:
        most -= 1
    return max(least, most)


def first_share(fair: float, sizes: ItemSizes) -> int:
    """Give the items to ask of a shard first, if it brings ``fair`` on average."""
    # What the busiest shards bring more costs no more if it is asked for later, but one more round of requests.
    return max(_with_margin(fair, _FIRST_MARGIN, sizes), 0 if sizes.mean else _BLIND_LEAST)


def refill_share(missing: float, sizes: ItemSizes) -> int:
    """Give the items to ask of a shard again that will probably bring ``missing`` more."""
    return _with_margin(missing, _REFILL_MARGIN, sizes)


def _with_margin(items: float, deviations: float, sizes: ItemSizes) -> int:
    # What a shard brings is spread like a Poisson distribution.
    return whole_blocks(max(1.0, items + deviations * sqrt(items)), sizes)


def refills(merge: Merge, missing: int, handed_out: Sequence[int]) -> dict[int, float]:
    """Say how many more items the shards must probably bring before ``missing`` more can be handed out.

    ``handed_out``: by shard, up to the bound. What lies between the bound and a shard's frontier is known of the shards
    that were read as far; those that were not go on as they began.
    """
    done = sum(handed_out)
    frontiers = merge.frontiers
    wanted: dict[int, float] = {}
    ahead = merge.up_to([place for _, place in frontiers])
    unread = 0
    for (number, _), known in zip(frontiers, ahead, strict=True):
        share_read = 1 - unread / done if done else 1.0
        unread += handed_out[number]
        expected = known / share_read if share_read > 0 else (float(missing) if known else 0.0)
        if expected < missing or not wanted:
            brought = merge.brought[number] or 1
            wanted[number] = max(0.0, missing - expected) * brought / max(1.0, done + expected)
    return wanted
