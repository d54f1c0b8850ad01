"""The rows of a trace, their lines, and the files that are read: what calls took by second, key and shard."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from shardkit.errors import ConfigurationError, brief

ENDING = ".trace.jsonl.gz"
_VERSION = 1
_MOST_BYTES = 1 << 26  # of a line; one that shardkit wrote has at most 2,000 rows


class HashedKey(str):
    """What stands for a partition key in a trace with ``keys="hashed"``: a hash, in hexadecimal digits."""

    __slots__ = ()


class TraceRow(NamedTuple):
    """What one operation took of one key's shard in one second, in one process.

    Args:
        second: seconds since 1970, by the service's clock.
        operation: the API operation.
        table: the table's name.
        index_name: the index that took it; None: the table.
        key: the logical partition key, or its :class:`HashedKey`; a tuple for several attributes of an index. None: the
            exact total of all keys.
        shard: the key's shard; None: not sharded, or unknown.
        calls: reads and writes; of a Query, one for each shard.
        read_units: read units, estimates included.
        write_units: write units, likewise.
        throttled: attempts that were refused for lack of throughput.
        item: a hash of the sort key of one of the calls; None: not looked at.
        weight: how many rows like this one it stands for; 1 is exact.
    """

    second: int
    operation: str
    table: str
    index_name: str | None
    key: Any
    shard: int | None
    calls: int
    read_units: float
    write_units: float
    throttled: int = 0
    item: int | None = None
    weight: float = 1.0


_COLUMNS = TraceRow._fields[5:]


def line_of(rows: Sequence[TraceRow]) -> bytes:
    """Write rows as a line of JSON: a list for each column; operations, tables and keys are numbered."""
    places: dict[Any, int] = {}
    keys: dict[Any, int] = {}
    line: dict[str, Any] = {
        "v": _VERSION,
        "t": (began := rows[0].second),
        "dt": [row.second - began for row in rows],
        "place": [places.setdefault(row[1:4], len(places)) for row in rows],
        # 1 and True, or b"a" and "a", are no keys beside each other: a table's keys have one type.
        "key": [keys.setdefault((row.table, row.index_name, row.key), len(keys)) for row in rows],
    }
    line |= zip(_COLUMNS, zip(*[row[5:] for row in rows], strict=True), strict=True)
    line |= {"places": list(places), "keys": [_key_to_json(key) for _, _, key in keys]}
    return orjson.dumps(line) + b"\n"


def rows_of(line: bytes) -> Iterator[TraceRow]:
    """Read a line; raise ``ValueError`` or one of its relatives if it is not one."""
    held = orjson.loads(line)
    if held["v"] != _VERSION:
        raise ValueError(f"its version is {held['v']!r}, and this shardkit reads {_VERSION}")
    began, places, keys = held["t"], held["places"], [*map(_key_from_json, held["keys"])]
    rows: Iterable[Any] = zip(held["dt"], held["place"], held["key"], *map(held.get, _COLUMNS), strict=True)
    for dt, place, key, *figures in rows:
        yield TraceRow._make((began + dt, *places[place], keys[key], *figures))


def _key_to_json(key: Any) -> Any:
    if isinstance(key, HashedKey):
        return {"H": str(key)}
    if isinstance(key, bytes):
        return {"B": base64.b64encode(key).decode()}
    if isinstance(key, tuple):
        return [_key_to_json(part) for part in key]
    return key if key is None or isinstance(key, str) else {"N": str(key)}


def _key_from_json(held: Any) -> Any:
    if isinstance(held, list):
        return tuple(map(_key_from_json, held))
    if not isinstance(held, dict):
        return held
    ((letter, text),) = held.items()
    read: dict[str, Any] = {"H": HashedKey, "N": Decimal, "B": base64.b64decode}
    return read[letter](text)


def read_traces(files: str | PathLike[str] | Iterable[str | PathLike[str] | TraceRow]) -> Iterator[TraceRow]:
    """Read the rows of trace files, each to its last whole line; those of several processes add up.

    Example:
        >>> sum(row.write_units * row.weight for row in read_traces("logs/") if row.key)  # doctest: +SKIP
        3600125.0

    Args:
        files: paths of files, or of folders: all their ``*.trace.jsonl.gz``; rows are passed on.

    Yields:
        The rows, file by file, each in the order of its seconds.

    Raises:
        ConfigurationError: a file does not exist, or is not a trace.
    """
    for given in [files] if isinstance(files, str | PathLike) else files:
        if isinstance(given, TraceRow):
            yield given
            continue
        for path in sorted(Path(given).glob(f"*{ENDING}")) if Path(given).is_dir() else [Path(given)]:
            try:
                for line in _lines(path):
                    yield from rows_of(line)
            except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
                raise ConfigurationError(f"files: {path} is not a trace: {brief(str(error), 100)}") from error


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as data, gzip.open(data) as file, suppress(EOFError, zlib.error):  # of a killed process
        if data.peek(2) != b"\x1f":  # cut off in the two bytes that begin gzip
            yield from iter(lambda: file.readline(_MOST_BYTES), b"")
