"""Iterators that read as they are asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from shardkit.runtime.drivers import Driver
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import Rows, StreamOfShards

__all__ = ["QueryItems"]


class QueryItems(Iterator[Any]):
    """The items of a merged Query, read as they are asked for; ``ShardedTable.query_items()`` makes it.

    Example::

        with orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09")) as day:
            first = next(day)  # nothing is read ahead after the block

    Threads may share one.
    """

    def __init__(
        self,
        plan: Callable[[], Plan],
        stream: Callable[[Plan], StreamOfShards],
        driver: Callable[[StreamOfShards], Driver[Any]],
        rows: Rows,
    ) -> None:
        self._plan = plan
        self._stream_of = stream
        self._driver_over = driver
        self._rows = rows
        self._lock = threading.Lock()
        self._stream: StreamOfShards | None = None
        self._driver: Driver[Any] | None = None

    def __next__(self) -> Any:
        with self._lock:
            if self._rows.wanting:
                self._read()
            return self._rows.take()

    def _read(self) -> None:
        if self._driver is None:
            self._rows.plan = self._plan()
            self._stream = self._stream_of(self._rows.plan)
            self._driver = self._driver_over(self._stream)
        try:
            self._rows.add(self._driver.run())
        except BaseException:
            # As with a generator: what has failed, or was interrupted, gives no more; the cursor tells where it stood.
            self._rows.end()
            raise

    @property
    def last_evaluated_key(self) -> dict[str, str] | None:
        """The cursor behind the last item handed out; None: before the first, and when all has been read."""
        return self._rows.last_evaluated_key

    @property
    def shard_errors(self) -> dict[int | None, Exception]:
        """With ``on_shard_error="partial"``: the shards that have failed so far, and why; their items are missing."""
        return {} if self._stream is None else dict(self._stream.errors)

    def __enter__(self) -> QueryItems:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Read no more."""
        self._rows.end()
        if self._driver is not None:
            self._driver.close()
