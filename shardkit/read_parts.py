"""Read one sharded table from many tasks of another engine (Spark, Ray, Dask), each of which reads a part of it.

``shardkit.spark.read`` is a shell over these names, and so can be a function for any other engine.
"""

from shardkit.parts.read import ReadConfig, read_part

__all__ = ["ReadConfig", "read_part"]
