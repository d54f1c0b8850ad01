"""Account: know on the client what each call consumed, in total, per index, per key, before and after."""

from shardkit.capacity.estimator import CapacityEstimator, ItemChange, TableUnits
from shardkit.capacity.meter import Attachment, CapacityMeter, Scope
from shardkit.capacity.sizes import item_size, storage_size
from shardkit.capacity.tally import Charge, KeyOfTable, KeyValue, Tally, Usage
from shardkit.capacity.units import add_consumed, apportion, read_units, write_units

__all__ = [
    "Attachment",
    "CapacityEstimator",
    "CapacityMeter",
    "Charge",
    "ItemChange",
    "KeyOfTable",
    "KeyValue",
    "Scope",
    "TableUnits",
    "Tally",
    "Usage",
    "add_consumed",
    "apportion",
    "item_size",
    "read_units",
    "storage_size",
    "write_units",
]
