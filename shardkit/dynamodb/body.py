"""The JSON that goes over HTTP: a request's parameters as bytes, binary content as base64 text."""

from __future__ import annotations

import base64
from binascii import b2a_base64
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import orjson

from shardkit.errors import InvalidValueError, brief


def encode(params: Mapping[str, Any]) -> bytes:
    """Write a request's parameters as the JSON that goes over HTTP; stray bytes become base64 text.

    Raises:
        InvalidValueError: a text holds an unpaired surrogate, or something is in it that JSON has no form for.
    """
    try:
        return orjson.dumps(params, default=_json_form)
    except TypeError:
        pass  # orjson does not say where; and it refuses names of a subclass of str, which are mended
    try:
        return orjson.dumps(_mended(params, ""), default=_json_form)
    except RecursionError as error:
        raise InvalidValueError(
            "a request holds a value nested in hundreds of others; DynamoDB takes 32 levels"
        ) from error
    except TypeError as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(
            f"a request cannot be written as JSON ({error}): {brief(params)}; give names as str, and values of "
            "DynamoDB's types"
        ) from error


def binary(content: Any) -> bytes:
    """Give the bytes of a wire value's binary content: base64 text as in JSON, or bytes as botocore parses them."""
    if isinstance(content, str):
        try:
            return base64.b64decode(content, validate=True)
        except ValueError as error:
            raise InvalidValueError(
                f"binary in wire form is base64 text or bytes, got {content!r:.100}; give the bytes as they are"
            ) from error
    content = getattr(content, "value", content)  # boto3's Binary
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise InvalidValueError(
        f"binary in wire form is base64 text or bytes, got {type(content).__name__}; give the bytes as they are"
    )


def binary_text(raw: bytes | bytearray) -> str:
    """Give the content of a binary wire value: ``b"x"`` is ``{"B": "eA=="}``."""
    return b2a_base64(raw, newline=False).decode("ascii")


def _json_form(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, AbstractSet) else binary_text(binary(value))


def _mended(value: Any, place: str) -> Any:
    if isinstance(value, str):
        try:
            return value.encode().decode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"{place} is {value!r:.100}, with an unpaired surrogate, which UTF-8 cannot write; mend "
                "the text where it was decoded"
            ) from error
    if isinstance(value, Mapping):
        return {
            _mended(name, f"a name in {place or 'a request'}"): _mended(
                member, f"{place}.{name}" if place else f"{name}"
            )
            for name, member in value.items()
        }
    if isinstance(value, list | tuple | AbstractSet):
        return [_mended(member, f"{place}[{at}]") for at, member in enumerate(value)]
    return value
