"""The machine of a backfill: reads a table's segments, and gives the items that lack it the attribute of an index."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from shardkit.bulk.pacing import TablePace, units_of
from shardkit.core.backoff import ATTEMPTS, Backoff
from shardkit.core.checks import check_number
from shardkit.core.machine import Answer, Done, Send, Step, Wait
from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.service_errors import code_of, is_fatal, is_throttle, is_transient, retry_after, throttle_reasons
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.sharding.backfill import Repair, attributes_read, repair
from shardkit.sharding.indexes import ShardedIndex
from shardkit.sharding.layout import Sharding

SHOWN_FAILURES = 10
STALLED_SECONDS = 60.0
"""A backfill stops when throttles and lost answers are all that it has received for this long."""
_BURST_SECONDS = 1.0
_PAGE_BYTES = 1024**2
_MOST_REMOVALS = 10_000

Positions = Mapping[int, WireItem | None]
"""Where each segment goes on: after this key; None: it is done. A segment that is missing has not begun."""


@dataclass(frozen=True)
class BackfillReport:
    """What a backfill did and found.

    Attributes:
        index: The name of the index.
        read: The items that it read to fill.
        written: The updates that gave an item the index's attribute (or removed it, where the value is gone).
        overtaken: The updates that were not made, because a writer changed the item after it was read. Such an item is
            looked at again.
        failed: The items that cannot be given the attribute.
        failures: The stored primary keys of the first ten items that cannot be given it, each with the reason; also of
            those that only the verification has seen.
        verified: The items that the verification read.
        in_index: How many of those belong in the index, because they have its logical key.
        left: The items that it found without the attribute, or with a wrong one.
        complete: Whether the verification read the whole table, and found none left.
        read_units: Read units that were consumed.
        write_units: Write units that were consumed, of the table and its indexes, as far as the service reports them.
        requests: The requests that were sent.
        throttles: The requests that were throttled.
        seconds: How long it took.
    """

    index: str
    read: int = 0
    written: int = 0
    overtaken: int = 0
    failed: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    verified: int = 0
    in_index: int = 0
    left: int = 0
    complete: bool = False
    read_units: float = 0.0
    write_units: float = 0.0
    requests: int = 0
    throttles: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Page:
    """A page under way: how many of its items wait for their update, and its LastEvaluatedKey."""

    waiting: int
    last: WireItem | None


@dataclass(slots=True)
class _Update:
    segment: int
    repair: Repair
    tries: int = 0
    expected: float = 0.0


class Backfill:
    """One pass over a table. Each result says that something was answered; after the last, ``ended`` is true.

    ``verify``: count what is missing, strongly consistent, and write nothing. A segment's position moves when all items
    of its page have their attribute. ``report`` may be set before the pass, to that of the pass before.
    """

    def __init__(
        self,
        sharding: Sharding,
        index: ShardedIndex,
        *,
        workers: int,
        draw: Callable[[], float],
        segments: int,
        positions: Positions | None = None,
        write_units: float | str | None = None,
        read_units: float | None = None,
        verify: bool = False,
    ) -> None:
        self.report = BackfillReport(index.name)
        self.positions: dict[int, WireItem | None] = dict(positions or {})
        self._sharding = sharding
        self._index = index
        self._workers = workers
        self._draw = draw
        self.verify = verify
        self._scan = _scan(sharding, index, consistent=verify)
        self._pace = TablePace(write_units, draw)
        rate = inf if read_units is None else check_number("read_units", read_units, "read units a second", above=True)
        self._reads = TokenBucket(rate, burst=rate * _BURST_SECONDS)
        self._most = read_units_of(_PAGE_BYTES, consistent=verify)
        self._rest = Backoff()
        # Pages to read: a segment, and the key that it begins after (empty: at its start).
        places = {segment: self.positions.get(segment, {}) for segment in range(segments)}
        self._to_scan = deque((segment, last) for segment, last in places.items() if last is not None)
        self._segments = segments
        self._scans: dict[Send, tuple[int, WireItem]] = {}
        self._pages: dict[int, _Page] = {}
        self._to_write: deque[_Update] = deque()
        self._writes: dict[Send, _Update] = {}
        # Removals wait until an item with the logical key was read: if none has it, its name is probably wrong.
        self._removals: list[Repair] = []
        self._keyed = False
        self._resumed = bool(positions)
        self._described: Send | None = None
        self._error: Exception | None = None
        self._stalled: float | None = None
        self._before = 0.0
        self._began: float | None = None
        self._news = False

    @property
    def done(self) -> int:
        """How many segments are done."""
        return sum(last is None for last in self.positions.values())

    @property
    def ended(self) -> bool:
        return self.done == self._segments and self._error is None

    def next(self, now: float) -> Step[None]:
        if self._began is None:
            self._began, self._before = now, self.report.seconds
        if self._news:
            self._news = False
            return Done(None)
        in_flight = len(self._scans) + len(self._writes)
        if self._error is not None:
            if in_flight or self._described is not None:
                return Wait()  # what was sent may have been done: count it
            raise self._error
        if self._described is None and not self.verify and self._pace.asks(now):
            self._described = Send("DescribeTable", {"TableName": self._sharding.table})
            return self._described
        if in_flight >= self._workers:
            return Wait()
        until = inf
        if self._to_write and not self._pace.unknown:
            until = self._pace.ready(now)
            if until <= now:
                return self._write(self._to_write.popleft(), now)
        if self._to_scan:
            ready = max(self._rest.until, self._reads.ready(now))
            if ready <= now:
                return self._read(*self._to_scan.popleft(), now)
            until = min(until, ready)
        if until < inf or in_flight or self._described is not None:
            return Wait(None if until == inf else until)
        return Done(None)

    def _read(self, segment: int, last: WireItem, now: float) -> Send:
        # Charged as a full page until its answer comes: ten pages at once would be a burst.
        self._reads.take(self._most, now)
        start = {"ExclusiveStartKey": last} if last else {}
        send = Send("Scan", {**self._scan, "Segment": segment, "TotalSegments": self._segments, **start}, paced=True)
        self._scans[send] = segment, last
        return send

    def _write(self, update: _Update, now: float) -> Send:
        update.expected = self._pace.sent(1.0, now)
        send = update.repair.send(self._sharding.table)
        self._writes[send] = update
        return send

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._news = True
        assert self._began is not None
        self._count(requests=1, throttles=isinstance(answer, Exception) and is_throttle(answer))
        self.report = replace(self.report, seconds=self._before + now - self._began)
        if send is self._described:
            self._described = None
            error = answer if isinstance(answer, Exception) else self._pace.described(answer.get("Table", {}), now)
            if error is not None and self._pace.unknown:
                self._error = error
        elif send in self._scans:
            self._page(*self._scans.pop(send), answer, now)
        else:
            self._written(self._writes.pop(send), answer, now)

    def _page(self, segment: int, last: WireItem, answer: Answer, now: float) -> None:
        self._reads.take(-self._most, now)
        if isinstance(answer, Exception):
            self._to_scan.appendleft((segment, last))
            self._rest.refused(now, self._draw(), retry_after(answer))
            self._refused(answer, now)
            return
        self._stalled = None
        self._rest.eased()
        items = answer.get("Items", ())
        units = float((answer.get("ConsumedCapacity") or {}).get("CapacityUnits", 0.0))
        self._reads.take(units, now)
        keyed = sum(all(name in item for name in self._index.logical_keys.partition) for item in items)
        self._keyed = self._keyed or keyed > 0
        counts = {"verified": len(items), "in_index": keyed} if self.verify else {"read": len(items)}
        self._count(read_units=units, **counts)
        updates: list[Repair] = []
        for stored in items:
            found = self._repair(stored)
            if found is not None:
                (self._removals if found.value is None else updates).append(found)
        if self._keyed:
            updates += self._removals
            self._removals.clear()
        self._pages[segment] = _Page(len(updates), answer.get("LastEvaluatedKey") or None)
        self._to_write.extend(_Update(segment, one) for one in updates)
        self._turn(segment)
        # A resumed pass may see the rest of the table only: what it holds back is left to the verification.
        if self._removals and not self._resumed and (self.ended or len(self._removals) >= _MOST_REMOVALS):
            self._error = ConfigurationError(
                f"source: must be an attribute of items in index {self._index.name!r} of table "
                f"{self._sharding.table!r}, got {self._index.logical_name!r}, which none of the items that were read "
                f"has; {len(self._removals):,} of them have {self._index.stored_name!r}, and it was not removed; check "
                "source="
            )

    def _repair(self, stored: WireItem) -> Repair | None:
        """Return the update that an item needs now; in a verification, count it only."""
        try:
            found = repair(self._sharding, self._index, stored, self._draw)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the backfill
            self._fail({name: stored[name] for name in self._sharding.key_names}, error)
            self._count(left=self.verify)
            return None
        if self.verify and found is not None:
            self._count(left=1)
            return None
        return found

    def _turn(self, segment: int) -> None:
        """Go on to a segment's next page if nothing of this one waits any more."""
        page = self._pages[segment]
        if page.waiting:
            return
        del self._pages[segment]
        self.positions[segment] = page.last
        if page.last is not None:
            self._to_scan.append((segment, page.last))

    def _settle(self, update: _Update) -> None:
        self._pages[update.segment].waiting -= 1
        self._turn(update.segment)

    def _written(self, update: _Update, answer: Answer, now: float) -> None:
        if not isinstance(answer, Exception):
            self._stalled = None
            total, most = units_of(answer.get("ConsumedCapacity"), self._pace.worth)
            self._pace.settled(update.expected, 1.0, 1.0 if most is None else most, now)
            self._count(written=1, write_units=total)
            self._settle(update)
            return
        changed = code_of(answer) == "ConditionalCheckFailedException"
        # It costs as much as the update would have, and the service does not report it.
        self._pace.settled(update.expected, 0.0, update.expected if changed else 0.0, now)
        if changed:
            self._stalled = None
            self._overtaken(update, answer)
        elif is_transient(answer) or is_fatal(answer):
            self._to_write.appendleft(update)
            self._pace.throttled(now, retry_after(answer))
            self._refused(answer, now)
        else:
            self._fail(update.repair.key, answer)
            self._settle(update)

    def _overtaken(self, update: _Update, error: Exception) -> None:
        self._count(overtaken=1)
        response: Any = getattr(error, "response", {})
        stored = response.get("Item")
        # Without an item, it was deleted. What is changed again and again is left to the verification.
        found = self._repair(stored) if stored and update.tries < ATTEMPTS else None
        if found is None:
            self._settle(update)
        else:
            update.repair, update.tries = found, update.tries + 1
            self._to_write.append(update)

    def _refused(self, error: Exception, now: float) -> None:
        """Stop at an error that other requests would get too, or if nothing else has come for a while."""
        if not is_transient(error):
            self._error = error
            return
        self._stalled = now if self._stalled is None else self._stalled
        if now - self._stalled >= STALLED_SECONDS:
            reasons = ", ".join(sorted(throttle_reasons(error))) or code_of(error)
            stalled = ShardkitError(
                f"the service refused every request for {STALLED_SECONDS:.0f} s ({reasons}); raise the throughput of "
                "the table and its indexes, or lower write_units and read_units, and run the backfill again"
            )
            stalled.__cause__ = error
            self._error = stalled

    def _fail(self, key: WireItem, error: Exception) -> None:
        named = str({name: next(iter(value.values())) for name, value in key.items()})
        known = dict(self.report.failures)  # the verification finds the same items again
        if named not in known and len(known) < SHOWN_FAILURES:
            known[named] = str(error)
        self.report = replace(self.report, failures=tuple(known.items()))
        self._count(failed=not self.verify)

    def _count(self, **more: float) -> None:
        self.report = replace(self.report, **{name: getattr(self.report, name) + n for name, n in more.items() if n})


def _scan(sharding: Sharding, index: ShardedIndex, *, consistent: bool) -> dict[str, Any]:
    params: dict[str, Any] = {"TableName": sharding.table, "ReturnConsumedCapacity": "TOTAL"}
    if consistent:
        params["ConsistentRead"] = True
    names = attributes_read(sharding, index)
    if names is not None:
        placeholders = {f"#a{number}": name for number, name in enumerate(names)}
        params.update(ProjectionExpression=", ".join(placeholders), ExpressionAttributeNames=placeholders)
    return params
