"""JSON Lines and DynamoDB JSON, and the protocol of line formats (CSV: ``delimited``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NoReturn, Protocol, TypeAlias

from shardkit.bulk.sources.base import BadRecord, Record
from shardkit.bulk.writes import DeadLetter
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.values import WireItem
from shardkit.errors import InvalidValueError, ShardkitError

_DEAD_LETTER = frozenset({"Item", "shard", "reason", "load", "at"})
_TEXT_LETTER = frozenset({"text", "place", "code", "reason", "load", "at"})
_LETTERS = frozenset({"S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"})


Skip: TypeAlias = Callable[[int], bool]
"""Whether the n-th record of a section is done, and is not read again."""


class Format(Protocol):
    def records(self, lines: Iterator[bytes], skip: Skip | None = None) -> Iterator[tuple[int, int, Record]]:
        """Yield each record that is not skipped: its number, the lines before it, and the record.

        It is yielded once its last line is read, before any further line is taken.
        """


class JsonLines:
    """One JSON object per line; numbers stay exact, null becomes DynamoDB's NULL."""

    def records(self, lines: Iterator[bytes], skip: Skip | None = None) -> Iterator[tuple[int, int, Record]]:
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
                raise InvalidValueError(f"the line is a JSON {type(item).__name__}; give one object per line")
            return self._item(item)
        except (ShardkitError, ArithmeticError, RecursionError, ValueError) as error:
            return BadRecord(line.decode(errors="replace").rstrip("\r\n"), _explained(error))

    def _item(self, parsed: dict[str, Any]) -> dict[str, Any]:
        return parsed


class DynamoDBJson(JsonLines):
    """One item in wire values per line, plain or as ``{"Item": {…}}``: DynamoDB's exports to S3, dead letters.

    ``logical`` returns a stored item with its logical key; dead letters have logical keys already.
    """

    def __init__(self, logical: Callable[[WireItem], WireItem] | None = None) -> None:
        self._logical = logical

    def _item(self, parsed: dict[str, Any]) -> dict[str, Any]:
        if "NewImage" in parsed or "Keys" in parsed:
            raise InvalidValueError(
                "the line is of an incremental export, which also has deletions; give a full export, or read the lines "
                "with shardkit.streams"
            )
        if _is_text_letter(parsed):
            raise InvalidValueError(
                f"the line is a dead letter whose record was not an item ({parsed['place']}: "
                f"{parsed['reason']!s:.200}); correct it there and load that, or replace text "
                "by Item with the item in DynamoDB JSON"
            )
        if not _wraps(parsed):
            return from_wire_item(self._logical(parsed) if self._logical else parsed)
        if condition := next((name for name in parsed if "condition" in name.lower()), None):
            raise InvalidValueError(
                f"the line has a condition ({condition}), which a batch cannot check; write its item with put_item(), "
                "or remove the condition to write it unconditionally"
            )
        if self._logical and "reason" not in parsed:
            return from_wire_item(self._logical(parsed["Item"]))
        item = from_wire_item(parsed["Item"])
        letter = parsed.keys() >= _DEAD_LETTER and type(parsed["shard"]) is int
        return DeadLetter(item, parsed["shard"]) if letter else item


def is_dynamodb_json(record: dict[str, Any]) -> bool:
    item = record["Item"] if _wraps(record) else record
    return _is_text_letter(record) or (bool(item) and all(map(_is_wire, item.values())))


def _is_text_letter(record: dict[str, Any]) -> bool:
    """Return whether it is a dead letter of a record that is not an item."""
    return record.keys() >= _TEXT_LETTER and isinstance(record["text"], str)


def _wraps(record: dict[str, Any]) -> bool:
    """Return whether ``Item`` is an item, and not the value of an attribute of that name."""
    return isinstance(record.get("Item"), dict) and not _is_wire(record["Item"])


def _is_wire(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and value.keys() <= _LETTERS


def _no_number(constant: str) -> NoReturn:
    raise InvalidValueError(f"the line has {constant}, which DynamoDB cannot hold; write null, or omit it")


_parsed = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_number).raw_decode


def _loads(text: str) -> Any:
    """Parse a line, faster than ``decode``."""
    text = text.strip(" \t\r\n")
    parsed, end = _parsed(text)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return parsed


def _explained(error: Exception) -> Exception:
    if isinstance(error, ShardkitError):
        return error
    return InvalidValueError(f"the line cannot be read as an item ({error}); fix it, or give another format")
