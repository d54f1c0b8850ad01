"""The rows of a trace, their lines, the files that are read, and the highest second of each table's hottest key."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from shardkit.errors import ConfigurationError, brief

ENDING = ".trace.jsonl.gz"
_WRITES = ("BatchWrite", "Delete", "Put", "TransactWrite", "Update")  # that operations begin with
EXACT = 0.95  # the part of the deciding keys' units that must be in exact rows
_HOT = 20.0  # write units a second; keys that take less do not decide
MOST_ASKED = 3.0  # times what was served that throttled attempts make of it at most: clients repeat them
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


def highest_seconds(
    files: str | PathLike[str] | Iterable[str | PathLike[str] | TraceRow],
) -> dict[str, tuple[Any, float]]:
    """Find the second in which one key of each table was written most, for ``shardkit.timeseries.Tuning``.

    Example:
        >>> highest_seconds("traces/")  # doctest: +SKIP
        {'clicks-2014-07-08': ('c1', 1480.0), 'clicks-2014-07-09': ('c1', 2210.0)}

    Args:
        files: as for ``read_traces``: those of all processes.

    Returns:
        Of each table the key, and the write units that it asked for: those of throttled attempts count too, up to three
        times what it took. A table whose hottest key is known by samples only is left out (``rows_per_second``).

    Raises:
        ConfigurationError: as ``read_traces``.

    Cost: no request. Memory: some 300 bytes for each second of each key that has exact rows.
    """
    seconds: defaultdict[tuple[str, Any, int], list[float]] = defaultdict(lambda: [0.0, 0, 0])
    sums: defaultdict[str, defaultdict[Any, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    spans: defaultdict[str, set[int]] = defaultdict(set)
    for row in read_traces(files):
        if row.key is None or row.index_name is not None or not row.operation.startswith(_WRITES):
            continue
        spans[row.table].add(row.second)
        of_key = sums[row.table][row.key]
        of_key[0] += row.write_units * row.weight
        if row.weight == 1:
            of_key[1] += row.write_units
            of_second = seconds[row.table, row.key, row.second]
            of_second[:] = of_second[0] + row.write_units, of_second[1] + row.calls, of_second[2] + row.throttled
    hottest: dict[str, tuple[Any, float]] = {}
    for table, keys in sums.items():
        key, (whole, exact) = max(keys.items(), key=lambda one: one[1][0])
        if exact >= EXACT * whole or whole <= _HOT * len(spans[table]):
            hottest[table] = key, 0.0
    for (table, key, _), (units, calls, throttled) in seconds.items():
        asked = units * min(MOST_ASKED, 1 + throttled / (calls or 1))
        if table in hottest and asked > hottest[table][1]:
            hottest[table] = key, asked
    return hottest
