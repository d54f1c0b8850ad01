"""What ``query_items`` and ``scan_items`` return: iterators over the items of a stream, sync and async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

from shardkit.core.machine import Machine, Program
from shardkit.errors import InvalidValueError
from shardkit.runtime.drivers import AsyncDriver, SyncDriver
from shardkit.runtime.runner import AsyncRunner, Runner
from shardkit.sharding.query.stream import QueryRows
from shardkit.sharding.scan import ScanRows

Opening = Callable[[], Program[Machine[Any]]]
"""Makes the program that returns the stream. A failed one (no DescribeTable, …) is made again at the next item."""


class _Rows(Protocol):
    @property
    def wanting(self) -> bool: ...

    def begin(self, stream: Any) -> Machine[Any]: ...

    def add(self, rows: Any) -> None: ...

    def take(self) -> Any: ...

    def end(self) -> None: ...


R = TypeVar("R", bound=_Rows)


class _OfQuery:
    _rows: QueryRows

    @property
    def last_evaluated_key(self) -> dict[str, str] | None:
        """The cursor after the last item that was returned; None before the first item and after the last one."""
        return self._rows.last_evaluated_key

    @property
    def shard_errors(self) -> dict[int | None, Exception]:
        """With ``on_shard_error="partial"``: the error of each shard that failed; its items are missing."""
        return self._rows.shard_errors


class _Items(Iterator[Any], Generic[R]):
    def __init__(self, runner: Runner, opening: Opening, rows: R) -> None:
        self._runner = runner
        self._opening = opening
        self._rows = rows
        self._lock = threading.Lock()
        self._driver: SyncDriver[Any] | None = None

    def __next__(self) -> Any:
        with self._lock:
            if self._rows.wanting:
                self._read()
            return self._rows.take()

    def _read(self) -> None:
        if self._driver is None:
            stream = self._runner.run(self._opening())
            self._driver = self._runner.driver(self._rows.begin(stream))
        try:
            self._rows.add(self._driver.run())
        except BaseException:
            # As with a generator: after an error or an interrupt it yields nothing more. The cursor keeps its position.
            self._rows.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading."""
        self._rows.end()
        if self._driver is not None:
            self._driver.close()


class QueryItems(_OfQuery, _Items[QueryRows]):
    """An iterator over the items of a merged Query; ``ShardedTable.query_items()`` returns it.

    Example:
        with orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09")) as day:
            first = next(day)  # the block's end stops reading ahead

    Threads may share it.
    """


class ScanItems(_Items[ScanRows]):
    """An iterator over the items of a Scan; ``ShardedTable.scan_items()`` returns it.

    Example:
        with orders.scan_items(segments=4) as found:
            first = next(found)  # the block's end stops reading ahead

    Threads may share it.
    """


class _AsyncItems(AsyncIterator[Any], Generic[R]):
    def __init__(self, runner: AsyncRunner, opening: Opening, rows: R) -> None:
        self._runner = runner
        self._opening = opening
        self._rows = rows
        self._lock = asyncio.Lock()
        self._driver: AsyncDriver[Any] | None = None

    def __iter__(self) -> NoReturn:
        raise InvalidValueError(f"{type(self).__name__}: is an async iterator, got a plain for; use async for")

    async def __anext__(self) -> Any:
        while self._rows.wanting:
            async with self._lock:
                # Another task may have read while this one waited.
                if self._rows.wanting:
                    await self._read()
        try:
            return self._rows.take()
        except StopIteration:
            raise StopAsyncIteration from None

    async def _read(self) -> None:
        if self._driver is None:
            stream = await self._runner.run(self._opening())
            self._driver = self._runner.driver(self._rows.begin(stream))
        try:
            self._rows.add(await self._driver.run())
        except BaseException:
            # As in the sync one; a task that was cancelled leaves no request in flight.
            self._rows.end()
            await self._driver.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading: cancel the requests in flight, and wait until they have ended."""
        self._rows.end()
        if self._driver is not None:
            await self._driver.close()


class AsyncQueryItems(_OfQuery, _AsyncItems[QueryRows]):
    """An async iterator over the items of a merged Query; ``aio.ShardedTable.query_items()`` returns it.

    Example:
        async with orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09")) as day:
            first = await anext(day)  # the block's end stops reading ahead

    Tasks of one event loop may share it. To stop before the end, use ``async with`` or ``close()``: otherwise, requests
    that read ahead go on until they are answered.
    """


class AsyncScanItems(_AsyncItems[ScanRows]):
    """An async iterator over the items of a Scan; ``aio.ShardedTable.scan_items()`` returns it.

    Example:
        async with orders.scan_items(segments=4) as found:
            first = await anext(found)  # the block's end stops reading ahead

    Tasks of one event loop may share it; see :class:`AsyncQueryItems`.
    """
