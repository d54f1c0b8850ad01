"""The fan-out of a Query: query the shards and collect their answers, for a page or a stream.

1. All shards are queried at once, with at most as many concurrent requests as there are connections. Shards that are
   ranges of the sort key are queried in order: the next one when those before it have ended. While they bring too
   little, more of them are queried at once: 1, 1, 2, 4 ...
2. A throttled shard is queried again after a growing wait. If only its key range is hot, only it waits; if the table
   is short of throughput, all shards wait. A throttle by the account's limit is not retried.
3. When a shard fails, no more requests start. The error is raised when all answers are in (if requests can be
   cancelled: at once), with the items of the other shards. If no shard answered and all have the same error, the
   service's own error is raised. With ``on_shard_error="partial"``, the other shards are read to the end.
4. At the timeout, shards that have not answered have failed. With ``on_shard_error="partial"``, only those that hold
   back the items of others have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardkit.core.in_flight import InFlight
from shardkit.core.machine import Response, Send, Wait
from shardkit.core.merge import Item, Merge, Position, Rows, Run
from shardkit.dynamodb.service_errors import code_of, is_throttle, retry_after, throttled_scope
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ShardQueryError, shard_error
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.query.page_size import ItemSizes, first_share, refill_share
from shardkit.sharding.query.plan import QueryPlan

_NOT_QUERIED = "was not queried"
_NAMED = 10  # shards, in a message


class QueryFanOut:
    def __init__(self, plan: QueryPlan, *, sizes: ItemSizes, fan_out: FanOutOptions) -> None:
        self.plan = plan
        self.merge = Merge(len(plan.shards), descending=plan.descending, ranges=plan.in_ranges)
        self.scanned = 0
        self.consumed: dict[str, Any] | None = None
        self.metadata: dict[str, Any] = {}
        self.errors: dict[int | None, Exception] = {}
        self._sizes = sizes
        self._fan_out = fan_out
        numbers = range(len(plan.shards))
        first = () if plan.in_ranges else numbers
        self._requests = InFlight(first, concurrency=fan_out.concurrency, timeout=fan_out.timeout)
        self._later = deque((numbers[::-1] if plan.descending else numbers) if plan.in_ranges else ())
        """Ranges that are not queried yet, in the order in which they will be."""
        self._answers = [0] * len(plan.shards)
        self._wanted: dict[int, float] = {}
        self._read_to: dict[int, dict[str, Any]] = {}
        self._late = False

    def restart(self, deadline: float | None) -> None:
        """Let the time be over at ``deadline``, which may be before the timeout."""
        self._requests.restart(deadline)

    @property
    def ended(self) -> bool:
        """Whether everything has been read and released."""
        return not (self.merge.silent or self.merge.count or self._later) and self.merge.bound() is None

    @property
    def answered(self) -> bool:
        """Whether any shard has answered."""
        return any(self._answers)

    @property
    def in_flight(self) -> int:
        return len(self._requests.in_flight)

    def receive(self, send: Send, answer: Any, now: float) -> None:
        number = self._requests.answered(send)
        if number is None:
            return  # it arrived after the deadline
        if isinstance(answer, Exception):
            self._refused(number, answer, now)
            return
        self._requests.done(number)
        self._answers[number] += 1
        self.scanned += answer.scanned
        if answer.consumed:
            self.consumed = add_consumed(self.consumed, answer.consumed)
        self.metadata = self.metadata or answer.metadata
        self._read_to[number] = answer.read_to
        self._sizes.learn(answer.sizes)
        self.merge.add(number, answer.run, answer.frontier)

    def may_hedge(self, send: Send, now: float) -> bool:
        """Return whether a request may be sent again (:mod:`shardkit.sharding.hedging`)."""
        requests = self._requests
        number = requests.in_flight.get(send)
        throttled = number in requests.tries or now < requests.paused_until
        return number is not None and not throttled and not self._gave_up

    def _refused(self, number: int, error: Exception, now: float) -> None:
        wait = None
        if is_throttle(error):
            scope = throttled_scope(error)
            if scope != "account":
                wait = self._requests.again(
                    number, now, self._fan_out.draw(), asked=retry_after(error), pause=scope == "table"
                )
            shard, table = self.plan.shards[number], self.plan.sharding.table
            self._fan_out.on_retry("Query", table, f"shard {shard}", code_of(error), wait)
        if wait is None:
            self._failed(number, error)

    def _failed(self, number: int, error: Exception) -> None:
        self._requests.done(number)
        self.errors[self.plan.shards[number]] = error
        self.merge.add(number, Run(), None)

    def _ask(self, limit: Callable[[int], int | None], now: float) -> Send | None:
        """Return the request for the next shard, with the page size from ``limit`` (0: not now)."""
        if self._gave_up:
            return None
        while (number := self._requests.next(now)) is not None:
            size = limit(number)
            if size == 0:
                return None
            read = partial(ShardPage.of, self.plan, number, self._sizes.samples)
            send = self.plan.request(number, self._read_to.get(number), size, read)
            if send is not None:
                self._requests.sent(send)
                return send
            self._requests.skip()
            self.merge.add(number, Run(), None)
        return None

    def _share(self, number: int, limit: int) -> int:
        """Return the items to request from a shard for a page or a stream of ``limit`` items."""
        if self.plan.in_ranges:
            return limit
        if number in self._wanted:
            return refill_share(self._wanted[number], self._sizes)
        return first_share(limit / len(self.plan.shards), self._sizes)

    def _next_ranges(self, missing: int | None) -> list[int]:
        """Return the ranges to query when those before have ended: as many as will probably bring what is missing."""
        queried = len(self.plan.shards) - len(self._later)
        count = queried
        if missing is not None and self.scanned:
            count = min(count, missing * queried // self.scanned)
        return [self._later.popleft() for _ in range(min(max(1, count), len(self._later)))]

    def _wait(self, now: float) -> Wait | None:
        """Return how long to wait for answers and retries; None if there is nothing to wait for."""
        if self._gave_up and self._fan_out.cancels:
            return None
        requests = self._requests
        late = requests.late(now)
        if not (requests.in_flight if self._gave_up else requests.busy):
            return None
        if late:
            self._time_is_over()
            requests.restart()
            return None
        return requests.wait(now, answers_only=self._gave_up)

    def _time_is_over(self) -> None:
        self._late = True
        late = [*self._requests.busy] if self._fan_out.on_shard_error == "raise" else self._holding_back()
        sent = self._requests.drop(late)
        for number in late:
            self._failed(number, timed_out(self.plan.shards[number], self._fan_out, asked=number in sent))

    def _holding_back(self) -> list[int]:
        """Return the shards whose missing answers keep all other items from being released."""
        raise NotImplementedError

    @property
    def _gave_up(self) -> bool:
        return bool(self.errors) and self._fan_out.on_shard_error == "raise"

    def _raise_failure(self) -> None:
        """Raise the error, unless the caller accepts the other shards' items without it."""
        if not self._gave_up and len(self.errors) < len(self.plan.shards):
            return
        first = next(iter(self.errors.values()))
        alike = len({code_of(error) for error in self.errors.values()}) == 1
        if not self.answered and alike and not isinstance(first, TimeoutError):
            raise first
        partial = [self.plan.shown(item) for item in self.partial().items]
        raise shards_failed(self.errors, partial, failed=len(self.errors), shards=len(self.plan.shards)) from first

    def partial(self) -> Rows:
        """Return the rows that were read and are not with the caller."""
        return self.merge.held


def timed_out(shard: int | None, fan_out: FanOutOptions, *, asked: bool) -> TimeoutError:
    return TimeoutError(f"shard {shard} {'did not answer' if asked else _NOT_QUERIED} within {fan_out.timeout} seconds")


def not_queried(error: Exception) -> bool:
    """Return whether a shard has this error because the time was over before it was asked."""
    return isinstance(error, TimeoutError) and _NOT_QUERIED in str(error)


def shards_failed(
    errors: Mapping[int | None, Exception], partial: list[Item], *, failed: int, shards: int
) -> ShardQueryError:
    alike: dict[str, list[str]] = {}
    for shard, error in errors.items():
        # That of a time that is over begins with the shard, and says what its code says.
        late = isinstance(error, TimeoutError)
        reason = str(error).removeprefix(f"shard {shard} ") if late else f"{code_of(error)}: {error}"
        alike.setdefault(reason, []).append(str(shard))
    reasons = "; ".join(f"{_named(numbers)}: {reason}" for reason, numbers in alike.items())
    return shard_error(next(iter(errors.values())))(
        f"{failed} of {shards} shards failed ({reasons:.500}); partial_items has the items of the others",
        errors,
        partial,
    )


def _named(numbers: list[str]) -> str:
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    return f"shard{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:_NAMED])}{more}"


@dataclass(frozen=True, slots=True)
class ShardPage:
    """The parts of an answer that the machine keeps, in a third of the wire form's memory."""

    run: Run
    frontier: Position | None
    """The place up to which the shard was read; None: it has ended."""
    read_to: WireItem
    scanned: int
    wire_bytes: int
    """The length of the response body."""
    sizes: list[int]
    """The sizes of some items, in bytes; empty if a projection shortens them."""
    consumed: dict[str, Any] | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, plan: QueryPlan, number: int, samples: int, answer: Response) -> ShardPage:
        items: list[WireItem] = answer.get("Items", [])
        step = max(1, len(items) // samples)
        frontier, read_to = plan.reached(number, answer.get("LastEvaluatedKey"))
        metadata = answer.get("ResponseMetadata", {})
        length = metadata.get("HTTPHeaders", {}).get("content-length")
        wire_bytes = int(length) if length else sum(map(item_size, items))
        sizes = [item_size(item) for item in items[step // 2 :: step]] if plan.whole else []
        return cls(
            run=plan.run(number, items),  # empties ``items``
            frontier=frontier,
            read_to=read_to,
            scanned=answer.get("ScannedCount", 0),
            wire_bytes=wire_bytes,
            sizes=sizes,
            consumed=answer.get("ConsumedCapacity"),
            metadata=metadata,
        )
