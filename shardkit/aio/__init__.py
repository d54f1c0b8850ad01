"""The async ``ShardedTable``, ``bulk_load`` and ``streaming_bulk``, for aiobotocore and aioboto3."""

from shardkit.aio.bulk import bulk_load, streaming_bulk
from shardkit.aio.table import ShardedTable

__all__ = ["ShardedTable", "bulk_load", "streaming_bulk"]
