"""What DynamoDB refuses of an item although it can be encoded: for items that no request checks.

Most items need one look at their JSON each: it is never shorter than what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import InvalidKeyError, InvalidValueError, brief

_PARTITION_KEY_BYTES, _SORT_KEY_BYTES, _NAME_BYTES = 2048, 1024, 65_535
_LEVELS = 32
_LEAST_POWER, _MOST_POWER = -130, 125
# Numbers out of range are written with an exponent of three digits, as Python writes a Decimal.
_FAR = re.compile(rb"E[+-]\d{3}").search


def check_limits(item: WireItem, body: bytes, keys: Sequence[KeySchema]) -> None:
    """Raise for what DynamoDB refuses; ``body`` is the item's JSON, ``keys`` are those of the table and its indexes."""
    if len(body) > _SORT_KEY_BYTES:
        check_keys(item, keys)
    if body.count(b"{") > _LEVELS or b'"":' in body or len(body) > _NAME_BYTES or _FAR(body):
        _check_names(item)
        for name, value in item.items():
            _check_value(name, value, 1)


def check_keys(item: WireItem, keys: Sequence[KeySchema]) -> None:
    """Raise for a key that is too long."""
    for schema in keys:
        _check_key(item, schema.partition, _PARTITION_KEY_BYTES)
        _check_key(item, schema.sort, _SORT_KEY_BYTES)


def _check_key(item: WireItem, names: Sequence[str], most: int) -> None:
    size = sum(item_size({name: item[name]}) - len(name.encode()) for name in names if name in item)
    if size > most:
        raise InvalidKeyError(f"{', '.join(names)}: has {size:,} bytes as stored, DynamoDB allows {most:,}; shorten it")


def _check_names(values: WireItem) -> None:
    for name in values:
        size = len(name.encode())
        if not 0 < size <= _NAME_BYTES:
            raise InvalidValueError(
                f"attribute {brief(name)}: its name has {size:,} bytes, DynamoDB allows 1 to {_NAME_BYTES:,}"
            )


def _check_value(name: str, value: WireValue, level: int) -> None:
    if level > _LEVELS:
        raise InvalidValueError(f"attribute {name!r} has more than {_LEVELS} levels, DynamoDB allows {_LEVELS}")
    ((letter, content),) = value.items()
    if letter == "M":
        _check_names(content)
    if letter in {"L", "M"}:
        for member in content.values() if letter == "M" else content:
            _check_value(name, member, level + 1)
    elif letter in {"N", "NS"}:
        for text in content if letter == "NS" else (content,):
            number = Decimal(text)
            if number and not _LEAST_POWER <= number.adjusted() <= _MOST_POWER:
                raise InvalidValueError(
                    f"attribute {name!r}: {text} is out of range, DynamoDB stores 1E-130 to 9.9E+125; store it as text"
                )
