"""The async CachedTable.

Generated from shardkit/cache/table.py by .ci/generate_aio.py: change it there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Self, Unpack, cast

from shardkit.cache.options import CacheOptions
from shardkit.cache.runner import AsyncCacheRunner
from shardkit.cache.source import async_source_of
from shardkit.core.calls import explains_calls
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.targets import Wrapper
from shardkit.table_types import (
    CachedBatchResponse,
    CachedGetItemResponse,
    CachedPageResponse,
    QueryOptions,
    ReadOptions,
)


@explains_calls
class CachedTable(Wrapper):
    """Read a table's popular items from memory, and the others from the table.

    Example:
        table = ShardedTable(client, Unsharded(), table_name="Products")
        products = CachedTable(table, ttl=30, max_bytes=64_000_000)
        await products.get_item(Key={"Id": "p1"})

    ``get_item``, ``batch_get_items`` and, with ``query_ttl``, ``query`` are answered from copies. All other methods and
    attributes are those of the table. Each write through the table's client, by whatever code, replaces the copies of
    what it writes, or drops them: single writes, batches, transactions and loads.

    What another process writes is seen when the copy has expired: after ``ttl`` plus ``stale_while_revalidate`` at the
    latest. Readers get their own objects, which they may change.

    Args:
        table: An aioboto3 ``Table``, an async ``ShardedTable`` (over a client, with ``Unsharded()`` for a table
            without suffixes) or ``TimeSeries``, or an object with the methods of one.
        store: As for :class:`CacheOptions`, like the other arguments up to ``stale_if_throttled``.
        max_bytes: The memory for copies, in bytes, at least 100,000, if there is no ``store``.
        ttl: Seconds for which a copy is served, above 0.
        absent_ttl: Seconds for which a missing item is served as missing; 0: never.
        query_ttl: Seconds for which a page of ``query`` is served, above 0; None: never.
        jitter: The part of these times, from 0 to below 1, that is drawn at random and taken off.
        stale_while_revalidate: Seconds for which an old copy is served while it is read again in the background.
        stale_if_throttled: Seconds for which an old copy is served if the read is throttled.
        key_schema: As for ``ShardedTable``, if ``table`` is not one. By default, one DescribeTable reads it when it is
            first needed.
        rng: The source of jitter; seed it to repeat a run.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        table: Any,
        *,
        store: Any = None,
        max_bytes: int | None = None,
        ttl: float = 60.0,
        absent_ttl: float = 5.0,
        query_ttl: float | None = None,
        jitter: float = 0.1,
        stale_while_revalidate: float = 0.0,
        stale_if_throttled: float = 0.0,
        key_schema: Mapping[str, Any] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        options = CacheOptions(
            store=store,
            max_bytes=max_bytes,
            ttl=ttl,
            absent_ttl=absent_ttl,
            query_ttl=query_ttl,
            jitter=jitter,
            stale_while_revalidate=stale_while_revalidate,
            stale_if_throttled=stale_if_throttled,
        )
        if isinstance(table, CachedTable):
            raise ConfigurationError(
                f"table: must be the table behind a cache, got {brief(table, 200)}; give its .table"
            )
        self._table = table
        self._runner = AsyncCacheRunner(async_source_of(table, key_schema), options, rng)

    def __repr__(self) -> str:
        return f"CachedTable({self._table!r}, store={self.store!r})"

    @property
    def table(self) -> Any:
        """The table behind the cache."""
        return self._table

    @property
    def store(self) -> Any:
        """Where the copies are."""
        return self._runner.store

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self._table.name)

    @property
    def meta(self) -> Any:
        """The ``meta`` of the table, with its client."""
        return self._table.meta

    async def get_item(self, *, Key: Mapping[str, Any], **options: Any) -> CachedGetItemResponse:
        """Read one item, from its copy if there is one.

        Example:
            response = await products.get_item(Key={"Id": "p1"})
            response.get("Cached")  # "fresh", "stale", or None: read from the table

        A read with ``ConsistentRead=True``, a projection, ``Shard`` or ``ReturnShards`` goes to the table. If several
        readers miss an item at once, one reads it for all.

        Args:
            Key: As for the table's ``get_item``.
            options: As for the table's ``get_item``.

        Returns:
            The table's response; of a copy, with ``Cached``, and no consumed capacity.

        Cost: none for a copy; else the table's. After a write that dropped the copy, the next read is strongly
        consistent.
        IAM: ``dynamodb:GetItem``, ``dynamodb:DescribeTable``.
        """
        return cast(
            "CachedGetItemResponse", await self._runner.run(lambda reads: reads.get("get_item", {"Key": Key, **options}))
        )

    async def batch_get_items(self, keys: Iterable[Mapping[str, Any]], **options: Unpack[ReadOptions]) -> CachedBatchResponse:
        """Read many items by key, and only those without a copy from the table.

        Example:
            response = await products.batch_get_items([{"Id": "p1"}, {"Id": "p2"}])
            response["Cached"]  # ["fresh", "miss"], parallel to response["Items"]

        Args:
            keys: Primary keys, any number; a repeated key is read once.
            options: As for ``ShardedTable.batch_get_items``.

        Returns:
            The response of ``ShardedTable.batch_get_items``, with ``Cached``: for each item, how it was read.

        Cost: as for ``ShardedTable.batch_get_items``, of the items that have no copy.
        IAM: ``dynamodb:BatchGetItem``, ``dynamodb:DescribeTable``.
        """
        # What is not a list of keys goes to the table, which refuses it.
        given: Any = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, Mapping | str | bytes) else keys
        return cast(
            "CachedBatchResponse",
            await self._runner.run(lambda reads: reads.get_many("batch_get_items", given, options)),
        )

    async def query(self, **query: Unpack[QueryOptions]) -> CachedPageResponse:
        """Read one page of a partition key's items; with ``query_ttl``, from its copy if there is one.

        Example:
            page = await products.query(KeyConditionExpression=Key("Category").eq("books"), Limit=10)

        A write through the client drops the copies of all pages of its partition key, and of all pages of indexes.

        Args:
            query: As for the table's ``query``.

        Returns:
            The table's response; of a copy, with ``Cached``.

        Cost: none for a copy; else the table's. For two seconds after a write, pages are read from the table.
        IAM: ``dynamodb:Query``, ``dynamodb:DescribeTable``.
        """
        return cast("CachedPageResponse", await self._runner.run(lambda reads: reads.query("query", query)))

    async def clear(self) -> None:
        """Drop all copies of this table, in a shared store those of all processes.

        Example:
            await products.clear()

        Cost: none; a ``RedisStore`` looks at every key of its server.
        """
        await self._runner.run(self._runner.clearing)

    async def close(self) -> None:
        """Wait for the tasks that renew copies, and close the table behind the cache, if it is one of shardkit.

        Example:
            async with CachedTable(ShardedTable(table, strategy), ttl=30, max_bytes=64_000_000) as products:
                await products.get_item(Key={"Id": "p1"})

        The copies stay. Closing twice does nothing, and a later call opens what it needs again. An aioboto3 table, its
        client and a ``store`` stay open.

        Cost: none.
        """
        await self._runner.close()
        if isinstance(self._table, Wrapper):
            await self._table.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the cache does not change: the table's own methods. The client's events tell the cache about writes.

    @property
    def table_name(self) -> str:
        """As the table's."""
        return cast("str", self._table.table_name)

    async def put_item(self, *, Item: Mapping[str, Any], **options: Any) -> Any:
        """Write one item, as the table does; its copy is replaced."""
        return await self._table.put_item(Item=Item, **options)

    async def update_item(self, *, Key: Mapping[str, Any], **options: Any) -> Any:
        """Update one item, as the table does; its copy is dropped, or replaced with ``ReturnValues="ALL_NEW"``."""
        return await self._table.update_item(Key=Key, **options)

    async def delete_item(self, *, Key: Mapping[str, Any], **options: Any) -> Any:
        """Delete one item, as the table does; its copy is replaced."""
        return await self._table.delete_item(Key=Key, **options)

    async def scan(self, **options: Any) -> Any:
        """Read one page of the table; pages of scans are not cached."""
        return await self._table.scan(**options)

    def batch_writer(self, overwrite_by_pkeys: list[str] | None = None) -> Any:
        """Write many items, as the table does; copies of them are replaced."""
        return self._table.batch_writer(overwrite_by_pkeys)

    async def load(self) -> None:
        """Read the table's attributes (one DescribeTable)."""
        await self._table.load()

    async def reload(self) -> None:
        """Read the table's attributes again (one DescribeTable)."""
        await self._table.reload()

    def __getattr__(self, name: str) -> Any:
        """Return the table's own attribute; reads through it bypass the cache."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._table, name)
