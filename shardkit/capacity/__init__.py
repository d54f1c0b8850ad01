"""Capacity units on the client: what each call consumed or will consume, in total, per index and per key."""

from shardkit.capacity.advice import Advice, Skew
from shardkit.capacity.budget import CapacityBudget
from shardkit.capacity.charge import KeyValue
from shardkit.capacity.hot_keys import HotKeyWarning
from shardkit.capacity.meter import CapacityMeter
from shardkit.capacity.scopes import HotKey, Scope
from shardkit.capacity.tally import KeyOfTable
from shardkit.capacity.usage import Rates, Usage, VectorBytes
from shardkit.dynamodb.estimator import CapacityEstimator, ItemChange, TableUnits
from shardkit.dynamodb.sizes import item_size, storage_size
from shardkit.dynamodb.units import add_consumed, apportion, read_units, write_units
from shardkit.runtime.targets import Attachment

__all__ = [
    "Advice",
    "Attachment",
    "CapacityBudget",
    "CapacityEstimator",
    "CapacityMeter",
    "HotKey",
    "HotKeyWarning",
    "ItemChange",
    "KeyOfTable",
    "KeyValue",
    "Rates",
    "Scope",
    "Skew",
    "TableUnits",
    "Usage",
    "VectorBytes",
    "add_consumed",
    "apportion",
    "item_size",
    "read_units",
    "storage_size",
    "write_units",
]
