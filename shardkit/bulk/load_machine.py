"""A bulk load as a machine: items in, batches of 25 out, one result an item.

1. Items wait in a window, interleaved over their stored partition keys. Batches leave it once it holds
   ``FIRST_ITEMS``, is full or is closed. Until it is full, each batch that leaves makes room for several more.
2. While the first of two writes of one primary key waits, ``duplicates`` decides between them. A write in flight is
   never overtaken: the second waits until the first is settled. So the last write of the input wins.
3. Throttled writes go back to the front of their key's queue. Depending on the service's reason, the key rests, the
   whole load slows down (``pacing``), or, at the account's limit, the load stops. It also stops if nothing is written
   for ``STALLED_SECONDS`` because everything is throttled.
4. After a server error or a lost connection, the same batch is sent again after a growing, jittered wait, and fails
   after ``ATTEMPTS`` tries. While it waits, it counts as one of the ``workers``.
5. A batch that the service rejects for its content is halved until the bad item is alone.
6. An error that every later request would get too (no such table, no access) ends the load: nothing more is sent, and
   every item already read and not written fails for that reason. The same happens if the service has not answered
   anything since a batch first lost its answer, and after more failures than ``max_failures``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Literal, get_args

from shardkit.bulk.load_window import BATCH_ITEMS, Batch, Departures, LoadWindow
from shardkit.bulk.pacing import KeyPace, LearntPace, Reasons, TablePace, units_of, write_rate
from shardkit.bulk.report import (
    BulkReport,
    BulkResult,
    LoadResults,
    LoadTally,
    Settled,
    stalled,
    too_many,
)
from shardkit.bulk.writes import Drawn, EncodedRequests, Write, Writes
from shardkit.core.backoff import ATTEMPTS, backoff_seconds
from shardkit.core.checks import check_count
from shardkit.core.machine import Answer, Done, Send, Step, Wait
from shardkit.core.shares import SharedRates
from shardkit.dynamodb.service_errors import (
    Scope,
    is_fatal,
    is_throttle,
    is_transient,
    retry_after,
    throttled_indexes,
)
from shardkit.errors import ConfigurationError, ShardkitError, ShareEndedError, brief
from shardkit.sharding.layout import Sharding

WINDOW = 50_000
"""Default number of items that wait to be interleaved: 38 MB of 350-byte orders. On a sorted source with 100 to 200
items per key it costs 1% of the throughput; a fifth of it costs 5.6% (``benchmarks/window.py``)."""
MOST_WINDOW = 10_000_000
FIRST_ITEMS = 1000
"""Items that a load reads before its first request."""
_READ_PER_SENT = 9
"""How many items are read for each one sent, until the window is full. A window of 50,000 items is full once 6,000 are
sent: less than a second of the throughput of a table on which the order matters."""
STALLED_SECONDS = 60.0
"""A load stops when throttles are all that it has received for this long. A partition accepts some writes in a minute,
unless others use all of its throughput."""

Duplicates = Literal["last", "first", "error"]


class LoadRoom:
    """How many items a load may hold; the loads of several tables share one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._opened = min(most, FIRST_ITEMS)
        self._loads: list[Load] = []

    def share(self, load: Load) -> None:
        self._loads.append(load)

    @property
    def free(self) -> int:
        return self._opened - sum([load.held for load in self._loads])

    def widen(self) -> None:
        """Take more items: a batch has left."""
        self._opened = min(self._most, self._opened + (_READ_PER_SENT - 1) * BATCH_ITEMS)


class Load:
    """The machine: ``put``, ``delete`` and ``close`` feed it; each of its results is a list of BulkResult.

    Args:
        draw: Returns a random number from [0, 1), for jitter.
        spread: Returns the draw for the random suffix of a place and a logical primary key; defaults to ``draw``.
        where: Returns a place as a reader understands it.
        replace_by: Attributes that identify duplicates instead of the primary key.
        kept: How many results of failed items the report has; by default all.
        room: The room that it shares with loads of other tables, and ``tally`` what they count together.

    The others are those of :func:`shardkit.streaming_bulk`. Memory: the window, ``workers`` batches in flight and as
    many waiting for their next try, and the failed items.
    """

    def __init__(
        self,
        sharding: Sharding,
        *,
        workers: int,
        draw: Callable[[], float],
        spread: Drawn | None = None,
        where: Callable[[Any], Any] | None = None,
        window: int = WINDOW,
        write_units: float | str | SharedRates | None = None,
        duplicates: Duplicates = "last",
        replace_by: tuple[str, ...] | None = None,
        max_failures: int | None = None,
        batch_writer: bool = False,
        room: LoadRoom | None = None,
        tally: LoadTally | None = None,
        kept: int | None = None,
    ) -> None:
        self.what = "the batch writer of table" if batch_writer else "the load into table"
        self._sharding = sharding
        self._workers = workers
        self._draw = draw
        self._room = LoadRoom(window) if room is None else room
        self._room.share(self)
        self._duplicates = duplicates
        self._max_failures = max_failures
        self._writes = Writes(sharding, spread or (lambda *_: draw()), replace_by)
        self._keys = KeyPace(draw)
        self._window = LoadWindow(self._keys)
        self._pace = TablePace(write_units, draw)
        self._learnt = LearntPace()
        self._reasons = Reasons()
        self._departures = Departures(self._window, workers)
        self._in_flight: dict[Send, Batch] = {}
        self._described: Send | None = None
        self._tally = LoadTally(sharding, batch_writer=batch_writer, kept=kept) if tally is None else tally
        self._results = LoadResults(sharding, self._tally, where)
        self._answered = -inf
        self._stalled: float | None = None  # since when nothing but throttles has come
        self._closed = False
        self.fatal: Exception | None = None
        self.broken: Exception | None = None

    @property
    def room(self) -> int:
        """How many more items it accepts now; an item that fails at once counts too, until its result is taken."""
        return 0 if self._closed else self._room.free

    @property
    def held(self) -> int:
        """The items in the window, and the results that were not taken."""
        return len(self._window) + len(self._results)

    @property
    def wants(self) -> bool:
        return self.room > 0

    @property
    def ended(self) -> bool:
        """Whether every item has its result."""
        return self._closed and self.quiet

    @property
    def quiet(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.held or len(self._departures) or self._in_flight)

    @property
    def has_results(self) -> bool:
        return len(self._results) > 0

    @property
    def report(self) -> BulkReport:
        return self._tally.report

    def put(self, item: Mapping[str, Any], place: Any = None) -> None:
        """Add an item to write; an invalid item gets its error as result. Its place defaults to its index from 0."""
        self._take(self._writes.put, item, place)

    def delete(self, key: Mapping[str, Any], place: Any = None) -> None:
        self._take(self._writes.delete, key, place)

    def add(self, write: Write) -> None:
        """Add a write that was made elsewhere; only while there is room."""
        self._tally.items += 1
        earlier = self._window.offer(write)
        if earlier is None:
            return
        if earlier.sent and self._duplicates == "last":
            self._window.add(write)
        elif self._duplicates == "last":
            self._results.superseded(self._window.replace(earlier, write))
        elif self._duplicates == "first":
            self._results.superseded(write)
        else:
            error = ShardkitError(
                f"the item at place {self._results.place_of(earlier.place)!r} has the same primary key, and "
                "duplicates='error' allows only one; remove one of them from the source, or set duplicates= to 'last' "
                "or 'first'"
            )
            self._results.failed(write, error, final=True)

    def refuse(self, record: Any, place: Any, error: Exception) -> None:
        self._tally.items += 1
        error = self.fatal or error
        self._results.refused(record, place, error, final=error is not self.fatal)

    def skip(self) -> None:
        self._tally.resumed += 1

    def failed_before(self, count: int) -> None:
        self._tally.failed_before = count

    def close(self, broken: Exception | None = None) -> None:
        """Accept no more items; ``broken`` is the error that ended the source, if one did."""
        self._closed = True
        self.broken = broken

    def stop(self, error: Exception) -> None:
        """Accept and send no more: what is in flight is finished, everything else fails with this error."""
        self._stop((), error)

    def settled(self) -> Settled:
        return self._results.settled()

    def _take(self, make: Callable[[Mapping[str, Any], Any], Write], source: Mapping[str, Any], place: Any) -> None:
        if place is None:
            place = self._tally.items
        if self.fatal is not None:
            self.refuse(source, place, self.fatal)
            return
        try:
            write = make(source, place)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the load
            self.refuse(source, place, error)
            return
        self.add(write)

    def next(self, now: float) -> Step[Sequence[BulkResult]]:
        """Return the next step; an empty result asks for more items."""
        if self.fatal is None and self._max_failures is not None and self._tally.failed > self._max_failures:
            self._stop((), too_many(self._tally.failed, self._max_failures))
        shared = self._pace.shared
        if self.fatal is None and shared is not None and shared.error is not None:
            self._stop((), shared.error)
        if len(self._results):
            self._stalled = None
            return Done(self._results.results())
        ready = inf
        if self.fatal is None:
            if self._described is None and self._pace.asks(now):
                self._described = Send("DescribeTable", {"TableName": self._sharding.table})
                return self._described
            self._window.wake(now)
            if len(self._in_flight) < self._workers:
                ready = inf if self._pace.unknown else max(self._pace.ready(now), self._learnt.ready(now))
                if ready <= now:
                    full = not self.wants
                    batch = self._departures.next(now, under_way=len(self._in_flight), new=full)
                    if full:
                        # Without a batch too: if all keys in the window rest, read others.
                        self._room.widen()
                    if batch is not None:
                        return self._send(batch, now)
                if self.wants:
                    self._stalled = None  # the time that the source takes does not count
                    return Done([])
        if self._in_flight or self._described is not None or not self.ended:
            return Wait(self._until(ready, now))
        return Done([])

    def _until(self, ready: float, now: float) -> float | None:
        if len(self._in_flight) >= self._workers or self.fatal is not None:
            return None
        until = ready if ready > now else min(self._keys.alarm, self._departures.alarm)
        return None if until == inf else until

    def _send(self, batch: Batch, now: float) -> Send:
        writes = batch.writes
        self._tally.sent(now, self._keys.mix)
        batch.units = _units(writes)
        batch.expected = self._pace.sent(batch.units, now)
        self._learnt.sent(batch.units, now)
        table = self._sharding.table
        if batch.alone:
            send = writes[0].alone(table)
        else:
            requests = EncodedRequests([write.body for write in writes], writes)
            params = {"RequestItems": {table: requests}, "ReturnConsumedCapacity": "INDEXES"}
            send = Send("BatchWriteItem", params, paced=True)
        if self._pace.shared is not None:
            send = replace(send, check=self._pace.shared.check)
        self._in_flight[send] = batch
        return send

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        if send is self._described:
            self._described = None
            self._follow(answer, now)
            return
        self._tally.answered(now)
        batch = self._in_flight.pop(send)
        if isinstance(answer, Exception):
            self._pace.settled(batch.expected, 0, 0.0, now)
            self._learnt.settled(0, batch.units if is_throttle(answer) else 0, now)
            self._failed(batch, answer, now)
            return
        self._answered = now
        done, left = self._writes.parted(batch.writes, answer)
        total, most = units_of(answer.get("ConsumedCapacity"), self._pace.worth)
        units = _units(done) if left else batch.units
        self._pace.settled(batch.expected, units, units if most is None else most, now)
        self._learnt.settled(units, batch.units - units, now)
        if done:
            self._tally.wrote(done, units, total)
            self._window.written(done)
            self._results.written(done)
        if left:
            self._unprocessed(left, now, retry_after(answer))

    def _follow(self, answer: Answer, now: float) -> None:
        error = answer if isinstance(answer, Exception) else self._pace.described(answer.get("Table", {}), now)
        # Only the first answer is required: if a later one is an error, the last known throughput stays.
        if error is not None and self._pace.unknown and self.fatal is None:
            self._stop((), error)

    def _unprocessed(self, left: list[Write], now: float, asked: float) -> None:
        scope, names = self._reasons.lately(now)
        self._tally.throttled(names)
        fresh = None
        if self.fatal is None and not asked and self._reasons.asks(now):
            fresh = next((write for write in left if not self._keys.resting(write.identity[0], now)), None)
        if fresh is not None:
            left = [write for write in left if write is not fresh]
            self._departures.alone(fresh)
            self._tally.retried += 1
            self._keys.throttled(fresh.identity[0], now)
            self._tally.hot([fresh.identity[0]])
        if left:
            self._hold_back(left, None, scope, now, asked)

    def _failed(self, batch: Batch, error: Exception, now: float) -> None:
        writes = batch.writes
        lost = is_transient(error) and not is_throttle(error)
        if not lost:
            self._answered = now
        if isinstance(error, ShareEndedError):
            if self.fatal is None:
                self._put_back(writes)
            else:
                self._fail(writes, self.fatal)
        elif is_throttle(error):
            self._throttled(writes, error, now)
        elif batch.alone and is_fatal(error):
            # The role may lack dynamodb:PutItem: batches still work.
            self._reasons.not_allowed()
            self._hold_back(writes, None, "key", now)
        elif is_fatal(error):
            self._stop(writes, error)
        elif lost:
            self._lost(batch, error, now)
        elif len(writes) == 1:
            self._fail(writes, error)
        elif self.fatal is not None:
            self._fail(writes, self.fatal)
        else:
            self._tally.retried += len(writes)
            self._departures.halves(batch)

    def _lost(self, batch: Batch, error: Exception, now: float) -> None:
        batch.tries += 1
        batch.since = now if batch.since is None else batch.since
        if batch.tries < ATTEMPTS and self.fatal is None:
            self._tally.retried += len(batch.writes)
            self._departures.again(batch, now + backoff_seconds(batch.tries, self._draw(), asked=retry_after(error)))
        elif self.fatal is not None or self._answered <= batch.since:
            self._stop(batch.writes, error)
        else:
            self._fail(batch.writes, error)

    def _throttled(self, writes: list[Write], error: Exception, now: float) -> None:
        scope, names = self._reasons.heard(error, now)
        self._tally.throttled(names)
        self._tally.scopes.add(scope)
        if scope == "index":
            self._tally.throttled_in(throttled_indexes(error), writes)
        if scope == "account":
            self._stop(writes, error)
        else:
            self._hold_back(writes, error, scope, now, retry_after(error))

    def _hold_back(
        self, writes: list[Write], error: Exception | None, scope: Scope, now: float, asked: float = 0.0
    ) -> None:
        """Make throttled writes wait, by key or all together; stop the load if it is stalled."""
        self._stalled = now if self._stalled is None else self._stalled
        if self.fatal is not None or now - self._stalled >= STALLED_SECONDS:
            self._stop(writes, stalled(error, STALLED_SECONDS))
            return
        if scope in {"key", "index"}:
            keys = [*dict.fromkeys(write.identity[0] for write in writes)]  # in order, so that a run is reproducible
            if scope == "key":
                self._tally.hot(keys)
            for key in keys:
                self._keys.throttled(key, now, asked)
        else:
            self._pace.throttled(now, asked)
        self._put_back(writes)

    def _put_back(self, writes: list[Write]) -> None:
        replaced = self._window.put_back(writes)
        self._tally.retried += len(writes) - len(replaced)
        for write in replaced:
            self._results.superseded(write)

    def _stop(self, writes: Iterable[Write], error: Exception) -> None:
        self.fatal = self.fatal or error
        self._closed = True
        self._fail(self._departures.drain(), self.fatal)
        self._fail((*writes, *self._window.drain()), self.fatal)

    def _fail(self, writes: Iterable[Write], error: Exception) -> None:
        writes = list(writes)
        self._window.failed(writes)
        for write in writes:
            self._results.failed(write, error, final=error is not self.fatal)


def _units(writes: list[Write]) -> int:
    return sum([write.units for write in writes])


def check_load(
    *, window: Any = WINDOW, write_units: Any = None, duplicates: Any = "last", max_failures: Any = None
) -> None:
    check_count("window", window, "items", most=MOST_WINDOW, why="they are held in memory")
    if max_failures is not None:
        check_count("max_failures", max_failures, "items", least=0)
    check_choice("duplicates", duplicates, get_args(Duplicates))
    write_rate(write_units)


def check_choice(name: str, given: Any, kinds: tuple[str, ...]) -> None:
    if given not in kinds:
        raise ConfigurationError(f"{name}: must be one of {', '.join(map(repr, kinds))}, got {brief(given)}")
