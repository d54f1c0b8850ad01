"""Sources that are cut off or lack a byte: an error, after the records that stand before the cut."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkit.bulk.sources.opening import open_source
from shardkit.errors import ConfigurationError

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
zstd: Any = pytest.importorskip(ZSTD)

ITEMS = [{"id": f"{number:04}", "note": f"{number * 7919 % 997:03}" * (number % 5)} for number in range(24)]
HALVES = ITEMS[:12], ITEMS[12:]


def as_lines(items: list[dict[str, str]]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def in_one(compress: Callable[[bytes], bytes]) -> list[bytes]:
    return [compress(as_lines(ITEMS))]


def in_two(compress: Callable[[bytes], bytes]) -> list[bytes]:
    return [compress(as_lines(half)) for half in HALVES]


def unchecked(raw: bytes) -> bytes:
    """A frame that says neither how long it is nor what its checksum is."""
    compressor = zstd.ZstdCompressor()
    return bytes(compressor.compress(raw) + compressor.flush())


def read_until_error(source: Any) -> tuple[list[Any], Exception | None]:
    read: list[Any] = []
    try:
        for _, record in source.read():
            read.append(record)
    except ConfigurationError as error:
        return read, error
    return read, None


FRAMES = {
    "gzip": in_one(gzip.compress),
    "gzip, two members": in_two(gzip.compress),
    "zstd": in_one(zstd.compress),
    "zstd, two frames": in_two(zstd.compress),
    "zstd, unchecked": in_two(unchecked),
}


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("piped", [False, True], ids=["file", "stdin"])
def test_every_cut_is_an_error(
    frames: list[bytes], piped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one between two frames, which leaves a whole file."""
    whole = b"".join(frames)
    for at in range(1, len(whole)):
        if piped:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(whole[:at])))
            source = open_source("-", format="jsonl")
        else:
            (tmp_path / "orders.jsonl.x").write_bytes(whole[:at])
            source = open_source(tmp_path / "orders.jsonl.x", format="jsonl")
        read, error = read_until_error(source)
        assert read == ITEMS[: len(read)]  # none is shortened
        if at == len(frames[0]):
            assert (read, error) == (HALVES[0], None)
        else:
            assert error is not None
            assert "it is cut off or damaged; fix the file" in str(error)


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
def test_a_file_is_read_up_to_the_cut(frames: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_bytes(b"".join(frames)[:-1])
    read, error = read_until_error(open_source(tmp_path / "orders.jsonl"))
    assert error is not None
    # A frame of zstd that is this small is one block, of which nothing is given before all of it is there.
    assert len(read) >= (12 if len(frames) > 1 else 0)


def test_zstd_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders.jsonl").write_bytes(zstd.compress(as_lines(ITEMS)))
    monkeypatch.setitem(sys.modules, ZSTD, None)
    with pytest.raises(ConfigurationError, match=r'^source: zstd needs the package .*pip install "shardkit\[load\]"'):
        open_source(tmp_path / "orders.jsonl")


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_file_that_becomes_shorter_while_it_is_read(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(as_lines(ITEMS * 500))
    records = open_source(path).read()
    next(records)
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * keep))
    with pytest.raises(ConfigurationError, match=r"orders.jsonl ends after byte [\d,]+ and had [\d,]+ bytes"):
        list(records)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("missing", [1, None], ids=["one byte", "the rest"])
def test_parquet(compression: str, missing: int | None, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "orders.parquet"
    pq.write_table(
        pa.table({"id": range(30), "total": [number / 7 for number in range(30)]}),
        path,
        row_group_size=10,
        compression=compression,
        use_dictionary=False,
    )
    whole = path.read_bytes()
    for at in range(0, len(whole), 17):
        path.write_bytes(whole[:at] + (whole[at + missing :] if missing else b""))
        try:
            _, error = read_until_error(open_source(path))
        except ConfigurationError as at_once:
            error = at_once
        assert error is not None
        assert "cannot be read as Parquet" in str(error)
