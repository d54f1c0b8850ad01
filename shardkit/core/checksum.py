"""A checksum as the last member of a JSON document, so that a damaged one is not read as another one."""

from __future__ import annotations

from zlib import crc32

_CHECKSUM = b',"crc32":"%08x"}\n'
_LENGTH = len(_CHECKSUM % 0)


def with_checksum(document: bytes) -> bytes:
    """Return a JSON object with its checksum, as a line."""
    return document[:-1] + _CHECKSUM % crc32(document)


def without_checksum(content: bytes) -> bytes:
    """Return the JSON object that :func:`with_checksum` was given.

    Raises:
        ValueError: The content is damaged.
    """
    document = content[:-_LENGTH] + b"}"
    if content != with_checksum(document):
        raise ValueError("its checksum is not that of its content")
    return document
