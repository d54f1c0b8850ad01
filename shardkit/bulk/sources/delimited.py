"""CSV and TSV, with quotes and quoted newlines (RFC 4180), read by the standard library's csv."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

from shardkit.bulk.sources.base import BadRecord, Record
from shardkit.bulk.sources.cells import Cells, item_of
from shardkit.bulk.sources.lines import Skip
from shardkit.errors import ConfigurationError, InvalidValueError

_CELL_BYTES = 1024 * 1024  # the csv module's limit is 128 KB, an item's is 400 KB

Row = list[str] | InvalidValueError


class Delimited:
    def __init__(self, header: list[str], cells: Cells, delimiter: str) -> None:
        self._columns = cells.converters(header)
        self._delimiter = delimiter

    def records(self, lines: Iterator[bytes], skip: Skip | None = None) -> Iterator[tuple[int, int, Record]]:
        """Read rows; one that cannot be read is a bad record, and reading continues with the next line."""
        for number, (at, raw, row) in enumerate(rows(lines, self._delimiter)):
            if skip is not None and skip(number):
                continue
            try:
                if isinstance(row, Exception):
                    raise row
                record: Record = item_of(self._columns, row)
            except InvalidValueError as error:
                record = BadRecord(raw(), error)
            yield number, at, record


def rows(lines: Iterator[bytes], delimiter: str) -> Iterator[tuple[int, Callable[[], str], Row]]:
    """Yield the number of lines before each row, a function that returns its text, and the row or its error."""
    if csv.field_size_limit() < _CELL_BYTES:
        csv.field_size_limit(_CELL_BYTES)
    taken: list[bytes] = []  # the lines of the current row

    def decoded(line: bytes) -> str:
        taken.append(line)
        return line.decode()

    def text() -> str:
        return b"".join(taken).decode(errors="replace").rstrip("\r\n")

    # strict: bad quotes are an error, instead of other data.
    reader = csv.reader(map(decoded, lines), delimiter=delimiter, strict=True)
    at = 0
    while True:
        at += len(taken)
        taken.clear()
        row: Row
        try:
            row = next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeDecodeError) as error:
            row = InvalidValueError(f"the row cannot be read ({error}); fix its quotes, or write it in UTF-8")
        if row != []:
            yield at, text, row


def read_row(lines: Iterator[bytes], delimiter: str, where: str) -> list[str]:
    """Read a header; an empty file (jobs write them for parts without rows) has no columns."""
    header: Row
    _, _, header = next(rows(lines, delimiter), (0, str, []))
    if isinstance(header, Exception):
        raise ConfigurationError(f"the header of {where} cannot be read: {header}")
    return header
