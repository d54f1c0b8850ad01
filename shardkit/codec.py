"""Python values ⇄ wire values: ``"x"`` as a boto3 resource shows it, ``{"S": "x"}`` as it goes over HTTP."""

from __future__ import annotations

import base64
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Set
from typing import Any, TypeAlias

import orjson
from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

from shardkit.errors import InvalidKeyError, InvalidValueError

__all__ = [
    "Binary",
    "binary",
    "encode",
    "from_wire",
    "from_wire_item",
    "from_wire_response",
    "to_wire_item",
    "to_wire_params",
]

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


def encode(params: Mapping[str, Any]) -> bytes:
    """Write a request's parameters as the JSON that goes over HTTP; stray bytes become base64 text.

    Raises:
        InvalidValueError: a text holds an unpaired surrogate, or something is in it that JSON has no form for.
    """
    try:
        return orjson.dumps(params, default=_plain)
    except TypeError:
        # orjson does not say where; what it is strict about and JSON is not (keys of a subclass of str) is mended too.
        mended = _mended(params, "")
    try:
        return orjson.dumps(mended, default=_plain)
    except TypeError as error:
        raise InvalidValueError(f"a request cannot be written as JSON ({error}): {params!r:.200}") from error


def binary(content: Any) -> bytes:
    """Give the bytes of a wire value's binary content: base64 text as in JSON, or bytes as botocore parses them."""
    if isinstance(content, str):
        try:
            return base64.b64decode(content, validate=True)
        except ValueError as error:
            raise InvalidValueError(
                f"binary in wire form is base64 text or bytes, got {content!r:.100}; give the bytes as they are"
            ) from error
    content = content.value if isinstance(content, Binary) else content  # type: ignore[attr-defined]
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise InvalidValueError(
        f"binary in wire form is base64 text or bytes, got {type(content).__name__}; give the bytes as they are"
    )


def _base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    return _base64(binary(value))


def _mended(value: Any, place: str) -> Any:
    if isinstance(value, str):
        try:
            return value.encode().decode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"{place or 'a name'} is {value!r:.100} with an unpaired surrogate, which UTF-8 cannot write; mend the "
                "text where it was decoded"
            ) from error
    if isinstance(value, Mapping):
        return {
            _mended(name, f"a name in {place}"): _mended(member, f"{place}.{name}" if place else f"{name}")
            for name, member in value.items()
        }
    if isinstance(value, list | tuple | Set):
        return [_mended(member, f"{place}[{at}]") for at, member in enumerate(value)]
    return value
