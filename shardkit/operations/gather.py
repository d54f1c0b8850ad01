"""The fan-out of a Query as machines: a page, and a stream.

1. Every shard is asked at once; the driver bounds how many run side by side.
2. A page with ``Limit`` and no filter asks each shard for its share and a margin, hands out what is in order, and asks
   again only the shards that ran dry, until the page is full or all have ended.
3. Any other page is one round: with a filter (where a shard's items evaluated cannot be counted against ``Limit``), or
   without ``Limit`` (a shard's page ends at 1 MB). It ends at the bound, the earliest place to which a shard that goes
   on was read; should that be before the cursor, the shards that are behind it are asked again.
4. A stream hands out what is in order as it comes and never reads anything twice; its pages grow.
5. When a shard fails, nothing more is asked; the failure is raised when all answers are in, with the others' items.
   Where no shard answered and all failed alike, the service's own error is raised.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Any

from shardkit.capacity.units import add_consumed
from shardkit.errors import ShardQueryError, UnsupportedExpressionError
from shardkit.faults import code_of
from shardkit.machine import Answer, Done, Send, Step, Wait
from shardkit.merge import Entry, Merge
from shardkit.operations.query import Plan

__all__ = ["Gather", "PageOfShards", "StreamOfShards"]

_FIRST_PAGE = 100
_GROWTH = 4


class Gather:
    """What a page and a stream share: asking shards, and taking their answers."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.merge = Merge(len(plan.shards), descending=plan.descending)
        self.scanned = 0
        self.consumed: dict[str, Any] | None = None
        self.metadata: dict[str, Any] = {}
        self._to_ask = deque(range(len(plan.shards)))
        self._asked: dict[Send, int] = {}
        self._rounds = [0] * len(plan.shards)
        self._read_to: dict[int, dict[str, Any]] = {}
        self._errors: dict[int | None, Exception] = {}

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take a shard's page, or its failure."""
        number = self._asked.pop(send)
        if isinstance(answer, Exception):
            self._errors[self.plan.shards[number]] = answer
            return
        self.scanned += answer.get("ScannedCount", 0)
        if consumed := answer.get("ConsumedCapacity"):
            self.consumed = add_consumed(self.consumed, consumed)
        self.metadata = self.metadata or answer.get("ResponseMetadata", {})
        frontier = None
        last = answer.get("LastEvaluatedKey")
        if last and not self.plan.ends_at(last):
            self._read_to[number] = self.plan.rest(last)
            frontier = self.plan.place(last, number)
        self.merge.add(number, self.plan.entries(number, answer.get("Items", [])), frontier)

    def _ask(self, limit: int | None) -> Send | None:
        while self._to_ask:
            number = self._to_ask.popleft()
            send = self.plan.request(number, self._read_to.get(number), limit)
            if send is None:
                self.merge.add(number, (), None)
                continue
            self._rounds[number] += 1
            self._asked[send] = number
            return send
        return None

    def _raise_failure(self) -> None:
        answered = sum(self._rounds) > len(self._errors)
        first = next(iter(self._errors.values()))
        if not answered and len({code_of(error) for error in self._errors.values()}) == 1:
            raise first
        reasons = "; ".join(f"shard {shard}: {code_of(error)}: {error}" for shard, error in self._errors.items())
        raise ShardQueryError(
            f"{len(self._errors)} of {len(self.plan.shards)} shards failed ({reasons:.500}); "
            "partial_items holds what the others brought",
            self._errors,
            [self.plan.shown(entry) for entry in self._partial()],
        ) from first

    def _partial(self) -> list[Entry]:
        return self.merge.held


class PageOfShards(Gather):
    """One page of a merged Query; its result is the machine itself, with ``items`` and ``last_evaluated_key``."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.items: list[Entry] = []
        self._one_round = plan.limit is None or plan.filtered
        self._first_round = True

    def next(self, now: float) -> Step[PageOfShards]:
        """Ask, wait, or give the page."""
        while not self._errors:
            if send := self._ask(self._share()):
                return send
            if self._asked:
                return Wait()
            limit = self.plan.limit
            self.items += self.merge.release(None if limit is None else limit - len(self.items))
            behind = self._behind()
            if not behind:
                return Done(self)
            self._to_ask.extend(behind)
            self._first_round = False
        if not self._asked:
            self._raise_failure()
        return Wait()

    @property
    def last_evaluated_key(self) -> dict[str, str] | None:
        """The cursor where the page ended; None: everything has been read."""
        bound = self.merge.bound()
        if self.items and len(self.items) == self.plan.limit and (bound is not None or not self.merge.empty):
            last = self.items[-1]
            return self.plan.token(last.shard, last.item)
        if bound is None:
            return None
        return self.plan.token(self.plan.shards[bound[0]], self._read_to[bound[0]])

    def _share(self) -> int | None:
        if self.plan.limit is None:
            return None
        if self.plan.filtered and self._first_round:
            # ``Limit`` counts what is evaluated, and the page is one round: no margin.
            return ceil(self.plan.limit / len(self.plan.shards))
        return self.plan.share(self.plan.limit - len(self.items), max(1, self.merge.going_on))

    def _behind(self) -> list[int]:
        """Say which shards must be read further before the page may end."""
        bound = self.merge.bound()
        if bound is None or len(self.items) == self.plan.limit:
            return []
        if not self._one_round:
            return self.merge.dry
        start = self.plan.start_place
        return [] if start is None else self.merge.behind(start)

    def _partial(self) -> list[Entry]:
        return self.items + self.merge.held


class StreamOfShards(Gather):
    """A whole merged Query; each result is some more entries in order, an empty one the end."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.counting:
            raise UnsupportedExpressionError("query_items() yields items: Select='COUNT' cannot be given; use query()")

    def next(self, now: float) -> Step[list[Entry]]:
        """Hand out, ask, or wait."""
        if self._errors:
            if not self._asked:
                self._raise_failure()
            return Wait()
        if not self._to_ask:
            if entries := self.merge.release():
                return Done(entries)
            under_way = set(self._asked.values())
            self._to_ask.extend(number for number in self.merge.dry if number not in under_way)
        if send := self._ask(self._page_size()):
            return send
        if self._asked:
            return Wait()
        return Done(self.merge.release())

    def _page_size(self) -> int | None:
        if self.plan.limit is not None:
            return self.plan.share(self.plan.limit, len(self.plan.shards))
        rounds = self._rounds[self._to_ask[0]] if self._to_ask else 0
        return int(_FIRST_PAGE * _GROWTH ** min(rounds, 4))
