"""The files that the parts of a write share: in a folder that all of them reach, or in S3."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from boto3.session import Session
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.bulk.locked_file import check_path
from shardkit.bulk.sources.files import printable
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, brief
from shardkit.staging.manifest import S3Folder


class PartFilesError(ConfigurationError):
    """A file of a part cannot be read or written."""


class PartFiles:
    """Reads and writes whole files by name; ``option`` is the caller's argument, for messages.

    S3 is reached with the credentials that boto3 finds.

    Raises:
        ConfigurationError: The place is not one.
        PartFilesError: It cannot be read or written.
    """

    def __init__(self, where: str | os.PathLike[str], option: str) -> None:
        check_path(option, where)
        self._where = os.fspath(where).rstrip("/")
        if printable(self._where) != self._where:
            raise ConfigurationError(
                f"{option}: must be a path in UTF-8, because reports name it in JSON, got {brief(where)}; give another "
                "path"
            )
        self._option = option
        self._s3 = S3Folder.of(self._where, option) if self._where.startswith("s3:") else None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        with self._explained("read", name):
            try:
                if self._s3 is None:
                    return Path(self._where, name).read_bytes()
                content: bytes = self._client.get_object(**self._object(name))["Body"].read()
            except FileNotFoundError:
                return None
            except ClientError as error:
                if code_of(error) == "NoSuchKey":
                    return None
                raise
            return content

    def write(self, name: str, source: bytes | Path) -> str:
        """Write a file, whole or not at all, and return where it is."""
        with self._explained("written", name):
            if self._s3 is not None:
                with source.open("rb") if isinstance(source, Path) else BytesIO(source) as body:
                    self._client.put_object(**self._object(name), Body=body)
            else:
                folder = Path(self._where)
                folder.mkdir(parents=True, exist_ok=True)
                torn = folder / f".{name}.{uuid.uuid4().hex}"  # containers have equal process ids
                try:
                    if isinstance(source, Path):
                        shutil.copyfile(source, torn)
                    else:
                        torn.write_bytes(source)
                    torn.replace(folder / name)
                except BaseException:
                    torn.unlink(missing_ok=True)
                    raise
        return self._named(name)

    @cached_property
    def _client(self) -> Any:
        return Session().client("s3")

    def _object(self, name: str) -> dict[str, str]:
        assert self._s3 is not None
        return {"Bucket": self._s3.bucket, "Key": f"{self._s3.prefix}/{name}".lstrip("/")}

    def _named(self, name: str) -> str:
        return f"{self._where}/{name}"

    @contextmanager
    def _explained(self, done: str, name: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise PartFilesError(
                f"{self._option}: {self._named(name)} cannot be {done}: {error}; give a folder that every task can "
                "write to, or s3://bucket/prefix"
            ) from error
