"""The machine of a pass over a table: it scans segments side by side, and runs the requests that their items need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack

from shardkit.bulk.pacing import TablePace, units_of
from shardkit.core.backoff import Backoff
from shardkit.core.checks import check_number
from shardkit.core.machine import Answer, Done, Program, ProgramMachine, Response, Send, Step, Wait
from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.service_errors import (
    PASSING_REASONS,
    code_of,
    is_fatal,
    is_throttle,
    is_transient,
    may_be_done,
    refused_parts,
    retry_after,
    throttle_reasons,
)
from shardkit.dynamodb.units import read_units as read_units_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.sharding.leases import LeaseEndedError

SHOWN_FAILURES = 10
STALLED_SECONDS = 60.0
"""A pass stops when throttles and lost answers are all that it has received for this long."""
_BURST_SECONDS = 1.0
_PAGE_BYTES = 1024**2
_CHARGED = {"ConditionalCheckFailedException", "TransactionCanceledException"}

Positions = Mapping[int, WireItem | None]
"""Where each segment goes on: after this key; None: it is done. A segment that is missing has not begun."""

Tasks = Iterable[tuple[WireItem, Program[None]]]
"""The keys of items that need requests, each with the program that makes them."""


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What passes over a table did and found.

    Attributes:
        read: The items that were read to be changed.
        failed: The items that cannot be changed.
        failures: The stored primary keys of the first ten of them, each with the reason; also of those that only the
            verification has seen.
        verified: The items that the verification read.
        left: The items that it found not to be as they should.
        complete: Whether the verification read the whole table, and found none left.
        read_units: Read units that were consumed.
        write_units: Write units that were consumed, of the table and its indexes, as far as the service reports them.
        requests: The requests that were sent.
        throttles: The requests that were throttled.
        seconds: How long it took.
    """

    read: int = 0
    failed: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    verified: int = 0
    left: int = 0
    complete: bool = False
    read_units: float = 0.0
    write_units: float = 0.0
    requests: int = 0
    throttles: int = 0
    seconds: float = 0.0


R = TypeVar("R", bound=PassReport)


class PassOptions(TypedDict, total=False):
    """The options of :class:`TablePass`."""

    workers: Required[int]
    draw: Required[Callable[[], float]]
    segments: Required[int]
    positions: Positions
    state: Mapping[str, Any]
    write_units: float | str | None
    read_units: float | None
    verify: bool


@dataclass(slots=True)
class _Page:
    """A page under way: how many of its items wait for their requests, and its LastEvaluatedKey."""

    waiting: int
    last: WireItem | None


@dataclass(slots=True)
class _Task:
    """The requests of one item, one after the other. ``send`` is the next, or the one in flight."""

    segment: int
    key: WireItem
    program: Program[None]
    steps: ProgramMachine[None] | None = None
    send: Send | None = None
    units: float = 0.0
    expected: float = 0.0
    lost: bool = False
    rest: Backoff = field(default_factory=Backoff)


class TablePass(Generic[R]):
    """One pass over a table. Each result says that something was answered; after the last, ``ended`` is true.

    A subclass says what the items of a page need (:meth:`take`). ``verify``: the scan is strongly consistent, and
    nothing is written. A segment's position moves when all items of its page have what they need. ``report`` may be set
    before the pass, to that of the pass before.

    The pass handles throttles, lost answers and conflicts of transactions. All other errors of a request are raised in
    its program; what the program raises is reported as the item's failure.

    ``lost``: a request, whose answer a program is given, was sent again although the service may have carried it out.
    """

    writes = True
    """Whether it writes, unless it verifies; if not, it needs no throughput of which it may use a share."""

    def __init__(self, table: str, report: R, scan: Mapping[str, Any], **options: Unpack[PassOptions]) -> None:
        self.report: R = report
        self.positions: dict[int, WireItem | None] = dict(options.get("positions", {}))
        self.verify = options.get("verify", False)
        self._table = table
        self._workers = options["workers"]
        self.draw = options["draw"]
        self._scan = {"TableName": table, "ReturnConsumedCapacity": "TOTAL", **scan}
        if self.verify:
            self._scan["ConsistentRead"] = True
        self._pace = TablePace(options.get("write_units"), self.draw)
        if self._pace.shared is not None:
            raise ConfigurationError(
                "write_units: a SharedBudget is supported by loads only; attach CapacityBudget(write_units=budget) to "
                "the table's client instead"
            )
        read_units, self._segments = options.get("read_units"), options["segments"]
        rate = inf if read_units is None else check_number("read_units", read_units, "read units a second", above=True)
        self._reads = TokenBucket(rate, burst=rate * _BURST_SECONDS)
        self._most = read_units_of(_PAGE_BYTES, consistent=self.verify)
        self._rest = Backoff()
        # Pages to read: a segment, and the key that it begins after (empty: at its start).
        places = {segment: self.positions.get(segment, {}) for segment in range(self._segments)}
        self._to_scan = deque((segment, last) for segment, last in places.items() if last is not None)
        self._scans: dict[Send, tuple[int, WireItem]] = {}
        self._pages: dict[int, _Page] = {}
        # Items under way come first: a mover's must not stay half moved longer than necessary.
        self._to_write: deque[_Task] = deque()
        self._writes: dict[Send, _Task] = {}
        self._resting: list[tuple[float, int, _Task]] = []
        self._rests = count()
        # New ones are begun segment by segment in turn: a page's items are all in one place of the table, and writing
        # one page after the other would keep one partition busy and leave the others idle.
        self._new: deque[deque[_Task]] = deque()
        self.lost = False
        self._described: Send | None = None
        self._error: Exception | None = None
        self._stalled: float | None = None
        self._before = 0.0
        self._began: float | None = None
        self._news = False

    def take(self, segment: int, answer: Response) -> Tasks:
        """Look at the answer to a Scan; return the items that need requests."""
        raise NotImplementedError

    def scan_of(self, segment: int) -> Mapping[str, Any]:
        """Return the parameters of a segment's Scan."""
        return {**self._scan, "Segment": segment, "TotalSegments": self._segments}

    def is_second(self, operation: str, segment: int = 0) -> bool:
        """Return whether a request of a segment, or of its items, goes through the second client, if there are two."""
        return False

    def problem(self) -> Exception | None:
        """Return why the pass must stop, after a page."""
        return None

    def concluded(self) -> R:
        """Return the report of a pass that has ended."""
        return replace(self.report, complete=self.verify and not self.report.left)

    @property
    def state(self) -> Mapping[str, Any]:
        """What a resumed pass is given beside the positions; it is JSON."""
        return {}

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
        if self._described is None and self.writes and not self.verify and self._pace.asks(now):
            self._described = Send("DescribeTable", {"TableName": self._table}, second=self.is_second("DescribeTable"))
            return self._described
        if in_flight >= self._workers:
            return Wait()
        step = self._request(now)
        if isinstance(step, Wait) and step.until is None and not in_flight and self._described is None:
            return Done(None)
        return step

    def _request(self, now: float) -> Send | Wait:
        """Return the next request, or a wait until one may be sent."""
        while self._resting and self._resting[0][0] <= now:
            task = heappop(self._resting)[2]
            if task.send is None:
                self._advance(task, now)
            else:
                self._to_write.appendleft(task)
        until = inf
        ready = inf if self._pace.unknown else self._pace.ready(now)
        if self._to_write and ready <= now:
            return self._write(self._to_write.popleft(), now)
        # Pages before new items, so that these are of many segments.
        if self._to_scan:
            scans = max(self._rest.until, self._reads.ready(now))
            if scans <= now:
                return self._read(*self._to_scan.popleft(), now)
            until = min(until, scans)
        while self._new and ready <= now:
            queue = self._new.popleft()
            task = queue.popleft()
            if queue:
                self._new.append(queue)
            task.steps = ProgramMachine(task.program)
            self._advance(task, now)
            if self._to_write:
                return self._write(self._to_write.popleft(), now)
        if self._to_write or self._new:
            until = min(until, ready)
        until = min(until, self._resting[0][0] if self._resting else inf)
        return Wait(None if until == inf else until)

    def _read(self, segment: int, last: WireItem, now: float) -> Send:
        # Charged as a full page until its answer comes: ten pages at once would be a burst.
        self._reads.take(self._most, now)
        start = {"ExclusiveStartKey": last} if last else {}
        send = Send("Scan", {**self.scan_of(segment), **start}, paced=True, second=self.is_second("Scan", segment))
        self._scans[send] = segment, last
        return send

    def _write(self, task: _Task, now: float) -> Send:
        assert task.send is not None
        # A transaction takes two units where a single write takes one.
        task.units = 2.0 * len(task.send.params.get("TransactItems", ())) or 1.0
        task.expected = self._pace.sent(task.units, now)
        params = {"ReturnConsumedCapacity": "INDEXES", **task.send.params}
        send = replace(task.send, params=params, paced=True, second=self.is_second(task.send.operation, task.segment))
        self._writes[send] = task
        return send

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._news = True
        assert self._began is not None
        self.count(requests=1, throttles=isinstance(answer, Exception) and is_throttle(answer))
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
            self._rest.refused(now, self.draw(), retry_after(answer))
            self._refused(answer, now)
            return
        self._stalled = None
        self._rest.eased()
        units = float((answer.get("ConsumedCapacity") or {}).get("CapacityUnits", 0.0))
        self._reads.take(units, now)
        self.count(read_units=units)
        tasks = deque(_Task(segment, key, program) for key, program in self.take(segment, answer))
        self._pages[segment] = _Page(len(tasks), answer.get("LastEvaluatedKey") or None)
        if tasks:
            self._new.append(tasks)
        self._turn(segment)
        self._error = self._error or self.problem()

    def _turn(self, segment: int) -> None:
        """Go on to a segment's next page if nothing of this one waits any more, and nothing stops the pass."""
        page = self._pages[segment]
        if page.waiting or self._error is not None:
            return
        del self._pages[segment]
        self.positions[segment] = page.last
        if page.last is not None:
            self._to_scan.append((segment, page.last))

    def _advance(self, task: _Task, now: float) -> None:
        """Ask an item's program what comes next."""
        assert task.steps is not None
        try:
            step = task.steps.next(now)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the pass
            self.fail(task.key, error)
            step = Done(None)
        task.send = step if isinstance(step, Send) else None
        if isinstance(step, Send):
            self._to_write.appendleft(task)
        elif isinstance(step, Wait):
            self._put_off(task, now if step.until is None else step.until)
        else:
            self._pages[task.segment].waiting -= 1
            self._turn(task.segment)

    def _put_off(self, task: _Task, until: float) -> None:
        heappush(self._resting, (until, next(self._rests), task))

    def _written(self, task: _Task, answer: Answer, now: float) -> None:
        assert task.steps is not None
        assert task.send is not None
        if not isinstance(answer, Exception):
            total, most = units_of(answer.get("ConsumedCapacity"), self._pace.worth)
            if "Get" in task.send.operation:
                self._pace.settled(task.expected, 0.0, 0.0, now)
                self._reads.take(total, now)
                self.count(read_units=total)
            else:
                self._pace.settled(task.expected, task.units, task.units if most is None else most, now)
                self.count(write_units=total)
        else:
            # A failed condition costs as much as the write would have, and the service does not report it.
            costs = code_of(answer) in _CHARGED
            self._pace.settled(task.expected, 0.0, task.expected if costs else 0.0, now)
            reasons = refused_parts(answer)
            if code_of(answer) == "TransactionConflictException" or reasons == {"TransactionConflict"}:
                # About this item only, and over in milliseconds: no reason to send others later.
                task.rest.refused(now, self.draw())
                self._put_off(task, task.rest.until)
                return
            throttled = bool(reasons) and reasons <= PASSING_REASONS
            # If a lease of the program's own has ended, the program knows what to do.
            own = reasons or (task.send.check is not None and isinstance(answer, LeaseEndedError))
            if throttled or is_transient(answer) or (is_fatal(answer) and not own):
                task.lost |= may_be_done(answer)
                self._to_write.appendleft(task)
                self._pace.throttled(now, retry_after(answer))
                self._refused(answer, now, transient=throttled)
                return
        self._stalled = None
        self.lost, task.lost = task.lost, False
        task.steps.receive(task.send, answer, now)
        self._advance(task, now)

    def _refused(self, error: Exception, now: float, *, transient: bool = False) -> None:
        """Stop at an error that other requests would get too, or if nothing else has come for a while."""
        if not transient and not is_transient(error):
            self._error = error
            return
        self._stalled = now if self._stalled is None else self._stalled
        if now - self._stalled >= STALLED_SECONDS:
            reasons = ", ".join(sorted(throttle_reasons(error))) or code_of(error)
            stalled = ShardkitError(
                f"the service refused every request for {STALLED_SECONDS:.0f} s ({reasons}); raise the throughput of "
                "the table and its indexes, or lower write_units and read_units, and run it again"
            )
            stalled.__cause__ = error
            self._error = stalled

    def fail(self, key: WireItem, error: Exception) -> None:
        """Report that an item cannot be changed."""
        named = str({name: next(iter(value.values())) for name, value in key.items()})
        known = dict(self.report.failures)  # the verification finds the same items again
        if named not in known and len(known) < SHOWN_FAILURES:
            known[named] = str(error)
        self.report = replace(self.report, failures=tuple(known.items()))
        self.count(failed=not self.verify)

    def count(self, **more: Any) -> None:
        """Add to the figures of the report."""
        self.report = replace(self.report, **{name: getattr(self.report, name) + n for name, n in more.items() if n})


def reading(names: Iterable[str] | None) -> dict[str, Any]:
    """Return the parameters of a Scan that reads these attributes only; None: all of them."""
    if names is None:
        return {}
    placeholders = {f"#a{number}": name for number, name in enumerate(names)}
    return {"ProjectionExpression": ", ".join(placeholders), "ExpressionAttributeNames": placeholders}
