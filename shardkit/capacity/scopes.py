"""The figures of a meter and of its scopes, and what they look like as values, as JSON and as a table for people."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from shardkit.analysis.shards import HEADROOM
from shardkit.capacity import advice
from shardkit.capacity.charge import KeyValue
from shardkit.capacity.recorder import Recorder
from shardkit.capacity.tally import KeyOfTable
from shardkit.capacity.usage import Rates, Usage, VectorBytes, figure
from shardkit.core.checks import check_count, check_key
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import ConsoleRenderable
    from rich.table import Table

_KEYS_SHOWN = 5


def as_dict(totals: Totals, hottest: int) -> dict[str, Any]:
    """Give the figures as plain values that JSON can carry."""
    check_count("hottest", hottest, "keys", least=0)
    indexes: dict[str, dict[str, Any]] = {}
    for (table, index), usage in totals.by_index.items():
        indexes.setdefault(table, {})[index] = usage.to_dict()
    vectors: dict[str, dict[str, Any]] = {}
    for (table, index), taken in totals.by_vector_index.items():
        vectors.setdefault(table, {})[index] = taken._asdict()
    return {
        "name": totals.name,
        "tags": dict(totals.tags),
        "total": {**totals.total.to_dict(), **_bytes(totals)},
        "rates": totals.rates.to_dict(),
        "tables": {
            table: {
                **usage.to_dict(),
                "indexes": indexes.get(table, {}),
                "vector_indexes": vectors.get(table, {}),
            }
            for table, usage in totals.by_table.items()
        },
        "operations": {operation: usage.to_dict() for operation, usage in totals.by_operation.items()},
        "by_tag": [{"tag": tag, "value": value, **usage.to_dict()} for (tag, value), usage in totals.by_tag.items()],
        "throttles": totals.throttles,
        "retries": totals.retries,
        "hottest_keys": [
            {
                "table": hot.table,
                "key": _wire(hot.key),
                **hot.usage.to_dict(),
                "uncertain_read_units": hot.uncertain_read_units,
                "uncertain_write_units": hot.uncertain_write_units,
            }
            for hot in totals.hottest(hottest)
        ],
        "other_keys": totals.other_keys.to_dict(),
    }


def as_json(totals: Totals, hottest: int) -> str:
    """Give the figures as JSON."""
    return orjson.dumps(as_dict(totals, hottest)).decode()


def _wire(key: KeyValue) -> dict[str, Any]:
    return dict(to_wire_item({"key": key})["key"])


@dataclass(frozen=True)
class Grid:
    """A table as text: the first column is left, the others are right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def table_of(totals: Totals) -> Grid:
    """Put the figures in rows; estimates, throttles and tags have their place where there are any."""
    total = totals.total
    columns = ["requests", "read units", "write units"]
    if total.estimated_read_units or total.estimated_write_units:
        columns += ["estimated read units", "estimated write units"]
    if total.throttles:
        columns.append("throttles")
    columns += [name.replace("_", " ") for name, number in _bytes(totals).items() if number]
    return Grid([_text(totals.name), *columns], [[name, *_cells(figures, columns)] for name, figures in _named(totals)])


def _bytes(totals: Totals) -> dict[str, float]:
    """Give what all vector indexes consumed."""
    return {name: getattr(totals, name) for name in VectorBytes._fields}


def _named(totals: Totals) -> Iterator[tuple[str, Mapping[str, float]]]:
    yield "total", {**totals.total.to_dict(), **_bytes(totals)}
    for table, usage in sorted(totals.by_table.items()):
        yield f"table {table}", usage.to_dict()
    for (table, index), usage in sorted(totals.by_index.items()):
        yield f"index {table} {index}", usage.to_dict()
    for (table, index), taken in sorted(totals.by_vector_index.items()):
        yield f"vector index {table} {index}", taken._asdict()
    for operation, usage in sorted(totals.by_operation.items()):
        yield operation, usage.to_dict()
    for (tag, value), usage in sorted(totals.by_tag.items(), key=lambda pair: -pair[1].units_with_estimates)[
        :_KEYS_SHOWN
    ]:
        yield f"tag {_text(tag)}={_text(value):.60}", usage.to_dict()
    for hot in totals.hottest(_KEYS_SHOWN):
        yield f"key {hot.table} {hot.key!r:.60}", hot.usage.to_dict()


def _text(name: str) -> str:
    # The caller's, and perhaps the caller's users': a line break would break the row, an escape sequence worse.
    return name if name.isprintable() else repr(name)


def _cells(figures: Mapping[str, float], columns: Sequence[str]) -> Iterator[str]:
    for column in columns:
        value = figures.get(column.replace(" ", "_"))
        if value is None:  # bytes of what is no vector index, units of one
            yield ""
        elif isinstance(value, int) or column.endswith("bytes"):
            yield f"{value:,.0f}"
        else:
            yield figure(value)


def as_text(totals: Totals) -> str:
    """Show the figures as a table: rich's where it is installed, else plain text."""
    grid = table_of(totals)
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra
    except ImportError:
        return plain(grid)
    console = Console(file=io.StringIO(), width=_WIDE, color_system=None)
    with console.capture() as captured:
        console.print(rich_table(grid))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


_WIDE = 1000


def rich_table(grid: Grid) -> Table:
    """Make a table of rich's."""
    from rich import box  # noqa: PLC0415 - an extra
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, column in enumerate(grid.columns):
        table.add_column(Text(column), justify="right" if place else "left", no_wrap=True)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table


def plain(grid: Grid) -> str:
    """Align the columns with spaces."""
    lines = [grid.columns, *grid.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


# The scopes, of all meters, whose ``with`` this context is inside of.
_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("shardkit_capacity_scopes", default=())
_SIDES = (None, "read", "write")


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that consumed much.

    Args:
        table: the table's name.
        key: the logical key, as a boto3 resource shows it.
        usage: what it consumed, at least; exactly, as long as no more than ``max_keys`` keys were seen.
        uncertain_read_units: read units that it may have consumed besides, before it was held apart (they are in
            ``other_keys``).
        uncertain_write_units: the same of write units.
    """

    table: str
    key: KeyValue
    usage: Usage
    uncertain_read_units: float = 0.0
    uncertain_write_units: float = 0.0


class Totals:
    """The figures that a scope and a meter both have; each is a snapshot."""

    def __init__(self, name: str, recorder: Recorder, tags: Mapping[str, str]) -> None:
        self.name = name
        self.recorder = recorder
        self.tags = tags

    @property
    def total(self) -> Usage:
        """Everything, as one :class:`Usage`."""
        with self.recorder as tally:
            return tally.total

    @property
    def read_units(self) -> float:
        """Read units that the service reported."""
        return self.total.read_units

    @property
    def write_units(self) -> float:
        """Write units that the service reported."""
        return self.total.write_units

    @property
    def estimated_read_units(self) -> float:
        """Read units that no response said; never a part of ``read_units``."""
        return self.total.estimated_read_units

    @property
    def estimated_write_units(self) -> float:
        """Write units that no response said (of failed conditions, say); never a part of ``write_units``."""
        return self.total.estimated_write_units

    @property
    def requests(self) -> int:
        """API calls that read or write items, failed ones too; botocore's retries are not counted."""
        return self.total.requests

    @property
    def rates(self) -> Rates:
        """What was consumed a second, over the last ``window`` seconds."""
        with self.recorder as tally:
            return tally.rates(self.recorder.clock())

    @property
    def throttles(self) -> dict[str, int]:
        """Throttled attempts by the service's reason (its error code where it says none), every retry counted.

        ``UnprocessedItems`` are batches that came back in part.
        """
        with self.recorder as tally:
            return dict(tally.throttles)

    @property
    def retries(self) -> dict[str, int]:
        """Retries that botocore made, by what the attempt before met: a throttle's reason, an error's code."""
        with self.recorder as tally:
            return dict(tally.retries)

    @property
    def by_table(self) -> dict[str, Usage]:
        """Per table name, its indexes included."""
        with self.recorder as tally:
            return tally.by_table

    @property
    def by_index(self) -> dict[tuple[str, str], Usage]:
        """Per (table, index), as far as the service said it (it does not if the caller asked for ``TOTAL``)."""
        with self.recorder as tally:
            return tally.by_index

    @property
    def by_vector_index(self) -> dict[tuple[str, str], VectorBytes]:
        """Bytes per (table, vector index), as far as the service said it: vector indexes consume no units."""
        with self.recorder as tally:
            return tally.by_vector_index

    @property
    def vector_search_request_bytes(self) -> float:
        """Bytes that ``SearchVectors`` consumed of vector indexes, as the service reported; they are no units."""
        return sum(taken.vector_search_request_bytes for taken in self.by_vector_index.values())

    @property
    def vector_write_request_bytes(self) -> float:
        """Bytes that writes consumed of vector indexes, as the service reported; they are no units."""
        return sum(taken.vector_write_request_bytes for taken in self.by_vector_index.values())

    @property
    def by_operation(self) -> dict[str, Usage]:
        """Per API operation (``"PutItem"``)."""
        with self.recorder as tally:
            return tally.by_operation

    @property
    def by_key(self) -> dict[KeyOfTable, Usage]:
        """Per (table, logical key); units of batches are apportioned and stand under the estimates."""
        with self.recorder as tally:
            return tally.keys.usages()

    @property
    def by_physical_key(self) -> dict[KeyOfTable, Usage]:
        """Per (table, physical key), of sharded tables; elsewhere a key is stored as it is."""
        with self.recorder as tally:
            usages = tally.physical_keys.usages()
        return {(table, physical): usage for (table, _, physical), usage in usages.items()}

    @property
    def by_tag(self) -> dict[tuple[str, str], Usage]:
        """Per (tag, value), of calls inside scopes that have tags."""
        with self.recorder as tally:
            return tally.tags.usages()

    @property
    def other_keys(self) -> Usage:
        """What ``by_key`` does not have: keys that were pushed out, scans, statements, keys that are not known."""
        with self.recorder as tally:
            return tally.keys.others

    def hottest(self, n: int = 10, *, by: str | None = None) -> list[HotKey]:
        """Give the ``n`` keys that consumed the most units, estimates counted in the ranking, the most first.

        Example:
            >>> meter.hottest(5)  # doctest: +SKIP
            [HotKey(table='Orders', key='2014-07-09', usage=Usage(read_units=0.0, write_units=812.0, ...)), ...]

        Args:
            n: how many at most.
            by: ``"read"`` or ``"write"`` to rank by read or by write units; None for their sum.

        Returns:
            A :class:`HotKey` each. Once more than ``max_keys`` keys were seen, figures may be too low, by no more than
            they say themselves, which is at most the units of all keys over ``max_keys``.

        Raises:
            ConfigurationError: ``by`` is neither, or ``n`` no whole number of at least 0.

        Cost:
            No request; one pass over the keys that are held.
        """
        if by not in _SIDES:
            raise ConfigurationError(f'hottest() ranks by="read", by="write" or by their sum (None), got {by!r}')
        check_count("n", n, "keys", least=0)
        with self.recorder as tally:
            keys = tally.keys
            return [HotKey(*key, usage, *keys.before(key)) for key, usage in keys.hottest(n, by)]

    def skew(self, key: KeyValue, *, table: str | None = None) -> advice.Skew:
        """Say how a logical key's units are spread over its shards.

        Example:
            >>> print(meter.skew("2014-07-09"))  # doctest: +SKIP
            Orders '2014-07-09': the hottest of 5 shards, '2014-07-09.3', took 22.0% of its units, ...

        Args:
            key: the logical key, as the application gives it.
            table: its table's name; may be left out where calls to one table only were seen.

        Returns:
            A :class:`Skew`: the units of each physical key, the hottest one's share, and the fair one.

        Raises:
            ConfigurationError: ``key`` is no key; or ``table`` was left out, and calls to several tables (or none)
                were seen.

        Cost:
            No request; one pass over the physical keys that are held.
        """
        key = check_key(key)
        tables = sorted(self.by_table)
        if table is None and len(tables) != 1:
            raise ConfigurationError(f"skew() needs table= where not just one was seen, and here were {tables}")
        with self.recorder as tally:
            return advice.skew_of(tally, table or tables[0], key)

    def advise(self, *, headroom: float = HEADROOM) -> list[advice.Advice]:
        """Name the keys that are above what a partition serves, and how many shards each needs.

        Example:
            >>> for advice in meter.advise():  # doctest: +SKIP
            ...     print(advice)
            Orders '2014-07-09': 190 shards instead of 1: on 8 partitions (assumed: ...

        A partition serves 3,000 read units and 1,000 write units a second, each by itself. Looked at is the busiest
        second of a key's hottest shard; a key that was throttled for the sake of its partition needs more than
        it has. The table's partitions are not known: they are assumed to serve twice the load. Keys of indexes are not
        seen.

        Args:
            headroom: the part of a partition's throughput to leave free, from 0 to below 1.

        Returns:
            An :class:`Advice` a key, those that need most shards first; none where nothing is too hot.

        Raises:
            ConfigurationError: ``headroom`` is out of its range.

        Cost:
            No request; one pass over the keys that are held.

        Source:
            DynamoDB Developer Guide, "Best practices for tables" (what a partition serves), "Burst and adaptive
            capacity" (a partition's reads and writes are managed independently).
        """
        with self.recorder as tally:
            return advice.advice_of(tally, headroom)

    def to_dict(self, *, hottest: int = 10) -> dict[str, Any]:
        """Give the figures as plain values that JSON can carry; ``docs/capacity.md`` has the shape.

        Args:
            hottest: how many keys, those that consumed most; a key has its wire form, ``{"S": "2014-07-09"}``.

        Raises:
            ConfigurationError: ``hottest`` is no whole number of at least 0.
        """
        return as_dict(self, hottest)

    def to_json(self, *, hottest: int = 10) -> str:
        """Give :meth:`to_dict` as JSON."""
        return as_json(self, hottest)

    def __str__(self) -> str:
        """Give the figures as a table: rich's where it is installed, else plain text."""
        return as_text(self)

    def __rich__(self) -> ConsoleRenderable:
        """Give rich its table."""
        return rich_table(table_of(self))


class Scope(Totals):
    """What the calls made inside its ``with`` consumed, in this context and those copied from it; see ``scope``."""

    def __init__(self, meter: Totals, name: str, recorder: Recorder, tags: Mapping[str, str]) -> None:
        super().__init__(name, recorder, tags)
        self.meter = meter

    def __enter__(self) -> Self:
        """Count from now on."""
        _scopes.set((*_scopes.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count no more calls that start now; the figures stay."""
        # Without a token: a generator or a task may leave the scope in another context than it was entered in.
        stack = _scopes.get()
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is self:
                _scopes.set(stack[:place] + stack[place + 1 :])
                return


def scopes_of(meter: Totals) -> tuple[Scope, ...]:
    """Give the scopes of a meter that this context is inside of, the outermost first, each once."""
    scopes = _scopes.get()
    return tuple(dict.fromkeys(scope for scope in scopes if scope.meter is meter)) if scopes else ()
