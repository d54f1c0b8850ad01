"""What a cache is told: how long it serves what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardkit.core.checks import check_number
from shardkit.errors import ConfigurationError, brief

_STORE = ("shared", "is_async", "clock", "get", "writes_of", "holds", "change")  # of the protocol Store


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """How a cache serves the reads of a table, for ``CachedTable`` and for ``install(cache=)``.

    Example:
        CacheOptions(ttl=30, stale_if_throttled=300, max_bytes=64_000_000)

    Args:
        ttl: Seconds for which a copy of an item is served, > 0.
        absent_ttl: Seconds for which a missing item is served as missing; 0: never.
        query_ttl: Seconds for which a page of ``query`` is served, > 0; None: pages are not cached.
        jitter: The part of each of these times, from 0 to below 1, that is drawn at random and taken off, so that what
            was read together does not expire together.
        stale_while_revalidate: Seconds after its time for which a copy is still served, while it is read again in the
            background.
        stale_if_throttled: Seconds after its time for which a copy is still served if the read is throttled.
        store: Where copies are: a ``MemoryStore`` or a ``RedisStore``; None: a new ``MemoryStore(max_bytes)``.
        max_bytes: The bytes of that ``MemoryStore``, at least 100,000.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    ttl: float = 60.0
    absent_ttl: float = 5.0
    query_ttl: float | None = None
    jitter: float = 0.1
    stale_while_revalidate: float = 0.0
    stale_if_throttled: float = 0.0
    store: Any = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_number("ttl", self.ttl, "seconds", above=True)
        check_number("absent_ttl", self.absent_ttl, "seconds")
        if self.query_ttl is not None:
            check_number("query_ttl", self.query_ttl, "seconds", above=True)
        if check_number("jitter", self.jitter, "a part of the time") >= 1:
            raise ConfigurationError(f"jitter: must be < 1 (a part of the time), got {self.jitter}; give, say, 0.1")
        check_number("stale_while_revalidate", self.stale_while_revalidate, "seconds")
        check_number("stale_if_throttled", self.stale_if_throttled, "seconds")
        if (self.store is None) == (self.max_bytes is None):
            raise ConfigurationError(
                f"store, max_bytes: must have exactly one of them, got store={brief(self.store)} and "
                f"max_bytes={brief(self.max_bytes)}; give, for example, max_bytes=64_000_000"
            )
        if self.store is not None and not all(hasattr(self.store, name) for name in _STORE):
            raise ConfigurationError(
                f"store: must be a MemoryStore or a RedisStore, got {brief(self.store)}; give RedisStore(client)"
            )
