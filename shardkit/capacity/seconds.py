"""What a meter's calls took in each second, by key: noted on the callers' threads, handed on by another."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from shardkit.capacity.advice import logical_index_key
from shardkit.capacity.thinning import Row, RowKey
from shardkit.capacity.usage import Units

if TYPE_CHECKING:
    from shardkit.capacity.charge import Charge
    from shardkit.capacity.recorder import Backlog
    from shardkit.sharding.layout import Sharding

Second = tuple[int, dict[RowKey, Row], dict[Any, int]]  # since 1970, with the items that were looked at
MOST_ROWS = 50_000  # of a second; then one row for all others
MOST_SECONDS = 10  # that wait for the thread
_LATE = 1.5  # seconds that a Date, which has no fractions, may be behind the service's time
gathering: weakref.WeakSet[Seconds] = weakref.WeakSet()
writing = threading.RLock()  # of all, and for a fork: no thread of theirs then holds a lock that a child gets


class Seconds:
    """Gathers what a meter's calls take by second; no call waits for what becomes of it, and none fails."""

    def __init__(self) -> None:
        self._meters: weakref.WeakSet[object] = weakref.WeakSet()
        self._backlogs: list[Backlog] = []
        self._shardings: dict[str, Sharding] = {}
        self._clock: Callable[[], float] = time.monotonic  # the meter's
        self._offset, self._date = 0.0, ""  # from it to the service's, and the last Date
        self.begin()
        gathering.add(self)

    def begin(self) -> None:
        """Begin, also in a forked process: what was recorded before is its parent's."""
        for backlog in self._backlogs:
            backlog.forget()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._second = self._seen = -1
        self._rows: dict[RowKey, Row] = {}
        self._items: dict[Any, int] = {}
        self._done: deque[Second] = deque()
        self._block: list[Any] = []  # what is to be written
        self.dropped = 0

    def flush(self) -> None:
        """Write all that was recorded until now."""
        self.hand_on(flush=True)

    def hand_on(self, *, flush: bool = False) -> None:
        """Write what the seconds that have ended are gathered for; or all."""

    def see_item(self, key: RowKey, sort: object) -> None:
        """Look at the item of one call of many: its sort key."""

    def record(self, meter: object, backlog: Backlog, clock: Callable[[], float]) -> None:
        self._meters.add(meter)
        self._backlogs.append(backlog)
        self._clock, self._offset = clock, time.time() - clock()

    def take(self, charge: Charge, now: float) -> None:
        with self._lock:
            self._turn(int(now + self._offset))
            self._shardings.update(charge.shardings)
            own = self._add_indexes(charge) if charge.indexes else {}
            for table, logical, physical, units, calls in charge.keys:
                self._add((charge.operation, table, None, logical, physical), calls, units, own.get(table, 1.0))

    def _add_indexes(self, charge: Charge) -> dict[str, float]:
        """Record what indexes took; return which part of each table's units was not theirs."""
        own = {table: sum(account.units) for table, account in charge.tables.items()}
        for (table, index), account in charge.indexes.items():
            self._add((charge.operation, table, index, None, None), account.requests, account.units)
            known = charge.shardings.get(table)
            # An index by the table's partition key alone is nearly always local: in the table's partitions.
            if known is None or index not in known.indexes or known.indexes[index].partition != (known.partition_key,):
                own[table] -= sum(account.units)
        for (table, index, stored), (account, sharding) in (charge.index_keys or {}).items():
            key, _ = logical_index_key(sharding, index, stored)
            self._add((charge.operation, table, index, key, None), account.requests, account.units)
            self._add((charge.operation, table, index, None, None), -account.requests, account.units, -1.0)
        return {table: own[table] / (sum(account.units) or 1.0) for table, account in charge.tables.items()}

    def throttle(self, key: RowKey, now: float) -> None:
        with self._lock:
            self._turn(int(now + self._offset))
            self._add(key, 0, Units(), throttled=1)

    def see_date(self, date: str | None, now: float) -> None:
        """Learn the service's time from an answer's header; few calls may follow, and no end of the process."""
        self._begin_to_write()
        if date and date != self._date:
            self._date = date
            seen = parsedate_to_datetime(date).timestamp() - now
            if not 0 <= self._offset - seen <= _LATE:
                self._offset = seen

    def _turn(self, second: int) -> None:
        """Hand over the rows of the second so far, if another begins; -1: none does."""
        if second == self._second:
            return
        if self._rows:
            if len(self._done) < MOST_SECONDS:
                self._done.append((self._second, self._rows, self._items))
            else:
                self.dropped += len(self._rows)
            self._rows, self._items = {}, {}
        self._second = second
        self._begin_to_write()

    def _add(self, key: RowKey, calls: int, units: Units, part: float = 1.0, throttled: int = 0) -> None:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MOST_ROWS:
                key = (*key[:3], None, None)
            row = self._rows.setdefault(key, [0, 0.0, 0.0, 0])
        row[0] += calls
        row[1] += part * (units[0] + units[2])
        row[2] += part * (units[1] + units[3])
        row[3] += throttled

    def _begin_to_write(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shardkit-seconds", daemon=True)
            with suppress(RuntimeError):  # the interpreter ends
                self._thread.start()

    def _run(self) -> None:
        metered = True
        while metered or self._second >= 0 or self._block:  # a Spark task leaves no thread behind
            time.sleep(1.0)
            metered = len(self._meters) > 0
            self.hand_on()
        self._thread = None

    def _ended(self, *, flush: bool) -> Iterator[Second]:
        """Yield the seconds that have ended, or all so far."""
        for backlog in self._backlogs:
            backlog.add_up()
        with self._lock:
            if flush or self._second == self._seen:  # nothing came since the thread looked
                self._turn(-1)
            self._seen = self._second
        while self._done:
            yield self._done.popleft()


def _forked() -> None:
    for one in gathering:
        one.begin()
    writing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=writing.acquire, after_in_parent=writing.release, after_in_child=_forked)
