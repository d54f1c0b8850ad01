"""A meter's figures for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from shardkit.capacity.exporters.measurements import (
    HOT_KEYS,
    METRICS,
    Measured,
    Measurements,
    Metric,
    check,
    hot_keys,
    measure,
    present,
)
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from typing_extensions import Self

__all__ = ["CapacityInstruments"]

# The semantic conventions' names, of the version that _SCHEMA says; they have none for a key.
_ATTRIBUTES: Mapping[str, str] = {
    "table": "db.collection.name",
    "index": "aws.dynamodb.index_name",
    "operation": "db.operation.name",
    "reason": "error.type",
    "key": "shardkit.key",
}
_SYSTEM = {"db.system.name": "aws.dynamodb"}
_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class CapacityInstruments:
    """Observable counters of OpenTelemetry: they read the meter whenever the SDK collects.

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
        No request. A collection: four data points for each table, index and operation, two for each table and
        operation, one for each reason, four for each of the ``top`` keys (a pass over all keys that the meter holds).

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
        kinds: list[tuple[Callable[..., object], Iterable[Metric], Callable[[], Measurements]]] = [
            (meter.create_observable_counter, METRICS, lambda: measure(totals))
        ]
        if top:
            kinds.append((meter.create_observable_gauge, HOT_KEYS, lambda: hot_keys(totals, top)))
        for create, exported, take in kinds:
            for metric in exported:
                create(
                    f"shardkit.dynamodb.{metric.name}",
                    callbacks=[self._callback(metric, take)],
                    unit=f"{{{metric.unit}}}",
                    description=metric.description,
                )

    def _callback(
        self, metric: Metric, take: Callable[[], Measurements]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if self._closed:
                return
            for values, number in take()[metric].items():
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
