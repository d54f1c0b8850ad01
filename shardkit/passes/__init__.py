"""Count, update and delete the items of a table, copy and compare tables."""

from shardkit.analysis.prices import Prices
from shardkit.passes.changes import compare, copy, count, delete, update
from shardkit.passes.changing import ChangeReport
from shardkit.passes.comparing import CompareReport

__all__ = ["ChangeReport", "CompareReport", "Prices", "compare", "copy", "count", "delete", "update"]
