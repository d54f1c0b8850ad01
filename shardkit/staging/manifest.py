"""The manifest of a stage: for which table it is, and its objects. It is written last: without it nothing is staged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

import orjson
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, StagingError, brief

Compression = Literal["GZIP", "ZSTD", "NONE"]
"""As ImportTable names them."""

_VERSION = 1
_FORMAT = "DYNAMODB_JSON"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class S3Folder:
    """A prefix in a bucket: the objects of a stage are below ``data``, its manifest beside them."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, uri: object, option: str) -> Self:
        """Read ``s3://bucket/prefix``; ``option`` is the caller's argument, for messages."""
        text = uri if isinstance(uri, str) else ""
        bucket, _, prefix = text.removeprefix("s3://").partition("/")
        if not text.startswith("s3://") or not bucket:
            raise ConfigurationError(f"{option}: must be s3://bucket/prefix, got {brief(uri)}")
        return cls(bucket, prefix.strip("/"))

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def data(self) -> str:
        return self._below("data/")

    @property
    def manifest(self) -> str:
        return self._below("manifest.json")

    def _below(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    @contextmanager
    def reached(self, done: str) -> Iterator[None]:
        """Say of a request in this block that S3 refuses what the folder's objects could not be: ``done``."""
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StagingError(
                f"{self} cannot be {done}: {error}; check the bucket's name and region, the credentials and their "
                "permissions"
            ) from error

    def listed(self, s3: Any) -> dict[str, tuple[int, str]]:
        """Return the size and the ETag of each object of a stage's data.

        Cost: one ListObjectsV2 per 1,000 objects.
        """
        with self.reached("listed"):
            return {
                str(one["Key"]): (int(one["Size"]), str(one["ETag"]))
                for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.data)
                for one in page.get("Contents", ())
            }


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedObject:
    """An object of a stage; ``raw_bytes`` are those before compression."""

    key: str
    items: int
    bytes: int
    raw_bytes: int
    etag: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What was staged, and for which table.

    Attributes:
        load_id: Identifies the source, the table and how items are spread; random suffixes are drawn from it.
        table: The name of the table that the items are for.
        definition: CreateTable's arguments of the table: key schema, attribute definitions, indexes, billing.
        strategy: The form of the table's strategy (``Strategy.to_dict``).
        indexes: The same of each sharded index, by name.
        compression: That of the objects.
        data: The prefix of the objects' keys.
        write_units: What writing the items consumes of the table, without its indexes.
        superseded: Items that were left out, because a later one in the source has their primary key.
        failed: Items that were left out because they cannot be written.
    """

    load_id: str
    table: str
    definition: Mapping[str, Any]
    strategy: Mapping[str, Any]
    indexes: Mapping[str, Mapping[str, Any]]
    compression: Compression
    data: str
    objects: tuple[StagedObject, ...]
    items: int
    raw_bytes: int
    write_units: int
    superseded: int
    failed: int = 0

    @property
    def bytes(self) -> int:
        """The stored bytes of all objects."""
        return sum(one.bytes for one in self.objects)

    def to_dict(self) -> dict[str, Any]:
        return {"version": _VERSION, "format": _FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, form: Any) -> Self:
        """Read a manifest's JSON; raises ValueError with what is wrong."""
        if not isinstance(form, dict) or form.get("version") != _VERSION or form.get("format") != _FORMAT:
            raise ValueError(f"it does not have version {_VERSION} and format {_FORMAT}")
        try:
            given = {field.name: form[field.name] for field in fields(cls)}
            objects = tuple(StagedObject(**one) for one in given.pop("objects"))
            counted = sum(one.items for one in objects)
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks {error}" if isinstance(error, KeyError) else str(error)) from error
        if given["compression"] not in get_args(Compression):
            raise ValueError(f"its compression is {brief(given['compression'])}")
        if given["items"] != counted:
            raise ValueError("its objects have another number of items than it says")
        return cls(objects=objects, **given)

    @classmethod
    def read(cls, s3: Any, folder: S3Folder) -> Self | None:
        """Read the manifest of a stage; None if there is none.

        Cost: one GetObject.
        """
        with folder.reached("read"):
            try:
                body = s3.get_object(Bucket=folder.bucket, Key=folder.manifest)["Body"].read()
            except ClientError as error:
                if code_of(error) in {"NoSuchKey", "404"}:
                    return None
                raise
        try:
            return cls.from_dict(orjson.loads(body))
        except ValueError as error:
            raise StagingError(
                f"manifest: s3://{folder.bucket}/{folder.manifest} cannot be read by this version of shardkit "
                f"({error}); stage again, or use the version that staged it"
            ) from error

    def write(self, s3: Any, folder: S3Folder) -> None:
        """Write it; from then on, the stage can be imported."""
        with folder.reached("written"):
            s3.put_object(
                Bucket=folder.bucket,
                Key=folder.manifest,
                Body=orjson.dumps(self.to_dict(), option=orjson.OPT_INDENT_2),
                ContentType="application/json",
            )

    def check(self, s3: Any, folder: S3Folder) -> None:
        """Raise StagingError if the objects in S3 are not those of the manifest, by key, size and ETag.

        Cost: one ListObjectsV2 per 1,000 objects.
        """
        if wrong := list(self._differences(folder.listed(s3))):
            more = f"; and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
            raise StagingError(
                f"manifest: the objects below s3://{folder.bucket}/{folder.data} are not those that were staged: "
                f"{'; '.join(wrong[:_SHOWN])}{more}; stage again, to another prefix"
            )

    def _differences(self, found: dict[str, tuple[int, str]]) -> Iterator[str]:
        known = {one.key: one for one in self.objects}
        for key in sorted(known.keys() | found.keys()):
            if key not in found:
                yield f"{key} is missing"
            elif key not in known:
                yield f"{key} was added"
            elif (known[key].bytes, known[key].etag) != found[key]:
                size, etag = found[key]
                yield f"{key} has {size:,} bytes and ETag {etag}, not {known[key].bytes:,} and {known[key].etag}"
