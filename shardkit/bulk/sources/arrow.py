"""Rows of Parquet files and frames (Arrow, pandas, polars) as items, with pyarrow.

Values are converted to those of DynamoDB:

- Integers, decimals and floats become numbers (a float with the fewest digits that restore it).
- Text, binary and booleans stay.
- Dates, times and timestamps become ISO 8601 text, which sorts as they do (with a time zone: in UTC, ending in Z).
- Lists, structs and maps become lists and maps. Names and keys that are there twice are refused.
- Null is omitted; in a list it stays.
- NaN and infinities are refused: DynamoDB has no such numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any

from shardkit.bulk.sources.base import BadRecord, Done, Place, Record
from shardkit.bulk.sources.files import File
from shardkit.bulk.sources.lines import Skip
from shardkit.errors import ConfigurationError, InvalidValueError, brief

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        'source: Parquet and frames need the package pyarrow, which is not installed; pip install "shardkit[load]"'
    ) from missing

_ROWS = 256  # per batch, which a cursor holds as values
_PAGE_BYTES = 1024 * 1024
_FOOTER_BYTES = 8  # its length, and the magic bytes at the end
_APART = 500
_SAMPLED_GROUPS = 16
_UNNAMED_INDEX = re.compile(r"__index_level_[0-9]+__").fullmatch


class Frame:
    """Rows in memory: anything with the Arrow PyCapsule interface (``__arrow_c_stream__``)."""

    name = "frame"
    size = 0
    cursor_bytes = 0

    def __init__(self, frame: Any) -> None:
        self._table = pa.table(frame)
        self.schema = self._table.schema
        self.rows = self._table.num_rows
        # Slicing a table costs nothing: as many groups as cursors may need.
        step = max(1, -(-self.rows // 256))
        self.groups = [min(step, self.rows - start) for start in range(0, self.rows, step)]

    def batches(self, start: int, end: int, columns: list[str] | None = None) -> Iterator[Any]:
        table = self._table.slice(start, end - start)
        yield from (table if columns is None else table.select(columns)).to_batches(max_chunksize=_ROWS)

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "rows": self.rows, "columns": str(self.schema)}


class ParquetFile:
    """A Parquet file; cursors are spread over its row groups."""

    def __init__(self, file: File) -> None:
        if file.size is None:
            raise ConfigurationError(
                "source: standard input and pipes cannot be Parquet, which is read from its end; give a file"
            )
        self.file = file
        self.name = file.name
        self.size = file.size

    @cached_property
    def metadata(self) -> Any:
        with self._opened() as stream:
            metadata = pq.read_metadata(stream)
            # The footer is located from the end of the file, the pages from its start. If bytes are missing in between,
            # the pages reach into the footer, and uncompressed ones would be read shifted.
            if metadata.num_row_groups:
                group = metadata.row_group(metadata.num_row_groups - 1)
                end = max(map(_chunk_end, map(group.column, range(group.num_columns))), default=0)
                if end + metadata.serialized_size + _FOOTER_BYTES > self.size:
                    raise OSError("bytes are missing between its start and its footer")
            return metadata

    @cached_property
    def cursor_bytes(self) -> int:
        """About what a cursor holds in memory: one page per column, compressed and decompressed."""
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        pages = _PAGE_BYTES * self.metadata.num_columns
        return 2 * max((min(group.total_byte_size, pages) for group in groups), default=0)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with self.file.open() as stream:
            try:
                yield stream
            except (pa.ArrowInvalid, OSError) as error:
                raise ConfigurationError(f"{self.name} cannot be read as Parquet: {error}") from error

    @property
    def schema(self) -> Any:
        return self.metadata.schema.to_arrow_schema()

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)

    @cached_property
    def groups(self) -> list[int]:
        return [self.metadata.row_group(number).num_rows for number in range(self.metadata.num_row_groups)]

    def batches(self, start: int, end: int, columns: list[str] | None = None) -> Iterator[Any]:
        """Read the rows between two indexes, in record batches; only from the row groups that have them."""
        first = 0
        wanted: list[int] = []
        for number, (group_start, group_end) in enumerate(pairwise([0, *accumulate(self.groups)])):
            if group_start < end and group_end > start:
                first = first if wanted else group_start
                wanted.append(number)
        with self._opened() as stream:
            # A buffer instead of whole column chunks, because many row groups are read at once.
            reader = pq.ParquetFile(stream, metadata=self.metadata, buffer_size=64 * 1024, pre_buffer=False)
            for batch in reader.iter_batches(_ROWS, row_groups=wanted, columns=columns, use_threads=False):
                low, high = max(start - first, 0), min(end - first, batch.num_rows)
                if low < high:
                    yield batch.slice(low, high - low)
                first += batch.num_rows

    def identity(self) -> dict[str, Any]:
        return self.file.identity()


class Batches:
    """Record batches that another engine reads, as a source that is read once; ``part`` is its only cursor."""

    total = bytes_total = None
    bytes_read = 0

    def __init__(self, batches: Iterable[Any], part: int) -> None:
        self._batches = batches
        self._part = part

    def identity(self) -> dict[str, Any]:
        return {"source": "batches", "part": self._part}

    def read(self, done: Done | None = None) -> Iterator[tuple[Place, Record]]:
        number = 0
        for batch in self._batches:
            for start in range(0, batch.num_rows, _ROWS):
                for record in _records(batch.slice(start, _ROWS)):
                    place = Place(self._part, number)
                    if done is None or not done(place):
                        yield place, record
                    number += 1

    def where(self, place: Place) -> str:
        return f"part {place.cursor}, row {place.number + 1}"


def _chunk_end(column: Any) -> int:
    """Return the first byte after a column chunk."""
    return int((column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size)


@dataclass(eq=False)
class RowSection:
    rows: Frame | ParquetFile
    start: int
    end: int
    read: int = 0

    @property
    def bytes_read(self) -> int:
        """Its share of the file's bytes, by the rows read."""
        return self.rows.size * self.read // max(1, self.rows.rows)

    def records(self, skip: Skip | None = None) -> Iterator[tuple[int, Record]]:
        """Read its rows; batches that are skipped completely are not converted."""
        self.read = 0
        unnamed = _unnamed_indexes(self.rows.schema)
        for batch in self.rows.batches(self.start, self.end):
            numbers = range(self.read, self.read + batch.num_rows)
            wanted = [number for number in numbers if skip is None or not skip(number)]
            if wanted:
                records = list(_records(batch.drop_columns(unnamed) if unnamed else batch))
                for number in wanted:
                    yield number, records[number - numbers.start]
            self.read = numbers.stop

    def where(self, number: int) -> str:
        return f"{self.rows.name}, row {self.start + number + 1}"


def divided(sources: Sequence[Frame | ParquetFile], cursors: int, keys: Sequence[str]) -> list[RowSection]:
    """Divide into sections of whole row groups, at most one per cursor.

    Consecutive rows of one primary key stay in one section.
    """
    total = sum(source.rows for source in sources) or 1
    sections = []
    for source in sources:
        parts = max(1, cursors * source.rows // total) if cursors > 1 else 1
        edges = list(accumulate(source.groups))
        targets = (source.rows * part // parts for part in range(1, parts))
        cuts = {min(edges, key=lambda edge, target=target: abs(edge - target)) for target in targets}  # type: ignore[misc]
        starts = sorted({0, *(_key_changes(source, cut, keys) for cut in cuts)} - {source.rows}) if source.rows else []
        sections += [RowSection(source, start, end) for start, end in pairwise([*starts, source.rows])]
    return sections


def _key_changes(source: Frame | ParquetFile, row: int, keys: Sequence[str]) -> int:
    """Return the first row from ``row`` on with another primary key than the row before it."""
    last: Any = None
    at = max(0, row - 1)
    for batch in source.batches(at, source.rows, list(keys)):
        for key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if at >= row and key != last:
                return at
            last, at = key, at + 1
    return source.rows


def keys_apart(sources: Sequence[Frame | ParquetFile], name: str) -> list[tuple[Any, Any]]:
    """Return the partition keys of pairs of rows some hundred apart, at several positions."""
    groups = [(one, start, end) for one in sources for start, end in pairwise([0, *accumulate(one.groups)])]
    pairs = []
    for source, start, _ in groups[:: -(-len(groups) // _SAMPLED_GROUPS)]:
        end = min(start + _APART, source.rows)
        column = [key for batch in source.batches(start, end, [name]) for key in batch.column(0).to_pylist()]
        if len(column) > _APART // 2:
            pairs.append((column[0], column[-1]))
    return pairs


def check_names(schema: Any, where: str) -> None:
    """Refuse columns, or fields of a struct, of one name: all but one of them would be lost."""
    if name := next(_twice(pa.struct(list(schema)), ""), None):
        raise ConfigurationError(
            f"columns: {where} has {name!r} twice, as a column or as a field of a struct; name each once"
        )


def _twice(kind: Any, path: str) -> Iterator[str]:
    types = pa.types
    if types.is_struct(kind):
        names = [field.name for field in kind]
        yield from (path + name for place, name in enumerate(names) if name in names[:place])
        for field in kind:
            yield from _twice(field.type, f"{path}{field.name}.")
    elif types.is_map(kind):
        yield from _twice(kind.item_type, path)
    elif types.is_dictionary(kind) or any(test(kind) for test in _LISTS):
        yield from _twice(kind.value_type, path)


def _unnamed_indexes(schema: Any) -> list[str]:
    """Return the columns that pandas adds for unnamed row labels: they are not data."""
    labels = (schema.pandas_metadata or {}).get("index_columns", ())
    return [name for name in schema.names if name in labels and _UNNAMED_INDEX(name)]


def _records(batch: Any) -> Iterator[Record]:
    names = batch.schema.names
    columns = [_values(column) for column in batch.columns]
    items = (dict(zip(names, row, strict=False)) for row in zip(*columns, strict=True))
    # Look through single items only if a column has nulls, or values to refuse: few have.
    types = set[type]().union(*(map(type, column) for column in columns))
    if types.isdisjoint({type(None), _Refused}):
        yield from items
        return
    for item in items:
        kept = {name: value for name, value in item.items() if value is not None}
        wrong = next((name for name, value in kept.items() if isinstance(value, _Refused)), None)
        yield kept if wrong is None else BadRecord(str(kept), kept[wrong].error(wrong))


@dataclass(frozen=True)
class _Refused:
    """Stands for a value that DynamoDB cannot hold."""

    value: Any
    wrong: str = "which DynamoDB cannot hold; write null, or cast the column"

    def error(self, name: str) -> Exception:
        return InvalidValueError(f"column {name!r} holds {brief(self.value)}, {self.wrong}")

    def __repr__(self) -> str:
        return repr(self.value)


def _values(column: Any) -> list[Any]:
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if types.is_floating(kind):
        # As text: the fewest digits that restore the number, also for 32 bits.
        return [None if text is None else _decimal(text) for text in pc.cast(column, pa.string()).to_pylist()]
    if types.is_timestamp(kind):
        column = pc.cast(column, pa.timestamp(kind.unit, "UTC" if kind.tz else None))
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return [_time(text) for text in pc.cast(column, pa.string()).to_pylist()]
    if any(test(kind) for test in _LISTS):
        members = iter(_values(column.flatten()))
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else _whole(list(islice(members, length))) for length in lengths]
    if types.is_map(kind):
        offsets = column.offsets.to_pylist()
        first, last = offsets[0], offsets[-1]  # keys and items are those of the batch that this is a slice of
        pairs = list(zip(_values(column.keys[first:last]), _values(column.items[first:last]), strict=True))
        maps = [pairs[start - first : end - first] for start, end in pairwise(offsets)]
        valid = column.is_valid().to_pylist()
        return [_mapped(entries) if known else None for entries, known in zip(maps, valid, strict=True)]
    if types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*map(_values, column.flatten()), strict=True) if names else [()] * len(column)
        valid = column.is_valid().to_pylist()
        return [
            _entries(dict(zip(names, row, strict=True))) if known else None
            for row, known in zip(rows, valid, strict=True)
        ]
    values: list[Any] = column.to_pylist()
    if any(test(kind) for test in _AS_THEY_ARE):
        return values
    return [value if isinstance(value, str | bytes | int | Decimal | None) else _Refused(value) for value in values]


_AS_THEY_ARE: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_LISTS: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def _time(text: str | None) -> Any:
    if text is not None and text.startswith("<"):
        return _Refused(text)  # Arrow's text for a time out of range
    return None if text is None else text.replace(" ", "T", 1)


def _mapped(pairs: list[tuple[Any, Any]]) -> Any:
    if not all(isinstance(key, str) for key, _ in pairs):
        return _Refused(pairs)
    entries = dict(pairs)
    if len(entries) < len(pairs):
        return _Refused(pairs, "a map that has a key twice; write each key once")
    return _entries(entries)


def _entries(entries: dict[str, Any]) -> Any:
    """Return a struct or a map without its nulls."""
    return _whole({name: member for name, member in entries.items() if member is not None})


def _whole(members: Any) -> Any:
    """Return a list or a map; or its first value that DynamoDB cannot hold."""
    values = members.values() if isinstance(members, dict) else members
    return next((member for member in values if isinstance(member, _Refused)), members)


def _decimal(text: str) -> Any:
    number = Decimal(text)
    return number if number.is_finite() else _Refused(number)
