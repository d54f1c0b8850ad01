"""Where copies are: in this process, or in a Valkey or Redis server that several processes share."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakSet

from shardkit.cache.entries import ENTRY_BYTES, MARK
from shardkit.cache.steps import Change
from shardkit.cache.table_cache import SETTLES, WriteLog
from shardkit.core.checks import check_count
from shardkit.core.frequency import MOST, FrequencySketch
from shardkit.core.popular import PopularValues
from shardkit.errors import ConfigurationError, brief

__all__ = ["MemoryStore", "RedisStore", "Store"]

_SLOWEST = 1.0  # seconds that a read may wait for a store
_LEAST_BYTES = 100_000


class Store(Protocol):
    """What a cache needs of a store. The methods of a store over an async client return awaitables."""

    shared: bool
    is_async: bool
    clock: Callable[[], float]

    def get(self, keys: Sequence[bytes]) -> Any:
        """Return the content of each key, or None for a key without any."""

    def writes_of(self, table: bytes) -> WriteLog:
        """Return the writes of the table whose keys begin so."""

    def holds(self, key: bytes) -> bool:
        """Return whether a write may replace the content of a key."""

    def change(self, change: Change) -> Any:
        """Carry out a change."""


class MemoryStore:
    """Copies in the memory of this process, the popular ones; several tables and threads may share one.

    Example:
        products = CachedTable(table, store=MemoryStore(64_000_000))

    Popular is decided by frequency (TinyLFU): a new copy is taken if there is room, or if it was asked for more often
    lately than those that it would push out. Different tables with one store must differ in region, or in the name or
    ARN that they are given by. One table may have several clients, such as one for each thread.

    Args:
        max_bytes: The memory for copies, at least 100,000 bytes: keys, contents (the JSON of items), and 400 bytes for
            each. Beside it, the counts of requests take 32 to 64 bytes for each.
        clock: Returns the time in seconds; for tests.

    Raises:
        ConfigurationError: ``max_bytes`` is invalid, or cachetools is not installed (``pip install shardkit[cache]``).
    """

    shared = False
    is_async = False

    # Not the monotonic clock, which stands still while a Lambda function is frozen or a machine sleeps.
    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = time.time) -> None:
        check_count("max_bytes", max_bytes, "bytes", least=_LEAST_BYTES)
        self.max_bytes = max_bytes
        self.clock = clock
        self._copies: PopularValues[bytes, bytes] = PopularValues(
            max_bytes, lambda key, content: len(key) + len(content) + ENTRY_BYTES
        )
        self._lock = threading.Lock()
        self._writes: dict[bytes, WriteLog] = {}
        renew_after_fork(self)

    def __repr__(self) -> str:
        return f"<MemoryStore of {self.max_bytes:,} bytes: {len(self):,} copies, {self.size:,} bytes>"

    def __len__(self) -> int:
        """Return the number of copies."""
        return len(self._copies)

    @property
    def size(self) -> int:
        """The bytes that the copies take."""
        return self._copies.size

    def writes_of(self, table: bytes) -> WriteLog:
        """Return the writes of a table, for all caches that keep its copies here."""
        return self._writes.setdefault(table, WriteLog(threading.Lock()))

    def holds(self, key: bytes) -> bool:
        """Return whether there is a copy, without counting a request for it."""
        return key in self._copies

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the content of each key."""
        with self._lock:
            return [self._copies.get(key) for key in keys]

    def change(self, change: Change) -> None:
        """Carry out a change."""
        with self._lock:
            for key, content, _, _ in change.put:
                # Within the lock: a write first forbids it, then drops the copy.
                if change.allowed(key):
                    self._copies.put(key, content)
            for key, content, _ in change.replace:
                self._copies.replace(key, content)
            for key in change.drop:
                self._copies.delete(key)
            if change.clear is not None:
                prefix = change.clear
                self._copies.delete_all(lambda key: key.startswith(prefix))

    def forked(self) -> None:
        """Make a new lock: in a forked process, one that another thread held stays locked."""
        self._lock = threading.Lock()


_renewed: WeakSet[Any] = WeakSet()


def renew_after_fork(thing: Any) -> None:
    """Call ``thing.forked()`` in each process that is forked from this one."""
    _renewed.add(thing)


def _forked() -> None:
    for thing in _renewed:
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

# In one step, so that what was read before a write replaces neither the write's mark nor what was read after it.
_PUT = """
local there = redis.call('GET', KEYS[1])
if there and there ~= ARGV[3] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""


class RedisStore:
    """Copies in a Valkey or Redis server (such as ElastiCache), for a fleet of processes.

    Example:
        client = redis.Redis(host="cache", socket_timeout=0.05, socket_connect_timeout=0.05, retry=None)
        products = CachedTable(table, store=RedisStore(client))

    Copies are JSON of wire values under ``shardkit:<region>:<table>:…``. The server evicts: give it a ``maxmemory`` and
    ``maxmemory-policy allkeys-lfu``. If it fails or is slow, reads go to the table, and it is asked again a second
    later. Writes leave no mark meanwhile: ``unmarked`` counts them. They are marked late, when the process next sees
    that the server answers; until then, other processes may serve what was there before.

    Args:
        client: A client of redis-py or valkey-py, for a server or a cluster; of their ``asyncio`` for async tables. A
            sync one must not retry, and its ``socket_connect_timeout`` and ``socket_timeout`` are a second together at
            most: a command that fails costs a read that long.
        timeout: Seconds after which an async client's command is given up.
        prefix: What keys begin with. Tables of the same name and region, in several accounts, need different ones if
            they are given by name.
        admit_after: How often this process must ask for an item lately before it stores it, 1 to 15, so that a scan of
            cold keys does not fill the server.
        clock: Returns the time in seconds, the same in all processes; for tests.

    Raises:
        ConfigurationError: An argument is invalid, or the client has no such timeouts, retries, or decodes responses.
    """

    shared = True

    def __init__(
        self,
        client: Any,
        *,
        timeout: float = 0.05,
        prefix: str = "",
        admit_after: int = 2,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.is_async = hasattr(client, "aclose")
        self.timeout = timeout
        self.clock = clock
        self._client = client
        self._prefix = prefix.encode()
        self._admit_after = check_count("admit_after", admit_after, "requests", most=MOST, why="counts end there")
        self.unmarked = 0
        self._counting = threading.Lock()
        self._asked = FrequencySketch()
        self._asked.fit(_COUNTED)
        self._check()
        renew_after_fork(self)

    def __repr__(self) -> str:
        return f"RedisStore({type(self._client).__name__})"

    def _check(self) -> None:
        client = self._client
        if not hasattr(client, "mget") or not hasattr(client, "pipeline"):
            raise ConfigurationError(
                f"client: must be a client of redis-py or valkey-py, got {brief(client)}; give, for example, "
                'redis.Redis(host="cache", socket_timeout=0.05, socket_connect_timeout=0.05, retry=None)'
            )
        options: Mapping[str, Any] = getattr(client, "get_connection_kwargs", dict)()
        if options.get("decode_responses"):
            raise ConfigurationError("client: must return bytes, got decode_responses=True; leave it out")
        if self.is_async:
            return
        retry: Any = options.get("retry")
        timeout = options.get("socket_timeout")
        retries = retry.get_retries() if hasattr(retry, "get_retries") else 0
        connecting = options.get("socket_connect_timeout") or timeout  # as redis-py takes it
        if timeout is None or timeout + connecting > _SLOWEST or retries:
            raise ConfigurationError(
                f"client: must give up a command within {_SLOWEST:g} s, got socket_timeout={timeout}, "
                f"socket_connect_timeout={connecting} and {retries} retries; give, for example, socket_timeout=0.05, "
                "socket_connect_timeout=0.05, retry=None"
            )

    def get(self, keys: Sequence[bytes]) -> Any:
        """Return the content of each key."""
        for key in keys:
            self._asked.add(key)
        return self._in_time(self._contents(keys))

    def _contents(self, keys: Sequence[bytes]) -> Any:
        # Each command has one key: the keys of a cluster are on different servers.
        if len(keys) == 1:
            return self._client.mget([self._prefix + keys[0]])
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.get(self._prefix + key)
        return pipe.execute()

    def writes_of(self, table: bytes) -> WriteLog:
        """Return the writes of a table through one client; others see the marks that they leave."""
        return WriteLog(threading.Lock(), on_untold=self._count)

    def _count(self) -> None:
        with self._counting:
            self.unmarked += 1

    def forked(self) -> None:
        """Make a new lock: in a forked process, one that another thread held stays locked."""
        self._counting = threading.Lock()

    def holds(self, key: bytes) -> bool:
        """Return False: a write leaves a mark, whatever there is."""
        return False

    def change(self, change: Change) -> Any:
        """Carry out a change."""
        if change.clear is not None:
            pattern = _literal(self._prefix + change.clear) + b"*"
            return self._clear_async(pattern) if self.is_async else self._clear(pattern)
        return self._in_time(self._changed(change))

    def _changed(self, change: Change) -> Any:
        pipe = self._client.pipeline(transaction=False)
        for key, content, seconds, seen in change.put:
            if change.allowed(key) and self._asked.count(key) >= self._admit_after:
                # Not eval(): the pipelines of clusters refuse that, whatever its keys.
                pipe.execute_command("EVAL", _PUT, 1, self._prefix + key, content, _milliseconds(seconds), seen or b"")
        mark = MARK + os.urandom(12).hex().encode()
        for key in change.drop:  # nothing is replaced: the writes of several processes come in any order
            pipe.set(self._prefix + key, mark, px=_milliseconds(SETTLES))
        return pipe.execute()

    def _clear(self, pattern: bytes) -> None:
        for key in self._client.scan_iter(match=pattern, count=1000):
            self._client.unlink(key)

    async def _clear_async(self, pattern: bytes) -> None:
        found = self._client.scan_iter(match=pattern, count=1000)
        # Each command in time: a large server has many keys to look at.
        while (key := await self._in_time(anext(found, None))) is not None:
            await self._in_time(self._client.unlink(key))

    def _in_time(self, answer: Any) -> Any:
        return self._awaited(answer) if self.is_async else answer

    async def _awaited(self, answer: Any) -> Any:
        async with asyncio.timeout(self.timeout):
            return await answer


_COUNTED = 20_000  # keys whose requests a process counts, in 640 KB


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)


def _literal(text: bytes) -> bytes:
    return b"".join(b"\\" + bytes([byte]) if byte in b"*?[]\\^-" else bytes([byte]) for byte in text)
