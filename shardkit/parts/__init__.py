"""Write one table from many tasks of another engine (Spark, Ray, Dask), each of which writes a part of the rows.

The engine reads, divides and retries; shardkit writes. ``shardkit.spark.write`` is a shell over these names, and so can
be a function for any other engine.
"""

from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.parts.report import PartReport, PartsReport, merge
    from shardkit.parts.write import PartConfig, write_part

__all__ = ["PartConfig", "PartReport", "PartsReport", "merge", "write_part"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.parts.report": ("PartReport", "PartsReport", "merge"),
            "shardkit.parts.write": ("PartConfig", "write_part"),
        },
    )
