"""The async faces: the same programs and machines, carried by asyncio over an aiobotocore client.

For now: single puts and gets, merged queries, and bulk loads.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any

from shardkit.bulk.batch import WINDOW, Load
from shardkit.bulk.finish import raise_failures
from shardkit.bulk.loader import END, OnError, Progress, check_options, check_source, feed
from shardkit.bulk.report import BulkReport
from shardkit.carriers import AsyncCarrier
from shardkit.errors import ConfigurationError
from shardkit.operations.fan_out import FanOut
from shardkit.operations.requests import Requests
from shardkit.suffix import Strategy

__all__ = ["ShardedTable", "bulk_load"]


class ShardedTable:
    """Spread a table's partition keys over shards, from async code.

    Example::

        async with get_session().create_client("dynamodb") as client:
            orders = ShardedTable(client, CalculatedSuffix("OrderId", shards=200), table_name="Orders")
            await orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17", "Total": 12})

    Args:
        table: An aiobotocore client, or an aioboto3 ``Table``.
        strategy: How suffixes are chosen.
        table_name: The table's name, with a client.
        key_schema: What CreateTable takes; without it, one DescribeTable is made when the schema is first needed.
        max_concurrency: Requests that run side by side; the client's ``max_pool_connections`` if not given.
        rng: The source of random suffixes and jitter.

    Items are Python values, as with :class:`shardkit.ShardedTable`; its methods document keywords, errors and cost.

    Raises:
        ConfigurationError: An argument cannot work.
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
        client = getattr(table.meta, "client", table)
        name = table_name if table_name is not None else getattr(table, "name", None)
        if not isinstance(name, str):
            raise ConfigurationError(
                f"table_name is missing: {table!r:.100} is a client, which has many tables; give table_name='Orders'"
            )
        rng = random.Random() if rng is None else rng  # noqa: S311 - spreads load, keeps no secret
        self._requests = Requests(name, strategy, key_schema, rng.random)
        self._carrier = AsyncCarrier(client, self._requests, max_concurrency)
        self._fan_out = FanOut(self._carrier.concurrency)

    async def get_item(
        self, *, Key: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Read one item, as :meth:`shardkit.ShardedTable.get_item` does."""
        return await self._carrier.run(
            self._requests.get_item(
                {"Key": Key, **options}, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out
            )
        )

    async def put_item(
        self, *, Item: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Write one item, as :meth:`shardkit.ShardedTable.put_item` does."""
        return await self._carrier.run(
            self._requests.put_item(
                {"Item": Item, **options}, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out
            )
        )

    async def query(self, *, Shard: int | None = None, ReturnShards: bool = False, **query: Any) -> dict[str, Any]:
        """Read one page of a logical key's items, as :meth:`shardkit.ShardedTable.query` does."""
        return await self._carrier.run(
            self._requests.query(
                query,
                shard=Shard,
                return_shards=ReturnShards,
                fan_out=self._fan_out,
            )
        )

    @property
    def carrier(self) -> AsyncCarrier:
        """What runs this table's operations; for the other rooms of shardkit."""
        return self._carrier


async def bulk_load(
    table: ShardedTable,
    items: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
    *,
    workers: int | None = None,
    window: int = WINDOW,
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> BulkReport:
    """Write items, interleaved over their partition keys, and report, as :func:`shardkit.bulk_load` does.

    Example::

        print(await bulk_load(orders, items))

    Args:
        table: An async ``ShardedTable``.
        items: The items, from an iterable or an async one.
        workers: Batches on their way at once.
        window: Items that wait to be interleaved.
        on_error: ``"raise"`` or ``"collect"``.
        progress: Called with the report so far after every batch.

    Returns:
        The report.

    Raises:
        ConfigurationError: An argument cannot work, or there were no items.
        BulkLoadError: Items failed (with ``on_error="raise"``); or the load could not go on.
    """
    check_options(workers, window, on_error)
    check_source(items)
    carrier = table.carrier
    workers = carrier.side_by_side(workers, "workers")
    sharding = await carrier.run(carrier.requests.known())
    load = Load(sharding, workers=workers, draw=carrier.requests.draw, window=window)
    driver = carrier.driver(load)
    source = _items(items)
    try:
        while not load.ended:
            while load.wants:
                await _read(load, source)
            if await driver.run() and progress is not None:
                progress(load.report)
    finally:
        driver.close()
    raise_failures(load, collect=on_error == "collect")
    return load.report


async def _read(load: Load, source: AsyncIterator[Mapping[str, Any]]) -> None:
    try:
        item = await anext(source, END)
    except Exception as error:
        if load.report.items == 0:
            raise
        # What was taken is written first, then this is raised.
        load.close(error)
    else:
        feed(load, item)


async def _items(items: Any) -> AsyncIterator[Mapping[str, Any]]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
