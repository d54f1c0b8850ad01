"""The forms of attribute values that callers pass and receive: Python values or wire values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.decode import from_wire, from_wire_item
from shardkit.dynamodb.encode import to_wire_item, to_wire_params
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError

Item = Mapping[str, Any]
_SHORTEST_SECRET = 16


def _as_it_is(given: Any) -> Any:
    return given


def _parsed_item(item: WireItem) -> dict[str, Any]:
    """Return a wire item as botocore's parser does; items without binary values as they are."""
    # Fast path: most items have none, and this runs for each.
    if all(map(_MAY_HOLD_BINARY.isdisjoint, item.values())):
        return item
    return {name: _parsed(value) for name, value in item.items()}


def _parsed(value: WireValue) -> WireValue:
    ((letter, content),) = value.items()
    return {letter: _PARSED[letter](content)} if letter in _MAY_HOLD_BINARY else value


_PARSED: Mapping[str, Callable[[Any], Any]] = {
    "B": binary_bytes,
    "BS": lambda members: [binary_bytes(member) for member in members],
    "L": lambda members: [_parsed(member) for member in members],
    "M": lambda members: {name: _parsed(member) for name, member in members.items()},
}
_MAY_HOLD_BINARY = frozenset(_PARSED)


class _PythonValues(Mapping[str, Any]):
    """The Python values of a wire item, converted when read: a strategy reads few of them."""

    def __init__(self, item: Item) -> None:
        self._item = item

    def __getitem__(self, name: str) -> Any:
        return from_wire(self._item[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._item)

    def __len__(self) -> int:
        return len(self._item)


@dataclass(frozen=True)
class Form:
    """Converts between the caller's form of attribute values and wire values, which operations work on.

    Answers are converted as soon as they arrive, because wire values take three times the memory.

    Args:
        params: Converts a request's parameters to wire values.
        item: Converts an item or a key to wire values.
        shown: Converts a wire item or key to the caller's form.
        python: Converts the caller's item or key to Python values, which a strategy's ``by`` reads.
        keys_as_cursors: ``LastEvaluatedKey`` is a key, whose attributes libraries read, instead of a token.
        cursor_secrets: The first signs tokens, all verify them; without any, tokens are not signed.
    """

    params: Callable[[Item], dict[str, Any]]
    item: Callable[[Item], WireItem]
    shown: Callable[[WireItem], dict[str, Any]]
    python: Callable[[Item], Item]
    keys_as_cursors: bool = False
    cursor_secrets: tuple[bytes, ...] = field(default=(), repr=False)

    def signing(self, given: bytes | Sequence[bytes] | None) -> Form:
        """Return the form with the secrets of ``cursor_secret=``; None: as it is."""
        if given is None:
            return self
        secrets = [given] if isinstance(given, bytes) else given if isinstance(given, list | tuple) else []
        if not secrets or not all(isinstance(one, bytes) and len(one) >= _SHORTEST_SECRET for one in secrets):
            raise ConfigurationError(
                f"cursor_secret: must be bytes, at least {_SHORTEST_SECRET}, or a list of these, got "
                f"{type(given).__name__}; for example secrets.token_bytes(32), the same in all processes"
            )
        return replace(self, keys_as_cursors=False, cursor_secrets=tuple(secrets))


PYTHON_VALUES = Form(to_wire_params, to_wire_item, from_wire_item, _as_it_is)
"""The form of a boto3 resource: ``"x"``, ``Decimal(1)``."""

WIRE_VALUES = Form(dict, dict, _parsed_item, _PythonValues, keys_as_cursors=True)
"""The form of a botocore client: ``{"S": "x"}``, and binary values as bytes. Nothing else is converted."""
