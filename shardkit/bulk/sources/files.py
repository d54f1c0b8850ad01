"""Files on disk, in S3, standard input and pipes: find them by name, folder or pattern; open them at any byte."""

from __future__ import annotations

import glob
import gzip
import io
import os
import sys
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from itertools import dropwhile
from pathlib import Path, PurePath
from typing import IO, Any, cast
from urllib.parse import urlsplit

from shardkit.errors import ConfigurationError

BLOCK = 64 * 1024
"""Bytes of a local file that a cursor holds in memory."""
S3_BLOCK = 1024 * 1024
"""Bytes that a cursor requests from S3 at a time: 64 cursors hold 64 MB."""
S3_LOOK = 256 * 1024
"""Bytes that are requested to sample an object: about 500 records."""
_HEAD = 1024 * 1024
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
# Files beside the data of an export: manifests, markers of a finished job.
_BESIDE = (".", "_", "manifest-")
_GIVE = "give a file, a folder, a pattern, s3://… or '-'"


@dataclass(frozen=True)
class LocalFile:
    """A file on disk.

    It, ``S3File`` and ``Pipe`` have the same members: ``name`` is what messages and dead letters call it; ``open``
    returns a stream from an offset, which the caller closes; ``look`` one to read a small part, after which ``open``
    still returns everything. ``size`` is None if the file can be read only once. ``identity`` returns what identifies
    the file and its present content.
    """

    path: str

    @cached_property
    def name(self) -> str:
        return printable(self.path)

    @cached_property
    def size(self) -> int:
        return Path(self.path).stat().st_size

    def open(self, offset: int = 0) -> IO[bytes]:
        stream = Path(self.path).open("rb", buffering=BLOCK)  # noqa: SIM115 - the caller closes it
        stream.seek(offset)
        return stream

    def look(self, offset: int = 0) -> IO[bytes]:
        return self.open(offset)

    def identity(self) -> dict[str, Any]:
        """Return its name, size, modification time, and a hash of its first and last 64 KB.

        A name that is not UTF-8 is also there as the hexadecimal digits of its bytes.
        """
        stat = Path(self.path).stat()
        with self.open() as stream:
            ends = stream.read(BLOCK)
            stream.seek(max(0, stat.st_size - BLOCK))
            ends += stream.read(BLOCK)
        path = str(Path(self.path).resolve())
        name = printable(path)
        return {
            "name": name,
            **({} if name == path else {"bytes": os.fsencode(path).hex()}),
            "size": stat.st_size,
            "changed": stat.st_mtime_ns,
            "content": _hash(ends),
        }


@dataclass(frozen=True)
class S3File:
    """An object in S3, read in ranges; if it changes meanwhile, the service returns an error."""

    client: Any = field(repr=False)
    bucket: str
    key: str
    size: int
    etag: str

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def open(self, offset: int = 0) -> IO[bytes]:
        return self._opened(offset, S3_BLOCK)

    def look(self, offset: int = 0) -> IO[bytes]:
        return self._opened(offset, S3_LOOK)

    def _opened(self, offset: int, block: int) -> IO[bytes]:
        try:
            from smart_open import s3  # noqa: PLC0415 - of the load extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                'source: S3 needs the package smart_open, which is not installed; pip install "shardkit[load]"'
            ) from error
        stream = s3.open(
            self.bucket,
            self.key,
            "rb",
            client=self.client,
            client_kwargs={"S3.Client.get_object": {"IfMatch": self.etag}},
            buffer_size=block,
            range_chunk_size=block,
            defer_seek=True,
        )
        if offset:  # a seek is a request
            stream.seek(offset)
        return cast("IO[bytes]", stream)

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "etag": self.etag}


class Pipe:
    """Standard input, a named pipe or a device: read once; its first megabyte is kept for samples."""

    size = None

    def __init__(self, path: str = "-", stream: IO[bytes] | None = None) -> None:
        if path == "-" and stream is None:
            if sys.stdin is None:
                raise ConfigurationError("source: standard input is closed; pipe items in, or give a file")
            stream = sys.stdin.buffer
        self._path = path
        self._given = stream
        self.name = printable(path)

    @cached_property
    def _stream(self) -> IO[bytes]:
        return Path(self._path).open("rb") if self._given is None else self._given

    @cached_property
    def _head(self) -> bytes:
        return self._stream.read(_HEAD)

    def open(self, offset: int = 0) -> IO[bytes]:
        assert not offset
        return cast(
            "IO[bytes]", io.BufferedReader(_Joined(self._head, self._stream, closes=self._given is None), BLOCK)
        )

    def look(self, offset: int = 0) -> IO[bytes]:
        return io.BytesIO(self._head[offset:])

    def identity(self) -> dict[str, Any]:
        """Return a hash of its first megabyte: to resume, pipe the same input in again, whatever the pipe's name."""
        return {"name": "-", "content": _hash(self._head)}


class _Joined(io.RawIOBase):
    def __init__(self, head: bytes, rest: IO[bytes], *, closes: bool) -> None:
        self._head = memoryview(head)
        self._rest = rest
        self._closes = closes
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content: Any = self._head[: len(buffer)]
        self._head = self._head[len(content) :]
        if not content:
            content = self._rest.read(len(buffer))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if self._closes:
            self._rest.close()
        super().close()


File = LocalFile | S3File | Pipe


def printable(path: str) -> str:
    r"""Return a path as text that can be printed and written as JSON; bytes that are not UTF-8 become ``\xff``."""
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no bytes of a name are read as such text
        raw = path.encode("utf-8", "backslashreplace")
    return raw.decode("utf-8", "backslashreplace")


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


def compression(file: File) -> str | None:
    """Return a file's compression by its first bytes: ``gzip``, ``zstd`` or None."""
    with file.look() as stream:
        start = stream.read(4)
    # A file that is cut off within these bytes counts as compressed.
    return next((name for magic, name in _MAGIC.items() if start and magic.startswith(start[: len(magic)])), None)


def decompressed(stream: IO[bytes], method: str | None) -> IO[bytes]:
    """Return a stream of the decompressed bytes; the caller closes the stream given."""
    if method is None:
        return stream
    return cast("IO[bytes]", gzip.open(stream) if method == "gzip" else zstd().open(stream))


def damaged(method: str | None) -> tuple[type[Exception], ...]:
    """Return the errors that a compressed stream raises if it is cut off or damaged."""
    if method is None:
        return ()
    return (EOFError, gzip.BadGzipFile, zlib.error) if method == "gzip" else (EOFError, zstd().ZstdError)


def zstd() -> Any:
    try:
        return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            'source: zstd needs the package backports.zstd, which is not installed; pip install "shardkit[load]"'
        ) from error


def find_files(where: str, s3: Any = None) -> list[File]:
    """List the files of a name, a folder (recursively), a pattern or an S3 prefix, sorted by name.

    Cost: one listing; in S3, one ListObjectsV2 per 1,000 objects.
    """
    if where == "-":
        return [Pipe()]
    if not where:
        raise ConfigurationError(f"source: is empty; {_GIVE}")
    files: list[File] = list(_in_s3(where, s3) if where.startswith("s3://") else _on_disk(where))
    if not files and Path(where).is_dir():
        raise ConfigurationError(
            f"source: there is no file in the folder {where!r} (those are left out whose name, or whose folder's name, "
            f"begins with {', '.join(_BESIDE)}); {_GIVE}"
        )
    if not files:
        raise ConfigurationError(f"source: there is no file at {where!r}; {_GIVE}")
    return files


def _on_disk(where: str) -> Iterator[LocalFile | Pipe]:
    path = Path(where)
    if path.is_file():
        return iter([LocalFile(where)])
    if path.is_fifo() or path.is_char_device():
        return iter([Pipe(where)])
    found = [one for one in path.rglob("*") if _is_data(one.relative_to(path).parts)] if path.is_dir() else []
    names = list(map(str, found) if path.is_dir() else _matching(where))
    chosen: dict[str, str] = {}  # per file: its own name, or else the first of its links
    for name in sorted(name for name in names if Path(name).is_file()):
        real = os.path.realpath(name)
        if real not in chosen or real == os.path.abspath(name):  # noqa: PTH100 - do not resolve links
            chosen[real] = name
    if not chosen and any(Path(name).is_fifo() for name in names):
        raise ConfigurationError(f"source: there are only pipes at {where!r}; give the name of one")
    return map(LocalFile, sorted(chosen.values()))


def _matching(pattern: str) -> Iterator[str]:
    """List what ``glob`` does, but enter each folder only once (``glob`` follows circular links 40 times)."""
    parts = PurePath(pattern).parts
    if "**" not in parts:
        yield from glob.iglob(pattern)  # noqa: PTH207 - absolute patterns
        return
    at = parts.index("**")
    rest = list(dropwhile("**".__eq__, parts[at:])) or ["*"]
    for top in glob.iglob(str(PurePath(*parts[:at]))):  # noqa: PTH207 - absolute patterns
        for folder in _folders(top):
            yield from _matching(str(PurePath(glob.escape(folder), *rest)))


def _folders(top: str) -> Iterator[str]:
    """List a folder and those below it, each once; through links only those that cannot be reached otherwise."""
    seen: set[str] = set()
    waiting = deque([top])
    while waiting:
        folder = waiting.popleft()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        yield folder
        with suppress(OSError):  # unreadable folders are left out, as ``glob`` does
            for entry in sorted(Path(folder).iterdir()):
                if entry.is_dir() and not entry.name.startswith("."):
                    (waiting.append if entry.is_symlink() else waiting.appendleft)(str(entry))


def _in_s3(where: str, client: Any) -> Iterator[S3File]:
    if client is None:
        import boto3  # noqa: PLC0415 - most sources are not in S3

        client = boto3.client("s3")
    bucket, prefix = urlsplit(where).netloc, where.removeprefix("s3://").partition("/")[2]
    # "orders" is the object of that name or all below "orders/", never "orders-old.csv".
    fixed = prefix.partition("*")[0]
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=fixed)
    listed = {one["Key"]: one for page in pages for one in page.get("Contents", ()) if one["Size"]}
    folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    if fixed != prefix:
        chosen = [key for key in listed if fnmatchcase(key, prefix)]
    elif prefix in listed:
        chosen = [prefix]
    else:
        chosen = [key for key in listed if key.startswith(folder) and _is_data(key.removeprefix(folder).split("/"))]
    return (S3File(client, bucket, key, listed[key]["Size"], listed[key]["ETag"]) for key in sorted(chosen))


def _is_data(parts: Any) -> bool:
    return not any(part.startswith(_BESIDE) for part in parts)
