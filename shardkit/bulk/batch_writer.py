"""The batch writers: boto3's interface to the machine of a bulk load, sync and async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from shardkit.core.calls import explains_calls
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from shardkit.runtime.drivers import AsyncDriver, SyncDriver
    from shardkit.runtime.runner import AsyncRunner, Runner
    from shardkit.sharding.programs import Programs
    from shardkit.sharding.seam import Operations

Given = Mapping[str, Any]
Kind = Literal["put", "delete"]


class _Writes:
    """The load of a batch writer, which takes writes until the ``with`` block has ended."""

    def __init__(self, sharding: Operations, programs: Programs, overwrite_by_pkeys: list[str] | None) -> None:
        from shardkit.bulk.load_machine import Load  # noqa: PLC0415 - most tables have no batch writer
        from shardkit.bulk.load_window import BATCH_ITEMS  # noqa: PLC0415

        self.load = (programs.machine(sharding) or Load)(
            sharding,
            workers=1,
            draw=programs.draw,
            window=BATCH_ITEMS,
            batch_writer=True,
            replace_by=None if overwrite_by_pkeys is None else tuple(overwrite_by_pkeys),
        )
        self._table = sharding.table
        self._ended = False

    def take(self, kind: Kind, given: Given) -> None:
        if self._ended:
            raise ConfigurationError("batch_writer: its with block has ended, so nothing more is sent; open a new one")
        if kind == "put":
            self.load.put(given)
        else:
            self.load.delete(given)

    @property
    def full(self) -> bool:
        return not self.load.wants and not self.load.ended

    def check(self) -> None:
        """Raise if the load cannot go on."""
        if self.load.fatal is not None:
            self.finish()

    def end(self, error: type[BaseException] | None) -> bool:
        """End the block; return whether to write the rest, which an error in the block prevents."""
        self._ended = True
        if error is None:
            self.load.close()
        return error is None

    def finish(self) -> None:
        from shardkit.bulk.load_end import log_end, raise_failures  # noqa: PLC0415

        log_end(self.load, self._table)
        raise_failures(self.load)


@explains_calls
class BatchWriter:
    """What ``ShardedTable.batch_writer()`` returns. Threads may share it."""

    def __init__(self, runner: Runner, overwrite_by_pkeys: list[str] | None) -> None:
        self._writes = _Writes(runner.run(runner.programs.to_load()), runner.programs, overwrite_by_pkeys)
        self._driver: SyncDriver[Any] = runner.driver(self._writes.load)
        self._lock = threading.Lock()

    def put_item(self, Item: Given) -> None:
        """Write an item in a batch with others."""
        self._take("put", Item)

    def delete_item(self, Key: Given) -> None:
        """Delete an item in a batch with others."""
        self._take("delete", Key)

    def _take(self, kind: Kind, given: Given) -> None:
        with self._lock:
            self._writes.take(kind, given)
            while self._writes.full:
                self._driver.run()
            self._writes.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            if self._writes.end(error):
                while not self._writes.load.ended:
                    self._driver.run()
                self._writes.finish()


@explains_calls
class AsyncBatchWriter:
    """What ``aio.ShardedTable.batch_writer()`` returns. Tasks of one event loop may share it.

    If a task is cancelled while it writes, its item and the batch in flight are sent again with the next batch.
    """

    def __init__(self, runner: AsyncRunner, overwrite_by_pkeys: list[str] | None) -> None:
        self._runner = runner
        self._overwrite_by_pkeys = overwrite_by_pkeys
        self._lock = asyncio.Lock()
        self._opened: tuple[_Writes, AsyncDriver[Any]] | None = None

    async def _open(self) -> tuple[_Writes, AsyncDriver[Any]]:
        if self._opened is None:
            programs = self._runner.programs
            writes = _Writes(await self._runner.run(programs.to_load()), programs, self._overwrite_by_pkeys)
            self._opened = writes, self._runner.driver(writes.load)
        return self._opened

    async def put_item(self, Item: Given) -> None:
        """Write an item in a batch with others."""
        await self._take("put", Item)

    async def delete_item(self, Key: Given) -> None:
        """Delete an item in a batch with others."""
        await self._take("delete", Key)

    async def _take(self, kind: Kind, given: Given) -> None:
        async with self._lock:
            writes, driver = await self._open()
            writes.take(kind, given)
            try:
                while writes.full:
                    await driver.run()
            except BaseException:
                await driver.close()
                raise
            writes.check()

    async def __aenter__(self) -> Self:
        async with self._lock:
            await self._open()
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        async with self._lock:
            writes, driver = await self._open()
            if not writes.end(error):
                return
            try:
                while not writes.load.ended:
                    await driver.run()
            except BaseException:
                await driver.close()
                raise
            writes.finish()
