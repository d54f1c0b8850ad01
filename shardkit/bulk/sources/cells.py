"""Convert cells of CSV and TSV to values: types, given or inferred, and empty cells."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import DYNAMODB_CONTEXT

from shardkit.errors import ConfigurationError, InvalidValueError, brief

CELL_TYPES = ("S", "N", "B", "BOOL")
"""Types of a cell: text, number, binary as base64, true or false."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
# Not 007, which is an identifier, and not 1E5, which may be one.
_CLEARLY_A_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?)?").fullmatch
_DIGITS = 38
_BOOLEANS = {"true": True, "false": False}


def parse_types(text: str) -> dict[str, str]:
    """Parse ``Total:N,Gift:BOOL`` as one type per column."""
    types = {}
    for part in filter(None, text.split(",")):
        name, colon, letter = part.rpartition(":")
        if not colon:
            wanted = part.replace("=", ":") if "=" in part else f"{part}:N"
            raise ConfigurationError(f"types: {part!r} has no colon; give {wanted!r}")
        types[name.strip()] = letter.strip()
    return check_types(types, text)


def check_types(types: Mapping[str, str], given: object) -> dict[str, str]:
    if not isinstance(types, Mapping):
        raise ConfigurationError(f"types: must be text or a mapping, got {brief(given)}; give 'Total:N,Gift:BOOL'")
    if wrong := {name: letter for name, letter in types.items() if not name or letter not in CELL_TYPES}:
        raise ConfigurationError(
            f"types: {given!r} has {wrong}; give columns with one of {', '.join(CELL_TYPES)}: 'Total:N,Gift:BOOL'"
        )
    return dict(types)


def infer_types(rows: Iterable[Mapping[str, str]], absent: frozenset[str]) -> dict[str, str]:
    """Infer each column's type from sample rows: N or BOOL if every cell clearly is one, else S.

    A number with a leading zero (a postcode) is text, and so is an empty column.
    """
    columns: dict[str, set[str]] = {}
    for row in rows:
        for name, cell in row.items():
            columns.setdefault(name, set()).add(cell)
    return {name: _kind(cells - absent) for name, cells in columns.items()}


def _kind(cells: set[str]) -> str:
    if cells and all(_CLEARLY_A_NUMBER(cell) and len(cell) <= _DIGITS for cell in cells):
        return "N"
    return "BOOL" if cells and all(cell.lower() in _BOOLEANS for cell in cells) else "S"


@dataclass(frozen=True, slots=True)
class Cells:
    """How the cells of a row become an item; the options are those of :func:`shardkit.open_source`."""

    types: Mapping[str, str]
    absent: frozenset[str]
    empty_strings: bool = False

    def converters(self, names: Sequence[str]) -> list[tuple[str, Callable[[str], Any] | None, frozenset[str]]]:
        """Return each column's name, conversion and absent cells, for ``item_of``."""
        kept = self.absent - {""} if self.empty_strings else self.absent
        kinds = [self.types.get(name, "S") for name in names]
        return [
            (name, _CONVERTERS[kind], kept if kind == "S" else self.absent)
            for name, kind in zip(names, kinds, strict=True)
        ]


def item_of(columns: list[tuple[str, Callable[[str], Any] | None, frozenset[str]]], row: list[str]) -> dict[str, Any]:
    if len(row) != len(columns):
        raise InvalidValueError(
            f"the row has {len(row)} cells, the header {len(columns)}; quote cells that hold the delimiter"
        )
    item = {}
    for (name, convert, absent), cell in zip(columns, row, strict=True):
        if cell in absent:
            continue
        if convert is None:
            item[name] = cell
            continue
        try:
            item[name] = convert(cell)
        except ValueError as error:
            raise InvalidValueError(f"column {name!r} holds {brief(cell)}, {error}") from None
    return item


def _number(cell: str) -> int | Decimal:
    if cell.isdigit() and cell.isascii() and len(cell) <= _DIGITS:  # most cells, and faster
        return int(cell)
    if _NUMBER(cell) is None:
        raise ValueError("which is not a number; fix it, name it as absent, or make the column S")
    try:
        return DYNAMODB_CONTEXT.create_decimal(cell)
    except ArithmeticError:
        raise ValueError(
            f"which DynamoDB cannot hold: numbers have up to {_DIGITS} digits and are below 1E+126; make the column S"
        ) from None


def _boolean(cell: str) -> bool:
    try:
        return _BOOLEANS[cell.lower()]
    except KeyError:
        raise ValueError("which is neither true nor false; fix it, name it as absent, or make the column S") from None


def _binary(cell: str) -> bytes:
    try:
        return base64.b64decode(cell, validate=True)
    except ValueError:
        raise ValueError("which is not base64; fix it, or make the column S") from None


_CONVERTERS: dict[str, Callable[[str], Any] | None] = {"S": None, "N": _number, "BOOL": _boolean, "B": _binary}
