"""Divide files of lines into sections, between primary keys and outside quotes; and sample them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import IO, Any

from shardkit.bulk.sources.base import BadRecord, Record
from shardkit.bulk.sources.files import File, compression, damaged, decompressed
from shardkit.bulk.sources.lines import Format, Skip
from shardkit.errors import ConfigurationError

_LINE_BYTES = 8 * 1024 * 1024  # an item of 400 KB with every character escaped has 2.4 MB
_NEWLINE = ord("\n")
_COUNT_BYTES = 1024 * 1024
_SHIFTS = 100_000  # more than a window holds, so that lines of settled items are still known
_APART = 500
_SPOTS = 32

Begin = Callable[[Iterator[bytes], str], Format]
"""Reads a header from the lines of a file with this name; returns the format of the other lines."""


@dataclass(frozen=True)
class Layout:
    """How the files of a source are read; ``quotes``: quoted cells can contain newlines."""

    begin: Begin
    quotes: bool = False


class _Lines:
    """The lines of a stream between two offsets; ``at`` is the next line's offset, ``taken`` how many were read."""

    def __init__(self, stream: IO[bytes], name: str, at: int = 0, end: int | None = None) -> None:
        self._stream = stream
        self._name = name
        self._end = end
        self.at = at
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._end is not None and self.at >= self._end:
            raise StopIteration
        line = self._stream.readline(_LINE_BYTES)
        if not line or line[-1] != _NEWLINE:
            self._check_unended(line)
            if not line:
                raise StopIteration
        first = not self.at
        self.at += len(line)
        self.taken += 1
        return line.removeprefix(b"\xef\xbb\xbf") if first else line

    def _check_unended(self, line: bytes) -> None:
        if len(line) == _LINE_BYTES:
            raise ConfigurationError(
                f"{self._name} has a line of more than {_LINE_BYTES:,} bytes after byte {self.at:,}, and an item has "
                "at most 400 KB; write one record per line"
            )
        end = self.at + len(line)
        if self._end is not None and end < self._end:
            raise ConfigurationError(
                f"{self._name} ends after byte {end:,} and had {self._end:,} bytes when it was opened: it was "
                "truncated, or its transfer failed; load the whole file"
            )


class TextFile:
    def __init__(self, file: File, layout: Layout) -> None:
        self.file = file
        self.layout = layout

    @cached_property
    def compression(self) -> str | None:
        return compression(self.file)

    @property
    def divisible(self) -> bool:
        return self.file.size is not None and self.compression is None

    def sections(self, count: int, keys: Sequence[str]) -> list[TextSection]:
        """Divide it into at most ``count`` sections; consecutive records of one primary key stay in one section."""
        if count < 2 or not self.divisible:  # noqa: PLR2004
            # Up to its present end: what is appended meanwhile (dead letters) is not read.
            return [TextSection(self, end=self.file.size if self.divisible else None)]
        starts = list(self._cuts(count, keys))
        ends = [start for start, _ in starts[1:]] + [self.file.size]
        return [
            TextSection(self, start if number else 0, end, line)
            for number, ((start, line), end) in enumerate(zip(starts, ends, strict=True))
        ]

    @cached_property
    def begun(self) -> tuple[Format, int, int]:
        """Its format, and the byte offset and number of lines before its first record."""
        with self.file.look() as raw, self.unpacked(raw) as stream:
            lines = _Lines(stream, self.file.name)
            format_ = self.layout.begin(lines, self.file.name)
            return format_, lines.at, lines.taken

    @contextmanager
    def unpacked(self, raw: IO[bytes]) -> Iterator[IO[bytes]]:
        """Decompress a stream of its bytes; if that is cut off or damaged, raise an error with the file's name."""
        try:
            yield decompressed(raw, self.compression)
        except damaged(self.compression) as error:
            raise ConfigurationError(
                f"{self.file.name} cannot be read on ({error}): it is cut off or damaged; fix the file"
            ) from error

    def _cuts(self, count: int, keys: Sequence[str]) -> Iterator[tuple[int, int | None]]:
        format_, begin, before = self.begun
        size = self.file.size or 0
        yield begin, before
        cut, at, line, inside = begin, begin, before, 0
        for target in (begin + (size - begin) * part // count for part in range(1, count)):
            if target <= cut:
                continue
            with self.file.look(target - 1) as stream:
                start = target - 1 + len(stream.readline())
            if self.layout.quotes:
                quotes, newlines = self._count(at, start)
                inside, line, at = (inside + quotes) % 2, line + newlines, start
            with self.file.look(start) as stream:
                lines = _Lines(stream, self.file.name, start)
                while inside:  # at the end of the file, an open quote counts as closed
                    inside = (inside + next(lines, b'"').count(b'"')) % 2
                found = _key_changes(lines, format_, keys)
            if found is None:
                return
            cut, taken = found
            yield cut, line + taken if self.layout.quotes else None
            # Between that line and the cut are whole records: no quote is open.
            at, line = cut, line + taken

    def _count(self, start: int, end: int) -> tuple[int, int]:
        quotes = newlines = 0
        with self.file.open(start) as stream:
            while start < end and (block := stream.read(min(_COUNT_BYTES, end - start))):
                quotes += block.count(b'"')
                newlines += block.count(b"\n")
                start += len(block)
        return quotes, newlines

    def spot(self, offset: int, count: int) -> list[Record]:
        """Read some records from an offset on, without those that are cut off at either end."""
        format_, begin, _ = self.begun
        between = self.divisible and offset > begin
        start = offset - 1 if between else begin if self.divisible else 0
        records: list[Record] = []
        with self.file.look(start) as raw, self.unpacked(raw) as stream:
            if between:
                start += len(stream.readline())
            lines = _Lines(stream, self.file.name, start)
            if not self.divisible:
                self.layout.begin(lines, self.file.name)
            # Of a pipe only the first bytes are known: a compressed stream is cut off there.
            with suppress(EOFError):
                for _, _, record in format_.records(lines):
                    records.append(record)
                    if len(records) == count:
                        break
        return records


def _key_changes(lines: _Lines, format_: Format, keys: Sequence[str]) -> tuple[int, int] | None:
    """Return the byte offset and the lines before the first record with another primary key than its predecessor."""
    last: list[Any] | None = None
    end = lines.at, lines.taken
    for _, _, record in format_.records(lines):
        if not isinstance(record, BadRecord):
            key = [record.get(name) for name in keys]
            if last is not None and key != last:
                return end
            last = key
        end = lines.at, lines.taken
    return None


class TextSection:
    def __init__(self, text: TextFile, start: int = 0, end: int | None = None, line: int | None = 0) -> None:
        self._text = text
        self.start = start
        self._end = end
        self._line = line
        self._open: IO[bytes] | None = None
        self._read = 0
        self._shifts: deque[tuple[int, int]] = deque(maxlen=_SHIFTS)

    @property
    def bytes_read(self) -> int:
        """The number of its bytes read so far; of a compressed file, compressed bytes."""
        return self._read if self._open is None else self._open.tell() - self.start

    def records(self, skip: Skip | None = None) -> Iterator[tuple[int, Record]]:
        file = self._text.file
        with file.open(self.start) as raw, self._text.unpacked(raw) as stream:
            self._open = raw
            lines = _Lines(stream, file.name, self.start, self._end)
            format_ = self._text.begun[0] if self.start else self._text.layout.begin(lines, file.name)
            if not self.start:
                self._line = lines.taken
            shift = 0
            try:
                for number, at, record in format_.records(lines, skip):
                    if at - number != shift:
                        shift = at - number
                        self._shifts.append((number, shift))
                    yield number, record
            finally:
                self._read, self._open = raw.tell() - self.start, None

    def where(self, number: int) -> str:
        name = self._text.file.name
        if len(self._shifts) == _SHIFTS and number < self._shifts[0][0]:
            return f"{name}, record {number + 1} after byte {self.start:,}"
        place = bisect_right(self._shifts, (number, inf))
        line = number + 1 + (self._shifts[place - 1][1] if place else 0)
        if self._line is None:
            return f"{name}, line {line} after byte {self.start:,}"
        return f"{name}, line {self._line + line}"


def sample(files: Sequence[TextFile]) -> list[list[Record]]:
    """Read at most 500 consecutive records at each of 32 positions, spread evenly over the files.

    Cost: one open and some hundred KB per position.
    """
    sizes = [text.file.size or 0 for text in files]
    total = sum(sizes)
    spots: dict[tuple[int, int], None] = {}
    for number in range(_SPOTS):
        at, which = total * number // _SPOTS, 0
        while which < len(files) - 1 and at >= sizes[which]:
            at, which = at - sizes[which], which + 1
        spots[which, at if files[which].divisible else 0] = None
    return [files[which].spot(at, _APART) for which, at in spots]


def keys_apart(spots: Sequence[Sequence[Record]], name: str) -> list[tuple[Any, Any]]:
    """Return the partition keys of the first and the last record of each list in a sample, if it is long enough."""
    return [
        (spot[0].get(name), spot[-1].get(name))
        for spot in ([one for one in records if isinstance(one, Mapping)] for records in spots)
        if len(spot) > _APART // 2
    ]
