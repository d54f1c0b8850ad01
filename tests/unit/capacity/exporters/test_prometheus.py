"""The collector for Prometheus: what it gives is parsed back with prometheus_client's own parsers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pytest

from shardkit.capacity.exporters.measurements import METRICS
from shardkit.capacity.exporters.prometheus import CapacityCollector
from shardkit.errors import ConfigurationError
from tests.support.exported import ROWS, Busy, hot_rows
from tests.support.metered import item

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

PREFIX = "shardkit_dynamodb_"
Rows = set[tuple[str, tuple[str, ...], float]]


@pytest.fixture
def busy() -> Busy:
    busy = Busy()
    busy.calls()
    return busy


def scraped(registry: CollectorRegistry) -> list[Any]:
    return list(parse_text(generate_latest(registry).decode()))


def samples(families: Iterable[Any], kind: str) -> Rows:
    """The samples that are not 0, their labels in the order of the metric's; an absent label as an empty value."""
    return {
        (
            sample.name.removeprefix(PREFIX).removesuffix("_total"),
            tuple(sample.labels.get(label, "") for label in labels_of(sample.labels)),
            sample.value,
        )
        for family in families
        if family.type == kind
        for sample in family.samples
        if sample.value
    }


def labels_of(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name in ("table", "index", "operation", "reason", "key") if name in labels)


def test_parsed_back(busy: Busy) -> None:
    registry = CollectorRegistry()
    registry.register(CapacityCollector(busy.meter))
    families = scraped(registry)
    assert {family.type for family in families} == {"counter"}
    assert samples(families, "counter") == ROWS
    assert all(sample.name.endswith("_total") for family in families for sample in family.samples)
    assert {family.name: family.documentation for family in families} == {
        f"{PREFIX}{metric.name}": metric.description for metric in METRICS
    }
    busy.calls()
    assert samples(scraped(registry), "counter") == {(name, place, 2 * number) for name, place, number in ROWS}


def test_as_openmetrics_with_units(busy: Busy) -> None:
    registry = CollectorRegistry()
    registry.register(CapacityCollector(busy.meter, top=1))
    text = exposition.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert samples(families, "counter") == ROWS
    assert {family.unit for family in families if "capacity" in family.name} == {"capacity_units"}
    assert {family.name: family.unit for family in families if "capacity" not in family.name} == {
        f"{PREFIX}vector_search_request_bytes": "bytes",
        f"{PREFIX}vector_write_request_bytes": "bytes",
        f"{PREFIX}requests": "requests",
        f"{PREFIX}throttled_attempts": "attempts",
        f"{PREFIX}throttles": "",
        f"{PREFIX}retries": "",
        f"{PREFIX}cache_fresh_hits": "",
        f"{PREFIX}cache_stale_hits": "",
        f"{PREFIX}cache_misses": "",
    }


def test_keys_only_when_asked(busy: Busy) -> None:
    registry = CollectorRegistry()
    registry.register(CapacityCollector(busy.meter))
    assert b"key" not in generate_latest(registry)
    registry = CollectorRegistry()
    registry.register(CapacityCollector(busy.meter, top=2))
    families = scraped(registry)
    assert samples(families, "gauge") == hot_rows(busy.meter, 2)
    assert {sample.labels["key"] for family in families if family.type == "gauge" for sample in family.samples} == {
        "a",
        "b",
    }


def test_keys_of_any_characters(busy: Busy) -> None:
    name = 'a "quoted"\\\n{key="ü"} '
    for _ in range(50):
        busy.client.call("PutItem", {}, TableName="T", Item=item(name))
    registry = CollectorRegistry()
    registry.register(CapacityCollector(busy.meter, top=1))
    assert {place for _, place, _ in samples(scraped(registry), "gauge")} == {("T", name)}


def test_registered_and_unregistered(busy: Busy) -> None:
    registry = CollectorRegistry()
    collector = CapacityCollector(busy.meter, top=1)
    registry.register(collector)
    for again in (collector, CapacityCollector(busy.meter), CapacityCollector(busy.scope, top=1)):
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(again)
    registry.unregister(collector)
    assert generate_latest(registry) == b""
    registry.register(collector)
    assert samples(scraped(registry), "counter") == ROWS


@pytest.mark.parametrize("top", [0, 1])
def test_all_that_is_collected_is_described(busy: Busy, top: int) -> None:
    collector = CapacityCollector(busy.meter, top=top)
    described = [(family.name, family.type, family.unit) for family in collector.describe()]
    assert described == [(family.name, family.type, family.unit) for family in collector.collect()]
    assert not any(family.samples for family in collector.describe())


def test_registering_does_not_read_the_meter() -> None:
    class Unread:
        def __enter__(self) -> Any:
            raise AssertionError

        def __exit__(self, *_: object) -> None:
            raise AssertionError

    class Unreadable:
        recorder = Unread()

    CollectorRegistry(auto_describe=True).register(CapacityCollector(Unreadable(), top=1))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, busy: Busy) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r'pip install "shardkit\[prometheus\]"'):
        CapacityCollector(busy.meter)
