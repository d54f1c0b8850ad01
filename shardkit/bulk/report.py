"""What a bulk load says of each item, and of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BulkReport", "BulkResult", "ShardTally"]


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of one item.

    Attributes:
        item: The item as it was given.
        place: Its place in the source, from 0.
        shard: The number of the shard that it went to; None: none, or not known.
        ok: Whether it is written.
        error: Why not.
    """

    item: Mapping[str, Any]
    place: int
    shard: int | None
    ok: bool
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class ShardTally:
    """What one shard took: items written, and write units (a batch's units, apportioned by the items' sizes)."""

    items: int = 0
    write_units: float = 0.0


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What became of a load.

    Attributes:
        items: Items taken from the source.
        written: Items written.
        failed: Items not written; ``failures`` says which and why.
        retried: Times that an item was sent again.
        requests: Requests sent.
        throttles: Requests that the service refused or left partly unprocessed for lack of throughput.
        write_units: Write units that the service reported, indexes included.
        seconds: From the first request to the last answer.
        per_shard: What each shard took, by its number.
        failures: The results of the items that failed.
    """

    items: int = 0
    written: int = 0
    failed: int = 0
    retried: int = 0
    requests: int = 0
    throttles: int = 0
    write_units: float = 0.0
    seconds: float = 0.0
    per_shard: Mapping[int | None, ShardTally] = field(default_factory=dict)
    failures: tuple[BulkResult, ...] = ()

    def __str__(self) -> str:
        rate = f", {self.written / self.seconds:,.0f} items/s" if self.seconds > 0 else ""
        return (
            f"{self.items:,} items: {self.written:,} written, {self.failed:,} failed; {self.write_units:,.1f} write "
            f"units in {self.requests:,} requests ({self.retried:,} items retried, {self.throttles:,} throttles); "
            f"{self.seconds:,.2f} s{rate}"
        )
