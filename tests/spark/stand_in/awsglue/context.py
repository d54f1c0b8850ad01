"""The Glue context: a Spark session."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class GlueContext:
    def __init__(self, context: Any) -> None:
        self.spark_session = SparkSession(context)
