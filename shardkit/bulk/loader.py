"""bulk_load and streaming_bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from shardkit.bulk.batch import WINDOW, Load
from shardkit.bulk.finish import raise_failures
from shardkit.bulk.report import BulkReport, BulkResult
from shardkit.drivers import Driver
from shardkit.errors import ConfigurationError
from shardkit.suffix import Unsharded
from shardkit.table import ShardedTable

__all__ = ["END", "bulk_load", "check_options", "check_source", "feed", "streaming_bulk"]

OnError = Literal["raise", "collect"]
Progress = Callable[[BulkReport], object]

END: Any = object()
"""What a source gives when it has no more items."""


def streaming_bulk(
    table: Any,
    items: Iterable[Mapping[str, Any]],
    *,
    workers: int | None = None,
    window: int = WINDOW,
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> Iterator[BulkResult]:
    """Write items, interleaved over their partition keys, and yield one result an item as they are settled.

    Example::

        for result in streaming_bulk(orders, items, on_error="collect"):
            if not result.ok:
                print(result.place, result.error)

    Args:
        table: A ``ShardedTable``, or a boto3 ``Table`` (whose keys are written as they are).
        items: The items, each a mapping with its logical key. It is read as there is room.
        workers: Batches on their way at once, of a ``ShardedTable`` at most its ``max_concurrency``; the client's
            ``max_pool_connections`` if not given.
        window: Items that wait to be interleaved; the order is the guide's exactly where it holds the data.
        on_error: ``"raise"``: BulkLoadError after all else was written; ``"collect"``: results and report say it.
        progress: Called with the report so far after every batch.

    Returns:
        An iterator of BulkResult, in the order in which items are settled. Left early, it sends nothing more.

    Raises:
        ConfigurationError: An argument cannot work, or there were no items.
        BulkLoadError: Items failed (with ``on_error="raise"``); or the load, or its source, could not go on.

    Cost: one BatchWriteItem for every 25 items and one for every retry; memory: the window, and what failed.
    IAM: ``dynamodb:BatchWriteItem`` (and ``dynamodb:DescribeTable``, unless ``key_schema=`` was given).
    Source: the guide, "Distribute Write Activity During Data Upload"; BatchWriteItem API reference.
    """
    _, batches = _started(table, items, workers, window, on_error, progress)
    return (result for results in batches for result in results)


def bulk_load(
    table: Any,
    items: Iterable[Mapping[str, Any]],
    *,
    workers: int | None = None,
    window: int = WINDOW,
    on_error: OnError = "raise",
    progress: Progress | None = None,
) -> BulkReport:
    """Write items, interleaved over their partition keys, and report.

    Example::

        print(bulk_load(orders, items))

    Arguments, exceptions and cost are those of :func:`streaming_bulk`.

    Returns:
        The report; its ``failures`` say which items failed and why.
    """
    load, batches = _started(table, items, workers, window, on_error, progress)
    for _ in batches:
        pass
    return load.report


def check_options(workers: int | None, window: int, on_error: str) -> None:
    """Refuse options that cannot work."""
    for name, value in (("workers", workers), ("window", window)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigurationError(f"{name}={value!r} is not a whole number of at least 1")
    if on_error not in ("raise", "collect"):
        raise ConfigurationError(f"on_error={on_error!r} is neither 'raise' nor 'collect'")


def check_source(items: Any) -> None:
    """Refuse what is not a source of items."""
    if isinstance(items, Mapping | str | bytes) or not (hasattr(items, "__iter__") or hasattr(items, "__aiter__")):
        raise ConfigurationError(
            f"items is a {type(items).__name__}, not an iterable of items; give a list or a generator"
        )


def feed(load: Load, item: Any) -> None:
    """Hand on an item or the source's END; a load of nothing is refused.

    No items at all is nearly always a source that was read before, or is not there.
    """
    if item is not END:
        load.put(item)
        return
    load.close()
    if load.report.items == 0:
        raise ConfigurationError("there were no items to load; look at the source, or do not load when it is empty")


def _started(
    table: Any,
    items: Iterable[Mapping[str, Any]],
    workers: int | None,
    window: int,
    on_error: OnError,
    progress: Progress | None,
) -> tuple[Load, Iterator[list[BulkResult]]]:
    check_options(workers, window, on_error)
    check_source(items)
    if not hasattr(items, "__iter__"):
        raise ConfigurationError(f"items is a {type(items).__name__}, an async iterable; use shardkit.aio.bulk_load")
    sharded = table if isinstance(table, ShardedTable) else ShardedTable(table, Unsharded(), max_concurrency=workers)
    carrier = sharded.carrier
    workers = min(workers or carrier.concurrency, carrier.concurrency)
    load = Load(carrier.run(carrier.requests.known()), workers=workers, draw=carrier.requests.draw, window=window)
    return load, _loading(load, carrier.driver(load), iter(items), on_error, progress)


def _loading(
    load: Load,
    driver: Driver[list[BulkResult]],
    source: Iterator[Mapping[str, Any]],
    on_error: OnError,
    progress: Progress | None,
) -> Iterator[list[BulkResult]]:
    try:
        while not load.ended:
            while load.wants:
                _read(load, source)
            if results := driver.run():
                yield results
                if progress is not None:
                    progress(load.report)
    finally:
        driver.close()
    raise_failures(load, collect=on_error == "collect")


def _read(load: Load, source: Iterator[Mapping[str, Any]]) -> None:
    try:
        item = next(source, END)
    except Exception as error:
        if load.report.items == 0:
            raise
        # What was taken is written first, then this is raised.
        load.close(error)
    else:
        feed(load, item)
