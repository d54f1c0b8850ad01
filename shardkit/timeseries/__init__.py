"""One logical table over a time series' tables, one a period."""

from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.analysis.prices import Prices
    from shardkit.timeseries.plans import Tuning
    from shardkit.timeseries.series import TimeSeries
    from shardkit.timeseries.settings import Throughput
    from shardkit.timeseries.steps import Maintenance, MaintenanceReport, MaintenanceStep, Saving

__all__ = [
    "Maintenance",
    "MaintenanceReport",
    "MaintenanceStep",
    "Prices",
    "Saving",
    "Throughput",
    "TimeSeries",
    "Tuning",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.timeseries.series": ("TimeSeries",),
            "shardkit.analysis.prices": ("Prices",),
            "shardkit.timeseries.settings": ("Throughput",),
            "shardkit.timeseries.steps": ("Maintenance", "MaintenanceReport", "MaintenanceStep", "Saving"),
            "shardkit.timeseries.plans": ("Tuning",),
        },
    )
