"""The faces of a sharded table, each behind the same synchronous methods, so that one suite holds them all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import shardkit
from shardkit.bulk.report import BulkReport

__all__ = ["AsyncFace", "Face", "FaceTable", "SyncFace"]

T = TypeVar("T")
Response = dict[str, Any]


class FaceTable(Protocol):
    """A sharded table, whatever its face."""

    @property
    def client(self) -> Any:
        """The client that it sends with."""

    def put_item(self, **options: Any) -> Response: ...

    def get_item(self, **options: Any) -> Response: ...

    def query(self, **options: Any) -> Response: ...

    def bulk_load(self, items: Iterable[Mapping[str, Any]], **options: Any) -> BulkReport: ...


class Face(Protocol):
    """A way to a sharded table; ``resource`` is plain boto3 over the same engine."""

    @property
    def resource(self) -> Any:
        """A boto3 resource."""

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        """Wrap a boto3 Table of the resource."""


@dataclass
class _SyncTable:
    table: shardkit.ShardedTable

    @property
    def client(self) -> Any:
        return self.table.meta.client

    def put_item(self, **options: Any) -> Response:
        return self.table.put_item(**options)

    def get_item(self, **options: Any) -> Response:
        return self.table.get_item(**options)

    def query(self, **options: Any) -> Response:
        return self.table.query(**options)

    def bulk_load(self, items: Iterable[Mapping[str, Any]], **options: Any) -> BulkReport:
        return shardkit.bulk_load(self.table, items, **options)


@dataclass
class SyncFace:
    """shardkit.ShardedTable."""

    resource: Any

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        return _SyncTable(shardkit.ShardedTable(table, strategy, **options))


@dataclass
class _AsyncTable:
    table: Any
    client: Any
    loop: asyncio.AbstractEventLoop

    def put_item(self, **options: Any) -> Response:
        return self._run(self.table.put_item(**options))

    def get_item(self, **options: Any) -> Response:
        return self._run(self.table.get_item(**options))

    def query(self, **options: Any) -> Response:
        return self._run(self.table.query(**options))

    def bulk_load(self, items: Iterable[Mapping[str, Any]], **options: Any) -> BulkReport:
        from shardkit import aio

        return self._run(aio.bulk_load(self.table, items, **options))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)


@dataclass
class AsyncFace:
    """shardkit.aio.ShardedTable over an aiobotocore client."""

    resource: Any
    client: Any
    loop: asyncio.AbstractEventLoop

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        from shardkit import aio

        sharded = aio.ShardedTable(self.client, strategy, table_name=table.name, **options)
        return _AsyncTable(sharded, self.client, self.loop)
