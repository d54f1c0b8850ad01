"""Write sharding, gathered reads, ordered uploads and consumed capacity for DynamoDB tables, over boto3."""

import logging
from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.bulk.load import bulk_load, streaming_bulk
    from shardkit.bulk.load_end import InterruptedLoadError
    from shardkit.bulk.report import BulkLoadError, BulkReport, BulkResult, ShardTally
    from shardkit.bulk.sources.opening import open_source
    from shardkit.capacity import CapacityBudget, CapacityMeter, SharedBudget
    from shardkit.core.hashing import code_point_product, stable_hash
    from shardkit.counter import CounterValue, ShardedCounter
    from shardkit.errors import (
        AmbiguousItemError,
        CapacityBudgetError,
        ConfigurationError,
        CursorError,
        IncompleteResetError,
        InvalidKeyError,
        InvalidValueError,
        MaintenanceError,
        MissingCredentialsError,
        PeriodError,
        ShardkitError,
        ShardQueryError,
        ShardTimeoutError,
        ShardUnknownError,
        StageError,
        StagingError,
        TableNotDescribedError,
        UnknownOutcomeError,
        UnsupportedExpressionError,
        UnsupportedOperationError,
        UnsupportedParameterError,
    )
    from shardkit.installation import Installation, install, install_everywhere
    from shardkit.migrate.backfill import backfill_index
    from shardkit.migrate.backfill_machine import BackfillReport
    from shardkit.runtime.transports import DirectTransport
    from shardkit.shard_map import ShardMap, ShardMapAdmin
    from shardkit.staging import ImportReport, StageReport, import_items, stage_items
    from shardkit.strategies import (
        CalculatedSuffix,
        RandomSuffix,
        RangeSuffix,
        Resharding,
        Strategy,
        Unsharded,
        register_function,
    )
    from shardkit.table import ShardedTable
    from shardkit.table_types import TableLike
    from shardkit.timeseries import TimeSeries
    from shardkit.version import __version__

logging.getLogger("shardkit").addHandler(logging.NullHandler())  # the application decides where it goes

__all__ = [
    "AmbiguousItemError",
    "BackfillReport",
    "BulkLoadError",
    "BulkReport",
    "BulkResult",
    "CalculatedSuffix",
    "CapacityBudget",
    "CapacityBudgetError",
    "CapacityMeter",
    "ConfigurationError",
    "CounterValue",
    "CursorError",
    "DirectTransport",
    "ImportReport",
    "IncompleteResetError",
    "Installation",
    "InterruptedLoadError",
    "InvalidKeyError",
    "InvalidValueError",
    "MaintenanceError",
    "MissingCredentialsError",
    "PeriodError",
    "RandomSuffix",
    "RangeSuffix",
    "Resharding",
    "ShardMap",
    "ShardMapAdmin",
    "ShardQueryError",
    "ShardTally",
    "ShardTimeoutError",
    "ShardUnknownError",
    "ShardedCounter",
    "ShardedTable",
    "ShardkitError",
    "SharedBudget",
    "StageError",
    "StageReport",
    "StagingError",
    "Strategy",
    "TableLike",
    "TableNotDescribedError",
    "TimeSeries",
    "UnknownOutcomeError",
    "Unsharded",
    "UnsupportedExpressionError",
    "UnsupportedOperationError",
    "UnsupportedParameterError",
    "__version__",
    "backfill_index",
    "bulk_load",
    "code_point_product",
    "import_items",
    "install",
    "install_everywhere",
    "open_source",
    "register_function",
    "stable_hash",
    "stage_items",
    "streaming_bulk",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.errors": (name for name in __all__ if name.endswith("Error")),  # but those below
            "shardkit.migrate.backfill": ("backfill_index",),
            "shardkit.migrate.backfill_machine": ("BackfillReport",),
            "shardkit.bulk.load": ("bulk_load", "streaming_bulk"),
            "shardkit.bulk.load_end": ("InterruptedLoadError",),
            "shardkit.bulk.report": ("BulkLoadError", "BulkReport", "BulkResult", "ShardTally"),
            "shardkit.bulk.sources.opening": ("open_source",),
            "shardkit.capacity": ("CapacityBudget", "CapacityMeter", "SharedBudget"),
            "shardkit.core.hashing": ("code_point_product", "stable_hash"),
            "shardkit.counter": ("CounterValue", "ShardedCounter"),
            "shardkit.installation": ("Installation", "install", "install_everywhere"),
            "shardkit.runtime.transports": ("DirectTransport",),
            "shardkit.shard_map": ("ShardMap", "ShardMapAdmin"),
            "shardkit.staging": ("ImportReport", "StageReport", "import_items", "stage_items"),
            "shardkit.strategies": (
                "CalculatedSuffix",
                "RandomSuffix",
                "RangeSuffix",
                "Resharding",
                "Strategy",
                "Unsharded",
                "register_function",
            ),
            "shardkit.table": ("ShardedTable",),
            "shardkit.table_types": ("TableLike",),
            "shardkit.timeseries": ("TimeSeries",),
            "shardkit.version": ("__version__",),
        },
    )
