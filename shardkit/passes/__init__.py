"""Count, update and delete the items of a table, copy and compare tables."""

from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.analysis.prices import Prices
    from shardkit.passes.changes import compare, copy, count, delete, update
    from shardkit.passes.changing import ChangeReport
    from shardkit.passes.comparing import CompareReport

__all__ = ["ChangeReport", "CompareReport", "Prices", "compare", "copy", "count", "delete", "update"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"shardkit.passes.changes": __all__})
