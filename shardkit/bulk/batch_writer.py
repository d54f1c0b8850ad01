"""The batch writer: boto3's interface to the machine of a bulk load."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from shardkit.bulk.load_machine import Load, log_end, raise_failures
from shardkit.bulk.queue import BATCH_ITEMS
from shardkit.errors import ConfigurationError
from shardkit.runtime.drivers import Driver

if TYPE_CHECKING:
    from shardkit.runtime.runner import Runner


class BatchWriter:
    """What ``ShardedTable.batch_writer()`` returns. Threads may share it."""

    def __init__(self, runner: Runner, overwrite_by_pkeys: list[str] | None) -> None:
        sharding = runner.run(runner.programs.known())
        self._table = sharding.table
        self._load = Load(
            sharding,
            workers=1,
            draw=runner.programs.draw,
            window=BATCH_ITEMS,
            replace_by=None if overwrite_by_pkeys is None else tuple(overwrite_by_pkeys),
        )
        self._driver: Driver[Any] = runner.driver(self._load)
        self._lock = threading.Lock()
        self._ended = False

    def put_item(self, Item: Mapping[str, Any]) -> None:
        """Write an item in a batch with others."""
        self._take(self._load.put, Item)

    def delete_item(self, Key: Mapping[str, Any]) -> None:
        """Delete an item in a batch with others."""
        self._take(self._load.delete, Key)

    def _take(self, take: Callable[[Mapping[str, Any]], None], given: Mapping[str, Any]) -> None:
        with self._lock:
            if self._ended:
                raise ConfigurationError(
                    "batch_writer: its with block has ended, so nothing more is sent; open a new one"
                )
            take(given)
            while not self._load.wants and not self._load.ended:
                self._driver.run()
            if self._load.fatal is not None:
                log_end(self._load, self._table)
                raise_failures(self._load)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            self._ended = True
            if error is not None:
                return  # after an error in the block, nothing more is written
            self._load.close()
            while not self._load.ended:
                self._driver.run()
            log_end(self._load, self._table)
            raise_failures(self._load)
