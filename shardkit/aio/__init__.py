"""The async ``ShardedTable``, ``ShardedCounter``, ``TimeSeries``, ``CachedTable`` and bulk loads."""

from shardkit.aio.bulk import backfill_index, bulk_load, streaming_bulk
from shardkit.aio.cache import CachedTable
from shardkit.aio.counter import ShardedCounter
from shardkit.aio.table import ShardedTable
from shardkit.aio.timeseries import TimeSeries

__all__ = [
    "CachedTable",
    "ShardedCounter",
    "ShardedTable",
    "TimeSeries",
    "backfill_index",
    "bulk_load",
    "streaming_bulk",
]
