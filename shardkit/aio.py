"""The async faces: the same programs and machines, carried by asyncio over an aiobotocore client.

For now: single puts and gets, merged queries, and bulk loads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from shardkit.bulk.load import Loading, OnError, Options, Path, Progress, check_items
from shardkit.bulk.load_machine import WINDOW, Duplicates
from shardkit.bulk.report import BulkReport
from shardkit.bulk.sources.base import Item, Place, Source
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.runner import AsyncRunner, draw_from, log_retry
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.programs import Programs
from shardkit.strategies import Strategy

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
        max_concurrency: Requests that run side by side, at most 1,000; the client's ``max_pool_connections`` if not
            given.
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
        held = getattr(table.meta, "client", None)
        client = table if held is None else held
        name = table_name if table_name is not None else getattr(table, "name", None)
        if not isinstance(name, str):
            raise ConfigurationError(
                f"table_name is missing: {table!r:.100} is a client, which has many tables; give table_name='Orders'"
            )
        self._programs = Programs(name, strategy, key_schema, draw_from(rng))
        self._runner = AsyncRunner(client, self._programs, max_concurrency)
        self._fan_out = FanOut(self._runner.concurrency, on_retry=log_retry)
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
        return await self._runner.run(
            self._programs.item(
                "GetItem",
                {"Key": Key, **options},
                shard=Shard,
                return_shards=ReturnShards,
                fan_out=self._fan_out,
            )
        )

    async def put_item(
        self, *, Item: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Write one item, as :meth:`shardkit.ShardedTable.put_item` does."""
        return await self._runner.run(
            self._programs.item(
                "PutItem",
                {"Item": Item, **options},
                shard=Shard,
                return_shards=ReturnShards,
                fan_out=self._fan_out,
            )
        )

    async def query(self, *, Shard: int | None = None, ReturnShards: bool = False, **query: Any) -> dict[str, Any]:
        """Read one page of a logical key's items, as :meth:`shardkit.ShardedTable.query` does."""
        return await self._runner.run(
            self._programs.query(
                query,
                shard=Shard,
                return_shards=ReturnShards,
                fan_out=self._fan_out,
            )
        )

    @property
    def runner(self) -> AsyncRunner:
        """What runs this table's operations; for the other rooms of shardkit."""
        return self._runner


async def bulk_load(
    table: ShardedTable,
    items: Iterable[Item] | AsyncIterable[Item] | Source,
    *,
    workers: int | None = None,
    window: int = WINDOW,
    write_units: float | str | None = None,
    on_error: OnError = "raise",
    max_failures: int | None = None,
    duplicates: Duplicates = "last",
    journal: Path | None = None,
    dead_letters: Path | None = None,
    progress: Progress | None = None,
) -> BulkReport:
    """Write items, interleaved over their partition keys, and report, as :func:`shardkit.bulk_load` does.

    Example::

        print(await bulk_load(orders, items))

    Args:
        table: An async ``ShardedTable``.
        items: The items, from an iterable, an async one, or a source.
        workers: Batches on their way at once, at most 1,000.
        window: As there, like all that follow.
        write_units: A number, or a share of the table's throughput (``"80%"``).
        on_error: ``"raise"`` or ``"collect"``.
        max_failures: Failed items that end the load when there are more.
        duplicates: ``"last"``, ``"first"`` or ``"error"``.
        journal: A file that makes the load resumable.
        dead_letters: A file for the items that fail.
        progress: Called with the report so far after every batch.

    Returns:
        The report.

    Raises:
        ConfigurationError: An argument cannot work, there were no items, or the journal is of another load.
        BulkLoadError: Items failed (with ``on_error="raise"``); or the load could not go on.
        asyncio.CancelledError: It was cancelled: nothing more was taken, what was in flight is finished and kept, and
            ``progress`` was called with the report. Cancelled again meanwhile (as an anyio scope does at once, unless
            it is shielded), what is in flight is dropped. Both can be resumed.
    """
    options = Options(
        workers=workers,
        window=window,
        write_units=write_units,
        on_error=on_error,
        max_failures=max_failures,
        duplicates=duplicates,
        journal=journal,
        dead_letters=dead_letters,
        progress=progress,
    )
    check_items(items)
    runner = table.runner
    side_by_side = runner.side_by_side(workers, "workers")
    sharding = await runner.run(runner.programs.known())
    with Loading(sharding, items, options, workers=side_by_side, draw=runner.programs.draw) as loading:
        load = loading.load
        driver = runner.driver(load)
        awaited = _numbered(items, loading.done) if hasattr(items, "__aiter__") else None
        records = iter(()) if awaited is not None else loading.records()
        try:
            while not load.ended:
                if load.wants and awaited is None:
                    loading.fill(records)
                elif load.wants and awaited is not None:
                    await _fill(loading, awaited)
                if await driver.run():
                    loading.keep()
                    loading.tell()
        except asyncio.CancelledError:
            # What is in flight is finished and kept; cancelled again, that ends too.
            load.stop(ShardkitError("it was cancelled"))
            while not load.ended:
                await driver.run()
                loading.keep()
            loading.tell()
            raise
        finally:
            driver.close()
    return loading.finish()


async def _fill(loading: Loading, records: AsyncIterator[tuple[Place, Item]]) -> None:
    """Do what ``Loading.fill`` does."""
    try:
        async for place, record in records:
            loading.put(place, record)
            if not loading.load.wants:
                return
    except Exception as error:  # noqa: BLE001 - the source's own: ``end`` decides
        loading.end(error)
    else:
        loading.end()


async def _numbered(items: Any, done: Callable[[Place], bool] | None) -> AsyncIterator[tuple[Place, Item]]:
    number = 0
    async for item in items:
        place = Place(0, number)
        if done is None or not done(place):
            yield place, item
        number += 1
