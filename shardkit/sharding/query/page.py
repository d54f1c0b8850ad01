"""One page of a merged Query.

1. A page with ``Limit`` and no filter requests from each shard its share of the items and releases those in order. It
   then requests more only from the shards that hold the page back, as many items as they will probably contribute,
   until the page is full or all shards have ended.
2. Any other page is one round of requests: with a filter (evaluated items of a shard cannot be counted against
   ``Limit``), or without ``Limit`` (a shard's page ends at 1 MB). The page ends at the bound of the merge. If that is
   before the cursor, the shards that were not read up to the cursor are queried again.
3. A page of ranges (shards in the order of their sort keys) reads one after another for all that is missing. It ends
   where it is full, or in the first range that a request did not read to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shardkit.core.machine import Done, Machine, Step
from shardkit.core.merge import Rows
from shardkit.sharding.query.cursor import Cursor
from shardkit.sharding.query.fan_out import QueryFanOut
from shardkit.sharding.query.page_size import refills


class QueryPage(Protocol):
    """What a response has of a page."""

    @property
    def rows(self) -> Rows: ...

    @property
    def scanned(self) -> int: ...

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None: ...

    @property
    def errors(self) -> Mapping[int | None, Exception]: ...

    @property
    def consumed(self) -> dict[str, Any] | None: ...

    @property
    def metadata(self) -> dict[str, Any]: ...


class PageOfShards(QueryFanOut):
    """One page of a merged Query; its result is the machine itself, with ``rows`` and ``last_evaluated_key``.

    After :meth:`go_on`, its next result is the next page.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rows = Rows()
        self._limit = self.plan.limit
        self._one_round = self._limit is None or self.plan.filtered
        self._goes_on = False

    def hedged(self) -> Machine[PageOfShards]:
        return self._fan_out.hedged(self)

    def go_on(self, limit: int | None) -> None:
        """Begin the next page; ``limit``: of at most so many rows, if a page of this Query has a limit."""
        self.rows = Rows()
        self._limit = None if self._limit is None else limit
        self._goes_on = True

    def next(self, now: float) -> Step[PageOfShards]:
        while True:
            if step := self._ask(self._page_size, now) or self._wait(now):
                return step
            self._raise_failure()
            limit = self._limit
            self.rows += self.merge.release(None if limit is None else limit - len(self.rows))
            behind = self._behind()
            if not behind:
                return Done(self)
            for number in behind:
                self._requests.add(number)

    @property
    def end(self) -> Cursor | None:
        """The position at the end of the page; None: everything has been read."""
        bound, full = self.merge.bound(), len(self.rows) == self._limit
        # Ranges are left over if the page is full, or if its time is over.
        if self.rows and ((full and (bound is not None or self.merge.count)) or (bound is None and self._later)):
            return self.plan.position(self.rows.numbers[-1], self.rows.items[-1])
        return None if bound is None else Cursor(self.plan.shards[bound[1]], self._read_to[bound[1]])

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        """The cursor at the end of the page; None: everything has been read."""
        return None if self.end is None else self.plan.cursor(self.end.shard, self.end.key)

    def _page_size(self, number: int) -> int | None:
        limit = self._limit
        if limit is None:
            return None
        if self.plan.in_ranges:
            return self._missing
        share = self._share(number, limit)
        # With a filter, ``Limit`` counts evaluated items, and the page is one round. Still request whole blocks: the
        # rest of a block is free, and with fewer items the page, which ends at the earliest frontier, would hardly
        # advance.
        return share if self.plan.filtered else min(limit - len(self.rows), share)

    @property
    def _missing(self) -> int | None:
        """The items that a page of ranges still needs, with a filter those to evaluate; at least 1."""
        if self._limit is None:
            return None
        return max(1, self._limit - (self.scanned if self.plan.filtered else len(self.rows)))

    def _behind(self) -> list[int]:
        """Return the shards that must be read further before the page can end."""
        bound = self.merge.bound()
        limit = self._limit
        if self._late or len(self.rows) == limit:
            return []
        if bound is None:
            return self._next_ranges(self._missing)
        if self._one_round and self._goes_on:
            return [] if self.rows else [number for sort_key, number in self.merge.frontiers if sort_key == bound[0]]
        if self._one_round:
            start = self.plan.start_place
            return [] if start is None else self.merge.behind(start)
        if self.plan.in_ranges:
            return [bound[1]]
        assert limit is not None
        self._wanted = refills(self.merge, limit - len(self.rows))
        return list(self._wanted)

    def _holding_back(self) -> list[int]:
        # Ranges that were not queried are left to the next page, if there is a position to go on from.
        later = () if self.rows or self.merge.count or self.merge.bound() else self._later
        return [*(number for number in self._requests.busy if not self._answers[number]), *later]

    def partial(self) -> Rows:
        return self.rows + self.merge.held
