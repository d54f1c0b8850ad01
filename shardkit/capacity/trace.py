"""A trace: what a meter's calls took by second, key and shard, in bounded files that a thread writes."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import blake2b
from io import FileIO
from itertools import repeat
from math import inf
from operator import add, sub
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from shardkit.analysis.trace_files import ENDING, HashedKey, TraceRow, line_of
from shardkit.capacity.advice import logical_index_key
from shardkit.capacity.recorder import Backlog, Recorder
from shardkit.capacity.thinning import RowKey, Thinning
from shardkit.core.checks import check_count, check_key, check_number
from shardkit.errors import ConfigurationError, ShardkitError, brief

if TYPE_CHECKING:
    from shardkit.capacity.charge import Charge
    from shardkit.capacity.usage import Units
    from shardkit.sharding.layout import Sharding

Rows = dict[RowKey, list[float]]
_MOST_ROWS = 50_000  # of a second; then one row for all others
_MOST_SECONDS = 10  # that wait for the thread
_LINE_ROWS, _LINE_SECONDS = 2000, 5.0  # a killed process loses so many seconds at most
_FILE_BYTES, _FILE_SECONDS = 1 << 24, 3600
_LEAST_BYTES, _LEAST_SECRET = 1_000_000, 16
_DRIFT, _STEP = 0.01, 1.5  # seconds by which the clock's offset may fall with each line; beyond, it was wrong
_log = logging.getLogger("shardkit")
_traces: weakref.WeakSet[Trace] = weakref.WeakSet()
_writing = threading.RLock()  # of all traces, and for a fork: no thread of theirs then holds a lock that a child gets


class Trace:
    """Record what a meter's calls take, by second, key and shard, in files that ``shardkit plan trace`` replays.

    Example:
        >>> trace = Trace("/var/log/orders", keys="plain")  # doctest: +SKIP
        >>> CapacityMeter(trace=trace).attach(table)  # doctest: +SKIP

    Each process writes its own files, ``<time>-<random>.trace.jsonl.gz``, which only its owner can read; their rows add
    up. No call waits for a file, and none fails: if files cannot be written, rows are dropped, and a warning is logged.

    Args:
        folder: where the files go; it is created if it does not exist.
        keys: ``"plain"`` writes partition keys, which may be personal data; ``"hashed"``, hashes with ``secret``.
        secret: for ``"hashed"``: at least 16 bytes, the same in all processes.
        rows_per_second: about how many rows this process keeps of each second, above 0.
        max_bytes: the most bytes of this process's files, at least 1,000,000; beyond, its oldest file is deleted.

    Attributes:
        written: rows that were written to files.
        dropped: rows that could not be.

    Raises:
        ConfigurationError: an argument is invalid, or the folder cannot be created.

    Cost:
        No request. About 1 µs of CPU per call; a thread that works for 0.1 ms a second; at most about 20 MB of memory.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keys: Literal["hashed", "plain"],
        secret: bytes | None = None,
        rows_per_second: float = 50.0,
        max_bytes: int = 100_000_000,
    ) -> None:
        if keys not in {"hashed", "plain"}:
            raise ConfigurationError(f'keys: must be "hashed" or "plain", got {brief(keys)}')
        good = isinstance(secret, bytes) and len(secret) >= _LEAST_SECRET if keys == "hashed" else secret is None
        if not good:
            raise ConfigurationError(f'secret: must be at least {_LEAST_SECRET} bytes with keys="hashed", else None')
        self._secret = secret
        self._rows_per_second = check_number("rows_per_second", rows_per_second, "rows a second", above=True)
        self._max_bytes = check_count("max_bytes", max_bytes, "bytes", least=_LEAST_BYTES)
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"folder: {brief(str(folder))} cannot be created: {error}") from error
        self._backlogs: list[Backlog] = []
        self._files: list[_File] = []
        self._offset = 0.0  # from a meter's clock to the service's
        self._warned = False
        self.begin()
        _traces.add(self)

    def begin(self) -> None:
        """Begin, also in a forked process: what was recorded before is its parent's."""
        for backlog in self._backlogs:
            backlog.forget()
        for file in self._files:
            file.file.close()
        self._files = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._second = self._seen = 0
        self._rows: Rows = {}
        self._items: dict[RowKey, int] = {}
        self._shardings: dict[str, Sharding] = {}
        self._done: deque[tuple[int, Rows, dict[RowKey, int]]] = deque()
        self._date, self._ahead = "", -inf
        self._thinning = Thinning(self._rows_per_second, Random().random)  # noqa: S311 - a sample
        self._block: list[TraceRow] = []
        self._line_at = 0.0
        self.written = self.dropped = 0

    def add(
        self,
        *,
        table: str,
        key: str | bytes | Decimal,
        at: float,
        operation: str = "PutItem",
        index: str | None = None,
        calls: int = 1,
        read_units: float = 0.0,
        write_units: float = 0.0,
        throttled: int = 0,
    ) -> None:
        """Add what was seen elsewhere, as in CloudTrail: in the order of time, and to a trace without a meter.

        Example:
            >>> trace.add(table="Orders", key="2014-07-09", at=1404900000, write_units=1.0)  # doctest: +SKIP

        Args:
            table: the table's name.
            key: the logical partition key.
            at: when, in seconds since 1970.
            operation: the API operation.
            index: the index that took it; None: the table.
            calls: how many calls it was.
            read_units: the read units of all of them.
            write_units: likewise.
            throttled: attempts that were throttled.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        for name, text in (("operation", operation), ("table", table), ("index", index or ""), ("key", check_key(key))):
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise ConfigurationError(
                    f"{name}: {brief(text)} has an unpaired surrogate; fix it where it is from"
                ) from None
        check_number("at", at, "seconds since 1970")
        for name, units in (("read_units", read_units), ("write_units", write_units)):
            check_number(name, units, "units")
        for name, count in (("calls", calls), ("throttled", throttled)):
            check_count(name, count, name, least=0)
        with self._lock:
            self._turn(int(at))
            self._add((operation, table, index, key, None), calls, read_units, write_units, throttled)
        if len(self._done) >= _MOST_SECONDS:  # here, the caller can wait
            self._write(time.monotonic())

    def flush(self) -> None:
        """Write all that was recorded until now; at the end of a process this is done for you."""
        self._write(inf)

    def record(self, backlog: Backlog, clock: Callable[[], float]) -> None:
        self._backlogs.append(backlog)
        self._offset = time.time() - clock()

    def take(self, charge: Charge, now: float) -> None:
        with self._lock:
            self._turn(int(now + self._offset))
            self._shardings.update(charge.shardings)
            own = self._add_indexes(charge) if charge.indexes else None
            rows = self._rows
            for table, logical, physical, units, calls in charge.keys:
                read, write = units[0] + units[2], units[1] + units[3]
                if own is not None:
                    read, write = read * own[table], write * own[table]
                key = charge.operation, table, None, logical, physical
                row = rows.get(key)
                if row is None:
                    self._add(key, calls, read, write, 0)
                else:
                    row[0] += calls
                    row[1] += read
                    row[2] += write

    def _add_indexes(self, charge: Charge) -> dict[str, float]:
        """Record what indexes took; return which part of each table's units was not theirs."""
        own = {table: sum(account.units) for table, account in charge.tables.items()}
        rest = {of: [account.requests, *_sums(account.units)] for of, account in charge.indexes.items()}
        for table, index in rest:
            known = charge.shardings.get(table)
            # An index by the table's partition key alone is nearly always local: in the table's partitions.
            if known is None or index not in known.indexes or known.indexes[index].partition != (known.partition_key,):
                own[table] -= sum(charge.indexes[table, index].units)
        for (table, index, stored), (account, sharding) in (charge.index_keys or {}).items():
            figures = account.requests, *_sums(account.units)
            key, _ = logical_index_key(sharding, index, stored)
            self._add((charge.operation, table, index, key, None), *figures, 0)
            rest[table, index] = [*map(sub, rest[table, index], figures)]
        for (table, index), (calls, read, write) in rest.items():
            self._add((charge.operation, table, index, None, None), max(0, calls), read, write, 0)
        return {table: own[table] / (sum(account.units) or 1.0) for table, account in charge.tables.items()}

    def throttle(self, key: RowKey, now: float) -> None:
        with self._lock:
            self._turn(int(now + self._offset))
            self._add(key, 0, 0.0, 0.0, 1)

    def see_item(self, key: RowKey, sort: object) -> None:
        if len(self._items) < _MOST_ROWS:
            self._items[key] = int.from_bytes(self._hashed_by(4, sort), "big")

    def see_date(self, date: str | None, now: float) -> None:
        """Learn the service's time from an answer's header."""
        if date and date != self._date:  # the first of a second tells most: dates have no fractions
            self._date = date
            self._ahead = max(self._ahead, parsedate_to_datetime(date).timestamp() - now)

    def _hashed_by(self, size: int, content: Any) -> bytes:
        data = content if isinstance(content, bytes) else str(content).encode(errors="surrogatepass")
        return blake2b(data, digest_size=size, key=blake2b(self._secret or b"").digest()).digest()

    def _turn(self, second: int | None) -> None:
        """Hand over the rows of the second so far, if another begins."""
        if second == self._second:
            return
        if self._rows:
            if len(self._done) < _MOST_SECONDS:
                self._done.append((self._second, self._rows, self._items))
            else:
                self.dropped += len(self._rows)
            self._rows, self._items = {}, {}
        self._second = self._second if second is None else second
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shardkit-trace", daemon=True)
            with suppress(RuntimeError):  # the interpreter ends
                self._thread.start()

    def _add(self, key: RowKey, *figures: float) -> None:
        if len(self._rows) >= _MOST_ROWS and key not in self._rows:
            key = (*key[:3], None, None)
        self._rows[key] = [*map(add, self._rows.get(key, repeat(0)), figures)]

    def _run(self) -> None:
        while True:
            time.sleep(1.0)
            self._write(time.monotonic())

    def _write(self, now: float) -> None:
        """Write the seconds that have ended, if they are many rows, or the last line was some time ago; at inf, all."""
        with _writing:
            try:
                self._write_lines(now)
            except Exception as error:  # noqa: BLE001 - of whatever kind: the process goes on, and so does the thread
                if not self._warned:
                    self._warned = True
                    _log.warning("the trace in %s cannot be written; rows are dropped: %r", self._folder, error)
                self.dropped += len(self._block)
                self._block = []

    def _write_lines(self, now: float) -> None:
        for backlog in self._backlogs:
            backlog.add_up()
        with self._lock:
            if now == inf or self._second == self._seen:  # nothing came since the thread looked
                self._turn(None)
            self._seen = self._second
        while self._done:
            second, rows, items = self._done.popleft()
            kept = self._thinning.keep(second, rows)
            self._block += [self._row(second, key, row, weight, items.get(key)) for key, row, weight in kept]
        while self._block and (len(self._block) >= _LINE_ROWS or now - self._line_at >= _LINE_SECONDS):
            if self._ahead > -inf:
                far = abs(self._ahead - self._offset) > _STEP
                self._offset = self._ahead if far else max(self._ahead, self._offset - _DRIFT)
                self._ahead = -inf
            if not self._files or self._files[-1].ended(min(_FILE_BYTES, self._max_bytes // 4)):
                self._files.append(_File(self._folder))
            self._files[-1].write(line_of(self._block[:_LINE_ROWS]))
            self.written += min(_LINE_ROWS, len(self._block))
            del self._block[:_LINE_ROWS]
            self._line_at = time.monotonic()
            while sum(file.bytes for file in self._files) > self._max_bytes:
                self._files.pop(0).path.unlink(missing_ok=True)

    def _row(self, second: int, key: RowKey, row: list[float], weight: float, item: int | None) -> TraceRow:
        *place, logical, stored = key
        shard = None
        if stored is not None and key[1] in self._shardings:
            with suppress(ShardkitError, TypeError, ValueError):  # an item that is not shardkit's
                shard = self._shardings[key[1]].strategy.split(stored)[1]  # type: ignore[arg-type]
        if self._secret is not None and logical is not None:
            logical = HashedKey(self._hashed_by(8, logical).hex())
        figures = int(row[0]), round(row[1], 3), round(row[2], 3), int(row[3])
        return TraceRow._make((second, *place, logical, shard, *figures, item, round(weight, 4)))


class _File:
    """A file of a trace, which its owner alone can read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}{ENDING}"
        self.file = FileIO(str(self.path), "x", opener=partial(os.open, mode=0o600))
        self.bytes = 0
        self._began = time.monotonic()
        self._zip = zlib.compressobj(1, zlib.DEFLATED, 31)

    def ended(self, most: int) -> bool:
        """Return whether another file is due; close this one if so."""
        if self.bytes >= most or time.monotonic() - self._began >= _FILE_SECONDS:
            self.file.close()
        return self.file.closed

    def write(self, line: bytes) -> None:
        data = self._zip.compress(line) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        try:
            while data:
                written = self.file.write(data)
                data, self.bytes = data[written:], self.bytes + written
        except OSError:
            self.file.close()
            if not self.bytes:  # a full disk would get one for each line
                self.path.unlink(missing_ok=True)
            raise


class TracedRecorder(Recorder):
    """A meter's recorder that also hands what it adds to a trace."""

    def __init__(self, trace: Trace, backlog: Backlog, **options: Any) -> None:
        super().__init__(backlog, **options)
        self._trace = trace
        trace.record(backlog, self.clock)

    def add(self, charge: Charge, now: float, tags: Iterable[tuple[str, str]]) -> None:
        super().add(charge, now, tags)
        self._trace.take(charge, now)


def _sums(units: Units) -> tuple[float, float]:
    return units[0] + units[2], units[1] + units[3]


@atexit.register
def _flush_all() -> None:
    for trace in [*_traces]:
        trace.flush()


def _forked() -> None:
    for trace in _traces:
        trace.begin()
    _writing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_writing.acquire, after_in_parent=_writing.release, after_in_child=_forked)
