"""Warnings about keys that come near what a partition serves, while the calls are made."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from shardkit.capacity.advice import logical_index_key, shards_of
from shardkit.capacity.charge import Charge, KeyValue
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import figure
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, partitions_taken
from shardkit.errors import ConfigurationError, brief

_PAUSE = 60.0  # seconds until a key is warned about again
_log = logging.getLogger("shardkit")


@dataclass(frozen=True, kw_only=True)
class HotKeyWarning:
    """A stored key that passed a share of what a partition serves in one second.

    Args:
        table: the table's name.
        key: the logical key, as a boto3 resource shows it.
        physical_key: the stored key, with its suffix; the same as ``key`` if the table is not sharded.
        shards: how many shards the logical key has; 1 if the table is not sharded.
        read_units: read units of the stored key in this second so far, estimates included.
        write_units: the same of write units.
        index: the global index whose key it is; None: it is the table's.
    """

    table: str
    key: KeyValue
    physical_key: KeyValue
    shards: int
    read_units: float
    write_units: float
    index: str | None = None

    @property
    def share(self) -> float:
        """The share of what a partition serves in a second: of reads or of writes, the larger. 1.0 is all of it."""
        return partitions_taken(self.read_units, self.write_units)

    def __str__(self) -> str:
        writes = self.write_units / PARTITION_WRITE_UNITS >= self.read_units / PARTITION_READ_UNITS
        units, limit, name = (
            (self.write_units, PARTITION_WRITE_UNITS, "write units")
            if writes
            else (self.read_units, PARTITION_READ_UNITS, "read units")
        )
        stored = "" if self.physical_key == self.key else f", stored key {brief(self.physical_key, 60)}"
        shards = (
            f"it has {self.shards:,} shards: give it more" if self.shards > 1 else "spread the key over several shards"
        )
        place = self.table if self.index is None else f"{self.table}, index {self.index}"
        return (
            f"{place} {brief(self.key, 60)}{stored}: {figure(units)} {name} in one second, {self.share:.0%} of the "
            f"{limit:,} that a partition serves; {shards} (the meter's advise() says how many)"
        )


class HotKeyWatch:
    """Finds the stored keys that pass a share of a partition's limit, each at most once a minute, and reports them."""

    def __init__(self, warn_at: Any, on_warning: Any) -> None:
        if isinstance(warn_at, bool) or not isinstance(warn_at, int | float) or not 0 < warn_at <= 1:
            raise ConfigurationError(
                f"warn_at: must be a number > 0 and <= 1 (a share of what a partition serves), got {brief(warn_at)}"
            )
        if on_warning is not None and (not callable(on_warning) or inspect.iscoroutinefunction(on_warning)):
            raise ConfigurationError(
                f"on_warning: must be a function that is not async, got {brief(on_warning)}; to go on in a task, let "
                "it put the warning into a queue"
            )
        self._warn_at: float = warn_at
        self._on_warning: Callable[[HotKeyWarning], object] | None = on_warning
        self._last: dict[tuple[str, str | None, KeyValue], float] = {}
        self._found: deque[HotKeyWarning] = deque()

    def look(self, tally: Tally, charge: Charge, now: float) -> None:
        """Look at the keys of a charge that the tally has just added."""
        second = int(now)
        for table, logical, physical, _, _ in charge.keys:
            if logical is None:
                continue
            if physical is None:
                units = tally.keys.units_in((table, logical), second)
            else:
                units = tally.physical_keys.units_in((table, logical, physical), second)
            stored = logical if physical is None else physical
            if self._is_due((table, None, stored), units, now):
                shards = shards_of(tally, table, logical)
                self._found.append(_warning(table, logical, stored, shards, units))
        for of in charge.index_keys or ():
            units = tally.index_keys.units_in(of, second)
            if self._is_due(of, units, now):
                table, index, stored = of
                key, shards = logical_index_key(tally.described.get(table), index, stored)
                self._found.append(_warning(table, key, stored, shards, units, index))

    def _is_due(self, of: tuple[str, str | None, KeyValue], units: tuple[float, float], now: float) -> bool:
        """Return whether to warn about a stored key of a table or an index; if so, not again for a minute."""
        if partitions_taken(*units) < self._warn_at:
            return False
        # Both directions: threads note their calls not quite in order, and a clock may be set back.
        if abs(now - self._last.get(of, -inf)) < _PAUSE:
            return False
        self._forget(now)
        self._last[of] = now
        return True

    def _forget(self, now: float) -> None:
        """Remove the entries that say nothing more: those at the front, because they are in the order of time."""
        while self._last:
            first = next(iter(self._last))
            if abs(now - self._last[first]) < _PAUSE:
                return
            del self._last[first]

    def report(self) -> None:
        """Log what was found, and call back; call it without a lock, because the callback may read the meter."""
        for warning in self._taken():
            _log.warning("%s", warning)
            if self._on_warning is not None:
                try:
                    self._on_warning(warning)
                except Exception:  # noqa: BLE001 - of whatever kind: the call goes on
                    _log.exception("on_warning: raised an error for %s", warning)

    def _taken(self) -> Iterator[HotKeyWarning]:
        while True:
            try:
                yield self._found.popleft()
            except IndexError:  # another thread may have taken the last one
                return


def _warning(
    table: str, key: KeyValue, stored: KeyValue, shards: int, units: tuple[float, float], index: str | None = None
) -> HotKeyWarning:
    read, write = units
    return HotKeyWarning(
        table=table, key=key, physical_key=stored, shards=shards, read_units=read, write_units=write, index=index
    )
