"""What a bulk load says of each item, and of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from shardkit.dynamodb.decode import from_wire_item

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

__all__ = ["BulkReport", "BulkResult", "Encoded", "ShardTally"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """An item or a key as it was to be stored, in the bytes of its request."""

    body: bytes
    sharding: Sharding

    @property
    def stored(self) -> dict[str, Any]:
        """The item as it is stored, in wire form."""
        ((_, request),) = orjson.loads(self.body).items()
        ((_, stored),) = request.items()
        return stored  # type: ignore[no-any-return]

    @property
    def shown(self) -> dict[str, Any]:
        """The item as the application sees it."""
        return from_wire_item(self.sharding.shown(self.stored))


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of one item.

    Attributes:
        item: The item, of the types that a boto3 resource shows; of a record that cannot be read, the record.
        place: Where it stands in the source: its ordinal from 0, or what its source says (``orders.csv, line 18``).
        shard: The number of the shard that it went to; None: none, or not known.
        ok: Whether all is well with it: it is written, or superseded.
        error: Why not.
        superseded: Whether it was left out for another write of its key (``duplicates=``).
    """

    _given: Any = field(repr=False)
    place: Any
    shard: int | None
    ok: bool
    error: Exception | None = None
    superseded: bool = False

    @property
    def item(self) -> Any:
        """The item: decoded each time that it is asked for, because a load keeps bytes, not the caller's objects."""
        return self._given.shown if isinstance(self._given, Encoded) else self._given

    def __reduce__(self) -> tuple[Any, ...]:
        # A strategy may hold a function that cannot be pickled.
        return type(self), (self.item, self.place, self.shard, self.ok, self.error, self.superseded)


@dataclass(frozen=True, slots=True)
class ShardTally:
    """What one shard took: items written, and write units (a batch's units, apportioned by the items' sizes)."""

    items: int = 0
    write_units: float = 0.0


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What became of a load: ``items == written + failed + duplicates``, each item once.

    Attributes:
        items: Items taken from the source.
        written: Items written.
        failed: Items not written; ``failures`` says which and why.
        stopped: Of these, the ones that failed only because the load stopped: they are in no dead letters, and come
            again when it is resumed.
        duplicates: Items left out for another write of their key.
        resumed: Items that the journal said were done already; they are not among ``items``.
        failed_before: Of these, the ones that failed then; their reasons are in the dead letters, if those were kept.
        retried: Times that an item was sent again.
        requests: Requests that wrote, or were to write.
        throttles: Requests that the service refused or left partly unprocessed for lack of throughput.
        throttles_by_reason: These, by the service's reason; what gave none is ``"unknown"``.
        hot_keys: Partition keys as stored that were throttled, and how often; of very many, some are left out.
        write_units: Write units that the service reported, indexes included.
        seconds: From the first request to the last answer.
        keys_in_flight: How many partition keys were in flight at a time in effect (1/Σp² of their shares): where it is
            1, the load wrote one key at a time.
        per_shard: What each shard took, by its number.
        failures: The results of the items that failed.
        advice: What would make the next load better.
    """

    items: int = 0
    written: int = 0
    failed: int = 0
    stopped: int = 0
    duplicates: int = 0
    resumed: int = 0
    failed_before: int = 0
    retried: int = 0
    requests: int = 0
    throttles: int = 0
    throttles_by_reason: Mapping[str, int] = field(default_factory=dict)
    hot_keys: Mapping[Any, int] = field(default_factory=dict)
    write_units: float = 0.0
    seconds: float = 0.0
    keys_in_flight: float = 0.0
    per_shard: Mapping[int | None, ShardTally] = field(default_factory=dict)
    failures: tuple[BulkResult, ...] = ()
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        rate = f", {self.written / self.seconds:,.0f} items/s" if self.seconds > 0 else ""
        duplicates = f", {self.duplicates:,} superseded" if self.duplicates else ""
        before = f" ({self.failed_before:,} of them failed)" if self.failed_before else ""
        resumed = f", {self.resumed:,} done before{before}" if self.resumed else ""
        stopped = f", {self.stopped:,} not written because it stopped" if self.stopped else ""
        return (
            f"{self.items:,} items: {self.written:,} written, {self.failed - self.stopped:,} failed"
            f"{stopped}{duplicates}{resumed}; "
            f"{self.write_units:,.1f} write "
            f"units in {self.requests:,} requests ({self.retried:,} items retried, {self.throttles:,} throttles); "
            f"{self.seconds:,.2f} s{rate}"
        )
