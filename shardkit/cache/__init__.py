"""CachedTable: a table whose popular items are read from memory."""

from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.cache.options import CacheOptions
    from shardkit.cache.stores import MemoryStore, RedisStore
    from shardkit.cache.table import CachedTable

__all__ = ["CacheOptions", "CachedTable", "MemoryStore", "RedisStore"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.cache.options": ("CacheOptions",),
            "shardkit.cache.stores": ("MemoryStore", "RedisStore"),
            "shardkit.cache.table": ("CachedTable",),
        },
    )
