"""Divide spilled items into objects, each of a range of hashes: sorted by them, compressed and uploaded."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

from shardkit.bulk.sources.files import zstd
from shardkit.staging.manifest import Compression, S3Folder, StagedObject
from shardkit.staging.spill import SLOTS, Kept, Run, read_slots, slot_bytes

OBJECT_BYTES = 100_000_000
"""Most bytes of an object before compression, unless a slot alone has more (a source of over 400 GB)."""

SUFFIXES: dict[Compression, str] = {"GZIP": ".json.gz", "ZSTD": ".json.zst", "NONE": ".json"}
_GZIP_LEVEL = 2
_ZSTD_LEVEL = 1
_LINES = 4096
_SLOTS_AT_ONCE = 8  # of 5 million items 10,000, which stay in the cache of the processor


@dataclass(frozen=True, slots=True)
class Written:
    """An object in S3, and the write units of its items; ``read``: the items before later ones replaced them."""

    object: StagedObject
    write_units: int
    read: int


Spills = Sequence[tuple[Path, list[Run]]]
"""The files of all sections, in the order of the source."""


def planned(spills: Spills, object_bytes: int) -> list[tuple[int, int]]:
    """Return the slots of each object, from and to: about the same bytes each."""
    totals = [0] * SLOTS
    for path, runs in spills:
        for sizes in slot_bytes(path, runs):
            totals = list(map(int.__add__, totals, sizes))
    ends = list(accumulate(totals))
    count = -(-ends[-1] // object_bytes)
    cuts = {0, SLOTS}
    slot = 0
    for number in range(1, count):
        while ends[slot] * count < ends[-1] * number:
            slot += 1
        cuts.add(slot + 1)
    edges = sorted(cuts)
    return [(low, high) for low, high in pairwise(edges) if sum(totals[low:high])]


def upload(
    s3: Any,
    folder: S3Folder,
    key: str,
    spills: Spills,
    low: int,
    high: int,
    compression: Compression,
    tell: Callable[[int], object],
) -> Written:
    """Write the items of some slots as an object: the last of each primary key, in the order of their hashes."""
    kept: Kept = {}
    packed: list[bytes] = []
    read = items = units = raw_bytes = 0
    compressor = _compressor(compression)
    for start in range(low, high, _SLOTS_AT_ONCE):
        read += sum([read_slots(path, runs, start, min(start + _SLOTS_AT_ONCE, high), kept) for path, runs in spills])
        items += len(kept)
        units += sum(unit for _, unit in kept.values())
        order = sorted(kept)
        for place in range(0, len(order), _LINES):
            chunk = b"".join([kept[one][0] for one in order[place : place + _LINES]])
            raw_bytes += len(chunk)
            packed.append(compressor.compress(chunk))
        kept.clear()
    packed.append(compressor.flush())
    body = b"".join(packed)
    del packed
    with folder.reached("written"):
        answer = s3.put_object(Bucket=folder.bucket, Key=key, Body=body)
    tell(read)
    made = StagedObject(key=key, items=items, bytes=len(body), raw_bytes=raw_bytes, etag=str(answer["ETag"]))
    return Written(made, units, read)


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Plain:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


def _compressor(compression: Compression) -> _Compressor:
    if compression == "NONE":
        return _Plain()
    if compression == "GZIP":
        return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    made: _Compressor = zstd().ZstdCompressor(level=_ZSTD_LEVEL)
    return made
