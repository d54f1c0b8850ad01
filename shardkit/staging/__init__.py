"""Stage the items of a source in S3, and import them with DynamoDB's own bulk writes."""

from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.staging.importing import import_items
    from shardkit.staging.operations import ImportReport
    from shardkit.staging.stage import StageFailure, StageProgress, StageReport
    from shardkit.staging.staging import stage_items

__all__ = ["ImportReport", "StageFailure", "StageProgress", "StageReport", "import_items", "stage_items"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.staging.importing": ("import_items",),
            "shardkit.staging.operations": ("ImportReport",),
            "shardkit.staging.stage": ("StageFailure", "StageProgress", "StageReport"),
            "shardkit.staging.staging": ("stage_items",),
        },
    )
