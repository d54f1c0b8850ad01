"""What a meter has seen and not yet added up.

Adding up takes a fifth of the time if many calls are added at once: what it works with is then in the processor's
caches. So a call that reads or writes one key is only noted, and those noted are added up together, at the latest when
somebody looks.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shardkit.capacity.charge import Charge, WireKey, single_charge
from shardkit.capacity.tally import Tally

if TYPE_CHECKING:
    from shardkit.sharding import Sharding

__all__ = ["Backlog", "Recorder", "Seen"]

_AT_ONCE = 64
_log = logging.getLogger("shardkit")


class Seen(NamedTuple):
    """A call about one key, with what was reported of it; nothing in it is the caller's, who may change what is his."""

    operation: str
    table: str
    key: WireKey | None
    sharding: Sharding | None
    consumed: Mapping[str, Any]
    now: float
    recorders: tuple[Recorder, ...]
    tags: tuple[tuple[str, str], ...]


class Backlog:
    """Calls that are yet to be added up, of a meter and its scopes, by many threads."""

    def __init__(self) -> None:
        self._calls: deque[Seen] = deque()
        self._lock = threading.Lock()

    def put(self, seen: Seen) -> None:
        """Note a call."""
        self._calls.append(seen)
        if len(self._calls) >= _AT_ONCE:
            self.add_up()

    def add_up(self) -> None:
        """Add up what was noted until now; it is done when this returns, also where another thread was at it."""
        with self._lock:
            while True:
                try:
                    operation, table, key, sharding, consumed, now, recorders, tags = self._calls.popleft()
                except IndexError:
                    return
                try:
                    charge = single_charge(operation, table, key, sharding, consumed)
                    for recorder in recorders:
                        recorder.add(charge, now, tags)
                except Exception:  # noqa: BLE001 - of whatever kind
                    _log.exception("%s: the meter could not read what was reported; it is not counted", operation)


class Recorder:
    """A tally for many threads: what the handlers of a meter write to.

    Example::

        with recorder as tally: ...  # all that was seen is in it, and nobody else writes or reads
    """

    def __init__(self, backlog: Backlog, *, max_keys: int, window: float, clock: Callable[[], float]) -> None:
        self.backlog = backlog
        self.clock = clock
        self._lock = threading.Lock()
        self._tally = Tally(max_keys=max_keys, window=window)

    def add(self, charge: Charge, now: float, tags: Iterable[tuple[str, str]]) -> None:
        """Add what one API call consumed."""
        with self._lock:
            self._tally.add(charge, now, tags)

    def __enter__(self) -> Tally:
        """Take the tally."""
        self.backlog.add_up()
        self._lock.acquire()
        return self._tally

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._lock.release()
