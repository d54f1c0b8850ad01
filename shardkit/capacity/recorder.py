"""What a meter has seen and not yet added up.

Adding up takes a fifth of the time if many calls are added at once: what it works with is then in the processor's
caches, and calls of one kind are added as one. So calls are only noted, in their order, and those noted are added up
together, at the latest when somebody looks.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shardkit.capacity.charge import Alike, Charge, Shares, WireKey, reported
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import part_of

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

_AT_ONCE = 64
_log = logging.getLogger("shardkit")

Seen = tuple[
    str,
    str,
    "WireKey | Shares | None",
    "Sharding | None",
    Mapping[str, Any],
    float,
    "tuple[Recorder, ...]",
    "Tags",
]
"""A call to one table of which all was reported: its operation, table, key (or its keys' shares), sharding, the report
(nothing of the caller's own, who may change it), when, who counts it, and under which tags."""

Tags = tuple[tuple[str, str], ...]


class Charged(NamedTuple):
    """A call that was charged by itself."""

    charge: Charge
    now: float
    recorders: tuple[Recorder, ...]
    tags: Tags


class Backlog:
    """Calls that are yet to be added up, of a meter and its scopes, by many threads.

    Args:
        window: seconds that their ``rates`` look back, above 0.

    Raises:
        ConfigurationError: ``window`` is not above 0.
    """

    def __init__(self, *, window: float) -> None:
        self._part = part_of(window)
        self._calls: deque[Seen | Charged] = deque()
        self._lock = threading.Lock()

    def put(self, seen: Seen | Charged) -> None:
        """Note a call."""
        self._calls.append(seen)
        if len(self._calls) >= _AT_ONCE:
            self.add_up()

    def add_up(self) -> None:
        """Add up what was noted until now; it is done when this returns, also where another thread was at it."""
        with self._lock:
            alike: dict[Hashable, Alike] = {}
            noted: list[tuple[Alike | Charge, float, tuple[Recorder, ...], Tags]] = []
            for _ in range(len(self._calls)):
                seen = self._calls.popleft()
                if isinstance(seen, Charged):
                    noted.append(seen)
                    continue
                operation, table, keys, sharding, consumed, now, recorders, tags = seen
                try:
                    units, indexes, vectors = reported(operation, consumed)
                except Exception:  # noqa: BLE001 - of whatever kind
                    _log.exception("%s: the meter could not read what was reported; it is not counted", operation)
                    continue
                # As far as a tally tells calls apart: but for the key, by time and by what they are counted under.
                kind = operation, table, id(sharding), (*indexes,), recorders, tags, int(now), now // self._part
                known = alike.get(kind)
                if known is None:
                    known = alike[kind] = Alike(operation, table, sharding)
                    noted.append((known, now, recorders, tags))
                known.add(keys, units, indexes, vectors)
            for charged, now, recorders, tags in noted:
                charge = charged.charge() if isinstance(charged, Alike) else charged
                for recorder in recorders:
                    recorder.add(charge, now, tags)


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
