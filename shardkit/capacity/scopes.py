"""The figures of a meter and its scopes, as values, as JSON and as a table for people."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from shardkit.analysis.shards import HEADROOM
from shardkit.capacity import advice
from shardkit.capacity.charge import KeyOfIndex, KeyOfTable, KeyValue
from shardkit.capacity.lookups import CacheUsage
from shardkit.capacity.recorder import Recorder
from shardkit.capacity.usage import Rates, Usage, VectorBytes, figure
from shardkit.core.checks import check_count, check_key
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError, brief

if TYPE_CHECKING:
    from typing import Self

    from rich.console import ConsoleRenderable
    from rich.table import Table

_SIDES = (None, "read", "write")
_SHOWN = 5  # keys and tags
_WIDE = 1000

# The scopes, of all meters, whose ``with`` this context is inside of.
_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("shardkit_capacity_scopes", default=())


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that consumed much.

    Args:
        table: the table's name.
        key: the logical key, as a boto3 resource shows it.
        usage: what it consumed at least; exact as long as at most ``max_keys`` keys were seen.
        uncertain_read_units: read units that it may have consumed before it was held (counted in ``other_keys``).
        uncertain_write_units: the same of write units.
    """

    table: str
    key: KeyValue
    usage: Usage
    uncertain_read_units: float = 0.0
    uncertain_write_units: float = 0.0


class Totals:
    """The figures of a scope or a meter; each is a snapshot."""

    def __init__(self, name: str, recorder: Recorder, tags: Mapping[str, str]) -> None:
        self.name = name
        self.recorder = recorder
        self.tags = tags

    def __repr__(self) -> str:
        used = self.total
        read, write = used.read_units + used.estimated_read_units, used.write_units + used.estimated_write_units
        return (
            f"<{type(self).__name__} {self.name!r}: {used.requests:,} requests, {figure(read)} read units, "
            f"{figure(write)} write units, {used.throttles:,} throttles>"
        )

    @property
    def total(self) -> Usage:
        """All figures together, as one :class:`Usage`."""
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
        """Read units that no response reported; not included in ``read_units``."""
        return self.total.estimated_read_units

    @property
    def estimated_write_units(self) -> float:
        """Write units that no response reported (such as failed conditions); not included in ``write_units``."""
        return self.total.estimated_write_units

    @property
    def requests(self) -> int:
        """API calls that read or write items, failed ones included, botocore's retries not."""
        return self.total.requests

    @property
    def rates(self) -> Rates:
        """What was consumed per second, over the last ``window`` seconds."""
        with self.recorder as tally:
            return tally.rates(self.recorder.clock())

    @property
    def throttles(self) -> dict[str, int]:
        """Throttled attempts, retries included, by the service's reason, or by error code if it reports none.

        ``UnprocessedItems`` counts batches of which a part was not processed.
        """
        with self.recorder as tally:
            return dict(tally.throttles)

    @property
    def retries(self) -> dict[str, int]:
        """Retries by botocore, by why the attempt before failed: a throttle's reason, or an error code."""
        with self.recorder as tally:
            return dict(tally.retries)

    @property
    def by_table(self) -> dict[str, Usage]:
        """Per table name, its indexes included."""
        with self.recorder as tally:
            return tally.by_table

    @property
    def by_index(self) -> dict[tuple[str, str], Usage]:
        """Per (table, index), as far as the service reported it (not if the caller asked for ``TOTAL``)."""
        with self.recorder as tally:
            return tally.by_index

    @property
    def by_vector_index(self) -> dict[tuple[str, str], VectorBytes]:
        """Bytes per (table, vector index), as far as the service reported them: vector indexes consume no units."""
        with self.recorder as tally:
            return tally.by_vector_index

    @property
    def vector_search_request_bytes(self) -> float:
        """Bytes that ``SearchVectors`` consumed of vector indexes, as the service reported."""
        return sum(taken.vector_search_request_bytes for taken in self.by_vector_index.values())

    @property
    def vector_write_request_bytes(self) -> float:
        """Bytes that writes consumed of vector indexes, as the service reported."""
        return sum(taken.vector_write_request_bytes for taken in self.by_vector_index.values())

    @property
    def by_operation(self) -> dict[str, Usage]:
        """Per API operation (``"PutItem"``)."""
        with self.recorder as tally:
            return tally.by_operation

    @property
    def by_key(self) -> dict[KeyOfTable, Usage]:
        """Per (table, logical key); the units of batches are apportioned, as estimates."""
        with self.recorder as tally:
            return tally.keys.usages()

    @property
    def by_physical_key(self) -> dict[KeyOfTable, Usage]:
        """Per (table, physical key), of sharded tables only."""
        with self.recorder as tally:
            usages = tally.physical_keys.usages()
        return {(table, physical): usage for (table, _, physical), usage in usages.items()}

    @property
    def by_index_key(self) -> dict[KeyOfIndex, Usage]:
        """Per (table, index, stored key), of global indexes that do not have the table's partition key in theirs.

        Only calls that name the key count: puts, updates that set it (``SET status = :s``), and Queries of the index.
        A key of several attributes is a tuple. What a batch used of an index is divided equally over its items.
        """
        with self.recorder as tally:
            return tally.index_keys.usages()

    @property
    def by_tag(self) -> dict[tuple[str, str], Usage]:
        """Per (tag, value), of calls inside scopes with tags."""
        with self.recorder as tally:
            return tally.tags.usages()

    @property
    def cache(self) -> CacheUsage:
        """Reads of cached tables (:class:`shardkit.cache.CachedTable`): hits, misses, and the read units saved."""
        return sum(self.cache_by_table.values(), CacheUsage())

    @property
    def cache_by_table(self) -> dict[str, CacheUsage]:
        """The same per table name."""
        with self.recorder as tally:
            return dict(tally.lookups.by_table)

    @property
    def cache_by_key(self) -> dict[KeyOfTable, CacheUsage]:
        """The same per (table, logical key); pages of indexes have no key."""
        with self.recorder as tally:
            return tally.lookups.by_key

    @property
    def other_keys(self) -> Usage:
        """All that is not in ``by_key``: keys that it no longer holds, scans, statements, and unknown keys."""
        with self.recorder as tally:
            return tally.keys.others

    def hottest(self, n: int = 10, *, by: str | None = None) -> list[HotKey]:
        """Return the ``n`` keys that consumed the most units, estimates included, hottest first.

        Example:
            >>> meter.hottest(5)  # doctest: +SKIP
            [HotKey(table='Orders', key='2014-07-09', usage=Usage(read_units=0.0, write_units=812.0, ...)), ...]

        Args:
            n: the most keys to return.
            by: ``"read"`` or ``"write"`` to rank by read or write units; None for their sum.

        Returns:
            A :class:`HotKey` each. Once more than ``max_keys`` keys were seen, figures may be too low, at most by their
            ``uncertain`` units, which are at most the units of all keys divided by ``max_keys``.

        Raises:
            ConfigurationError: ``by`` or ``n`` is invalid.

        Cost:
            No request; one pass over the keys that are held.
        """
        if by not in _SIDES:
            raise ConfigurationError(f'by: must be "read", "write" or None (their sum), got {by!r}')
        check_count("n", n, "keys", least=0)
        with self.recorder as tally:
            keys = tally.keys
            return [HotKey(*key, usage, *keys.before(key)) for key, usage in keys.hottest(n, by)]

    def skew(self, key: KeyValue, *, table: str | None = None) -> advice.Skew:
        """Return how a logical key's units are spread over its shards.

        Example:
            >>> print(meter.skew("2014-07-09"))  # doctest: +SKIP
            Orders '2014-07-09': the hottest of 5 shards, '2014-07-09.3', took 22.0% of its units, ...

        Args:
            key: the logical key, as the application gives it.
            table: its table's name; optional if only one table was used.

        Returns:
            A :class:`Skew`: the units of each physical key, the share of the hottest, and the fair share.

        Raises:
            ConfigurationError: ``key`` is invalid, or ``table`` is missing and not exactly one table was used.

        Cost:
            No request; one pass over the physical keys that are held.
        """
        key = check_key(key)
        tables = sorted(self.by_table)
        if table is None and len(tables) != 1:
            raise ConfigurationError(f"table: required unless exactly one table was used; used were {tables}")
        with self.recorder as tally:
            return advice.skew_of(tally, table or tables[0], key)

    def advise(self, *, headroom: float = HEADROOM) -> list[advice.Advice]:
        """Return the keys of tables and indexes that need more than a partition serves, and how many shards each needs.

        Example:
            >>> for advice in meter.advise():  # doctest: +SKIP
            ...     print(advice)
            Orders '2014-07-09': 190 shards instead of 1: on 8 partitions (assumed: ...

        A partition serves 3,000 read units and 1,000 write units a second, independently. The advice is based on the
        busiest second of a key's hottest shard. A key that was throttled because its partition was too hot needs more
        shards than it has. The number of the table's partitions is unknown: they are assumed to serve twice what the
        key takes. Of global indexes, it sees the keys that ``by_index_key`` has; the advice then has the line that
        shards the index, in ``line``.

        Args:
            headroom: the part of a partition's throughput to leave free, from 0 to below 1.

        Returns:
            An :class:`Advice` for each key that is too hot, those that need most shards first.

        Raises:
            ConfigurationError: ``headroom`` is out of range.

        Cost:
            No request; one pass over the keys that are held.

        Source:
            DynamoDB Developer Guide, "Best practices for tables" (what a partition serves), "Burst and adaptive
            capacity" (a partition's reads and writes are managed independently).
        """
        with self.recorder as tally:
            return advice.advice_of(tally, headroom)

    def to_dict(self, *, hottest: int = 10) -> dict[str, Any]:
        """Return the figures as plain values that JSON can carry; ``docs/reference/capacity.md`` describes them.

        Args:
            hottest: how many of the hottest keys to include; keys have their wire form, ``{"S": "2014-07-09"}``.

        Raises:
            ConfigurationError: ``hottest`` is not an integer >= 0.
        """
        check_count("hottest", hottest, "keys", least=0)
        indexes, vectors = self.by_index, self.by_vector_index  # read before the tables, which then include theirs
        tables: dict[str, dict[str, Any]] = {
            table: {**usage.to_dict(), "indexes": {}, "vector_indexes": {}} for table, usage in self.by_table.items()
        }
        for (table, index), usage in indexes.items():
            tables[table]["indexes"][index] = usage.to_dict()
        for (table, index), taken in vectors.items():
            tables[table]["vector_indexes"][index] = taken._asdict()
        return {
            "name": self.name,
            "tags": dict(self.tags),
            "total": _all(self),
            "rates": self.rates.to_dict(),
            "tables": tables,
            "operations": {operation: usage.to_dict() for operation, usage in self.by_operation.items()},
            "by_tag": [{"tag": tag, "value": value, **usage.to_dict()} for (tag, value), usage in self.by_tag.items()],
            "throttles": self.throttles,
            "retries": self.retries,
            "hottest_keys": [
                {
                    "table": hot.table,
                    "key": dict(to_wire_item({"key": hot.key})["key"]),
                    **hot.usage.to_dict(),
                    "uncertain_read_units": hot.uncertain_read_units,
                    "uncertain_write_units": hot.uncertain_write_units,
                }
                for hot in self.hottest(hottest)
            ],
            "other_keys": self.other_keys.to_dict(),
            "cache": {
                **self.cache.to_dict(),
                "tables": {table: usage.to_dict() for table, usage in self.cache_by_table.items()},
            },
        }

    def to_json(self, *, hottest: int = 10) -> str:
        """Return :meth:`to_dict` as JSON."""
        return orjson.dumps(self.to_dict(hottest=hottest)).decode()

    def __str__(self) -> str:
        """Return the figures as a table: by rich if it is installed, else as plain text."""
        rows = _rows(self)
        try:
            from rich.console import Console  # noqa: PLC0415 - an extra
        except ImportError:
            return plain(rows)
        console = Console(file=io.StringIO(), width=_WIDE, color_system=None)
        with console.capture() as captured:
            console.print(_rich(rows))
        return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")

    def __rich__(self) -> ConsoleRenderable:
        return _rich(_rows(self))


def _all(totals: Totals) -> dict[str, float]:
    return {**totals.total.to_dict(), **{name: getattr(totals, name) for name in VectorBytes._fields}}


def _of_cache(usage: CacheUsage | None) -> dict[str, float]:
    if usage is None:
        return {}
    return {"cache_hits": usage.hits, "cache_misses": usage.misses, "saved_read_units": usage.saved_read_units}


def _rows(totals: Totals) -> list[list[str]]:
    """Return the headings and the rows; there are columns for estimates, bytes and the like only if there are any."""
    columns = ["requests", "read units", "write units"]
    found = _all(totals)
    if found["estimated_read_units"] or found["estimated_write_units"]:
        columns += ["estimated read units", "estimated write units"]
    columns += [name.replace("_", " ") for name in ("throttles", *VectorBytes._fields) if found[name]]
    if totals.cache_by_table:
        columns += ["cache hits", "cache misses", "saved read units"]
    rows = [[_text(totals.name), *columns], *([name, *_cells(row, columns)] for name, row in _named(totals))]
    if any(cell.startswith("~") for row in rows for cell in row[1:]):
        rows.append(["~ estimated; of a batch, requests are items", *[""] * len(columns)])
    return rows


def _named(totals: Totals) -> Iterator[tuple[str, Mapping[str, float]]]:
    cached, tables = totals.cache_by_table, totals.by_table
    yield "total", _all(totals) | _of_cache(totals.cache)
    for table in sorted({*tables, *cached}):
        yield f"table {table}", tables.get(table, Usage()).to_dict() | _of_cache(cached.get(table))
    for (table, index), usage in sorted(totals.by_index.items()):
        yield f"index {table} {index}", usage.to_dict()
    for (table, index), taken in sorted(totals.by_vector_index.items()):
        yield f"vector index {table} {index}", taken._asdict()
    for operation, usage in sorted(totals.by_operation.items()):
        yield operation, usage.to_dict()
    tags = sorted(totals.by_tag.items(), key=lambda pair: -pair[1].units_with_estimates)
    for (tag, value), usage in tags[:_SHOWN]:
        yield f"tag {_text(tag)}={_text(value):.60}", usage.to_dict()
    copied = totals.cache_by_key
    # The hottest, and then those that a cache has kept from being so.
    keys = {(hot.table, hot.key): hot.usage for hot in totals.hottest(_SHOWN)}
    famous = sorted(copied.items(), key=lambda pair: -pair[1].saved_read_units)[:_SHOWN]
    for (table, key), usage in {**keys, **{one: keys.get(one, Usage()) for one, _ in famous}}.items():
        yield f"key {table} {brief(key, 60)}", usage.to_dict() | _of_cache(copied.get((table, key)))


def _text(name: str) -> str:
    # Names may come from the caller's users: a line break would break the row, an escape sequence do worse.
    return name if name.isprintable() else repr(name)


def _cells(figures: Mapping[str, float], columns: Sequence[str]) -> Iterator[str]:
    for column in columns:
        value = figures.get(column.replace(" ", "_"))
        estimate = figures.get(f"estimated_{column.replace(' ', '_')}", 0)
        if value is None:  # a vector index has no units, everything else no bytes
            yield ""
        elif estimate and f"estimated {column}" not in columns:  # a batch reports the units of a table, not of a key
            yield f"~{figure(value + estimate)}"
        elif isinstance(value, int) or column.endswith("bytes"):
            yield f"{value:,.0f}"
        else:
            yield figure(value)


def _rich(rows: Sequence[Sequence[str]]) -> Table:
    from rich import box  # noqa: PLC0415 - an extra
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, heading in enumerate(rows[0]):
        table.add_column(Text(heading), justify="right" if place else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def plain(rows: Sequence[Sequence[str]]) -> str:
    """Align the columns with spaces, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


class Scope(Totals):
    """Counts the calls made inside its ``with``, in this context and its copies; see :meth:`CapacityMeter.scope`."""

    def __init__(self, meter: Totals, name: str, recorder: Recorder, tags: Mapping[str, str]) -> None:
        super().__init__(name, recorder, tags)
        self.meter = meter

    def __enter__(self) -> Self:
        _scopes.set((*_scopes.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        # A ContextVar's token would not do: a generator or a task may leave the scope in another context.
        stack = _scopes.get()
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is self:
                _scopes.set(stack[:place] + stack[place + 1 :])
                return


def scopes_of(meter: Totals) -> tuple[Scope, ...]:
    """Return the scopes of a meter that this context is inside of, outermost first, each once."""
    scopes = _scopes.get()
    return tuple(dict.fromkeys(scope for scope in scopes if scope.meter is meter)) if scopes else ()
