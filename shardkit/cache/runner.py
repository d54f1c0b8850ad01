"""What carries out the programs of a cache, in threads and in tasks, and what sees the writes of its client."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import random
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from shardkit.cache.options import CacheOptions
from shardkit.cache.reads import CachedReads
from shardkit.cache.source import CachedSource
from shardkit.cache.steps import AskTable, CacheProgram, CacheStep, Change, Count, Join, Look
from shardkit.cache.stores import MemoryStore, Store, renew_after_fork
from shardkit.cache.table_cache import OpenWrite, TableCache
from shardkit.cache.writes import changes_of, keys_of_pages, rewrites, written
from shardkit.dynamodb.requests import OPERATIONS, Access, tables_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError
from shardkit.runtime.hooks import observe, show_lookups, unobserve
from shardkit.runtime.observers import Call, Holder
from shardkit.runtime.runner import draw_from

T = TypeVar("T")
_PAUSE = 1.0  # seconds for which a store that failed is not asked
_REFRESHES = 4  # threads
_log = logging.getLogger("shardkit")


class _AnyCacheRunner:
    _is_async: bool

    def __init__(self, source: CachedSource, options: CacheOptions, rng: random.Random | None = None) -> None:
        self.source = source
        self.store: Store = MemoryStore(options.max_bytes) if options.max_bytes is not None else options.store
        if self.store.shared and self.store.is_async != self._is_async:
            raise ConfigurationError(
                f"store: must have {'an asyncio' if self._is_async else 'a sync'} client for this table, got "
                f"{self.store!r}; give one of the other kind"
            )
        prefix = f"shardkit:{source.client.meta.region_name}:{source.named}:".encode()
        self.cache = TableCache(
            options,
            not self.store.shared and source.is_part is None,
            draw_from(rng),
            asyncio.Event if self._is_async else threading.Event,
            self.store.writes_of(prefix),
            prefix,
        )
        self._known: CachedReads | None = None
        self._resting = 0.0
        renew_after_fork(self)
        observe(source.client, _WriteObserver(self))

    @property
    def reads_now(self) -> CachedReads | None:
        """The reads of the table, as far as they can be had without a wait of a task."""
        raise NotImplementedError

    def settle(self, program: Callable[[CachedReads], CacheProgram[None]]) -> None:
        """Carry out a program after a write."""
        raise NotImplementedError

    def carry(self, program: CacheProgram[None]) -> None:
        """Carry out a program that only changes the store."""
        raise NotImplementedError

    def clearing(self, _: CachedReads) -> CacheProgram[None]:
        """Drop all copies of the table."""
        return self.cache.end({self.cache.all_keys: None}, None, self.store.clock())

    def forked(self) -> None:
        """Begin anew in a forked process: nobody ends there what was being read."""
        self.cache.forget_reads()
        self.cache.writes.lock = threading.Lock()

    def describe(self, names: tuple[str, ...]) -> CachedReads:
        """Set the names of the key attributes."""
        source = self.source
        self._known = CachedReads(self.cache, source.name, names, self.cache.all_keys, source.form)
        return self._known

    def _change_now(self, step: Change) -> bool:
        if self._is_resting():
            return False
        try:
            self.store.change(step)
        except Exception as error:  # noqa: BLE001 - a store that fails never fails a call
            self._rest(error)
            return False
        return True

    def _is_resting(self) -> bool:
        return 0 < self._resting - self.store.clock() <= _PAUSE

    def _rest(self, error: Exception) -> None:
        self._resting = self.store.clock() + _PAUSE
        said = "cache of table %s: the store failed (%s: %.200s); not asked for %g s"
        _log.warning(said, self.source.name, type(error).__name__, error, _PAUSE)
        _log.debug("why the store failed", exc_info=error)

    def _show(self, step: Count) -> None:
        show_lookups(self.source.client, self.source.name, step.lookups)


class CacheRunner(_AnyCacheRunner):
    """Carries out programs in the caller's thread, and what can wait in others."""

    _is_async = False
    _pool: tuple[int, Executor] | None = None  # and of which process

    def reads(self) -> CachedReads:
        """Return the reads of the table, after at most one DescribeTable."""
        return self._known or self.describe(self.source.names())

    def run(self, program: Callable[[CachedReads], CacheProgram[T]]) -> T:
        return self._run(program(self.reads()))

    def _run(self, program: CacheProgram[T]) -> T:
        try:
            step = next(program)
            while True:
                try:
                    answer = self._do(step)
                except BaseException as error:  # noqa: BLE001 - an interruption too: others may wait for the program
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _do(self, step: CacheStep) -> Any:
        if isinstance(step, Look):
            return self.store.clock(), self._look(step)
        if isinstance(step, Count):
            return self._show(step)
        if isinstance(step, AskTable):
            return self.source.load(step.operation, step.params)
        if isinstance(step, Change):
            return self._change_now(step)
        if isinstance(step, Join):
            return step.waiter.wait()
        return self.later(partial(self._quietly, step.program))

    def _look(self, step: Look) -> Any:
        if step.keys and not self._is_resting():
            try:
                return self.store.get(step.keys)
            except Exception as error:  # noqa: BLE001 - a store that fails never fails a read
                self._rest(error)
        return [None] * len(step.keys)

    def later(self, run: Callable[[], None]) -> None:
        process = os.getpid()
        pool = self._pool  # once: another thread may close
        if pool is None or pool[0] != process:
            pool = self._pool = process, ThreadPoolExecutor(_REFRESHES, thread_name_prefix="shardkit-cache")
        with suppress(RuntimeError):  # the interpreter ends, or has no thread left: the copy stays as it is
            pool[1].submit(contextvars.copy_context().run, run)

    def close(self) -> None:
        """End the idle threads; a later call makes new ones."""
        self._pool = None  # which ends its threads when it is collected

    def _quietly(self, program: CacheProgram[Any]) -> None:
        try:
            self._run(program)
        except Exception:  # noqa: BLE001 - nobody waits for it
            _log.debug("cache of table %s: a copy was not read again", self.source.name, exc_info=True)

    def settle(self, program: Callable[[CachedReads], CacheProgram[None]]) -> None:
        self.carry(program(self.reads()))

    def carry(self, program: CacheProgram[None]) -> None:
        self._run(program)

    @property
    def reads_now(self) -> CachedReads | None:
        return self.reads()


class AsyncCacheRunner(_AnyCacheRunner):
    """Carries out programs in the caller's task, and what can wait in others."""

    _is_async = True

    def __init__(self, source: CachedSource, options: CacheOptions, rng: random.Random | None = None) -> None:
        super().__init__(source, options, rng)
        self._tasks: set[asyncio.Future[Any]] = set()
        self._unsettled: set[asyncio.Future[None]] = set()

    async def reads(self) -> CachedReads:
        """Return the reads of the table, after at most one DescribeTable."""
        return self._known or self.describe(await self.source.names())

    async def run(self, program: Callable[[CachedReads], CacheProgram[T]]) -> T:
        reads = await self.reads()
        if self._unsettled:  # writes that ended before the names of the key were known
            await asyncio.wait(self._unsettled)
        return await self._run(program(reads))

    async def _run(self, program: CacheProgram[T], begun: Any = None) -> T:
        try:
            step = next(program) if begun is None else begun
            while True:
                try:
                    answer = await self._do(step)
                except BaseException as error:  # noqa: BLE001 - a cancellation too: others may wait for the program
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _do(self, step: CacheStep) -> Any:
        if isinstance(step, Look):
            return self.store.clock(), await self._look(step)
        if isinstance(step, Count):
            return self._show(step)
        if isinstance(step, AskTable):
            return await self.source.load(step.operation, step.params)
        if isinstance(step, Change):
            return await self._change(step)
        if isinstance(step, Join):
            return await step.waiter.wait()
        return self.later(self._quietly(step.program))

    async def _look(self, step: Look) -> Any:
        if step.keys and not self._is_resting():
            try:
                return await self._awaited(self.store.get(step.keys))
            except Exception as error:  # noqa: BLE001 - a store that fails never fails a read
                self._rest(error)
        return [None] * len(step.keys)

    async def _change(self, step: Change) -> bool:
        if self._is_resting():
            return False
        try:
            await self._awaited(self.store.change(step))
        except Exception as error:  # noqa: BLE001 - as above
            self._rest(error)
            return False
        return True

    async def _awaited(self, answer: Any) -> Any:
        return await answer if inspect.isawaitable(answer) else answer

    def later(self, run: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Wait for what runs in the background on this event loop."""
        loop = asyncio.get_running_loop()
        if tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)

    async def _quietly(self, program: CacheProgram[Any]) -> None:
        try:
            await self._run(program)
        except Exception:  # noqa: BLE001 - nobody waits for it
            _log.debug("cache of table %s: a copy was not read again", self.source.name, exc_info=True)

    def settle(self, program: Callable[[CachedReads], CacheProgram[None]]) -> None:
        reads = self.reads_now
        if reads is not None:
            self.carry(program(reads))
        else:
            task = self.later(self._settled(program))
            self._unsettled.add(task)
            task.add_done_callback(self._unsettled.discard)

    def carry(self, program: CacheProgram[None]) -> None:
        if self.store.is_async:
            # Its first step at once: nobody may join a read any more that began before the write.
            self.later(self._run(program, next(program)))
            return
        with suppress(StopIteration):
            step = next(program)
            while isinstance(step, Change):  # in memory, where nothing fails
                step = program.send(self._change_now(step))

    async def _settled(self, program: Callable[[CachedReads], CacheProgram[None]]) -> None:
        try:
            await self._run(program(await self.reads()))
        except Exception:  # noqa: BLE001 - as above
            _log.exception("cache of table %s: a write was not noted", self.source.name)

    @property
    def reads_now(self) -> CachedReads | None:
        sharding = self.source.shardings.get(self.source.named)
        return self._known or (None if sharding is None else self.describe(sharding.key_names))


@dataclass(slots=True)
class _WriteNote:
    """A call that may write to a cached table.

    ``items``: what it writes; None: that cannot be told. ``readable``: whether the request is one that the service can
    accept, as far as is known. ``write``: the write, when it has begun.
    """

    items: list[tuple[Access, WireItem]] | None
    readable: bool = True
    write: OpenWrite | None = None


class _WriteObserver(Holder):
    """Tells a cache about all writes of its client: of the table, of batches and transactions, of loads and libraries.

    A write begins when nothing but the service can refuse it any more: the last moment at which a call is held. An
    error in here is logged, and does not reach the caller.
    """

    waits = False

    def __init__(self, runner: _AnyCacheRunner) -> None:
        # Weak: the client keeps its observers; a cache that nobody uses any more must not live on through it.
        self._runner = weakref.ref(runner)
        self._client = weakref.ref(runner.source.client)

    def before(self, call: Call) -> None:
        runner = self._runner()
        if runner is None:
            # Here, and not when the runner is freed: the garbage collector runs anywhere, also where the lock is held.
            unobserve(self._client(), self)
        else:
            try:
                follows = runner.source.follows
                if rewrites(call, follows):
                    call.notes[self] = _WriteNote(None)
                elif OPERATIONS.get(call.operation) and any(map(follows, tables_of(call))):
                    # First the names of the key: with them come the shardings.
                    _ = runner.reads_now
                    call.notes[self] = _WriteNote(written(call, follows, runner.source.shardings))
            except Exception:  # noqa: BLE001 - of whatever kind
                call.notes[self] = _WriteNote(None, readable=False)
                _log.debug("%s: the cache could not read the request", call.operation, exc_info=True)

    def hold(self, call: Call) -> None:
        runner, note = self._runner(), call.notes.get(self)
        if runner is not None and note is not None:
            try:
                self._begin(runner, note)
            except Exception:  # noqa: BLE001 - as above
                note.items, note.readable = None, False
                _log.debug("%s: the cache could not read the request", call.operation, exc_info=True)

    async def hold_async(self, call: Call) -> None:
        self.hold(call)

    def release(self, call: Call) -> None:
        runner, note = self._runner(), call.notes.pop(self, None)
        if runner is not None and note is not None and note.write is not None:
            runner.cache.withdraw(note.write)

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        pass

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        runner, note = self._runner(), call.notes.pop(self, None)
        if runner is not None and note is not None:
            try:
                self._end(runner, call, note, parsed)
            except Exception:  # noqa: BLE001 - of whatever kind
                _log.exception("%s: the cache could not read the response", call.operation)

    def _begin(self, runner: _AnyCacheRunner, note: _WriteNote) -> None:
        cache, reads, items = runner.cache, runner.reads_now, note.items
        keys = {cache.all_keys} if items is None else set()
        if reads is not None and items:
            keys = {*(reads.key(item) for _, item in items), *keys_of_pages(items, reads)}
        if keys:
            note.write = cache.begin(keys, runner.store.clock())

    def _end(self, runner: _AnyCacheRunner, call: Call, note: _WriteNote, parsed: dict[str, Any]) -> None:
        cache, items, source, store = runner.cache, note.items, runner.source, runner.store
        if items:
            runner.settle(
                lambda reads: cache.end(
                    changes_of(call, parsed, items, reads, source.shardings, source.named, store.holds),
                    note.write,
                    store.clock(),
                )
            )
        elif items is None and (note.readable or "Error" not in parsed):
            runner.carry(cache.end({cache.all_keys: None}, note.write, store.clock()))
        elif note.write is not None:
            cache.withdraw(note.write)
