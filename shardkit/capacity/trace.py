"""A trace: what a meter's calls took by second, key and shard, in bounded files that a thread writes."""

from __future__ import annotations

import atexit
import gzip
import logging
import os
import secrets
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any, Literal

from shardkit.analysis.trace_files import ENDING, TraceRow, line_of
from shardkit.capacity.seconds import MOST_ROWS, MOST_SECONDS, Seconds, gathering, writing
from shardkit.capacity.thinning import Row, RowKey, Thinning
from shardkit.capacity.usage import Units
from shardkit.core.checks import check_count, check_key, check_number, check_text
from shardkit.errors import ConfigurationError, ShardkitError, brief

_LINE_ROWS, _LINE_SECONDS = 2000, 5.0  # a killed process loses so many seconds at most
_FILE_BYTES = 1 << 24
_LEAST_BYTES, _LEAST_SECRET = 1_000_000, 16
_log = logging.getLogger("shardkit")


class Trace(Seconds):
    """Record what a meter's calls take, by second, key and shard, in files that ``shardkit plan trace`` replays.

    Example:
        >>> trace = Trace("/var/log/orders", keys="plain")  # doctest: +SKIP
        >>> CapacityMeter(trace=trace).attach(table)  # doctest: +SKIP

    Each process writes its own files, ``<time>-<random>.trace.jsonl.gz``, which only its owner can read; their rows add
    up. No call waits for a file, and none fails: rows that cannot be written are counted in ``dropped``, and a warning
    is logged.

    Args:
        folder: where the files go; it is created if it does not exist.
        keys: ``"plain"`` writes partition keys, which may be personal data; ``"hashed"``, hashes with ``secret``.
        secret: for ``"hashed"``: at least 16 bytes, the same in all processes.
        rows_per_second: about how many rows this process keeps of each second, above 0.
        max_bytes: the most bytes of this process's files, at least 1,000,000; beyond, its oldest file is deleted.

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
        if not (secret is None if keys == "plain" else isinstance(secret, bytes) and len(secret) >= _LEAST_SECRET):
            raise ConfigurationError(f'secret: must be at least {_LEAST_SECRET} bytes with keys="hashed", else None')
        self._secret = secret
        self._rows_per_second = check_number("rows_per_second", rows_per_second, "rows a second", above=True)
        self._max_bytes = check_count("max_bytes", max_bytes, "bytes", least=_LEAST_BYTES)
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"folder: {brief(str(folder))} cannot be created: {error}") from error
        super().__init__()

    def begin(self) -> None:
        super().begin()
        self._thinning = Thinning(self._rows_per_second, Random().random)  # noqa: S311 - a sample
        self._line_at = 0.0
        self._files: dict[Path, int] = {}  # with their bytes

    def add(self, row: TraceRow) -> None:
        """Add what was seen elsewhere, as in CloudTrail: in the order of time, and to a trace without a meter.

        Example:
            >>> trace.add(TraceRow(1404900000, "PutItem", "Orders", key="t0000", write_units=1.0))  # doctest: +SKIP

        Args:
            row: what one or several calls took of a key; its shard and its weight are not kept.

        Raises:
            ConfigurationError: a field of the row is invalid.
        """
        check_number("second", row.second, "seconds since 1970")
        for name in ("operation", "table", "index_name"):
            check_text(name, getattr(row, name) or "")
        check_text("key", str(check_key(row.key)))
        for name in ("read_units", "write_units"):
            check_number(name, getattr(row, name), "units")
        for name in ("calls", "throttled"):
            check_count(name, getattr(row, name), name, least=0)
        key = row.operation, row.table, row.index_name, row.key, None
        with self._lock:
            self._turn(int(row.second))
            self._add(key, row.calls, Units(row.read_units, row.write_units), throttled=row.throttled)
            if row.item is not None:
                self._items[key] = row.item
        if len(self._done) >= MOST_SECONDS:  # here, the caller can wait
            self.hand_on()

    def see_item(self, key: RowKey, sort: object) -> None:
        if len(self._items) < MOST_ROWS:
            self._items[key] = int.from_bytes(self._hashed(4, sort), "big")

    def _hashed(self, size: int, content: Any) -> bytes:
        data = content if isinstance(content, bytes) else str(content).encode(errors="surrogatepass")
        return blake2b(data, digest_size=size, key=blake2b(self._secret or b"").digest()).digest()

    def hand_on(self, *, flush: bool = False) -> None:
        """Write the seconds that have ended, if they have many rows, or the last line was some time ago; or all."""
        with writing:
            try:
                for second, rows, items in self._ended(flush=flush):
                    for key, row, weight in self._thinning.keep(second, rows):
                        self._block.append(self._trace_row(second, key, row, items.get(key), weight))
                if flush or len(self._block) >= _LINE_ROWS or time.monotonic() - self._line_at >= _LINE_SECONDS:
                    self._line_at = time.monotonic()
                    while rows_of_line := self._block[:_LINE_ROWS]:
                        self._append(gzip.compress(line_of(rows_of_line), 1))
                        del self._block[:_LINE_ROWS]
            except Exception as error:  # noqa: BLE001 - of whatever kind: the process goes on, and so does the thread
                if not self.dropped:
                    _log.warning("the trace in %s cannot be written; rows are dropped: %r", self._folder, error)
                self.dropped += len(self._block)
                self._block = []

    def _trace_row(self, second: int, key: RowKey, row: Row, item: int | None, weight: float) -> TraceRow:
        operation, table, index, logical, stored = key
        shard = None
        if stored is not None and table in self._shardings:
            with suppress(ShardkitError, TypeError, ValueError):  # an item that is not shardkit's
                shard = self._shardings[table].strategy.split(stored)[1]  # type: ignore[arg-type]
        if self._secret is not None and logical is not None:
            logical = f"<hash {self._hashed(8, logical).hex()}>"
        figures = int(row[0]), round(row[1], 3), round(row[2], 3), int(row[3])
        return TraceRow(second, operation, table, index, logical, shard, *figures, item, round(weight, 4))

    def _append(self, data: bytes) -> None:
        """Append to the last file that only its owner can read, or to a new one; delete the oldest beyond the most."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = next(reversed(self._files), None)
        full = min(_FILE_BYTES, self._max_bytes // 4)
        if path is None or self._files[path] >= full or path.name[:11] != now[:11]:  # or of another hour
            path = self._folder / f"{now}-{secrets.token_hex(4)}{ENDING}"
            self._files[path] = 0
        try:
            with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(data)
        except OSError:
            with suppress(OSError):  # half a line would hide those after it
                os.truncate(path, self._files[path])
            raise
        self._files[path] += len(data)
        while sum(self._files.values()) > self._max_bytes:
            oldest = next(iter(self._files))
            oldest.unlink(missing_ok=True)
            del self._files[oldest]


@atexit.register
def _ending() -> None:
    for one in [*gathering]:
        if isinstance(one, Trace):
            one.flush()
