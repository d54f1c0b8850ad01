"""Python values ⇄ wire values: ``"x"`` as a boto3 resource shows it, ``{"S": "x"}`` as it goes over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

from shardkit.errors import InvalidKeyError, InvalidValueError

__all__ = ["Binary", "from_wire", "from_wire_item", "from_wire_response", "to_wire_item", "to_wire_params"]

_serialize: Callable[[Any], Any] = TypeSerializer().serialize
_deserialize: Callable[[Any], Any] = TypeDeserializer().deserialize

WireValue: TypeAlias = Mapping[str, Any]
WireItem: TypeAlias = dict[str, WireValue]

# Where attribute values stand in requests and responses (botocore's model: every place of shape AttributeValue).
_REQUEST_MAPS = ("Item", "Key", "ExclusiveStartKey", "ExpressionAttributeValues")
_ITEMS = ("Item", "Key")
_REQUEST_LEGACY = ("KeyConditions", "QueryFilter", "ScanFilter", "Expected", "AttributeUpdates")
_RESPONSE_MAPS = ("Item", "Attributes", "LastEvaluatedKey")


def from_wire(value: Mapping[str, Any]) -> Any:
    """Give the Python value of one wire value, of the types that a boto3 resource shows."""
    return _deserialize(value)


def to_wire_item(item: Mapping[str, Any]) -> WireItem:
    """Give the wire form of an item or a key."""
    if not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"an item or a key is a mapping of attribute names to values, got {type(item).__name__}: {item!r:.200}"
        )
    try:
        return {name: _serialize(value) for name, value in item.items()}
    except (TypeError, ArithmeticError):
        return {name: _serialized(f"attribute {name!r}", value) for name, value in item.items()}


def _serialized(what: str, value: Any) -> WireValue:
    try:
        wire: WireValue = _serialize(value)
    except (TypeError, ArithmeticError) as error:
        reason = str(error) if isinstance(error, TypeError) else "a number has 38 digits, and is below 1E+126"
        raise InvalidValueError(
            f"{what} is {value!r:.100}, which DynamoDB cannot hold: {reason}; give str, bytes, int, Decimal, bool, "
            "None, or sets, lists and dicts of these"
        ) from error
    return wire


def from_wire_item(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the Python values of an item or a key."""
    return {name: _deserialize(value) for name, value in item.items()}


def to_wire_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Give a request's parameters with every attribute value in wire form; what the caller gave is not changed."""
    wire = dict(params)
    for name in _REQUEST_MAPS:
        # What is no mapping is for botocore's validation to refuse; items and keys are read here first.
        if isinstance(wire.get(name), Mapping) or (name in _ITEMS and name in wire):
            wire[name] = to_wire_item(wire[name])
    for name in _REQUEST_LEGACY:
        if isinstance(wire.get(name), Mapping):
            wire[name] = {attribute: _legacy(attribute, condition) for attribute, condition in wire[name].items()}
    return wire


def _legacy(attribute: str, condition: Any) -> Any:
    if not isinstance(condition, Mapping):
        return condition
    wire = dict(condition)
    if "Value" in wire:
        wire["Value"] = _serialized(f"attribute {attribute!r}", wire["Value"])
    if isinstance(wire.get("AttributeValueList"), list | tuple):
        wire["AttributeValueList"] = [
            _serialized(f"attribute {attribute!r}", value) for value in wire["AttributeValueList"]
        ]
    return wire


def from_wire_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """Give a response with every attribute value as a Python value; a cursor of shardkit's own stays as it is."""
    shown = dict(response)
    for name in _RESPONSE_MAPS:
        if isinstance(shown.get(name), Mapping):
            shown[name] = {
                attribute: _deserialize(value) if isinstance(value, Mapping) else value
                for attribute, value in shown[name].items()
            }
    if "Items" in shown:
        shown["Items"] = [from_wire_item(item) for item in shown["Items"]]
    metrics = shown.get("ItemCollectionMetrics")
    if isinstance(metrics, Mapping) and "ItemCollectionKey" in metrics:
        shown["ItemCollectionMetrics"] = {
            **metrics,
            "ItemCollectionKey": from_wire_item(metrics["ItemCollectionKey"]),
        }
    return shown
