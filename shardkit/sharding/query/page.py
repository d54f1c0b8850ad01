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

from typing import Any

from shardkit.core.machine import Done, Step
from shardkit.core.merge import Rows
from shardkit.sharding.query.fan_out import Gather
from shardkit.sharding.query.page_size import refills


class PageOfShards(Gather):
    """One page of a merged Query; its result is the machine itself, with ``rows`` and ``last_evaluated_key``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rows = Rows()
        self._one_round = self.plan.limit is None or self.plan.filtered
        self._leaders_full = self._one_round

    def next(self, now: float) -> Step[PageOfShards]:
        while True:
            if step := self._ask(self._page_size, now) or self._wait(now):
                return step
            self._raise_failure()
            if unheard := self.merge.unheard(self.plan.followers):
                for number in self._short_leaders() or unheard:
                    self._requests.add(number)
                continue
            limit = self.plan.limit
            self.rows += self.merge.release(None if limit is None else limit - len(self.rows))
            behind = self._behind()
            if not behind:
                bound = self.merge.bound()
                if self.plan.grouped and not self.rows and bound is not None:
                    # The time is over, and there is no item to go on from.
                    self._timed_out(bound[1])
                    self._raise_failure(always=True)
                return Done(self)
            for number in behind:
                self._requests.add(number)

    def _short_leaders(self) -> list[int]:
        """Return, once, the old places that would hold the page back by themselves, before the new ones are read."""
        # Each round of the new places costs a request to all of them; but the old ones may have nothing but stubs.
        bound, limit = self.merge.bound(), self.plan.limit
        if self._leaders_full or self._late or bound is None or limit is None:
            return []
        self._leaders_full = True
        self._wanted = {} if self.merge.up_to([bound])[0] >= limit else refills(self.merge, limit)
        return list(self._wanted)

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        """The cursor at the end of the page; None: everything has been read."""
        bound, full = self.merge.bound(), len(self.rows) == self.plan.limit
        # Ranges are left over if the page is full, or if its time is over.
        if self.rows and ((full and (bound is not None or self.merge.count)) or (bound is None and self._later)):
            return self.plan.behind(self.rows.numbers[-1], self.rows.items[-1])
        if bound is None:
            return None
        if self.rows and self.plan.grouped:
            return self.plan.behind(self.rows.numbers[-1], self.rows.items[-1])
        return self.plan.cursor(self.plan.shards[bound[1]], self._read_to[bound[1]])

    def _page_size(self, number: int) -> int | None:
        limit = self.plan.limit
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
        if self.plan.limit is None:
            return None
        return max(1, self.plan.limit - (self.scanned if self.plan.filtered else len(self.rows)))

    def _behind(self) -> list[int]:
        """Return the shards that must be read further before the page can end."""
        bound = self.merge.bound()
        limit = self.plan.limit
        if self._late or len(self.rows) == limit:
            return []
        if bound is None:
            return self._next_ranges(self._missing)
        if self._one_round and self.plan.unique:
            return [] if self.rows or not self.plan.grouped else self._in_turn(())
        if self._one_round:
            start = self.plan.start_place
            return [] if start is None else self.merge.behind(start)
        if self.plan.in_ranges:
            return [bound[1]]
        assert limit is not None
        self._wanted = refills(self.merge, limit - len(self.rows))
        return self._in_turn(self._wanted)

    def _holding_back(self) -> list[int]:
        # Ranges that were not queried are left to the next page, if there is a position to go on from.
        later = () if self.rows or self.merge.count or self.merge.bound() else self._later
        unheard = self.merge.unheard(self.plan.followers)
        return [*{*(number for number in self._requests.busy if not self._answers[number]), *unheard}, *later]

    def _partial(self) -> Rows:
        return self.rows + self.merge.held
