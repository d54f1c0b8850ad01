"""What the hottest key of each table asked for in its highest second, by the rows of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from os import PathLike
from typing import Any

from shardkit.analysis.trace_files import TraceRow, read_traces

_WRITES = ("BatchWrite", "Delete", "Put", "TransactWrite", "Update")  # that operations begin with
_EXACT, _HOT = 0.95, 20.0  # of a key that takes more write units a second, so much must be in exact rows
_MOST_THROTTLED = 2.0  # times what was served that throttled attempts count, because clients repeat them


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

    Cost:
        No request. Memory: some 300 bytes for each second of each key that has exact rows.
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
        if exact >= _EXACT * whole or whole <= _HOT * len(spans[table]):
            hottest[table] = key, 0.0
    for (table, key, _), (units, calls, throttled) in seconds.items():
        asked = units * (1 + min(_MOST_THROTTLED, throttled / (calls or 1)))
        if table in hottest and asked > hottest[table][1]:
            hottest[table] = key, asked
    return hottest
