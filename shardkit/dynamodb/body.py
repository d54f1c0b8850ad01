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
    """Return a request's parameters as JSON; bytes become base64 text.

    Raises:
        InvalidValueError: a text has an unpaired surrogate, or a value has no JSON form.
    """
    try:
        return orjson.dumps(params, default=_json_form)
    except TypeError:
        pass  # orjson does not say where, and it refuses names of a subclass of str, which _plain accepts
    try:
        return orjson.dumps(_plain(params, ""), default=_json_form)
    except InvalidValueError:
        raise
    except RecursionError as error:
        raise InvalidValueError("request: a value is nested too deep; DynamoDB accepts 32 levels") from error
    except TypeError as error:
        raise InvalidValueError(
            f"request: cannot be written as JSON ({error}): {brief(params)}; give names as str, and values of "
            "DynamoDB's types"
        ) from error


def binary_bytes(content: Any) -> bytes:
    """Return the bytes of a binary wire value: base64 text as in JSON, or bytes as botocore parses them."""
    if isinstance(content, str):
        try:
            return base64.b64decode(content, validate=True)
        except ValueError as error:
            raise InvalidValueError(f"binary: must be base64 text or bytes, got {brief(content)}") from error
    content = getattr(content, "value", content)  # boto3's Binary
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise InvalidValueError(f"binary: must be base64 text or bytes, got {type(content).__name__}")


def binary_text(raw: bytes | bytearray) -> str:
    """Return the content of a binary wire value: ``"eA=="`` for ``b"x"``."""
    return b2a_base64(raw, newline=False).decode("ascii")


def _json_form(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, AbstractSet) else binary_text(binary_bytes(value))


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, str):
        try:
            return value.encode().decode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"{place}: {brief(value)} has an unpaired surrogate, which UTF-8 cannot encode; fix the text where it "
                "was decoded"
            ) from error
    if isinstance(value, Mapping):
        return {
            _plain(name, f"a name in {place or 'the request'}"): _plain(member, f"{place}.{name}".removeprefix("."))
            for name, member in value.items()
        }
    if isinstance(value, list | tuple | AbstractSet):
        return [_plain(member, f"{place}[{at}]") for at, member in enumerate(value)]
    return value
