"""The async ``ShardedTable`` and ``bulk_load``, for aiobotocore and aioboto3.

So far: single puts and gets, merged queries, and bulk loads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Unpack

from shardkit.bulk.load import Loading, LoadOptions, check_items, check_options
from shardkit.bulk.report import BulkReport
from shardkit.bulk.sources.base import Item, Place, Record, Source
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.runner import AsyncRunner, draw_from, log_retry
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.programs import Programs
from shardkit.strategies import Strategy

__all__ = ["ShardedTable", "bulk_load"]


class ShardedTable:
    """Spread a table's partition keys over shards, from async code.

    Example:
        async with get_session().create_client("dynamodb") as client:
            orders = ShardedTable(client, CalculatedSuffix("OrderId", shards=200), table_name="Orders")
            await orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17", "Total": 12})

    Args:
        table: An aiobotocore client, or an aioboto3 ``Table``.
        strategy: How suffixes are chosen.
        table_name: The table's name, with a client.
        key_schema: The key schema as CreateTable takes it. Without it, one DescribeTable is sent when the schema is
            first needed.
        max_concurrency: Requests in flight at once, at most 1,000. Defaults to the client's ``max_pool_connections``.
        rng: The source of random suffixes and jitter.

    Items are Python values, as with :class:`shardkit.ShardedTable`, whose methods document keywords, errors and cost.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        table: Any,
        strategy: Strategy,
        *,
        table_name: str | None = None,
        key_schema: Mapping[str, Any] | None = None,
        max_concurrency: int | None = None,
        rng: random.Random | None = None,
    ) -> None:
        held = getattr(table.meta, "client", None)
        client = table if held is None else held
        name = table_name if table_name is not None else getattr(table, "name", None)
        if not isinstance(name, str):
            raise ConfigurationError(
                f"table_name: is missing; a client has many tables (got {table!r:.100}): give table_name='Orders'"
            )
        self._programs = Programs(name, strategy, key_schema, draw_from(rng))
        self._runner = AsyncRunner(client, self._programs, max_concurrency)
        self._fan_out = FanOut(self._runner.concurrency, self._programs.draw, on_retry=log_retry)
        self._name = name
        self._meta = SimpleNamespace(client=client) if held is None else table.meta

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def meta(self) -> Any:
        """``meta.client`` is the unsharded client."""
        return self._meta

    async def get_item(
        self, *, Key: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Read one item, as :meth:`shardkit.ShardedTable.get_item` does."""
        return await self._item("GetItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)

    async def put_item(
        self, *, Item: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Write one item, as :meth:`shardkit.ShardedTable.put_item` does."""
        return await self._item("PutItem", {"Item": Item, **options}, Shard, return_shards=ReturnShards)

    async def _item(
        self, operation: str, params: Mapping[str, Any], shard: int | None, *, return_shards: bool
    ) -> dict[str, Any]:
        return await self._runner.run(
            self._programs.item(operation, params, shard=shard, return_shards=return_shards, fan_out=self._fan_out)
        )

    async def query(self, *, Shard: int | None = None, ReturnShards: bool = False, **query: Any) -> dict[str, Any]:
        """Read one page of a logical key's items, as :meth:`shardkit.ShardedTable.query` does."""
        return await self._runner.run(
            self._programs.query(query, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out)
        )

    @property
    def runner(self) -> AsyncRunner:
        """What runs this table's operations; for shardkit's own use."""
        return self._runner


async def bulk_load(
    table: ShardedTable, items: Iterable[Item] | AsyncIterable[Item] | Source, **options: Unpack[LoadOptions]
) -> BulkReport:
    """Write items, interleaved over their partition keys, and return a report.

    Example:
        print(await bulk_load(orders, items))

    Args:
        table: An async ``ShardedTable``.
        items: The items: an iterable, an async iterable, or a source.
        **options: The options of :func:`shardkit.streaming_bulk`, except ``processes`` and ``connect``. ``workers`` is
            not limited by the table's ``max_concurrency``.

    Returns:
        The report.

    Raises:
        ConfigurationError: An argument is invalid, there are no items, or the journal is of another load.
        BulkLoadError: Items failed (with ``on_error="raise"``), or the load or its source stopped with an error.
        asyncio.CancelledError: The task was cancelled. Nothing more is read, batches in flight are finished and
            recorded, and ``progress`` is called with the report. A second cancellation (an anyio scope that is not
            shielded cancels again at once) drops the batches in flight. The load can be resumed after both.

    Cost, IAM and source are those of :func:`shardkit.streaming_bulk`.
    """
    check_options(options, unsupported=("processes", "connect"))
    check_items(items)
    runner = table.runner
    workers = runner.side_by_side(options.get("workers"), "workers")
    sharding = await runner.run(runner.programs.known())
    with Loading(sharding, items, options, workers=workers, draw=runner.programs.draw) as loading:
        load = loading.load
        driver = runner.driver(load)
        records = _records(items, loading)
        try:
            while not load.ended:
                if load.wants:
                    with loading.feeding():
                        async for place, record in records:
                            loading.put(place, record)
                            if load.room <= 0:
                                break
                if await driver.run():
                    loading.keep()
                    loading.tell()
        except asyncio.CancelledError:
            # Finish and record what is in flight. A second cancellation ends this too.
            load.stop(ShardkitError("it was cancelled"))
            while not load.ended:
                await driver.run()
                loading.keep()
            loading.tell()
            raise
        finally:
            driver.close()
            await records.aclose()
    return loading.finish()


async def _records(items: Any, loading: Loading) -> AsyncGenerator[tuple[Place, Record], None]:
    """Read the items that are not done, from an async iterable or from any other source."""
    if not hasattr(items, "__aiter__"):
        for pair in loading.records():
            yield pair
        return
    number = 0
    async for item in items:
        place = Place(0, number)
        if loading.done is None or not loading.done(place):
            yield place, item
        number += 1
