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


class TraceRow(NamedTuple):
    """What one operation took of one key's shard in one second, in one process.

    Args:
        second: seconds since 1970, by the service's clock.
        operation: the API operation.
        table: the table's name.
        index_name: the index that took it; None: the table.
        key: the logical partition key, or ``"<hash …>"``; a tuple for several attributes of an index. None: the exact
            total of all keys.
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
    index_name: str | None = None
    key: Any = None
    shard: int | None = None
    calls: int = 1
    read_units: float = 0.0
    write_units: float = 0.0
    throttled: int = 0
    item: int | None = None
    weight: float = 1.0


def line_of(rows: Sequence[TraceRow]) -> bytes:
    """Write rows as a line of JSON: a list for each column."""
    columns = dict(zip(TraceRow._fields, zip(*rows, strict=True), strict=True))
    return orjson.dumps({"v": _VERSION} | columns, default=_not_json) + b"\n"


def rows_of(line: bytes) -> Iterator[TraceRow]:
    """Read a line; raise ``ValueError`` or one of its relatives if it is not one."""
    held = orjson.loads(line)
    if held["v"] != _VERSION:
        raise ValueError(f"its version is {held['v']!r}, and this shardkit reads {_VERSION}")
    held["key"] = map(_key_of, held["key"])
    return map(TraceRow._make, zip(*[held[name] for name in TraceRow._fields], strict=True))


def _not_json(key: bytes | Decimal) -> dict[str, str]:
    return {"B": base64.b64encode(key).decode()} if isinstance(key, bytes) else {"N": str(key)}


def _key_of(held: Any) -> Any:
    if isinstance(held, list):
        return tuple(map(_key_of, held))
    if isinstance(held, dict):
        return Decimal(held["N"]) if "N" in held else base64.b64decode(held["B"])
    return held


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
                # A killed process cuts a file off anywhere.
                with path.open("rb") as data, gzip.open(data) as file, suppress(EOFError, zlib.error, gzip.BadGzipFile):
                    if not b"\x1f\x8b".startswith(data.peek(2)[:2]):
                        raise ValueError("it is not gzip")  # noqa: TRY301 - as what gzip itself finds
                    while line := file.readline(_MOST_BYTES):
                        yield from rows_of(line)
            except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
                raise ConfigurationError(f"files: {path} is not a trace: {brief(str(error), 100)}") from error
