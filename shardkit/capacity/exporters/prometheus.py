"""A meter's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from shardkit.capacity.exporters.measurements import HOT_KEYS, METRICS, Measured, Measurements, check, measure
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily

__all__ = ["CapacityCollector"]


class CapacityCollector:
    """A collector of ``prometheus_client`` that reads the meter at each scrape.

    Example:
        >>> from prometheus_client import REGISTRY
        >>> REGISTRY.register(CapacityCollector(meter))  # doctest: +SKIP

    Args:
        totals: a :class:`shardkit.CapacityMeter`, or one of its scopes; only one per registry.
        top: how many of the hottest keys to export, as gauges; 0 for none. Keys become label values: everyone who
            reads the metrics can read them, and Prometheus keeps a series of each key that was ever exported.

    Raises:
        ConfigurationError: ``prometheus_client`` is not installed, or ``totals`` or ``top`` is invalid.

    Cost:
        No request. A scrape has four series per table, index and operation, two per vector index and operation, two per
        table and operation, one per reason, and four per key of ``top`` (one pass over all keys that the meter holds).

    Source:
        Prometheus, "Writing exporters" and "Metric and label naming".
    """

    def __init__(self, totals: Measured, *, top: int = 0) -> None:
        try:
            from prometheus_client import core  # noqa: PLC0415 - of the prometheus extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                'prometheus_client: the package is not installed; run pip install "shardkit[prometheus]"'
            ) from error
        check(totals, top)
        self._totals = totals
        self._top = top
        self._counter, self._gauge = core.CounterMetricFamily, core.GaugeMetricFamily

    def describe(self) -> Iterator[Family]:
        """Return the metrics without figures; the registry checks them for duplicates."""
        return self._families({metric: {} for metric in (*METRICS, *(HOT_KEYS if self._top else ()))})

    def collect(self) -> Iterator[Family]:
        """Return the current figures."""
        return self._families(measure(self._totals, top=self._top))

    def _families(self, measurements: Measurements) -> Iterator[Family]:
        for metric, numbers in measurements.items():
            make = self._gauge if metric in HOT_KEYS else self._counter
            name, unit = f"shardkit_dynamodb_{metric.name}", f"{metric.unit}s"
            family = make(
                name,
                metric.description,
                labels=metric.labels,
                # Prometheus would append a unit with which the name does not end.
                unit=unit if name.endswith(f"_{unit}") else "",
            )
            for values, number in numbers.items():
                family.add_metric(values, number)
            yield family
