"""A meter's figures for OpenTelemetry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
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
    from types import TracebackType
    from typing import Self

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["CapacityInstruments"]

# The semantic conventions' names, of the version that _SCHEMA says; they have none for a key.
_ATTRIBUTES: Mapping[str, str] = {
    "table": "db.collection.name",
    "index": "aws.dynamodb.index_name",
    "operation": "db.operation.name",
    "reason": "error.type",
    "key": "shardkit.key",
}
_UNITS = {"byte": "By"}  # UCUM's own; what it has none for stands in braces
_SYSTEM = {"db.system.name": "aws.dynamodb"}
_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class _Reading:
    """The numbers of one moment for all instruments of a collection.

    OpenTelemetry asks each instrument by itself, and does not say for which collection; but in one it asks each once.
    So a metric that is asked for again begins the next.
    """

    def __init__(self, totals: Measured, top: int) -> None:
        self._totals = totals
        self._top = top
        self._numbers: Measurements = {}
        self._asked: set[Metric] = set()
        self._lock = threading.Lock()

    def of(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Give the numbers of a metric."""
        with self._lock:
            if metric in self._asked or not self._asked:
                self._numbers = measure(self._totals, top=self._top)
                self._asked.clear()
            self._asked.add(metric)
            return self._numbers[metric]


class CapacityInstruments:
    """Observable counters of OpenTelemetry: they read the meter whenever the SDK collects, all at one moment.

    Example:
        >>> instruments = CapacityInstruments(meter)  # doctest: +SKIP
        >>> instruments.close()  # doctest: +SKIP

    It is a context manager too, that closes at its end. Needed is only the API; without an SDK nothing is exported.

    Args:
        totals: a :class:`shardkit.CapacityMeter`, or one of its scopes; one for each meter provider.
        top: how many of the hottest keys to export, as gauges; 0 for none. A key becomes an attribute's value: whoever
            reads the metrics reads the keys.
        meter_provider: None for the global one.

    Raises:
        ConfigurationError: ``opentelemetry-api`` is not installed; or ``totals`` or ``top`` is something else.

    Cost:
        No request. A collection: four data points for each table, index and operation, two for each vector index and
        operation, two for each table and operation, one for each reason, four for each of the ``top`` keys (a pass over
        all keys that the meter holds).

    Source:
        OpenTelemetry semantic conventions 1.44.0, "Database client metrics" and "AWS DynamoDB".
    """

    def __init__(self, totals: Measured, *, top: int = 0, meter_provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics  # noqa: PLC0415 - of the opentelemetry extra
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                'exporting to OpenTelemetry needs the package opentelemetry-api: pip install "shardkit[opentelemetry]"'
            ) from error
        check(totals, top)
        self._closed = False
        self._observation = metrics.Observation
        meter = metrics.get_meter("shardkit", meter_provider=meter_provider, schema_url=_SCHEMA)
        reading = _Reading(totals, top)
        for metric in (*METRICS, *(HOT_KEYS if top else ())):
            create = meter.create_observable_gauge if metric in HOT_KEYS else meter.create_observable_counter
            create(
                f"shardkit.dynamodb.{metric.name}",
                callbacks=[self._callback(metric, reading)],
                unit=_UNITS.get(metric.unit, f"{{{metric.unit}}}"),
                description=metric.description,
            )

    def _callback(self, metric: Metric, reading: _Reading) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if self._closed:
                return
            for values, number in reading.of(metric).items():
                yield self._observation(number, {**_SYSTEM, **present(metric, values, _ATTRIBUTES)})

        return observe

    def close(self) -> None:
        """Export no more; the instruments stay in their provider, without data: OpenTelemetry cannot remove them."""
        self._closed = True

    def __enter__(self) -> Self:
        """Give the instruments; they export already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
