"""The journal of a load: which items are done. No item is lost through kill -9, lost power or lost credentials.

A text file. Each line is a checksum over all bodies up to and including its own, and a body in JSON::

    1c291ca3 {"shardkit_journal":1,"load":"4f0c…","table":"Orders",…}     the header: what must not change
    5be04f43 {"cursor":0,"ranges":[[0,50000],[50003,50010]]}              a cursor's places so far: ranges [start, end)
    99d03a1f [[0,50000],[0,50002]]                                        places since then, one line per call
    0b7ce21d {"failed":1,"places":[[0,50001]]}                            the same for items that failed

A killed process loses no line that it wrote: the operating system has them. Lost power may damage what was written in
the last second: the journal ends before the first line whose checksum does not match. So what is read back is always
what the journal held at some earlier time: items may be sent again, in order, and none is left out.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from zlib import crc32

import orjson

from shardkit.bulk.locked_file import LockedFile
from shardkit.bulk.sources.base import Place
from shardkit.errors import ConfigurationError, brief

_FORMAT = "shardkit_journal"
_VERSION = 1
_SYNC_SECONDS = 1.0
_APPENDED_BYTES = 4 * 1024 * 1024


class Journal:
    """The places of a load that are done, on disk.

    A file that exists is continued: ``done`` includes what earlier loads recorded. If the file cannot be written, it is
    closed, and holds what was recorded before.

    ``header`` is what must be the same when the load is resumed: table, key schema, strategy, source. A record more
    than a second after the last fsync causes another fsync. The file is rewritten as ranges after ``appended_bytes``
    were appended, or as many as the ranges take, if that is more.

    Attributes:
        failed: How many of the places that are done failed.
        ended: Whether the load has ended: its source has nothing left.

    Cost: 0.9 µs and 11 bytes per place; after every 4 MB the file is rewritten (20 ms), so it stays under 6 MB.
    Memory: the places that were read and are not done. Neither depends on the source's size.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Mapping[str, Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        appended_bytes: int = _APPENDED_BYTES,
    ) -> None:
        self._clock = clock
        self._least = appended_bytes
        self._synced = clock()
        self._header: dict[str, Any] = {}
        self._cursors: dict[int, _Cursor] = {}
        self._checksum = 0
        self._appended = 0
        self._most = appended_bytes
        self.failed = 0
        self.ended = False
        self._file = LockedFile(path, "journal")
        try:
            self._restore(orjson.loads(orjson.dumps(dict(header))))
            self._rewrite()
        except BaseException:
            self._file.close()
            raise

    @property
    def load(self) -> str:
        return str(self._header["load"])

    def done(self, place: Place) -> bool:
        cursor, number = place
        known = self._cursors.get(cursor)
        return known is not None and number < known.top and number not in known.gaps

    def record(self, places: Iterable[Place], *, failed: bool = False) -> None:
        """Record places that must not be sent again: all of them, or none.

        Of two writes of one key, record the later together with the earlier or after it. Otherwise a load resumed in
        between would write the earlier one over the later.

        Earlier places that are not recorded count as read and waiting.
        """
        pairs = list(map(tuple, places))  # orjson does not encode subclasses of tuple
        if not pairs:
            return
        record = {"failed": sum(not self.done(Place(*pair)) for pair in pairs), "places": pairs} if failed else pairs
        line = self._line(record)
        self._file.append(line)
        self._take(record)
        self._appended += len(line)
        if self._appended > self._most:
            self._rewrite()
        elif (now := self._clock()) - self._synced >= _SYNC_SECONDS:
            self._file.sync()
            self._synced = now

    def close(self, *, ended: bool = False) -> None:
        """Write everything to disk and close the file; ``ended``: every item of the source is recorded."""
        if self._file.closed:
            return
        try:
            self.ended = self.ended or ended
            self._rewrite()
        finally:
            self._file.close()

    def _restore(self, header: dict[str, Any]) -> None:
        content = self._file.read()
        if not content:
            self._header = {_FORMAT: _VERSION, "load": uuid.uuid4().hex, **header}
            return
        records = _records(content)
        kept = next(records, None)
        if not isinstance(kept, dict) or kept.get(_FORMAT) != _VERSION:
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is not a journal that this version of shardkit can read, and is "
                "left unchanged; give another path"
            )
        self._header = kept
        then = {name: value for name, value in kept.items() if name not in {_FORMAT, "load"}}
        if files := _changed_files(then, header):
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is of a load that began before {', '.join(files[:5])} changed; to "
                f"load the source as it is now, {_anew(header)}{_set_back(files, then, header)}"
            )
        if changed := list(_differences(then, header)):
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is of another load: {'; '.join(changed[:5])}; resume with the same "
                "arguments, or give another path to start anew"
            )
        for record in records:
            self._take(record)

    def _take(self, record: Any) -> None:
        if isinstance(record, list):
            self._add(record)
        elif "cursor" in record:
            self._cursors[record["cursor"]] = _Cursor.of(record["ranges"])
        elif "failed" in record:
            self.failed += record["failed"]
            self._add(record["places"])
        else:
            self.ended = True

    def _add(self, pairs: Iterable[Sequence[int]]) -> None:
        cursors = self._cursors
        for cursor, number in pairs:
            known = cursors.get(cursor)
            if known is None:
                known = cursors[cursor] = _Cursor()
            if number < known.top:
                known.gaps.discard(number)
            else:
                known.gaps.update(range(known.top, number))
                known.top = number + 1

    def _line(self, record: Any) -> bytes:
        body = orjson.dumps(record)
        self._checksum = crc32(body, self._checksum)
        return b"%08x %b\n" % (self._checksum, body)

    def _lines(self) -> Iterator[bytes]:
        self._checksum = 0
        yield self._line(self._header)
        for number, cursor in sorted(self._cursors.items()):
            yield self._line({"cursor": number, "ranges": cursor.ranges})
        if self.failed:
            yield self._line({"failed": self.failed, "places": []})
        if self.ended:
            yield self._line({"ended": True})

    def _rewrite(self) -> None:
        self._file.replace(self._lines())
        self._synced = self._clock()
        self._appended = 0
        self._most = max(self._least, self._file.size)


@dataclass(slots=True)
class _Cursor:
    """A cursor's places: all below ``top`` are done except ``gaps``, which were read and are waiting."""

    top: int = 0
    gaps: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, ranges: Sequence[Sequence[int]]) -> _Cursor:
        cursor = cls()
        for start, end in ranges:
            cursor.gaps.update(range(cursor.top, start))
            cursor.top = end
        return cursor

    @property
    def ranges(self) -> list[tuple[int, int]]:
        edges = [-1, *sorted(self.gaps), self.top]
        return [(gap + 1, end) for gap, end in pairwise(edges) if gap + 1 < end]


def _records(content: bytes) -> Iterator[Any]:
    """Read the records up to the first damaged one."""
    checksum = 0
    for line in content.splitlines(keepends=True):
        body = line[9:-1]
        checksum = crc32(body, checksum)
        if line != b"%08x %b\n" % (checksum, body):
            return
        yield orjson.loads(body)


def _changed_files(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the source's files that have changed; none if anything else of the load is different."""
    before, after = _files(then), _files(now)
    if not before or before.keys() != after.keys() or _without_files(then) != _without_files(now):
        return []
    return [name for name, file in before.items() if file != after[name]]


def _set_back(files: Sequence[str], then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return how to go on if only the times of the changed files differ: their middle was not compared."""
    before, after = _files(then), _files(now)
    if any({**after[name], "changed": before[name].get("changed")} != before[name] for name in files):
        return ""
    times = [f"os.utime({name!r}, ns=({before[name]['changed']},) * 2)" for name in files[:5]]
    return f"; only the time differs: to resume with a copy of the same content, {', '.join(times)}"


def _files(header: Mapping[str, Any]) -> dict[str, Any]:
    source = header.get("source")
    files = source.get("files") if isinstance(source, dict) else None
    named = isinstance(files, list) and all(isinstance(file, dict) and "name" in file for file in files)
    return {str(file["name"]): file for file in files} if files and named else {}


def _without_files(header: Mapping[str, Any]) -> dict[str, Any]:
    # A file of another size is divided into other sections.
    return {**header, "source": {**header["source"], "files": None, "sections": None}}


def _anew(header: Mapping[str, Any]) -> str:
    """Return how to load a corrected source, so that no item is stored twice."""
    strategy = header.get("strategy") or {}
    by = strategy.get("by", ())
    names = [by] if isinstance(by, str) else by if isinstance(by, list | tuple) else [None]
    if strategy.get("type") != "RandomSuffix" and set(names) <= set(header.get("keys") or ()):
        return "delete the journal and load all of it again (each item replaces itself)"
    return (
        "load only the corrected records, from a file of their own and with another journal (the shard is not "
        "calculated from the primary key, so items that are loaded again may be stored twice)"
    )


def _differences(then: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for member in sorted(then.keys() | now.keys()):
            yield from _differences(then.get(member), now.get(member), f"{name}.{member}" if name else member)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (was, is_now) in enumerate(zip(then, now, strict=True)):
            yield from _differences(was, is_now, f"{name}[{place}]")
    elif then != now:
        yield f"{name} was {brief(then)} and is {brief(now)}"
