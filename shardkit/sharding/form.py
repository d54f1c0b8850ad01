"""The form in which a face's caller gives and gets attribute values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shardkit.dynamodb.decode import from_wire, from_wire_item, from_wire_response
from shardkit.dynamodb.encode import to_wire_item, to_wire_params
from shardkit.dynamodb.values import WireItem

__all__ = ["PYTHON_VALUES", "WIRE_VALUES", "Form"]

Item = Mapping[str, Any]


def _as_it_is(given: Any) -> Any:
    return given


class _PythonValues(Mapping[str, Any]):
    """A wire item's Python values, each made when it is read: a strategy reads few of them."""

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
    """How a face's caller writes attribute values.

    Operations decide on wire values. What the caller gives is read by ``params`` and ``item``; what the caller gets is
    made by ``shown`` and ``response``, where an answer comes in: its wire form takes three times the memory.

    Args:
        params: Makes wire parameters of a request's.
        item: Makes a wire item of an item or a key.
        shown: Makes the caller's form of a wire item or key.
        response: Makes the caller's form of a wire response.
        python: Makes Python values of the caller's item or key: what a strategy's ``by`` reads.
    """

    params: Callable[[Item], dict[str, Any]]
    item: Callable[[Item], WireItem]
    shown: Callable[[WireItem], dict[str, Any]]
    response: Callable[[Item], dict[str, Any]]
    python: Callable[[Item], Item]


PYTHON_VALUES = Form(to_wire_params, to_wire_item, from_wire_item, from_wire_response, _as_it_is)
"""What a boto3 resource shows: ``"x"``, ``Decimal(1)``."""

WIRE_VALUES = Form(dict, dict, _as_it_is, dict, _PythonValues)
"""What a botocore client shows: ``{"S": "x"}``. Nothing is converted."""
