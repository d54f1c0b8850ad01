"""Iterators that read as they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shardkit.drivers import Driver
from shardkit.operations.gather import StreamOfShards
from shardkit.operations.query import Plan
from shardkit.operations.stream import Rows

__all__ = ["QueryItems"]


class QueryItems(Iterator[Any]):
    """The items of a merged Query, read as they are asked for; ``ShardedTable.query_items()`` makes it."""

    def __init__(self, plan: Callable[[], Plan], driver: Callable[[StreamOfShards], Driver[Any]], rows: Rows) -> None:
        self._plan = plan
        self._driver_over = driver
        self._rows = rows
        self._driver: Driver[Any] | None = None

    def __next__(self) -> Any:
        while self._rows.wanting:
            if self._driver is None:
                self._rows.plan = self._plan()
                self._driver = self._driver_over(StreamOfShards(self._rows.plan))
            self._rows.add(self._driver.run())
        return self._rows.take()

    @property
    def last_evaluated_key(self) -> dict[str, str] | None:
        """The cursor behind the last item handed out; None: before the first, and when all has been read."""
        return self._rows.last_evaluated_key

    def close(self) -> None:
        """Read no more."""
        self._rows.end()
        if self._driver is not None:
            self._driver.close()
