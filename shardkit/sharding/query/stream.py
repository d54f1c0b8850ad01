"""A whole merged Query as a stream: each result is some more items in order, an empty result the end.

1. Nothing is read twice. Pages start small and grow, in whole 4 KB blocks.
2. When less than half a page of a shard is buffered, its next page is requested while the caller works on released
   items. Shards with an empty buffer go first.
3. The buffered items, the items released last and the answers in flight together stay within the memory budget. But
   one item of every shard is needed to make progress, and is held whatever the budget.
4. Ranges (shards in the order of their sort keys) are read one after another; the next page or range is requested
   while the caller works on the items of the last one.
5. With ``max_items``, nothing is read ahead. Without a filter, each shard is asked for its share of the
   missing items.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from shardkit.core.checks import check_count
from shardkit.core.machine import Done, Machine, Send, Step
from shardkit.core.merge import Item, Rows
from shardkit.errors import UnsupportedExpressionError
from shardkit.sharding.query.fan_out import QueryFanOut
from shardkit.sharding.query.page_size import refills, whole_blocks
from shardkit.sharding.query.plan import QueryPlan

_FIRST_PAGE_BYTES = 64 * 1024
_UNKNOWN_ITEM_BYTES = 1024
_GROWTH = 4
_PAGE_BYTES = 2**20
# Bytes of memory per byte of response (measured: 2.7 and 9, for items of ten attributes and 350 bytes).
_HELD = 3
_UNDER_WAY = 10  # while a page is converted: its text, its wire values, and the caller's form


class StreamOfShards(QueryFanOut):
    """A whole merged Query; each result is some more rows in order, an empty result the end."""

    def __init__(self, *args: Any, max_items: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.plan.counting:
            raise UnsupportedExpressionError(
                "Select: 'COUNT' is not supported by query_items(), which yields items; use query()"
            )
        shards = len(self.plan.shards)
        read_together = 1 if self.plan.in_ranges else shards
        self._missing = max_items
        self._shared = max_items is not None and not self.plan.filtered
        self._last_page = [0] * shards
        self._ready = Rows()
        self._with_caller = 0
        self._touched: set[int] = set()
        self._ahead: deque[int] = deque()
        self._reserved: dict[Send, float] = {}
        self._wire_bytes = self._items = self._evaluated = 0
        # Each shard may buffer a page, and each connection may have one in flight. A shard may hold half a page more
        # while others hold less: if they do not, reading ahead waits (``_room``).
        side_by_side = min(read_together, self._fan_out.concurrency)
        self._most_bytes = self._fan_out.max_buffer_bytes / (_HELD * read_together + _UNDER_WAY * side_by_side)

    def hedged(self) -> Machine[Rows]:
        return self._fan_out.hedged(self)

    def go_on(self, max_items: int | None) -> None:
        """Let at most so many rows come from now on."""
        self._missing = max_items
        self._touched.update(number for _, number in self.merge.frontiers)

    @property
    def bytes_a_row(self) -> float:
        """The memory that a row takes, in bytes."""
        return _HELD * self._wire_bytes / self._items if self._items else 0.0

    def next(self, now: float) -> Step[Rows]:
        if self._gave_up:
            if step := self._wait(now):
                return step
            self._raise_failure()
        self._with_caller = 0
        self._take_released()
        self._line_up()
        send = self._ask(self._page_size, now)
        if send is None and self._read_ahead():
            send = self._ask(self._page_size, now)
        if send is not None:
            self._reserved[send] = _UNDER_WAY * self._bytes_of_page(send.params.get("Limit"))
            return send
        if not self._ready:
            if step := self._wait(now):
                return step
            self._raise_failure()
            self._take_released()  # shards that the timeout ended no longer hold the others back
            if not self._ready and self._later and self._missing != 0:
                return self.next(now)  # the ranges so far have ended without an item
        ready, self._ready = self._ready, Rows()
        self._with_caller = len(ready)
        self._requests.restart()  # time that the caller spends between results does not count
        return Done(ready)

    def receive(self, send: Send, answer: Any, now: float) -> None:
        self._reserved.pop(send, None)
        if (number := self._requests.in_flight.get(send)) is not None and not isinstance(answer, Exception):
            self._wire_bytes += answer.wire_bytes
            self._items += len(answer.run.items)
            self._evaluated += answer.scanned
            self._last_page[number] = len(answer.run.items)
            self._touched.add(number)
        super().receive(send, answer, now)

    def _take_released(self) -> None:
        """Move the items that are in order from the merge to ``_ready``, at most ``max_items`` in all."""
        released = self.merge.release(self._missing)
        self._ready += released
        self._touched.update(released.numbers)
        if self._missing is not None:
            self._missing -= len(released)

    def _line_up(self) -> None:
        """Queue the shards that must be read next, and those that may be read ahead."""
        requests = self._requests
        if self._missing == 0:
            # ``max_items`` is reached: queued requests and retries are not needed any more.
            requests.clear()
            return
        if self.plan.in_ranges:
            if not (requests.busy or (self._ready and self._missing is not None)):
                bound = self.merge.bound()
                for number in self._next_ranges(self._missing) if bound is None else [bound[1]]:
                    requests.add(number)
            return
        if not self._shared:
            for number in self._touched - requests.busy:
                held = self.merge.held_by(number)
                if not held and self.merge.goes_on(number):
                    requests.add(number)
                elif self._missing is None and held <= self._last_page[number] // 2:
                    self._ahead.append(number)
            self._touched.clear()
        elif not (self._ready or requests.in_flight or requests.resting or self.merge.silent):
            assert self._missing is not None
            self._wanted = refills(self.merge, self._missing)
            requests.clear()
            for number in self._wanted:
                requests.add(number)

    def _read_ahead(self) -> bool:
        """Queue a shard to read ahead if connections and memory allow; return whether any is queued."""
        requests = self._requests
        while self._ahead and not requests.to_send and len(requests.in_flight) < self._fan_out.concurrency:
            number = self._ahead[0]
            if number not in requests.busy and self.merge.goes_on(number):
                if _UNDER_WAY * self._bytes_of_page(self._wanted_items(number)) > self._room:
                    return False
                requests.add(number)
            self._ahead.popleft()
        return bool(requests.to_send)

    def _page_size(self, number: int) -> int | None:
        """Return the number of items of a shard's next page; 0: not now, None: as many as fit into 1 MB."""
        wanted = self._wanted_items(number)
        room = self._room
        if _UNDER_WAY * self._bytes_of_page(wanted) <= room:
            return wanted
        if self._requests.in_flight and (self._answers[number] or self.plan.in_ranges):
            return 0
        # This page is needed to make progress, whatever memory it takes.
        return max(1, int(room / (_UNDER_WAY * self._bytes_an_item)))

    def _wanted_items(self, number: int) -> int | None:
        most = self.plan.limit
        if self._shared:
            assert self._missing is not None
            return min(self._missing, self._share(number, self._missing), self._missing if most is None else most)
        if most is not None:
            return min(most, self._share(number, most))
        answers = self._answers[number] + (len(self._read_to) if self.plan.in_ranges else 0)
        size = min(_FIRST_PAGE_BYTES * _GROWTH ** min(answers, 3), self._most_bytes)
        if size >= _PAGE_BYTES:
            return None
        an_item = self._sizes.mean or self._bytes_an_item
        return whole_blocks(max(1.0, size // an_item), self._sizes)

    def _bytes_of_page(self, items: int | None) -> float:
        return _PAGE_BYTES if items is None else min(_PAGE_BYTES, items * self._bytes_an_item)

    @property
    def _bytes_an_item(self) -> float:
        if not self._evaluated:
            return self._sizes.mean or _UNKNOWN_ITEM_BYTES
        return max(1.0, self._wire_bytes / self._evaluated)

    @property
    def _room(self) -> float:
        """The bytes of the budget that are free."""
        items = self.merge.count + len(self._ready) + self._with_caller
        return self._fan_out.max_buffer_bytes - items * self.bytes_a_row - sum(self._reserved.values())

    def _holding_back(self) -> list[int]:
        # Shards without a request in flight too: with ``max_items``, they may wait for the others to answer.
        return [
            number
            for number in range(len(self.plan.shards))
            if (number in self._requests.busy or self.merge.goes_on(number)) and not self.merge.held_by(number)
        ]

    def partial(self) -> Rows:
        return self._ready + self.merge.held


class QueryStream(Machine[Rows], Protocol):
    """A stream of rows, and the plan of those that it returned last."""

    @property
    def plan(self) -> QueryPlan: ...

    @property
    def errors(self) -> Mapping[int | None, Exception]: ...

    def hedged(self) -> Machine[Rows]: ...


class QueryRows:
    """Yields the rows of a stream as items, or as ``(item, shard)``."""

    def __init__(self, *, return_shards: bool, max_items: int | None) -> None:
        if max_items is not None:
            check_count("max_items", max_items, "items", least=0, most=sys.maxsize)
        self._stream: QueryStream | None = None
        self._return_shards = return_shards
        self._left = max_items
        # The next one last, so that taking it drops it.
        self._numbers: list[int] = []
        self._items: list[Item] = []
        self._last: tuple[int, tuple[Any, ...]] | None = None
        self._complete = False
        self._ended = max_items == 0

    @property
    def wanting(self) -> bool:
        """Whether more rows must be added before the next ``take``."""
        return not (self._items or self._complete or self._ended)

    def begin(self, stream: QueryStream) -> Machine[Rows]:
        """Return the machine that reads the stream."""
        self._stream = stream
        return stream.hedged()

    def add(self, rows: Rows) -> None:
        """Add rows; none are the end."""
        self._numbers, self._items = rows.numbers[::-1], rows.items[::-1]
        self._complete = not rows

    def take(self) -> Any:
        if self._ended or not self._items:
            raise StopIteration
        assert self._stream is not None
        plan = self._stream.plan
        number, item = self._numbers.pop(), self._items.pop()
        # The cursor's attributes are kept, because the caller may change the item.
        self._last = number, (*map(item.get, plan.key_names),)
        if self._left is not None:
            self._left -= 1
            self._ended = self._left == 0
        shown = item if plan.as_shown else plan.shown(item)
        return (shown, plan.shard_shown(number, item)) if self._return_shards else shown

    def end(self) -> None:
        self._ended = True
        self._numbers, self._items = [], []

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        """The cursor after the last item returned; None before the first item and after the end."""
        if self._last is None or self._stream is None or (self._complete and not self._items):
            return None
        (number, values), plan = self._last, self._stream.plan
        return plan.behind(number, dict(zip(plan.key_names, values, strict=True)))

    @property
    def shard_errors(self) -> dict[int | None, Exception]:
        return {} if self._stream is None else dict(self._stream.errors)
