"""The cache of one table, as programs: what is asked of the store and of the table, and what is kept.

A program yields steps and gets their answers, as in :mod:`shardkit.core.machine`, but of a store, not of the service.
:mod:`shardkit.cache.runner` carries them out, in threads and in tasks.

The hard part is that a copy must not outlive a write of this process. Three things see to it:

1. A read that misses is a *flight*, which later readers of the key join. The end of a write forgets the flight: nobody
   joins it any more, and what it returns is not kept.
2. From a write's begin until the store has been told of its end, the key is *blocked*: its readers go past the store,
   and keep nothing. If the store fails then, the next reader tells it; so does whoever sees that it answers again.
3. For ``SETTLES`` seconds after a write, a read that misses is strongly consistent: an eventually consistent one may
   still return what was there before, which would then be served for a whole ``ttl``.

Other processes have a copy of their own, or, in a shared store, the same one. There a write leaves a mark in place of
the copy. Only a read that has seen the mark can replace it, and such a read is strongly consistent. A reader that has
seen the mark joins no flight that has not. Neither does a read replace a copy that it has not seen: it may have begun
before a write, and end after the mark was replaced.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from shardkit.cache.entries import MARK, VERSION_OF_PAGES, Entry, decoded
from shardkit.cache.options import CacheOptions
from shardkit.cache.steps import CacheProgram, Change, Count, Join, Later, Look, Status
from shardkit.dynamodb.service_errors import is_throttle
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ShardkitError, ShardQueryError

SETTLES = 2.0
"""Seconds after a write in which eventually consistent reads may not show it: usually less than one."""
_VERSION_SECONDS = 86_400.0
_HOT = 1.0  # seconds for which a key is not asked for again that was throttled, or is read in the background
_SKEW = 1.0  # seconds by which the clocks of processes may differ
_TOLD_AT_ONCE = 100  # keys
_MOST_WRITTEN = 10_000  # keys; for those of earlier writes stand all keys


class Waiter(Protocol):
    """What the readers wait for that join a flight: an event of threads or of tasks."""

    def set(self) -> None:
        """Let all of them go on."""


class Read(NamedTuple):
    entry: Entry
    status: Status


Loader = Callable[[Sequence[int], Mapping[str, Any]], "CacheProgram[Sequence[Entry | None]]"]
"""Reads the items at some places of a request, with options beside the request's own; None: the table left it
unprocessed."""


@dataclass(slots=True, eq=False)
class _ReadInFlight:
    waiter: Any
    after: int  # how many writes had ended
    seen: bytes | None  # in the store, before it began
    content: bytes | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OpenWrite:
    """A write under way: of which keys, and since when."""

    keys: frozenset[bytes]
    began: float


@dataclass(slots=True, eq=False)
class _Written:
    """The writes of a key: when the last began or ended, those under way, and whether the store must yet be told.

    ``number``: of the last that ended, among all of the table.
    """

    at: float
    number: int = 0
    under_way: list[OpenWrite] = field(default_factory=list)
    untold: bool = False


@dataclass
class WriteLog:
    """The writes of a table by the clients whose caches have one store in this process, by key.

    ``untold``: whether the store must yet be told of some. ``on_untold`` is called for each write that ends so.
    """

    lock: AbstractContextManager[Any]
    by_key: OrderedDict[bytes, _Written] = field(default_factory=OrderedDict)
    ended: int = 0
    untold: bool = False
    on_untold: Callable[[], None] = lambda: None


@dataclass
class TableCache:
    """The state of the cache of a table in one process, beside the store's.

    Args:
        options: How long copies are served.
        replaces: Whether a write replaces a copy, if it knows the item; else it drops it. The writes of several
            processes with one store, and those of one key in several tables, come in any order.
        draw: Draws the jitter.
        event: Makes what readers wait for.
        writes: Those of the table; caches with one store share them.
        all_keys: What all keys of the table begin with. A write of this key is one that may change any item.
    """

    options: CacheOptions
    replaces: bool
    draw: Callable[[], float]
    event: Callable[[], Waiter]
    writes: WriteLog
    all_keys: bytes
    _flights: dict[bytes, _ReadInFlight] = field(default_factory=dict)
    _hot: dict[bytes, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = self.options
        ttl = max(options.ttl, options.absent_ttl, options.query_ttl or 0.0)
        # Seconds after which no copy is served any more, whatever is written or throttled meanwhile.
        self._longest = max(ttl + max(options.stale_while_revalidate, options.stale_if_throttled), SETTLES)

    def forget_reads(self) -> None:
        """Do not keep, and do not join, what is being read."""
        self._flights.clear()
        self._hot.clear()

    # -- reads

    def read(
        self, keys: Sequence[bytes], load: Loader, partition_keys: Sequence[WireValue | None]
    ) -> CacheProgram[list[Read | None]]:
        """Return what the store or the table has for each key; None: the table left it unprocessed."""
        # Before the look: a write may end between the look and what is made of it here.
        blocked = {key: self._blocked_until(key) for key in keys} if self.writes.by_key else {}
        now, contents = yield Look(keys)
        yield from self._catch_up(answers=any(contents))
        reads: list[Read | None] = [None] * len(keys)
        missed: list[int] = []
        old: dict[int, Entry] = {}
        for place, (key, content) in enumerate(zip(keys, contents, strict=True)):
            entry = None if now < blocked.get(key, now) else decoded(content, key)
            # Not if a clock was set back, or another process keeps copies for longer than this one.
            if entry is not None and entry.until > now + self._ttl_of(entry) + _SKEW:
                entry = None
            if entry is not None and now < entry.until:
                reads[place] = Read(entry, "fresh")
            elif entry is not None and now < entry.until + self.options.stale_while_revalidate:
                reads[place] = Read(entry, "stale")
                if key not in self._flights and not self._is_hot(key, now):
                    self._cool([key], [0], now)
                    yield Later(self._refresh(key, place, content, load))
            else:
                if entry is not None and now < entry.until + self.options.stale_if_throttled:
                    old[place] = entry
                missed.append(place)
        if missed and not all(place in old and self._is_hot(keys[place], now) for place in missed):
            try:
                yield from self._fetch(keys, contents, missed, now, load, reads)
            except Exception as error:
                if not (was_throttled(error) and all(reads[place] or place in old for place in missed)):
                    raise
                self._cool(keys, missed, now)
        for place in missed:
            if reads[place] is None and place in old:
                reads[place] = Read(old[place], "stale")
        found = zip(partition_keys, reads, strict=True)
        yield Count([(key, one.status, one.entry.units) for key, one in found if one is not None])
        return reads

    def read_page(
        self, page: bytes, pages: bytes, load: Loader, partition_key: WireValue | None
    ) -> CacheProgram[Read | None]:
        """Return a page of a Query; ``pages`` is the key of the version that a write to one of its items ends."""
        blocked = self._blocked_until(pages)
        now, (version,) = yield Look([pages])
        if now < blocked or self._was_written(pages, version, now):
            # An index has no strongly consistent reads; so for a while after a write no page is kept.
            (entry,) = yield from load([0], {})
            yield Count([(partition_key, "miss", 0.0)])
            return None if entry is None else Read(entry, "miss")
        if version is None or not version.startswith(VERSION_OF_PAGES):
            version = VERSION_OF_PAGES + b"%x" % int(self.draw() * 2**53)
            yield Change(put=[(pages, version, _VERSION_SECONDS, None)], allowed=lambda key: self._is_calm(key, now))
        # The version is in the key. So a page that was read before a write is not found after it, and not joined.
        (read,) = yield from self.read([page + version], load, [partition_key])
        return read

    def _blocked_until(self, key: bytes) -> float:
        """Return the time until which readers of a key go past the store, and keep nothing.

        A write that has not ended by then was lost: its task was cancelled, or its thread interrupted.
        """
        until = 0.0
        for written in self._writes_of(key):
            if written.under_way or written.untold:
                since = [write.began for write in written.under_way] + [written.at] * written.untold
                until = max(until, max(since) + self._longest)
        return until

    def _may_keep(self, key: bytes, flight: _ReadInFlight, now: float) -> bool:
        # A write through another client, whose cache has the same store, does not forget this one's flights.
        overtaken = any(written.number > flight.after for written in self._writes_of(key))
        return not overtaken and self._flights.get(key) is flight and now >= self._blocked_until(key)

    def _is_calm(self, key: bytes, now: float) -> bool:
        """Return whether no write of a key is under way, or has ended since ``now`` or shortly before."""
        return now >= self._blocked_until(key) and not self._was_written(key, None, now)

    def _is_untold(self, key: bytes) -> bool:
        written = self.writes.by_key.get(key)
        return written is not None and written.untold and not written.under_way

    def _was_written(self, key: bytes, content: bytes | None, now: float) -> bool:
        known = self._writes_of(key)
        return any(now < written.at + SETTLES for written in known) or (content or b"").startswith(MARK)

    def _writes_of(self, key: bytes) -> Iterator[_Written]:
        return filter(None, map(self.writes.by_key.get, (key, self.all_keys)))

    def _is_hot(self, key: bytes, now: float) -> bool:
        return 0 < self._hot.get(key, 0.0) - now <= _HOT

    def _cool(self, keys: Sequence[bytes], places: Sequence[int], now: float) -> None:
        if len(self._hot) > _MOST_WRITTEN:
            self._hot.clear()
        self._hot.update((keys[place], now + _HOT) for place in places)

    def _refresh(self, key: bytes, place: int, content: bytes | None, load: Loader) -> CacheProgram[None]:
        # ``load`` knows the places of the request; the fetch knows only this one.
        def load_one(_: Sequence[int], options: Mapping[str, Any]) -> CacheProgram[Sequence[Entry | None]]:
            return load([place], options)

        now, _ = yield Look(())
        if key not in self._flights:
            try:
                yield from self._fetch([key], [content], [0], now, load_one, [None])
            except Exception as error:
                if was_throttled(error):
                    self._cool([key], [0], now)
                raise

    def _fetch(
        self,
        keys: Sequence[bytes],
        contents: Sequence[bytes | None],
        missed: Sequence[int],
        now: float,
        load: Loader,
        reads: list[Read | None],
    ) -> CacheProgram[None]:
        """Read what was missed from the table, each key once, however many readers miss it at the same time."""
        while missed:
            waiter = self.event()
            led: dict[int, _ReadInFlight] = {}
            joined: dict[int, _ReadInFlight] = {}
            for place in missed:
                mine = _ReadInFlight(waiter, self.writes.ended, contents[place])
                flight = self._flights.setdefault(keys[place], mine)
                if flight.seen != mine.seen and (mine.seen or b"").startswith(MARK):
                    # It may have begun before another process's write, whose mark this reader has seen.
                    flight = self._flights[keys[place]] = mine
                (led if flight is mine else joined)[place] = flight
            if led:
                try:
                    yield from self._lead(keys, contents, led, now, load)
                finally:
                    # Also if the reader was cancelled: those who joined then read for themselves.
                    for place, flight in led.items():
                        if self._flights.get(keys[place]) is flight:
                            self._flights.pop(keys[place], None)  # a write may have forgotten it in between
                    waiter.set()
            missed = []
            for place, flight in (led | joined).items():
                if place in joined:
                    yield Join(flight.waiter)
                if flight.error is not None:
                    raise flight.error
                # Decoded by each reader: no two callers get the same objects.
                entry = decoded(flight.content, keys[place])
                if entry is not None:
                    reads[place] = Read(entry, "fresh" if place in joined else "miss")
                elif place in joined:  # its reader was cancelled or failed, or the table left it unprocessed
                    missed.append(place)

    def _lead(
        self,
        keys: Sequence[bytes],
        contents: Sequence[bytes | None],
        led: Mapping[int, _ReadInFlight],
        now: float,
        load: Loader,
    ) -> CacheProgram[None]:
        untold = [keys[place] for place in led if self._is_untold(keys[place])]
        if untold:
            yield from self._tell(untold)
        consistent = bool(untold) or any(self._was_written(keys[place], contents[place], now) for place in led)
        now, _ = yield Look(())  # a copy is as old as the beginning of its read
        try:
            entries = yield from load(list(led), {"ConsistentRead": True} if consistent else {})
        except Exception as error:
            # Of a batch, another key may be to blame: those who joined read for themselves.
            if len(led) == 1:
                for flight in led.values():
                    flight.error = error
            raise
        put = []
        for (place, flight), entry in zip(led.items(), entries, strict=True):
            if entry is None:
                continue
            flight.content, seconds = self._dated(keys[place], entry, now)
            self._hot.pop(keys[place], None)
            if seconds:
                put.append((keys[place], flight.content, seconds, contents[place]))
        flights = {keys[place]: flight for place, flight in led.items()}
        if put:
            yield Change(put=put, allowed=lambda key: self._may_keep(key, flights[key], now))

    def _dated(self, key: bytes, entry: Entry, now: float) -> tuple[bytes, float]:
        """Return the content of a new entry, and for how many seconds a store should hold it; 0: not at all."""
        options = self.options
        ttl = self._ttl_of(entry) * (1 - options.jitter * self.draw())
        keep = ttl + max(options.stale_while_revalidate, options.stale_if_throttled) if ttl else 0.0
        return entry._replace(until=now + ttl).encoded(key), keep

    def _ttl_of(self, entry: Entry) -> float:
        options = self.options
        if entry.page is not None:
            return options.query_ttl or 0.0
        return options.ttl if entry.item else options.absent_ttl

    # -- writes

    def begin(self, keys: Collection[bytes], now: float) -> OpenWrite:
        """Note that a write begins."""
        write = OpenWrite(frozenset(keys), now)
        with self.writes.lock:
            for key in write.keys:
                self._note(key, write, now)
            self._forget(now)
        return write

    def withdraw(self, write: OpenWrite) -> None:
        """Note that a write which began was not sent."""
        with self.writes.lock:
            for key in write.keys:
                written = self.writes.by_key.get(key)
                if written is not None and write in written.under_way:
                    written.under_way.remove(write)

    def end(self, changes: Mapping[bytes, Entry | None], write: OpenWrite | None, now: float) -> CacheProgram[None]:
        """Note that a write ended, and tell the store: what the item is now, or None if that is not known.

        ``write`` is what :meth:`begin` returned; None: nobody saw the write begin.
        """
        replace: list[tuple[bytes, bytes, float]] = []
        drop: list[bytes] = []
        ended = write or OpenWrite(frozenset(changes), now)
        with self.writes.lock:
            self.writes.ended += 1
            for key, entry in changes.items():
                seen = self.writes.by_key.get(key)
                alone = seen is not None and seen.under_way == [write]
                if not alone and (seen is None or write not in seen.under_way):
                    self._note(key, ended, now)
                written = self.writes.by_key[key]
                written.at, written.number = now, self.writes.ended
                self._flights.pop(key, None)
                content, seconds = (b"", 0.0) if entry is None else self._dated(key, entry, now)
                # Of two writes at the same time, nobody here knows which the service made last. So the first to end
                # drops the copy, and nothing is stored before the last has ended.
                if seconds and self.replaces and alone:
                    replace.append((key, content, seconds))
                else:
                    drop.append(key)
        if self.all_keys in changes:
            self.forget_reads()
        told = False
        try:
            told = yield Change(clear=self.all_keys) if self.all_keys in changes else Change(replace=replace, drop=drop)
        finally:
            # Only now: a later write must not be alone while this one may still reach the store after it.
            with self.writes.lock:
                for key in changes:
                    known = self.writes.by_key.get(key)
                    if known is not None and ended in known.under_way:
                        known.under_way.remove(ended)
                        known.untold = not told
                if not told:
                    self.writes.untold = True
                    self.writes.on_untold()
        yield from self._catch_up(answers=told)

    def _catch_up(self, *, answers: bool) -> CacheProgram[None]:
        """Tell a store that answers (again) of all writes of which it must yet be told."""
        if answers and self.writes.untold:
            self.writes.untold = False
            yield Later(self._tell_all())

    def _tell_all(self) -> CacheProgram[None]:
        with self.writes.lock:
            untold = [key for key in self.writes.by_key if self._is_untold(key)]
        keys = [key for key in untold if key != self.all_keys]
        parts = [keys[at : at + _TOLD_AT_ONCE] for at in range(0, len(keys), _TOLD_AT_ONCE)]
        if len(keys) < len(untold):
            parts.insert(0, [self.all_keys])  # first: it drops the marks of the others too
        for part in parts:
            if not (yield from self._tell(part)):
                self.writes.untold = True
                return

    def _tell(self, keys: Sequence[bytes]) -> CacheProgram[bool]:
        by_key = self.writes.by_key
        with self.writes.lock:
            numbers = {key: written.number for key in keys if (written := by_key.get(key)) is not None}
        told: bool = yield Change(clear=self.all_keys) if self.all_keys in keys else Change(drop=keys)
        with self.writes.lock:
            for key, number in numbers.items():
                written = by_key.get(key)
                # Not of a later write.
                if told and written is not None and written.number == number:
                    written.untold = False
        return told

    def _note(self, key: bytes, write: OpenWrite, now: float) -> None:
        written = self.writes.by_key.setdefault(key, _Written(now))
        written.at = now
        lost = now - self._longest
        written.under_way = [known for known in written.under_way if known.began > lost] + [write]
        self.writes.by_key.move_to_end(key)

    def _forget(self, now: float) -> None:
        by_key = self.writes.by_key
        while by_key:
            key, written = next(iter(by_key.items()))
            early = now < written.at + (self._longest if written.under_way or written.untold else SETTLES)
            if early and len(by_key) <= _MOST_WRITTEN:
                return
            if early and key == self.all_keys:
                by_key.move_to_end(key)
                continue
            del by_key[key]
            if early:  # too many to know which: it may be any
                known = by_key.setdefault(self.all_keys, _Written(written.at))
                known.at = max(known.at, written.at)


def was_throttled(error: Exception) -> bool:
    """Return whether a read or a write was throttled: all of it, if it was several requests."""
    if isinstance(error, ShardQueryError):
        # A ShardkitError there is of keys that the service left unprocessed.
        return all(isinstance(one, ShardkitError) or is_throttle(one) for one in error.errors.values())
    return is_throttle(error)
