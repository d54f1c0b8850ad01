"""open_source: open files, folders, patterns, objects in S3, standard input, pipes and frames as sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import PurePath
from typing import Any, Literal, get_args

from shardkit.bulk.sources.base import Record
from shardkit.bulk.sources.cells import Cells, check_types, infer_types, parse_types
from shardkit.bulk.sources.delimited import Delimited, read_row
from shardkit.bulk.sources.files import File, Pipe, find_files
from shardkit.bulk.sources.lines import DynamoDBJson, Format, JsonLines, is_dynamodb_json
from shardkit.bulk.sources.sections import CURSORS, SectionedSource, is_clustered
from shardkit.bulk.sources.text import Layout, TextFile, TextSection, keys_apart, sample
from shardkit.core.calls import explains_call
from shardkit.core.checks import MOST_CURSORS, check_count, did_you_mean
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.runner import runner_of
from shardkit.sharding.layout import Sharding
from shardkit.sharding.shard_map import ShardMap
from shardkit.strategies import Strategy

FormatName = Literal["csv", "tsv", "jsonl", "dynamodb", "parquet"]
Cursors = int | Literal["auto"]
Keys = Mapping[str, str | None]
Sample = list[list[Record]]

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
_SMALL = 16 * 1024 * 1024  # bytes: a window of 50,000 items of 350 bytes holds it all
_FIRST = 100  # records: enough to tell the format
_DELIMITERS = ",;\t|"
_HELD = 96 * 1024 * 1024  # bytes that all cursors of Parquet may hold together


@explains_call
def open_source(
    where: Any,
    *,
    table: Any = None,
    stored_by: Strategy | None = None,
    format: FormatName | None = None,  # noqa: A002 - what it is called everywhere
    types: Mapping[str, str] | str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    absent: Sequence[str] = (),
    empty_strings: bool = False,
    cursors: Cursors = "auto",
    s3: Any = None,
) -> SectionedSource:
    """Open files or a frame as a source for ``bulk_load``: items with their places, read by several cursors.

    Example:
        source = open_source("orders.csv", table=orders, types="Total:N,Gift:BOOL")
        bulk_load(orders, source, journal="orders.journal")

    Args:
        where: A path (of a file or a pipe), a folder, a pattern, ``s3://bucket/key-or-prefix``, ``"-"`` (standard
            input); or a frame (anything with ``__arrow_c_stream__``: Arrow, pandas, polars).
        table: The ``ShardedTable`` or boto3 ``Table`` to load into. Its key schema says which records to keep together,
            and the types of key columns, also of its indexes; without it, a key such as 1001 is read as a number, and
            there is one cursor.
        stored_by: The strategy of the sharded table of which the files are a full export: its suffixes are removed from
            the keys, and the attributes that shardkit keeps for sharded indexes of ``table``, so that the items are
            logical again. Only for DynamoDB JSON; needs ``table``.
        format: The files' format. By default it is inferred from their names and first records.
        types: The type (S, N, B, BOOL) of each column of CSV or TSV, as a mapping or as text; others are inferred.
        columns: The column names of CSV or TSV files without a header.
        delimiter: The character between two cells. Defaults to ``","`` for CSV and a tab for TSV.
        absent: Cells that mean "no value", as empty cells do: ``["NA", "NULL"]``.
        empty_strings: Keep empty cells of text columns as empty strings.
        cursors: At how many positions the source is read in turn, at most 1,000: each is an open file. ``"auto"`` is 64
            for a source of 16 MB or more (Parquet and frames: or more than 50,000 rows) in which a sample shows that
            records of one partition key are adjacent, else 1. With more than one, it is undefined which of several
            records of one primary key is written last, unless they are adjacent.
        s3: A boto3 S3 client. By default one is created from the environment if needed.

    Returns:
        A source. Its ``identity`` holds the files (name, size, time, and a hash of the first and last 64 KB; in S3 the
            ETag) and how they are read.

    Raises:
        ConfigurationError: There is no such file, it does not have its format, or an option is invalid; or a function
            of ``stored_by`` is not registered (see ``register_function``).

    Cost: reads the first records of a file, with ``"auto"`` at 32 positions. With several cursors, a CSV file is read
        once in advance (to cut it outside quotes). Memory: 64 KB per cursor, in S3 1 MB; for Parquet one page per
        column, and ``"auto"`` opens as many cursors as hold 100 MB together.
    Source: "Distribute Write Activity During Data Upload", Developer Guide; RFC 4180; "DynamoDB table export output
        format", Developer Guide.
    """
    for option, texts in (("columns", columns or ()), ("absent", absent)):
        listed = isinstance(texts, Collection) and not isinstance(texts, str | bytes)
        if not listed or not all(isinstance(text, str) for text in texts):
            raise ConfigurationError(
                f"{option}: must be a list of strings, got {brief(texts)}; give {option}=['…', '…']"
            )
    if cursors != "auto":
        check_count("cursors", cursors, "cursors", most=MOST_CURSORS, why="each is an open file; or give 'auto'")
    if format not in {None, *get_args(FormatName)}:
        raise ConfigurationError(f"format: must be one of {', '.join(get_args(FormatName))}, got {brief(format)}")
    sharding = _sharding_of(table)
    keys = {name: sharding.types.get(name) for name in sharding.keys.names} if sharding else {}
    if cursors != "auto" and cursors > 1 and not keys:
        raise ConfigurationError(
            f"cursors: {cursors} needs table=, to keep records of one primary key in order; give the table"
        )
    if hasattr(where, "__arrow_c_stream__"):
        from shardkit.bulk.sources.arrow import Frame  # noqa: PLC0415 - of the load extra

        _refuse_options(types, columns, delimiter, "a frame")
        _refuse_stored_by(stored_by, "a frame")
        return _rows([Frame(where)], "frame", keys, cursors)
    if not isinstance(where, str | PurePath):
        raise ConfigurationError(f"source: must be a path or a data frame, got {type(where).__name__}")
    files = find_files(str(where), s3)
    name = format or _format_of(files)
    if name not in {"dynamodb", "jsonl"}:
        _refuse_stored_by(stored_by, name)
    if name == "parquet":
        from shardkit.bulk.sources.arrow import ParquetFile  # noqa: PLC0415 - of the load extra

        _refuse_options(types, columns, delimiter, name)
        return _rows([ParquetFile(file) for file in files], "parquet", keys, cursors)
    if name in {"csv", "tsv"}:
        letters = parse_types(types) if isinstance(types, str) else check_types(types or {}, types)
        cells = Cells(letters, frozenset({"", *absent}), empty_strings)
        known = {} if sharding is None else sharding.types
        return _delimited(files, name, keys, cursors, known=known, given=cells, columns=columns, delimiter=delimiter)
    _refuse_options(types, columns, delimiter, name)
    return _json(files, name, keys, cursors, guessed=format is None, stored=_stored(sharding, stored_by))


def _refuse_stored_by(stored_by: Strategy | None, name: str) -> None:
    if stored_by is not None:
        raise ConfigurationError(
            f"stored_by: is only supported for DynamoDB JSON, not for {name}; load the table's export to S3"
        )


def _stored(sharding: Sharding | None, stored_by: Strategy | None) -> Sharding | None:
    """Return the sharding of the exported table: ``table`` has the same keys, but may have another strategy."""
    if stored_by is None:
        return None
    if not isinstance(stored_by, Strategy):
        raise ConfigurationError(
            f"stored_by: must be a strategy, got {brief(stored_by)}; give that of the exported table"
        )
    if stored_by == ShardMap():
        stored_by.refuse()
    if sharding is None:
        raise ConfigurationError("stored_by: needs table=, which names the partition key; give the table")
    return replace(sharding, strategy=stored_by)


def _refuse_options(types: object, columns: object, delimiter: object, name: str) -> None:
    if types or columns or delimiter:
        raise ConfigurationError(
            f"types, columns, delimiter: are only supported for CSV and TSV, not for {name}; leave them out"
        )


def _sharding_of(table: Any) -> Sharding | None:
    if table is None:
        return None
    runner = runner_of(table)
    return runner.run(runner.programs.to_load())


def _format_of(files: Sequence[File]) -> FormatName:
    endings = [
        [end.lower() for end in PurePath(file.name).suffixes if end.lower() not in _COMPRESSED] for file in files
    ]
    suffixes = {ends[-1] if ends else "" for ends in endings}
    names = {_SUFFIXES.get(suffix) for suffix in suffixes}
    if isinstance(files[0], Pipe) and None in names:
        raise ConfigurationError(
            f"format: is missing for {'standard input' if files[0].name == '-' else files[0].name}; give one of "
            f"{', '.join(get_args(FormatName))}"
        )
    if len(names) != 1 or None in names:
        raise ConfigurationError(
            f"format: cannot be inferred from the names of {files[0].name}{' and others' if len(files) > 1 else ''} "
            f"({', '.join(sorted(suffixes))}); give one of {', '.join(get_args(FormatName))}"
        )
    return next(name for name in names if name is not None)


def _rows(sources: Sequence[Any], name: str, keys: Mapping[str, Any], cursors: Cursors) -> SectionedSource:
    from shardkit.bulk.sources.arrow import check_names, divided, keys_apart  # noqa: PLC0415 - of the load extra

    for source in sources:
        _check_columns(keys, source.schema.names, source.name)
        check_names(source.schema, source.name)
    total = sum(source.rows for source in sources)
    size = sum(source.size for source in sources)
    if cursors == "auto":
        large = keys and (size >= _SMALL or total > 50_000)  # noqa: PLR2004
        held: int = max((source.cursor_bytes for source in sources), default=0)
        most: int = max(2, min(CURSORS, _HELD // max(1, held)))
        cursors = most if large and is_clustered(keys_apart(sources, next(iter(keys)))) else 1
    sections = divided(sources, cursors, list(keys))
    identity = {
        "files": [source.identity() for source in sources],
        "sections": [[section.start, section.end] for section in sections],
    }
    return SectionedSource(
        sections,
        format=name,
        cursors=cursors,
        identity=identity,
        attributes=lambda: (column for source in sources for column in source.schema.names),
        total=total,
        bytes_total=size or None,
        divide=partial(divided, sources),
    )


def _check_columns(keys: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if not all(names) or len(set(names)) < len(names):
        raise ConfigurationError(
            f"columns: {where} has a name twice, or an empty one: {', '.join(map(repr, names)):.500}; name each once"
        )
    if missing := [name for name in keys if name not in names]:
        raise ConfigurationError(
            f"columns: {where} has no column {missing[0]!r}, a key attribute of the table (columns: "
            f"{', '.join(names)}); rename a column, or load another file"
        )


def _delimited(
    files: Sequence[File],
    name: FormatName,
    keys: Keys,
    cursors: Cursors,
    *,
    known: Mapping[str, str],
    given: Cells,
    columns: Sequence[str] | None,
    delimiter: str | None,
) -> SectionedSource:
    """Open CSV or TSV; infer the types of columns that have none."""
    between = delimiter or ("\t" if name == "tsv" else ",")
    if not isinstance(between, str) or len(between) != 1 or between in '"\r\n':
        raise ConfigurationError(
            f"delimiter: must be one character, and not a quote or a newline, got {brief(delimiter)}"
        )

    def texts(cells: Cells) -> list[TextFile]:
        layout = Layout(partial(_begin, list(columns or ()), between, keys, cells, delimiter is None), quotes=True)
        return [TextFile(file, layout) for file in files]

    sampled = sample(texts(Cells({}, frozenset())))  # all cells as text
    inferred = infer_types(_items(sampled), given.absent)
    if unknown := [name for name in given.types if inferred and name not in inferred]:
        near = did_you_mean(unknown[0], inferred)
        raise ConfigurationError(
            f"types: there is no column {unknown[0]!r}{near}; the columns are {', '.join(inferred)}"
        )
    of_table = {name: letter for name, letter in known.items() if name in inferred or name in keys}
    types = {**inferred, **of_table, **given.types}
    options = {"absent": sorted(given.absent), "empty_strings": given.empty_strings, "delimiter": between}
    return _lines(texts(replace(given, types=types)), name, keys, cursors, lambda: sampled, types, options)


def _begin(
    columns: list[str],
    delimiter: str,
    keys: Keys,
    cells: Cells,
    assumed: bool,  # noqa: FBT001 - given by partial()
    lines: Iterator[bytes],
    where: str,
) -> Format:
    names = columns or read_row(lines, delimiter, where)
    if assumed and not columns and len(names) == 1:
        _check_delimiter(names[0], delimiter, where)
    if names:
        _check_columns(keys, names, where)
    return Delimited(names, cells, delimiter)


def _check_delimiter(header: str, delimiter: str, where: str) -> None:
    """Refuse a header of one column in which another delimiter stands."""
    for other in _DELIMITERS:
        if other != delimiter and other in header:
            remedy = "format='tsv' (--format tsv)" if other == "\t" else f"delimiter={other!r} (--delimiter {other!r})"
            raise ConfigurationError(
                f"delimiter: {where} has only one column, {brief(header, 200)}, if {delimiter!r} separates columns; "
                f"give {remedy}, or delimiter={delimiter!r} if it is one"
            )


def _json(
    files: Sequence[File], name: FormatName, keys: Keys, cursors: Cursors, *, guessed: bool, stored: Sharding | None
) -> SectionedSource:
    """Open JSON Lines; if that is ``guessed``, the first record may show that it is DynamoDB JSON."""

    def opened(format_: Format) -> tuple[list[TextFile], Callable[[], Sample]]:
        texts = [TextFile(file, Layout(partial(_headless, format_))) for file in files]
        return texts, cache(lambda: sample(texts))

    texts, sampled = opened(JsonLines())
    # The first records are enough; a sample can be more than the file has.
    if name == "jsonl" and guessed and is_dynamodb_json(next(_items(text.spot(0, _FIRST) for text in texts), {})):
        name = "dynamodb"
    if name == "dynamodb":
        texts, sampled = opened(DynamoDBJson(None if stored is None else stored.logical_item))
    elif stored is not None:
        _refuse_stored_by(stored.strategy, name)
    options = {} if stored is None else {"stored_by": stored.strategy.to_dict()}
    return _lines(texts, name, keys, cursors, sampled, {}, options)


def _headless(format_: Format, _lines: Iterator[bytes], _name: str) -> Format:
    return format_


def _items(sampled: Iterable[Sequence[Record]]) -> Iterator[dict[str, Any]]:
    return (record for records in sampled for record in records if isinstance(record, dict))


def _lines(
    texts: Sequence[TextFile],
    name: FormatName,
    keys: Keys,
    cursors: Cursors,
    sampled: Callable[[], Sample],
    types: Mapping[str, str],
    options: Mapping[str, Any],
) -> SectionedSource:
    sizes = [text.file.size or 0 for text in texts]
    total = sum(sizes)
    if cursors == "auto":
        large = keys and total >= _SMALL
        cursors = CURSORS if large and is_clustered(keys_apart(sampled(), next(iter(keys)))) else 1

    def divide(count: int, keys: Sequence[str]) -> list[TextSection]:
        return [
            section
            for text, size in zip(texts, sizes, strict=True)
            for section in text.sections(-(-count * size // total) if total else 1, keys)
        ]

    sections = divide(cursors, list(keys))
    identity = {
        "files": [text.file.identity() for text in texts],
        "options": options,
        "sections": [section.start for section in sections],
    }
    return SectionedSource(
        sections,
        format=name,
        cursors=cursors,
        identity=identity,
        attributes=lambda: types or sorted({name for item in _items(sampled()) for name in item}),
        types=types,
        bytes_total=None if None in [text.file.size for text in texts] else total,
        divide=divide,
    )
