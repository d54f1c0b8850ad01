"""bulk_load, streaming_bulk and backfill_index with an async table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Unpack

from shardkit.aio.migrate import runner_of
from shardkit.aio.table import ItemOperations, ShardedTable
from shardkit.aio.timeseries import TimeSeries
from shardkit.bulk.load import LoadOptions, SourceLoad, check_items, check_options
from shardkit.bulk.load_machine import Load
from shardkit.bulk.report import BulkReport, BulkResult
from shardkit.bulk.sources.base import Item, Place, Record, Source
from shardkit.core.calls import shows_options
from shardkit.errors import ConfigurationError, ShardkitError, brief
from shardkit.migrate.backfill import BackfillOptions, backfilling
from shardkit.migrate.backfill_machine import BackfillReport
from shardkit.passes.passes import run_async
from shardkit.runtime.runner import AsyncRunner

Items = Iterable[Item] | AsyncIterable[Item] | Source
_OF_PROCESSES = ("processes", "connect")


@shows_options(LoadOptions, without=_OF_PROCESSES)
def streaming_bulk(
    table: ShardedTable | TimeSeries, items: Items, **options: Unpack[LoadOptions]
) -> AsyncGenerator[BulkResult, None]:
    """Write items, interleaved over their partition keys, and yield one result per item.

    Example:
        async with aclosing(streaming_bulk(orders, items, on_error="collect")) as results:
            async for result in results:
                if not result.ok:
                    print(result.place, result.error)

    Args:
        table: An async ``ShardedTable``, or an async ``TimeSeries``.
        items: The items: an iterable, an async iterable, or a source.
        **options: The options of :func:`shardkit.streaming_bulk`, except ``processes`` and ``connect``. ``workers`` is
            not limited by the table's ``max_concurrency``.

    Returns:
        An async generator of BulkResult, in the order in which items finish. ``contextlib.aclosing`` ends the load when
        you stop iterating: nothing more is sent, and batches in flight are cancelled. They may be written or not.

    Raises:
        ConfigurationError: An argument is invalid, ``items`` is empty, or the journal belongs to another load.
        BulkLoadError: Items failed (with ``on_error="raise"``), or the load or its source stopped with an error.
        asyncio.CancelledError: The task was cancelled while it waited for a result; see :func:`bulk_load`.

    Cost, IAM and source are those of :func:`shardkit.streaming_bulk`.
    """
    _check(table, items, options)
    return _each(table.runner.over(options.get("transport")), items, options)


@shows_options(LoadOptions, without=_OF_PROCESSES)
async def bulk_load(table: ShardedTable | TimeSeries, items: Items, **options: Unpack[LoadOptions]) -> BulkReport:
    """Write items, interleaved over their partition keys, and return a report.

    Example:
        print(await bulk_load(orders, items))

    Arguments, exceptions and cost are those of :func:`streaming_bulk`.

    Returns:
        The report; its ``failures`` are the results of the items that failed.

    Raises:
        asyncio.CancelledError: The task was cancelled. Nothing more is read, batches in flight are finished and
            recorded, and ``progress`` is called with the report. A second cancellation drops the batches in flight;
            an anyio scope that is not shielded cancels again at once. The load can be resumed after both.
    """
    _check(table, items, options)
    runner = table.runner.over(options.get("transport"))
    source_load = await _started(runner, items, options)
    async with aclosing(_results(runner, source_load, items)) as results:
        async for _ in results:
            pass
    return source_load.machine.report


@shows_options(BackfillOptions)
async def backfill_index(table: ShardedTable, index: str, **options: Unpack[BackfillOptions]) -> BackfillReport:
    """Give the items that a table already has the attribute of a sharded index, then verify all items.

    Example:
        by_status = CalculatedSuffix("OrderId", shards=10, source="status")
        orders = ShardedTable(client, Unsharded(), table_name="Orders", indexes={"by-status": by_status})
        report = await backfill_index(orders, "by-status", write_units=500)
        report.complete

    Arguments, exceptions, cost and IAM are those of :func:`shardkit.backfill_index`.

    Returns:
        The report.
    """
    runner = runner_of(table, "strategy, indexes={…}")
    return await run_async(runner, backfilling(runner, await runner.run(runner.programs.known()), index, options))


def _check(table: Any, items: Items, options: LoadOptions) -> None:
    if not isinstance(table, ItemOperations):
        raise ConfigurationError(
            f"table: must be a shardkit.aio.ShardedTable, got {brief(table)}; for an unsharded one, give "
            "ShardedTable(client, Unsharded(), table_name='…'); for a table of boto3, use shardkit.bulk_load"
        )
    check_options(options, unsupported=_OF_PROCESSES)
    check_items(items)


async def _started(runner: AsyncRunner, items: Items, options: LoadOptions) -> SourceLoad:
    workers = runner.side_by_side(options.get("workers"), "workers")
    programs = runner.programs
    sharding = await runner.run(programs.to_load(look=True))
    machine = programs.machine(sharding) or Load
    return SourceLoad(sharding, items, options, workers=workers, draw=programs.draw, machine=machine)


async def _each(runner: AsyncRunner, items: Items, options: LoadOptions) -> AsyncGenerator[BulkResult, None]:
    source_load = await _started(runner, items, options)
    async with aclosing(_results(runner, source_load, items)) as found:
        async for results in found:
            for result in results:
                yield result


async def _results(
    runner: AsyncRunner, source_load: SourceLoad, items: Items
) -> AsyncGenerator[Sequence[BulkResult], None]:
    load = source_load.machine
    source_load.watch(runner.client)
    driver = runner.driver(load)
    with source_load:
        async with aclosing(_records(items, source_load)) as records:
            try:
                while not load.ended:
                    if load.wants:
                        await _fill(source_load, records)
                    if results := await driver.run():
                        source_load.keep()
                        yield results
                        source_load.tell()
            except asyncio.CancelledError:
                # Finish and record what is in flight. A second cancellation ends this too.
                load.stop(ShardkitError("it was cancelled"))
                while not load.ended:
                    await driver.run()
                    source_load.keep()
                source_load.tell()
                raise
            finally:
                await driver.close()
    source_load.finish()


async def _fill(source_load: SourceLoad, records: AsyncGenerator[tuple[Place, Record], None]) -> None:
    with source_load.feeding():
        async for place, record in records:
            source_load.put(place, record)
            if source_load.machine.room <= 0:
                break


async def _records(items: Any, source_load: SourceLoad) -> AsyncGenerator[tuple[Place, Record], None]:
    """Read the items that are not done, from an async iterable or from any other source."""
    if not hasattr(items, "__aiter__"):
        for pair in source_load.records():
            yield pair
        return
    number = 0
    async for item in items:
        place = Place(0, number)
        if source_load.done is None or not source_load.done(place):
            yield place, item
        number += 1
