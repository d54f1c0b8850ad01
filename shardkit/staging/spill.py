"""Spill the items of a section to disk, sorted by a hash of their stored primary key.

A spill is a file of runs. A run holds as many items as fit in memory, each primary key once, in three parts::

    lines      each item in DynamoDB JSON, in the order of the hashes
    entries    per line: its hash (16 bytes), its length and its write units
    slots      per 1/4096 of the hashes: the first entry, and where its line begins

So all items of a range of hashes are one piece of each part, of whatever run, and the later run has the later item.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from itertools import accumulate, islice, pairwise
from pathlib import Path
from struct import Struct
from typing import IO, Any, Self
from zlib import crc32

from shardkit.bulk.locked_file import sync_folder
from shardkit.bulk.sources.base import BadRecord, Record
from shardkit.bulk.writes import Writes
from shardkit.core.hashing import number_text
from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import StagingError

SLOTS = 4096
RUN_BYTES = 64 * 1024 * 1024
"""Bytes of lines in a run: with the objects that hold them, 200 MB of memory."""
MOST_FAILURES = 100

_ENTRY = Struct(">16sIH")
_STEP = 4096
_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Run:
    """Where the parts of a run begin in its file."""

    lines: int
    entries: int
    slots: int


@dataclass
class Spilled:
    """What was read of a section.

    Attributes:
        source_bytes: Its bytes in the source.
        kept: How many entries the runs have.
        size: The bytes of the file that holds the runs.
        crc32: Their checksum.
        failures: The first items that failed: place, error code and reason.
    """

    section: int
    source_bytes: int = 0
    items: int = 0
    failed: int = 0
    kept: int = 0
    raw_bytes: int = 0
    write_units: int = 0
    size: int = 0
    crc32: int = 0
    runs: list[Run] = field(default_factory=list)
    failures: list[tuple[str | int, str, str]] = field(default_factory=list)


Kept = dict[bytes, tuple[bytes, int]]
"""By the hash of its primary key: an item's line, and its write units."""


def spill(
    number: int,
    records: Iterable[tuple[Any, Record]],
    where: Callable[[Any], str | int],
    writes: Writes,
    path: Path | None,
    tell: Callable[[int], object],
    run_bytes: int,
) -> Spilled:
    """Encode and check the records of a section, and write them to a file; None: only count.

    The file is there when all of it is on the disk, and not before. ``tell`` gets the number of records, now and then.
    """
    spilled = Spilled(number)
    waiting = iter(records)
    with SpillFile(path) as file:
        kept: Kept = {}
        room = run_bytes
        while True:
            count, size = _keep(islice(waiting, _STEP), kept, spilled, where, writes, room)
            if not count:
                break
            room -= size
            if room <= 0:
                file.add(kept, spilled)
                kept, room = {}, run_bytes
            tell(count)
        if kept:
            file.add(kept, spilled)
    spilled.size, spilled.crc32 = file.size, file.crc32
    return spilled


def _keep(
    records: Iterable[tuple[Any, Record]],
    kept: Kept,
    spilled: Spilled,
    where: Callable[[Any], str | int],
    writes: Writes,
    room: int,
) -> tuple[int, int]:
    """Keep records until ``room`` bytes are filled; return how many were read, and the bytes of their lines."""
    count = size = 0
    for place, record in records:
        count += 1
        try:
            if isinstance(record, BadRecord):
                raise record.error  # noqa: TRY301 - reported in one place
            key, line, units = writes.line(record)
        except Exception as error:  # noqa: BLE001 - one bad item must not hide the others
            spilled.failed += 1
            if len(spilled.failures) < MOST_FAILURES:
                spilled.failures.append((where(place), code_of(error), str(error)))
            continue
        kept[digest(key)] = line, units
        size += len(line)
        if size >= room:
            break
    spilled.items += count
    return count, size


def digest(key: WireItem) -> bytes:
    """Return a hash of a stored primary key: equal for equal keys (1 and 1.0) alone."""
    parts = [value["S"] if "S" in value else _text(value) for value in key.values()]
    return sha256(f"{len(parts[0])}:{''.join(parts)}".encode()).digest()[:16]


def _text(value: WireValue) -> str:
    ((letter, content),) = value.items()
    return number_text(Decimal(content)) if letter == "N" else binary_bytes(content).decode("latin-1")


class SpillFile:
    """A file of runs; a context manager, at whose end it is on the disk."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.size = self.crc32 = 0

    def __enter__(self) -> Self:
        if self._path is not None:
            with writing(self._path):
                self._file = self._unfinished.open("wb", buffering=0)
        return self

    @property
    def _unfinished(self) -> Path:
        assert self._path is not None
        # A process that outlives its stage for a moment must not rename the file of the next one.
        return self._path.with_suffix(f".{os.getpid()}")

    def __exit__(self, kind: object, *_: object) -> None:
        if self._file is None or self._path is None:
            return
        with self._file, writing(self._path):
            if kind is None:
                os.fsync(self._file.fileno())
                self._unfinished.replace(self._path)
                sync_folder(self._path.parent)

    def add(self, kept: Kept, spilled: Spilled) -> None:
        order = sorted(kept)
        lines, units = zip(*map(kept.__getitem__, order), strict=True)
        lengths = list(map(len, lines))
        spilled.raw_bytes += sum(lengths)
        spilled.write_units += sum(units)
        spilled.kept += len(order)
        starts = [0, *accumulate(lengths)]
        firsts = [bisect_left(order, slot.to_bytes(2, "big")) for slot in range(0, 1 << 16, (1 << 16) // SLOTS)]
        slots = array("Q")
        for first in (*firsts, len(order)):
            slots.extend((first, starts[first]))
        run = Run(self.size, self.size + starts[-1], self.size + starts[-1] + len(order) * _ENTRY.size)
        for start in range(0, len(lines), _STEP):
            self._write(b"".join(lines[start : start + _STEP]))
        self._write(b"".join(map(_ENTRY.pack, order, lengths, units)))
        self._write(slots.tobytes())
        spilled.runs.append(run)

    def _write(self, content: bytes) -> None:
        self.size += len(content)
        if self._file is None or self._path is None:
            return
        self.crc32 = crc32(content, self.crc32)
        left = memoryview(content)
        with writing(self._path):
            while left:
                left = left[self._file.write(left) :]


def is_whole(path: Path, spilled: Spilled) -> bool:
    """Return whether a file holds what was spilled.

    Cost: reads all of it.
    """
    if not path.is_file() or path.stat().st_size != spilled.size:
        return False
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checksum = crc32(piece, checksum)
    return checksum == spilled.crc32


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise StagingError if a file of the work folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise StagingError(
            f"work_dir: {str(path)!r} cannot be written ({error}); make room on its disk, or give a folder on another "
            "one. The same call goes on where this one stopped"
        ) from error


def slot_bytes(path: Path, runs: Iterable[Run]) -> Iterator[list[int]]:
    """Yield, of each run, the bytes of lines in each slot."""
    with path.open("rb") as file:
        for run in runs:
            slots = array("Q", os.pread(file.fileno(), 16 * (SLOTS + 1), run.slots))
            yield [end - start for start, end in pairwise(slots[1::2])]


def read_slots(path: Path, runs: Iterable[Run], low: int, high: int, kept: Kept) -> int:
    """Add the items of some slots, where they replace those of earlier runs; return how many there were."""
    count = 0
    with path.open("rb") as file:
        number = file.fileno()
        for run in runs:
            (first, start), (last, end) = (
                array("Q", os.pread(number, 16, run.slots + 16 * slot)) for slot in (low, high)
            )
            if last == first:
                continue
            entries = os.pread(number, (last - first) * _ENTRY.size, run.entries + first * _ENTRY.size)
            lines = os.pread(number, end - start, run.lines + start)
            digests, lengths, units = zip(*_ENTRY.iter_unpack(entries), strict=True)
            edges = pairwise([0, *accumulate(lengths)])
            kept.update(zip(digests, zip([lines[a:b] for a, b in edges], units, strict=True), strict=True))
            count += last - first
    return count
