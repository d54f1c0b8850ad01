"""The cursor of a merged read: an ASCII token, the same through a Table, a client and JSON.

The token is the base64url of a four-byte checksum and a JSON list: version, purpose (a digest of table, index and key),
shard, and the key of the last item read there, without the parts that the shard determines. Its length is bounded by
the length of keys (DynamoDB: 2,048 and 1,024 bytes), not by the number of shards. In a time series, the name of the
period whose table was read stands before it: ``2014-07.`` and the token. With ``cursor_secret=``, ``.`` and
the base64url of an HMAC-SHA256 of all this follow.

The checksum detects damage, not forgery: without a secret, a token may contain anything. So its length is checked
first, then every part; any error is a CursorError.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from types import NoneType
from typing import Any

import orjson

from shardkit.core.hashing import number_text
from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import CursorError, InvalidValueError, ShardUnknownError, brief
from shardkit.sharding.form import Form
from shardkit.sharding.indexes import ShardedIndex
from shardkit.sharding.layout import Sharding
from shardkit.sharding.spread import Spread

_NAME = "shardkit"
_VERSION = 1
_SIGNED = "."

# An index and its table have at most ten key attributes, five for partitions and five to sort by, of at most 2,048 and
# 1,024 bytes, with names of at most 255 characters. JSON writes a character in up to six bytes, base64 three bytes in
# four characters; 1,000 bytes are for the rest of the token.
_LONGEST = (6 * (5 * 2048 + 5 * 1024 + 10 * 255) + 1000) * 4 // 3

# The numbers that DynamoDB accepts, with an exponent or written in full: 38 digits, from 1E-130 to below 1E+126.
_NUMBER = re.compile(r"[-+.0-9Ee]{1,300}").fullmatch
_DIGITS = Context(prec=38, traps=[Inexact, InvalidOperation])
_EXPONENTS = range(-130, 126)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the order (sort key, shard, order within the shard)."""

    shard: int | None
    key: WireItem

    def token(self, purpose: str, form: Form, period: str = "") -> dict[str, Any]:
        key = {name: _packed(value) for name, value in self.key.items()}
        payload = orjson.dumps([_VERSION, purpose, self.shard, key])
        token = period + _text(_check(payload) + payload)
        if form.cursor_secrets:
            token += _SIGNED + _signature(form.cursor_secrets[0], token)
        return form.shown({_NAME: {"S": token}})

    @classmethod
    def read(cls, given: Mapping[str, Any], purpose: str, what: str, form: Form, period: str = "") -> Cursor:
        """Read ``{"shardkit": token}``, or the token as ``{"S": token}``; purpose and period must be the same."""
        token = token_in(given, form).removeprefix(period)
        damaged = f"ExclusiveStartKey: the cursor {token[:80]!r} is damaged; pass LastEvaluatedKey unchanged"
        contents = _contents(token)
        if contents is None:
            raise CursorError(damaged)
        version, *rest = contents
        if version != _VERSION:
            raise CursorError(
                f"ExclusiveStartKey: the cursor has version {brief(version, 20)}, this shardkit reads version "
                f"{_VERSION}; start the read again"
            )
        try:
            made, shard, packed = rest
            key: WireItem = {name: _unpacked(*value) for name, value in packed.items()}
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            raise CursorError(damaged) from error
        if type(shard) not in {int, NoneType}:
            raise CursorError(damaged)
        if made != purpose:
            raise CursorError(
                f"ExclusiveStartKey: the cursor is of another key, Shard=, table or index than {what}; start the read "
                "again"
            )
        return cls(shard, key)


def as_key(sharding: Sharding, stored: WireItem, index: ShardedIndex | None = None) -> WireItem:
    """Return the position after a stored key, of the table or of an index, as a key; :func:`from_key` reads it.

    It is logical if the shard can be calculated from it. A library may build such a key itself, from the last item that
    it kept of a page, so an unsuffixed key is always read as a logical one. Keys that this does not fit are returned as
    they are stored.
    """
    if index is not None:
        rest, own = _apart(stored, index)
        if own is None or index.stored_shard(own) is None:
            raise _without_suffix(sharding, stored)
        return {**as_key(sharding, rest), index.stored_name: own}
    if len(sharding.readings) > 1:
        return stored  # a logical key does not say by which of them the item is stored
    logical, shard = sharding.logical(stored[sharding.partition_key])
    key = {**stored, sharding.partition_key: logical}
    if calculated(sharding, key) == (shard, True) and sharding.logical(logical)[1] is None:
        return key
    if shard is None:
        raise _without_suffix(sharding, stored)
    return stored


def from_key(sharding: Sharding, key: WireItem, index: ShardedIndex | None = None) -> WireItem:
    """Return the stored key that a position means."""
    if index is not None:
        rest, own = _apart(key, index)
        if own is None or index.stored_shard(own) is None:
            shown = sharding.logical_item(key)
            shard, known = calculated(index, shown) if index.logical_name in shown else (None, False)
            if not known:
                raise not_calculated(key)
            own = index.physical(shown[index.logical_name], shard)
            # The source is no key attribute of the index, unless it is one of the table.
            rest = {name: value for name, value in rest.items() if name in {*index.keys.names, *sharding.keys.names}}
        return {**from_key(sharding, rest), index.stored_name: own}
    if sharding.logical(key[sharding.partition_key])[1] is not None:
        return key
    found = [calculated(one, key) for one in sharding.readings]
    if (None, True) in found:
        return key  # it may be stored without a suffix
    shard, known = found[0]
    if not known:
        raise not_calculated(key)
    return sharding.readings[0].stored(key, shard)


def _apart(key: WireItem, index: ShardedIndex) -> tuple[WireItem, WireValue | None]:
    """Return a key without an index's attribute, and the value of that attribute."""
    return {name: value for name, value in key.items() if name != index.stored_name}, key.get(index.stored_name)


def not_calculated(key: WireItem) -> CursorError:
    return CursorError(
        f"ExclusiveStartKey: {brief(from_wire_item(key), 200)} is hand-made, and its shard cannot be calculated; pass "
        "LastEvaluatedKey unchanged"
    )


def _without_suffix(sharding: Sharding, stored: WireItem) -> CursorError:
    return CursorError(
        f"LastEvaluatedKey: the item {brief(from_wire_item(stored), 200)} of table {sharding.table!r} is stored "
        "without a suffix, so the read cannot be resumed after it; read the table with a client without install()"
    )


def calculated(spread: Spread, key: WireItem) -> tuple[int | None, bool]:
    """Return a logical key's shard, and whether it can be calculated."""
    try:
        return spread.known_shard(key, from_wire_item(key))
    except ShardUnknownError:
        return None, False


def is_token(given: Any, form: Form) -> bool:
    """Return whether a position is a token; where tokens are signed, it must be one."""
    found = isinstance(given, Mapping) and _NAME in given
    if form.cursor_secrets and not found:
        raise CursorError(
            f"ExclusiveStartKey: {brief(given, 200)} is not a signed cursor, and with cursor_secret= nothing else is "
            "read; pass LastEvaluatedKey unchanged"
        )
    return found


def token_in(given: Mapping[str, Any], form: Form) -> str:
    """Return the token of a cursor, with its period and without its signature, which must be right."""
    token = given[_NAME]
    if isinstance(token, Mapping):
        token = token.get("S")
    if len(given) != 1 or not isinstance(token, str):
        raise CursorError(
            f"ExclusiveStartKey: {brief(given, 200)} is not a cursor of shardkit; pass LastEvaluatedKey unchanged"
        )
    if not form.cursor_secrets:
        return token
    content, _, signature = token[: 2 * _LONGEST].rpartition(_SIGNED)
    made = signature.encode("utf-8", "surrogatepass")
    if not any(hmac.compare_digest(_signature(one, content).encode(), made) for one in form.cursor_secrets):
        raise CursorError(
            f"ExclusiveStartKey: the cursor {token[:80]!r} is not signed with a secret of cursor_secret=; start the "
            "read again"
        )
    return content


def made_for(*parts: Any) -> str:
    """Return a cursor's purpose: a short digest of names and wire keys."""
    try:
        text = orjson.dumps([_packed_part(part) for part in parts], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise InvalidValueError(
            f"{brief(parts, 200)} cannot be encoded as UTF-8; fix the text where it was decoded"
        ) from error
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()[:12]).decode("ascii")


def _signature(secret: bytes, token: str) -> str:
    return _text(hmac.digest(secret, token.encode("utf-8", "surrogatepass"), "sha256"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _contents(token: str) -> list[Any] | None:
    if len(token) > _LONGEST:
        return None
    try:
        raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        contents = orjson.loads(raw[4:])
    except ValueError:
        return None
    # Encoding the bytes again must give the same token: base64 ignores some bits of its last character.
    intact = _check(raw[4:]) == raw[:4] and _text(raw) == token
    return contents if intact and isinstance(contents, list) and contents else None


def _check(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:4]


def _packed(value: Mapping[str, Any]) -> list[str]:
    ((letter, content),) = value.items()
    return [letter, binary_text(binary_bytes(content)) if letter == "B" else content]


def _unpacked(letter: Any, content: Any) -> dict[str, Any]:
    if letter not in {"S", "N", "B"} or not isinstance(content, str):
        raise TypeError("a key is a string, a number or binary")
    if letter == "B":
        return {"B": binary_text(binary_bytes(content))}
    if letter == "N" and (not _NUMBER(content) or _DIGITS.create_decimal(content).adjusted() not in _EXPONENTS):
        raise ValueError("not a number that DynamoDB accepts")
    return {letter: content}


def _packed_part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return {name: _packed({"N": _same(value["N"])} if "N" in value else value) for name, value in part.items()}


def _same(digits: str) -> str:
    """Return one text for every way to write a number: 1, 1.0, 10E-1."""
    try:
        return number_text(Decimal(digits))
    except ArithmeticError:
        return digits  # the service refuses it
