"""What a scope's or a meter's figures look like: as plain values, as JSON, and as a table for people."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from shardkit.capacity.charge import KeyValue
from shardkit.capacity.usage import VectorBytes, figure
from shardkit.core.checks import check_count
from shardkit.dynamodb.encode import to_wire_item

if TYPE_CHECKING:
    from rich.table import Table

    from shardkit.capacity.scopes import Totals

__all__ = ["as_dict", "as_json", "as_text", "plain", "rich_table", "table_of"]

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
