"""Capacity units on the client: what each call consumed or will consume, in total, per index and per key."""

from shardkit.analysis.per_key import PerKey
from shardkit.analysis.trace_files import TraceRow, highest_seconds, read_traces
from shardkit.capacity.advice import Advice, Skew
from shardkit.capacity.budget import CapacityBudget
from shardkit.capacity.charge import KeyOfIndex, KeyOfTable, KeyValue
from shardkit.capacity.heat_report import HeatReport
from shardkit.capacity.hot_keys import HotKeyWarning
from shardkit.capacity.lookups import CacheUsage
from shardkit.capacity.meter import CapacityMeter
from shardkit.capacity.scopes import HotKey, Scope
from shardkit.capacity.shared_budget import SharedBudget
from shardkit.capacity.trace import Trace
from shardkit.capacity.usage import Rates, Usage, VectorBytes
from shardkit.dynamodb.estimator import CapacityEstimator, ItemChange, TableUnits
from shardkit.dynamodb.sizes import item_size, storage_size
from shardkit.dynamodb.units import add_consumed, apportion, read_units, write_units
from shardkit.runtime.targets import Attachment

__all__ = [
    "Advice",
    "Attachment",
    "CacheUsage",
    "CapacityBudget",
    "CapacityEstimator",
    "CapacityMeter",
    "HeatReport",
    "HotKey",
    "HotKeyWarning",
    "ItemChange",
    "KeyOfIndex",
    "KeyOfTable",
    "KeyValue",
    "PerKey",
    "Rates",
    "Scope",
    "SharedBudget",
    "Skew",
    "TableUnits",
    "Trace",
    "TraceRow",
    "Usage",
    "VectorBytes",
    "add_consumed",
    "apportion",
    "highest_seconds",
    "item_size",
    "read_traces",
    "read_units",
    "storage_size",
    "write_units",
]
