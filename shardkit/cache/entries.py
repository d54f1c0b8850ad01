"""What a store holds: keys, and copies of items and of pages, as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import orjson

from shardkit.core.hashing import number_text
from shardkit.dynamodb.body import binary_bytes, encode
from shardkit.dynamodb.values import WireItem, WireValue, to_number

VERSION = 2
"""Of the form of entries. Another version's are not read: both can share a store while a new one is rolled out."""
ENTRY_BYTES = 400
"""The memory that an entry takes beside its key and its content, measured with tracemalloc (CPython 3.11)."""
MARK = b"!"
"""The first byte of the mark that a write leaves in a shared store; an entry begins with ``{``."""
VERSION_OF_PAGES = b"="
"""The first byte of the version of a partition key's pages."""
_SUM = len(',"c":"00000000"}')


class Entry(NamedTuple):
    """A copy: of an item in wire form (None: it does not exist), or of a page of a Query.

    ``units``: the read units that serving it saves. ``until``: the time at which it is no longer fresh.
    """

    units: float
    item: WireItem | None = None
    page: dict[str, Any] | None = None
    until: float = 0.0

    def encoded(self, key: bytes) -> bytes:
        body: dict[str, Any] = {"v": VERSION, "t": self.until, "u": self.units}
        if self.page is not None:
            body["p"] = self.page
        elif self.item is not None:
            body["i"] = self.item
        content = encode(body)[:-1]
        return content + _sum(key, content)


def decoded(content: bytes | None, key: bytes) -> Entry | None:
    """Return the entry of a key; None for what is no entry of this version, is damaged, or is another key's."""
    # Before anything else: what has its sum is as it was written, the types of its values included.
    if not content or not content.startswith(b"{") or content[-_SUM:] != _sum(key, content[:-_SUM]):
        return None
    body = orjson.loads(content)
    return Entry(body["u"], body.get("i"), body.get("p"), body["t"]) if body["v"] == VERSION else None


def _sum(key: bytes, content: bytes) -> bytes:
    return b',"c":"%08x"}' % crc32(content, crc32(key))


def item_key(prefix: bytes, names: Iterable[str], item: Mapping[str, WireValue]) -> bytes:
    """Return the key of an item's entry: equal primary keys have equal ones, however their values are written.

    Raises:
        LookupError, TypeError, ValueError: ``item`` does not have the key's attributes, as wire values.
    """
    return b"".join([prefix, *[part for name in names for part in _parts(item[name])]])


def page_key(prefix: bytes, params: Mapping[str, Any], secret: bytes) -> bytes:
    """Return the key of a page's entry, without the version of its pages; with another secret it is another one."""
    content = orjson.dumps(orjson.loads(encode(params)), option=orjson.OPT_SORT_KEYS)
    return prefix + b"?" + blake2b(content, digest_size=20, key=secret).hexdigest().encode()


def pages_key(prefix: bytes, value: WireValue | None) -> bytes:
    """Return the key of the version of all pages of a partition key, or of all indexes (None)."""
    return b"".join([prefix, b"*", *(() if value is None else _parts(value))])


def _parts(value: WireValue) -> tuple[bytes, ...]:
    ((letter, content),) = value.items()
    if letter == "S":
        raw = content.encode()
    elif letter == "N":
        raw = number_text(to_number(content)).encode()
    else:
        raw = binary_bytes(content)
    # With its length, so that no two keys run together in the same way.
    return letter.encode(), b"%d:" % len(raw), raw
