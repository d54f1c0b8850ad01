"""A meter's figures for OpenTelemetry."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from shardkit.capacity.exporters.measurements import (
    HOT_KEYS,
    METRICS,
    Measured,
    Measurements,
    Metric,
    check,
    measure,
    present,
)
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["CapacityInstruments"]

# The names of the semantic conventions, in the version of _SCHEMA; they have no name for a key.
_ATTRIBUTES: Mapping[str, str] = {
    "table": "db.collection.name",
    "index": "aws.dynamodb.index_name",
    "operation": "db.operation.name",
    "reason": "error.type",
    "key": "shardkit.key",
}
_UNITS = {"byte": "By"}  # UCUM's; units that UCUM does not have are written in braces
_SYSTEM = {"db.system.name": "aws.dynamodb"}
_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class CapacityInstruments:
    """Observable counters of OpenTelemetry that read the meter at each collection, all at the same moment.

    Example:
        >>> instruments = CapacityInstruments(meter)  # doctest: +SKIP
        >>> instruments.close()  # doctest: +SKIP

    It is also a context manager that closes at its end. It needs only the API; without an SDK nothing is exported.

    Args:
        totals: a :class:`shardkit.CapacityMeter`, or one of its scopes; only one per meter provider.
        top: how many of the hottest keys to export, as gauges; 0 for none. Keys become attribute values: everyone who
            reads the metrics can read them.
        meter_provider: None for the global one.

    Raises:
        ConfigurationError: ``opentelemetry-api`` is not installed, or ``totals`` or ``top`` is invalid.

    Cost:
        No request. A collection has four data points per table, index and operation, two per vector index and
        operation, two per table and operation, one per reason, and four per key of ``top`` (one pass over all keys that
        the meter holds).

    Source:
        OpenTelemetry semantic conventions 1.44.0, "Database client metrics" and "AWS DynamoDB".
    """

    def __init__(self, totals: Measured, *, top: int = 0, meter_provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics  # noqa: PLC0415 - of the opentelemetry extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                'opentelemetry-api: the package is not installed; run pip install "shardkit[opentelemetry]"'
            ) from error
        check(totals, top)
        self._totals = totals
        self._top = top
        self._closed = False
        self._numbers: Measurements = {}
        self._asked: set[Metric] = set()
        self._lock = threading.Lock()
        self._observation = metrics.Observation
        meter = metrics.get_meter("shardkit", meter_provider=meter_provider, schema_url=_SCHEMA)
        for metric in (*METRICS, *(HOT_KEYS if top else ())):
            create = meter.create_observable_gauge if metric in HOT_KEYS else meter.create_observable_counter
            create(
                f"shardkit.dynamodb.{metric.name}",
                callbacks=[partial(self._observe, metric)],
                unit=_UNITS.get(metric.unit, f"{{{metric.unit}}}"),
                description=metric.description,
            )

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterator[Observation]:
        if self._closed:
            return
        # OpenTelemetry asks each instrument once per collection, without saying which collection it is: a metric that
        # is asked for again begins the next one.
        with self._lock:
            if metric in self._asked or not self._asked:
                self._numbers = measure(self._totals, top=self._top)
                self._asked.clear()
            self._asked.add(metric)
            numbers = self._numbers[metric]
        for values, number in numbers.items():
            yield self._observation(number, {**_SYSTEM, **present(metric, values, _ATTRIBUTES)})

    def close(self) -> None:
        """Stop exporting. OpenTelemetry cannot remove instruments: they stay in their provider, without data."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
