"""How many items to request from each shard.

A read is charged in blocks of 4 KB, half a read unit each (eventually consistent; the guide, "Capacity Unit
Consumption for Reads"). The rest of a block is free, and a second request that starts at the end of a block costs no
more than a longer first one. So each shard is asked for the items that it will probably contribute, rounded up to whole
blocks; missing items are requested later.

The *first share* is the page divided by the shards, plus half a standard deviation. A shard's part of a page of ``n``
items over ``s`` shards varies like a Poisson number with mean ``n / s``, so its deviation is ``sqrt(n / s)``. A small
margin is right here: too few items from the busiest shards cost one more round of requests and no read units, too many
from all shards cost read units on every page. Before any item size is known, at least 8 items are requested, because
smaller pages save nothing.

The *refill share* is for shards that hold the page back after that. Their number is small and the reader is waiting, so
the margin is two standard deviations, to make a further round unlikely.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

from shardkit.core.merge import Merge
from shardkit.dynamodb.units import READ_UNIT_BYTES

_MEMORY = 256
_SAMPLES = 4  # of a page, until the memory is full
_FIRST_MARGIN = 0.5
_BLIND_LEAST = 8  # items of 512 bytes fill a block
_REFILL_MARGIN = 2.0


class ItemSizes:
    """Mean and variance of the item sizes of a table or an index, in bytes, learnt from answers."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self._variance = 0.0
        self._seen = 0

    @property
    def samples(self) -> int:
        """How many items of the next page to measure."""
        return 1 if self._seen >= _MEMORY else _SAMPLES

    def learn(self, sizes: Sequence[int]) -> None:
        mean, variance = self.mean, self._variance
        for size in sizes:
            self._seen = min(self._seen + 1, _MEMORY)
            off = size - (size if mean is None else mean)
            mean = size - off + off / self._seen
            variance += (off * (size - mean) - variance) / self._seen
        self.mean, self._variance = mean, variance

    def most(self, items: float) -> float:
        """Return the bytes that ``items`` items are unlikely to exceed (mean plus one standard deviation)."""
        assert self.mean is not None
        return items * self.mean + sqrt(items * self._variance)


def whole_blocks(items: float, sizes: ItemSizes) -> int:
    """Round a number of items up to the most that still fit into the same blocks."""
    least = ceil(items)
    if not sizes.mean:
        return least
    room = ceil(least * sizes.mean / READ_UNIT_BYTES) * READ_UNIT_BYTES
    most = int(room // sizes.mean)
    while most > least and sizes.most(most) > room:
        most -= 1
    return max(least, most)


def first_share(fair: float, sizes: ItemSizes) -> int:
    """Return the items to request first from a shard whose average part is ``fair``."""
    return max(_with_margin(fair, _FIRST_MARGIN, sizes), 0 if sizes.mean else _BLIND_LEAST)


def refill_share(missing: float, sizes: ItemSizes) -> int:
    """Return the items to request again from a shard that will probably contribute ``missing`` more."""
    return _with_margin(missing, _REFILL_MARGIN, sizes)


def _with_margin(items: float, deviations: float, sizes: ItemSizes) -> int:
    return whole_blocks(max(1.0, items + deviations * sqrt(items)), sizes)


def refills(merge: Merge, missing: int) -> dict[int, float]:
    """Return how many more items each shard must probably contribute before ``missing`` more can be released."""
    # For each frontier, in order, this estimates how many items of all shards lie between the bound and the frontier.
    # The shards read at least that far have those items in the buffer (``known``). The shards behind were not read that
    # far: they are assumed to continue with the share of items that they had up to the bound, so ``known`` is divided
    # by the share of the shards that were read. If fewer than ``missing`` items are expected up to the frontier, the
    # shard must be read further, in proportion to its own part of the items up to the frontier.
    done = sum(merge.released)
    frontiers = merge.frontiers
    wanted: dict[int, float] = {}
    ahead = merge.up_to(frontiers)
    unread = 0
    for (_, number), known in zip(frontiers, ahead, strict=True):
        share_read = 1 - unread / done if done else 1.0
        unread += merge.released[number]
        expected = known / share_read if share_read > 0 else (float(missing) if known else 0.0)
        if expected < missing or not wanted:
            brought = merge.brought[number] or 1
            wanted[number] = max(0.0, missing - expected) * brought / max(1.0, done + expected)
    return wanted
