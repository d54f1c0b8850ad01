"""Wire values to Python values: ``{"S": "x"}`` to ``"x"``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from shardkit.dynamodb.body import binary
from shardkit.dynamodb.values import CONTAINER_BYTES, Binary, WireValue, number_size, to_number, utf8_size
from shardkit.errors import InvalidValueError, brief

# Where attribute values stand in responses (botocore's model: every place of shape AttributeValue).
_RESPONSE_MAPS = ("Item", "Attributes")


def from_wire(value: WireValue) -> Any:
    """Give the Python value of one wire value, of the types that a boto3 resource shows."""
    try:
        (letter,) = value
        return _READERS[letter](value[letter])[0]
    except (AttributeError, LookupError, TypeError, ValueError):
        _refuse_unreadable("a value", value)
        raise


def from_wire_item(item: Mapping[str, WireValue]) -> dict[str, Any]:
    """Give the Python values of an item or a key.

    Example:
        >>> from_wire_item({"Date": {"S": "2014-07-09"}, "Gift": {"BOOL": True}})
        {'Date': '2014-07-09', 'Gift': True}

    Args:
        item: attribute names to wire values; binary as base64 text or bytes.

    Raises:
        InvalidValueError: a value is not in wire form, or of an unknown type; it is a TypeError, as boto3 raises.
        ArithmeticError: a number that DynamoDB cannot hold: as boto3.

    Cost:
        One pass; without the sizes, half of what :func:`sized_from_wire_item` takes: every item read goes through here.
    """
    shown: dict[str, Any] = {}
    try:
        for name, value in item.items():
            (letter,) = value
            # The commonest types without a call.
            if letter == "S" or letter == "BOOL":  # noqa: PLR1714 - two comparisons are faster than a tuple
                shown[name] = value[letter]
            elif letter == "N":
                shown[name] = to_number(value["N"])
            else:
                shown[name] = _READERS[letter](value[letter])[0]
    except (AttributeError, LookupError, TypeError, ValueError):
        _refuse_unreadable_members(item)
        raise
    return shown


def sized_from_wire_item(item: Mapping[str, WireValue]) -> tuple[dict[str, Any], int]:
    """Give the Python values of an item or a key, and its size in bytes.

    Example:
        >>> sized_from_wire_item({"Date": {"S": "2014-07-09"}, "Gift": {"BOOL": True}})
        ({'Date': '2014-07-09', 'Gift': True}, 19)

    Args:
        item: attribute names to wire values; binary as base64 text or bytes.

    Raises:
        InvalidValueError: a value is not in wire form, or of an unknown type; it is a TypeError, as boto3 raises.
        ArithmeticError: a number that DynamoDB cannot hold: as boto3.

    Cost:
        One pass, 2 µs for ten attributes.
    """
    try:
        return _read_map(item)
    except (AttributeError, LookupError, TypeError, ValueError):
        _refuse_unreadable_members(item)
        raise


def from_wire_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """Give a response with every attribute value as a Python value; cursors are written apart."""
    shown = dict(response)
    for name in _RESPONSE_MAPS:
        if isinstance(shown.get(name), Mapping):
            shown[name] = from_wire_item(shown[name])
    if "Items" in shown:
        shown["Items"] = [from_wire_item(item) for item in shown["Items"]]
    metrics = shown.get("ItemCollectionMetrics")
    if isinstance(metrics, Mapping) and "ItemCollectionKey" in metrics:
        shown["ItemCollectionMetrics"] = {
            **metrics,
            "ItemCollectionKey": from_wire_item(metrics["ItemCollectionKey"]),
        }
    return shown


def _read_map(members: Mapping[str, WireValue]) -> tuple[dict[str, Any], int]:
    shown: dict[str, Any] = {}
    size = 0
    for name, value in members.items():
        (letter,) = value
        content = value[letter]
        size += len(name) if name.isascii() else utf8_size(name)
        # The commonest types without a call.
        if letter == "S":
            shown[name] = content
            size += len(content) if content.isascii() else utf8_size(content)
        elif letter == "N":
            shown[name] = to_number(content)
            size += number_size(content)
        elif letter == "BOOL":
            shown[name] = content
            size += 1
        else:
            shown[name], more = _READERS[letter](content)
            size += more
    return shown, size


def _read_list(members: list[WireValue]) -> tuple[list[Any], int]:
    shown = []
    size = CONTAINER_BYTES + len(members)
    for value in members:
        (letter,) = value
        member, more = _READERS[letter](value[letter])
        shown.append(member)
        size += more
    return shown, size


def _read_document(members: Mapping[str, WireValue]) -> tuple[dict[str, Any], int]:
    shown, size = _read_map(members)
    return shown, size + CONTAINER_BYTES + len(members)


def _read_binary(content: Any) -> tuple[Any, int]:
    raw = binary(content)
    return Binary(raw), len(raw)


def _read_set(read: Callable[[Any], tuple[Any, int]]) -> Callable[[list[Any]], tuple[set[Any], int]]:
    def read_members(members: list[Any]) -> tuple[set[Any], int]:
        pairs = [read(member) for member in members]
        return {member for member, _ in pairs}, sum(size for _, size in pairs)

    return read_members


def _read_text(content: str) -> tuple[str, int]:
    return content, utf8_size(content)


def _read_number(content: str) -> tuple[Decimal, int]:
    return to_number(content), number_size(content)


_READERS: Mapping[str, Callable[[Any], tuple[Any, int]]] = {
    "S": _read_text,
    "N": _read_number,
    "B": _read_binary,
    "BOOL": lambda content: (content, 1),
    "NULL": lambda _: (None, 1),
    "M": _read_document,
    "L": _read_list,
    "SS": _read_set(_read_text),
    "NS": _read_set(_read_number),
    "BS": _read_set(_read_binary),
}


def _refuse_unreadable_members(item: Any) -> None:
    for name, value in item.items():
        _refuse_unreadable(f"attribute {name!r}", value)


def _refuse_unreadable(what: str, value: Any) -> None:
    try:
        _read_map({"": value})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"{what} is no wire value that can be read, got {brief(value)} ({error}); give one type "
            f'({" ".join(_READERS)}) and its content, for example {{"S": "x"}} or {{"N": "12.5"}}'
        ) from error
