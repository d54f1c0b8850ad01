"""Instruments of OpenTelemetry: read by its SDK, as an application would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardkit.capacity.exporters.measurements import METRICS
from shardkit.capacity.exporters.opentelemetry import CapacityInstruments
from shardkit.capacity.tally import Tally
from shardkit.errors import ConfigurationError
from tests.support.exported import ROWS, Busy, hot_rows

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, InMemoryMetricReader, Metric, Sum
from opentelemetry.semconv._incubating.attributes import aws_attributes, db_attributes
from opentelemetry.semconv.attributes import error_attributes

PREFIX = "shardkit.dynamodb."
# The attributes of the semantic conventions, in the order of our labels.
CONVENTIONS = (
    db_attributes.DB_COLLECTION_NAME,
    aws_attributes.AWS_DYNAMODB_INDEX_NAME,
    db_attributes.DB_OPERATION_NAME,
    error_attributes.ERROR_TYPE,
    "shardkit.key",
)
SYSTEM = {db_attributes.DB_SYSTEM_NAME: "aws.dynamodb"}
Rows = set[tuple[str, frozenset[tuple[str, Any]], float]]


@pytest.fixture
def busy() -> Busy:
    busy = Busy()
    busy.calls()
    return busy


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


def collected(reader: InMemoryMetricReader) -> list[Metric]:
    data = reader.get_metrics_data()
    return [
        metric
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


def points(metrics: list[Metric], kind: type[Sum | Gauge]) -> Rows:
    """The data points that are not 0."""
    return {
        (metric.name, frozenset((point.attributes or {}).items()), point.value)
        for metric in metrics
        if isinstance(metric.data, kind)
        for point in metric.data.data_points
        if point.value
    }


def attributed(wanted: set[tuple[str, tuple[str, ...], float]], times: int = 1) -> Rows:
    """Rows with the conventions' names."""
    conventions = dict(zip(("table", "index", "operation", "reason"), CONVENTIONS, strict=False))
    names = {metric.name: [conventions[label] for label in metric.labels] for metric in METRICS}
    return {
        (
            PREFIX + name,
            frozenset({**SYSTEM, **{label: it for label, it in zip(names[name], place, strict=True) if it}}.items()),
            number * times,
        )
        for name, place, number in wanted
    }


def test_collected_by_the_sdk(busy: Busy, provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    CapacityInstruments(busy.meter, meter_provider=provider)
    metrics = collected(reader)
    assert points(metrics, Sum) == attributed(ROWS)
    assert {(metric.name, metric.description, metric.unit) for metric in metrics} == {
        (PREFIX + metric.name, metric.description, "By" if metric.unit == "byte" else f"{{{metric.unit}}}")
        for metric in METRICS
    }
    for metric in metrics:
        assert isinstance(metric.data, Sum)
        assert metric.data.is_monotonic
        assert metric.data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    busy.calls()
    assert points(collected(reader), Sum) == attributed(ROWS, 2)


def test_the_scope_of_the_instruments(busy: Busy, provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    CapacityInstruments(busy.meter, meter_provider=provider)
    data = reader.get_metrics_data()
    assert data is not None
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "shardkit"
    assert scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_a_reader_of_differences(busy: Busy) -> None:
    """The SDK makes them from our totals."""
    deltas = InMemoryMetricReader(preferred_temporality={ObservableCounter: AggregationTemporality.DELTA})
    provider = MeterProvider([deltas])
    CapacityInstruments(busy.meter, meter_provider=provider)
    for _ in range(2):
        assert points(collected(deltas), Sum) == attributed(ROWS)
        busy.calls()
    provider.shutdown()


def test_keys_only_when_asked(busy: Busy, provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    CapacityInstruments(busy.meter, top=2, meter_provider=provider)
    metrics = collected(reader)
    assert points(metrics, Gauge) == {
        (
            PREFIX + name,
            frozenset({**SYSTEM, db_attributes.DB_COLLECTION_NAME: table, "shardkit.key": key}.items()),
            number,
        )
        for name, (table, key), number in hot_rows(busy.meter, 2)
    }
    assert points(metrics, Sum) == attributed(ROWS)


class Moving:
    """What a meter counts, where calls are made as soon as somebody has looked."""

    def __init__(self, busy: Busy) -> None:
        self.busy = busy

    @property
    @contextmanager
    def recorder(self) -> Iterator[Tally]:
        with self.busy.meter.recorder as tally:
            yield tally
        self.busy.calls()


@pytest.mark.parametrize("top", [0, 1])
def test_a_collection_is_of_one_moment(
    busy: Busy, provider: MeterProvider, reader: InMemoryMetricReader, top: int
) -> None:
    """OpenTelemetry asks one instrument after another, and calls go on meanwhile."""
    CapacityInstruments(Moving(busy), top=top, meter_provider=provider)
    for collection in (1, 2, 3):
        metrics = collected(reader)
        assert points(metrics, Sum) == attributed(ROWS, collection)
        written = f"{PREFIX}hottest_key_consumed_write_capacity_units"
        assert [number for name, _, number in points(metrics, Gauge) if name == written] == [5.0 * collection] * top


def test_closed(busy: Busy, provider: MeterProvider, reader: InMemoryMetricReader) -> None:
    with CapacityInstruments(busy.meter, top=1, meter_provider=provider) as instruments:
        assert {metric.name for metric in collected(reader)} > {PREFIX + metric.name for metric in METRICS}
    assert collected(reader) == []
    instruments.close()
    assert collected(reader) == []


def test_the_global_provider_without_an_sdk(busy: Busy) -> None:
    """The API alone does nothing, and needs no set-up."""
    CapacityInstruments(busy.meter).close()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, busy: Busy) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r'pip install "shardkit\[opentelemetry\]"'):
        CapacityInstruments(busy.meter)
