"""Records that stand in lines: JSON Lines and DynamoDB JSON. CSV is read by ``delimited``, to the same protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn, Protocol

from shardkit.bulk.sources.base import BadRecord, Record
from shardkit.bulk.writes import DeadLetter
from shardkit.dynamodb.decode import from_wire_item
from shardkit.errors import InvalidValueError, ShardkitError

__all__ = ["DynamoDBJson", "Format", "JsonLines", "Skip", "is_dynamodb_json"]

_DEAD_LETTER = frozenset({"Item", "shard", "reason", "load", "at"})
_LETTERS = frozenset({"S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"})


class Skip(Protocol):
    """Whether the n-th record of a section is done, and need not be read again."""

    def __call__(self, number: int, /) -> bool:
        """Answer for one record."""


class Format(Protocol):
    """How lines become records."""

    name: str
    quotes: bytes
    """The byte that opens and closes cells in which a line's end is none; empty: there is no such thing."""

    def records(self, lines: Iterator[bytes], skip: Skip | None = None) -> Iterator[tuple[int, int, Record]]:
        """Give each record that is not skipped, its number, and the lines before it.

        A record is given as soon as its last line is read: no line more is taken.
        """


class JsonLines:
    """A JSON object a line; numbers stay exact, null is DynamoDB's NULL."""

    name = "jsonl"
    quotes = b""

    def records(self, lines: Iterator[bytes], skip: Skip | None = None) -> Iterator[tuple[int, int, Record]]:
        """Read an object a line; blank lines are none."""
        number = 0
        for at, line in enumerate(lines):
            if line.isspace():
                continue
            if skip is None or not skip(number):
                yield number, at, self._record(line)
            number += 1

    def _record(self, line: bytes) -> Record:
        try:
            item = _loads(line.decode())
            if not isinstance(item, dict):
                raise InvalidValueError(f"the line is a JSON {type(item).__name__}; give an object a line")
            return self._item(item)
        except (ShardkitError, ArithmeticError, RecursionError, ValueError) as error:
            return BadRecord(line.decode(errors="replace").rstrip("\r\n"), _explained(error))

    def _item(self, parsed: dict[str, Any]) -> dict[str, Any]:
        return parsed


class DynamoDBJson(JsonLines):
    """An item a line in wire values, plain or as ``{"Item": {…}}``: DynamoDB's exports to S3, and dead letters."""

    name = "dynamodb"

    def _item(self, parsed: dict[str, Any]) -> dict[str, Any]:
        if "NewImage" in parsed or "Keys" in parsed:
            raise InvalidValueError("the line is of an incremental export, which has deletions too; give a full export")
        if not _wraps(parsed):
            return from_wire_item(parsed)
        if condition := next((name for name in parsed if "condition" in name.lower()), None):
            raise InvalidValueError(
                f"the line has a condition ({condition}), which no batch can check; put its item with put_item(), or "
                "take the condition out to put it in any case"
            )
        item = from_wire_item(parsed["Item"])
        letter = parsed.keys() >= _DEAD_LETTER and type(parsed["shard"]) is int
        return DeadLetter(item, parsed["shard"]) if letter else item


def is_dynamodb_json(record: dict[str, Any]) -> bool:
    """Whether an object that JSON Lines would read as it stands is an item in wire values."""
    item = record["Item"] if _wraps(record) else record
    return bool(item) and all(map(_is_wire, item.values()))


def _wraps(record: dict[str, Any]) -> bool:
    """Whether what stands under Item is an item, and not the value of an attribute of that name."""
    return isinstance(record.get("Item"), dict) and not _is_wire(record["Item"])


def _is_wire(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= _LETTERS


def _no_number(constant: str) -> NoReturn:
    raise InvalidValueError(f"the line holds {constant}, which DynamoDB has no number for; write null, or leave it out")


_loads = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_number).decode


def _explained(error: Exception) -> Exception:
    if isinstance(error, ShardkitError):
        return error
    return InvalidValueError(f"the line cannot be read as an item ({error}); mend it, or name another --format")
