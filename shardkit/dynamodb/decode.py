"""Wire values to Python values: ``{"S": "x"}`` to ``"x"``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.values import Binary, WireValue, to_number
from shardkit.errors import InvalidValueError, brief

_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


def from_wire(value: WireValue) -> Any:
    """Return the Python value of a wire value, with the types that a boto3 resource returns."""
    try:
        return _read(value)
    except _UNREADABLE as error:
        raise _unreadable("value", value, error) from error


def from_wire_item(item: Mapping[str, WireValue]) -> dict[str, Any]:
    """Return the Python values of an item or a key; binary may be base64 text or bytes.

    Example:
        >>> from_wire_item({"Date": {"S": "2014-07-09"}, "Gift": {"BOOL": True}})
        {'Date': '2014-07-09', 'Gift': True}

    Raises:
        InvalidValueError: a value is not a wire value, or has an unknown type (also a TypeError, which boto3 raises).
        ArithmeticError: a number that DynamoDB cannot hold, as in boto3.
    """
    shown: dict[str, Any] = {}
    try:
        for name, value in item.items():
            (letter,) = value
            # The most common types without a call: every item that is read goes through here.
            if letter == "S" or letter == "BOOL":  # noqa: PLR1714 - two comparisons are faster than a tuple
                shown[name] = value[letter]
            elif letter == "N":
                shown[name] = to_number(value["N"])
            else:
                shown[name] = _READERS[letter](value[letter])
    except _UNREADABLE:
        refuse_unreadable(item)
        raise
    return shown


def refuse_unreadable(item: Mapping[str, WireValue]) -> None:
    """Raise InvalidValueError for the first attribute that is not a wire value, in its smallest part.

    :func:`from_wire_item` trusts the service's answers; what may be damaged needs this check.

    Raises:
        ArithmeticError: a number that DynamoDB cannot hold.
    """
    for name, value in item.items():
        try:
            _check(value)
        except _UNREADABLE as error:
            raise _unreadable(f"attribute {name!r}", value, error) from error


def as_given(value: WireValue) -> str:
    """Return a wire value's text for a message, as Python has it: ``5`` for ``{"N": "5"}``."""
    try:
        read = from_wire(value)
    except (ArithmeticError, InvalidValueError):
        return brief(value)
    return str(read) if isinstance(read, Decimal) else brief(binary_bytes(value["B"]) if "B" in value else read)


def _read(value: WireValue) -> Any:
    (letter,) = value
    return _READERS[letter](value[letter])


def _check(value: Any) -> None:
    ((letter, content),) = value.items()
    if letter == "S" and type(content) is str:  # fast path: most attributes
        return
    if letter in _KINDS and not isinstance(content, _KINDS[letter]):  # a text can be read as a list
        raise TypeError(f"the content of {letter} is of type {type(content).__name__}")
    if letter in {"L", "M"}:
        for member in content if letter == "L" else content.values():
            _check(member)
    else:
        _READERS[letter](content)


def _read_number(text: str) -> Decimal:
    number = to_number(_read_text(text))
    if not number.is_finite():  # to_number returns NaN for a text that is not a number
        raise ValueError(f"{brief(text)} is not a number (Infinity and NaN are not supported)")
    return number


def _read_binary(content: Any) -> Any:
    return Binary(binary_bytes(content))


_read_text: Callable[[Any], str] = str.__str__  # refuses what is not a str
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "S": _read_text,
    "N": _read_number,
    "B": _read_binary,
    "BOOL": lambda content: content,
    "NULL": lambda _: None,
    "M": lambda members: {name: _read(value) for name, value in members.items()},
    "L": lambda members: [_read(value) for value in members],
    "SS": lambda members: set(map(_read_text, members)),
    "NS": lambda members: set(map(_read_number, members)),
    "BS": lambda members: set(map(_read_binary, members)),
}


_KINDS: Mapping[str, Any] = {
    "BOOL": bool,
    "NULL": bool,
    "M": dict | Mapping,
    **dict.fromkeys(("L", "SS", "NS", "BS"), list | tuple | AbstractSet),
}


def _unreadable(what: str, value: Any, error: Exception) -> InvalidValueError:
    return InvalidValueError(
        f"{what}: must be a wire value, got {brief(value)} ({error}); give one type ({' '.join(_READERS)}) and its "
        'content, for example {"S": "x"} or {"N": "12.5"}'
    )
