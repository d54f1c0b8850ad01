"""Write sharding, gathered reads, ordered uploads and consumed capacity for DynamoDB tables, over boto3."""

import logging
from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.bulk.load import bulk_load, streaming_bulk
    from shardkit.bulk.load_machine import InterruptedLoadError
    from shardkit.bulk.report import BulkLoadError, BulkReport, BulkResult, ShardTally
    from shardkit.bulk.sources.opening import open_source
    from shardkit.capacity import CapacityBudget, CapacityMeter
    from shardkit.core.hashing import code_point_product, stable_hash
    from shardkit.errors import (
        AmbiguousItemError,
        CapacityBudgetError,
        ConfigurationError,
        CursorError,
        InvalidKeyError,
        InvalidValueError,
        MissingCredentialsError,
        ShardkitError,
        ShardQueryError,
        ShardUnknownError,
        TableNotDescribedError,
        UnsupportedExpressionError,
        UnsupportedOperationError,
        UnsupportedParameterError,
    )
    from shardkit.middleware import Installation, install, install_everywhere
    from shardkit.runtime.transports import DirectTransport
    from shardkit.strategies import CalculatedSuffix, RandomSuffix, Strategy, Unsharded, register_function
    from shardkit.table import ShardedTable
    from shardkit.table_types import TableLike
    from shardkit.version import __version__

logging.getLogger("shardkit").addHandler(logging.NullHandler())  # the application decides where it goes

__all__ = [
    "AmbiguousItemError",
    "BulkLoadError",
    "BulkReport",
    "BulkResult",
    "CalculatedSuffix",
    "CapacityBudget",
    "CapacityBudgetError",
    "CapacityMeter",
    "ConfigurationError",
    "CursorError",
    "DirectTransport",
    "Installation",
    "InterruptedLoadError",
    "InvalidKeyError",
    "InvalidValueError",
    "MissingCredentialsError",
    "RandomSuffix",
    "ShardQueryError",
    "ShardTally",
    "ShardUnknownError",
    "ShardedTable",
    "ShardkitError",
    "Strategy",
    "TableLike",
    "TableNotDescribedError",
    "Unsharded",
    "UnsupportedExpressionError",
    "UnsupportedOperationError",
    "UnsupportedParameterError",
    "__version__",
    "bulk_load",
    "code_point_product",
    "install",
    "install_everywhere",
    "open_source",
    "register_function",
    "stable_hash",
    "streaming_bulk",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.bulk.load_machine": ("InterruptedLoadError",),
            "shardkit.bulk.load": ("bulk_load", "streaming_bulk"),
            "shardkit.bulk.report": ("BulkLoadError", "BulkReport", "BulkResult", "ShardTally"),
            "shardkit.bulk.sources.opening": ("open_source",),
            "shardkit.capacity": ("CapacityBudget", "CapacityMeter"),
            "shardkit.errors": (
                "AmbiguousItemError",
                "CapacityBudgetError",
                "ConfigurationError",
                "CursorError",
                "InvalidKeyError",
                "InvalidValueError",
                "MissingCredentialsError",
                "ShardkitError",
                "ShardQueryError",
                "ShardUnknownError",
                "TableNotDescribedError",
                "UnsupportedExpressionError",
                "UnsupportedOperationError",
                "UnsupportedParameterError",
            ),
            "shardkit.core.hashing": ("code_point_product", "stable_hash"),
            "shardkit.middleware": ("Installation", "install", "install_everywhere"),
            "shardkit.runtime.transports": ("DirectTransport",),
            "shardkit.strategies": ("CalculatedSuffix", "RandomSuffix", "Strategy", "Unsharded", "register_function"),
            "shardkit.table": ("ShardedTable",),
            "shardkit.table_types": ("TableLike",),
            "shardkit.version": ("__version__",),
        },
    )
