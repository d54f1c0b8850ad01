"""One shard's page of a merged Query: what its answer means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardkit.core.machine import Response
from shardkit.core.merge import Entry, Place
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.values import WireItem
from shardkit.operations.query import Plan

__all__ = ["ShardPage"]

_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class ShardPage:
    """What the machine keeps of an answer, in a third of its wire form's memory."""

    entries: list[Entry]
    frontier: Place | None
    """How far the shard was read; None: it has ended."""
    read_to: WireItem
    scanned: int
    wire_bytes: int
    """Bytes that came over the wire."""
    sizes: list[int]
    """The sizes of some of the items, in bytes; none, where they are not whole."""
    consumed: dict[str, Any] | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, plan: Plan, number: int, answer: Response) -> ShardPage:
        """Read a shard's answer."""
        items: list[WireItem] = answer.get("Items", [])
        last = answer.get("LastEvaluatedKey")
        goes_on = last is not None and not plan.ends_at(last)
        metadata = answer.get("ResponseMetadata", {})
        length = metadata.get("HTTPHeaders", {}).get("content-length")
        return cls(
            entries=plan.entries(number, items),
            frontier=plan.place(last, number) if last and goes_on else None,
            read_to=plan.rest(last) if last and goes_on else {},
            scanned=answer.get("ScannedCount", 0),
            wire_bytes=int(length) if length else sum(map(item_size, items)),
            sizes=[item_size(item) for item in items[:: max(1, len(items) // _SAMPLES)]] if plan.whole else [],
            consumed=answer.get("ConsumedCapacity"),
            metadata=metadata,
        )
