"""A whole merged Query, page by page: each result is some more items in order, an empty one the end.

1. Nothing is read twice. Pages start small and grow, in whole 4 KB blocks.
2. A shard that holds less than half a page is asked for its next one while the caller works on what was handed out; a
   shard that ran dry comes first.
3. What is held, was handed out last, and is under way stays below the byte budget, as bytes of memory: three for each
   that comes over the wire. One item of every shard is needed to go on: so much is held whatever the budget.
4. With ``max_items`` shards are asked for their share of what is missing, and nothing is read ahead.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from shardkit.capacity.sizes import item_size
from shardkit.errors import UnsupportedExpressionError
from shardkit.machine import Answer, Done, Send, Step
from shardkit.merge import Entry
from shardkit.operations.gather import Gather
from shardkit.operations.shares import first_share, refill_share, refills, whole_blocks

__all__ = ["StreamOfShards"]

_FIRST_PAGE_BYTES = 64 * 1024
_GROWTH = 4
_PAGE_BYTES = 2**20
_UNKNOWN_ITEM_BYTES = 256
_MAX_ITEM_BYTES = 400 * 1024
_IN_MEMORY = 3
"""Bytes that a byte over the wire takes as Python values (measured: 2.7, items of ten attributes and 350 bytes)."""


class StreamOfShards(Gather):
    """A whole merged Query; each result is some more entries in order, an empty one the end."""

    def __init__(self, *args: Any, max_items: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.plan.counting:
            raise UnsupportedExpressionError("query_items() yields items: Select='COUNT' cannot be given; use query()")
        self._missing = max_items
        self._wanted: dict[int, float] = {}
        self._handed_out = [0] * len(self.plan.shards)
        self._last_page = [0] * len(self.plan.shards)
        self._ready: list[Entry] = []
        self._with_caller = 0
        self._low: set[int] = set()
        self._reserved: dict[Send, float] = {}
        self._bytes = self._items = self._evaluated = 0

    def next(self, now: float) -> Step[list[Entry]]:
        """Hand out, ask, or wait."""
        if self._gave_up:
            if step := self._wait(now):
                return step
            self._raise_failure()
        self._with_caller = 0
        self._release()
        self._line_up()
        if send := self._ask(self._page_size, now):
            self._reserved[send] = self._bytes_of_page(send.params.get("Limit"))
            return send
        if not self._ready:
            if step := self._wait(now):
                return step
            self._raise_failure()
            self._release()  # the deadline may have ended what held the others back
        ready, self._ready = self._ready, []
        self._with_caller = len(ready)
        self._deadline = None  # the caller's own time does not count
        return Done(ready)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take a shard's page, or its failure."""
        self._reserved.pop(send, None)
        if (number := self._asked.get(send)) is not None and not isinstance(answer, Exception):
            items = answer.get("Items", ())
            self._bytes += _IN_MEMORY * _bytes_of(answer)
            self._items += len(items)
            self._evaluated += answer.get("ScannedCount", len(items))
            self._last_page[number] = len(items)
            self._low.add(number)
        super().receive(send, answer, now)

    def _release(self) -> None:
        """Take what is in order, the end of what ``max_items`` asks for included."""
        released = self.merge.release(self._missing)
        if not released:
            return
        self._ready += released
        if self._missing is None:
            self._low.update({entry[1] for entry in released})
            return
        self._missing -= len(released)
        for entry in released:
            self._handed_out[entry[1]] += 1

    def _line_up(self) -> None:
        """Say which shards are to be asked next."""
        if self._missing is None:
            busy = {*self._asked.values(), *self._to_ask, *self._delayed} if self._low else ()
            for number in self._low.difference(busy):
                if self.merge.goes_on(number) and (held := self.merge.held_by(number)) <= self._last_page[number] // 2:
                    (self._to_ask.append if held else self._to_ask.appendleft)(number)
            self._low.clear()
        elif not (self._missing == 0 or self._ready or self._asked or self._delayed or self.merge.silent):
            self._wanted = refills(self.merge, self._missing, self._handed_out)
            self._to_ask = deque(self._wanted)

    def _page_size(self, number: int) -> int | None:
        """Give a page's items; 0: not now, None: as many as the service gives."""
        wanted = self._wanted_items(number)
        room = self._fan_out.max_buffer_bytes - sum(self._reserved.values()) - self._bytes_held
        if self._bytes_of_page(wanted) <= room:
            return wanted
        dry = not self.merge.held_by(number)
        if not dry or (self._asked and room < self._bytes_an_item):
            return 0
        return max(1, int(room // self._bytes_an_item))

    def _wanted_items(self, number: int) -> int | None:
        shards = len(self.plan.shards)
        if (limit := self._missing if self._missing is not None else self.plan.limit) is not None:
            if number in self._wanted:
                return min(limit, refill_share(self._wanted[number], self._sizes))
            return min(limit, first_share(limit / shards, self._sizes))
        growth = _GROWTH ** min(self._answers[number], 3)
        # All shards together may hold a page each, and have the next one under way.
        size = min(_FIRST_PAGE_BYTES * growth, self._fan_out.max_buffer_bytes // (2 * _IN_MEMORY * shards))
        if size >= _PAGE_BYTES:
            return None
        over_the_wire = self._bytes_an_item / _IN_MEMORY
        an_item = self._sizes.mean or (over_the_wire if self._evaluated else _UNKNOWN_ITEM_BYTES)
        return whole_blocks(max(1.0, size // an_item), self._sizes)

    def _bytes_of_page(self, items: int | None) -> float:
        most = _IN_MEMORY * _PAGE_BYTES
        return most if items is None else min(most, items * self._bytes_an_item)

    @property
    def _bytes_an_item(self) -> float:
        """What an item that is evaluated takes."""
        return max(1.0, self._bytes / self._evaluated) if self._evaluated else _IN_MEMORY * _MAX_ITEM_BYTES

    @property
    def _bytes_held(self) -> float:
        items = self.merge.count + len(self._ready) + self._with_caller
        return items * self._bytes / self._items if self._items else 0.0

    def _partial(self) -> list[Entry]:
        return self._ready + self.merge.held


def _bytes_of(answer: dict[str, Any]) -> int:
    length = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("content-length")
    return int(length) if length else sum(map(item_size, answer.get("Items", ())))
