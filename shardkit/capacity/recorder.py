"""The calls that a meter has seen and not yet added up, and the tallies that they are added to.

Calls are only noted, in their order, and added up together: after 64 calls, or when somebody reads a figure. That takes
a fifth of the time, because the tallies are then in the processor's caches, and calls of one kind are added as one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardkit.capacity.charge import Charge, IndexKeys, KeyOfTable, KeysOfCall, report_of
from shardkit.capacity.hot_keys import HotKeyWatch
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import part_of
from shardkit.dynamodb.requests import OPERATIONS

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

_AT_ONCE = 64
_log = logging.getLogger("shardkit")

Whole = tuple[str, "Sharding | None", str, KeysOfCall, Mapping[str, Any], IndexKeys | None]
"""A call to one table that reported everything: its operation, sharding, table, keys, report, and keys in indexes.

The report is a copy if the caller gets it too and may change it."""

Tags = tuple[tuple[str, str], ...]
Taker = Callable[[Charge, float], object]
"""What takes each charge, with the time of its calls, when it is added up."""


class Backlog:
    """The calls of a meter and its scopes that are not yet added up; for many threads."""

    def __init__(self, *, window: float, watch: HotKeyWatch | None = None, takers: Sequence[Taker] = ()) -> None:
        self._part = part_of(window)
        self._watch = watch
        self._takers = takers
        self._second: int | None = None
        self._calls: deque[tuple[Whole | Charge, float, tuple[Recorder, ...], Tags]] = deque()
        self._lock = threading.Lock()

    def put(self, call: Whole | Charge, now: float, recorders: tuple[Recorder, ...], tags: Tags) -> None:
        """Note a call, when it ended, who counts it, and its tags."""
        self._calls.append((call, now, recorders, tags))
        # Warnings do not wait for the 64th call: a client may make few, large ones.
        if len(self._calls) >= _AT_ONCE or (self._watch is not None and int(now) != self._second):
            self._second = int(now)
            self.add_up()

    def forget(self) -> None:
        """Forget the calls that are not yet added up, in a forked process: they are its parent's."""
        self._calls.clear()

    def add_up(self) -> None:
        """Add up all calls noted so far; when this returns they are added, even if another thread is adding too."""
        with self._lock:
            charges: list[tuple[Charge, float, tuple[Recorder, ...], Tags]] = []
            alike: dict[Hashable, Charge] = {}
            for _ in range(len(self._calls)):
                call, now, recorders, tags = self._calls.popleft()
                if isinstance(call, Charge):
                    charges.append((call, now, recorders, tags))
                    continue
                operation, sharding, table, keys, structure, index_keys = call
                try:
                    report = report_of(structure, write=OPERATIONS[operation])
                except Exception:  # noqa: BLE001 - of whatever kind
                    _log.exception("%s: the meter could not read what was reported; it is not counted", operation)
                    continue
                # All that a tally tells calls apart by, but for the key.
                kind = operation, table, id(sharding), (*report[1],), recorders, tags, int(now), now // self._part
                charge = alike.get(kind)
                if charge is None:
                    charge = alike[kind] = Charge(operation, {} if sharding is None else {table: sharding})
                    charges.append((charge, now, recorders, tags))
                charge.add(table, keys, report, index_keys)
            for charge, now, recorders, tags in charges:
                for recorder in recorders:
                    recorder.add(charge, now, tags)
                for take in self._takers:
                    take(charge, now)
        if self._watch is not None:
            self._watch.report()


class Recorder:
    """A tally for many threads; inside the ``with``, it holds all calls so far, locked for the caller."""

    def __init__(
        self,
        backlog: Backlog,
        *,
        max_keys: int,
        window: float,
        clock: Callable[[], float],
        watch: HotKeyWatch | None = None,
    ) -> None:
        self.backlog = backlog
        self.clock = clock
        self._watch = watch
        self._lock = threading.Lock()
        self._tally = Tally(max_keys=max_keys, window=window)

    def add(self, charge: Charge, now: float, tags: Iterable[tuple[str, str]]) -> None:
        with self._lock:
            self._tally.add(charge, now, tags)
            if self._watch is not None:
                self._watch.look(self._tally, charge, now)

    def look_up(self, table: str, lookups: Iterable[tuple[KeyOfTable | None, str, float]]) -> None:
        """Add reads of a cached table."""
        with self._lock:
            self._tally.lookups.add(table, lookups)

    def __enter__(self) -> Tally:
        self.backlog.add_up()
        self._lock.acquire()
        return self._tally

    def __exit__(self, *_: object) -> None:
        self._lock.release()
