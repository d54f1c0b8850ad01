"""Sources of items: iterables, files, folders, objects in S3, frames."""

from shardkit.bulk.sources.base import BadRecord, IterableSource, Place, Source
from shardkit.bulk.sources.opening import as_source, open_source

__all__ = ["BadRecord", "IterableSource", "Place", "Source", "as_source", "open_source"]
