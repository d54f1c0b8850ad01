"""``scan_items`` of a table whose items move: two passes over the table.

1. The first pass shows the items that are at their old places, and those that do not move. It remembers those that may
   move: 16 bytes of each.
2. The second pass, strongly consistent, shows the items that are at their new places, unless they are remembered. An
   item that the first pass did not find had left its old place before, so it is at its new one.

A page of :func:`~shardkit.sharding.scan.scan` cannot do this: its cursor would have to remember the items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from shardkit.core.machine import Done, Response, Step
from shardkit.dynamodb.values import WireItem, comparable, comparable_item
from shardkit.errors import InvalidKeyError
from shardkit.migrate.marks import Moving, is_stub
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.scan import Row, StreamOfSegments

_DIGEST_BYTES = 16
_BUCKET_BYTES = 2  # of a digest: they choose its bucket


class StreamOfPlaces(StreamOfSegments):
    """Both passes over a table, each with its segments; as :class:`StreamOfSegments`."""

    def __init__(self, sharding: Moving, params: Mapping[str, Any], segments: int, fan_out: FanOutOptions) -> None:
        index = params.get("IndexName")
        sharding.refuse_hiding(index)
        super().__init__(sharding, params, segments, fan_out)
        self._moving = sharding
        self._first = True
        self._shown_items = Remembered()
        consistent = index is None or index in sharding.local
        self._again = {
            segment: {**part, "ConsistentRead": True} if consistent else part for segment, part in self._parts.items()
        }

    def next(self, now: float) -> Step[list[Row]]:
        step = super().next(now)
        if self._first and isinstance(step, Done) and not step.value:
            self._first = False
            self._parts = self._again
            for segment in self._parts:
                self._requests.add(segment)
            step = super().next(now)
        return step

    def _rows(self, answer: Response) -> list[Row]:
        return self._request.rows([stored for stored in answer.get("Items", ()) if self._is_shown(stored)])

    def _is_shown(self, stored: WireItem) -> bool:
        if is_stub(stored):
            return False
        key = {name: stored[name] for name in self._moving.key_names}
        logical = self._moving.logical_item(key)
        try:
            homes = self._moving.homes(logical)
        except InvalidKeyError:
            return self._first  # it cannot move
        if homes.same or comparable_item(key) != comparable_item(homes.new):
            if self._first and not homes.same:
                self._shown_items.add(logical)
            return self._first
        return not self._first and logical not in self._shown_items


class Remembered:
    """A set of primary keys, which takes 16 bytes for each and can only grow."""

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}

    def add(self, key: WireItem) -> None:
        digest = _digest(key)
        self._buckets.setdefault(digest[:_BUCKET_BYTES], bytearray()).extend(digest[_BUCKET_BYTES:])

    def __contains__(self, key: WireItem) -> bool:
        digest = _digest(key)
        bucket, rest = self._buckets.get(digest[:_BUCKET_BYTES], b""), digest[_BUCKET_BYTES:]
        at = bucket.find(rest)
        while at % len(rest) and at >= 0:  # found across two digests
            at = bucket.find(rest, at + 1)
        return at >= 0


def _digest(key: WireItem) -> bytes:
    text = repr([(name, comparable(key[name])) for name in sorted(key)])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
