"""bulk_load and streaming_bulk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from shardkit.bulk.batch import WINDOW, Duplicates
from shardkit.bulk.finish import interrupted
from shardkit.bulk.loading import Loading, OnError, Options, Path, Progress, check_items
from shardkit.bulk.report import BulkReport, BulkResult
from shardkit.bulk.sources.base import Item, Source
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.interrupts import Interruptions
from shardkit.runtime.processes import Connect, Processes
from shardkit.runtime.runner import Carrier
from shardkit.strategies import Unsharded
from shardkit.table import ShardedTable

__all__ = ["bulk_load", "streaming_bulk"]


def streaming_bulk(
    table: Any,
    items: Iterable[Item] | Source,
    *,
    workers: int | None = None,
    processes: int | None = None,
    connect: Connect | None = None,
    window: int = WINDOW,
    write_units: float | str | None = None,
    on_error: OnError = "raise",
    max_failures: int | None = None,
    duplicates: Duplicates = "last",
    journal: Path | None = None,
    dead_letters: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[BulkResult]:
    """Write items, interleaved over their partition keys, and yield one result an item as they are settled.

    Example::

        for result in streaming_bulk(orders, items, on_error="collect"):
            if not result.ok:
                print(result.place, result.error)

    Args:
        table: A ``ShardedTable``, or a boto3 ``Table`` (whose keys are written as they are).
        items: The items, each a mapping with its logical key, or a source of them (``open_source``). It is read as
            there is room.
        workers: Batches on their way at once, of a ``ShardedTable`` at most its ``max_concurrency``; the client's
            ``max_pool_connections`` if not given. At most 1,000. With ``processes``, over all of them, and all three
            for each.
        processes: Processes that send the requests, at most 256, each with a client of its own, so that a load uses
            more than one core. The rest, and all that is promised, stays in this one. Call it under
            ``if __name__ == "__main__":``.
        connect: Makes the client (or resource, or Table) of each process: a function without arguments at the top level
            of a module. If not given, one with the region, endpoint and configuration of the table's client, and with
            the credentials that boto3 finds by itself. What else the client was given in code (credentials, event
            handlers) does not come along; a ``CapacityMeter`` on it sees all requests.
        window: Items that wait to be interleaved, at most 10,000,000; the order is the guide's exactly where it holds
            the data.
        write_units: Write units a second that the load may take of the table and of each global index, or a share of
            their provisioned (or warm) throughput, ``"80%"``, which is asked for again every minute; as many as it can
            if not given.
        on_error: ``"raise"``: BulkLoadError after all else was written; ``"collect"``: results and report say it.
        max_failures: Failed items that end the load when there are more.
        duplicates: Of writes of one primary key (as stored) that wait or are on their way together, ``"last"`` or
            ``"first"`` stays and the others are superseded, or (``"error"``) fail. With ``"last"`` the last of the
            whole input wins, because none overtakes another.
        journal: A file that makes the load resumable: what it holds as done is not sent again.
        dead_letters: A file for the items that fail, with their reasons.
        progress: Called with the report so far after every batch.

    Returns:
        An iterator of BulkResult, in the order in which items are settled. Left early, it sends nothing more.

    Raises:
        ConfigurationError: An argument cannot work, there were no items, the journal is of another load, or a process
            reaches another table than the client.
        BulkLoadError: Items failed (with ``on_error="raise"``); or the load, or its source, could not go on.
        InterruptedLoadError: Ctrl-C, and a KeyboardInterrupt still: what was in flight is finished and kept. The second
            one ends the load at once; with a journal it can be resumed all the same.

    Cost: one BatchWriteItem for every 25 items and for every 25 that are sent again, up to ten PutItem a second where
    items come back without a reason, a DescribeTable a minute for a share; for ``processes`` a DescribeTable, and one
    each. Memory: of each item of the window its JSON and 300 bytes, and what failed; 55 MB a process.
    IAM: ``dynamodb:BatchWriteItem`` (and ``dynamodb:DescribeTable``, unless ``key_schema=`` was given and neither a
    share nor ``processes``; without ``dynamodb:PutItem`` reasons stay unknown).
    Source: the guide, "Distribute Write Activity During Data Upload"; BatchWriteItem API reference.
    """
    carrier, loading, through = _started(
        table,
        items,
        Options(
            workers=workers,
            processes=processes,
            connect=connect,
            window=window,
            write_units=write_units,
            on_error=on_error,
            max_failures=max_failures,
            duplicates=duplicates,
            journal=journal,
            dead_letters=dead_letters,
            progress=progress,
        ),
    )
    return (result for results in _results(carrier, loading, through) for result in results)


def bulk_load(
    table: Any,
    items: Iterable[Item] | Source,
    *,
    workers: int | None = None,
    processes: int | None = None,
    connect: Connect | None = None,
    window: int = WINDOW,
    write_units: float | str | None = None,
    on_error: OnError = "raise",
    max_failures: int | None = None,
    duplicates: Duplicates = "last",
    journal: Path | None = None,
    dead_letters: Path | None = None,
    progress: Progress | None = None,
) -> BulkReport:
    """Write items, interleaved over their partition keys, and report.

    Example::

        print(bulk_load(orders, items))

    Arguments, exceptions and cost are those of :func:`streaming_bulk`.

    Returns:
        The report; its ``failures`` say which items failed and why.
    """
    carrier, loading, through = _started(
        table,
        items,
        Options(
            workers=workers,
            processes=processes,
            connect=connect,
            window=window,
            write_units=write_units,
            on_error=on_error,
            max_failures=max_failures,
            duplicates=duplicates,
            journal=journal,
            dead_letters=dead_letters,
            progress=progress,
        ),
    )
    # Not a loop: Ctrl-C between two results would be raised here, and what is in flight be dropped.
    deque(_results(carrier, loading, through), maxlen=0)
    return loading.load.report


def _started(table: Any, items: Any, options: Options) -> tuple[Carrier, Loading, Processes | None]:
    check_items(items)
    if hasattr(items, "__aiter__") and not hasattr(items, "__iter__"):
        raise ConfigurationError(f"items is a {type(items).__name__}, an async iterable; use shardkit.aio.bulk_load")
    workers = options.workers
    sharded = table if isinstance(table, ShardedTable) else ShardedTable(table, Unsharded(), max_concurrency=workers)
    carrier = sharded.carrier
    most = carrier.concurrency * (options.processes or 1)
    workers = min(workers or most, most)
    sharding = carrier.run(carrier.requests.known())
    through = None
    if options.processes is not None:
        through = Processes(carrier, count=options.processes, workers=workers, connect=options.connect)
    return carrier, Loading(sharding, items, options, workers=workers, draw=carrier.requests.draw), through


def _results(carrier: Carrier, loading: Loading, through: Processes | None) -> Iterator[Sequence[BulkResult]]:
    load = loading.load
    interruptions = Interruptions()
    driver = carrier.driver(load, through=through, waiting=interruptions.waiting)
    with loading, through or nullcontext():
        records = loading.records()
        try:
            while not load.ended:
                if load.wants:
                    loading.fill(records)
                with interruptions:
                    if results := driver.run():
                        loading.keep()
                if results:
                    yield results
                    loading.tell()
        except KeyboardInterrupt:
            # What is in flight is finished and kept; a second interruption ends that too.
            load.stop(ShardkitError("it was interrupted"))
            while not load.ended:
                driver.run()
                loading.keep()
            raise interrupted(load) from None
        finally:
            driver.close()
    loading.finish()
