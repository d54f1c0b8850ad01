"""Sources of items: iterables, files, folders, objects in S3, frames."""

from typing import TYPE_CHECKING

from shardkit.bulk.sources.base import BadRecord, IterableSource, Place, Source
from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.bulk.sources.opening import open_source

__all__ = ["BadRecord", "IterableSource", "Place", "Source", "open_source"]

if not TYPE_CHECKING:
    # A load of Python objects needs none of the file formats.
    __getattr__, __dir__ = lazy_names(__name__, {"shardkit.bulk.sources.opening": ("open_source",)})
