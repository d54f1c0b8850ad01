"""open_source: files, folders, patterns, objects in S3, standard input and frames as sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal, get_args

from shardkit.bulk.sources.base import Item, IterableSource, Source
from shardkit.bulk.sources.cells import Cells, check_types, infer_types, parse_types
from shardkit.bulk.sources.delimited import Delimited, read_row
from shardkit.bulk.sources.files import File, StandardInput, find_files
from shardkit.bulk.sources.lines import DynamoDBJson, Format, JsonLines, is_dynamodb_json
from shardkit.bulk.sources.sections import CURSORS, SectionedSource, is_clustered
from shardkit.bulk.sources.text import Layout, TextFile, keys_apart, sample
from shardkit.core.checks import MOST_CURSORS, check_count, did_you_mean
from shardkit.errors import ConfigurationError
from shardkit.runtime.runner import runner_of

__all__ = ["FormatName", "as_source", "open_source"]

FormatName = Literal["csv", "tsv", "jsonl", "dynamodb", "parquet"]
Cursors = int | Literal["auto"]
Keys = Mapping[str, str | None]

_SUFFIXES: dict[str, FormatName] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_COMPRESSED = {".gz", ".gzip", ".zst", ".zstd"}
_SMALL = 16 * 1024 * 1024  # bytes: what a window of 50,000 items of 350 bytes holds as a whole

_HELD = 96 * 1024 * 1024  # bytes that the cursors of Parquet may hold together


def open_source(
    where: Any,
    *,
    table: Any = None,
    format: FormatName | None = None,  # noqa: A002 - what it is called everywhere
    types: Mapping[str, str] | str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    absent: Sequence[str] = (),
    empty_strings: bool = False,
    cursors: Cursors = "auto",
    s3: Any = None,
) -> SectionedSource:
    """Open files or a frame as a source for ``bulk_load``: items with their places, mixed over many cursors.

    Example::

        source = open_source("orders.csv", table=orders, types="Total:N,Gift:BOOL")
        bulk_load(orders, source, journal="orders.journal")

    Args:
        where: A path, a folder, a pattern, ``s3://bucket/key-or-prefix``, ``"-"`` (standard input); or a frame: an
            Arrow table, or anything with ``__arrow_c_stream__`` (pandas, polars).
        table: The ``ShardedTable`` or boto3 ``Table`` that the items are for: its key schema says which attributes
            cursors must keep together, and the types of key columns. Without it there is one cursor.
        format: What the files hold; by their names and first records if not given.
        types: A type (S, N, B, BOOL) a column of CSV or TSV, as a mapping or as text; the others are inferred.
        columns: The columns' names, of CSV or TSV files without a header.
        delimiter: What stands between two cells; ``","`` for CSV and a tab for TSV if not given.
        absent: Cells that mean, as empty ones do, that there is no value: ``["NA", "NULL"]``.
        empty_strings: Keep empty cells of text columns as empty strings.
        cursors: At how many places it is read in turn, at most 1,000: each is an open file. ``"auto"``: 64 where there
            are 16 MB or more (of Parquet and frames: or more than 50,000 rows) and a sample shows that records of one
            partition key stand together, else 1. More than one gives up the order of records of one primary key that do
            not follow each other: then it is not said which of them is written last.
        s3: A boto3 S3 client; made from the environment where it is needed and not given.

    Returns:
        A source. Its ``identity`` says which files these are (name, size, time, and a hash of the first and last 64 KB;
            in S3 the ETag) and how they are read.

    Raises:
        ConfigurationError: There is no such file, or it is not of its format, or an option cannot work.

    Cost: the first records of a file, with ``"auto"`` at 32 places; with several cursors a CSV file is read once before
        (to cut it where no quote is open). Memory: 64 KB a cursor, 1 MB of S3; of Parquet a page a column, for which
        ``"auto"`` takes as many cursors as hold 100 MB together.
    Source: "Distribute Write Activity During Data Upload", Developer Guide; RFC 4180; "DynamoDB table export output
        format", Developer Guide.
    """
    for option, texts in (("columns", columns or ()), ("absent", absent)):
        listed = isinstance(texts, Collection) and not isinstance(texts, str | bytes)
        if not listed or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(f"{option}={texts!r:.200} is no list of texts; give {option}=['…', '…']")
    if cursors != "auto":
        check_count("cursors", cursors, "cursors", most=MOST_CURSORS, why="each is an open file; or give 'auto'")
    if format not in {None, *get_args(FormatName)}:
        raise ConfigurationError(f"format={format!r} is unknown; give one of {', '.join(get_args(FormatName))}")
    keys = _keys_of(table)
    if cursors != "auto" and cursors > 1 and not keys:
        raise ConfigurationError(f"cursors={cursors} needs table=: what has one primary key must stay in order")
    if hasattr(where, "__arrow_c_stream__"):
        from shardkit.bulk.sources.arrow import Frame  # noqa: PLC0415 - of the load extra

        _refuse_options(types, columns, delimiter, "a frame")
        return _rows([Frame(where)], "frame", keys, cursors)
    if not isinstance(where, str | PurePath):
        raise ConfigurationError(f"a {type(where).__name__} is no source that can be opened; give a path or a frame")
    files = find_files(str(where), s3)
    name = format or _format_of(files)
    if name == "parquet":
        from shardkit.bulk.sources.arrow import ParquetFile  # noqa: PLC0415 - of the load extra

        _refuse_options(types, columns, delimiter, name)
        return _rows([ParquetFile(file) for file in files], "parquet", keys, cursors)
    opening = _Text(files, name, guessed=format is None, keys=keys)
    if name in {"csv", "tsv"}:
        given = parse_types(types) if isinstance(types, str) else check_types(types or {}, types)
        opening.delimited(given, columns, delimiter, frozenset({"", *absent}), empty_strings)
    else:
        _refuse_options(types, columns, delimiter, name)
    return opening.source(cursors)


def _refuse_options(types: object, columns: object, delimiter: object, name: str) -> None:
    if types or columns or delimiter:
        raise ConfigurationError(f"types, columns and delimiter are for CSV and TSV; {name} has them of itself")


def _keys_of(table: Any) -> dict[str, str | None]:
    """Give a table's key attributes, the partition key first, with their types as far as they are known."""
    if table is None:
        return {}
    runner = runner_of(table)
    sharding = runner.run(runner.programs.known())
    return {name: sharding.types.get(name) for name in sharding.keys.names}


def _format_of(files: Sequence[File]) -> FormatName:
    if isinstance(files[0], StandardInput):
        raise ConfigurationError(f"say what standard input holds: format is one of {', '.join(get_args(FormatName))}")
    endings = [
        [end.lower() for end in PurePath(file.name).suffixes if end.lower() not in _COMPRESSED] for file in files
    ]
    suffixes = {ends[-1] if ends else "" for ends in endings}
    names = {_SUFFIXES.get(suffix) for suffix in suffixes}
    if len(names) != 1 or None in names:
        raise ConfigurationError(
            f"what {files[0].name}{' and others hold' if len(files) > 1 else ' holds'} cannot be told by the names "
            f"({', '.join(sorted(suffixes))}); give the format, one of {', '.join(get_args(FormatName))}"
        )
    return next(name for name in names if name is not None)


def _rows(sources: Sequence[Any], name: str, keys: Mapping[str, Any], cursors: Cursors) -> SectionedSource:
    from shardkit.bulk.sources.arrow import divided, keys_apart  # noqa: PLC0415 - of the load extra

    for source in sources:
        _check_columns(keys, source.schema.names, source.name)
    total = sum(source.rows for source in sources)
    if cursors == "auto":
        small = sum(source.size for source in sources) < _SMALL and total <= 50_000  # noqa: PLR2004
        partition_key = next(iter(keys), None)
        mixed = partition_key is None or small or not is_clustered(keys_apart(sources, partition_key))
        held: int = max((source.cursor_bytes for source in sources), default=0)
        most: int = max(2, min(CURSORS, _HELD // max(1, held)))
        cursors = 1 if mixed else most
    sections = divided(sources, cursors, list(keys))
    identity = {
        "files": [source.identity() for source in sources],
        "sections": [[section.start, section.end] for section in sections],
    }
    size = sum(source.size for source in sources)
    return SectionedSource(
        sections,
        format=name,
        cursors=cursors,
        identity=identity,
        attributes=lambda: (column for source in sources for column in source.schema.names),
        total=total,
        bytes_total=size or None,
    )


def _check_columns(keys: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if not all(names) or len(set(names)) < len(names):
        raise ConfigurationError(
            f"the columns of {where} have a name twice, or none: {', '.join(map(repr, names)):.500}; name each once"
        )
    if missing := [name for name in keys if name not in names]:
        raise ConfigurationError(
            f"{where} has no column {missing[0]!r}, a key attribute of the table (columns: {', '.join(names)}); name "
            "the column so, or load another file"
        )


class _Text:
    """Files of lines on their way to a source."""

    def __init__(self, files: Sequence[File], name: FormatName, *, guessed: bool, keys: Keys) -> None:
        self._files = files
        self._keys = keys
        self._name = name
        self._guessed = guessed
        self._options: dict[str, Any] = {}
        self._types: dict[str, str] = {}
        self._layout = Layout(lambda _lines, _name: JsonLines())

    @cached_property
    def _sample(self) -> Any:
        return sample([TextFile(file, self._layout) for file in self._files])

    def delimited(
        self,
        types: Mapping[str, str],
        columns: Sequence[str] | None,
        delimiter: str | None,
        absent: frozenset[str],
        empty_strings: bool,  # noqa: FBT001 - of this room only
    ) -> None:
        """Read cells; those of columns without a type are looked at first."""
        between = delimiter or ("\t" if self._name == "tsv" else ",")
        if not isinstance(between, str) or len(between) != 1 or between in '"\r\n':
            raise ConfigurationError(f"delimiter={delimiter!r} is not one character that can stand between two cells")

        def layout(cells: Cells) -> Layout:
            def begin(lines: Iterator[bytes], where: str) -> Format:
                names = list(columns) if columns else read_row(lines, between, where)
                if names:
                    _check_columns(self._keys, names, where)
                return Delimited(names, cells, between)

            return Layout(begin, quotes=True)

        # Looked at as text, with nothing left out.
        self._layout = layout(Cells({}, frozenset()))
        first = [record for records in self._sample for record in records if isinstance(record, dict)]
        inferred = infer_types(first, absent)
        if unknown := [name for name in types if inferred and name not in inferred]:
            near = did_you_mean(unknown[0], inferred)
            raise ConfigurationError(
                f"types: there is no column {unknown[0]!r}{near}; the columns are {', '.join(inferred)}"
            )
        known = {name: letter for name, letter in self._keys.items() if letter}
        self._types = {**inferred, **known, **types}
        self._options = {"absent": sorted(absent), "empty_strings": empty_strings, "delimiter": between}
        self._layout = layout(Cells(self._types, absent, empty_strings))

    def source(self, cursors: Cursors) -> SectionedSource:
        """Decide what is not given, and divide."""
        if self._name == "jsonl" and self._guessed:
            record = next((one for records in self._sample for one in records if isinstance(one, dict)), {})
            self._name = "dynamodb" if is_dynamodb_json(record) else "jsonl"
        if self._name == "dynamodb":
            self._layout = Layout(lambda _lines, _name: DynamoDBJson())
            self.__dict__.pop("_sample", None)
        if cursors == "auto":
            cursors = CURSORS if self._clustered() else 1
        files = [TextFile(file, self._layout) for file in self._files]
        sizes = [file.size or 0 for file in self._files]
        total = sum(sizes)
        sections = [
            section
            for text, size in zip(files, sizes, strict=True)
            for section in text.sections(-(-cursors * size // total) if total else 1, list(self._keys))
        ]
        identity = {
            "files": [file.identity() for file in self._files],
            "options": self._options,
            "sections": [section.start for section in sections],
        }
        return SectionedSource(
            sections,
            format=self._name,
            cursors=cursors,
            identity=identity,
            attributes=self._attributes,
            types=self._types,
            bytes_total=None if None in [file.size for file in self._files] else total,
        )

    def _attributes(self) -> Iterable[str]:
        if self._types:
            return self._types
        return sorted({name for records in self._sample for one in records if isinstance(one, Mapping) for name in one})

    def _clustered(self) -> bool:
        size = sum(file.size or 0 for file in self._files)
        partition_key = next(iter(self._keys), None)
        if partition_key is None or size < _SMALL:
            return False
        return is_clustered(keys_apart(self._sample, partition_key))


def as_source(items: Source | Iterable[Item]) -> Source:
    """Give a source as it is, and a frame (Arrow, pandas, polars) or any iterable of items as one with one cursor."""
    if isinstance(items, Source):
        return items
    if hasattr(items, "__arrow_c_stream__"):
        return open_source(items)
    return IterableSource(items)
