"""Python values ⇄ wire values: ``"x"`` as a boto3 resource shows it, ``{"S": "x"}`` as it goes over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

from shardkit.errors import InvalidKeyError

__all__ = ["Binary", "from_wire", "from_wire_item", "from_wire_response", "to_wire", "to_wire_item", "to_wire_params"]

_serialize: Callable[[Any], dict[str, Any]] = TypeSerializer().serialize
_deserialize: Callable[[Mapping[str, Any]], Any] = TypeDeserializer().deserialize

WireValue = dict[str, Any]
WireItem = dict[str, WireValue]

# Where attribute values stand in requests and responses (botocore's model: every place of shape AttributeValue).
_REQUEST_MAPS = ("Item", "Key", "ExclusiveStartKey", "ExpressionAttributeValues")
_REQUEST_LEGACY = ("KeyConditions", "QueryFilter", "ScanFilter", "Expected", "AttributeUpdates")
_RESPONSE_MAPS = ("Item", "Attributes", "LastEvaluatedKey")


def to_wire(value: Any) -> WireValue:
    """Give the wire form of one Python value, by boto3's own rules (a float is refused)."""
    return _serialize(value)


def from_wire(value: Mapping[str, Any]) -> Any:
    """Give the Python value of one wire value, of the types that a boto3 resource shows."""
    return _deserialize(value)


def to_wire_item(item: Mapping[str, Any]) -> WireItem:
    """Give the wire form of an item or a key."""
    if not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"an item or a key is a mapping of attribute names to values, got {type(item).__name__}: {item!r:.200}"
        )
    return {name: _serialize(value) for name, value in item.items()}


def from_wire_item(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the Python values of an item or a key."""
    return {name: _deserialize(value) for name, value in item.items()}


def to_wire_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Give a request's parameters with every attribute value in wire form; what the caller gave is not changed."""
    wire = dict(params)
    for name in _REQUEST_MAPS:
        if isinstance(wire.get(name), Mapping):
            wire[name] = to_wire_item(wire[name])
    for name in _REQUEST_LEGACY:
        if isinstance(wire.get(name), Mapping):
            wire[name] = {attribute: _legacy(condition) for attribute, condition in wire[name].items()}
    return wire


def _legacy(condition: Any) -> Any:
    if not isinstance(condition, Mapping):
        return condition
    wire = dict(condition)
    if "Value" in wire:
        wire["Value"] = _serialize(wire["Value"])
    if isinstance(wire.get("AttributeValueList"), list | tuple):
        wire["AttributeValueList"] = [_serialize(value) for value in wire["AttributeValueList"]]
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
